"""The grid: one shape for padded and for packed text."""

from collections.abc import Callable
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

    def map(self, function: Callable[[Tensor], Tensor]) -> "Grid":
        """Do the same to all three."""
        return Grid(*map(function, self))

    def to(self, device: torch.device | str) -> "Grid":
        """Move to a device; from pinned memory the copy does not block."""
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))
