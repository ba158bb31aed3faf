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
    share = min(data.hold_out, max(1, len(hashes) // 20))
    for_test = _choose(hashes, 0 if test else share)
    for_valid = _choose(hashes[~np.isin(hashes, for_test)], 0 if valid else share)
    if not (test or len(for_test)) or not (valid or len(for_valid)):
        raise DataError(
            f"every source sentence has more than {share} of the {len(hashes)} training pairs, so "
            "none can be split off for validation and test; "
            "give --valid-source, --valid-target, --test-source and --test-target"
        )
    held_out = np.concatenate((for_test, for_valid))

    def part(sources: NDArray[np.uint64], *, inside: bool = True) -> Iterator[Pair]:
        chosen, pairs = set(sources.tolist()), read_pairs(train, ReadReport())
        return (pair for pair in pairs if (_hash(pair.source) in chosen) == inside)

    return Texts(
        train=lambda: part(held_out, inside=False),
        valid=list(read_pairs(valid, ReadReport()) if valid else part(for_valid)),
        test=list(read_pairs(test, ReadReport()) if test else part(for_test)),
        n_train=len(hashes) - int(np.isin(hashes, held_out).sum()),
        mean_characters=mean_characters,
        report=report,
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


def _choose(hashes: NDArray[np.uint64], n_pairs: int) -> NDArray[np.uint64]:
    """Choose source sentences, the lowest hashes first, that have at most `n_pairs` pairs together.

    A sentence that alone has more than that is passed over.
    """
    sources, counts = np.unique(hashes, return_counts=True)
    sources, counts = sources[counts <= n_pairs], counts[counts <= n_pairs]
    return sources[np.cumsum(counts) <= n_pairs]


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


def _mean_characters(pairs: list[Pair]) -> float:
    return sum(len(pair.source) + len(pair.target) for pair in pairs) / (2 * len(pairs))
