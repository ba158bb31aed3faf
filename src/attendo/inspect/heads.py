"""Heads: how they are called, and what each measurably does."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from attendo.errors import ConfigError
from attendo.models import Recording, Seq2Seq
from attendo.nn.multihead import AttentionRecord

KINDS = ("encoder", "decoder", "cross")
"""Source to source, target to target, target to source."""

NAMES = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "encoder-decoder attention",
}

ENOUGH = 0.4
"""Share of its weight that a head must put in one kind of place to be named after it."""


class Head(NamedTuple):
    """One head of one layer; layers and heads are counted from 0."""

    kind: str
    layer: int
    head: int

    def __str__(self) -> str:
        return f"{self.kind}.{self.layer}.{self.head}"


def parse_head(text: str, model: Seq2Seq, first: int = 0) -> Head:
    """Find the head that a text such as cross.1.0 means; layers and heads begin with `first`."""
    heads = {
        f"{head.kind}.{head.layer + first}.{head.head + first}": head for head in all_heads(model)
    }
    if text not in heads:
        ends = {kind: [name for name in heads if name.startswith(kind)] for kind in KINDS}
        there = ", ".join(f"{names[0]} to {names[-1]}" for names in ends.values() if names)
        raise ConfigError(f"there is no head {text!r}; this model has {there}")
    return heads[text]


def all_heads(model: Seq2Seq) -> list[Head]:
    """List the heads of a model, kind by kind and layer by layer."""
    return [
        Head(kind, layer, head)
        for kind, attentions in model.attentions().items()
        for layer, attention in enumerate(attentions)
        for head in range(attention.n_heads)
    ]


def records_of(recording: Recording) -> dict[str, list[AttentionRecord]]:
    """Sort the recorded attentions by kind."""
    return {
        "encoder": recording.encoder.attention,
        "decoder": recording.decoder.attention,
        "cross": recording.decoder.cross,
    }


class Character(NamedTuple):
    """What a head does with one pair of sentences."""

    name: str
    """What it looks at most; empty if nothing stands out."""
    share: float
    """How much of its weight that is."""
    entropy: float
    """How spread out its weights are, in bits: 0 if every token looks at one place."""
    distance: float
    """How far away it looks on average, in tokens."""


def characterise(weights: Float[Tensor, "T S"], kind: str) -> Character:
    """Measure what a head does and name it after that."""
    shares = _aligned(weights) if kind == "cross" else _places(weights, kind)
    name = max(shares, key=lambda place: shares[place])
    share = shares[name]
    stands_out = share >= max(ENOUGH, 1.5 * _by_chance(weights, kind).get(name, 0.0))
    return Character(name if stands_out else "", share, entropy(weights), mean_distance(weights))


def _by_chance(weights: Float[Tensor, "T S"], kind: str) -> dict[str, float]:
    """Measure what a head would do that looks at everything alike: with few tokens, much."""
    if kind == "cross":
        return {}
    seen = torch.ones_like(weights)
    seen = seen.tril() if kind == "decoder" else seen
    return _places(seen / seen.sum(dim=-1, keepdim=True), kind)


def _places(weights: Float[Tensor, "T T"], kind: str) -> dict[str, float]:
    """Measure how much weight goes to places that are near or at the ends.

    Of the first tokens and of the last ones, some do not exist; the rows that have them count.
    """
    shares = {
        "same token": weights.diagonal(),
        "previous token": weights.diagonal(-1),
        "first token": weights[1:, 0],
    }
    if kind == "encoder":
        shares |= {"next token": weights.diagonal(1), "last token": weights[:-1, -1]}
    return {name: float(share.mean()) if len(share) else 0.0 for name, share in shares.items()}


def _aligned(weights: Float[Tensor, "T S"]) -> dict[str, float]:
    """Measure how sharply the target tokens look at source tokens, each at its own.

    Looking at the end of the source, where there is nothing to translate, is a way to rest.
    """
    best, places = weights.max(dim=1)
    is_word = places < weights.shape[1] - 1
    words = places[is_word]
    variety = len(words.unique()) / max(1, min(len(words), weights.shape[1] - 1))
    sharpness = float(best[is_word].mean()) if len(words) else 0.0
    is_varied = variety >= 0.5 and len(words) > len(places) / 2
    return {
        "alignment": sharpness if is_varied else 0.0,
        "end of source": float(weights[:, -1].mean()),
        "first token": float(weights[:, 0].mean()),
    }


def entropy(weights: Float[Tensor, "T S"]) -> float:
    """Measure how spread out attention is, in bits, on average over the queries."""
    return float(-torch.special.xlogy(weights, weights).sum(dim=-1).mean()) / 0.6931471805599453


def mean_distance(weights: Float[Tensor, "T S"]) -> float:
    """Measure how far away attention looks, in keys; for two texts, from the line between ends."""
    queries, keys = weights.shape
    scale = (keys - 1) / max(1, queries - 1)
    here = torch.arange(queries, device=weights.device)[:, None] * scale
    there = torch.arange(keys, device=weights.device)[None]
    return float((weights * (here - there).abs()).sum(dim=-1).mean())
