"""attendo beside Hugging Face's Marian in translating: the same sources, sizes and lengths.

PYTHONPATH=src python3 benchmarks/translate.py --help
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import torch
import typer
from peers import check_comparable
from peers.marian import Marian, translate_batches
from script import run

from attendo.bundle import find_device
from attendo.config import parse_overrides
from attendo.files import write_text
from attendo.lab.bench.results import Report, Row, print_report, settings_of
from attendo.lab.bench.translate import BATCH_SIZES, Subject, figures, fresh
from attendo.lab.clock import describe, timed
from attendo.reporter import Console

NOTES = [
    "new parameters; every output is forced to be one token longer than its source",
    "attendo goes from text to text, Marian (Hugging Face's generate) from ids to ids",
]

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def main(  # noqa: PLR0913 -- options are arguments
    recipe: Annotated[str, typer.Option(help="Recipe of the model.")] = "paper-base",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    sentences: Annotated[int | None, typer.Option(min=1, help="Sentences to translate.")] = None,
    batch_size: Annotated[
        list[int] | None, typer.Option(min=1, help="Sentences per batch; may be repeated.")
    ] = None,
    beam: Annotated[int, typer.Option(min=2, help="Beam size.")] = 4,
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each case.")] = 3,
    mean_length: Annotated[float, typer.Option(help="Mean number of tokens of a source.")] = 27.0,
    precision: Annotated[
        Literal["fp32", "bf16"], typer.Option(help="Precision of all parameters.")
    ] = "fp32",
    with_marian: Annotated[
        bool, typer.Option("--marian/--no-marian", help="Whether to measure Marian, too.")
    ] = True,
    marian_sentences: Annotated[
        int | None, typer.Option(min=1, help="Only so many sentences for Marian.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting of the recipe.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Also write JSON to this file.")] = None,
) -> None:
    """Measure greedy and beam search of attendo and of Marian."""
    where = find_device(device)
    sizes = batch_size or list(BATCH_SIZES)
    count = sentences or max(sizes)
    subject = fresh(recipe, parse_overrides(settings or []), where, count, mean_length)
    bundle = subject.translator.bundle
    bundle.model.to(DTYPES[precision])
    marian = None
    if with_marian:
        check_comparable(bundle.recipe)
        marian = Marian(bundle.recipe, bundle.task.target.specials).to(where).eval()
        marian.to(DTYPES[precision])

    rows: list[Row] = []
    with Console().bar("translating", 2 * len(sizes)) as advance:
        for n_beams in (1, beam):
            for size in sizes:
                rows += _contest(subject, marian, size, n_beams, rounds, marian_sentences)
                advance(1, f"{n_beams} beams, {size} at a time")
    asked = {"sentences": count, "rounds": rounds, "mean_length": mean_length, "beam": beam}
    chosen = settings_of(recipe, bundle.recipe, **asked, precision=precision)
    report = Report("translate beside peers", describe(where), chosen, rows, NOTES)
    print_report(report, as_json=False)
    if json:
        write_text(json, report.to_json() + "\n")


def _contest(
    subject: Subject,
    marian: Marian | None,
    size: int,
    n_beams: int,
    rounds: int,
    marian_sentences: int | None,
) -> list[Row]:
    """Translate everything with both, alternately, after a warm-up."""
    translator, texts = subject.translator, subject.texts
    sources = translator.bundle.task.source.encode_batch(texts)
    strategy = {"strategy": "greedy"} if n_beams == 1 else {"strategy": "beam", "beam": n_beams}
    options = {**subject.options, **strategy, "batch_size": size}

    def ours(first: int | None = None) -> list[str]:
        return translator.translate(texts[:first], **options)

    def theirs(first: int | None = None) -> None:
        assert marian is not None
        translate_batches(marian, sources[:first], size, n_beams, translator.device)

    # Both run one step more, for the end of the sentence, which does not count.
    lengths = [len(ids) + 1 for ids in sources]
    assert subject.count_tokens(ours()) == sum(lengths), (
        "attendo did not generate the required number of tokens"
    )
    systems: dict[str, Callable[[], object]] = {"attendo": ours}
    if marian is not None:
        theirs(size)
        systems["Marian"] = partial(theirs, marian_sentences)
    counts = {"attendo": len(texts), "Marian": min(marian_sentences or len(texts), len(texts))}
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(rounds):
        for name, translate in systems.items():
            seconds[name].append(timed(translate, translator.device)[1])
    rows = [
        {
            "system": name,
            "search": "greedy" if n_beams == 1 else f"beam {n_beams}",
            **figures(size, counts[name], sum(lengths[: counts[name]]), seconds[name]),
        }
        for name in systems
    ]
    fast = rows[0]["tokens_per_second"]
    return [{**row, "speedup_of_attendo": fast / row["tokens_per_second"]} for row in rows]


if __name__ == "__main__":
    run(app)
