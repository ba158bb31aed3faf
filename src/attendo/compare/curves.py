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
    """Time in which weights were learned: without validations, and without the start."""
    loss: float
    bleu: float | None


def learning_curve(entries: Sequence[Entry], tokens_a_step: float) -> list[Point]:
    """Find all validations of a log."""
    steps, seconds = _clock(entries, tokens_a_step)
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


def learning_seconds(entries: Sequence[Entry], tokens_a_step: float) -> float:
    """Sum up the time in which weights were learned."""
    return _clock(entries, tokens_a_step)[1][-1]


def training_speed(entries: Sequence[Entry]) -> float:
    """Give the target tokens a second that a training had most of the time."""
    speeds = [entry["tokens_per_second"] for entry in entries if "tokens_per_second" in entry]
    # The first stretch is slower: memory is asked for, and on a GPU everything is compiled.
    return float(median(speeds[1:] if len(speeds) > 2 else speeds)) if speeds else 0.0


def _clock(entries: Sequence[Entry], tokens_a_step: float) -> tuple[list[int], list[float]]:
    """Give for every report the seconds of learning so far: tokens over tokens a second."""
    reports = [entry for entry in entries if "tokens_per_second" in entry]
    speeds = [max(1, entry["tokens_per_second"]) for entry in reports]
    # A budget does not pay for the start either, in which some systems compile and others do not.
    speeds[:1] = [max(speeds[:2])] if speeds else []
    steps, seconds = [0], [0.0]
    for entry, speed in zip(reports, speeds, strict=True):
        n_tokens = (entry["step"] - steps[-1]) * tokens_a_step
        steps.append(entry["step"])
        seconds.append(seconds[-1] + n_tokens / speed)
    return steps, seconds
