"""From a corpus to batches of grids: an endless, seeded stream whose position can be saved.

The order of the pairs, their segmentation and their rows follow from the seed and the epoch alone,
so a position is two numbers, and a batch can be made again from them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from attendo.data.corpus import Corpus, Numbers, Ragged
from attendo.data.grids import lay_grid, lay_labels
from attendo.data.packing import Rows, filled, group_by_length, pack
from attendo.errors import DataError
from attendo.nn.grid import Grid
from attendo.specials import IGNORE, Specials

FULL = 0.9
"""A row is good enough to be used when so much of it, on one side, is filled."""


class Position(NamedTuple):
    """A place in the stream of batches."""

    epoch: int = 0
    batch: int = 0


class Batch(NamedTuple):
    """Sentence pairs as the model and the loss want them."""

    source: Grid
    target: Grid
    """Begins with <s>: what the decoder is given."""
    labels: Int[Tensor, "R T"]
    """Ends with </s>: what the decoder is to say; IGNORE on padding."""
    n_labels: int
    pairs: tuple[int, ...]
    """Numbers of the pairs in the corpus, for messages."""

    def tensors(self) -> list[Tensor]:
        """List all that lives on a device."""
        return [*self.source, *self.target, self.labels]

    def map(self, function: Callable[[Tensor], Tensor]) -> "Batch":
        """Do the same to all of them."""
        return self._replace(
            source=self.source.map(function),
            target=self.target.map(function),
            labels=function(self.labels),
        )

    def pin_memory(self) -> "Batch":
        """Copy to memory that a GPU can fetch from by itself."""
        return self.map(Tensor.pin_memory)

    def to(self, device: torch.device | str) -> "Batch":
        """Move to a device; from pinned memory the copy does not block."""
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))

    def split(self, n_parts: int) -> list["Batch"]:
        """Cut the rows into parts, for gradient accumulation; `n_labels` stays the whole's."""
        n_rows = self.labels.shape[0]
        edges = [n_rows * part // n_parts for part in range(n_parts + 1)]
        return [
            self.map(itemgetter(slice(start, end))) for start, end in pairwise(edges) if end > start
        ]


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows are filled and how many make a batch."""

    width: int
    """Columns of a row: the longest sentence, with its end, that has a place."""
    budget: int
    """Places for target tokens in a batch."""
    is_packed: bool
    specials: tuple[Specials, Specials]
    """Of the source and of the target vocabulary."""

    @property
    def n_rows(self) -> int:
        """Rows of a packed batch."""
        return max(1, self.budget // self.width)

    @property
    def window(self) -> int:
        """Pairs that are packed together: many, for full rows and little work on each pair."""
        return max(16_384, self.budget // 4)


def stream(
    corpus: Corpus, layout: Layout, seed: int, position: Position
) -> Iterator[tuple[Position, Batch]]:
    """Yield batches for ever, each with the position that comes after it."""
    epoch, done = position
    while True:
        number = 0
        for number, (window, rows) in enumerate(_epoch(corpus, layout, seed, epoch), start=1):
            if number > done:
                yield Position(epoch, number), _fill(window, rows, layout)
        if not number:
            raise DataError(
                f"none of the {corpus.size} training pairs fits into data.max_length = "
                f"{layout.width}; raise it"
            )
        epoch, done = epoch + 1, 0


def once(corpus: Corpus, layout: Layout) -> Iterator[Batch]:
    """Yield every pair of a corpus once, one sentence a row, like lengths together."""
    padded = replace(layout, is_packed=False)
    for window, rows in _padded_epoch(corpus, padded, np.random.default_rng(0)):
        yield _fill(window, rows, padded)


class _Window(NamedTuple):
    """A few thousand pairs in memory, as they go into grids."""

    numbers: Numbers
    source: Ragged
    target: Ragged
    labels: Ragged


def _open(corpus: Corpus, layout: Layout, numbers: Numbers, chance: np.random.Generator) -> _Window:
    """Take pairs from the corpus and put the special tokens to them."""
    source, target = corpus.source.take(numbers, chance), corpus.target.take(numbers, chance)
    # A pair that has always fitted may, with subword regularisation, be cut too finely to fit.
    fits = np.flatnonzero(np.maximum(source.lengths(), target.lengths()) < layout.width)
    if len(fits) < len(numbers):
        numbers, source, target = numbers[fits], source.take(fits), target.take(fits)
    in_source, in_target = layout.specials
    return _Window(
        numbers,
        source.ended_with(in_source.eos),
        target.begun_with(in_target.bos),
        target.ended_with(in_target.eos),
    )


Planned = Iterator[tuple[_Window, Rows]]
"""Batches before they are filled: which sentences of a window make which rows."""


def _epoch(corpus: Corpus, layout: Layout, seed: int, epoch: int) -> Planned:
    chance = np.random.default_rng((seed, epoch))
    plan = _packed_epoch if layout.is_packed else _padded_epoch
    return plan(corpus, layout, chance)


def _padded_epoch(corpus: Corpus, layout: Layout, chance: np.random.Generator) -> Planned:
    order = chance.permutation(corpus.size)
    for start in range(0, corpus.size, layout.window):
        window = _open(corpus, layout, order[start : start + layout.window], chance)
        batches = group_by_length(window.source.lengths(), window.target.lengths(), layout.budget)
        for number in chance.permutation(len(batches)):
            yield window, batches[number]


def _packed_epoch(corpus: Corpus, layout: Layout, chance: np.random.Generator) -> Planned:
    """Pack window by window; what makes no full row or no full batch waits for the next window."""
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
    """Make rows of a window; unless it is the last one, only those that are nearly full."""
    lengths = window.source.lengths(), window.target.lengths()
    rows = pack(*lengths, layout.width)
    n_tokens = np.maximum(*(filled(rows, side) for side in lengths))
    full = rows.take(np.flatnonzero(n_tokens >= FULL * layout.width))
    # Where most sentences find no partner, those that wait would only become more and more.
    return rows if is_last or 2 * len(full.ids) < len(rows.ids) else full


def _deal(
    n: int, n_rows: int, chance: np.random.Generator
) -> tuple[Int[np.ndarray, "batches rows"], Int[np.ndarray, " rest"]]:
    """Choose which rows make which batch; those that make no whole batch are the rest.

    Rows of few long sentences come before rows of many short ones. Every batch gets one of the
    first rows, one of the next and so on, so that long and short are mixed alike in all batches;
    and in no order, so that they are mixed in the parts of a batch too.
    """
    n_batches = n // n_rows
    chosen, rest = np.split(chance.permutation(n), [n_batches * n_rows])
    dealt = chance.permuted(np.sort(chosen).reshape(n_rows, n_batches), axis=1)
    return chance.permuted(dealt, axis=0).T, rest


def _fill(window: _Window, rows: Rows, layout: Layout) -> Batch:
    """Lay the planned rows into grids; all packed batches have the same shape."""
    in_source, in_target = layout.specials
    lengths = window.source.lengths()[rows.ids], window.target.lengths()[rows.ids]
    if layout.is_packed:
        n_missing = layout.n_rows + 1 - len(rows.offsets)
        rows = Rows(rows.ids, np.pad(rows.offsets, (0, n_missing), mode="edge"))
        widths = (layout.width, layout.width)
    else:
        widths = (int(lengths[0].max()), int(lengths[1].max()))
    return Batch(
        source=lay_grid(window.source, rows, widths[0], in_source.pad),
        target=lay_grid(window.target, rows, widths[1], in_target.pad),
        labels=lay_labels(window.labels, rows, widths[1], IGNORE),
        n_labels=int(lengths[1].sum()),
        pairs=tuple(window.numbers[rows.ids].tolist()),
    )
