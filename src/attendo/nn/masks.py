"""Who may attend to whom: it follows from the grid alone. True = may attend."""

from jaxtyping import Bool, Int
from torch import Tensor

from attendo.nn.grid import Grid


def same_sentence(
    query_segments: Int[Tensor, "R T"], key_segments: Int[Tensor, "R S"]
) -> Bool[Tensor, "R 1 T S"]:
    """Allow each token its own sentence (or its sentence's partner), and nobody the padding."""
    queries, keys = query_segments[:, None, :, None], key_segments[:, None, None, :]
    return (queries == keys) & (keys != 0)


def not_later(grid: Grid) -> Bool[Tensor, "R 1 T T"]:
    """Allow each token its own sentence up to itself: the decoder's look-ahead mask (§3.2.3)."""
    queries, keys = grid.positions[:, None, :, None], grid.positions[:, None, None, :]
    return same_sentence(grid.segments, grid.segments) & (keys <= queries)
