"""Learning-rate schedules: a factor for each step, from 1 to the last.

A step may be a fraction: a training by time advances from 1 to the last by fractions.
"""

import math
from collections.abc import Callable

from attendo.config import TrainingConfig


def paper(step: int | float, config: TrainingConfig, d_model: int) -> float:
    """Return d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5), eq. 3."""
    warmup = max(1, config.warmup_steps)
    return float(d_model**-0.5 * min(step**-0.5, step * warmup**-1.5))


def cosine(step: int | float, config: TrainingConfig, d_model: int) -> float:
    """Return a factor that rises over the warm-up, then falls to zero along half a cosine."""
    return _rise(step, config) * 0.5 * (1 + math.cos(math.pi * _progress(step, config)))


def linear(step: int | float, config: TrainingConfig, d_model: int) -> float:
    """Return a factor that rises over the warm-up, then falls to zero in a straight line."""
    return _rise(step, config) * (1 - _progress(step, config))


def constant(step: int | float, config: TrainingConfig, d_model: int) -> float:
    """Return a factor that rises over the warm-up and then remains 1."""
    return _rise(step, config)


def _rise(step: int | float, config: TrainingConfig) -> float:
    return min(1.0, step / max(1, config.warmup_steps))


def _progress(step: int | float, config: TrainingConfig) -> float:
    """Return the progress from 0 at the end of the warm-up to 1 just after the last step."""
    after = max(0, step - config.warmup_steps)
    return min(1.0, after / max(1, config.steps - config.warmup_steps + 1))


SCHEDULES: dict[str, Callable[[int | float, TrainingConfig, int], float]] = {
    "paper": paper,
    "cosine": cosine,
    "linear": linear,
    "constant": constant,
}
