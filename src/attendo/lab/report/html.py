"""A report as one HTML file: no scripts, light and dark, for every width of screen."""

import html
import re
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
from attendo.lab.report.svg import INK, LINE, PAPER, QUIET, SERIES

DARK = (
    "#6fc3df", "#f0a566", "#8ccf8f", "#e39ac9", "#d8c35a", "#a9adf5", "#f28b90", "#83d0ce",
)  # fmt: skip
"""The colours of the systems on a dark page, in the order of those on a light one."""

STYLE = """
:root {
  color-scheme: light dark;
  --paper: light-dark(#faf9f6, #11151b);
  --card: light-dark(#ffffff, #171c23);
  --ink: light-dark(#1a2129, #e9ecef);
  --quiet: light-dark(#56606c, #a7b1bd);
  --line: light-dark(#d9d7cf, #38414d);
  --mark: light-dark(#fbe3cc, #523518);
SERIES
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0 auto; max-width: 74rem; padding: 2rem clamp(1rem, 4vw, 3rem) 4rem;
  background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
h1, h2 {
  font-family: "Iowan Old Style", Palatino, Georgia, "DejaVu Serif", serif; line-height: 1.2;
}
h1 { font-size: clamp(1.7rem, 1.2rem + 2.4vw, 2.6rem); margin: 0 0 0.6rem; }
h2 { font-size: 1.5rem; margin: 3rem 0 0.8rem; }
p, li { max-width: 46rem; }
h1, h2, p, li, dt, dd, figcaption { overflow-wrap: anywhere; }
.subtitle, figcaption { color: var(--quiet); }
ul { padding-left: 1.2rem; }
li { margin: 0.35rem 0; }
/* A table that is too wide scrolls by itself: a shadow and a line of text show where it does. */
.scroll {
  overflow-x: auto;
  background:
    linear-gradient(to left, var(--paper) 1.5rem, transparent) right / 3rem 100% local no-repeat,
    linear-gradient(to left, var(--line), transparent) right / 0.9rem 100% scroll no-repeat;
  animation: wide linear; animation-timeline: scroll(self inline);
}
@keyframes wide { from, to { --hint: block; } }
.hint {
  display: var(--hint, none); position: sticky; left: 0; width: max-content;
  margin: 0; padding-top: 0.3rem; color: var(--quiet); font-size: 0.84rem;
}
table { border-collapse: collapse; font-size: 0.84rem; font-variant-numeric: tabular-nums; }
th, td {
  padding: 0.4rem 0.45rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap;
}
thead th { color: var(--quiet); font-weight: 600; white-space: normal; vertical-align: bottom; }
th:first-child { text-align: left; position: sticky; left: 0; background: var(--paper); }
td.best { font-weight: 700; }
figure { margin: 1.4rem 0; }
figcaption { max-width: 46rem; margin-top: 0.6rem; font-size: 0.9rem; }
.plots {
  display: grid; gap: 0.8rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 19rem), 1fr));
}
.plots.wide { grid-template-columns: repeat(auto-fill, minmax(min(100%, 27rem), 1fr)); }
.plots > div {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 0.6rem;
}
svg { display: block; width: 100%; height: auto; }
svg text { font-family: inherit !important; }
.example {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 0.9rem 1.1rem; margin: 0.8rem 0;
}
.example p { margin: 0 0 0.3rem; max-width: none; }
.example .source { font-weight: 600; }
.example dd:first-of-type { font-weight: 600; }
.example dl {
  display: grid; grid-template-columns: max-content 1fr; gap: 0.2rem 1rem; margin: 0.6rem 0 0;
  font-size: 0.94rem;
}
.example dt { color: var(--quiet); }
.example dd { margin: 0; }
mark { background: var(--mark); color: inherit; border-radius: 3px; padding: 0 0.15em; }
pre {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 0.8rem 1rem; white-space: pre-wrap; overflow-wrap: anywhere; font-size: 0.88rem;
}
@media (max-width: 40rem) {
  .example dl { grid-template-columns: 1fr; }
  .example dt { margin-top: 0.4rem; }
}
@media print { h2 { break-after: avoid; } .plots > div, .example { break-inside: avoid; } }
"""


def style_sheet() -> str:
    """Write the style sheet, with a colour for every system."""
    pairs = zip(SERIES, DARK, strict=True)
    series = [
        f"  --series-{number}: light-dark({light}, {dark});"
        for number, (light, dark) in enumerate(pairs)
    ]
    return STYLE.replace("SERIES", "\n".join(series))


def themed(svg: str) -> str:
    """Replace the colours of a picture by those of the page, which follow light and dark."""
    names = {INK: "ink", QUIET: "quiet", LINE: "line", PAPER: "card"}
    names |= {colour: f"series-{number}" for number, colour in enumerate(SERIES)}
    for colour, name in names.items():
        svg = svg.replace(colour, f"var(--{name})")
    return svg


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
