"""Order: whether a model distinguishes a sentence from the same words in another order."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attendo.config import AnyModelConfig
from attendo.lab.probes.exercises import (
    MARKED,
    N_SYMBOLS,
    PLAIN,
    Exercise,
    accuracy,
    build,
    convolutional,
    draw_first,
    learn,
    recurrent,
    seeded,
    transformer,
    whole_rows,
)
from attendo.lab.probes.probe import Check, Outcome, Panel, Probe, Rows, Series, Settings
from attendo.lab.probes.report import shown
from attendo.models import Seq2Seq
from attendo.nn.positions import POSITIONS
from attendo.reporter import Reporter

EXACT = 1e-12
"""Largest error that rounding alone can cause, in double precision."""

LEAST = 1e-16
"""Errors below are drawn as this: none at all has no logarithm."""

FELT = 1e-3
"""Least error that is more than an accident."""

Reorder = Callable[[Tensor], Tensor]
"""Puts the places (the second axis) of a tensor into another order."""


class Felt(NamedTuple):
    """What a new model feels of the order, and what it can learn from it."""

    shuffled: float
    reversed: float
    learned: float
    """Accuracy when the answer is the first symbol."""


def order_error(model: Seq2Seq, ids: Int[Tensor, "R T"], reorder: Reorder) -> float:
    """Measure how much more changes than the order when the tokens are reordered.

    It is 0 for a model that gives every token the same vector wherever it stands, and about 1.4
    for one whose vectors have nothing to do with one another.
    """
    with torch.no_grad():
        plain = reorder(_encoded(model, ids))
        moved = _encoded(model, reorder(ids))
    return float((moved - plain).norm() / plain.norm())


def _encoded(model: Seq2Seq, ids: Int[Tensor, "R T"]) -> Float[Tensor, "R T D"]:
    return model.encode(whole_rows(ids)).hidden


@dataclass(frozen=True)
class Order(Probe):
    """Encoders with and without positions, on words that change their places."""

    name = "order"
    title = "The order of words"
    claim = (
        "Attention by itself does not depend on the order of words: without positions a sentence "
        "is a bag of words"
    )
    method = (
        "An untrained encoder of two layers encodes tokens, and the same tokens in another order. "
        "Measured is the change of the hidden states besides their order, relative to their norm, "
        "in double precision. Then every model is trained to predict the first symbol of a row."
    )

    d_model: int = 64
    length: int = 8
    n_rows: int = 32
    n_tests: int = 512
    n_steps: int = 150
    n_seeds: int = 1

    @classmethod
    def thorough(cls) -> "Order":
        """Train for more steps on longer rows, with three seeds."""
        return cls(length=24, n_steps=600, n_tests=2048, n_seeds=3)

    def explore(self, settings: Settings, reporter: Reporter) -> Outcome:
        """Measure every kind of positions, and the other families."""
        felt: dict[str, list[Felt]] = {}
        described = self._models()
        with reporter.bar("order", len(described) * self.n_seeds) as advance:
            for name, config in described.items():
                felt[name] = []
                for seed in range(settings.seed, settings.seed + self.n_seeds):
                    felt[name].append(self._measure(config, seed, settings.device))
                    advance(1, name)
        guess = self._guess(settings.seed)
        return Outcome(
            checks=tuple(self._checks(felt, guess)),
            panels=self._panels(felt),
            tables=(_table(felt),),
            notes=tuple(self._notes(felt, guess)),
        )

    def _models(self) -> dict[str, AnyModelConfig]:
        kinds = ["none", *(kind for kind in POSITIONS if kind != "none")]
        return {
            **{
                f"attention, {kind}": transformer(
                    self.d_model, positions=kind, max_positions=self.length
                )
                for kind in kinds
            },
            "convolution": convolutional(self.d_model, self.length),
            "lstm": recurrent(self.d_model, "lstm"),
        }

    def _measure(self, config: AnyModelConfig, seed: int, device: torch.device) -> Felt:
        with seeded(seed) as generator:
            model = build(config).to(device)
            shape = self.n_rows, self.length
            ids = torch.randint(PLAIN, MARKED, shape, generator=generator).to(device)
            order = torch.randperm(self.length, generator=generator).to(device)
            model.double().eval()
            shuffled = order_error(model, ids, lambda x: x[:, order])
            turned = order_error(model, ids, lambda x: x.flip(1))
            draw = partial(draw_first, generator, self.n_rows, self.length)
            learn(model.float(), draw, self.n_steps)
            right = accuracy(model, self._test(seed))
        return Felt(shuffled, turned, right)

    def _test(self, seed: int) -> Exercise:
        generator = torch.Generator().manual_seed(seed + 1_000_000)
        return draw_first(generator, self.n_tests, self.length)

    def _guess(self, seed: int) -> float:
        """Count how often the most frequent symbol of a row is its first."""
        ids = self._test(seed).source.ids
        counts = torch.nn.functional.one_hot(ids - PLAIN, N_SYMBOLS).sum(dim=1)
        return (counts.amax(dim=1) / self.length).mean().item()

    def _checks(self, felt: dict[str, list[Felt]], guess: float) -> list[Check]:
        blind = felt["attention, none"]
        seeing = {name: runs for name, runs in felt.items() if name != "attention, none"}
        errors = {name: fmean(one.shuffled for one in runs) for name, runs in seeing.items()}
        least = min(errors, key=errors.__getitem__)
        absolute = [f"attention, {kind}" for kind in ("sinusoidal", "learned")]
        return [
            Check(
                claim="Without positions, shuffled words give the same hidden states, shuffled",
                measured=f"relative change {shown(max(one.shuffled for one in blind))}",
                holds=all(one.shuffled < EXACT for one in blind),
            ),
            Check(
                claim="With any kind of positions, recurrence or convolution they do not",
                measured=f"relative change {errors[least]:.2g} or more (smallest: {least})",
                holds=errors[least] > FELT,
            ),
            Check(
                claim="Without positions a model cannot learn which symbol is first",
                measured=(
                    f"accuracy {_accuracy(blind):.0%}; {guess:.0%} is possible without the order"
                ),
                holds=_accuracy(blind) < guess + 0.05,
            ),
            Check(
                claim="With the paper's positions it can",
                measured="accuracy "
                + ", ".join(
                    f"{_accuracy(felt[name]):.0%} ({name.split(', ')[1]})" for name in absolute
                ),
                holds=all(_accuracy(felt[name]) > 0.9 for name in absolute),
            ),
        ]

    def _notes(self, felt: dict[str, list[Felt]], guess: float) -> Iterator[str]:
        yield (
            f"Without the order the best accuracy is {guess:.0%}, with the most frequent symbol; "
            f"chance level is {1 / N_SYMBOLS:.0%}. A low accuracy can also mean that a model "
            "depends on the order but learns slowly."
        )
        alibi = felt["attention, alibi"]
        error = max(one.reversed for one in alibi)
        if error < EXACT:
            yield (
                "ALiBi encodes distances without direction: in an encoder a reversed sentence "
                f"gives the same hidden states, reversed (relative change {shown(error)}), and the "
                f"first symbol cannot be distinguished from the last (accuracy "
                f"{_accuracy(alibi):.0%}). It was designed for causal decoders."
            )

    def _panels(self, felt: dict[str, list[Felt]]) -> tuple[Panel, ...]:
        names = tuple(felt)
        errors = [max(fmean(one.shuffled for one in felt[name]), LEAST) for name in names]
        rights = [_accuracy(felt[name]) for name in names]
        places = tuple(range(len(names)))
        return (
            Panel(
                title="Change of the hidden states by shuffling",
                x_label="",
                y_label="relative change",
                series=(Series(label="change", x=places, y=tuple(errors)),),
                names=names,
                y_scale="log",
            ),
            Panel(
                title=f"Accuracy: first of {self.length} symbols, {self.n_steps} steps",
                x_label="",
                y_label="accuracy",
                series=(Series(label="accuracy", x=places, y=tuple(rights)),),
                names=names,
                percent=True,
            ),
        )


def _accuracy(runs: list[Felt]) -> float:
    return fmean(one.learned for one in runs)


def _table(felt: dict[str, list[Felt]]) -> Rows:
    return Rows(
        caption=(
            "Relative change of the hidden states when the words are shuffled or reversed, and "
            "accuracy of the first symbol after training."
        ),
        columns=("model", "shuffled", "reversed", "accuracy"),
        rows=tuple(
            (
                name,
                shown(fmean(one.shuffled for one in runs)),
                shown(fmean(one.reversed for one in runs)),
                f"{_accuracy(runs):.0%}",
            )
            for name, runs in felt.items()
        ),
    )
