"""The pictures of a finding: lines with their names at the ends, or bars."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from attendo.compare.probes.finding import Finding, Panel, Scale, Series
from attendo.compare.probes.numbers import shown
from attendo.compare.report.drawing import (
    INK,
    QUIET,
    SERIES,
    Plot,
    entitle,
    finish,
    label_ends,
    new_axes,
)

MOST_TICKS = 7
LEAST_MARKED = 30
"""Points from which on a line has no dots any more."""

Place = Callable[[float], float]
"""Where on a picture a number lies."""


def draw_finding(finding: Finding) -> list[Plot]:
    """Draw all pictures; what has one name has one colour in all of them."""
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
    return finish(axes, name, f"{panel.title}. {' '.join(map(_told, panel.series))}")


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
    told = [f"{one} {_shown(value, panel)}" for one, value in zip(panel.names, values, strict=True)]
    return finish(axes, name, f"{panel.title}: {', '.join(told)}.")


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


def _told(series: Series) -> str:
    """Say where a line begins and ends."""
    known = [(x, y) for x, y in zip(series.x, series.y, strict=True) if y is not None]
    if not known:
        return f"{series.label}: no values."
    (first_x, first), (last_x, last) = known[0], known[-1]
    return f"{series.label}: {shown(first)} at {first_x:,g}, {shown(last)} at {last_x:,g}."
