"""attendo translate: text in, text out, line by line."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any, TextIO, cast

import typer

from attendo.cli.options import BatchSize, Beam, Device

if TYPE_CHECKING:
    from attendo.tasks import Translated


def translate(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a trained model.")],
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT]...", help="What to translate.")
    ] = None,
    input: Annotated[
        str | None, typer.Option(metavar="FILE", help="Translate this file (else standard input).")
    ] = None,
    output: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write to this file (else standard output).")
    ] = None,
    beam: Beam = None,
    n_best: Annotated[
        int, typer.Option(metavar="N", help="Print the N best, with line number and score.")
    ] = 1,
    prefix: Annotated[
        str, typer.Option(metavar="TEXT", help="What every translation must begin with.")
    ] = "",
    batch_size: BatchSize = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, as decoding.alpha=1.0."),
    ] = None,
    device: Device = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object for each line.")
    ] = False,
) -> None:
    """Translate text, a file, or standard input, line by line.

    Lines keep their order, and empty lines stay empty.

    \b
    Examples:
      attendo translate run 'The dog sleeps.'
      attendo translate run --input news.en --output news.de
      cat news.en | attendo translate run --beam 1 > news.de
    """
    from attendo.data.readers import count_lines, read_lines
    from attendo.engines import load
    from attendo.engines.files import translate_lines
    from attendo.errors import ConfigError
    from attendo.reporter import Console

    options = _options(settings or [], beam=beam, batch_size=batch_size)
    if texts and input:
        raise ConfigError("both TEXT and --input were given; give one of them")
    if input and output and os.path.realpath(input) == os.path.realpath(output):
        raise ConfigError(f"--input and --output are both {input!r}; write to another file")
    total = count_lines(input) if input else len(texts or ())
    translator = load(run, device)
    # A person at a terminal wants an answer to every line; a pipe wants full batches.
    is_dialogue = not texts and not input and sys.stdin.isatty()
    number = 0
    try:
        with _writing(output) as file, Console().bar("translating", total) as advance:
            found = translate_lines(
                translator,
                texts or read_lines(input or cast(BufferedIOBase, sys.stdin.buffer)),
                chunk=1 if is_dialogue else 1024,
                n_best=n_best,
                prefix=prefix,
                options=options,
                done=lambda n: advance(n, ""),
            )
            first = list(islice(found, 1))
            if output and os.path.isfile(output):
                file.truncate(0)  # only now, when most mistakes would have shown themselves
            for number, (line, translations) in enumerate(chain(first, found), start=1):
                for text in _format(number, line, translations, as_json=as_json, n_best=n_best):
                    print(text, file=file)
                file.flush()
    except KeyboardInterrupt:
        typer.echo(f"stopped; lines that have been translated: {number:,}", err=True)
        raise typer.Exit(130) from None


def _options(settings: list[str], **given: int | None) -> dict[str, Any]:
    """Gather what is asked of the search."""
    from attendo.config import parse_overrides
    from attendo.errors import ConfigError

    options = {}
    for key, value in parse_overrides(settings).items():
        section, _, name = key.partition(".")
        if section != "decoding" or not name:
            raise ConfigError(f"--set {key}: only keys of [decoding] can be changed here")
        options[name] = value
    return options | {name: value for name, value in given.items() if value is not None}


@contextmanager
def _writing(output: str | None) -> Iterator[TextIO]:
    """Open the output; what has been translated is there whatever happens later.

    An existing file is appended to: it is for the caller to empty it.
    """
    from attendo.errors import DataError

    if output is None:
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        yield sys.stdout
        return
    try:
        with open(output, "a", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise DataError(f"cannot write {output}: {error.strerror}") from None


def _format(
    number: int, line: str, translations: "list[Translated]", *, as_json: bool, n_best: int
) -> Iterator[str]:
    """Put translations on lines: never more lines than were asked for."""
    if as_json:
        found = [
            {"text": one.text, "score": one.score, "finished": one.finished} for one in translations
        ]
        answer = {"source": line, "translation": translations[0].text, "translations": found}
        yield json.dumps(answer, ensure_ascii=False)
    elif n_best > 1:
        for one in translations:
            yield f"{number}\t{one.score:.4f}\t{_one_line(one.text)}"
    else:
        yield _one_line(translations[0].text)


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())
