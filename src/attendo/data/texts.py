"""The records of a run as text: training records from disk, the others in memory.

Where no validation or test records are given, some training records are held out, by a hash of the
first column: all translations of one sentence are in the same part, so nothing leaks.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from attendo.config import DataConfig
from attendo.data.builtin import Sentence, sentences
from attendo.data.folders import find_texts
from attendo.data.readers import (
    BLOCK,
    Document,
    Pair,
    ReadReport,
    Record,
    RecordFiles,
    check_alignment,
    read_records,
)
from attendo.errors import DataError

FEWEST = 10
"""Fewest pairs from which some can be held out and the rest learned from."""


@dataclass(frozen=True, slots=True)
class Texts:
    """All pairs of a run."""

    train: Callable[[], Iterator[Record]]
    """Starts reading the training pairs, as often as it is called."""
    valid: list[Record]
    test: list[Record]
    n_train: int
    mean_characters: float
    """Mean length of a training sentence, over both sides."""
    report: ReadReport
    """What was dropped in reading the training files, and why."""
    n_remembered: int = 0
    """How many of the training pairs are those of an earlier run."""
    n_known_valid: int = 0
    """How many validation pairs have a source that is also trained on; none if held out."""
    n_known_test: int = 0
    """The same for the test pairs."""


def open_texts(
    data: DataConfig,
    record: type[Record] = Pair,
    convert: Callable[[Sentence], Record] = lambda sentence: Pair(sentence.source, sentence.target),
) -> Texts:
    """Open the records that a recipe names, and read them once.

    Args:
        data: The section [data] of a recipe.
        record: What the files hold.
        convert: Makes a record of a sentence of the built-in corpus.
    """
    is_pair = record is Pair
    if data.builtin:
        return _open_builtin(data, convert)
    if not is_pair and (data.source or data.pairs):
        raise DataError(
            f"source, target and pairs are for translation; give a file with "
            f"{' and '.join(record._fields)}: --data"
        )
    found = find_texts if record is Document else tuple
    train = RecordFiles(data.source, data.target, data.pairs + found(data.files), record)
    if not train:
        options = "--source and --target, or --pairs" if is_pair else "--data"
        raise DataError(
            f"no training data: give {options}, or set the files in the section [data] of a recipe"
        )
    valid = RecordFiles(
        data.valid_source, data.valid_target, data.valid_pairs + found(data.valid_files), record
    )
    test = RecordFiles(
        data.test_source, data.test_target, data.test_pairs + found(data.test_files), record
    )
    for files in (train, valid, test):
        if files:
            check_alignment(files)
    return _open_files(data, train, valid, test)


def _open_builtin(data: DataConfig, convert: Callable[[Sentence], Record]) -> Texts:
    def train() -> Iterator[Record]:
        return map(convert, islice(sentences(seed=0), data.builtin))

    # Held-out sentences contain combinations of words that no training sentence has.
    held_out = map(convert, sentences(seed=1, held_out=True))
    distinct = list(islice(dict.fromkeys(islice(held_out, 4 * data.hold_out)), 2 * data.hold_out))
    valid, test = distinct[: len(distinct) // 2], distinct[len(distinct) // 2 :]
    sample = list(islice(train(), 1000))
    return Texts(train, valid, test, data.builtin, _mean_characters(sample), ReadReport())


def _open_files(
    data: DataConfig, train: RecordFiles, valid: RecordFiles, test: RecordFiles
) -> Texts:
    report = ReadReport()
    hashes, mean_characters = _read_through(read_records(train, report))
    names = {Pair: "pairs", Document: f"texts, or parts of {BLOCK:,} characters,"}
    _check_number(len(hashes), names.get(train.record, "records"), str(train))
    for_valid, for_test = split_off(
        hashes, data.hold_out, str(train), has_valid=bool(valid), has_test=bool(test)
    )
    held_out = for_test | for_valid

    def records(*, is_held_out: bool) -> Iterator[Record]:
        pairs = read_records(train, ReadReport())
        if not held_out:  # then nothing has to be hashed again
            return iter(()) if is_held_out else pairs
        return (pair for pair in pairs if (hash_source(pair[0]) in held_out) is is_held_out)

    held_out_pairs = list(records(is_held_out=True))

    def pairs_of(files: RecordFiles, chosen: set[int]) -> list[Record]:
        if files:
            return list(read_records(files, ReadReport()))
        return [pair for pair in held_out_pairs if hash_source(pair[0]) in chosen]

    trained_on = hashes[~np.isin(hashes, np.fromiter(held_out, dtype=np.uint64))]
    valid_pairs, test_pairs = pairs_of(valid, for_valid), pairs_of(test, for_test)
    return Texts(
        train=lambda: records(is_held_out=False),
        valid=valid_pairs,
        test=test_pairs,
        n_train=len(hashes) - len(held_out_pairs),
        mean_characters=mean_characters,
        report=report,
        n_known_valid=_count_known(valid_pairs, trained_on),
        n_known_test=_count_known(test_pairs, trained_on),
    )


def split_off(
    hashes: NDArray[np.uint64], hold_out: int, files: str, *, has_valid: bool, has_test: bool
) -> tuple[set[int], set[int]]:
    """Choose the source sentences, by hash, that are held out for validation and for test.

    Args:
        hashes: The hash of the source sentence of every training pair.
        hold_out: The most pairs to hold out for each.
        files: Where the pairs come from, for the message.
        has_valid: Whether validation pairs are given, so that none have to be held out.
        has_test: Whether test pairs are given.

    Raises:
        DataError: There are too few records, or too few different sources.
    """
    _check_number(len(hashes), "pairs", files)
    hashes = np.sort(hashes)
    share = min(hold_out, max(1, len(hashes) // 20))
    for_test, place = _choose(hashes, 0 if has_test else share, 0)
    for_valid, _ = _choose(hashes, 0 if has_valid else share, place)
    if not (has_test or for_test) or not (has_valid or for_valid):
        raise DataError(
            f"too few different sources to hold out up to {share} of the {len(hashes)} records in "
            f"{files} for validation and for test; give others for both, such as --valid-source "
            "and --valid-target, or --valid-data"
        )
    return for_valid, for_test


def _check_number(n_records: int, what: str, files: str) -> None:
    if n_records < FEWEST:
        raise DataError(f"too few usable {what} in {files}: {n_records} of at least {FEWEST}")


def _read_through(pairs: Iterable[Record]) -> tuple[NDArray[np.uint64], float]:
    """Hash every source sentence, eight bytes each, and measure the lengths."""
    characters = 0.0

    def hashes() -> Iterator[int]:
        nonlocal characters
        for pair in pairs:
            characters += _characters(pair)
            yield hash_source(pair[0])

    found = np.fromiter(hashes(), dtype=np.uint64)
    return found, characters / max(1, len(found))


def _choose(hashes: NDArray[np.uint64], n_pairs: int, place: int) -> tuple[set[int], int]:
    """Choose source sentences that have at most `n_pairs` pairs together.

    Goes through the sorted hashes from a place on, and returns the place it has reached. A sentence
    that alone has more than `n_pairs` pairs is left out.
    """
    chosen: set[int] = set()
    room = n_pairs
    while place < len(hashes):
        end = int(np.searchsorted(hashes, hashes[place], side="right"))
        n_same = end - place
        if room < n_same <= n_pairs or not n_pairs:
            break
        if n_same <= room:
            chosen.add(int(hashes[place]))
            room -= n_same
        place = end
    return chosen, place


def _count_known(pairs: list[Record], hashes: NDArray[np.uint64]) -> int:
    """Count the pairs whose source has one of these hashes."""
    own = np.array([hash_source(pair[0]) for pair in pairs], dtype=np.uint64)
    return int(np.isin(own, hashes).sum())


def hash_source(text: str) -> int:
    """Return a hash of a source sentence that is the same in every process."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


def _mean_characters(pairs: list[Record]) -> float:
    return sum(map(_characters, pairs)) / len(pairs)


def _characters(record: Record) -> float:
    """Return the mean length of source and target, or else the length of the text."""
    texts = record if isinstance(record, Pair) else record[:1]
    return sum(map(len, texts)) / len(texts)
