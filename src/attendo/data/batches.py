"""From a corpus to batches of grids: an endless random sequence whose position can be saved.

The order of the records, their segmentation and their rows follow from the seed and the epoch
alone, so a position is two numbers, and a batch can be made again from them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from attendo.data.corpus import Corpus, Numbers, Ragged
from attendo.data.packing import Rows, filled, group_by_length, lay_grid, lay_labels, pack
from attendo.errors import DataError
from attendo.nn.grid import Grid
from attendo.specials import IGNORE

FULL = 0.9
"""A row is good enough to be used when so much of it, in one column, is filled."""


class Position(NamedTuple):
    """A position in the sequence of batches."""

    epoch: int = 0
    batch: int = 0


class Batch(NamedTuple):
    """Records in the form that the model and the loss need."""

    inputs: Mapping[str, Grid]
    """What the model reads, by name."""
    labels: Int[Tensor, "R T"]
    """What it is to predict; IGNORE where there is nothing to predict."""
    n_labels: int
    records: tuple[int, ...]
    """Numbers of the records in the corpus, for messages."""

    def tensors(self) -> list[Tensor]:
        """Return everything that lives on a device."""
        return [tensor for grid in self.inputs.values() for tensor in grid] + [self.labels]

    def map(self, function: Callable[[Tensor], Tensor]) -> "Batch":
        """Apply a function to all tensors."""
        return self._replace(
            inputs={name: grid.map(function) for name, grid in self.inputs.items()},
            labels=function(self.labels),
        )

    def pin_memory(self) -> "Batch":
        """Copy to memory that a GPU can fetch from by itself."""
        return self.map(Tensor.pin_memory)

    def to(self, device: torch.device | str) -> "Batch":
        """Move to a device; from pinned memory the copy does not block."""
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))

    def split(self, n_parts: int) -> list["Batch"]:
        """Split the rows into parts for gradient accumulation; `n_labels` does not change."""
        n_rows = self.labels.shape[0]
        edges = [n_rows * part // n_parts for part in range(n_parts + 1)]
        return [
            self.map(itemgetter(slice(start, end))) for start, end in pairwise(edges) if end > start
        ]


class Shaped(NamedTuple):
    """Sequences with their special tokens, as they go into grids."""

    inputs: dict[str, Ragged]
    labels: Ragged
    """As long as the input whose positions they label."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows are filled and how many make a batch."""

    width: int
    """Positions of a row: the longest sequence, with its special tokens, that fits."""
    budget: int
    """Positions of a batch."""
    is_packed: bool
    shape: Callable[[Mapping[str, Ragged], np.random.Generator], Shaped]
    """How columns of the corpus become inputs and labels, perhaps at random."""
    pads: Mapping[str, int]
    """Return the padding id of each input."""

    @property
    def n_rows(self) -> int:
        """Return the number of rows of a packed batch."""
        return max(1, self.budget // self.width)

    @property
    def window(self) -> int:
        """Return how many records are packed together: many, for full rows."""
        return max(16_384, self.budget // 4)


def stream(
    corpus: Corpus, layout: Layout, seed: int, position: Position
) -> Iterator[tuple[Position, Batch]]:
    """Yield batches without end, each with the position that follows it."""
    epoch, done = position
    while True:
        number = 0
        for number, (window, rows) in enumerate(_epoch(corpus, layout, seed, epoch), start=1):
            if number > done:
                yield Position(epoch, number), _fill(window, rows, layout)
        if not number:
            raise DataError(
                f"none of the {corpus.size} training records fits into data.max_length = "
                f"{layout.width}; raise it"
            )
        epoch, done = epoch + 1, 0


def once(corpus: Corpus, layout: Layout) -> Iterator[Batch]:
    """Yield every record of a corpus once, one a row, like lengths together."""
    padded = replace(layout, is_packed=False)
    for window, rows in _padded_epoch(corpus, padded, np.random.default_rng(0)):
        yield _fill(window, rows, padded)


class _Window(NamedTuple):
    """A few thousand records in memory."""

    numbers: Numbers
    shaped: Shaped

    def lengths(self) -> list[Numbers]:
        """Return the lengths of each input."""
        return [column.lengths() for column in self.shaped.inputs.values()]


def _open(corpus: Corpus, layout: Layout, numbers: Numbers, chance: np.random.Generator) -> _Window:
    """Read records from the corpus and shape them."""
    columns = {name: column.take(numbers, chance) for name, column in corpus.columns.items()}
    shaped = layout.shape(columns, chance)
    # A record that has always fitted may, with subword regularisation, be cut too finely to fit.
    longest = np.max([column.lengths() for column in shaped.inputs.values()], axis=0)
    fits = np.flatnonzero(longest <= layout.width)
    if len(fits) < len(numbers):
        numbers = numbers[fits]
        shaped = layout.shape({name: column.take(fits) for name, column in columns.items()}, chance)
    return _Window(numbers, shaped)


Planned = Iterator[tuple[_Window, Rows]]
"""Batches before they are filled: which records of a window make which rows."""


def _epoch(corpus: Corpus, layout: Layout, seed: int, epoch: int) -> Planned:
    chance = np.random.default_rng((seed, epoch))
    plan = _packed_epoch if layout.is_packed else _padded_epoch
    return plan(corpus, layout, chance)


def _padded_epoch(corpus: Corpus, layout: Layout, chance: np.random.Generator) -> Planned:
    order = chance.permutation(corpus.size)
    for start in range(0, corpus.size, layout.window):
        window = _open(corpus, layout, order[start : start + layout.window], chance)
        batches = group_by_length(window.lengths(), layout.budget)
        for number in chance.permutation(len(batches)):
            yield window, batches[number]


def _packed_epoch(corpus: Corpus, layout: Layout, chance: np.random.Generator) -> Planned:
    """Pack window by window; incomplete rows and batches are kept for the next window."""
    order = chance.permutation(corpus.size)
    waiting = order[:0]
    for start in range(0, corpus.size, layout.window):
        is_last = start + layout.window >= corpus.size
        numbers = np.concatenate((waiting, order[start : start + layout.window]))
        window = _open(corpus, layout, numbers, chance)
        rows = _pack(window, layout, is_last)
        whole, rest = _deal(len(rows.offsets) - 1, layout.n_rows, chance)
        for batch in whole:
            yield window, rows.take(batch)
        if is_last and len(rest):
            yield window, rows.take(rest)
        waiting = np.delete(window.numbers, rows.take(whole.ravel()).ids)


def _pack(window: _Window, layout: Layout, is_last: bool) -> Rows:
    """Pack a window into rows; unless it is the last one, only those that are nearly full."""
    lengths = window.lengths()
    rows = pack(lengths, layout.width)
    n_tokens = np.max([filled(rows, column) for column in lengths], axis=0)
    full = rows.take(np.flatnonzero(n_tokens >= FULL * layout.width))
    # Where most sequences find no partner, those that wait would only become more and more.
    return rows if is_last or 2 * len(full.ids) < len(rows.ids) else full


def _deal(
    n: int, n_rows: int, chance: np.random.Generator
) -> tuple[Int[np.ndarray, "batches rows"], Int[np.ndarray, " rest"]]:
    """Choose which rows make which batch; those that make no whole batch are the rest.

    Rows of few long sequences come before rows of many short ones. Every batch gets one of the
    first rows, one of the next and so on, so that long and short are mixed alike in all batches;
    and in no order, so that they are mixed in the parts of a batch too.
    """
    n_batches = n // n_rows
    chosen, rest = np.split(chance.permutation(n), [n_batches * n_rows])
    dealt = chance.permuted(np.sort(chosen).reshape(n_rows, n_batches), axis=1)
    return chance.permuted(dealt, axis=0).T, rest


def _fill(window: _Window, rows: Rows, layout: Layout) -> Batch:
    """Copy the planned rows into grids; all packed batches have the same shape."""
    inputs, labels = window.shaped
    if layout.is_packed:
        n_missing = layout.n_rows + 1 - len(rows.offsets)
        rows = Rows(rows.ids, np.pad(rows.offsets, (0, n_missing), mode="edge"))

    def width(column: Ragged) -> int:
        return layout.width if layout.is_packed else int(column.lengths()[rows.ids].max())

    grids = {
        name: lay_grid(column, rows, width(column), layout.pads[name])
        for name, column in inputs.items()
    }
    expected = lay_labels(labels, rows, width(labels), IGNORE)
    n_labels = int((expected != IGNORE).sum())
    return Batch(grids, expected, n_labels, tuple(window.numbers[rows.ids].tolist()))
