"""Extrapolation: sequences longer than any that was learned from."""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch

from attendo.lab.probes.exercises import (
    N_SYMBOLS,
    Exercise,
    build,
    draw_latest,
    is_correct,
    learn,
    seeded,
    transformer,
)
from attendo.lab.probes.probe import Check, Outcome, Panel, Probe, Rows, Series, Settings
from attendo.lab.report.document import listed
from attendo.nn.positions import POSITIONS
from attendo.reporter import Reporter

SHORTEST = 4
ABLE = 0.8
"""Share of right answers from which on an exercise counts as learned."""

KEEPS = 0.9
"""Share of the accuracy within the learned length that must remain beyond it."""


@dataclass(frozen=True)
class Extrapolation(Probe):
    """The same small decoder with every kind of positions, on sequences of growing length."""

    name = "extrapolation"
    title = "Length extrapolation"
    claim = (
        "With sinusoidal and relative positions (rotary, ALiBi) a model also works on sequences "
        "longer than those of its training; with learned positions it does not"
    )
    method = (
        "In a sequence about every fourth symbol is marked. At every position a decoder predicts "
        "the symbol that was marked last, which depends on the order, but only on recent symbols. "
        "It is trained on sequences up to one length and tested on much longer ones."
    )

    d_model: int = 64
    length: int = 16
    times: int = 8
    """Length of the test, in learned lengths."""
    n_rows: int = 32
    n_tests: int = 64
    n_steps: int = 300
    n_seeds: int = 1

    @classmethod
    def thorough(cls) -> "Extrapolation":
        """Train on longer sequences for more steps, with three seeds."""
        return cls(length=64, times=16, n_steps=1000, n_tests=128, n_seeds=3)

    def explore(self, settings: Settings, reporter: Reporter) -> Outcome:
        """Train and test every kind."""
        right: dict[str, list[list[float]]] = {kind: [] for kind in POSITIONS}
        with reporter.bar("extrapolation", len(right) * self.n_seeds) as advance:
            for kind, runs in right.items():
                for seed in range(settings.seed, settings.seed + self.n_seeds):
                    runs.append(self._measure(kind, seed, settings.device))
                    advance(1, kind)
        series = {kind: Series.of_runs(kind, self._ends(), runs) for kind, runs in right.items()}
        return Outcome(
            checks=tuple(self._checks(series)),
            panels=(
                Panel(
                    title=f"Accuracy by position, trained up to {self.length}",
                    x_label="position in the sequence (up to)",
                    y_label="accuracy",
                    series=tuple(series.values()),
                    x_scale="log",
                    percent=True,
                    mark=self.length,
                    mark_label="trained",
                ),
            ),
            tables=(self._table(series),),
            notes=(
                f"Chance level: {1 / N_SYMBOLS:.0%}. The table of learned positions has an entry "
                "for every position of the test; those beyond the trained length keep their "
                "initial random values.",
                "The decoder is causal, so that even without positions its output depends on the "
                "order.",
            ),
        )

    def _ends(self) -> list[int]:
        """Return the ends of the groups of positions: 0.5, 1, 2 ... times the learned length."""
        ends = [self.length // 2]
        while ends[-1] < self.length * self.times:
            ends.append(2 * ends[-1])
        return ends

    def _measure(self, kind: str, seed: int, device: torch.device) -> list[float]:
        longest = self.length * self.times
        with seeded(seed) as generator:
            config = transformer(self.d_model, positions=kind, max_positions=longest)
            model = build(config).to(device)
            learn(model, partial(self._draw, generator), self.n_steps)
        generator = torch.Generator().manual_seed(seed + 1_000_000)
        found = is_correct(model, draw_latest(generator, self.n_tests, longest)).double()
        groups = pairwise([0, *self._ends()])
        return [found[:, start:end].mean().item() for start, end in groups]

    def _draw(self, generator: torch.Generator) -> Exercise:
        length = int(torch.randint(SHORTEST, self.length + 1, (), generator=generator))
        return draw_latest(generator, self.n_rows, length)

    def _checks(self, series: dict[str, Series]) -> list[Check]:
        ends = self._ends()
        known = {kind: [share or 0.0 for share in one.y] for kind, one in series.items()}
        kinds = [kind for kind in known if kind != "none"]
        texts = [f"{known[kind][1]:.0%} ({kind})" for kind in kinds]
        return [
            Check(
                claim="Within the trained length every kind of positions works",
                measured=f"accuracy at positions {ends[0] + 1} to {ends[1]}: {listed(texts)}",
                holds=all(known[kind][1] >= ABLE for kind in kinds),
            ),
            *(self._goes_on(kind, known[kind]) for kind in ("sinusoidal", "rotary", "alibi")),
            self._goes_on("learned", known["learned"], expected=False),
        ]

    def _goes_on(self, kind: str, shares: list[float], *, expected: bool = True) -> Check:
        """Compare the group of places after the learned ones with the last of the learned."""
        ends, does = self._ends(), "works" if expected else "does not work"
        return Check(
            claim=f"With {kind} positions the model {does} at twice the length",
            measured=(
                f"accuracy {shares[1]:.0%} at positions {ends[0] + 1} to {ends[1]}, "
                f"{shares[2]:.0%} at {ends[1] + 1} to {ends[2]}, {shares[-1]:.0%} at "
                f"{ends[-2] + 1} to {ends[-1]}"
            ),
            holds=(shares[2] >= KEEPS * shares[1]) is expected,
        )

    def _table(self, series: dict[str, Series]) -> Rows:
        ends = self._ends()
        return Rows(
            caption=f"Accuracy by position, trained on lengths {SHORTEST} to {self.length}.",
            columns=(
                "positions",
                *(f"{start + 1}–{end}" for start, end in pairwise([0, *ends])),
            ),
            rows=tuple(
                (kind, *(f"{share or 0:.0%}" for share in one.y)) for kind, one in series.items()
            ),
        )
