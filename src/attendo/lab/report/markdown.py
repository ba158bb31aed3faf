"""A report as Markdown, with its pictures in files beside it."""

from collections.abc import Callable
from typing import Any

from attendo.lab.report.document import (
    Bullets,
    Code,
    Document,
    Example,
    Examples,
    Heading,
    Paragraph,
    Pictures,
    Table,
    Word,
    printable,
)

PLOTS = "plots"


def to_markdown(document: Document) -> str:
    """Write all parts one under the other."""
    parts = [f"# {_escape(document.title)}", _escape(document.subtitle)]
    parts += [WRITERS[type(part)](part) for part in document.parts]
    return "\n\n".join(parts) + "\n"


def _heading(part: Heading) -> str:
    return f"## {_escape(part.text)}"


def _paragraph(part: Paragraph) -> str:
    return _escape(part.text)


def _bullets(part: Bullets) -> str:
    return "\n".join(f"- {_escape(item)}" for item in part.items)


def _table(part: Table) -> str:
    lines = [_row(part.columns), _row(["---", *["---:"] * (len(part.columns) - 1)], raw=True)]
    for number, row in enumerate(part.rows):
        cells = [
            f"**{_escape(cell)}**" if (number, column) in part.best else _escape(cell)
            for column, cell in enumerate(row)
        ]
        lines.append(_row(cells, raw=True))
    return "\n".join([*lines, "", _escape(part.caption)])


def _row(cells: list[str], *, raw: bool = False) -> str:
    return f"| {' | '.join(cell if raw else _escape(cell) for cell in cells)} |"


def _pictures(part: Pictures) -> str:
    images = [f"![{_escape(plot.alt)}]({PLOTS}/{plot.name}.svg)" for plot in part.plots]
    return "\n".join([*images, "", _escape(part.caption)])


def _examples(part: Examples) -> str:
    return "\n\n".join([_escape(part.caption), *(_example(item) for item in part.items)])


def _example(item: Example) -> str:
    lines = [f"> {_escape(item.source)}", f"> *{_escape(item.reference)}* (reference)", ""]
    lines += [f"- {_escape(name)}: {_words(words)}" for name, words in item.translations]
    return "\n".join(lines)


def _words(words: list[Word]) -> str:
    shown = [_escape(word.text) if word.is_right else f"**{_escape(word.text)}**" for word in words]
    return " ".join(shown) or "(nothing)"


def _code(part: Code) -> str:
    return f"```\n{part.text}\n```"


def _escape(text: str) -> str:
    """Escape characters that mean something in Markdown."""
    text = printable(text)
    for character in "\\`*_[]<>|#":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split())


WRITERS: dict[type, Callable[[Any], str]] = {
    Heading: _heading,
    Paragraph: _paragraph,
    Bullets: _bullets,
    Table: _table,
    Pictures: _pictures,
    Examples: _examples,
    Code: _code,
}
