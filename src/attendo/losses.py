"""Losses: logits and labels to a sum and a count.

Means are taken once, at the end, over all devices and accumulation steps; so a loss never divides.
"""

from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from attendo.specials import IGNORE


class Loss(NamedTuple):
    """A loss that can be added up."""

    total: Float[Tensor, ""]
    n_labels: Int[Tensor, ""]


def cross_entropy(
    logits: Float[Tensor, "R T V"], labels: Int[Tensor, "R T"], smoothing: float = 0.0
) -> Loss:
    """Cross entropy with label smoothing (§5.4) over all places that have a label."""
    total = functional.cross_entropy(
        logits.flatten(0, 1).float(),
        labels.flatten().long(),
        ignore_index=IGNORE,
        label_smoothing=smoothing,
        reduction="sum",
    )
    return Loss(total, (labels != IGNORE).sum())
