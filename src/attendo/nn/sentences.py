"""Sentences out of a grid, one a row, and back again: for what reads word after word.

Rows of a grid may hold several sentences. Attention is kept inside a sentence by a mask; a
recurrence or a convolution would run on into the next one, so it gets each sentence alone.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class Sentences(NamedTuple):
    """Where the N sentences of a grid (R, W) lie."""

    is_token: Bool[Tensor, "R W"]
    numbers: Int[Tensor, " K"]
    """For each token of the grid, the number of its sentence."""
    places: Int[Tensor, " K"]
    """For each token of the grid, its place in its sentence."""
    keys: Int[Tensor, " N"]
    """Row and segment of each sentence as one number: partners have the same."""
    lengths: Int[Tensor, " N"]

    @classmethod
    def of(cls, segments: Int[Tensor, "R W"]) -> "Sentences":
        """Find the sentences; those of one row lie one after the other."""
        is_token = segments != 0
        rows = torch.arange(len(segments), device=segments.device)[:, None]
        keys = (rows * 2**20 + segments)[is_token]  # the same on both sides, however wide
        found, numbers, lengths = keys.unique(return_inverse=True, return_counts=True)
        starts = torch.nn.functional.pad(lengths.cumsum(0)[:-1], (1, 0))
        # Row by row and segment by segment is the order of the sentences and of the tokens.
        places = torch.arange(len(keys), device=keys.device) - starts[numbers]
        return cls(is_token, numbers, places, found, lengths)

    @property
    def is_filled(self) -> Bool[Tensor, "N L"]:
        """Tell which places of the rows that `apart` makes hold a token."""
        longest = int(self.lengths.max()) if len(self.lengths) else 0
        return torch.arange(longest, device=self.lengths.device) < self.lengths[:, None]

    def apart(self, x: Float[Tensor, "R W D"]) -> Float[Tensor, "N L D"]:
        """Give every sentence a row of its own, filled up with zeros."""
        rows = x.new_zeros(*self.is_filled.shape, x.shape[-1])
        return rows.index_put((self.numbers, self.places), x[self.is_token])

    def partners(self, others: "Sentences") -> Int[Tensor, " M"]:
        """Find, for every sentence of the other side, the number of its partner here."""
        return torch.searchsorted(self.keys, others.keys)

    def together(self, x: Float[Tensor, "N L D"]) -> Float[Tensor, "R W D"]:
        """Put them back where they were; padding gets zeros."""
        grid = x.new_zeros(*self.is_token.shape, x.shape[-1])
        return grid.index_put((self.is_token,), x[self.numbers, self.places])
