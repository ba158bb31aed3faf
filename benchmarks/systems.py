"""Several systems by the same clock."""

import gc
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from attendo.config import Recipe
from attendo.lab.bench.results import Row
from attendo.lab.bench.sentences import Sentences
from attendo.lab.bench.train import Training
from attendo.lab.clock import (
    Stretch,
    forget_peak,
    peak_memory,
    speed,
    split_evenly,
    time_stretch,
    wait_for,
)
from attendo.reporter import Reporter


class System(Protocol):
    """Something that learns."""

    name: str
    n_parameters: int

    def step(self) -> int:
        """Learn from a batch; returns its number of target tokens, without padding."""

    def warm_up(self) -> None:
        """Do everything that must not be timed."""

    def figures(self, seconds: float) -> Row:
        """Return statistics of the batches of so many seconds of training."""

    def close(self) -> None:
        """Stop what is running."""


Build = Callable[[], System]


class Ours(Training):
    """attendo, with a given number of warm-up steps."""

    name = "attendo"

    def __init__(
        self, recipe: Recipe, sentences: Sentences, device: torch.device, warmup: int
    ) -> None:
        super().__init__(recipe, sentences, device)
        self.warmup = warmup

    def warm_up(self) -> None:
        """Run some steps that are not measured."""
        for _ in range(self.warmup):
            self.step()
        self.forget()


class Candidate:
    """A system that has been built and warmed up, and its stretches."""

    def __init__(self, build: Build, device: torch.device) -> None:
        self.device = device
        is_gpu = device.type == "cuda"
        self.before = torch.cuda.memory_allocated(device) if is_gpu else 0
        forget_peak(device)
        start = time.perf_counter()
        self.system = build()
        self.system.step()
        wait_for(device)
        self.first = time.perf_counter() - start
        self.system.warm_up()
        wait_for(device)
        self.warm_up = time.perf_counter() - start
        self.stretches: list[Stretch] = []

    def run(self, n_steps: int) -> None:
        """Measure another stretch."""
        self.stretches.append(time_stretch(self.system.step, n_steps, self.device))

    def finish(self) -> Row:
        """Return the figures, and close the system."""
        peak = peak_memory(self.device)
        seconds = sum(stretch.seconds for stretch in self.stretches)
        self.system.close()
        return {
            "system": self.system.name,
            "parameters": self.system.n_parameters,
            **speed(self.stretches),
            **self.system.figures(seconds),
            "peak_memory_bytes": None if peak is None else peak - self.before,
            "seconds_to_first_step": self.first,
            "seconds_of_warm_up": self.warm_up,
        }


def measure(
    builds: Sequence[Build], steps: int, rounds: int, device: torch.device, reporter: Reporter
) -> list[Row]:
    """Measure all systems.

    On a CPU they take turns, so that whatever else the machine does hits them alike. On a GPU only
    one at a time has its memory.
    """
    groups = [[build] for build in builds] if device.type == "cuda" else [list(builds)]
    sizes = split_evenly(steps, rounds)
    rows: list[Row] = []
    with reporter.bar("measuring", len(builds) * len(sizes)) as advance:
        for group in groups:
            rows += _measure_together(group, sizes, device, advance)
            _clear()
    return rows


def compared(rows: list[Row]) -> list[Row]:
    """Add to every row how much faster the first one, ours, is."""
    ours = rows[0]["tokens_per_second"]
    return [{**row, "speedup_of_attendo": ours / row["tokens_per_second"]} for row in rows]


def _measure_together(
    builds: Sequence[Build],
    sizes: Sequence[int],
    device: torch.device,
    advance: Callable[[int, str], None],
) -> list[Row]:
    """Measure systems alternately, one stretch of each at a time."""
    candidates = [Candidate(build, device) for build in builds]
    for n_steps in sizes:
        for candidate in candidates:
            candidate.run(n_steps)
            advance(1, candidate.system.name)
    return [candidate.finish() for candidate in candidates]


def _clear() -> None:
    """Free the compiled programs and the memory of closed systems."""
    torch.compiler.reset()
    gc.collect()
    torch.cuda.empty_cache()
