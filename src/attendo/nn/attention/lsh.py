"""Attention among tokens that point in about the same direction (Reformer, Kitaev et al. 2020, §2).

Queries serve as keys, too, of length 1: the score of a pair is q · k/|k| / √d_k. The paper leaves
√d_k out of its formulas for clarity only. A token attends to itself only if there is no other.

In each of several rounds the tokens are sorted into buckets by direction, and attend to those near
them in sorted order. The paper cuts the sorted row into chunks, whose bounds move with every later
token: the future would change the past. Here every token attends equally far, to `reach` tokens of
its own bucket, and its output depends on no later token.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from attendo.config import BlockConfig
from attendo.nn.attention.band import NEVER, Adjust, Averages, Band, band_attention, merge
from attendo.nn.attention.base import (
    Bias,
    Heads,
    Keys,
    Output,
    Pattern,
    SparseAttention,
    Values,
    Weights,
    frozen,
    grid_of,
)
from attendo.nn.attention.flex import fits, fused_rounds
from attendo.nn.numerics import widen

OWN = -1e4
"""Score of a token for itself: below that of all others, above that of masked ones.

Not lower, as kernels store logarithms of sums, for which 24 bits must be enough.
"""


def make_rotations(
    n_heads: int, n_rounds: int, width: int, n_buckets: int, generator: torch.Generator
) -> Float[Tensor, "H N K P"]:
    """Draw the directions that define the buckets; each defines two, one at either end."""
    shape = n_heads, n_rounds, width, n_buckets // 2
    return torch.randn(shape, generator=generator, device=generator.device)


@torch.no_grad()
def find_buckets(
    x: Float[Tensor, "R H T K"], rotations: Float[Tensor, "H N K P"]
) -> Int[Tensor, "R H N T"]:
    """Return the bucket of each token in each round: its nearest direction, or opposite of one."""
    # A bucket should not depend on the precision: a token must find it again when it is a key.
    with torch.autocast(x.device.type, enabled=False):
        turned = torch.einsum("rhtk,hnkp->rhntp", widen(x), rotations.to(widen(x).dtype))
    return torch.cat((turned, -turned), dim=-1).argmax(dim=-1)


class Rounds(NamedTuple):
    """The sorted order of the tokens in each round."""

    order: Int[Tensor, "R H N T"]
    """The token at each place."""
    places: Int[Tensor, "R H N T"]
    """The place of each token."""
    labels: Int[Tensor, "R H N T"]
    """Sentence and bucket as one number, place by place."""
    marks: Int[Tensor, "R H N T"]
    """Token by token: two attend to each other if their marks are at most `reach` apart."""

    def line_up(self, x: Float[Tensor, "R H T J"]) -> Float[Tensor, "R H N T J"]:
        """Return tokens in the order of each round."""
        return torch.take_along_dim(x[:, :, None], self.order[..., None], dim=3)

    def bring_back(self, found: Averages) -> Averages:
        """Return results in the order of the tokens."""
        values = torch.take_along_dim(found.values, self.places[..., None], dim=3)
        return Averages(values, found.log_sums.gather(-1, self.places))


def sort_rounds(labels: Int[Tensor, "R H N T"], reach: int) -> Rounds:
    """Sort by label and, where it is the same, by place."""
    labels, order = labels.sort(dim=-1, stable=True)
    tokens = torch.arange(order.shape[-1], device=order.device).expand_as(order)
    places = torch.zeros_like(order).scatter(-1, order, tokens)
    # Neighbours are one apart, the last of a bucket and the first of the next farther than `reach`.
    is_first = labels.diff(dim=-1, prepend=labels[..., :1]) != 0
    marks = (1 + reach * is_first).cumsum(dim=-1, dtype=torch.int32)
    return Rounds(order, places, labels, marks.gather(-1, places))


def lsh_attention(
    q: Float[Tensor, "R H T K"],
    v: Float[Tensor, "R H T J"],
    rotations: Float[Tensor, "H N K P"],
    segments: Int[Tensor, "R T"],
    *,
    reach: int,
    is_causal: bool,
) -> Float[Tensor, "R H T J"]:
    """Attend from every token to those of its sentence that share a bucket with it in any round.

    In each bucket it attends to the nearest: `reach` tokens before it and, unless causal, after it.
    """
    n_buckets = 2 * rotations.shape[-1]
    labels = segments[:, None, None, :] * n_buckets + find_buckets(q, rotations)
    rounds = sort_rounds(labels, reach)
    band = Band(before=reach, after=0 if is_causal else reach)
    queries, keys, values = map(rounds.line_up, (q, _unit(q), v))
    if fits(q, v):
        marks = torch.take_along_dim(rounds.marks[:, :, None], rounds.order[:, :, :, None], dim=-1)
        found = fused_rounds(queries, keys, values, rounds.labels, marks, band, OWN)
    else:
        adjust = _count_once(rounds, band, reach)
        found = band_attention(queries, keys, values, rounds.labels, band, adjust)
    return merge(rounds.bring_back(found), dim=2).values.to(v.dtype)


def _count_once(rounds: Rounds, band: Band, reach: int) -> Adjust:
    """Divide the weight of a pair among all rounds in which the two share a bucket."""

    def adjust(scores: Float[Tensor, "R H N M C B"]) -> Float[Tensor, "R H N M C B"]:
        n_met = torch.zeros(scores.shape, dtype=torch.int16, device=scores.device)
        for marks in rounds.marks.unbind(dim=2):
            marks = torch.take_along_dim(marks[:, :, None], rounds.order, dim=3)
            own, others = band.askers(marks, -1)[..., :, None], band.asked(marks, -1)[..., None, :]
            n_met = n_met + ((own - others).abs() <= reach)
        # Of the token itself only the first round counts.
        is_later = torch.arange(scores.shape[2], device=scores.device)[:, None, None, None] > 0
        own_scores = torch.where(is_later, NEVER, OWN).to(scores.dtype)
        shared = scores - n_met.clamp(min=1).to(scores.dtype).log()
        return torch.where(band.offsets(scores.device) == 0, own_scores, shared)

    return adjust


def lsh_step(
    q: Float[Tensor, "R H 1 K"],
    keys: Float[Tensor, "R H S K"],
    v: Float[Tensor, "R H S J"],
    rotations: Float[Tensor, "H N K P"],
    reach: int,
) -> Float[Tensor, "R H 1 J"]:
    """Attend from the newest token, as the causal form does.

    The keys are the queries of all tokens of the sentence so far; the last is the newest token's.
    """
    buckets = find_buckets(keys, rotations)
    is_same = buckets == buckets[..., -1:]
    n_until = is_same.cumsum(dim=-1)
    is_near = n_until[..., -1:] - n_until <= reach
    is_seen = (is_same & is_near).any(dim=2)[:, :, None]
    scores = widen(q @ _unit(keys).mT) * q.shape[-1] ** -0.5
    is_own = torch.arange(keys.shape[2], device=q.device) == keys.shape[2] - 1
    scores = torch.where(is_own, OWN, torch.where(is_seen, scores, NEVER))
    found: Tensor = scores.softmax(dim=-1).to(v.dtype) @ v
    return found.to(v.dtype)


def _unit(x: Tensor) -> Tensor:
    """Normalise all vectors to length 1, in at least fp32."""
    return functional.normalize(widen(x), dim=-1, eps=1e-6).to(x.dtype)


class Lsh(SparseAttention):
    """Reformer's: tokens that point in about the same direction, found by sorting."""

    shares_queries = True

    def __init__(self, block: BlockConfig) -> None:
        super().__init__(block)
        self.reach = block.lsh.reach
        width = block.d_model // block.n_heads
        sizes = block.n_heads, block.lsh.n_rounds, width
        self.rotations = frozen(
            (*sizes, block.lsh.n_buckets // 2),
            lambda: make_rotations(*sizes, block.lsh.n_buckets, torch.default_generator),
        )

    def scores(self, q: Heads, k: Keys, bias: Bias) -> Weights:
        """Return the scores of all pairs; keys have length 1."""
        return super().scores(q, functional.normalize(k, dim=-1), bias)

    def forward(self, q: Heads, k: Keys, v: Values, pattern: Pattern) -> Output:
        """Attend within the buckets."""
        segments, is_causal = grid_of(pattern).segments, pattern.is_causal
        return lsh_attention(q, v, self.rotations, segments, reach=self.reach, is_causal=is_causal)

    def step(self, q: Heads, k: Keys, v: Values, pattern: Pattern) -> Output:
        """Attend from the newest token to its buckets."""
        return lsh_step(q, k, v, self.rotations, self.reach)
