"""Spans: what a token sees lies side by side in its row, so two numbers say where."""

from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional


class Span(NamedTuple):
    """Which places of its row every token sees; both ends belong to it."""

    first: Int[Tensor, "R T"]
    last: Int[Tensor, "R T"]

    def within(self, other: "Span") -> "Span":
        """Leave out what another span does not have."""
        return Span(torch.maximum(self.first, other.first), torch.minimum(self.last, other.last))

    def up_to_itself(self) -> "Span":
        """Leave out what comes later than the token itself."""
        return Span(self.first, torch.minimum(self.last, places_of(self.last).to(self.last.dtype)))


def places_of(segments: Int[Tensor, "R T"]) -> Int[Tensor, " T"]:
    """Count the places of a row."""
    return torch.arange(segments.shape[-1], device=segments.device)


def sentence_span(segments: Int[Tensor, "R T"], positions: Int[Tensor, "R T"]) -> Span:
    """Find where every token's sentence begins and ends; padding sees itself only."""
    places = places_of(segments).expand_as(segments)
    is_last = functional.pad(segments.diff(dim=-1) != 0, (0, 1), value=True)
    # The last token of each sentence writes down its place for all; running minima are slow.
    n_places = segments.shape[-1]
    names = torch.where(is_last, segments, n_places + 1)
    ends = segments.new_zeros(len(segments), n_places + 2).scatter(-1, names, places)
    is_padding = segments == 0
    return Span(
        places - positions.masked_fill(is_padding, 0),
        torch.where(is_padding, places, ends.gather(-1, segments)),
    )


def partner_span(query_segments: Int[Tensor, "R T"], key_segments: Int[Tensor, "R S"]) -> Span:
    """Find where the sentence with every token's number begins and ends; padding sees nothing.

    Of grids as they are made for training, whose sentences stand in order, with padding behind.
    """
    ordered = key_segments.masked_fill(key_segments == 0, torch.iinfo(key_segments.dtype).max)
    segments = query_segments.contiguous()
    first = torch.searchsorted(ordered, segments, out_int32=True)
    return Span(first, torch.searchsorted(ordered, segments, out_int32=True, right=True) - 1)
