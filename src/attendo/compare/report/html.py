"""A report as one HTML file: no scripts, nothing beside it, for light and dark, large and small."""

import html
import re
from collections.abc import Callable
from typing import Any

from attendo.compare.report.document import (
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
)
from attendo.compare.report.style import style_sheet, themed
from attendo.compare.report.wording import printable

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def to_html(document: Document) -> str:
    """Write the page."""
    body = "\n".join(WRITERS[type(part)](part) for part in document.parts)
    return (
        "<!DOCTYPE html>\n"
        '<html lang="en"><head><meta charset="utf-8"/>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"/>\n'
        f"<title>{_escape(document.title)}</title>\n<style>{style_sheet()}</style></head>\n"
        f"<body><main>\n<h1>{_escape(document.title)}</h1>\n"
        f'<p class="subtitle">{_escape(document.subtitle)}</p>\n{body}\n</main></body></html>\n'
    )


def _heading(part: Heading) -> str:
    return f"<h2>{_escape(part.text)}</h2>"


def _paragraph(part: Paragraph) -> str:
    return f"<p>{_escape(part.text)}</p>"


def _bullets(part: Bullets) -> str:
    return f"<ul>{''.join(f'<li>{_escape(item)}</li>' for item in part.items)}</ul>"


def _table(part: Table) -> str:
    heads = "".join(f'<th scope="col">{_escape(title)}</th>' for title in part.columns)
    rows = "".join(_row(part, number) for number in range(len(part.rows)))
    # A caption inside the table would be cut off where the table is wider than the screen.
    name = "-".join(re.findall(r"[a-z]+", part.caption.lower())[:4])
    return (
        f'<figure><div class="scroll" tabindex="0" role="group" aria-labelledby="{name}">'
        f'<table aria-labelledby="{name}"><thead><tr>{heads}</tr></thead>'
        f'<tbody>{rows}</tbody></table><p class="hint">Scroll sideways for more columns →</p></div>'
        f'<figcaption id="{name}">{_escape(part.caption)}</figcaption></figure>'
    )


def _row(part: Table, number: int) -> str:
    name, *cells = part.rows[number]
    shown = "".join(
        f'<td class="best">{_escape(cell)}</td>'
        if (number, column) in part.best
        else f"<td>{_escape(cell)}</td>"
        for column, cell in enumerate(cells, start=1)
    )
    return f'<tr><th scope="row">{_escape(name)}</th>{shown}</tr>'


def _pictures(part: Pictures) -> str:
    plots = "".join(f"<div>{themed(plot.svg)}</div>" for plot in part.plots)
    kind = "plots wide" if part.is_wide else "plots"
    caption = _escape(part.caption)
    return f'<figure><div class="{kind}">{plots}</div><figcaption>{caption}</figcaption></figure>'


def _examples(part: Examples) -> str:
    return "\n".join([f"<p>{_escape(part.caption)}</p>", *(_example(item) for item in part.items)])


def _example(item: Example) -> str:
    rows = f"<dt>reference</dt><dd>{_escape(item.reference)}</dd>" + "".join(
        f"<dt>{_escape(name)}</dt><dd>{_words(words)}</dd>" for name, words in item.translations
    )
    return f'<div class="example"><p class="source">{_escape(item.source)}</p><dl>{rows}</dl></div>'


def _words(words: list[Word]) -> str:
    shown = [
        _escape(word.text) if word.is_right else f"<mark>{_escape(word.text)}</mark>"
        for word in words
    ]
    return " ".join(shown) or "(nothing)"


def _code(part: Code) -> str:
    return f"<pre>{_escape(part.text)}</pre>"


def _escape(text: str) -> str:
    return html.escape(printable(text))


WRITERS: dict[type, Callable[[Any], str]] = {
    Heading: _heading,
    Paragraph: _paragraph,
    Bullets: _bullets,
    Table: _table,
    Pictures: _pictures,
    Examples: _examples,
    Code: _code,
}
