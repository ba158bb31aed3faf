"""Encoded records on disk: flat arrays of ids or vectors, mapped into memory, not loaded into it.

A corpus of any size costs a few bytes a record of resident memory. What a training step needs is
taken in windows of a few thousand records.
"""

import json
import mmap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from attendo.data.readers import Record
from attendo.errors import BundleError

Numbers = NDArray[np.int64]
CHUNK = 4096
"""Records that are encoded at a time: enough to use all cores, few enough to fit into memory."""


class Vectors(NamedTuple):
    """What a column holds that is no column of ids: a vector for each position."""

    width: int
    dtype: str
    """Of their numbers, as NumPy writes it: "|u1" for pixels, "<i2" for samples."""


ColumnSize = int | Vectors
"""The number of different ids of a column, or its vectors."""


class Ragged(NamedTuple):
    """Sequences of different lengths, end to end."""

    ids: NDArray[Any]
    """Token ids, two or four bytes each in a file, eight where they are taken from it; or vectors
    (N, D), which keep the type that they have in the file."""
    offsets: Numbers
    """Where each sequence starts, and where the last one ends."""

    def lengths(self) -> Numbers:
        """Count the ids of each sequence."""
        return np.diff(self.offsets)

    def begun_with(self, token: int) -> "Ragged":
        """Return the sequences with a token, or a vector of this number, before each."""
        ids = np.insert(self.ids, self.offsets[:-1], token, axis=0)
        return Ragged(ids, self.offsets + np.arange(len(self.offsets)))

    def ended_with(self, token: int) -> "Ragged":
        """Return the sequences with a token after each."""
        ids = np.insert(self.ids, self.offsets[1:], token)
        return Ragged(ids, self.offsets + np.arange(len(self.offsets)))

    def positions(self) -> Numbers:
        """Count each id's place in its own sequence, from 0."""
        return np.arange(self.offsets[-1]) - np.repeat(self.offsets[:-1], self.lengths())

    def sequences(self) -> Iterator[Any]:
        """Yield one sequence after the other: a list of ids, or an array of vectors."""
        for start, end in pairwise(self.offsets):
            yield self.ids[start:end] if self.ids.ndim > 1 else self.ids[start:end].tolist()

    def take(self, numbers: NDArray[np.integer[Any]]) -> "Ragged":
        """Copy some of the sequences."""
        starts = np.asarray(self.offsets[numbers])
        lengths = np.asarray(self.offsets[numbers + 1]) - starts
        offsets = offsets_of(lengths)
        # For every id its place in the whole: its sequence's start plus its place in the sequence.
        places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        return Ragged(np.asarray(self.ids[places]), offsets)


def offsets_of(lengths: NDArray[np.integer[Any]]) -> Numbers:
    """Return where concatenated sequences of these lengths start, and where the last one ends."""
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


def ragged(sequences: Sequence[Sequence[int] | NDArray[Any]]) -> Ragged:
    """Concatenate lists of ids, or arrays of vectors."""
    lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
    if sequences and isinstance(sequences[0], np.ndarray):
        return Ragged(np.concatenate(sequences), offsets_of(lengths))
    flat = [token for sequence in sequences for token in sequence]
    return Ragged(np.array(flat, dtype=np.int64), offsets_of(lengths))


def joined(parts: Sequence[Ragged]) -> Ragged:
    """Concatenate several ragged arrays."""
    lengths = np.concatenate([part.lengths() for part in parts])
    return Ragged(np.concatenate([part.ids for part in parts]), offsets_of(lengths))


@runtime_checkable
class Side(Protocol):
    """One column of a corpus."""

    def take(self, numbers: Numbers, generator: np.random.Generator) -> Ragged:
        """Return the ids of these records, perhaps in a random segmentation."""
        ...


@runtime_checkable
class Stream(Protocol):
    """A column whose records can be read as one long sequence."""

    @property
    def offsets(self) -> Numbers:
        """Return where each record starts in it, and where the last one ends."""
        ...

    def windows(self, starts: Numbers, width: int) -> NDArray[np.int64]:
        """Return `width` ids from each start on, whichever records they belong to."""
        ...


