"""Attention in time linear in the length: FAVOR+ of the Performer (Choromanski et al. 2021).

It approximates softmax(Q Kᵀ / √d_k) V. The exponential of a product of two vectors is the expected
product of two numbers that depend on one vector each: with w drawn from a Gaussian,
exp(x·y) = E[exp(w·x - |x|²/2) exp(w·y - |y|²/2)] (lemma 1). So M draws of w map every query and
every key to M positive features whose products are, on average, the softmax's exponentials. Then
the keys can be summed with their values once, and every query attends to the sum.

A row of T tokens takes time for T (M K + (C + M) J + C M) products and memory for
T (M + C + M J / C) numbers, where K and J are the widths of keys and values and C (128) is the
length of the chunks that the row is cut into. The error falls as 1/√M, and grows steeply with the
length of queries and keys: it is an approximation for attention that is not too sharp.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.nn import functional

from attendo.config import BlockConfig
from attendo.nn.attention.base import Pattern, SparseAttention, frozen, grid_of
from attendo.nn.numerics import widen

DEEPEST = 60.0
"""How far below its greatest feature the logarithm of a key's feature may lie.

A query's greatest feature is 1, so that each key weighs at least exp(-60) times its greatest
feature: a sum that is divided by cannot vanish, nor its gradient overflow, and what is lifted to
this is lost in rounding but for vectors so long that the approximation means nothing.
"""

Operation = Callable[[Tensor, Tensor], Tensor]


class Keys(NamedTuple):
    """Keys and values in N chunks of C tokens; features are relative to a peak for each key."""

    features: Float[Tensor, "R H N C M"]
    log_peaks: Float[Tensor, "R H N C"]
    values: Float[Tensor, "R H N C J"]
    segments: Int[Tensor, "R 1 N C"]


class Carried(NamedTuple):
    """What each chunk gets from the chunks on one side: the sum over the sentence on that side."""

    sums: Float[Tensor, "R H N M J"]
    log_peaks: Float[Tensor, "R H N C"]
    """How much the sums weigh for each token of the chunk; -inf for those of other sentences."""


def orthogonal_features(
    n_features: int, width: int, generator: torch.Generator
) -> Float[Tensor, "M K"]:
    """Draw Gaussian vectors of which every `width` are orthogonal, all equally distributed."""
    device = generator.device
    n_blocks = -(-n_features // width)
    gaussian = torch.randn(n_blocks, width, width, generator=generator, device=device)
    directions, triangle = torch.linalg.qr(gaussian)
    # The factorization prefers one sign; without it all directions are equally likely.
    directions = directions * triangle.diagonal(dim1=-2, dim2=-1).sign()[:, None, :]
    lengths = torch.randn(n_features, width, generator=generator, device=device).norm(dim=1)
    drawn: Tensor = directions.mT.flatten(0, 1)[:n_features] * lengths[:, None]
    return drawn


def log_features(x: Float[Tensor, "*T K"], features: Float[Tensor, "M K"]) -> Float[Tensor, "*T M"]:
    """Compute w·x - |x|²/2 for each w, where x is scaled for Q Kᵀ / √d_k (lemma 1)."""
    x = x * x.shape[-1] ** -0.25
    products = _product(x.reshape(-1, x.shape[-1]), features.to(x.dtype).mT)
    return products.view(*x.shape[:-1], len(features)) - x.square().sum(dim=-1, keepdim=True) / 2


def favor_attention(
    q: Float[Tensor, "R H T K"],
    k: Float[Tensor, "R H T K"],
    v: Float[Tensor, "R H T J"],
    features: Float[Tensor, "M K"],
    segments: Int[Tensor, "R T"],
    is_causal: bool,
    chunk: int = 128,
) -> Float[Tensor, "R H T J"]:
    """Approximate the attention of every token to its own sentence, or to the part up to itself."""
    n_chunks = -(-q.shape[2] // chunk)
    # Padding is a sentence like any other, but of zeros: its content reaches no token.
    is_padding = (segments == 0)[:, None, :, None]
    queries, keys, values = (_cut(x.masked_fill(is_padding, 0), n_chunks) for x in (q, k, v))
    labels = _cut(segments[:, None, :, None], n_chunks)[..., 0]
    asked = _keys(widen(keys), widen(values), features, labels)
    sides: list[Carried] = []
    if n_chunks > 1:
        sides = [_carried(asked, is_turned) for is_turned in (False, True)[: 2 - is_causal]]
    found = _ask(_queries(widen(queries), features), asked, sides, is_causal)
    return found.flatten(2, 3)[:, :, : q.shape[2]].to(v.dtype)


def favor_step(
    q: Float[Tensor, "R H 1 K"],
    k: Float[Tensor, "R H S K"],
    v: Float[Tensor, "R H S J"],
    features: Float[Tensor, "M K"],
) -> Float[Tensor, "R H 1 J"]:
    """Attend from the newest token to all tokens so far, as the causal form does."""
    keys, log_peaks = _relative(widen(k), features)
    shares = (log_peaks - log_peaks.amax(dim=-1, keepdim=True)).exp()[:, :, None]
    weights = _product(_queries(widen(q), features), keys.mT) * shares
    found = _product(weights, widen(v)) / weights.sum(dim=-1, keepdim=True)
    return found.to(v.dtype)


class _Product(torch.autograd.Function):
    """A @ B in the precision of its factors, backwards as well, whatever autocast is set to.

    Compilers trace the backward pass under the caller's autocast: turning that off around the
    forward pass would not do.
    """

    @staticmethod
    def forward(context: FunctionCtx, left: Tensor, right: Tensor) -> Tensor:
        """Compute A @ B."""
        context.save_for_backward(left, right)
        with torch.autocast(left.device.type, enabled=False):
            return left @ right

    @staticmethod
    def backward(context: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Compute the gradients of those factors that need one."""
        left, right = context.saved_tensors
        wants_left, wants_right = context.needs_input_grad
        with torch.autocast(left.device.type, enabled=False):
            return grad @ right.mT if wants_left else None, left.mT @ grad if wants_right else None


