"""attendo predict: labels of texts, words, images and recordings, masks, transcripts and trees."""

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
    out: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Draw the tree of the first sentence (.png, .svg)."),
    ] = None,
    batch_size: BatchSize = None,
    device: Device = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object for each line.")
    ] = False,
) -> None:
    """Predict labels, masked words, transcripts or trees.

    Prints for each text, or line of input:
    the label, a tab, and its probability (classification);
    a line with word, tab and label for each word, and an empty line
    (token-classification);
    a line for each <mask> with the most probable words
    (masked-language-model);
    the tree in brackets, in a terminal also drawn (parsing), or the text
    (speech-recognition).

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
      attendo predict parser 'The cat sat.' --out tree.svg
      attendo predict digits one.png two.png
      attendo predict speech recording.wav
    """
    from pathlib import Path

    from attendo.data.readers import read_lines
    from attendo.engines import Parser, load_predictor
    from attendo.errors import ConfigError, command_line
    from attendo.look.parses import check_picture, draw_parse
    from attendo.reporter import Console
    from attendo.runs import list_untrained
    from attendo.tasks import Parse

    if out is not None:
        check_picture(Path(out))
    if texts and input:
        raise ConfigError("both TEXT and --input were given; give one of them")
    predictor = load_predictor(run, device)
    task = predictor.bundle.task
    if out is not None and not isinstance(predictor, Parser):
        raise ConfigError(f"--out is for parsers; this run was trained for the task {task.name!r}")
    if untrained := list_untrained(Path(run)):
        typer.echo(
            f"warning: {', '.join(untrained)} were not in the published model and are untrained, "
            f"so that predictions are random; train them: {command_line('train', '--from', run)}",
            err=True,
        )
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
            if isinstance(one, Parse) and sys.stdout.isatty():
                print(f"\n{one.to_drawing()}\n")
    if out is not None and found:
        draw_parse(found[0].tree, Path(out))
        typer.echo(f"written: {out}", err=True)
