"""A training step as one launch: recorded once as a CUDA graph, then played again and again.

A step of a small model is hundreds of kernels of a few microseconds each; started one by one from
Python they would leave the GPU idle most of the time.
"""

from collections import deque
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

RECORDING = Lock()
"""Held while a graph is recorded, of which there may be one at a time in a process."""
REHEARSALS = 3
"""Steps done the ordinary way first: they compile, and make the optimizers' state."""


B = TypeVar("B", bound="Batch")


class Batch(Protocol):
    """What a step reads: a collection of tensors."""

    def tensors(self) -> Iterable[Tensor]:
        """Return the tensors, always in the same order."""
        ...

    def map(self: B, function: Callable[[Tensor], Tensor]) -> B:
        """Return the same collection with a function applied to all tensors."""
        ...


class Graph(Generic[B]):
    """Does a step on batches of one shape; batches of other shapes are done the ordinary way.

    Padded batches, whose shapes change, are all done so: nothing is recorded unless the same shape
    comes several times in a row.
    """

    def __init__(self, step: Callable[[B], Tensor]) -> None:
        self.step = step
        self.n_rehearsed = 0
        self.rehearsed: list[torch.Size] = []
        """The shapes of the last rehearsal; all of them must be alike."""
        self.stream = torch.cuda.Stream()
        self.recording: torch.cuda.CUDAGraph | None = None
        self.batch: B
        """What the recording reads; every batch is copied there."""
        self.total: Tensor
        """What it writes."""

    def __call__(self, batch: B) -> Tensor:
        """Run a step."""
        shapes = [tensor.shape for tensor in batch.tensors()]
        if self.recording is None and (shapes != self.rehearsed or self.n_rehearsed < REHEARSALS):
            return self._rehearse(batch, shapes)
        if shapes != self.rehearsed:
            return self.step(batch)
        if self.recording is None:
            self._record(batch)
        for place, tensor in zip(self.batch.tensors(), batch.tensors(), strict=True):
            place.copy_(tensor)
        assert self.recording is not None
        self.recording.replay()
        return self.total.clone()

    def _rehearse(self, batch: B, shapes: list[torch.Size]) -> Tensor:
        self.n_rehearsed = self.n_rehearsed + 1 if shapes == self.rehearsed else 1
        self.rehearsed = shapes
        here = torch.cuda.current_stream()
        self.stream.wait_stream(here)
        with torch.cuda.stream(self.stream):
            total = self.step(batch)
        here.wait_stream(self.stream)
        return total

    def _record(self, batch: B) -> None:
        """Record a step without doing it."""
        self.batch = batch.map(torch.clone)
        self.recording = torch.cuda.CUDAGraph()
        # Only this thread records; another one prepares batches at the same time.
        with (
            RECORDING,
            torch.cuda.graph(self.recording, stream=self.stream, capture_error_mode="thread_local"),
        ):
            self.total = self.step(self.batch)


class Pace:
    """Keeps the program at most two steps ahead of a GPU.

    Farther ahead it would wait for batches that the GPU does not need yet, and that time would look
    like a GPU's that waits.
    """

    def __init__(self, device: torch.device) -> None:
        self.is_gpu = device.type == "cuda"
        self.ends: deque[torch.cuda.Event] = deque()

    def keep(self) -> None:
        """Record the end of a step, and wait for that of the last but one."""
        if not self.is_gpu:
            return
        self.ends.append(torch.cuda.Event())
        self.ends[-1].record()
        if len(self.ends) > 2:
            self.ends.popleft().synchronize()
