"""The pictures of a comparison: one number a system, learning curves, scores group by group."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from attendo.lab.compare.findings import Breakdown, Findings
from attendo.lab.compare.measure import Measured, Point
from attendo.lab.report.document import counted, short_names, sized, spent
from attendo.lab.report.svg import (
    INK,
    LINE,
    QUIET,
    SERIES,
    Plot,
    entitle,
    finish,
    label_ends,
    new_axes,
)


class Bars(NamedTuple):
    """A measure with one number a system."""

    key: str
    title: str
    value: Callable[[Measured], float | None]
    shown: Callable[[float], str]


MEASURES = (
    Bars("parameters", "Parameters", lambda one: one.n_parameters, counted),
    Bars(
        "training-speed",
        "Training, tokens per second",
        lambda one: one.training.tokens_per_second,
        counted,
    ),
    Bars(
        "decoding-speed",
        "Decoding, sentences per second",
        lambda one: one.decoding.records_per_second,
        counted,
    ),
    Bars("memory", "Peak memory in training", lambda one: one.memory.peak_bytes, sized),
    Bars("energy", "Training energy, estimated", lambda one: one.energy.watt_hours, spent),
)


class Axis(NamedTuple):
    """What a learning curve is drawn against, or shows."""

    key: str
    title: str
    value: Callable[[Point], float | None]


SPENT = (
    Axis("steps", "step", lambda point: point.step),
    Axis("tokens", "target tokens, millions", lambda point: point.tokens / 1e6),
    Axis("seconds", "seconds of training", lambda point: point.seconds),
)
LEARNED = (Axis("loss", "Validation loss, nats per token", lambda point: point.loss),)

SCORE = "score"
"""The key of the plots of the metric."""


def colours(names: Sequence[str]) -> dict[str, str]:
    """Return the colour of every system, the same in all pictures."""
    return {name: SERIES[place % len(SERIES)] for place, name in enumerate(names)}


def draw_measures(findings: Findings) -> list[Plot]:
    """Draw one number a system, measure by measure."""
    metric = findings.metric
    interval = ", with 95 % interval" if findings.is_translation else ""
    score = Bars(SCORE, f"{metric.title}{interval}", lambda one: one.score, "{:.1f}".format)
    return [
        _bars(findings, bars)
        for bars in (score, *MEASURES)
        if all(bars.value(system) is not None for system in findings.systems)
    ]


def draw_curves(findings: Findings) -> list[Plot]:
    """Draw how systems learned, by steps, tokens and seconds."""
    points = [point for system in findings.systems for point in system.curve]
    score = Axis(SCORE, f"Validation {findings.metric.title}", lambda point: point.score)
    return [
        _curve(findings, over, of)
        for of in (*LEARNED, score)
        for over in SPENT
        if any(of.value(point) is not None for point in points)
        if over.key != "tokens" or not same_tokens(findings)
    ]


def same_tokens(findings: Findings) -> bool:
    """Return whether a step has the same number of tokens in all systems: one axis is enough."""
    a_step = [system.training.tokens / system.training.steps for system in findings.systems]
    return max(a_step) < 1.01 * min(a_step)


def draw_breakdown(findings: Findings, breakdown: Breakdown, axis: str, score: str) -> list[Plot]:
    """Draw one picture a system: its own line, and those of the others in grey."""
    return [_breakdown(findings, breakdown, axis, score, name) for name in findings.names]


def _ceiling(highest: float) -> int:
    """Choose a scale for scores from 0 to 100, the same for all pictures that belong together."""
    return next(top for top in (10, 20, 50, 100) if highest <= top)


def _bars(findings: Findings, bars: Bars) -> Plot:
    names, short, colour = findings.names, short_names(findings.names), colours(findings.names)
    values = [bars.value(system) or 0.0 for system in findings.systems]
    axes, top = new_axes(3.3, 0.5 + 0.25 * len(names)), max(*values, 1e-9)
    for row, (system, value) in enumerate(zip(findings.systems, values, strict=True)):
        axes.barh(row, value, height=0.62, color=colour[system.name])
        end, interval = value, system.scores.get("bleu_interval")
        if bars.key == SCORE and interval:
            axes.plot(interval, (row, row), color=INK, linewidth=1.4, solid_capstyle="butt")
            end = max(value, interval[1])
        axes.text(end + 0.02 * top, row, bars.shown(value), va="center", color=INK)
    axes.set_yticks(range(len(names)), [short[name] for name in names], color=INK, fontsize=9)
    axes.set_xlim(0, 1.4 * top)
    axes.invert_yaxis()
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    entitle(axes, bars.title)
    told = [f"{name} {bars.shown(value)}" for name, value in zip(names, values, strict=True)]
    return finish(axes, bars.key, f"{bars.title}: {', '.join(told)}.")


def _curve(findings: Findings, over: Axis, of: Axis) -> Plot:
    short, colour = short_names(findings.names), colours(findings.names)
    axes, ends, told = new_axes(4.0, 2.6), [], []
    for name, curve in ((system.name, system.curve) for system in findings.systems):
        points = [(over.value(point), of.value(point)) for point in curve]
        known = [(x, y) for x, y in points if x is not None and y is not None]
        if known:
            across, up = zip(*known, strict=True)
            axes.plot(across, up, color=colour[name], linewidth=1.6, marker="o", markersize=2.5)
            ends.append((short[name], colour[name], float(across[-1]), float(up[-1])))
            told.append(f"{name} {up[-1]:.3g} at {across[-1]:,.4g}")
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel(over.title)
    entitle(axes, of.title)
    axes.grid(axis="y")
    label_ends(axes, ends)
    alt = f"{of.title} against {over.title}. The last values: {', '.join(told)}."
    return finish(axes, f"{of.key}-by-{over.key}", alt)


def _breakdown(findings: Findings, breakdown: Breakdown, axis: str, score: str, name: str) -> Plot:
    colour, places = colours(findings.names)[name], range(len(breakdown.groups))
    axes, own = new_axes(2.9, 2.2), breakdown.scores[name]
    for other in findings.names:
        if other != name:
            axes.plot(places, breakdown.scores[other], color=LINE, linewidth=1.2)
    if breakdown.baseline:
        axes.plot(places, breakdown.baseline, color=QUIET, linewidth=0.8, linestyle=(0, (2, 2)))
    low, high = zip(*breakdown.intervals[name], strict=True)
    axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(places, own, color=colour, linewidth=2.2, marker="o", markersize=3.5)
    for place, ha in ((0, "left"), (len(own) - 1, "right")):
        axes.annotate(
            f"{own[place]:.0f}", (place, own[place]), (0, 5), textcoords="offset points",
            ha=ha, color=colour, fontweight="bold",
        )  # fmt: skip
    top = _ceiling(max(max(scores) for scores in breakdown.scores.values()))
    axes.set_ylim(0, 1.15 * top)
    axes.set_yticks((0, top / 2, top), [f"{value:g}" for value in (0, top / 2, top)])
    axes.set_xlim(-0.3, len(own) - 0.7)
    axes.set_xticks(places, breakdown.groups)
    axes.set_xlabel(axis)
    axes.grid(axis="y")
    entitle(axes, short_names(findings.names)[name], colour)
    told = [f"{group}: {value:.0f}" for group, value in zip(breakdown.groups, own, strict=True)]
    place = findings.names.index(name) + 1
    file = f"{breakdown.key}-{place}-{re.sub(r'[^a-zA-Z0-9]+', '-', name)}"
    return finish(axes, file, f"{name}, {score} by {axis}: {', '.join(told)}.")
