"""Gradient against distance: how much the last hidden state depends on earlier tokens."""

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from attendo.config import AnyModelConfig
from attendo.lab.probes.exercises import (
    MARKED,
    PLAIN,
    Exercise,
    build,
    draw_recall,
    families,
    learn,
    seeded,
    whole_rows,
)
from attendo.lab.probes.layers import decay
from attendo.lab.probes.probe import Check, Outcome, Panel, Probe, Rows, Series, Settings
from attendo.lab.probes.report import shown
from attendo.models import Seq2Seq
from attendo.nn.embedding import Embedding
from attendo.nn.grid import Grid
from attendo.reporter import Reporter

STRAIGHT = 0.95
"""R² above which points count as lying on a line."""


GATED = ("lstm", "gru")


class Fall(NamedTuple):
    """How the gradient of one model falls with the distance."""

    norms: list[float]
    """At distance 0, 1, 2 ...; 0 where nothing arrives."""

    @property
    def reach(self) -> int:
        """Return the farthest distance at which a gradient arrives."""
        return max(distance for distance, norm in enumerate(self.norms) if norm > 0)

    @property
    def factor(self) -> float:
        """Return the factor per step of an exponential through all distances but 0."""
        return math.exp(decay(*self._points()).slope)

    @property
    def r_squared(self) -> float:
        """Return how well the exponential fits."""
        return decay(*self._points()).r_squared

    @property
    def left(self) -> float:
        """Return the ratio of the last gradient to that at distance 1, by the exponential."""
        return float(self.factor ** (len(self.norms) - 2))

    def _points(self) -> tuple[list[float], list[float]]:
        """Return all points but distance 0, where a residual connection adds the token itself."""
        distances = range(1, self.reach + 1)
        return [float(distance) for distance in distances], [self.norms[one] for one in distances]


def gradient_by_distance(model: Seq2Seq, source: Grid) -> list[float]:
    """Measure how much the last token's vector depends on the embeddings 0, 1, 2 ... places before.

    It is the root mean square, over the rows, of the gradient of the vector along a random
    direction: the norm of the derivative, but for a constant factor.
    """
    entered: list[Tensor] = []
    embedding = cast(Embedding, model.source_embedding)
    handle = embedding.register_forward_hook(lambda _, __, output: entered.append(output))
    try:
        last = model.encode(source).hidden[:, -1]
    finally:
        handle.remove()
    directions = functional.normalize(torch.randn_like(last), dim=-1)
    (gradient,) = torch.autograd.grad((last * directions).sum(), entered[0])
    return _root_mean_square(gradient).flip(0).tolist()


def _root_mean_square(gradient: Float[Tensor, "R S D"]) -> Float[Tensor, " S"]:
    return gradient.square().sum(dim=-1).mean(dim=0).sqrt()


