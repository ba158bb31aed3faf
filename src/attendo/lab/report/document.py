"""A report as a list of parts, whatever it is written as, and how its numbers are written."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from attendo.lab.report.svg import Plot

Number = int | float


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Return names without their common prefix: rnn and gru for demo-rnn and demo-gru."""
    words = [name.split("-") for name in names]
    n_shared = 0
    while all(len(each) > n_shared + 1 for each in words):
        if len({each[n_shared] for each in words}) > 1:
            break
        n_shared += 1
    return {name: "-".join(name.split("-")[n_shared:]) or name for name in names}


def listed(names: Sequence[str]) -> str:
    """Join names as a sentence does: a, b and c."""
    *front, last = names
    return f"{', '.join(front)} and {last}" if front else last


def counted(value: Number) -> str:
    """Format a large number: 950, 12.3 k, 4.56 M."""
    for unit, name in ((1e9, " G"), (1e6, " M"), (1e4, "")):
        if value >= unit:
            return f"{value / unit:.3g}{name}" if name else f"{value / 1000:.3g} k"
    return f"{value:,.0f}"


def timed(seconds: Number) -> str:
    """Format a time in a suitable unit."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 6000 else f"{seconds / 3600:.3g} h"


def sized(n_bytes: Number) -> str:
    """Format an amount of memory in a suitable unit."""
    return f"{n_bytes / 2**20:,.0f} MiB" if n_bytes < 2**30 else f"{n_bytes / 2**30:.2f} GiB"


def spent(watt_hours: Number) -> str:
    """Format an amount of energy in a suitable unit."""
    return f"{watt_hours:.3g} Wh" if watt_hours < 1000 else f"{watt_hours / 1000:.3g} kWh"


def points(difference: Number) -> str:
    """Format a difference of scores, with a second decimal where one would show 0.0."""
    return f"{difference:.1f}" if difference >= 0.05 else f"{difference:.2f}"


def times(ratio: Number) -> str:
    """Format a ratio: 1.3 times, 20 times."""
    return f"{ratio:.1f} times" if ratio < 10 else f"{ratio:.0f} times"


def printable(text: str) -> str:
    """Replace what no page may hold; models that have learned little write such characters."""
    return re.sub(
        r"[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text
    )


class Heading(NamedTuple):
    """The title of a section."""

    text: str


class Paragraph(NamedTuple):
    """Some sentences."""

    text: str


class Bullets(NamedTuple):
    """A list of sentences."""

    items: list[str]


class Table(NamedTuple):
    """Rows with a name each; the first column holds the names."""

    caption: str
    columns: list[str]
    rows: list[list[str]]
    best: frozenset[tuple[int, int]] = frozenset()
    """Cells (row, column) that are the best of their column."""


class Pictures(NamedTuple):
    """Pictures that belong together."""

    caption: str
    plots: list[Plot]
    is_wide: bool = False
    """Whether they need more room than a third of the page."""


class Word(NamedTuple):
    """A word of a translation."""

    text: str
    is_right: bool
    """Whether the reference has it in this place."""


class Example(NamedTuple):
    """A sentence and what the systems made of it."""

    source: str
    reference: str
    translations: list[tuple[str, list[Word]]]


class Examples(NamedTuple):
    """Sentences on which the systems differ."""

    caption: str
    items: list[Example]


class Code(NamedTuple):
    """Text to be copied as it is."""

    text: str


Part = Heading | Paragraph | Bullets | Table | Pictures | Examples | Code


class Document(NamedTuple):
    """A whole report."""

    title: str
    subtitle: str
    parts: list[Part]

    @property
    def plots(self) -> list[Plot]:
        """Return all plots of all parts."""
        return [plot for part in self.parts if isinstance(part, Pictures) for plot in part.plots]
