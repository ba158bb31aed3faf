"""The grid, one shape for padded and packed sequences, and everything that follows from it.

A row may hold several sequences one after the other; a padded batch is the special case of one
sequence a row. Which positions may attend to which follows from the grid alone: as a boolean mask
(True = may attend), or as a span where the positions lie side by side. Recurrent models get each
sequence in a row of its own.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn import functional


class Grid(NamedTuple):
    """Token ids or vectors in rows, with two companions.

    Where a batch has a source and a target grid, they have the same rows, and segment `s` of a
    source row is the partner of segment `s` of the same target row.
    """

    ids: Shaped[Tensor, "R W ..."]
    """Token ids; or vectors, patches of an image or samples of a recording. Only the embedding of a
    model knows which."""
    segments: Int[Tensor, "R W"]
    """Which sequence of its row a position belongs to, from 1; 0 is padding."""
    positions: Int[Tensor, "R W"]
    """The index within its own sequence, from 0."""

    def map(self, function: Callable[[Tensor], Tensor]) -> "Grid":
        """Apply a function to all three tensors."""
        return type(self)(*map(function, self))

    def to(self, device: torch.device | str) -> "Grid":
        """Copy to a device."""
        return self.map(lambda tensor: send(tensor, device))


def send(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Copy to a device, without waiting for what a GPU does."""
    is_moved = tensor.device.type == "cpu" and torch.device(device).type == "cuda"
    return (tensor.pin_memory() if is_moved else tensor).to(device, non_blocking=True)


class WholeRows(Grid):
    """A grid in which every row is one sequence that fills it.

    Its type says so, not its tensors, which a GPU would have to be asked for: attention then needs
    no mask but the causal one, for which the fastest kernels are made.
    """


def same_segment(
    query_segments: Int[Tensor, "R T"], key_segments: Int[Tensor, "R S"]
) -> Bool[Tensor, "R 1 T S"]:
    """Return a mask that allows each position its own segment (or its partner), and no padding.

    Padding itself may attend anywhere: its output is never read, and with a query that may attend
    to nothing at all some of the fused kernels return garbage, and nan as gradients.
    """
    queries, keys = query_segments[:, None, :, None], key_segments[:, None, None, :]
    return (queries == keys) | (queries == 0)


def not_later(grid: Grid) -> Bool[Tensor, "R 1 T T"]:
    """Return the causal mask: each position its own segment up to itself (§3.2.3)."""
    queries, keys = grid.positions[:, None, :, None], grid.positions[:, None, None, :]
    # Positions of padding are all 0, so that padding may attend to itself here, too.
    return same_segment(grid.segments, grid.segments) & (keys <= queries)


def segment_means(
    x: Float[Tensor, "R T D"], segments: Int[Tensor, "R T"]
) -> Float[Tensor, "R T D"]:
    """Return at every position the mean of its segment; padding gets the mean of padding."""
    index = segments[..., None].expand_as(x)
    width = x.shape[1] + 1  # at most a segment for each position, and padding
    ones = torch.ones_like(segments, dtype=torch.float32)
    sums = ones.new_zeros(len(x), width, x.shape[2]).scatter_add(1, index, x.float())
    counts = ones.new_zeros(len(x), width).scatter_add(1, segments, ones)
    means = sums / counts.clamp(min=1)[..., None]
    return means.gather(1, index).to(x.dtype)


def segment_maxima(
    x: Float[Tensor, "R T D"], segments: Int[Tensor, "R T"]
) -> Float[Tensor, "R T D"]:
    """Return at every position the largest value of its segment, in each coordinate."""
    index = segments[..., None].expand_as(x)
    width = x.shape[1] + 1  # at most a segment for each position, and padding
    start = x.new_full((len(x), width, x.shape[2]), -torch.inf)
    return start.scatter_reduce(1, index, x, "amax").gather(1, index)


class Span(NamedTuple):
    """For every query, the first and the last position of its row that it attends to, inclusive."""

    first: Int[Tensor, "R T"]
    last: Int[Tensor, "R T"]

    def within(self, other: "Span") -> "Span":
        """Return the intersection with another span."""
        return Span(torch.maximum(self.first, other.first), torch.minimum(self.last, other.last))

    def up_to_itself(self) -> "Span":
        """Return the causal part: nothing later than the query itself."""
        return Span(self.first, torch.minimum(self.last, columns_of(self.last).to(self.last.dtype)))


