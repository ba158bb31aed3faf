"""Which sequences share a row, and grids of such rows.

Packing is by largest fit, or like lengths together for padding; only lengths matter for it. A
record may have several columns (source and target); all must fit into the same row.
"""

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from numpy.typing import NDArray
from torch import Tensor

from attendo.data.corpus import Numbers, Ragged, offsets_of, ragged
from attendo.nn.grid import Grid

Rows = Ragged
"""The records of each row, row after row: indices into the arrays of lengths."""

OPEN = 16
"""One row in so many is open at a time: with fewer open, rows get fuller but it takes longer."""


def pack(lengths: Sequence[Numbers], width: int) -> Rows:
    """Assign sequences to rows of `width` positions; rows of few long sequences come first.

    Args:
        lengths: For each column, the lengths of the records.
        width: Positions of a row, in every column.

    An open row is given the largest record that fits into it, again and again. When none does, the
    row is closed and a new one opened. All open rows are served together, in rounds of a few array
    operations, and more records do not mean more rounds.
    """
    if not len(lengths[0]):
        return Rows(lengths[0], offsets_of(lengths[0]))
    lengths = _different(lengths)
    # Records of the same lengths are of one kind: only how many of a kind are left matters.
    shape = (width + 1,) * len(lengths)
    keys, kind_of_record, counts = np.unique(
        np.ravel_multi_index(tuple(lengths), shape), return_inverse=True, return_counts=True
    )
    packer = _Packer(np.stack(np.unravel_index(keys, shape)), counts, width)
    kinds, rows = np.concatenate(list(packer.rounds()), axis=1)
    # The first record of a kind goes where the first of that kind was placed, and so on.
    records = np.argsort(kind_of_record, kind="stable")
    rows = rows[np.argsort(kinds, kind="stable")]
    n_records = np.bincount(rows)
    return Rows(records[np.argsort(rows, kind="stable")], offsets_of(n_records[n_records > 0]))


def _different(lengths: Sequence[Numbers]) -> list[Numbers]:
    """Return the columns without those that are as long as an earlier one in every record.

    What fits there fits here, and each column more makes the tables of the packer much larger.
    """
    found: list[Numbers] = []
    for column in lengths:
        if not any(np.array_equal(column, other) for other in found):
            found.append(column)
    return found


class _Packer:
    """Rows that are being filled, and the records that wait in a line, the largest first."""

    def __init__(
        self, sizes: Int[np.ndarray, "C kinds"], counts: Int[np.ndarray, " kinds"], width: int
    ) -> None:
        self.sizes, self.width = sizes, width
        self.left = counts.copy()
        """Records of each kind that are in no row yet."""
        self.lines = [np.lexsort((-column, -sizes.sum(axis=0))) for column in sizes]
        """Kinds, the largest first; of equally large ones that with most in this column first."""
        self.rows = np.zeros(0, np.int64)
        """Numbers of the open rows."""
        self.room = np.zeros((len(sizes), 0), np.int64)
        """Free positions of the open rows, in every column."""
        self.n_rows = 0
        self.most_open = -(-self._rows_needed() // OPEN)

    def rounds(self) -> Iterator[Int[np.ndarray, "2 placed"]]:
        """Assign all records; yield the kinds that are assigned in each round, with their rows."""
        for column in cycle(range(len(self.sizes))):
            if not self.left.any():
                return
            self._open_rows()
            yield self._serve(column)

    def _rows_needed(self) -> int:
        """Count the rows for what is left when the open ones have taken what they can."""
        tokens = self.sizes @ self.left - self.room.sum(axis=1)
        return -(-int(tokens.max()) // self.width)

    def _open_rows(self) -> None:
        n_new = max(0, min(self._rows_needed(), self.most_open - len(self.rows)))
        self.rows = np.append(self.rows, self.n_rows + np.arange(n_new))
        self.room = np.append(self.room, np.full((len(self.sizes), n_new), self.width), axis=1)
        self.n_rows += n_new

    def _serve(self, column: int) -> Int[np.ndarray, "2 placed"]:
        """Assign a record to every open row that has most room in this column."""
        line = self.lines[column]
        line = line[self.left[line] > 0]
        sizes, ends = self.sizes[:, line], np.cumsum(self.left[line])
        wishes = _first_fitting(sizes, ends, self.room)
        is_open = wishes < ends[-1]
        self.rows, self.room, wishes = self.rows[is_open], self.room[:, is_open], wishes[is_open]

        turn = np.flatnonzero(self.room[column] >= self.room.max(axis=0))
        turn = turn[np.argsort(wishes[turn], kind="stable")]
        places = _next_free(wishes[turn])
        places = places[places < ends[-1]]
        found, turn = np.searchsorted(ends, places, side="right"), turn[: len(places)]
        # A record further down the line is no larger than the one wished, yet may not fit.
        fits = (sizes[:, found] <= self.room[:, turn]).all(axis=0)
        found, turn = found[fits], turn[fits]
        self.room[:, turn] -= sizes[:, found]
        kinds = line[found]
        self.left -= np.bincount(kinds, minlength=len(self.left))
        return np.stack((kinds, self.rows[turn]))


def _first_fitting(
    sizes: Int[np.ndarray, "C kinds"], ends: Int[np.ndarray, " kinds"], room: Int[np.ndarray, "C R"]
) -> Int[np.ndarray, " R"]:
    """Find for every row the index of the first record in the queue that fits into it.

    Where none fits, that is after the end. `ends` has the end of each kind in the queue.
    """
    most = int(sizes.max())  # room for more makes no difference
    table = np.full((most + 1,) * len(sizes), ends[-1])
    table[tuple(sizes)] = np.append(0, ends[:-1])
    # What fits into less room fits into more.
    for axis in range(len(sizes)):
        np.minimum.accumulate(table, axis=axis, out=table)
    wishes: Numbers = table[tuple(np.minimum(room, most))]
    return wishes


def _next_free(wishes: Numbers) -> Numbers:
    """Return the first free index at or after each wanted one; wanted indices are sorted."""
    numbers = np.arange(len(wishes))
    return np.maximum.accumulate(wishes - numbers) + numbers


def filled(rows: Rows, lengths: Numbers) -> Numbers:
    """Count the tokens of each row."""
    return np.diff(offsets_of(lengths[rows.ids])[rows.offsets])


def group_by_length(lengths: Sequence[Numbers], budget: int) -> list[Rows]:
    """Group records of similar length into batches, within a budget of positions."""
    longest = np.max(lengths, axis=0)
    order = np.argsort(longest, kind="stable")
    batches: list[Rows] = []
    while len(order):
        # Lengths rise, so the last member is the width of the batch.
        few = longest[order[: budget // max(1, longest[order[0]])]]
        n_places = few * np.arange(1, len(few) + 1)
        n_rows = max(1, int(np.searchsorted(n_places, budget, side="right")))
        batches.append(Rows(order[:n_rows], np.arange(n_rows + 1)))
        order = order[n_rows:]
    return batches


def pad_grid(sequences: Sequence[list[int] | NDArray[Any]], pad: int) -> Grid:
    """Return a grid with one sequence of ids or vectors per row."""
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
    is_text: Bool[np.ndarray, "R W"], values: Shaped[np.ndarray, "N ..."], empty: int
) -> Shaped[Tensor, "R W ..."]:
    dtype = np.int64 if values.ndim == 1 else values.dtype
    grid: NDArray[Any] = np.full(is_text.shape + values.shape[1:], empty, dtype=dtype)
    grid[is_text] = values
    return torch.from_numpy(grid)
