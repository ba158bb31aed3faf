"""Heads: their names, what each of them measurably does, and models without some of them."""

import copy
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attendo.errors import ConfigError
from attendo.models import Model, Recording
from attendo.nn.multihead import AttentionRecord

M = TypeVar("M", bound=Model)

KINDS = ("encoder", "decoder", "cross")
"""Source to source, target to target, target to source."""

NAMES = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "encoder-decoder attention",
}

ENOUGH = 0.4
"""Share of its weight that a head must put on one kind of position to be named after it."""


class Head(NamedTuple):
    """One head of one layer; layers and heads are counted from 0."""

    kind: str
    layer: int
    head: int

    def __str__(self) -> str:
        return f"{self.kind}.{self.layer}.{self.head}"


def parse_head(text: str, model: Model, first: int = 0) -> Head:
    """Return the head of a name such as cross.1.0; layers and heads are counted from `first`."""
    heads = {
        f"{head.kind}.{head.layer + first}.{head.head + first}": head for head in all_heads(model)
    }
    if text not in heads:
        ends = {kind: [name for name in heads if name.startswith(kind)] for kind in KINDS}
        there = ", ".join(f"{names[0]} to {names[-1]}" for names in ends.values() if names)
        there = there or "no heads that can be ablated"
        raise ConfigError(f"there is no head {text!r}; this model has {there}")
    return heads[text]


def all_heads(model: Model) -> list[Head]:
    """List the heads of a model that can be ablated, kind by kind and layer by layer."""
    return [
        Head(kind, layer, head)
        for kind, attentions in model.attentions().items()
        for layer, attention in enumerate(attentions)
        for head in range(attention.n_heads)
    ]


def records_of(recording: Recording) -> dict[str, list[AttentionRecord]]:
    """Return the recorded attentions by kind."""
    return {
        "encoder": recording.encoder.attention,
        "decoder": recording.decoder.attention,
        "cross": recording.decoder.cross,
    }


class Character(NamedTuple):
    """What a head does with one text, or one pair of texts."""

    name: str
    """What it attends to most; empty if nothing stands out."""
    share: float
    """How much of its weight that is."""
    entropy: float
    """Entropy of its weights in bits: 0 if every token attends to one position only."""
    distance: float
    """Mean distance of what it attends to, in tokens."""


def characterise(weights: Float[Tensor, "T S"], kind: str) -> Character:
    """Measure what a head does and name it after that."""
    shares = _aligned(weights) if kind == "cross" else _places(weights, kind)
    name = max(shares, key=lambda place: shares[place])
    share = shares[name]
    stands_out = share >= max(ENOUGH, 1.5 * _by_chance(weights, kind).get(name, 0.0))
    return Character(name if stands_out else "", share, entropy(weights), mean_distance(weights))


def _by_chance(weights: Float[Tensor, "T S"], kind: str) -> dict[str, float]:
    """Measure the shares of a head with uniform weights: with few tokens they are large."""
    if kind == "cross":
        return {}
    uniform = torch.ones_like(weights)
    uniform = uniform.tril() if kind == "decoder" else uniform
    return _places(uniform / uniform.sum(dim=-1, keepdim=True), kind)


def _places(weights: Float[Tensor, "T T"], kind: str) -> dict[str, float]:
    """Measure the weight on neighbours and on the ends of the sentence.

    Rows that have no such neighbour do not count.
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
    """Measure how sharply the target tokens attend to source tokens, each to its own.

    Weight on the end of the source, where there is nothing to translate, has no effect.
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
    """Compute the entropy of attention in bits, averaged over the queries."""
    return float(-torch.special.xlogy(weights, weights).sum(dim=-1).mean()) / 0.6931471805599453


def mean_distance(weights: Float[Tensor, "T S"]) -> float:
    """Compute the mean distance of attention in keys; for two texts, from the diagonal."""
    queries, keys = weights.shape
    scale = (keys - 1) / max(1, queries - 1)
    here = torch.arange(queries, device=weights.device)[:, None] * scale
    there = torch.arange(keys, device=weights.device)[None]
    return float((weights * (here - there).abs()).sum(dim=-1).mean())


def ablate(model: M, heads: Iterable[Head]) -> M:
    """Return a model without some of its heads; it shares all other parameters with the original.

    The output of a head passes through its own columns of the output projection: zeros there ablate
    it exactly. The original is not changed, so other threads can use it.
    """
    shared: dict[int, Any] = {id(one): one for one in (*model.parameters(), *model.buffers())}
    shared[id(getattr(model, "pools", None))] = None  # recorded steps are those of the original
    ablated = copy.deepcopy(model, shared)
    for head in heads:
        attention = ablated.attentions()[head.kind][head.layer]
        weight = attention.output.weight.detach().clone()
        weight.unflatten(1, (attention.n_heads, -1))[:, head.head] = 0
        attention.output.weight = nn.Parameter(weight, requires_grad=False)
    return ablated
