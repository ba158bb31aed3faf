"""Scaling: why scores are divided by √d_k, and why additive attention does not need it."""

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from attendo.config import BlockConfig
from attendo.lab.probes.exercises import build, draw_latest, learn, seeded, transformer
from attendo.lab.probes.probe import Check, Outcome, Panel, Probe, Rows, Series, Settings
from attendo.lab.report.document import listed
from attendo.models import Seq2Seq
from attendo.nn.attention import ATTENTIONS
from attendo.nn.attention.base import (
    Attention,
    Bias,
    Heads,
    Keys,
    Pattern,
    ScaledDotProduct,
    Weights,
    masked_softmax,
)
from attendo.reporter import Reporter

LAST = 20
"""Steps at the end of which the mean loss is taken."""

CLEAR = 0.1
"""A difference of losses that is more than an accident, in nats."""


class Unscaled(ScaledDotProduct):
    """Dot products as they are: Q Kᵀ without 1/√d_k."""

    def scores(self, q: Heads, k: Keys, bias: Bias) -> Weights:
        """Compute Q Kᵀ."""
        return super().scores(q * math.sqrt(q.shape[-1]), k, bias)

    def forward(self, q: Heads, k: Keys, v: Keys, pattern: Pattern) -> Heads:
        """Multiply the queries by √d_k, which cancels the division."""
        return super().forward(q * math.sqrt(q.shape[-1]), k, v, pattern)


KINDS: dict[str, type[Attention]] = {
    "scaled dot": ScaledDotProduct,
    "plain dot": Unscaled,
    "additive": ATTENTIONS["additive"],
}


class Spread(NamedTuple):
    """Measurements with random queries and keys."""

    variance: float
    """Of the scores of one query."""
    entropy: float
    """Of the weights, as a share of that of equal weights."""
    gradient: float
    """Of the weights with respect to the scores: the norm of the softmax's derivative."""


def spread_of(attention: Attention, d_k: int, n_keys: int, n_queries: int) -> Spread:
    """Measure scores and weights for queries and keys of independent numbers with variance 1."""
    queries, keys = torch.randn(1, 1, n_queries, d_k), torch.randn(1, 1, n_keys, d_k)
    with torch.no_grad():
        scores = attention.scores(queries, keys, None)[0, 0]
        weights = masked_softmax(scores[None, None], None)[0, 0]
    entropy = -(weights * weights.clamp(min=1e-30).log()).sum(dim=-1).mean()
    return Spread(
        scores.var(dim=-1).mean().item(),
        (entropy / math.log(n_keys)).item(),
        _derivative(weights).norm(dim=(1, 2)).mean().item(),
    )


def _derivative(weights: Tensor) -> Tensor:
    """Return diag(p) - p pᵀ, the derivative of a softmax, for every row p."""
    return torch.diag_embed(weights) - weights[:, :, None] * weights[:, None, :]


