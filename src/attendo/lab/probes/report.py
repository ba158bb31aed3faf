"""Findings as pages: text, tables and plots, as files of a folder."""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from pydantic import ValidationError

from attendo.errors import BundleError
from attendo.files import explained, write_json, write_text
from attendo.lab.probes.probe import Check, Finding, Panel, Rows, Scale, Series
from attendo.lab.report.document import (
    Bullets,
    Code,
    Document,
    Heading,
    Number,
    Paragraph,
    Part,
    Pictures,
    Table,
    timed,
)
from attendo.lab.report.html import to_html
from attendo.lab.report.markdown import PLOTS, to_markdown
from attendo.lab.report.svg import (
    INK,
    QUIET,
    SERIES,
    Plot,
    entitle,
    finish,
    label_ends,
    new_axes,
)

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def shown(value: Number) -> str:
    """Format a number with two or three digits, a very small or large one as a power of ten.

    >>> shown(0.02583), shown(4096), shown(4.8e-16), shown(1e-20)
    ('0.0258', '4,096', '5·10⁻¹⁶', '10⁻²⁰')
    """
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    power = math.floor(math.log10(abs(value)))
    digit = round(value / 10.0**power)
    if abs(digit) == 10:
        digit, power = digit // 10, power + 1
    ten = f"10{str(power).translate(RAISED)}"
    return ten if digit == 1 else f"{digit}·{ten}"


MOST_TICKS = 7
LEAST_MARKED = 30
"""Points from which on a line has no dots any more."""

Place = Callable[[float], float]
"""Where a number lies in a plot."""


def draw_finding(finding: Finding) -> list[Plot]:
    """Draw all plots; each name has the same colour in all of them."""
    labels = list(
        dict.fromkeys(series.label for panel in finding.panels for series in panel.series)
    )
    colours = {label: SERIES[place % len(SERIES)] for place, label in enumerate(labels)}
    return [
        _draw(panel, f"probe-{finding.probe}-{number}", colours)
        for number, panel in enumerate(finding.panels, start=1)
        if any(y is not None for series in panel.series for y in series.y)
    ]


def _draw(panel: Panel, name: str, colours: dict[str, str]) -> Plot:
    return _bars(panel, name) if panel.names else _lines(panel, name, colours)


def _lines(panel: Panel, name: str, colours: dict[str, str]) -> Plot:
    axes, across, up = new_axes(4.2, 2.8), _place(panel.x_scale), _place(panel.y_scale)
    ends = []
    for series in panel.series:
        points = [
            (across(x), up(y)) for x, y in zip(series.x, series.y, strict=True) if y is not None
        ]
        if not points:
            continue
        colour, marker = colours[series.label], "o" if len(points) < LEAST_MARKED else None
        axes.plot(
            *zip(*points, strict=True), color=colour, linewidth=1.6, marker=marker, markersize=3
        )
        if series.low:
            places = [across(x) for x in series.x]
            low, high = ([up(value) for value in side] for side in (series.low, series.high))
            axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
        ends.append((series.label, colour, *points[-1]))
    _frame(axes, panel)
    _name_lines(axes, ends)
    entitle(axes, panel.title)
    return finish(axes, name, f"{panel.title}. {' '.join(map(_describe_line, panel.series))}")


def _name_lines(axes: Any, ends: Sequence[tuple[str, str, float, float]]) -> None:
    """Write names beside the ends of lines; in a list if not all of them come to the right edge."""
    last = max(x for _, _, x, _ in ends)
    if all(x == last for _, _, x, _ in ends):
        label_ends(axes, ends)
        return
    for place, (label, colour, _, _) in enumerate(ends):
        axes.text(
            1.03, 0.97 - 0.085 * place, label, color=colour, va="top", transform=axes.transAxes
        )


def _bars(panel: Panel, name: str) -> Plot:
    [series] = panel.series
    values = [value or 0.0 for value in series.y]
    lengths = [_place(panel.y_scale)(value) for value in values]
    floor = min(0.0, *map(math.floor, lengths)) if panel.y_scale == "log" else 0.0
    axes = new_axes(4.2, 0.6 + 0.27 * len(values))
    extent = max(length - floor for length in lengths) or 1.0
    for row, (length, value) in enumerate(zip(lengths, values, strict=True)):
        axes.barh(row, length - floor, left=floor, height=0.62, color=SERIES[0])
        axes.text(
            length + 0.02 * extent, row, _shown(value, panel), color=INK, fontsize=9, va="center"
        )
    axes.set_yticks(range(len(values)), panel.names, color=INK, fontsize=9)
    axes.set_xlim(floor, floor + 1.25 * extent)
    axes.invert_yaxis()
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    entitle(axes, panel.title)
    texts = [
        f"{one} {_shown(value, panel)}" for one, value in zip(panel.names, values, strict=True)
    ]
    return finish(axes, name, f"{panel.title}: {', '.join(texts)}.")


