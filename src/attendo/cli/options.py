"""Options that several commands share."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any

import typer

Files = list[str] | None

_file = partial(typer.Option, metavar="FILE")

Source = Annotated[Files, _file(help="Source sentences, one per line.")]
Target = Annotated[Files, _file(help="Their translations, line by line.")]
Pairs = Annotated[Files, _file(help="Both sides in one file (.tsv or .jsonl).")]
Data = Annotated[
    Files,
    _file(help="All columns of the task: .tsv, .jsonl, .txt, or a folder of texts, images or wav."),
]
Trees = Annotated[Files, _file(help="Trees in brackets (.mrg, .ptb, .txt, .tsv or .jsonl).")]
ValidTrees = Annotated[Files, _file(help="Validation trees.")]
TestTrees = Annotated[Files, _file(help="Test trees.")]
ValidSource = Annotated[Files, _file(help="Validation sources.")]
ValidTarget = Annotated[Files, _file(help="Validation targets.")]
ValidPairs = Annotated[Files, _file(help="Validation pairs.")]
ValidData = Annotated[Files, _file(help="Validation files with all columns.")]
TestSource = Annotated[Files, _file(help="Test sources.")]
TestTarget = Annotated[Files, _file(help="Test targets.")]
TestPairs = Annotated[Files, _file(help="Test pairs.")]
TestData = Annotated[Files, _file(help="Test files with all columns.")]

Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")]
Engine = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="auto, torch or ctranslate2. auto is CTranslate2 on a CPU where it can run the "
        "model, else torch.",
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="auto, int8, float32, or bfloat16 (PyTorch; fast on a GPU). auto is float32, and with "
        "CTranslate2 int8 where that costs at most 0.3 BLEU on the validation pairs.",
    ),
]
Beam = Annotated[int | None, typer.Option(metavar="N", help="Beam size of the search.")]
BatchSize = Annotated[int | None, typer.Option(metavar="N", help="Sentences per batch.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one setting of the recipe."),
]


def between(low: float, high: float) -> Callable[[float | None], float | None]:
    """Return a callback that refuses numbers out of a range; typer's own accepts nan."""

    def check(value: float | None) -> float | None:
        if value is not None and not low <= value <= high:
            raise typer.BadParameter(
                f"{value:g} is not in the range from {low:,.10g} to {high:,.10g}."
            )
        return value

    return check


def check_sampled(strategy: str, options: Mapping[str, object]) -> None:
    """Refuse options of sampling where another strategy, which would ignore them, is chosen."""
    from attendo.errors import ConfigError

    given = [f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None]
    if given and strategy != "sample":
        raise ConfigError(
            f"{' and '.join(given)}: for sampling only, but the strategy is {strategy!r}"
        )


def file_settings(**files: Files) -> dict[str, Any]:
    """Return options for files as settings of a recipe, without those that were not given."""
    return {f"data.{key}": paths for key, paths in files.items() if paths}
