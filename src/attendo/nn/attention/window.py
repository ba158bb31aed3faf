"""Attention to the neighbours: a sliding window with global tokens, and chunks that overlap.

In the window (Longformer, Beltagy et al. 2020) every token attends to its neighbours and to the
first tokens of its sequence, and those attend to all of it, so that distant tokens are two steps
apart. In chunked attention the sequence is cut into chunks, which also attend to the edges of their
neighbours. Neither grows faster than the length.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from attendo.config import BlockConfig
from attendo.nn.attention.band import NEVER, Averages, Band, band_attention, merge
from attendo.nn.attention.base import Heads, Keys, Output, Pattern, SparseAttention, Values, grid_of
from attendo.nn.attention.flex import fits, fused_attention
from attendo.nn.grid import Span, columns_of, own_span
from attendo.nn.numerics import widen

Outputs = Float[Tensor, "R H T J"]
"""Of self-attention, where there are as many keys as queries."""


def window_attention(
    q: Heads,
    k: Heads,
    v: Outputs,
    segments: Int[Tensor, "R T"],
    positions: Int[Tensor, "R T"],
    window: int,
    n_global: int,
    is_causal: bool,
) -> Outputs:
    """Attend to `window` tokens on either side, and the first `n_global` of the sentence.

    Those attend to their whole sentence; in the causal form only to earlier tokens, as all do.
    """
    spans = window_spans(segments, positions, window, n_global, is_causal)
    if fits(q, v):
        return fused_attention(q, k, v, spans)
    reach = min(window, q.shape[2] - 1)  # a wider band would add nothing
    band = Band(reach, 0 if is_causal else reach)
    near = band_attention(q, k, v, segments[:, None], band)
    if not n_global:
        return near.values
    places, is_there = _global_places(spans[1], n_global)
    is_far = is_there & (places < spans[0].first[..., None])  # the others are in the band, too
    far = _ask_globals(q, k, v, places, is_far)
    both = merge(Averages(*map(torch.stack, zip(near, far, strict=True))), dim=0).values
    if is_causal:
        return both
    told = _globals_ask(q, k, v, places, is_there)
    return torch.where((positions < n_global)[:, None, :, None], told, both)


def window_step(
    q: Float[Tensor, "R H 1 K"],
    k: Float[Tensor, "R H S K"],
    v: Float[Tensor, "R H S J"],
    window: int,
    n_global: int,
) -> Float[Tensor, "R H 1 J"]:
    """Attend from the newest token to the `window` before it, itself, and the first `n_global`."""
    first_near = k.shape[2] - 1 - window
    if first_near > n_global:
        k, v = (torch.cat((x[:, :, :n_global], x[:, :, first_near:]), dim=2) for x in (k, v))
    return functional.scaled_dot_product_attention(q, k, v)


def window_spans(
    segments: Int[Tensor, "R T"],
    positions: Int[Tensor, "R T"],
    window: int,
    n_global: int,
    is_causal: bool,
) -> list[Span]:
    """Return the spans that every token attends to: its neighbours, and the global tokens."""
    sentence = own_span(segments, positions)
    places = columns_of(segments)
    near = Span(places - window, places if is_causal else places + window).within(sentence)
    if not n_global:
        return [near]
    if not is_causal:
        is_global = (positions < n_global) & (segments != 0)
        near = Span(*(torch.where(is_global, *ends) for ends in zip(sentence, near, strict=True)))
    last_global = sentence.first + n_global - 1
    return [near, Span(sentence.first, torch.minimum(last_global, near.last))]


def _global_places(span: Span, n_global: int) -> tuple[Int[Tensor, "R T G"], Bool[Tensor, "R T G"]]:
    """Return the positions of the global tokens of every token, and which of them exist."""
    places = span.first[..., None] + torch.arange(n_global, device=span.first.device)
    is_there = places <= span.last[..., None]
    return torch.where(is_there, places, 0), is_there


def _ask_globals(
    q: Heads, k: Heads, v: Outputs, places: Int[Tensor, "R T G"], allowed: Bool[Tensor, "R T G"]
) -> Averages:
    """Attend from every token to the global tokens of its sentence."""
    keys, values = _picked(k, places), _picked(v, places)
    scores = torch.einsum("rhtk,rhtgk->rhtg", q.to(keys.dtype), keys) * q.shape[-1] ** -0.5
    scores = torch.where(allowed[:, None], scores, NEVER)
    found = torch.einsum("rhtg,rhtgj->rhtj", scores.softmax(dim=-1), values)
    return Averages(found.to(v.dtype), scores.logsumexp(dim=-1))


def _globals_ask(
    q: Heads, k: Heads, v: Outputs, places: Int[Tensor, "R T G"], allowed: Bool[Tensor, "R T G"]
) -> Outputs:
    """Attend from the global tokens to their sentences; other results are meaningless.

    Every token adds its weight and its value at the positions of its global tokens.
    """
    queries = _picked(q, places)
    scores = torch.einsum("rhtk,rhtgk->rhtg", k.to(queries.dtype), queries) * q.shape[-1] ** -0.5
    scores = torch.where(allowed[:, None], scores, NEVER).flatten(2)
    index = places.flatten(1)[:, None].expand_as(scores)
    best = scores.new_full(q.shape[:3], NEVER).scatter_reduce(2, index, scores.detach(), "amax")
    shares = (scores - best.gather(2, index)).exp()
    totals = torch.zeros_like(best).scatter_add(2, index, shares)
    weights = (shares / totals.gather(2, index)).unflatten(2, places.shape[1:])
    brought = weights[..., None] * v.to(weights.dtype)[..., None, :]
    index = places.flatten(1)[:, None, :, None].expand(*v.shape[:2], -1, v.shape[3])
    told = torch.zeros_like(v, dtype=weights.dtype).scatter_add(2, index, brought.flatten(2, 3))
    return told.to(v.dtype)


def _picked(
    x: Float[Tensor, "R H T K"], places: Int[Tensor, "R T G"]
) -> Float[Tensor, "R H T G K"]:
    """Return the vectors at some positions for every token, in fp32, as gradients add up there."""
    x = widen(x)
    index = places.flatten(1)[:, None, :, None].expand(*x.shape[:2], -1, x.shape[3])
    picked: Tensor = x.gather(2, index).unflatten(2, places.shape[1:])
    return picked


def chunk_attention(
    q: Float[Tensor, "R H T K"],
    k: Float[Tensor, "R H T K"],
    v: Float[Tensor, "R H T J"],
    segments: Int[Tensor, "R T"],
    positions: Int[Tensor, "R T"],
    chunk: int,
    overlap: int,
    is_causal: bool,
) -> Float[Tensor, "R H T J"]:
    """Attend to the own chunk of `chunk` tokens, and `overlap` tokens on both sides of it.

    Chunks are counted from the start of the sentence; the causal form attends to nothing later.
    """
    span = chunk_span(segments, positions, chunk, overlap, is_causal)
    if fits(q, v):
        return fused_attention(q, k, v, [span])
    reach = min(chunk - 1 + overlap, q.shape[2] - 1)
    band = Band(reach, 0 if is_causal else reach)
    first, last = (band.askers(ends, -1)[:, None, ..., None] for ends in span)
    places = band.asked(columns_of(segments), -1)[:, None]
    is_seen = (places >= first) & (places <= last)
    found = band_attention(
        q, k, v, segments[:, None], band, lambda scores: torch.where(is_seen, scores, NEVER)
    )
    return found.values


def chunk_step(
    q: Float[Tensor, "R H 1 K"],
    k: Float[Tensor, "R H S K"],
    v: Float[Tensor, "R H S J"],
    chunk: int,
    overlap: int,
) -> Float[Tensor, "R H 1 J"]:
    """Attend from the newest token to its chunk so far, and `overlap` tokens before that."""
    newest = k.shape[2] - 1
    first = max(0, newest - newest % chunk - overlap)
    return functional.scaled_dot_product_attention(q, k[:, :, first:], v[:, :, first:])


def chunk_span(
    segments: Int[Tensor, "R T"],
    positions: Int[Tensor, "R T"],
    chunk: int,
    overlap: int,
    is_causal: bool,
) -> Span:
    """Return the span that every token attends to."""
    places = columns_of(segments)
    begins = places - positions % chunk
    last = places if is_causal else begins + chunk - 1 + overlap
    return Span(begins - overlap, last).within(own_span(segments, positions))


class Window(SparseAttention):
    """Longformer's: the neighbours, and the first tokens of the sequence."""

    def __init__(self, block: BlockConfig) -> None:
        super().__init__(block)
        self.window, self.n_global = block.window.reach, block.window.n_global

    def forward(self, q: Heads, k: Keys, v: Values, pattern: Pattern) -> Output:
        """Attend to the neighbours."""
        grid = grid_of(pattern)
        where = grid.segments, grid.positions
        return window_attention(q, k, v, *where, self.window, self.n_global, pattern.is_causal)

    def step(self, q: Heads, k: Keys, v: Values, pattern: Pattern) -> Output:
        """Attend from the newest token to its neighbours."""
        return window_step(q, k, v, self.window, self.n_global)


class Chunks(SparseAttention):
    """The sequence cut into chunks that overlap."""

    def __init__(self, block: BlockConfig) -> None:
        super().__init__(block)
        self.chunk, self.overlap = block.chunks.size, block.chunks.overlap

    def forward(self, q: Heads, k: Keys, v: Values, pattern: Pattern) -> Output:
        """Attend within the own chunk."""
        grid = grid_of(pattern)
        where = grid.segments, grid.positions
        return chunk_attention(q, k, v, *where, self.chunk, self.overlap, pattern.is_causal)

    def step(self, q: Heads, k: Keys, v: Values, pattern: Pattern) -> Output:
        """Attend from the newest token to its chunk."""
        return chunk_step(q, k, v, self.chunk, self.overlap)
