"""Steps by the clock, in stretches: the median says how fast, the others how steady."""

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple, TypeVar

import torch

from attendo.bench.machine import wait_for

T = TypeVar("T")


class Stretch(NamedTuple):
    """Some work that was timed as a whole."""

    n_steps: int
    n_tokens: int
    """Target tokens, without padding."""
    seconds: float


def timed(work: Callable[[], T], device: torch.device) -> tuple[T, float]:
    """Do something; returns its result and the seconds it took."""
    wait_for(device)
    start = time.perf_counter()
    result = work()
    wait_for(device)
    return result, time.perf_counter() - start


def time_stretch(step: Callable[[], int], n_steps: int, device: torch.device) -> Stretch:
    """Time some steps, each of which says how many target tokens it had.

    A GPU is waited for at both ends and never in between.
    """
    n_tokens, seconds = timed(lambda: sum(step() for _ in range(n_steps)), device)
    return Stretch(n_steps, n_tokens, seconds)


def split_evenly(total: int, n_parts: int) -> list[int]:
    """Cut a number of steps into stretches, none of them empty."""
    n_parts = min(total, n_parts)
    return [total // n_parts + (part < total % n_parts) for part in range(n_parts)]


def spread(name: str, values: Sequence[float]) -> dict[str, float]:
    """Give the median of a measure under its name, and lowest and highest beside it."""
    return {name: median(values), f"{name}_low": min(values), f"{name}_high": max(values)}


def speed(stretches: Sequence[Stretch]) -> dict[str, float]:
    """Sum up stretches of training."""
    return {
        **spread("tokens_per_second", [one.n_tokens / one.seconds for one in stretches]),
        "milliseconds_per_step": median(1000 * one.seconds / one.n_steps for one in stretches),
    }
