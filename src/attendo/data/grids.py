"""Rows of sequences to grids of tensors."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from attendo.data.corpus import Ragged, ragged
from attendo.data.packing import Rows
from attendo.nn.grid import Grid


def pad_grid(sequences: list[list[int]], pad: int) -> Grid:
    """Return a grid with one sequence per row."""
    rows = [[number] for number in range(len(sequences))]
    return lay_grid(ragged(sequences), ragged(rows), max(map(len, sequences)), pad)


def lay_grid(sequences: Ragged, rows: Rows, width: int, pad: int) -> Grid:
    """Return a grid with sequences one after the other in given rows."""
    chosen = sequences.take(rows.ids)
    is_text = _is_text(chosen, rows, width)
    # A sentence has its place in a row just as a token has its place in a sentence.
    segments = np.repeat(rows.positions() + 1, chosen.lengths())
    return Grid(
        ids=_write(is_text, chosen.ids, pad),
        segments=_write(is_text, segments, 0),
        positions=_write(is_text, chosen.positions(), 0),
    )


def lay_labels(sequences: Ragged, rows: Rows, width: int, ignore: int) -> Int[Tensor, "R W"]:
    """Return a grid of labels at the positions of their sequences, with `ignore` elsewhere."""
    chosen = sequences.take(rows.ids)
    return _write(_is_text(chosen, rows, width), chosen.ids, ignore)


def _is_text(chosen: Ragged, rows: Rows, width: int) -> Bool[np.ndarray, "R W"]:
    """Return which positions hold tokens: row by row, from the left, without gaps."""
    n_tokens = np.diff(chosen.offsets[rows.offsets])
    return np.arange(width) < n_tokens[:, None]


def _write(
    is_text: Bool[np.ndarray, "R W"], values: NDArray[np.integer[Any]], empty: int
) -> Int[Tensor, "R W"]:
    grid: NDArray[np.int64] = np.full(is_text.shape, empty, dtype=np.int64)
    grid[is_text] = values
    return torch.from_numpy(grid)
