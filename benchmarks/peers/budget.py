"""Training by the clock: how much of the time is gone, and how fast to learn meanwhile."""

import math
import time

import torch

from attendo.lab.clock import wait_for

LATEST_PEAK = 0.5
"""Share of the training after which a warm-up that is too long for it ends."""


class Budget:
    """Seconds, and perhaps steps, that a training may take."""

    def __init__(self, seconds: float, steps: int | None, device: torch.device) -> None:
        self.seconds, self.steps, self.device = seconds, steps, device
        self.spent = 0.0
        self.since = time.perf_counter()

    def look(self) -> None:
        """Read the clock after waiting for the GPU."""
        wait_for(self.device)
        now = time.perf_counter()
        self.spent, self.since = self.spent + now - self.since, now

    def skip(self) -> None:
        """Exclude the time since the last reading."""
        wait_for(self.device)
        self.since = time.perf_counter()

    def share(self, step: int) -> float:
        """Return the share of the time or of the steps used at the last reading, up to 1."""
        of_steps = step / self.steps if self.steps else 0.0
        return max(self.spent / self.seconds, of_steps)


class Schedule:
    """A learning rate that rises step by step, and falls to zero in the time that is left.

    It falls along half a cosine, as attendo's does, but by the clock: so all of the time is used,
    and none is left over, however fast the steps turn out to be.
    """

    def __init__(self, highest: float, warmup_steps: int) -> None:
        self.highest, self.warmup_steps = highest, warmup_steps
        self.peak = 0.0
        """Share of the training that the warm-up took."""

    def rate(self, step: int, share: float) -> float:
        """Return the learning rate of a step."""
        rise = max(step / max(1, self.warmup_steps), share / LATEST_PEAK)
        if rise < 1:
            self.peak = share
            return self.highest * rise
        fall = (share - self.peak) / (1 - self.peak)
        return self.highest * 0.5 * (1 + math.cos(math.pi * min(1.0, fall)))