@dataclass(frozen=True)
class Gradients(Probe):
    """New and briefly trained models, from the last token back to the first."""

    name = "gradients"
    title = "Gradients and distance"
    claim = (
        "In a recurrent network the gradient vanishes exponentially with the distance; gates slow "
        "that down, and with attention the distance has no effect"
    )
    method = (
        "The norm of the derivative of the last hidden state with respect to the embedding d "
        "tokens earlier, on random symbols, in double precision, relative to d = 1. First at "
        "initialisation, then after some training to recall a marked symbol."
    )

    d_model: int = 64
    length: int = 65
    n_rows: int = 32
    n_steps: int = 150
    farthest: int = 16
    """Distance up to which recalling is learned."""

    @classmethod
    def thorough(cls) -> "Gradients":
        """Measure and train over longer distances."""
        return cls(length=513, n_rows=64, n_steps=500, farthest=64)

    def explore(self, settings: Settings, reporter: Reporter) -> Outcome:
        """Measure every family twice."""
        fresh: dict[str, Fall] = {}
        taught: dict[str, Fall] = {}
        described = families(self.d_model, longest=self.length)
        del described["lstm with attention"]  # which reads as the LSTM does
        with reporter.bar("gradients", len(described)) as advance:
            for name, config in described.items():
                fresh[name], taught[name] = self._measure(config, settings)
                advance(1, name)
        return Outcome(
            checks=tuple(self._checks(fresh, taught)),
            panels=(
                self._panel("At initialisation", fresh),
                self._panel(f"After {self.n_steps} training steps", taught),
            ),
            tables=(_table(fresh, taught),),
            notes=tuple(self._notes(fresh)),
        )

    def _measure(self, config: AnyModelConfig, settings: Settings) -> tuple[Fall, Fall]:
        with seeded(settings.seed) as generator:
            model = build(config).to(settings.device)
            ids = torch.randint(PLAIN, MARKED, (self.n_rows, self.length), generator=generator)
            source = whole_rows(ids.to(settings.device))
            before = Fall(gradient_by_distance(model.double(), source))
            learn(model.float(), partial(self._draw, generator), self.n_steps)
            after = Fall(gradient_by_distance(model.double(), source))
        return before, after

    def _draw(self, generator: torch.Generator) -> Exercise:
        distance = int(torch.randint(1, self.farthest + 1, (), generator=generator))
        return draw_recall(generator, self.n_rows, distance)

    def _checks(self, fresh: dict[str, Fall], taught: dict[str, Fall]) -> list[Check]:
        rnn, far = fresh["rnn"], self.length - 1
        left = fresh["transformer"].left, taught["transformer"].left
        return [
            Check(
                claim="At initialisation the gradient of an RNN falls exponentially",
                measured=(
                    f"×{rnn.factor:.2f} per token (R² = {rnn.r_squared:.3f}); "
                    f"{shown(rnn.left)} of it is left after {far}"
                ),
                holds=rnn.factor < 1 and rnn.r_squared > STRAIGHT,
            ),
            *(_slower(name, fresh) for name in GATED),
            *(_opened(name, fresh, taught) for name in GATED),
            Check(
                claim="With attention it does not fall with the distance",
                measured=(
                    f"{left[0]:.0%} is left after {far} tokens at initialisation, {left[1]:.0%} "
                    "after training"
                ),
                holds=min(left) > 0.5,
            ),
        ]

    def _panel(self, title: str, falls: dict[str, Fall]) -> Panel:
        return Panel(
            title=title,
            x_label="tokens before the last",
            y_label="gradient, relative to distance 1",
            series=tuple(
                Series(
                    label=name,
                    x=tuple(range(1, self.length)),
                    y=tuple(norm / fall.norms[1] or None for norm in fall.norms[1:]),
                )
                for name, fall in falls.items()
            ),
            y_scale="log",
        )

    def _notes(self, fresh: dict[str, Fall]) -> list[str]:
        reach = fresh["convolution"].reach
        return [
            f"Two convolutional layers with kernel 3 reach {reach} tokens back; beyond that the "
            "gradient is exactly 0, and the line ends.",
            "The first tokens of a sequence, at the right edge, are special: the state of a "
            "recurrent network is still small there.",
        ]


def _slower(name: str, fresh: dict[str, Fall]) -> Check:
    return Check(
        claim=f"At initialisation that of a {name.upper()} falls more slowly",
        measured=f"×{fresh[name].factor:.2f} per token, RNN ×{fresh['rnn'].factor:.2f}",
        holds=fresh[name].factor > fresh["rnn"].factor,
    )


def _opened(name: str, fresh: dict[str, Fall], taught: dict[str, Fall]) -> Check:
    before, after = fresh[name].factor, taught[name].factor
    return Check(
        claim=f"Training slows down the fall in a {name.upper()}",
        measured=f"×{before:.2f} per token before, ×{after:.2f} after training",
        holds=after > before,
    )


def _table(fresh: dict[str, Fall], taught: dict[str, Fall]) -> Rows:
    return Rows(
        caption="Factor per token of an exponential fit, and its R².",
        columns=("family", "initialised", "R²", "trained", "R²"),
        rows=tuple(
            (
                name,
                round(fresh[name].factor, 3),
                round(fresh[name].r_squared, 3),
                round(taught[name].factor, 3),
                round(taught[name].r_squared, 3),
            )
            for name in fresh
        ),
    )
