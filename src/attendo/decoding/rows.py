"""Rows of tensors in a search: the state of a decoder between two steps, and the highest scores."""

from typing import Any, TypeVar, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

State = TypeVar("State")
"""Any nesting of tuples, NamedTuples and None with tensors at its leaves, one row a hypothesis.

Where several hypotheses of a sentence grow side by side, fields that a NamedTuple names in
`shared` have only one row for all of them, since they never change: the encoded source.
"""


def reorder(state: State, index: Int[Tensor, " R"]) -> State:
    """Select rows of every tensor in a state; a row may occur never or several times."""
    return cast(State, _take(state, index, index))


def repeat(state: State, rows: int, times: int, device: torch.device) -> State:
    """Repeat each row `times` times: row r becomes rows r * times to r * times + times - 1."""
    return reorder(state, torch.arange(rows, device=device).repeat_interleave(times))


def regroup(state: State, index: Int[Tensor, " R"], sentences: Int[Tensor, " B"] | None) -> State:
    """Select hypotheses, and sentences of what hypotheses share; None selects all."""
    return cast(State, _take(state, index, sentences))


def _take(node: Any, index: Tensor | None, shared: Tensor | None) -> Any:
    if node is None or index is None:
        return node
    if isinstance(node, Tensor):
        return node.index_select(0, index)
    if not isinstance(node, tuple):
        raise TypeError(
            f"a decoder state holds a {type(node).__name__}; "
            "build states from tensors, None, tuples and NamedTuples"
        )
    if not hasattr(node, "_fields"):
        return tuple(_take(part, index, shared) for part in node)
    names = getattr(node, "shared", ())
    return type(node)(
        *(
            _take(part, shared if name in names else index, shared)
            for name, part in zip(node._fields, node, strict=True)
        )
    )


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
