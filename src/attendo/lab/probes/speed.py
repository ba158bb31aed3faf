"""Time against length, of sequential and of parallel layers."""

from dataclasses import dataclass

import torch

from attendo.config import AnyModelConfig
from attendo.lab.probes.exercises import (
    MARKED,
    PLAIN,
    build,
    convolutional,
    recurrent,
    seeded,
    transformer,
    whole_rows,
)
from attendo.lab.probes.layers import crossing, growth, seconds_of
from attendo.lab.probes.probe import Advance, Check, Outcome, Panel, Probe, Series, Settings
from attendo.lab.report.document import listed
from attendo.models import Seq2Seq
from attendo.nn.grid import Grid
from attendo.reporter import Reporter

TAIL = 3
"""Lengths, the longest ones, from which the growth is taken."""

Times = dict[str, list[float]]
"""Seconds by family, one for each length."""


@dataclass(frozen=True)
class Speed(Probe):
    """One encoder layer of each family, forward and backward."""

    name = "speed"
    title = "Time and length"
    claim = (
        "A recurrent layer processes one token after the other, attention all in parallel; "
        "attention is faster as long as the sequence is shorter than the vectors are wide"
    )
    method = (
        "Forward and backward pass of one encoder layer of each family, of the same width, for "
        "sequences of one length; the fastest of several measurements. Growth is the exponent of "
        "the length, fitted to the three longest."
    )

    d_model: int = 128
    lengths: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024)
    n_rows: int = 4
    n_times: int = 9

    @classmethod
    def thorough(cls) -> "Speed":
        """Measure wider layers and longer sequences."""
        lengths = tuple(2**power for power in range(4, 13))
        return cls(d_model=512, lengths=lengths, n_times=5)

    def explore(self, settings: Settings, reporter: Reporter) -> Outcome:
        """Measure on the CPU and, if a GPU is chosen, on it as well."""
        devices = {torch.device("cpu"), settings.device}
        times: dict[str, Times] = {}
        total = len(devices) * len(self._layers()) * len(self.lengths)
        with reporter.bar("speed", total) as advance:
            for device in sorted(devices, key=str):
                times[_named(device)] = self._measure(device, settings.seed, advance)
        return Outcome(
            checks=tuple(check for where in times for check in self._checks(where, times[where])),
            panels=tuple(self._panel(where, times[where]) for where in times),
        )

    def _layers(self) -> dict[str, AnyModelConfig]:
        return {
            "lstm": recurrent(self.d_model, "lstm"),
            "convolution": convolutional(self.d_model, self.lengths[-1], n_layers=1),
            "transformer": transformer(self.d_model, n_layers=1),
        }

    def _measure(self, device: torch.device, seed: int, advance: Advance) -> Times:
        times: Times = {}
        for name, config in self._layers().items():
            times[name] = []
            for length in self.lengths:
                with seeded(seed) as generator:
                    model = build(config).to(device)
                    ids = torch.randint(PLAIN, MARKED, (self.n_rows, length), generator=generator)
                times[name].append(self._seconds(model, whole_rows(ids.to(device)), device))
                advance(1, f"{name}, {length} tokens on the {_named(device)}")
        return times

    def _seconds(self, model: Seq2Seq, source: Grid, device: torch.device) -> float:
        return seconds_of(lambda: model.encode(source).hidden, device, self.n_times)

    def _checks(self, where: str, times: Times) -> list[Check]:
        tail = self.lengths[-TAIL:]
        grows = {name: growth(tail, seconds[-TAIL:]).slope for name, seconds in times.items()}
        return [
            Check(
                claim=f"On the {where} the time of an LSTM is proportional to the length",
                measured=f"time grows as length^{grows['lstm']:.2f}",
                holds=0.75 < grows["lstm"] < 1.25,
            ),
            Check(
                claim=f"On the {where} the time of attention grows with the square of the length",
                measured=(
                    f"time grows as length^{grows['transformer']:.2f} between {tail[0]:,} and "
                    f"{tail[-1]:,} tokens"
                ),
                holds=grows["transformer"] > 1.5,
            ),
            self._faster(where, times),
        ]

    def _faster(self, where: str, times: Times) -> Check:
        lstm, attention = times["lstm"], times["transformer"]
        n_short = sum(length <= self.d_model for length in self.lengths)
        texts = [
            f"{lstm[place] / attention[place]:.2g} times the time of attention at {length:,}"
            for place, length in enumerate(self.lengths)
            if place in (0, n_short - 1, len(self.lengths) - 1)
        ]
        slower = crossing(self.lengths, lstm, attention)
        until = f"not faster up to {self.lengths[-1]:,}"
        return Check(
            claim=f"On the {where} attention is faster than an LSTM up to n = d = {self.d_model}",
            measured=f"the LSTM takes {listed(texts)}; it is "
            + (f"faster from {slower:,.0f} tokens on" if slower else until),
            holds=all(attention[place] < lstm[place] for place in range(n_short)),
        )

    def _panel(self, where: str, times: Times) -> Panel:
        return Panel(
            title=f"Milliseconds per step on the {where}",
            x_label="tokens per sequence",
            y_label="milliseconds",
            series=tuple(
                Series(
                    label=name,
                    x=self.lengths,
                    y=tuple(1000 * one for one in seconds),
                )
                for name, seconds in times.items()
            ),
            x_scale="log",
            y_scale="log",
            mark=self.d_model,
            mark_label="n = d",
        )


def _named(device: torch.device) -> str:
    return "GPU" if device.type == "cuda" else "CPU"
