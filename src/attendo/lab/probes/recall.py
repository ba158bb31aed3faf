"""Long-range recall: from how far back a model can recall a token."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import NamedTuple

import torch

from attendo.config import AnyModelConfig
from attendo.lab.probes.exercises import (
    N_SYMBOLS,
    Exercise,
    accuracy,
    build,
    draw_recall,
    families,
    learn,
    seeded,
)
from attendo.lab.probes.probe import Check, Outcome, Panel, Probe, Series, Settings
from attendo.lab.report.document import Number, listed
from attendo.reporter import Reporter

LEARNING_RATE = 3e-3
ENOUGH = 0.02
"""The loss at which an exercise is learned."""

MOSTLY = 0.9
"""Share of right answers from which on a distance counts as reached."""

MOST_TOKENS = 2**15
"""Of a batch: long streams come in fewer rows."""

CELLS = ("rnn", "gru", "lstm")
"""The families without attention."""


class Tried(NamedTuple):
    """What came of learning over one distance."""

    right: float
    n_steps: int


Results = dict[str, list[list[Tried]]]
"""By family, then by distance, then by seed."""


@dataclass(frozen=True)
class Recall(Probe):
    """Every family learns each distance on its own, with the same budget."""

    name = "recall"
    title = "Long-range recall"
    claim = (
        "A recurrent network cannot recall distant tokens; attention reaches any token in one step"
    )
    method = (
        "The input is one marked symbol and n others; the output is the marked symbol. Every "
        "family is trained from scratch for every distance n, with the same budget. A distance is "
        "reached at an accuracy of 90 %. All encoders are unidirectional."
    )

    d_model: int = 64
    distances: tuple[int, ...] = (4, 8, 32, 128)
    n_steps: int = 200
    n_guided_steps: int = 600
    n_rows: int = 16
    n_tests: int = 128
    n_seeds: int = 1

    @classmethod
    def thorough(cls) -> "Recall":
        """Measure up to 4,096 tokens, with more examples."""
        distances = tuple(4**power for power in range(1, 7))
        return cls(distances=distances, n_steps=400, n_guided_steps=1200, n_rows=32, n_tests=256)

    def explore(self, settings: Settings, reporter: Reporter) -> Outcome:
        """Train all families on all distances, and the recurrent ones from short to long."""
        described = families(self.d_model, longest=self.distances[-1] + 1)
        results: Results = {name: [] for name in described}
        guided: Results = {name: [] for name in described if name in CELLS}
        total = len(described) * len(self.distances) + len(guided)
        with reporter.bar("recall", total) as advance:
            for name, config in described.items():
                for distance in self.distances:
                    results[name].append(self._alone(config, distance, settings))
                    advance(1, f"{name}, {distance} tokens")
            for name in guided:
                guided[name] = self._guided(described[name], settings)
                advance(1, f"{name}, from short to long")
        return Outcome(
            checks=tuple(self._checks(results)),
            panels=tuple(self._panels(results, guided)),
            notes=tuple(self._notes(results, guided)),
        )

    def _draw(self, generator: torch.Generator, distance: int) -> Exercise:
        n_rows = max(1, min(self.n_rows, MOST_TOKENS // distance))
        return draw_recall(generator, n_rows, distance)

    def _test(self, distance: int, seed: int) -> list[Exercise]:
        """Draw the same test set for all families, in batches that fit into memory."""
        generator = torch.Generator().manual_seed(seed + 1_000_000)
        n_rows = max(1, min(self.n_tests, MOST_TOKENS // distance))
        n_batches = max(1, self.n_tests // n_rows)
        return [draw_recall(generator, n_rows, distance) for _ in range(n_batches)]

    def _alone(self, config: AnyModelConfig, distance: int, settings: Settings) -> list[Tried]:
        tried = []
        for seed in range(settings.seed, settings.seed + self.n_seeds):
            with seeded(seed) as generator:
                model = build(config).to(settings.device)
                draw = partial(self._draw, generator, distance)
                losses = learn(model, draw, self.n_steps, LEARNING_RATE, ENOUGH)
            right = fmean(accuracy(model, test) for test in self._test(distance, seed))
            tried.append(Tried(right, len(losses)))
        return tried

    def _guided(self, config: AnyModelConfig, settings: Settings) -> list[list[Tried]]:
        """Train one model on all distances, short ones first."""
        n_steps = self.n_guided_steps
        by_seed = []
        for seed in range(settings.seed, settings.seed + self.n_seeds):
            with seeded(seed) as generator:
                model = build(config).to(settings.device)
                curriculum = self._curriculum(generator, n_steps)
                learn(model, partial(next, curriculum), n_steps, LEARNING_RATE)
            by_seed.append(
                [
                    Tried(fmean(accuracy(model, test) for test in self._test(far, seed)), n_steps)
                    for far in self.distances
                ]
            )
        return [list(of_distance) for of_distance in zip(*by_seed, strict=True)]

    def _curriculum(self, generator: torch.Generator, n_steps: int) -> Iterator[Exercise]:
        """Draw from ever more distances: the longest is allowed from three quarters on."""
        shortest, ratio = self.distances[0], self.distances[-1] / self.distances[0]
        for step in range(n_steps):
            allowed = min(1.0, step / (0.75 * n_steps))
            share = allowed * float(torch.rand((), generator=generator))
            yield self._draw(generator, round(shortest * ratio**share))

    def reach(self, tried: list[list[Tried]]) -> int:
        """Return the farthest distance up to which all are reached, or 0."""
        farthest = 0
        for distance, of_seeds in zip(self.distances, tried, strict=True):
            if _mean(of_seeds) < MOSTLY:
                break
            farthest = distance
        return farthest

    def _checks(self, results: Results) -> list[Check]:
        longest = self.distances[-1]
        reach = {name: self.reach(tried) for name, tried in results.items()}
        looking = [name for name in reach if name not in CELLS]
        return [
            Check(
                claim=f"With attention, models learn to recall over {longest:,} tokens",
                measured=_reached(reach, looking),
                holds=all(reach[name] == longest for name in looking),
            ),
            Check(
                claim=f"A recurrent network without gates does not learn {longest:,} tokens",
                measured=_reached(reach, ["rnn"]),
                holds=reach["rnn"] < longest,
            ),
            Check(
                claim="With gates the distance is longer than without",
                measured=_reached(reach, CELLS),
                holds=min(reach["gru"], reach["lstm"]) > reach["rnn"],
            ),
            Check(
                claim="With gates the distance is shorter than with attention",
                measured=_reached(reach, ["gru", "lstm", "transformer"]),
                holds=max(reach["gru"], reach["lstm"]) < reach["transformer"],
            ),
        ]

    def _panels(self, results: Results, guided: Results) -> list[Panel]:
        alone = Panel(
            title="Accuracy, each distance trained alone",
            x_label="distance in tokens",
            y_label="accuracy",
            series=self._series(results, lambda tried: tried.right),
            x_scale="log",
            percent=True,
        )
        return [
            alone,
            alone.model_copy(
                update={
                    "title": "Accuracy, short distances first",
                    "series": self._series(guided, lambda tried: tried.right),
                }
            ),
            Panel(
                title="Steps until learned",
                x_label="distance in tokens",
                y_label="steps",
                series=tuple(filter(_is_line, self._series(results, _needed))),
                x_scale="log",
            ),
        ]

    def _series(
        self, results: Results, value: Callable[[Tried], Number | None]
    ) -> tuple[Series, ...]:
        return tuple(
            Series.of_runs(
                name,
                self.distances,
                list(zip(*([value(one) for one in seeds] for seeds in tried), strict=True)),
            )
            for name, tried in results.items()
        )

    def _notes(self, results: Results, guided: Results) -> list[str]:
        return [
            f"Chance level: {1 / N_SYMBOLS:.0%}. A distance that is not reached was not learned "
            f"in {self.n_steps} steps of {self.n_rows} examples; with more it might be.",
            f"With short distances first and {self.n_guided_steps} steps, the accuracy of one "
            f"model for all distances over {self.distances[-1]:,} tokens is "
            + listed([f"{_mean(tried[-1]):.0%} ({name})" for name, tried in guided.items()])
            + ". Where that is far more than with one distance alone, the state can hold the "
            "token, but the gradient over the whole distance is too small to learn it.",
            "The convolutional model has cross-attention as in Gehring et al. 2017, the LSTM with "
            "attention as in Bahdanau et al. 2015.",
        ]


def _mean(of_seeds: list[Tried]) -> float:
    return fmean(tried.right for tried in of_seeds)


def _is_line(series: Series) -> bool:
    return sum(y is not None for y in series.y) > 1


def _needed(tried: Tried) -> Number | None:
    return tried.n_steps if tried.right >= MOSTLY else None


def _reached(reach: dict[str, int], names: Sequence[str]) -> str:
    texts = [f"{reach[name] or 'none'} ({name})" for name in names]
    return f"longest distance reached: {listed(texts)}"
