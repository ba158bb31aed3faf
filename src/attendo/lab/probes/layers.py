"""Measurements of layers: time, memory, growth, and what depends on what."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attendo.lab.clock import forget_peak, peak_memory, timed, wait_for
from attendo.lab.report.document import Number

PATIENCE = 10.0
"""Seconds after which nothing is measured once more."""

Work = Callable[[], Tensor]
"""Computes something from something that needs a gradient."""


def seconds_of(work: Work, device: torch.device, n_times: int) -> float:
    """Measure forward and backward passes: the fastest of some, as other work only adds to it."""
    _there_and_back(work)
    seconds: list[float] = []
    while len(seconds) < n_times and sum(seconds) < PATIENCE:
        seconds.append(timed(lambda: _there_and_back(work), device)[1])
    return min(seconds)


def bytes_of(work: Work, device: torch.device) -> int:
    """Measure the memory of a forward and a backward pass.

    On a GPU it is the peak; on a CPU, where it is not counted, what is kept
    on the way there for the way back.
    """
    if device.type != "cuda":
        return _kept(work)
    wait_for(device)
    before = torch.cuda.memory_allocated(device)
    forget_peak(device)
    _there_and_back(work)
    wait_for(device)
    return (peak_memory(device) or 0) - before


def _there_and_back(work: Work) -> None:
    work().square().mean().backward()


def _kept(work: Work) -> int:
    """Add up the tensors that autograd keeps, each memory once."""
    sizes: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    def give(kept: Any) -> Any:
        return kept

    with torch.autograd.graph.saved_tensors_hooks(keep, give):
        result = work()
    del result  # until here nothing was freed, so that no address came twice
    return sum(sizes.values())


class Line(NamedTuple):
    """A straight line through points, and how well it fits."""

    slope: float
    r_squared: float


def straight(x: Sequence[Number], y: Sequence[Number]) -> Line:
    """Fit a line by least squares; R² is 1 for points on the line."""
    across, up = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    slope, offset = np.polyfit(across, up, 1)
    missed = float(((up - slope * across - offset) ** 2).sum())
    spread = float(((up - up.mean()) ** 2).sum())
    return Line(float(slope), 1.0 if spread == 0 else 1 - missed / spread)


def growth(x: Sequence[Number], y: Sequence[Number]) -> Line:
    """Fit y ~ x^slope: 1 for work that doubles with the length, 2 for work that quadruples."""
    return straight(np.log(x).tolist(), np.log(y).tolist())


def decay(x: Sequence[Number], y: Sequence[Number]) -> Line:
    """Fit y ~ exp(slope · x): exp(slope) is the factor that a step of x brings."""
    return straight(x, np.log(y).tolist())


def crossing(x: Sequence[Number], y: Sequence[Number], other: Sequence[Number]) -> float | None:
    """Find from where on y is below the other curve; None if at the end it is not below.

    Between two points both are taken for powers of x, straight lines on logarithmic paper.
    """
    gaps = [math.log(below) - math.log(above) for below, above in zip(y, other, strict=True)]
    if gaps[-1] >= 0:
        return None
    from_here = float(x[0])
    for (left, before), (right, after) in pairwise(zip(x, gaps, strict=True)):
        if before >= 0 > after:
            share = before / (before - after)
            from_here = math.exp(math.log(left) + share * math.log(right / left))
    return from_here


Layer = Callable[[Tensor], Tensor]
"""Vectors of a sequence (R, T, D) in, vectors of the same places out."""


def reach_of(layer: Layer, x: Float[Tensor, "1 T D"]) -> Bool[Tensor, "T T"]:
    """Return which position (row) depends on which (column): where a gradient arrives."""
    x = x.detach().requires_grad_()
    found = layer(x).sum(dim=-1)[0]
    rows = [torch.autograd.grad(one, x, retain_graph=True)[0][0] for one in found]
    return torch.stack(rows).abs().sum(dim=-1) > 0


def reach_of_cell(
    cell: nn.RNNBase, x: Float[Tensor, "1 T D"]
) -> tuple[Bool[Tensor, "T T"], Bool[Tensor, "T T"]]:
    """Return which inputs and which states each state of a recurrence depends on after one step.

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
    """Count the fewest steps from each input (column) to each position (row); 0 without a path."""
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
