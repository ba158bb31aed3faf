"""attendo translate: translate texts, a file or standard input, line by line."""

import json
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BufferedIOBase
from typing import TYPE_CHECKING, Annotated, Any, TextIO, cast

import typer

from attendo.cli.options import BatchSize, Beam, Device, Engine, Precision

if TYPE_CHECKING:
    from attendo.engines import TextTranslator
    from attendo.text.streams import Translated
    from attendo.translators import InstalledTranslator

PROMPT = "> "

_EXAMPLES = 5
"""Unknown words that are named; the others are counted."""


def translate(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN] [TEXT]...",
            help="Folder of a trained model (else an installed translator), and texts.",
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="LANGUAGE", help="Of the texts, as en; else detected."),
    ] = None,
    target: Annotated[
        str | None, typer.Option("--to", metavar="LANGUAGE", help="To translate into, as de.")
    ] = None,
    input: Annotated[
        str | None, typer.Option(metavar="FILE", help="Translate this file, line by line.")
    ] = None,
    output: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write to this file (else standard output).")
    ] = None,
    beam: Beam = None,
    n_best: Annotated[
        int, typer.Option(metavar="N", help="Print the N best, with line number and score.")
    ] = 1,
    prefix: Annotated[
        str, typer.Option(metavar="TEXT", help="Text that every translation must begin with.")
    ] = "",
    batch_size: BatchSize = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, as decoding.alpha=1.0."),
    ] = None,
    device: Device = "auto",
    engine: Engine = "auto",
    precision: Precision = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object for each line.")
    ] = False,
    about: Annotated[
        bool, typer.Option("--about", help="Describe the installed translators and exit.")
    ] = False,
) -> None:
    """Translate texts, a file, or standard input, line by line.

    RUN is the folder of a trained model. Without it, an installed translator
    is used, for each line that of its language. --from and --to choose one;
    then there is no RUN. Translators are shipped with the package or put into
    the folder that --about prints.

    Lines keep their order, and empty lines stay empty. A line of several
    sentences is translated sentence by sentence. At a terminal, without TEXT
    and --input, each line is translated as soon as it is entered.

    On a CPU, the model is converted for CTranslate2 when it is first used, and
    compared with PyTorch (docs/engines.md).

    Words that the training data did not contain are reported on standard
    error, and by --json as "unknown".

    \b
    Examples:
      attendo translate 'Good morning.'
      echo 'Good morning.' | attendo translate --to de
      attendo translate run 'The dog sleeps.'
      attendo translate run --input news.en --output news.de
      cat news.en | attendo translate run --beam 1 > news.de
      attendo translate run 'The dog sleeps.' --engine torch
    """
    options = _options(settings or [], beam=beam, batch_size=batch_size)
    if about:
        _print_cards()
        return
    run, texts = _split_words(words or [], input, is_direction=bool(source or target))
    _check_files(texts, input, output)  # before torch is imported, which takes seconds
    how = {"engine": engine, "precision": precision, "device": device}
    if run is not None:
        from attendo.engines.loading import check_search

        check_search(run, n_best, options)
    total = len(texts) if texts else _count_lines(input)
    translator = _open(run, source, target, how)

    from attendo.data.readers import read_lines
    from attendo.reporter import Console, Reporter

    request = _Request(translator, n_best, prefix, options, as_json)
    with _writing(output) as out:
        if not texts and not input and sys.stdin.isatty():
            _hold_session(request, out)
            return
        # On a terminal the lines themselves show the progress.
        reporter = Console() if output or not sys.stdout.isatty() else Reporter()
        with reporter.bar("translating", total or 0) as advance:
            lines = texts or read_lines(input or cast(BufferedIOBase, sys.stdin.buffer))
            _translate_all(request, lines, out, lambda n: advance(n, ""))
        if not out.number:
            # What fails before a pipe must not cost an older result.
            is_kept = output is not None and total is None
            what = f"{output} is left as it was" if is_kept else "there is nothing to translate"
            print(f"{input or 'standard input'} is empty: {what}", file=sys.stderr)
            if not is_kept:
                out.begin()


def _split_words(
    words: list[str], input: str | None, *, is_direction: bool
) -> tuple[str | None, list[str]]:
    """Tell the run from the texts: an existing folder is a run, and so is what looks like a path.

    A word without spaces before other texts, or beside --input, is the name of a run, perhaps
    misspelt.
    """
    if not words or is_direction:
        return None, words
    first, *others = words
    has_spaces = len(first.split()) != 1
    is_path = not has_spaces and (os.sep in first or first.startswith((".", "~")))
    if os.path.isdir(first) or is_path or ((others or input) and not has_spaces):
        return first, others
    return None, words


def _open(run: str | None, source: str | None, target: str | None, how: dict[str, str]) -> Any:
    """Load a run, or find the installed translators."""
    from attendo.reporter import Console

    if run is None:
        from attendo.translators import InstalledTranslator

        return InstalledTranslator(source, target, reporter=Console(), **how)
    from attendo.engines.loading import load_translator

    return load_translator(run, **how, reporter=Console())


def _print_cards() -> None:
    """Print the description of each installed translator, and where to put others."""
    from attendo.translators import VARIABLE, by_folder, find_translators, read_card, user_folder

    for folder, directions in by_folder(find_translators()).items():
        print(f"{', '.join(map(str, directions))}: {folder}\n\n{read_card(folder).strip()}\n")
    print(f"Own translators: {user_folder()}/translate-en-de, or in a folder of {VARIABLE}")


