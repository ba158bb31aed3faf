"""attendo predict: the labels of texts."""

import json
import sys
from io import BufferedIOBase
from typing import Annotated, cast

import typer

from attendo.cli.options import BatchSize, Device


def predict(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a trained classifier.")],
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT]...", help="What to classify.")
    ] = None,
    input: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Classify the lines of this file (else standard input)."),
    ] = None,
    batch_size: BatchSize = None,
    device: Device = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object for each line.")
    ] = False,
) -> None:
    """Predict the label of each text.

    Each line of input gives one line of output: the label, a tab, and its
    probability.

    \b
    Examples:
      attendo predict reviews 'A wonderful film.'
      attendo predict reviews --input new.txt --json
      cat new.txt | attendo predict reviews
    """
    from attendo.data.readers import read_lines
    from attendo.engines import load_classifier
    from attendo.errors import ConfigError
    from attendo.reporter import Console

    if texts and input:
        raise ConfigError("both TEXT and --input were given; give one of them")
    classifier = load_classifier(run, device)
    lines = texts or list(read_lines(input or cast(BufferedIOBase, sys.stdin.buffer)))
    options = {} if batch_size is None else {"batch_size": batch_size}
    with Console().bar("predicting", len(lines)) as advance:
        found = classifier.predict(lines, done=lambda n: advance(n, ""), **options)
    for text, one in zip(lines, found, strict=True):
        if as_json:
            print(json.dumps({"text": text, **one._asdict()}, ensure_ascii=False))
        else:
            print(f"{one.label}\t{one.probability:.4f}")
