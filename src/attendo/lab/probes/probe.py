"""What every probe has: a claim, an experiment in two sizes, and a finding in plain values."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, computed_field

from attendo.errors import command_line
from attendo.lab.clock import describe, timed
from attendo.lab.report.document import Number
from attendo.reporter import Reporter

Scale = Literal["linear", "log"]
Cell = str | int | float | None


class Value(BaseModel):
    """Plain numbers and words; nothing that JSON could not hold, such as an infinite number."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class Check(Value):
    """One part of a claim, beside what was measured."""

    claim: str
    """A sentence without its full stop."""
    measured: str
    """The numbers in words, without a full stop."""
    holds: bool


class Series(Value):
    """A line of a picture, or in a picture of bars all of them."""

    label: str
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    low: tuple[float, ...] = ()
    """The lowest of several seeds at each place, if there were several."""
    high: tuple[float, ...] = ()

    @classmethod
    def of_runs(
        cls, label: str, x: Sequence[Number], runs: Sequence[Sequence[Number | None]]
    ) -> "Series":
        """Return the mean and the range of several runs; a point that a run lacks is left out."""
        columns = list(zip(*runs, strict=True))
        known = [[value for value in column if value is not None] for column in columns]
        is_whole = all(len(values) == len(runs) for values in known)
        return cls(
            label=label,
            x=tuple(x),
            y=tuple(fmean(values) if len(values) == len(runs) else None for values in known),
            low=tuple(map(min, known)) if is_whole and len(runs) > 1 else (),
            high=tuple(map(max, known)) if is_whole and len(runs) > 1 else (),
        )


class Panel(Value):
    """A picture: lines over numbers, or bars if the places have names."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    names: tuple[str, ...] = ()
    """Of the bars; their places are 0, 1, 2 ..."""
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"
    percent: bool = False
    """Whether the values are shares, to be shown as per cent from 0 to 100."""
    mark: float | None = None
    """A place that is worth a line of its own."""
    mark_label: str = ""


class Rows(Value):
    """A table; the first column holds the names."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


class Outcome(Value):
    """The result of an experiment."""

    checks: tuple[Check, ...]
    panels: tuple[Panel, ...] = ()
    tables: tuple[Rows, ...] = ()
    notes: tuple[str, ...] = ()
    """Caveats for the interpretation of the numbers."""


class Finding(Outcome):
    """An outcome, with all that it depends on."""

    probe: str
    title: str
    claim: str
    method: str
    settings: dict[str, Any]
    """The sizes of the experiment, and its seed."""
    is_thorough: bool = False
    machine: dict[str, Any]
    seconds: float

    @property
    def command(self) -> str:
        """Return the command that runs it again."""
        options = ["--thorough"] if self.is_thorough else []
        options += ["--device", "cuda"] if self.machine["device"] == "cuda" else []
        return command_line("compare", "--probe", self.probe, *options)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def verdict(self) -> str:
        """Sum up the checks."""
        n_held = sum(check.holds for check in self.checks)
        if n_held == len(self.checks):
            return "confirmed"
        return "partly confirmed" if n_held else "not confirmed"


Advance = Callable[[int, str], None]
"""Updates the progress bar of a reporter."""


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
    """The claim, in the words of a tutorial."""
    method: ClassVar[str]
    """What is done to find out."""

    @classmethod
    def thorough(cls) -> "Probe":
        """Return the experiment in the size for a GPU."""
        raise NotImplementedError

    def run(self, settings: Settings, reporter: Reporter) -> Finding:
        """Run the experiment."""
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
        """Measure, and return the results; implemented by each probe."""
        raise NotImplementedError
