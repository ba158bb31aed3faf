"""From a corpus to batches of grids: an endless random sequence whose position can be saved.

The order of the records, their segmentation and their rows follow from the seed and the epoch
alone, so a position is two numbers, and a batch can be made again from them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from operator import itemgetter
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from attendo.data.corpus import Corpus, Numbers, Ragged, Stream
from attendo.data.packing import Rows, filled, group_by_length, lay_grid, lay_labels, pack
from attendo.errors import DataError
from attendo.nn.grid import Grid, WholeRows
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


WINDOW_BYTES = 1 << 28
"""Most bytes of records that are in memory at a time, unless that is a few records only."""

WINDOW_RECORDS = 1024
"""Records that are read together, however large they are."""

Columns = Mapping[str, Ragged]
"""Some records of the corpus, by column."""


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
    kind: Literal["packed", "padded", "stream"]
    """As data.layout of a recipe."""
    shape: Callable[[Columns, np.random.Generator], Shaped]
    """How columns of the corpus become inputs and labels, perhaps at random."""
    pads: Mapping[str, int]
    """Return the padding id of each input."""
    vary: Callable[[Columns, np.random.Generator], Columns] | None = None
    """Changes columns of the corpus at random before they are shaped, in training only."""

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
        for number, fill in enumerate(_epoch(corpus, layout, seed, epoch), start=1):
            if number > done:
                yield Position(epoch, number), fill()
        if not number:
            raise DataError(
                f"none of the {corpus.size} training records fits into data.max_length = "
                f"{layout.width}; raise it"
            )
        epoch, done = epoch + 1, 0


def once(corpus: Corpus, layout: Layout) -> Iterator[Batch]:
    """Yield every record of a corpus once, one a row, like lengths together.

    Of a stream, every token is predicted once, from those before it in its row.
    """
    if layout.kind == "stream":
        yield from stream_rows(_only_column(corpus), layout, layout.width)
        return
    padded = replace(layout, kind="padded", vary=None)
    for fill in _padded_epoch(corpus, padded, np.random.default_rng(0)):
        yield fill()


def stream_rows(column: Stream, layout: Layout, stride: int) -> Iterator[Batch]:
    """Yield a column as rows that begin `stride` tokens after each other, in their order.

    Every token but the very first is predicted once; where rows overlap, in the first of them.
    Thus all tokens but those of the first row have at least `width - stride` tokens before them.
    """
    n_labels = int(column.offsets[-1]) - 1
    starts = np.arange(0, max(1, n_labels - (layout.width - stride)), stride)
    for few in np.array_split(starts, -(-len(starts) // layout.n_rows)):
        # The last row may be shorter: it is moved back, and what is known already left out.
        width = min(layout.width, n_labels)
        begins = np.minimum(few, n_labels - width)
        batch = _cut(column, begins, width)
        first_new = np.where(few == 0, 0, few + layout.width - stride) - begins
        is_known = np.arange(width) < first_new[:, None]
        labels = batch.labels.masked_fill(torch.from_numpy(is_known), IGNORE)
        yield batch._replace(labels=labels, n_labels=int((labels != IGNORE).sum()))


class _Window(NamedTuple):
    """A few thousand records in memory."""

    numbers: Numbers
    shaped: Shaped

    def lengths(self) -> list[Numbers]:
        """Return the lengths of each input."""
        return [column.lengths() for column in self.shaped.inputs.values()]


def _open(corpus: Corpus, layout: Layout, numbers: Numbers, chance: np.random.Generator) -> _Window:
    """Read records from the corpus and shape them."""
    columns: Columns = {
        name: column.take(numbers, chance) for name, column in corpus.columns.items()
    }
    if layout.vary is not None:
        columns = layout.vary(columns, chance)
    shaped = layout.shape(columns, chance)
    # With subword regularisation or noise, a record may be cut too finely to fit.
    longest = np.max([column.lengths() for column in shaped.inputs.values()], axis=0)
    fits = np.flatnonzero(longest <= layout.width)
    if len(fits) < len(numbers):
        numbers = numbers[fits]
        shaped = layout.shape({name: column.take(fits) for name, column in columns.items()}, chance)
    return _Window(numbers, shaped)


Planned = Iterator[Callable[[], Batch]]
"""Batches before they are filled: those that a resumed training has seen already never are."""


def _epoch(corpus: Corpus, layout: Layout, seed: int, epoch: int) -> Planned:
    chance = np.random.default_rng((seed, epoch))
    plans = {"packed": _packed_epoch, "padded": _padded_epoch, "stream": _stream_epoch}
    return plans[layout.kind](corpus, layout, chance)


def _stream_epoch(corpus: Corpus, layout: Layout, chance: np.random.Generator) -> Planned:
    """Cut the whole text into rows, at other places in each epoch, in random order."""
    column = _only_column(corpus)
    n_labels = int(column.offsets[-1]) - 1
    first = int(chance.integers(layout.width)) if n_labels >= 2 * layout.width else 0
    starts = np.arange(first, n_labels - layout.width + 1, layout.width)
    if not len(starts):
        raise DataError(
            f"the training text has {n_labels + 1} tokens, fewer than a row: "
            f"data.max_length = {layout.width}; lower it"
        )
    # The last batch is filled up with rows that were in the first ones: all have one shape.
    n_batches = -(-len(starts) // layout.n_rows)
    order = np.resize(chance.permutation(starts), (n_batches, layout.n_rows))
    for begins in order:
        yield partial(_cut, column, begins, layout.width)


def _only_column(corpus: Corpus) -> Stream:
    (column,) = corpus.columns.values()
    assert isinstance(column, Stream), "subword regularisation has no fixed stream"
    return column


def _cut(column: Stream, begins: Numbers, width: int) -> Batch:
    """Cut rows out of a stream; each token is the label of the one before it."""
    tokens = torch.from_numpy(column.windows(begins, width + 1))
    ids = tokens[:, :-1].contiguous()
    grid = WholeRows(ids, torch.ones_like(ids), torch.arange(width).expand_as(ids).contiguous())
    records = np.searchsorted(column.offsets, begins, side="right") - 1
    return Batch({"text": grid}, tokens[:, 1:].contiguous(), ids.numel(), tuple(records.tolist()))


def _window_size(corpus: Corpus, layout: Layout) -> int:
    """Return how many records are read together; fewer if they are large, as recordings are."""
    if corpus.record_bytes * layout.window <= WINDOW_BYTES:
        return layout.window
    return max(WINDOW_RECORDS, int(WINDOW_BYTES / corpus.record_bytes))


def _padded_epoch(corpus: Corpus, layout: Layout, chance: np.random.Generator) -> Planned:
    order, size = chance.permutation(corpus.size), _window_size(corpus, layout)
    for start in range(0, corpus.size, size):
        window = _open(corpus, layout, order[start : start + size], chance)
        batches = group_by_length(window.lengths(), layout.budget)
        for number in chance.permutation(len(batches)):
            yield partial(_fill, window, batches[number], layout)


def _packed_epoch(corpus: Corpus, layout: Layout, chance: np.random.Generator) -> Planned:
    """Pack window by window; incomplete rows and batches are kept for the next window."""
    order, size = chance.permutation(corpus.size), _window_size(corpus, layout)
    waiting = order[:0]
    for start in range(0, corpus.size, size):
        is_last = start + size >= corpus.size
        numbers = np.concatenate((waiting, order[start : start + size]))
        window = _open(corpus, layout, numbers, chance)
        rows = _pack(window, layout, is_last)
        whole, rest = _deal(len(rows.offsets) - 1, layout.n_rows, chance)
        for batch in whole:
            yield partial(_fill, window, rows.take(batch), layout)
        if is_last and len(rest):
            yield partial(_fill, window, rows.take(rest), layout)
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
    if layout.kind == "packed":
        n_missing = layout.n_rows + 1 - len(rows.offsets)
        rows = Rows(rows.ids, np.pad(rows.offsets, (0, n_missing), mode="edge"))

    def width(column: Ragged) -> int:
        return layout.width if layout.kind == "packed" else int(column.lengths()[rows.ids].max())

    grids = {
        name: lay_grid(column, rows, width(column), layout.pads[name])
        for name, column in inputs.items()
    }
    expected = lay_labels(labels, rows, width(labels), IGNORE)
    n_labels = int((expected != IGNORE).sum())
    return Batch(grids, expected, n_labels, tuple(window.numbers[rows.ids].tolist()))
