"""A report as a list of parts, whatever it is written as."""

from typing import NamedTuple

from attendo.compare.report.drawing import Plot


class Heading(NamedTuple):
    """The title of a section."""

    text: str


class Paragraph(NamedTuple):
    """Some sentences."""

    text: str


class Bullets(NamedTuple):
    """Sentences that stand one under the other."""

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
    """Sentences that tell the systems apart."""

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
        """All pictures of all parts."""
        return [plot for part in self.parts if isinstance(part, Pictures) for plot in part.plots]
