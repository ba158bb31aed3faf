"""What every probe has: a claim, an experiment in two sizes, and a finding."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import ClassVar, NamedTuple

import torch

from attendo.bench.clock import describe, timed
from attendo.compare.probes.finding import Finding, Outcome
from attendo.reporter import Reporter

Advance = Callable[[int, str], None]
"""Tells a reporter's bar how much was done, and what."""


class Settings(NamedTuple):
    """Where a probe runs, and what its random numbers begin with."""

    device: torch.device = torch.device("cpu")
    seed: int = 1


@dataclass(frozen=True)
class Probe:
    """An experiment that isolates one claim; its fields are its sizes, quick by default."""

    name: ClassVar[str]
    title: ClassVar[str]
    claim: ClassVar[str]
    """As a tutorial would say it."""
    method: ClassVar[str]
    """What is done to find out."""

    @classmethod
    def thorough(cls) -> "Probe":
        """Give the experiment in the size that a GPU should be asked for."""
        raise NotImplementedError

    def run(self, settings: Settings, reporter: Reporter) -> Finding:
        """Do the experiment."""
        outcome, seconds = timed(lambda: self.explore(settings, reporter), settings.device)
        return Finding(
            **dict(outcome),
            probe=self.name,
            title=self.title,
            claim=self.claim,
            method=self.method,
            settings=json.loads(json.dumps({**asdict(self), "seed": settings.seed})),
            is_thorough=self == self.thorough(),
            machine=describe(settings.device),
            seconds=seconds,
        )

    def explore(self, settings: Settings, reporter: Reporter) -> Outcome:
        """Measure, and say what came out; to be written by each probe."""
        raise NotImplementedError