class StoredSide:
    """Ids or vectors in one file, offsets in another, both mapped into memory.

    No id may reach `n_ids`, the size of the vocabulary; checked where ids are taken.
    """

    def __init__(self, stem: Path, size: ColumnSize | None = None) -> None:
        self.stem = stem
        self.vectors = size if isinstance(size, Vectors) else None
        self.n_ids = None if isinstance(size, Vectors) else size
        try:
            content = _map(f"{stem}.ids.npy", self.vectors)
            self.stored = Ragged(content, _map(f"{stem}.offsets.npy"))
            check_offsets(self.stored.offsets, len(self.stored.ids))
            _let_go(self.stored.offsets)
        except Exception as error:  # a damaged file fails in many ways
            raise self._damaged(str(error)) from None

    def _damaged(self, reason: str) -> BundleError:
        return BundleError(
            f"the prepared data {self.stem}.*.npy cannot be read ({reason}); "
            "delete its folder to have it made again"
        )

    def __len__(self) -> int:
        return len(self.stored.offsets) - 1

    @property
    def offsets(self) -> Numbers:
        """Return where each record starts."""
        return self.stored.offsets

    def windows(self, starts: Numbers, width: int) -> NDArray[np.int64]:
        """Copy pieces of the file, whichever records they belong to."""
        ids: NDArray[np.int64] = self.stored.ids[starts[:, None] + np.arange(width)]
        _let_go(self.stored.ids)
        self._check(ids)
        return ids.astype(np.int64)

    def take(self, numbers: Numbers, generator: np.random.Generator) -> Ragged:
        """Copy the ids of these records out of the file, a few hundred at a time.

        They are read in the order of the file, since many then lie in the same page: to get hold
        of a page takes longer than all the rest.
        """
        order = np.argsort(numbers)
        parts = []
        for few in np.array_split(numbers[order], len(numbers) // 512 + 1):
            parts.append(self.stored.take(few))
            for mapped in self.stored:
                _let_go(mapped)
        taken = joined(parts).take(np.argsort(order))
        if self.vectors:
            return taken
        self._check(taken.ids)
        return Ragged(taken.ids.astype(np.int64), taken.offsets)

    def _check(self, ids: NDArray[np.integer[Any]]) -> None:
        if self.n_ids is not None and ids.size and int(ids.max()) >= self.n_ids:
            raise self._damaged(f"the id {ids.max()} is not in the vocabulary")


def check_offsets(offsets: NDArray[Any], n_ids: int) -> None:
    """Raise an error unless offsets rise from 0 to the number of ids."""
    if offsets.ndim != 1 or offsets.dtype != np.int64 or not len(offsets):
        raise ValueError("offsets are not a row of integers")
    if offsets[0] != 0 or offsets[-1] != n_ids or (offsets[1:] < offsets[:-1]).any():
        raise ValueError("offsets and ids do not belong together")


def _let_go(mapped: NDArray[Any]) -> None:
    """Release the pages that were read; otherwise they add up to the whole file."""
    mapping = getattr(mapped, "_mmap", None)
    if isinstance(mapping, mmap.mmap) and hasattr(mapping, "madvise"):
        mapping.madvise(mmap.MADV_DONTNEED)


def _map(path: str, vectors: Vectors | None = None) -> NDArray[Any]:
    array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    if vectors and (array.shape[1:] != (vectors.width,) or array.dtype != vectors.dtype):
        raise ValueError(
            f"{path} has no vectors of {vectors.width} numbers of type {vectors.dtype}"
        )
    if not vectors and (array.ndim != 1 or array.dtype.kind not in "iu"):
        raise ValueError(f"{path} is not a row of integers")
    return array


class MemorySide:
    """One column of a small corpus."""

    def __init__(self, encoded: Ragged) -> None:
        self.encoded = encoded

    def take(self, numbers: Numbers, generator: np.random.Generator) -> Ragged:
        """Copy the ids of these records."""
        return self.encoded.take(numbers)

    @property
    def offsets(self) -> Numbers:
        """Return where each record starts."""
        return self.encoded.offsets

    def windows(self, starts: Numbers, width: int) -> NDArray[np.int64]:
        """Copy pieces, whichever records they belong to."""
        ids: NDArray[np.int64] = self.encoded.ids[starts[:, None] + np.arange(width)]
        return ids.astype(np.int64)


@dataclass(frozen=True, slots=True)
class Corpus:
    """Encoded records: named columns, of which number `n` belongs to record `n`."""

    columns: Mapping[str, Side]
    size: int

    @property
    def record_bytes(self) -> float:
        """Return the mean size of a record in the files."""
        stored = (side for side in self.columns.values() if isinstance(side, StoredSide))
        return sum(side.stored.ids.nbytes for side in stored) / max(1, self.size)


class CorpusWriter:
    """Appends encoded records to a folder, in constant memory."""

    def __init__(self, folder: Path, sizes: Mapping[str, ColumnSize]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.columns = [SideWriter(folder / name, size) for name, size in sizes.items()]

    def add(self, records: Iterable[Sequence[Any]]) -> None:
        """Append encoded records, with a list of ids or an array of vectors for each column."""
        for record in records:
            for column, ids in zip(self.columns, record, strict=True):
                column.add(ids)

    def close(self) -> None:
        """Complete the files."""
        for column in self.columns:
            column.close()


class SideWriter:
    """Streams ids or vectors into a `.npy` file whose length is known only at the end."""

    def __init__(self, stem: Path, size: ColumnSize) -> None:
        self.stem = stem
        self.vectors = size if isinstance(size, Vectors) else None
        if isinstance(size, Vectors):
            self.type = np.dtype(size.dtype)
        else:
            self.type = np.dtype("<u2" if size < 2**16 else "<u4")
        self.raw = Path(f"{stem}.raw")
        self.file: IO[bytes] = self.raw.open("wb")
        self.lengths: list[NDArray[np.int32]] = []
        self.pending: list[Any] = []

    def add(self, ids: Any) -> None:
        """Append one sequence."""
        self.pending.append(ids)
        if len(self.pending) == CHUNK:
            self._flush()

    def close(self) -> None:
        """Write what is left and turn the raw ids into `.npy` files."""
        self._flush()
        self.file.close()
        lengths = np.concatenate(self.lengths) if self.lengths else np.zeros(0, np.int32)
        offsets = offsets_of(lengths)
        np.save(f"{self.stem}.offsets.npy", offsets, allow_pickle=False)
        with Path(f"{self.stem}.ids.npy").open("wb") as file, self.raw.open("rb") as raw:
            header = {
                "descr": self.type.str,
                "fortran_order": False,
                "shape": (int(offsets[-1]), *((self.vectors.width,) if self.vectors else ())),
            }
            np.lib.format.write_array_header_1_0(file, header)
            while block := raw.read(1 << 20):
                file.write(block)
        self.raw.unlink()

    def _flush(self) -> None:
        if self.pending:
            self.file.write(ragged(self.pending).ids.astype(self.type).tobytes())
            self.lengths.append(np.array([len(ids) for ids in self.pending], dtype=np.int32))
            self.pending = []


def chunks(records: Iterable[Record], size: int = CHUNK) -> Iterator[list[Record]]:
    """Split a stream of records into lists."""
    iterator = iter(records)
    while chunk := list(islice(iterator, size)):
        yield chunk


def open_corpus(folder: Path, sizes: Mapping[str, ColumnSize | None]) -> Corpus:
    """Open a corpus that `CorpusWriter` has written, with columns of the given sizes."""
    columns = {name: StoredSide(folder / name, size) for name, size in sizes.items()}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise BundleError(
            f"the columns of {folder} differ in length ({found}); "
            "delete the folder to have it made again"
        )
    return Corpus(columns, next(iter(lengths.values())))


def write_texts(path: Path, records: Iterable[Record]) -> None:
    """Write records as text, one JSON object per line."""
    with path.open("w", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record._asdict(), ensure_ascii=False) + "\n")


def read_texts(path: Path, record: type[Record]) -> list[Record]:
    """Read what `write_texts` wrote."""
    try:
        with path.open(encoding="utf-8") as file:
            records = [record(**json.loads(line)) for line in file]
        if not all(isinstance(text, str) for one in records for text in one):
            raise ValueError(f"expected a text for each of: {', '.join(record._fields)}")
        if not records:
            raise ValueError("it is empty")
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise BundleError(
            f"the prepared records {path} cannot be read ({error}); "
            "delete their folder to have them made again"
        ) from None
    return records
