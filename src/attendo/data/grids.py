"""Rows of sequences to grids of tensors."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attendo.data.corpus import Ragged, ragged
from attendo.data.packing import Row
from attendo.nn.grid import Grid


def pad_grid(sequences: list[list[int]], pad: int) -> Grid:
    """Lay one sequence in each row."""
    rows = [[number] for number in range(len(sequences))]
    return fill_grid(ragged(sequences), rows, max(map(len, sequences)), pad)


def fill_grid(sequences: Ragged, rows: list[Row], width: int, pad: int) -> Grid:
    """Lay sequences into rows, one after the other."""
    cells = _Cells(sequences, rows)
    shape = (len(rows), width)
    return Grid(
        ids=_write(shape, cells, cells.ids, pad),
        segments=_write(shape, cells, cells.segments, 0),
        positions=_write(shape, cells, cells.positions, 0),
    )


def fill_labels(sequences: Ragged, rows: list[Row], width: int, ignore: int) -> torch.Tensor:
    """Lay labels into the same places as their sentences, and `ignore` where nothing is."""
    cells = _Cells(sequences, rows)
    return _write((len(rows), width), cells, cells.ids, ignore)


class _Cells:
    """For every token of the rows: what it is and where it goes."""

    def __init__(self, sequences: Ragged, rows: list[Row]) -> None:
        order = np.array([place for row in rows for place in row], dtype=np.int64)
        chosen = sequences.take(order)
        lengths, starts = chosen.lengths(), chosen.offsets[:-1]
        n_in_row = np.array([len(row) for row in rows], dtype=np.int64)
        first = np.repeat(np.cumsum(n_in_row) - n_in_row, n_in_row)  # of each sequence's row
        self.ids = chosen.ids
        self.positions = np.arange(len(chosen.ids)) - np.repeat(starts, lengths)
        self.segments = np.repeat(np.arange(len(order)) - first + 1, lengths)
        self.rows = np.repeat(np.repeat(np.arange(len(rows)), n_in_row), lengths)
        self.columns = self.positions + np.repeat(starts - starts[first], lengths)


def _write(
    shape: tuple[int, int], cells: _Cells, values: NDArray[np.integer[Any]], empty: int
) -> torch.Tensor:
    grid: NDArray[np.int64] = np.full(shape, empty, dtype=np.int64)
    grid[cells.rows, cells.columns] = values
    return torch.from_numpy(grid)