def columns_of(segments: Int[Tensor, "R T"]) -> Int[Tensor, " T"]:
    """Return the column numbers of a row."""
    return torch.arange(segments.shape[-1], device=segments.device)


def own_span(segments: Int[Tensor, "R T"], positions: Int[Tensor, "R T"]) -> Span:
    """Return where every position's own segment begins and ends; padding attends to itself only."""
    columns = columns_of(segments).expand_as(segments)
    is_last = functional.pad(segments.diff(dim=-1) != 0, (0, 1), value=True)
    # The last position of each segment writes its column for all; running minima are slow.
    width = segments.shape[-1]
    names = torch.where(is_last, segments, width + 1)
    ends = segments.new_zeros(len(segments), width + 2).scatter(-1, names, columns)
    is_padding = segments == 0
    return Span(
        columns - positions.masked_fill(is_padding, 0),
        torch.where(is_padding, columns, ends.gather(-1, segments)),
    )


def partner_span(query_segments: Int[Tensor, "R T"], key_segments: Int[Tensor, "R S"]) -> Span:
    """Return where the segment with the query's number begins and ends; padding attends to nothing.

    For grids as they are made for training: segments in ascending order, padding at the end.
    """
    ordered = key_segments.masked_fill(key_segments == 0, torch.iinfo(key_segments.dtype).max)
    segments = query_segments.contiguous()
    first = torch.searchsorted(ordered, segments, out_int32=True)
    return Span(first, torch.searchsorted(ordered, segments, out_int32=True, right=True) - 1)


class Sequences(NamedTuple):
    """Where the N sequences of a grid (R, W) lie.

    A mask keeps attention within a sequence; a recurrence would continue into the next one, so
    it gets every sequence in a row of its own.
    """

    is_token: Bool[Tensor, "R W"]
    numbers: Int[Tensor, " K"]
    """For each token of the grid, the number of its sequence."""
    places: Int[Tensor, " K"]
    """For each token of the grid, its index within its sequence."""
    keys: Int[Tensor, " N"]
    """Row and segment of each sequence as one number; partners have the same."""
    lengths: Int[Tensor, " N"]

    @classmethod
    def of(cls, segments: Int[Tensor, "R W"]) -> "Sequences":
        """Find the sequences; those of one row are consecutive."""
        is_token = segments != 0
        rows = torch.arange(len(segments), device=segments.device)[:, None]
        keys = (rows * 2**20 + segments)[is_token]  # the same on both sides, however wide
        found, numbers, lengths = keys.unique(return_inverse=True, return_counts=True)
        starts = functional.pad(lengths.cumsum(0)[:-1], (1, 0))
        # Row by row and segment by segment is the order of the sequences and of the tokens.
        places = torch.arange(len(keys), device=keys.device) - starts[numbers]
        return cls(is_token, numbers, places, found, lengths)

    @property
    def is_filled(self) -> Bool[Tensor, "N L"]:
        """Return which positions of the rows of `separate` hold a token."""
        longest = int(self.lengths.max()) if len(self.lengths) else 0
        return torch.arange(longest, device=self.lengths.device) < self.lengths[:, None]

    def separate(self, x: Float[Tensor, "R W D"]) -> Float[Tensor, "N L D"]:
        """Return every sequence in a row of its own, padded with zeros."""
        rows = x.new_zeros(*self.is_filled.shape, x.shape[-1])
        return rows.index_put((self.numbers, self.places), x[self.is_token])

    def partners(self, others: "Sequences") -> Int[Tensor, " M"]:
        """Return, for every sequence of the other side, the number of its partner here."""
        return torch.searchsorted(self.keys, others.keys)

    def reassemble(self, x: Float[Tensor, "N L D"]) -> Float[Tensor, "R W D"]:
        """Copy the sequences back into the grid; padding gets zeros."""
        grid = x.new_zeros(*self.is_token.shape, x.shape[-1])
        return grid.index_put((self.is_token,), x[self.numbers, self.places])
