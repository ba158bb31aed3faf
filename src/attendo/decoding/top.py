"""The highest scores, the same ones on every device and in every batch."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def top(
    scores: Float[Tensor, "R C"], count: int
) -> tuple[Float[Tensor, "R K"], Int[Tensor, "R K"]]:
    """Return the `count` highest scores of each row and their places, best first, ties by place.

    `torch.topk` promises neither which of several equal scores it takes nor in which order, and
    logits in bfloat16 are often equal. Scores of minus infinity are taken as they come.
    """
    places = scores.topk(count, dim=1).indices
    lowest = scores.gather(1, places).amin(dim=1, keepdim=True)
    # Where equal scores lie on both sides of the limit, topk may have chosen the wrong ones.
    is_torn = ((scores >= lowest).sum(dim=1) > count) & (lowest[:, 0] > -torch.inf)
    torn = is_torn.nonzero().squeeze(1)
    if len(torn):
        by_place = scores[torn].argsort(dim=1, descending=True, stable=True)
        places[torn] = by_place[:, :count]
    places = places.sort(dim=1).values
    values, order = scores.gather(1, places).sort(dim=1, descending=True, stable=True)
    return values, places.gather(1, order)
