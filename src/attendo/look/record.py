"""Record what a model computes for a text."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from jaxtyping import Float, Int
from torch import Tensor

from attendo.engines import Engine
from attendo.errors import ConfigError
from attendo.look.heads import NAMES, Head, ablate, entropy, records_of
from attendo.models import Recording
from attendo.specials import IGNORE
from attendo.tasks import TokenizedText
from attendo.tasks.inspection import Picture

E = TypeVar("E", bound=Engine)

BY_INTEREST = ("cross", "decoder", "encoder")
"""Kinds of attention; the first that a model has is shown unless another one is chosen."""


@dataclass(frozen=True, slots=True)
class RecordedText:
    """The recording of a text by a model, perhaps with some of its heads ablated."""

    source: str
    """What an encoder reads; empty for a model without one."""
    target: str
    """What a decoder predicts, or the predicted label."""
    tokenized: TokenizedText
    recording: Recording
    names: Callable[[Sequence[int]], list[str]]
    """Names the outputs of the model: tokens, or labels."""
    summary: str
    """The result for people."""
    picture: Picture | None
    """What an encoder reads, if it is no text."""
    ablated: tuple[Head, ...]
    weights: dict[str, list[Float[Tensor, "H T S"]]]
    """By kind and layer."""

    @property
    def target_inputs(self) -> list[str]:
        """Input of the decoder: column s of its self-attention is token s of these."""
        return ["<s>", *self.tokenized.target_tokens][: len(self.tokenized.target_tokens)]

    @property
    def is_pair(self) -> bool:
        """Whether there are two texts, so that the effect of one on the other can be measured."""
        return bool(self.tokenized.source_tokens and self.tokenized.target_tokens)

    @property
    def labels(self) -> Int[Tensor, " T"]:
        """What the model is to predict: tokens, or one label."""
        return self.tokenized.labels[self.tokenized.labels != IGNORE]

    @property
    def positions(self) -> list[int]:
        """The positions that have a label, in the tokens that the model reads."""
        found: list[int] = (self.tokenized.labels != IGNORE).nonzero().flatten().tolist()
        return found

    @property
    def log_probs(self) -> Float[Tensor, "T V"]:
        """Log-probabilities of all tokens, or labels, at each position that has a label."""
        return self.recording.logits[0].float().log_softmax(dim=-1)

    @property
    def kind(self) -> str:
        """The kind of attention to show first."""
        return next((kind for kind in BY_INTEREST if self.weights[kind]), BY_INTEREST[0])

    def _repr_html_(self) -> str | None:
        """Return an attention map for notebooks."""
        return self.recording._repr_html_()


def look(
    engine: Engine, text: str, target: str | None = None, ablated: Sequence[Head] = ()
) -> RecordedText:
    """Record a text; a translator takes a target, or else its own translation."""
    found = without(engine, ablated).inspect(text, target)
    weights = {
        kind: [record.weights[0].float().cpu() for record in records]
        for kind, records in records_of(found.recording).items()
    }
    return RecordedText(*found, tuple(ablated), weights)


def without(engine: E, heads: Sequence[Head]) -> E:
    """Return an engine whose model lacks some heads."""
    if not heads:
        return engine
    bundle = engine.bundle
    return type(engine)(replace(bundle, model=ablate(bundle.model, heads)), engine.words)


def layers_of(recorded: RecordedText, kind: str) -> list[Float[Tensor, "H T S"]]:
    """Return the attention weights of a kind; raise an error if the model has none."""
    if not recorded.weights[kind]:
        has = [name for name in NAMES if recorded.weights[name]]
        advice = f"use --what {has[0]}" if has else "write a page instead: --out look.html"
        raise ConfigError(f"the model has no {NAMES[kind]} that could be drawn; {advice}")
    return recorded.weights[kind]


def sharpest(layers: list[Float[Tensor, "H T S"]]) -> int:
    """Return the layer whose attention has the lowest entropy."""
    return min(range(len(layers)), key=lambda layer: entropy(layers[layer].mean(dim=0)))


class Candidate(NamedTuple):
    """A token that might have come next, or a label."""

    token: str
    log_prob: float

    @property
    def probability(self) -> float:
        """Return the probability at temperature 1."""
        return math.exp(self.log_prob)


def candidates(recorded: RecordedText, n: int) -> list[list[Candidate]]:
    """List the n most probable tokens, or labels, at each position that has a label."""
    best = recorded.log_probs.topk(min(n, recorded.log_probs.shape[1]), dim=-1)
    return [
        [Candidate(*pair) for pair in zip(recorded.names(ids), values, strict=True)]
        for ids, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
