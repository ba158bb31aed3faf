"""Time and memory of a piece of work, forwards and backwards."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attendo.bench.clock import forget_peak, peak_memory, timed, wait_for

PATIENCE = 10.0
"""Seconds after which nothing is measured once more."""

Work = Callable[[], Tensor]
"""Computes something from something that needs a gradient."""


def seconds_of(work: Work, device: torch.device, n_times: int) -> float:
    """Time a way there and back: the fastest of some, for other work can only add to it."""
    _there_and_back(work)
    seconds: list[float] = []
    while len(seconds) < n_times and sum(seconds) < PATIENCE:
        seconds.append(timed(lambda: _there_and_back(work), device)[1])
    return min(seconds)


def bytes_of(work: Work, device: torch.device) -> int:
    """Measure the memory of a way there and back.

    On a GPU it is the most that was taken at a time; on a CPU, where nobody counts, what is kept
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
