"""Quality against time: curves of two systems, side by side."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

from attendo.errors import DataError
from attendo.training.log import read_log


class Point(NamedTuple):
    """How good a system was after some time."""

    seconds: float
    step: int
    valid_loss: float
    bleu: float | None
    """None where only the loss was measured."""


Curve = Sequence[Point]


def read_curve(path: Path) -> Curve:
    """Read the validations of attendo's `log.jsonl`.

    Each is given the time of the report of its own step, or of the next one after it: never one
    that is too early. The time holds all earlier validations, which attendo's clock includes.
    """
    entries = read_log(path)
    clock = [(entry["step"], entry["seconds"]) for entry in entries if "seconds" in entry]
    points = []
    for entry in entries:
        times = [seconds for step, seconds in clock if step >= entry["step"]]
        if "valid_loss" in entry and times:
            found = entry["valid_loss"], entry.get("valid_bleu")
            points.append(Point(min(times), entry["step"], *found))
    if not points:
        raise DataError(
            f"{str(path)!r} holds no validation with a time; "
            "give the log.jsonl of a run that 'attendo train' has validated at least once"
        )
    return points


def compare(ours: Curve, theirs: Curve) -> dict[str, Any]:
    """Return how far apart two curves end, and how much sooner ours reached the end of theirs."""
    gap = {
        "seconds": (ours[-1].seconds, theirs[-1].seconds),
        "valid_loss_gap": ours[-1].valid_loss - theirs[-1].valid_loss,
    }
    goal = theirs[-1].bleu
    if goal is None or ours[-1].bleu is None:
        return {**gap, "bleu_gap": None, "reached_after": None, "times_sooner": None}
    reached, first = _first(ours, goal), _first(theirs, goal)
    assert first is not None, "a curve reaches its own end"
    return {
        **gap,
        "bleu_gap": ours[-1].bleu - goal,
        "reached_after": reached and reached.seconds,
        "times_sooner": reached and first.seconds / reached.seconds,
    }


def _first(curve: Curve, goal: float) -> Point | None:
    """Find the first point that is at least as good."""
    return next((point for point in curve if point.bleu is not None and point.bleu >= goal), None)


def in_words(comparison: Mapping[str, Any]) -> list[str]:
    """Return the result of a comparison as text."""
    ours, theirs = comparison["seconds"]
    ends = f"attendo (after {ours:,.0f} s) minus Marian (after {theirs:,.0f} s)"
    gaps = f"{ends}: loss {comparison['valid_loss_gap']:+.3f}"
    if comparison["bleu_gap"] is None:
        return [gaps, "attendo's log has no BLEU; training.validation_bleu was 0"]
    gaps += f", BLEU {comparison['bleu_gap']:+.2f}"
    if comparison["reached_after"] is None:
        return [gaps, "attendo did not reach Marian's last BLEU"]
    sooner = f"{comparison['times_sooner']:.2f} times sooner than Marian"
    after = f"after {comparison['reached_after']:,.0f} s"
    return [gaps, f"attendo reached Marian's last BLEU {after}, {sooner}"]


def curve_table(curves: Mapping[str, Curve]) -> Table:
    """Return a table of curves, with one row for each time at which one of them was measured."""
    table = Table(box=None)
    table.add_column("seconds", justify="right")
    for name in curves:
        for title in ("step", "valid loss", "BLEU"):
            table.add_column(f"{name} {title}", justify="right")
    moments = [(point, name) for name, curve in curves.items() for point in curve]
    for point, owner in sorted(moments, key=lambda moment: moment[0].seconds):
        bleu = "–" if point.bleu is None else f"{point.bleu:.2f}"
        own = (f"{point.step:,}", f"{point.valid_loss:.4f}", bleu)
        cells = [cell for name in curves for cell in (own if name == owner else ("", "", ""))]
        table.add_row(f"{point.seconds:,.1f}", *cells)
    return table
