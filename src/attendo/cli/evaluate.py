"""attendo evaluate: score a model on a test set."""

from typing import Annotated

import typer

from attendo.cli.options import BatchSize, Beam, Device, Engine, Precision


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
    beam: Beam = None,
    batch_size: BatchSize = None,
    device: Device = "auto",
    engine: Engine = "auto",
    precision: Precision = "float32",
    confusion: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="For a classifier: draw which labels are confused (.png, .svg)."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Score a model on a test set.

    Translations are scored by BLEU and chrF, language models by perplexity and
    bits per byte, masked language models by pseudo-perplexity and accuracy of
    their guesses, classifiers by accuracy and F1 (with two labels also by
    Matthews correlation; words with BIO labels also by F1 of entities).

    The scores are also added to the run's scorecard.json, under
    "evaluations" if it has scores of the run's own test set.

    \b
    Examples:
      attendo evaluate run --source test.en --target test.de
      attendo evaluate run --source test.en.gz --target test.de.gz --beam 1 --json
      attendo evaluate reviews --data test.tsv
      attendo evaluate reviews --data test.tsv --confusion map.png
    """
    from pathlib import Path

    from attendo.cli.output import print_scores
    from attendo.engines.files import evaluate_files, evaluate_records
    from attendo.errors import ConfigError
    from attendo.look.confusion import check_confusion, draw_confusion
    from attendo.reporter import Console

    given = {"beam": beam, "batch_size": batch_size}
    options = {key: value for key, value in given.items() if value is not None}
    if confusion is not None:
        check_confusion(run, Path(confusion))
    if data is not None and source is None and target is None:
        card = evaluate_records(run, data, options, device, Console())
    elif data is None and source is not None and target is not None:
        how = {"engine": engine, "precision": precision}
        card = evaluate_files(run, source, target, options, device, Console(), **how)
    else:
        raise ConfigError("give --source and --target, or --data")
    if confusion is not None:
        draw_confusion(card["confusion"], Path(confusion))
        typer.echo(f"written: {confusion}", err=True)
    print_scores(card, as_json=json)
