"""The grid: one shape for padded and for packed text."""

from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor


class Grid(NamedTuple):
    """Token ids in rows, with two companions that say what stands where.

    A row may hold several sentences one after the other. A padded batch is the special case of one
    sentence a row. Segment `s` of a source row is the translation partner of segment `s` of the
    same target row.
    """

    ids: Int[Tensor, "R W"]
    segments: Int[Tensor, "R W"]
    """Which sentence of its row a token belongs to, from 1; 0 is padding."""
    positions: Int[Tensor, "R W"]
    """The token's place in its own sentence, from 0."""

    def to(self, device: torch.device | str) -> "Grid":
        """Move to a device; from pinned memory the copy does not block."""
        return Grid(*(tensor.to(device, non_blocking=True) for tensor in self))

    def pin_memory(self) -> "Grid":
        """Copy to memory that a GPU can fetch from by itself."""
        return Grid(*(tensor.pin_memory() for tensor in self))

    def repeat(self, n: int) -> "Grid":
        """Put the same rows below each other n times."""
        return Grid(*(tensor.repeat(n, 1) for tensor in self)) if n > 1 else self

    def clone(self) -> "Grid":
        """Copy to memory of its own."""
        return Grid(*(tensor.clone() for tensor in self))
