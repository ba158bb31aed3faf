"""What the log of a run says: how it learned, and how fast."""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from attendo.training.log import Entry


class Point(NamedTuple):
    """A validation, and what had been spent until then."""

    step: int
    tokens: float
    """Target tokens learned from."""
    seconds: float
    """Time in which parameters were learned: without validations, saving and compilation."""
    loss: float
    bleu: float | None


def learning_curve(entries: Sequence[Entry], tokens_a_step: float) -> list[Point]:
    """Return all validations of a log."""
    reports = [entry for entry in entries if "tokens_per_second" in entry]
    steps = [0, *(entry["step"] for entry in reports)]
    seconds = [0.0, *map(_seconds, reports)]
    return [
        Point(
            step=entry["step"],
            tokens=entry["step"] * tokens_a_step,
            seconds=float(np.interp(entry["step"], steps, seconds)),
            loss=entry["valid_loss"],
            bleu=entry.get("valid_bleu"),
        )
        for entry in entries
        if "valid_loss" in entry
    ]


def learning_seconds(entries: Sequence[Entry]) -> float:
    """Return the time in which parameters were learned."""
    return max((_seconds(entry) for entry in entries if "tokens_per_second" in entry), default=0.0)


def _seconds(report: Entry) -> float:
    """Return the seconds of training so far; older logs have only those with validations."""
    key = "learning_seconds" if "learning_seconds" in report else "seconds"
    return float(report[key])


def training_speed(entries: Sequence[Entry]) -> float:
    """Return the target tokens a second that a training had most of the time."""
    speeds = [entry["tokens_per_second"] for entry in entries if "tokens_per_second" in entry]
    # The first stretch is slower: memory is allocated, and on a GPU everything is compiled.
    return float(median(speeds[1:] if len(speeds) > 2 else speeds)) if speeds else 0.0
