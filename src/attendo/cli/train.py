"""attendo train: from sentence pairs to a trained model."""

from functools import partial
from typing import Annotated

import typer

Files = list[str] | None

_file = partial(typer.Option, metavar="FILE")


def train(
    out: Annotated[str, typer.Option(metavar="RUN", help="Folder to write the run to.")],
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A preset ('attendo recipes') or a .toml file.")
    ] = "auto",
    source: Annotated[Files, _file(help="Source sentences, one a line.")] = None,
    target: Annotated[Files, _file(help="Their translations, line by line.")] = None,
    pairs: Annotated[Files, _file(help="Both sides in one .tsv or .jsonl file.")] = None,
    valid_source: Annotated[Files, _file(help="Validation sources.")] = None,
    valid_target: Annotated[Files, _file(help="Validation targets.")] = None,
    valid_pairs: Annotated[Files, _file(help="Validation pairs.")] = None,
    test_source: Annotated[Files, _file(help="Test sources.")] = None,
    test_target: Annotated[Files, _file(help="Test targets.")] = None,
    test_pairs: Annotated[Files, _file(help="Test pairs.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change one setting of the recipe."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in RUN, if there is one.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print the score card as JSON.")] = False,
) -> None:
    """Train a model from sentence pairs.

    The recipe 'auto' looks at the data and the hardware, chooses everything
    and says what it chose and why. Validation and test pairs are split off
    when none are given. Files may be compressed (.gz, .xz, .zst). Ctrl-C
    saves; --resume goes on as if nothing had happened.

    \b
    Examples:
      attendo train --source a.en --target a.de --out run
      attendo train small --pairs all.tsv.gz --out run --set training.steps=5000
      attendo train my-recipe.toml --out run --resume
    """
    import shlex
    from pathlib import Path

    from attendo.bundle import find_device
    from attendo.cli.output import print_scores
    from attendo.config import parse_overrides
    from attendo.reporter import Console
    from attendo.training.run import Interrupted, train_run

    files = {
        "source": source, "target": target, "pairs": pairs,
        "valid_source": valid_source, "valid_target": valid_target, "valid_pairs": valid_pairs,
        "test_source": test_source, "test_target": test_target, "test_pairs": test_pairs,
    }  # fmt: skip
    overrides = {f"data.{key}": paths for key, paths in files.items() if paths}
    overrides |= parse_overrides(settings or [])
    try:
        card = train_run(
            recipe, overrides, Path(out), find_device(device), resume=resume, reporter=Console()
        )
    except Interrupted as interrupted:
        go_on = f"attendo train --out {shlex.quote(out)} --resume"
        typer.echo(f"{interrupted}; go on with: {go_on}", err=True)
        raise typer.Exit(130) from None
    print_scores(card, as_json=json)
    try_it = f"attendo translate {shlex.quote(out)} 'some text'"
    typer.echo(f"the model is in {out}; try: {try_it}", err=True)
