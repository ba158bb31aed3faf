"""What depends on what inside a layer: from gradients, and from the graph of its operations."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

Layer = Callable[[Tensor], Tensor]
"""Vectors of a sequence (R, T, D) in, vectors of the same places out."""


def reach_of(layer: Layer, x: Float[Tensor, "1 T D"]) -> Bool[Tensor, "T T"]:
    """Tell which place (row) depends on which (column): where a gradient arrives."""
    x = x.detach().requires_grad_()
    found = layer(x).sum(dim=-1)[0]
    rows = [torch.autograd.grad(one, x, retain_graph=True)[0][0] for one in found]
    return torch.stack(rows).abs().sum(dim=-1) > 0


def reach_of_cell(
    cell: nn.RNNBase, x: Float[Tensor, "1 T D"]
) -> tuple[Bool[Tensor, "T T"], Bool[Tensor, "T T"]]:
    """Tell for one step of a recurrence what each state depends on: which inputs, which states.

    Every place is computed by one call of the cell, from its input and from the state before it,
    which is taken as given.
    """
    with torch.no_grad():
        states = cell(x)[0]
    before = states.roll(1, dims=1).index_fill(1, torch.tensor([0]), 0.0)

    def step(inputs: Tensor, given: Tensor) -> Tensor:
        states: Tensor = cell(inputs[0][:, None], given)[0]
        return states.transpose(0, 1)

    inputs = reach_of(lambda x: step(x, before), x)
    # What place t is given is the state of place t - 1.
    given = reach_of(lambda before: step(x, before), before)
    return inputs, given.roll(-1, dims=1).index_fill(1, torch.tensor([x.shape[1] - 1]), False)


def path_lengths(first: Bool[Tensor, "T T"], then: Bool[Tensor, "T T"]) -> list[list[int]]:
    """Count the fewest steps from each input (column) to each place (row); 0 if there is no way."""
    lengths = torch.zeros_like(first, dtype=torch.long)
    reached, n_steps = first, 1
    while True:
        is_new = reached & (lengths == 0)
        if not is_new.any():
            return lengths.tolist()
        lengths[is_new] = n_steps
        reached, n_steps = (then.double() @ reached.double()) > 0, n_steps + 1


def longest_chain(result: Tensor) -> int:
    """Count the operations that had to wait for one another: the depth of autograd's graph."""
    assert result.grad_fn is not None
    depths: dict[Any, int] = {}
    waiting: list[Any] = [result.grad_fn]
    while waiting:  # no recursion: a chain may be thousands long
        node = waiting[-1]
        inner = [before for before, _ in node.next_functions if before is not None]
        if missing := [before for before in inner if before not in depths]:
            waiting += missing
            continue
        depths[node] = 1 + max((depths[before] for before in inner), default=0)
        waiting.pop()
    return depths[result.grad_fn]