@dataclass(frozen=True)
class Scaling(Probe):
    """Random vectors first, then small models with one head as wide as they are."""

    name = "scaling"
    title = "Why the scores are divided by √d_k"
    claim = (
        "Dot products grow with d_k, so that the softmax saturates and its gradient becomes tiny; "
        "divided by √d_k they do not, and are as good as additive attention"
    )
    method = (
        "Queries and keys of independent numbers with variance 1: the variance of their scores, "
        "the entropy of the attention weights (1 if all are equal) and the norm of the softmax's "
        "derivative. Then models of one layer and one head of width d_k are trained to predict the "
        "symbol that was marked last, with each kind of score."
    )

    widths: tuple[int, ...] = (4, 16, 64, 256, 1024)
    n_keys: int = 32
    n_queries: int = 512
    learned_widths: tuple[int, ...] = (16, 64, 256)
    length: int = 24
    n_rows: int = 8
    n_steps: int = 150
    n_seeds: int = 1

    @classmethod
    def thorough(cls) -> "Scaling":
        """Train at greater widths, for more steps, with three seeds."""
        return cls(learned_widths=(16, 64, 256, 512), n_steps=500, n_rows=16, n_seeds=3)

    def explore(self, settings: Settings, reporter: Reporter) -> Outcome:
        """Measure random vectors, then train models."""
        with seeded(settings.seed):
            spreads = {name: self._spreads(kind) for name, kind in KINDS.items()}
        losses: dict[str, list[list[float]]] = {name: [] for name in KINDS}
        total = len(KINDS) * len(self.learned_widths) * self.n_seeds
        with reporter.bar("scaling", total) as advance:
            for name, runs in losses.items():
                for seed in range(settings.seed, settings.seed + self.n_seeds):
                    runs.append([])
                    for d_k in self.learned_widths:
                        runs[-1].append(self._loss(name, d_k, seed, settings.device))
                        advance(1, f"{name}, d_k = {d_k}")
        learned = {
            name: Series.of_runs(name, self.learned_widths, runs) for name, runs in losses.items()
        }
        return Outcome(
            checks=(*self._checks_of_spreads(spreads), *self._checks_of_learning(learned)),
            panels=tuple(self._lines(spreads, learned)),
            tables=(self._table(spreads),),
        )

    def _spreads(self, kind: type[Attention]) -> list[Spread]:
        return [
            spread_of(kind(BlockConfig(d_model=d_k, n_heads=1)), d_k, self.n_keys, self.n_queries)
            for d_k in self.widths
        ]

    def _loss(self, name: str, d_k: int, seed: int, device: torch.device) -> float:
        with seeded(seed) as generator:
            kind = "additive" if name == "additive" else "dot"
            config = transformer(d_k, 1, n_heads=1, attention=kind, d_ff=64)
            model = build(config)
            if KINDS[name] is Unscaled:
                _replace_attention(model, Unscaled(config))
            draw = partial(draw_latest, generator, self.n_rows, self.length)
            losses = learn(model.to(device), draw, self.n_steps)
        last = losses[-LAST:]
        return sum(last) / len(last)

    def _checks_of_spreads(self, spreads: dict[str, list[Spread]]) -> list[Check]:
        plain, scaled = spreads["plain dot"], spreads["scaled dot"]
        ratios = [one.variance / d_k for one, d_k in zip(plain, self.widths, strict=True)]
        span = f"from d_k = {self.widths[0]} to {self.widths[-1]:,}"
        return [
            Check(
                claim="The variance of a dot product is d_k",
                measured=f"{min(ratios):.2f} to {max(ratios):.2f} times d_k, {span}",
                holds=all(abs(ratio - 1) < 0.15 for ratio in ratios),
            ),
            Check(
                claim="Therefore the softmax saturates and its gradient becomes small",
                measured=f"{span} {_change(plain)}",
                holds=plain[-1].entropy < 0.5 * plain[0].entropy
                and plain[-1].gradient < 0.5 * plain[0].gradient,
            ),
            Check(
                claim="After division by √d_k neither depends on d_k",
                measured=f"{span} {_change(scaled)}",
                holds=abs(scaled[-1].entropy / scaled[0].entropy - 1) < 0.1
                and abs(scaled[-1].gradient / scaled[0].gradient - 1) < 0.2,
            ),
        ]

    def _checks_of_learning(self, learned: dict[str, Series]) -> list[Check]:
        losses = {name: [loss or 0.0 for loss in series.y] for name, series in learned.items()}
        scaled, plain, additive = losses["scaled dot"], losses["plain dot"], losses["additive"]
        more = [one - other for one, other in zip(plain, scaled, strict=True)]
        texts = [
            f"{gap:.2f} (d_k = {d_k})" for gap, d_k in zip(more, self.learned_widths, strict=True)
        ]
        at = f"loss at d_k = {self.learned_widths[-1]}:"
        return [
            Check(
                claim="Without the division training is worse, the more so the wider the head",
                measured=f"loss after {self.n_steps} steps higher by {listed(texts)}",
                holds=more[-1] > max(more[0], CLEAR),
            ),
            Check(
                claim="Additive attention does not need it",
                measured=f"{at} {additive[-1]:.2f} (additive), {plain[-1]:.2f} (plain dot)",
                holds=additive[-1] < plain[-1] - CLEAR,
            ),
            Check(
                claim="With it dot products are as good as additive attention",
                measured=f"{at} {scaled[-1]:.2f} (scaled dot), {additive[-1]:.2f} (additive)",
                holds=scaled[-1] < additive[-1] + CLEAR,
            ),
        ]

    def _lines(self, spreads: dict[str, list[Spread]], learned: dict[str, Series]) -> list[Panel]:
        variances = {name: [one.variance for one in of] for name, of in spreads.items()}
        gradients = {name: [one.gradient for one in of] for name, of in spreads.items()}
        return [
            self._spread_panel("Variance of the scores", "variance", variances),
            self._spread_panel("Gradient of the softmax", "norm of its derivative", gradients),
            Panel(
                title=f"Loss after {self.n_steps} steps",
                x_label="d_k",
                y_label="nats per answer",
                series=tuple(learned.values()),
                x_scale="log",
            ),
        ]

    def _spread_panel(self, title: str, unit: str, values: dict[str, list[float]]) -> Panel:
        return Panel(
            title=title,
            x_label="d_k",
            y_label=unit,
            series=tuple(
                Series(label=name, x=self.widths, y=tuple(of)) for name, of in values.items()
            ),
            x_scale="log",
            y_scale="log",
        )

    def _table(self, spreads: dict[str, list[Spread]]) -> Rows:
        return Rows(
            caption=(
                f"Entropy of the attention weights over {self.n_keys} random keys, as a share of "
                "that of equal attention weights."
            ),
            columns=("kind", *(f"d_k = {d_k:,}" for d_k in self.widths)),
            rows=tuple(
                (name, *(f"{one.entropy:.0%}" for one in measured))
                for name, measured in spreads.items()
            ),
        )


def _change(spreads: list[Spread]) -> str:
    first, last = spreads[0], spreads[-1]
    return (
        f"the entropy changes from {first.entropy:.0%} to {last.entropy:.0%} of that of equal "
        f"attention weights, the norm of the gradient from {first.gradient:.2f} to "
        f"{last.gradient:.2f}"
    )


def _replace_attention(model: Seq2Seq, attention: Attention) -> None:
    """Replace all attentions of a model by another kind, which has no parameters of its own."""
    for layers in model.attentions().values():
        for layer in layers:
            layer.attention = attention
