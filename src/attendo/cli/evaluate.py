"""attendo evaluate: score a model on a test set."""

from typing import Annotated

import typer

from attendo.cli.options import BatchSize, Beam, Device


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
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Score a model on a test set.

    Translations are scored by BLEU and chrF, language models by perplexity and
    bits per byte, classifiers by accuracy and F1.

    The scores are also added to the run's scorecard.json, under
    "evaluations" if it has scores of the run's own test set.

    \b
    Examples:
      attendo evaluate run --source test.en --target test.de
      attendo evaluate run --source test.en.gz --target test.de.gz --beam 1 --json
      attendo evaluate reviews --data test.tsv
    """
    from attendo.cli.output import print_scores
    from attendo.engines.files import evaluate_files, evaluate_records
    from attendo.errors import ConfigError
    from attendo.reporter import Console

    given = {"beam": beam, "batch_size": batch_size}
    options = {key: value for key, value in given.items() if value is not None}
    if data is not None and source is None and target is None:
        card = evaluate_records(run, data, options, device, Console())
    elif data is None and source is not None and target is not None:
        card = evaluate_files(run, source, target, options, device, Console())
    else:
        raise ConfigError("give --source and --target, or --data")
    print_scores(card, as_json=json)