def _frame(axes: Any, panel: Panel) -> None:
    """Set scales, ticks and the names of the axes."""
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    axes.grid(axis="y")
    if panel.x_scale == "log":
        places = sorted({x for series in panel.series for x in series.x})
        ticks = places[:: -(-len(places) // MOST_TICKS)]
        axes.set_xticks([math.log10(x) for x in ticks], [f"{x:,g}" for x in ticks])
    if panel.percent:
        axes.set_ylim(0, 1.06)
        axes.set_yticks((0, 0.5, 1), ("0 %", "50 %", "100 %"))
    elif panel.y_scale == "log":
        values = [y for series in panel.series for y in series.y if y is not None]
        ticks = _ticks(min(values), max(values))
        axes.set_yticks([math.log10(tick) for tick in ticks], [shown(tick) for tick in ticks])
    else:
        axes.set_ylim(bottom=0)
    if panel.mark is not None:
        place = _place(panel.x_scale)(panel.mark)
        axes.axvline(place, color=QUIET, linewidth=0.8, linestyle=(0, (2, 2)))
        top = axes.get_ylim()[1]
        axes.text(place, top, f" {panel.mark_label}", color=QUIET, fontsize=8, va="top")


def _ticks(low: float, high: float) -> list[float]:
    """Choose round numbers: powers of ten, and between few of them 2 and 5 as well."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    step = -(-max(1, last - first) // MOST_TICKS)
    factors = (1, 2, 5) if last - first <= 2 else (1,)
    powers = [power for power in range(first, last + 1) if power % step == 0]
    ticks = [factor * 10.0**power for power in powers for factor in factors]
    return [tick for tick in ticks if low / 1.5 <= tick <= high * 1.5] or [low, high]


def _shown(value: float, panel: Panel) -> str:
    return f"{value:.0%}" if panel.percent else shown(value)


def _place(scale: Scale) -> Place:
    return math.log10 if scale == "log" else float


def _describe_line(series: Series) -> str:
    """Return where a line starts and ends, as text."""
    known = [(x, y) for x, y in zip(series.x, series.y, strict=True) if y is not None]
    if not known:
        return f"{series.label}: no values."
    (first_x, first), (last_x, last) = known[0], known[-1]
    return f"{series.label}: {shown(first)} at {first_x:,g}, {shown(last)} at {last_x:,g}."


HELD = {True: "Confirmed", False: "Not confirmed"}


def compose_page(findings: Sequence[Finding]) -> Document:
    """Return all findings as one document, with a summary at the top."""
    machines = {f"{one.machine['hardware']}, torch {one.machine['torch']}" for one in findings}
    n_seconds = sum(finding.seconds for finding in findings)
    return Document(
        title="Probes: claims about attention, tested",
        subtitle=(
            "Common claims about attention, each tested by a small experiment. "
            f"{'; '.join(sorted(machines))}; {timed(n_seconds)} in total."
        ),
        parts=[
            Heading("Summary"),
            Bullets([f"{one.title}: {verdict_of(one)}" for one in findings]),
            *(part for finding in findings for part in (Heading(finding.title), *_parts(finding))),
        ],
    )


def compose_finding(finding: Finding) -> Document:
    """Return a finding as a document of its own."""
    return Document(finding.title, f"{finding.claim}.", list(_parts(finding, with_claim=False)))


def verdict_of(finding: Finding) -> str:
    """Return the result of a claim, with the parts that were not confirmed."""
    n_held, n_all = sum(check.holds for check in finding.checks), len(finding.checks)
    failed = [check.claim for check in finding.checks if not check.holds]
    text = f"{finding.verdict}, {n_held} of {n_all} checks."
    return f"{text} Not confirmed: {'; '.join(failed)}." if failed else text


def describe_check(check: Check) -> str:
    """Return a check as a sentence: the claim and what was measured."""
    return f"{HELD[check.holds]}: {check.claim}. Measured: {check.measured}."


def _parts(finding: Finding, *, with_claim: bool = True) -> Iterator[Part]:
    if with_claim:
        yield Paragraph(f"Claim: {finding.claim}.")
    yield Paragraph(f"Result: {verdict_of(finding)}")
    yield Bullets([describe_check(check) for check in finding.checks])
    if finding.panels:
        yield Pictures(finding.method, draw_finding(finding), is_wide=True)
    for table in finding.tables:
        yield _table(table)
    if finding.notes:
        yield Bullets(list(finding.notes))
    yield Code(_settings(finding))


def _table(rows: Rows) -> Table:
    cells = [["–" if cell is None else str(cell) for cell in row] for row in rows.rows]
    return Table(rows.caption, list(rows.columns), cells)


def _settings(finding: Finding) -> str:
    sizes = ", ".join(f"{key} = {value}" for key, value in finding.settings.items())
    text = f"{timed(finding.seconds)} on {finding.machine['hardware']} with {sizes}"
    lines = wrap(text, width=96, initial_indent="# ", subsequent_indent="# ")
    return "\n".join([finding.command, *lines])


PAGE = "probes.html"


def make_folder(folder: Path) -> None:
    """Create the folder for findings, before any measurement."""
    with explained(folder):
        (folder / PLOTS).mkdir(parents=True, exist_ok=True)


def write_finding(finding: Finding, folder: Path) -> None:
    """Write probe-NAME.json, probe-NAME.md and the pictures of it."""
    make_folder(folder)
    document = compose_finding(finding)
    _write_plots(document, folder)
    write_text(folder / f"probe-{finding.probe}.md", to_markdown(document))
    write_json(folder / f"probe-{finding.probe}.json", finding.model_dump(mode="json"))


def write_page(names: Sequence[str], folder: Path) -> Path:
    """Write one page of all findings of a folder, in the order of the names; returns it."""
    paths = [folder / f"probe-{name}.json" for name in names]
    findings = [read_finding(path) for path in paths if path.exists()]
    write_text(folder / PAGE, to_html(compose_page(findings)))
    return folder / PAGE


def read_finding(path: Path) -> Finding:
    """Read what an earlier probe has found.

    Raises:
        BundleError: It is not what a probe has written.
    """
    try:
        return Finding.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise BundleError(f"{str(path)!r} cannot be read: {reason}; give another --out") from None


def _write_plots(document: Document, folder: Path) -> None:
    for plot in document.plots:
        write_text(folder / PLOTS / f"{plot.name}.svg", plot.svg)
