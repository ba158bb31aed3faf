"""attendo embed: texts as vectors."""

import json
import sys
from io import BufferedIOBase
from typing import Annotated, cast

import typer

from attendo.cli.options import BatchSize, Device


def embed(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a trained model.")],
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT]...", help="What to embed.")
    ] = None,
    input: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Embed the lines of this file (else standard input)."),
    ] = None,
    npy: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write a NumPy file instead of text.")
    ] = None,
    batch_size: BatchSize = None,
    device: Device = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object for each line.")
    ] = False,
) -> None:
    """Turn texts into vectors.

    Similar texts have similar vectors. A vector is the mean of the last hidden
    states of an encoder, with length 1, so that the product of two of them is
    their cosine similarity. The run is a masked language model or a
    classifier.

    Prints the numbers of a vector, separated by tabs, for each text or line of
    input; --npy writes all vectors as one matrix (float32).

    \b
    Examples:
      attendo embed bert 'The old dog sleeps.' 'A cat is asleep.'
      attendo embed bert --input sentences.txt --npy vectors.npy
      cat sentences.txt | attendo embed bert --json
    """
    from pathlib import Path

    import numpy as np

    from attendo.data.readers import read_lines
    from attendo.engines import load_embedder
    from attendo.errors import ConfigError
    from attendo.files import replacing
    from attendo.reporter import Console

    if texts and input:
        raise ConfigError("both TEXT and --input were given; give one of them")
    if npy and as_json:
        raise ConfigError("both --npy and --json were given; give one of them")
    embedder = load_embedder(run, device)
    lines = texts or list(read_lines(input or cast(BufferedIOBase, sys.stdin.buffer)))
    options = {} if batch_size is None else {"batch_size": batch_size}
    with Console().bar("embedding", len(lines)) as advance:
        vectors = embedder.embed(lines, done=lambda n: advance(n, ""), **options)
    if npy is not None:
        with replacing(Path(npy)) as temporary, temporary.open("wb") as file:
            np.save(file, vectors, allow_pickle=False)
        typer.echo(f"written: {npy}", err=True)
        return
    for line, vector in zip(lines, vectors.tolist(), strict=True):
        if as_json:
            print(json.dumps({"text": line, "vector": vector}, ensure_ascii=False))
        else:
            print("\t".join(f"{value:.6f}" for value in vector))
