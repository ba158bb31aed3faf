"""attendo predict: labels of texts, words, images or recordings, masked words, or transcripts."""

import json
import sys
from io import BufferedIOBase
from typing import Annotated, cast

import typer

from attendo.cli.options import BatchSize, Device


def predict(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a trained model.")],
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT]...", help="What the model reads: texts, or files."),
    ] = None,
    input: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Read the lines of this file (else standard input)."),
    ] = None,
    batch_size: BatchSize = None,
    device: Device = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object for each line.")
    ] = False,
) -> None:
    """Predict labels, masked words or transcripts.

    Prints for each text, or line of input:
    the label, a tab, and its probability (classification);
    a line with word, tab and label for each word, and an empty line
    (token-classification);
    a line for each <mask> with the most probable words
    (masked-language-model);
    the text (speech-recognition).

    Models of images and recordings read files: a .png or .jpg, one image of
    many as images.npz#17, or a .wav.

    The two texts of a pair (pair-classification) are two arguments, or have
    a tab between them.

    \b
    Examples:
      attendo predict reviews 'A wonderful film.'
      attendo predict reviews --input new.txt --json
      cat new.txt | attendo predict reviews
      attendo predict entailment 'A dog sleeps.' 'An animal sleeps.'
      attendo predict names 'Ada Lovelace lived in London .'
      attendo predict bert 'The old <mask> sleeps.'
      attendo predict digits one.png two.png
      attendo predict speech recording.wav
    """
    from attendo.data.readers import read_lines
    from attendo.engines import load_predictor
    from attendo.errors import ConfigError
    from attendo.reporter import Console

    if texts and input:
        raise ConfigError("both TEXT and --input were given; give one of them")
    predictor = load_predictor(run, device)
    task = predictor.bundle.task
    if texts and len(texts) == len(task.inputs):
        texts = ["\t".join(texts)]  # a pair
    lines = texts or list(read_lines(input or cast(BufferedIOBase, sys.stdin.buffer)))
    options = {} if batch_size is None else {"batch_size": batch_size}
    with Console().bar("predicting", len(lines)) as advance:
        found = predictor.predict(lines, done=lambda n: advance(n, ""), **options)
    for line, one in zip(lines, found, strict=True):
        if as_json:
            given = dict(zip(task.inputs, task.parse(line), strict=True))
            print(json.dumps(given | one.to_dict(), ensure_ascii=False))
        else:
            print(one.to_text())
