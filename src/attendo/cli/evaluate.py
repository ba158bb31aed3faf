"""attendo evaluate: score a model on a test set."""

from typing import Annotated

import typer

from attendo.cli.options import BatchSize, Beam, Device


def evaluate(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a trained model.")],
    source: Annotated[str, typer.Option(metavar="FILE", help="Source sentences, one a line.")],
    target: Annotated[str, typer.Option(metavar="FILE", help="Reference translations.")],
    beam: Beam = None,
    batch_size: BatchSize = None,
    device: Device = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Translate a test set and print BLEU, chrF and their signature.

    The scores are also added to the run's scorecard.json, under
    "evaluations" if it has scores of the run's own test set.

    \b
    Examples:
      attendo evaluate run --source test.en --target test.de
      attendo evaluate run --source test.en.gz --target test.de.gz --beam 1 --json
    """
    from attendo.cli.output import print_scores
    from attendo.engines.files import evaluate_files
    from attendo.reporter import Console

    given = {"beam": beam, "batch_size": batch_size}
    options = {key: value for key, value in given.items() if value is not None}
    card = evaluate_files(run, source, target, options, device, Console())
    print_scores(card, as_json=json)
