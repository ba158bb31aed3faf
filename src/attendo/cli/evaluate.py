"""attendo evaluate: score a model on a test set."""

from typing import Annotated

import typer

from attendo.cli.options import BatchSize, Beam, Device, Engine


def evaluate(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a trained model.")],
    source: Annotated[
        str | None, typer.Option(metavar="FILE", help="Source sentences, one a line.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="FILE", help="Reference translations.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="FILE", help="All columns of the task in one file.")
    ] = None,
    trees: Annotated[
        str | None, typer.Option(metavar="FILE", help="For a parser: trees in brackets.")
    ] = None,
    beam: Beam = None,
    batch_size: BatchSize = None,
    device: Device = "auto",
    engine: Engine = "auto",
    precision: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="auto, int8, float32 or bfloat16; by default float32, if the run has it.",
        ),
    ] = None,
    confusion: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="For a classifier: draw which labels are confused (.png, .svg)."
        ),
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="Change the pairs before: caps, title, typos, punctuation or spaces.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Score a model on a test set.

    Translations are scored by BLEU and chrF, language models by perplexity and
    bits per byte, masked language models by pseudo-perplexity and accuracy of
    their guesses, classifiers by accuracy and F1 (with two labels also by
    Matthews correlation; words with BIO labels also by F1 of entities),
    parsers by bracketing F1.

    The scores are also added to the run's scorecard.json, under
    "evaluations" if it has scores of the run's own test set.

    With --noise, translations are measured on what people really write: the
    same changes that the section [noise] of a recipe makes in training.

    \b
    Examples:
      attendo evaluate run --source test.en --target test.de
      attendo evaluate run --source test.en.gz --target test.de.gz --beam 1 --json
      attendo evaluate run --source test.en --target test.de --noise typos
      attendo evaluate reviews --data test.tsv
      attendo evaluate reviews --data test.tsv --confusion map.png
      attendo evaluate parser --trees test.mrg
    """
    from pathlib import Path

    from attendo.cli.output import print_scores
    from attendo.engines.files import Evaluation, evaluate_files
    from attendo.errors import ConfigError
    from attendo.look.confusion import check_confusion, draw_confusion
    from attendo.reporter import Console

    if trees is not None and data is not None:
        raise ConfigError("both --trees and --data were given; give one of them")
    data = trees if data is None else data
    if data is not None and source is None and target is None:
        paths = [data]
    elif data is None and source is not None and target is not None:
        paths = [source, target]
    else:
        raise ConfigError("give --source and --target, or --data (or --trees)")
    if confusion is not None:
        check_confusion(run, Path(confusion))
    options = {"beam": beam, "batch_size": batch_size}
    how = Evaluation(
        options={key: value for key, value in options.items() if value is not None},
        device=device, engine=engine, precision=precision, noise=noise,
    )  # fmt: skip
    card = evaluate_files(Path(run), paths, how, Console())
    if confusion is not None:
        draw_confusion(card["confusion"], Path(confusion))
        typer.echo(f"written: {confusion}", err=True)
    print_scores(card, as_json=json)
