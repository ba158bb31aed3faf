"""Chunked attention: the sentence is cut into pieces, which see a little of their neighbours."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from attendo.nn.long.band import NEVER, Band, band_attention
from attendo.nn.long.fused import fits, fused_attention
from attendo.nn.spans import Span, places_of, sentence_span


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
    """Let every token ask its piece of `chunk` tokens, and `overlap` tokens on both sides of it.

    Pieces are counted from the beginning of the sentence; the causal form asks nothing later.
    """
    span = chunk_span(segments, positions, chunk, overlap, is_causal)
    if fits(q, v):
        return fused_attention(q, k, v, [span])
    reach = min(chunk - 1 + overlap, q.shape[2] - 1)
    band = Band(reach, 0 if is_causal else reach)
    first, last = (band.askers(ends, -1)[:, None, ..., None] for ends in span)
    places = band.asked(places_of(segments), -1)[:, None]
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
    """Let the newest token ask its piece so far, and `overlap` tokens before that."""
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
    """Say what every token sees."""
    places = places_of(segments)
    begins = places - positions % chunk
    last = places if is_causal else begins + chunk - 1 + overlap
    return Span(begins - overlap, last).within(sentence_span(segments, positions))
