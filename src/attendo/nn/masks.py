"""Who may attend to whom: it follows from the grid alone. True = may attend."""

from jaxtyping import Bool, Int
from torch import Tensor

from attendo.nn.grid import Grid


def same_sentence(
    query_segments: Int[Tensor, "R T"], key_segments: Int[Tensor, "R S"]
) -> Bool[Tensor, "R 1 T S"]:
    """Allow each token its own sentence (or its sentence's partner), and no sentence the padding.

    Padding itself may look anywhere: nobody reads what it says, and with a query that may attend to
    nothing at all some of the fused kernels return rubbish, and nan as gradients.
    """
    queries, keys = query_segments[:, None, :, None], key_segments[:, None, None, :]
    return (queries == keys) | (queries == 0)


def not_later(grid: Grid) -> Bool[Tensor, "R 1 T T"]:
    """Allow each token its own sentence up to itself: the decoder's look-ahead mask (§3.2.3)."""
    queries, keys = grid.positions[:, None, :, None], grid.positions[:, None, None, :]
    # Positions of padding are all 0, so that it may look at itself here, too.
    return same_sentence(grid.segments, grid.segments) & (keys <= queries)
