"""The sentence pairs of a run as text: training pairs as a stream, the others in memory.

Where no validation or test pairs are given, some training pairs are split off, by a hash of the
source sentence: all translations of one sentence stay on one side, so nothing leaks.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from attendo.config import DataConfig
from attendo.data.builtin import sentences
from attendo.data.readers import Pair, PairFiles, ReadReport, check_alignment, read_pairs
from attendo.errors import DataError

FEWEST = 10
"""Pairs below which nothing can be learned, split off or measured."""


@dataclass(frozen=True, slots=True)
class Texts:
    """All pairs of a run."""

    train: Callable[[], Iterator[Pair]]
    """Starts reading the training pairs, as often as it is called."""
    valid: list[Pair]
    test: list[Pair]
    n_train: int
    mean_characters: float
    """Mean length of a training sentence, over both sides."""
    report: ReadReport
    """What was dropped in reading the training files, and why."""
    n_remembered: int = 0
    """How many of the training pairs are those of an earlier run."""
    n_known_valid: int = 0
    """How many validation pairs have a source that is trained on, too; none that is split off."""
    n_known_test: int = 0
    """The same for the test pairs."""


def open_texts(data: DataConfig) -> Texts:
    """Find the pairs that a recipe names and read them through once."""
    if data.builtin:
        return _open_builtin(data)
    train = PairFiles(data.source, data.target, data.pairs)
    if not train:
        raise DataError(
            "no training data: give --source and --target, or --pairs, "
            "or set data.source, data.target or data.pairs in the recipe"
        )
    valid = PairFiles(data.valid_source, data.valid_target, data.valid_pairs)
    test = PairFiles(data.test_source, data.test_target, data.test_pairs)
    for files in (train, valid, test):
        if files:
            check_alignment(files)
    return _open_files(data, train, valid, test)


def _open_builtin(data: DataConfig) -> Texts:
    def train() -> Iterator[Pair]:
        generated = islice(sentences(seed=0), data.builtin)
        return (Pair(sentence.source, sentence.target) for sentence in generated)

    # Held-out sentences contain combinations of words that no training sentence has.
    held_out = (Pair(s.source, s.target) for s in sentences(seed=1, held_out=True))
    distinct = list(islice(dict.fromkeys(islice(held_out, 4 * data.hold_out)), 2 * data.hold_out))
    valid, test = distinct[: len(distinct) // 2], distinct[len(distinct) // 2 :]
    sample = list(islice(train(), 1000))
    return Texts(train, valid, test, data.builtin, _mean_characters(sample), ReadReport())


def _open_files(data: DataConfig, train: PairFiles, valid: PairFiles, test: PairFiles) -> Texts:
    report = ReadReport()
    hashes, mean_characters = _read_through(read_pairs(train, report))
    if len(hashes) < FEWEST:
        raise DataError(
            f"only {len(hashes)} usable pairs in {', '.join(train)}; at least {FEWEST} are needed"
        )
    hashes.sort()
    share = min(data.hold_out, max(1, len(hashes) // 20))
    for_test, place = _choose(hashes, 0 if test else share, 0)
    for_valid, _ = _choose(hashes, 0 if valid else share, place)
    if not (test or for_test) or not (valid or for_valid):
        raise DataError(
            f"every source sentence has more than {share} of the {len(hashes)} training pairs, so "
            "none can be split off for validation and test; "
            "give --valid-source, --valid-target, --test-source and --test-target"
        )
    held_out = for_test | for_valid
    split_off = [pair for pair in read_pairs(train, ReadReport()) if _hash(pair.source) in held_out]

    def remaining() -> Iterator[Pair]:
        pairs = read_pairs(train, ReadReport())
        return (pair for pair in pairs if _hash(pair.source) not in held_out)

    def pairs_of(files: PairFiles, chosen: set[int]) -> list[Pair]:
        if files:
            return list(read_pairs(files, ReadReport()))
        return [pair for pair in split_off if _hash(pair.source) in chosen]

    trained_on = hashes[~np.isin(hashes, np.fromiter(held_out, dtype=np.uint64))]
    valid_pairs, test_pairs = pairs_of(valid, for_valid), pairs_of(test, for_test)
    return Texts(
        train=remaining,
        valid=valid_pairs,
        test=test_pairs,
        n_train=len(hashes) - len(split_off),
        mean_characters=mean_characters,
        report=report,
        n_known_valid=_count_known(valid_pairs, trained_on),
        n_known_test=_count_known(test_pairs, trained_on),
    )


def _read_through(pairs: Iterable[Pair]) -> tuple[NDArray[np.uint64], float]:
    """Hash every source sentence, eight bytes each, and measure the lengths."""
    characters = 0

    def hashes() -> Iterator[int]:
        nonlocal characters
        for pair in pairs:
            characters += len(pair.source) + len(pair.target)
            yield _hash(pair.source)

    found = np.fromiter(hashes(), dtype=np.uint64)
    return found, characters / max(1, 2 * len(found))


def _choose(hashes: NDArray[np.uint64], n_pairs: int, place: int) -> tuple[set[int], int]:
    """Choose source sentences that have at most `n_pairs` pairs together.

    Goes through the sorted hashes from a place on, and returns the place it got to. A sentence that
    alone has more than `n_pairs` pairs is passed over.
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


def _count_known(pairs: list[Pair], hashes: NDArray[np.uint64]) -> int:
    """Count the pairs whose source has one of these hashes."""
    own = np.array([_hash(pair.source) for pair in pairs], dtype=np.uint64)
    return int(np.isin(own, hashes).sum())


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


def _mean_characters(pairs: list[Pair]) -> float:
    return sum(len(pair.source) + len(pair.target) for pair in pairs) / (2 * len(pairs))