@dataclass
class _Request:
    """What to do with each line."""

    translator: "TextTranslator | InstalledTranslator"
    n_best: int
    prefix: str
    options: dict[str, Any]
    as_json: bool

    def translate(
        self, lines: Iterable[str], done: Callable[[int], None] = lambda n: None
    ) -> Iterator[tuple[str, "list[Translated]"]]:
        return self.translator.stream_lines(
            lines, n_best=self.n_best, prefix=self.prefix, done=done, **self.options
        )


@dataclass
class _Output:
    """A stream that may be a file with older content, which is kept until the first line."""

    stream: TextIO
    is_file: bool
    number: int = 0
    """Lines of input whose translations have been written."""
    unknown: dict[str, None] = field(default_factory=dict)
    """Words that the training data did not contain."""

    def begin(self) -> None:
        if self.is_file and not self.number:
            self.stream.truncate(0)

    def write(self, request: _Request, line: str, translations: "list[Translated]") -> None:
        self.begin()
        self.number += 1
        unknown = request.translator.unknown_words(line)
        if len(self.unknown) < 100_000:
            self.unknown.update(dict.fromkeys(unknown))
        for text in _format(self.number, line, translations, unknown, request):
            print(text, file=self.stream)
        self.stream.flush()

    def report_unknown(self) -> None:
        """Print one line about the unknown words since the last report."""
        if not self.unknown:
            return
        named = ", ".join(list(self.unknown)[:_EXAMPLES])
        others = len(self.unknown) - _EXAMPLES
        more = f" and {others:,} more" if others > 0 else ""
        print(
            f"not in the training data: {named}{more} (the translation may be wrong)",
            file=sys.stderr,
        )
        self.unknown.clear()


def _translate_all(
    request: _Request, lines: Iterable[str], out: _Output, done: Callable[[int], None]
) -> None:
    """Translate a stream; what is finished is written, whatever happens then."""
    try:
        for line, translations in request.translate(lines, done):
            out.write(request, line, translations)
    except KeyboardInterrupt:
        print(f"stopped; lines that have been translated: {out.number:,}", file=sys.stderr)
        raise typer.Exit(130) from None
    out.report_unknown()


def _hold_session(request: _Request, out: _Output) -> None:
    """Translate each line when it is entered, until Ctrl-D or Ctrl-C."""
    from attendo.errors import AttendoError

    print("Enter a text to translate it; Ctrl-D ends the session.", file=sys.stderr)
    with suppress(ImportError):
        import readline  # noqa: F401 -- makes the keys for editing work
    while True:
        try:
            line = _read_line()
            for text, translations in request.translate([line]) if line.strip() else ():
                out.write(request, text, translations)
            out.report_unknown()
        except (EOFError, KeyboardInterrupt):
            print(file=sys.stderr)
            return
        except AttendoError as error:
            print(f"error: {error}", file=sys.stderr)


def _read_line() -> str:
    """Read a line from the terminal; the prompt is no part of the results."""
    if sys.stdout.isatty():
        return input(PROMPT)
    print(PROMPT, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\r\n")


def _options(settings: list[str], **given: int | None) -> dict[str, Any]:
    """Return the settings of the search."""
    from attendo.config import parse_overrides
    from attendo.errors import ConfigError

    options = {}
    for key, value in parse_overrides(settings).items():
        section, _, name = key.partition(".")
        if section != "decoding" or not name:
            raise ConfigError(f"--set {key}: only keys of [decoding] can be changed here")
        options[name] = value
    return options | {name: value for name, value in given.items() if value is not None}


def _check_files(texts: list[str] | None, input: str | None, output: str | None) -> None:
    """Raise an error if input and output exclude each other or are the same file."""
    from attendo.errors import ConfigError

    if texts and input:
        raise ConfigError("both TEXT and --input were given; give one of them")
    source = None if texts else _file_of(input or sys.stdin)
    if source and source == _file_of(output or sys.stdout):
        names = (
            f"--input {input or '(standard input)'} and --output {output or '(standard output)'}"
        )
        raise ConfigError(f"{names} are the same file; write to another file")


def _file_of(file: Any) -> tuple[int, int] | None:
    """Return the identity of a regular file, given by path or open, and None for others."""
    try:
        found = os.stat(file if isinstance(file, str) else file.fileno())
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def _count_lines(path: str | None) -> int | None:
    """Count the lines of a file; those of a pipe or device are known only when they are read."""
    from attendo.data.readers import count_lines, is_stream

    return None if path is None or is_stream(path) else count_lines(path)


@contextmanager
def _writing(output: str | None) -> Iterator[_Output]:
    """Open the output for writing line by line."""
    from attendo.errors import DataError

    if output is None:
        yield _Output(sys.stdout, is_file=False)
        return
    try:
        with open(output, "a", encoding="utf-8") as stream:
            yield _Output(stream, is_file=_file_of(output) is not None)
    except OSError as error:
        raise DataError(f"cannot write {output}: {error.strerror}") from None


def _format(
    number: int,
    line: str,
    translations: "list[Translated]",
    unknown: list[str],
    request: _Request,
) -> Iterator[str]:
    """Return translations as lines, `n_best` for each text."""
    if request.as_json:
        found = [
            {"text": one.text, "score": one.score, "finished": one.finished} for one in translations
        ]
        answer = {"source": line, "translation": translations[0].text, "translations": found}
        yield json.dumps({**answer, "unknown": unknown}, ensure_ascii=False)
    elif request.n_best > 1:
        for one in translations:
            yield f"{number}\t{one.score:.4f}\t{_one_line(one.text)}"
    else:
        yield _one_line(translations[0].text)


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())