def _product(left: Float[Tensor, "*R T S"], right: Float[Tensor, "*R S J"]) -> Tensor:
    product: Tensor = _Product.apply(left, right)  # type: ignore[no-untyped-call]
    return product


def _cut(x: Tensor, n_chunks: int) -> Tensor:
    """Split (R H T K) into (R H N C K): equal chunks, the last padded with zeros."""
    length = -(-x.shape[2] // n_chunks)
    filled = functional.pad(x, (0, 0, 0, n_chunks * length - x.shape[2]))
    chunks: Tensor = filled.unflatten(2, (n_chunks, length))
    return chunks


def _queries(q: Tensor, features: Tensor) -> Tensor:
    """Compute the features of each query relative to their greatest, which drops out in the end."""
    logs = log_features(q, features)
    return (logs - logs.detach().amax(dim=-1, keepdim=True)).exp()


def _relative(k: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the features of each key relative to their greatest, and its logarithm.

    A peak for each key, and not one for all: no other key, however long, can make it vanish. As
    constants the peaks cancel out of the gradient, too.
    """
    logs = log_features(k, features)
    fixed = logs.detach()
    peaks = fixed.amax(dim=-1)
    # Lifting instead of clamping keeps nothing but the result for the backward pass.
    return (logs - torch.minimum(peaks[..., None], fixed + DEEPEST)).exp(), peaks


def _keys(k: Tensor, v: Tensor, features: Tensor, labels: Tensor) -> Keys:
    # The values get a column of ones, of which the sum is what to divide by.
    return Keys(*_relative(k, features), functional.pad(v, (0, 1), value=1.0), labels)


def _carried(keys: Keys, is_turned: bool) -> Carried:
    """Sum up what reaches each chunk from the left, or if reversed from the right.

    Sentences are contiguous: only that of the last token of a chunk continues in the next.
    """
    turned: Callable[[Tensor], Tensor] = (lambda x: x.flip(2)) if is_turned else (lambda x: x)
    edges = keys.segments[..., 0 if is_turned else -1]
    passes = keys.segments == edges[..., None]
    log_peaks = keys.log_peaks.masked_fill(~passes, -torch.inf)
    totals, stays = _totals(turned(log_peaks.amax(dim=-1)), turned(edges))
    shares = (log_peaks - turned(totals)[..., None]).exp()
    sums = turned(_product(keys.features.mT, keys.values * shares[..., None]))
    sums = _running(sums, stays[..., None, None], torch.add, torch.mul)
    # The sum at the end of one chunk is what the next one gets.
    arriving = turned(functional.pad(turned(edges), (1, -1), value=-1))
    log_peaks = turned(functional.pad(totals, (1, -1), value=-torch.inf))
    reached = keys.segments == arriving[..., None]
    return Carried(
        turned(functional.pad(sums, (0, 0, 0, 0, 1, -1))),
        torch.where(reached, log_peaks[..., None], -torch.inf),
    )


def _totals(
    log_peaks: Float[Tensor, "R H N"], edges: Int[Tensor, "R 1 N"]
) -> tuple[Float[Tensor, "R H N"], Float[Tensor, "R H N"]]:
    """Return the peak of the sum up to each chunk, and the factor of the sum before it.

    The peak is the greatest key of the sentence so far; another sentence starts a new sum.
    """
    is_same = functional.pad(edges.diff(dim=-1) == 0, (1, 0))
    log_stays = torch.zeros_like(is_same, dtype=log_peaks.dtype).masked_fill(~is_same, -torch.inf)
    totals = _running(log_peaks, log_stays, torch.maximum, torch.add)
    before = functional.pad(totals, (1, -1), value=-torch.inf)
    return totals, (before + log_stays - totals).exp()


def _running(terms: Tensor, stays: Tensor, plus: Operation, times: Operation) -> Tensor:
    """Compute h(n) = terms(n) plus stays(n) times h(n-1) along axis 2, beginning with terms(0).

    Neighbours are joined in pairs, the pairs follow by recursion, and what lies between them from
    these: in all twice the work of a loop, in a logarithm of its steps. Where a sum begins anew is
    exact, unlike in a difference of two sums over everything before.
    """
    length = terms.shape[2]
    if length == 1:
        return terms
    even, odd = terms[:, :, ::2], terms[:, :, 1::2]
    stays_even, stays_odd = stays[:, :, ::2], stays[:, :, 1::2]
    n_pairs = odd.shape[2]
    pairs = plus(odd, times(stays_odd, even[:, :, :n_pairs]))
    seconds = _running(pairs, times(stays_odd, stays_even[:, :, :n_pairs]), plus, times)
    later = plus(even[:, :, 1:], times(stays_even[:, :, 1:], seconds[:, :, : even.shape[2] - 1]))
    firsts = torch.cat((even[:, :, :1], later), dim=2)
    both = torch.stack((firsts[:, :, :n_pairs], seconds), dim=3).flatten(2, 3)
    return both if length == 2 * n_pairs else torch.cat((both, firsts[:, :, n_pairs:]), dim=2)


def _ask(queries: Tensor, keys: Keys, sides: list[Carried], is_causal: bool) -> Tensor:
    """Average the values over the keys of the same chunk and over the sums from the sides."""
    allowed = _allowed(keys.segments, is_causal)
    peaks = torch.where(allowed, keys.log_peaks[..., None, :], -torch.inf)
    # Everything is relative to the greatest key that the query attends to, whose factor is 1.
    greatest = peaks.amax(dim=-1, keepdim=True)
    for side in sides:
        greatest = torch.maximum(greatest, side.log_peaks[..., None])
    weights = _product(queries, keys.features.mT) * (peaks - greatest).exp()
    found = _product(weights, keys.values)
    for side in sides:
        found = found + _product(queries, side.sums) * (side.log_peaks[..., None] - greatest).exp()
    return found[..., :-1] / found[..., -1:]


def _allowed(segments: Int[Tensor, "R 1 N C"], is_causal: bool) -> Bool[Tensor, "R 1 N C C"]:
    allowed = segments[..., :, None] == segments[..., None, :]
    return allowed.tril() if is_causal else allowed


class Favor(SparseAttention):
    """Performer's: all tokens of the sequence, by random features."""

    def __init__(self, block: BlockConfig) -> None:
        super().__init__(block)
        n_features, width = block.favor.n_features, block.d_model // block.n_heads
        self.features = frozen(
            (n_features, width),
            lambda: orthogonal_features(n_features, width, torch.default_generator),
        )

    def forward(
        self,
        q: Float[Tensor, "R H T K"],
        k: Float[Tensor, "R H T K"],
        v: Float[Tensor, "R H T J"],
        pattern: Pattern,
    ) -> Float[Tensor, "R H T J"]:
        """Attend to the sums over the sequence."""
        segments = grid_of(pattern).segments
        return favor_attention(q, k, v, self.features, segments, pattern.is_causal)

    def step(
        self,
        q: Float[Tensor, "R H 1 K"],
        k: Float[Tensor, "R H S K"],
        v: Float[Tensor, "R H S J"],
        pattern: Pattern,
    ) -> Float[Tensor, "R H 1 J"]:
        """Attend from the newest token to the sums up to itself."""
        return favor_step(q, k, v, self.features)
