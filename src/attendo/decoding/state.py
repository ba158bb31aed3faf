"""The decoder's memory between two steps, seen from outside: a tree of batch-first tensors."""

from typing import Any, TypeVar, cast

import torch
from jaxtyping import Int
from torch import Tensor

State = TypeVar("State")
"""Any nesting of tuples, NamedTuples and None with tensors at its leaves, one row a hypothesis."""


def reorder(state: State, index: Int[Tensor, " R"]) -> State:
    """Take the given rows of every tensor in a state, some of them perhaps never or twice."""
    return cast(State, _take(state, index))


def repeat(state: State, rows: int, times: int, device: torch.device) -> State:
    """Put `times` copies of each of the rows side by side: row r becomes rows r * times and on."""
    return reorder(state, torch.arange(rows, device=device).repeat_interleave(times))


def _take(node: Any, index: Tensor) -> Any:
    if node is None:
        return None
    if isinstance(node, Tensor):
        return node.index_select(0, index)
    if isinstance(node, tuple):
        parts = (_take(part, index) for part in node)
        # A NamedTuple takes its fields one by one, a tuple takes them all at once.
        return type(node)(*parts) if hasattr(node, "_fields") else tuple(parts)
    raise TypeError(
        f"a decoder state holds a {type(node).__name__}; "
        "build states from tensors, None, tuples and NamedTuples"
    )
