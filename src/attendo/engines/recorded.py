"""The encoder of a model whose parameters do not change, recorded on a GPU as it is used.

Run from Python, an encoder is hundreds of small kernels, and starting them takes several times as
long as they do.
"""

from collections import Counter
from threading import Lock
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional

from attendo.decoding.rows import reorder
from attendo.models.base import Seq2Seq
from attendo.nn.fast.graph import RECORDING
from attendo.nn.grid import Grid, send

UNIT = 16
"""Widths are rounded up to a multiple of this; the number of rows, to a power of two."""
LARGEST = 65_536
"""Most positions of a shape that is recorded; larger ones have fewer launches for each position."""
KEPT = 8
"""Most recordings, since each keeps what it writes."""
REHEARSALS = 2
"""How often a shape is run from Python before it is recorded."""


class _Recording(NamedTuple):
    graph: torch.cuda.CUDAGraph
    grid: Grid
    """What it reads."""
    state: Any
    """What it writes."""


class RecordedStart:
    """From sources to the state before the first token, as `Seq2Seq.encode` and `start` do."""

    def __init__(self, model: Seq2Seq, device: torch.device) -> None:
        self.model = model
        self.device = device
        self.n_uses: Counter[tuple[int, int]] = Counter()
        self.recordings: dict[tuple[int, int], _Recording] = {}
        self.memory = torch.cuda.graph_pool_handle()
        """All recordings work in the same memory, one at a time."""
        self.lock = Lock()

    @torch.inference_mode()
    def __call__(self, grid: Grid) -> Any:
        """Encode a grid that is still on the CPU."""
        padded = grid.map(_pad)
        rows, width = padded.ids.shape
        with self.lock:
            self.n_uses[rows, width] += 1
            if rows * width <= LARGEST and self.n_uses[rows, width] > REHEARSALS:
                return self._replay((rows, width), padded, len(grid.ids))
        return self._start(grid.to(self.device))

    def _replay(self, shape: tuple[int, int], grid: Grid, n_rows: int) -> Any:
        recording = self.recordings.pop(shape, None) or self._record(grid.to(self.device))
        self.recordings[shape] = recording  # the last one now
        if len(self.recordings) > KEPT:
            oldest = next(iter(self.recordings))
            del self.recordings[oldest], self.n_uses[oldest]
        for tensor, given in zip(recording.grid, grid, strict=True):
            tensor.copy_(send(given, self.device))
        recording.graph.replay()
        # A copy, since the next replay changes what this one has written.
        return reorder(recording.state, torch.arange(n_rows, device=self.device))

    def _start(self, grid: Grid) -> Any:
        return self.model.start(self.model.encode(grid))

    def _record(self, grid: Grid) -> _Recording:
        graph = torch.cuda.CUDAGraph()
        with (
            RECORDING,
            torch.cuda.graph(graph, pool=self.memory, capture_error_mode="thread_local"),
        ):
            state = self._start(grid)
        return _Recording(graph, grid, state)


def _pad(tensor: Int[Tensor, "R W"]) -> Int[Tensor, "P V"]:
    """Fill up with zeros, which are padding among segments."""
    n_rows, width = tensor.shape
    more = (1 << (n_rows - 1).bit_length()) - n_rows
    return functional.pad(tensor, (0, -width % UNIT, 0, more))
