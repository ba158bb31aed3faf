"""Subword regularisation by BPE-dropout (Provilkov et al., 2020): random segmentations.

Random merging while training would be slow, and could not be repeated when a run is resumed. So a
corpus is kept as numbers of distinct words, some segmentations of every word are drawn once with a
seed, and an epoch's ids are one gather over arrays.
"""

import random
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import IO

import numpy as np
from jaxtyping import Int, Int32, Int64

from attendo.errors import TokenizerError
from attendo.text.tokenizer import Tokenizer

Word = tuple[int, ...]
"""A word, named by the ids that the tokenizer itself gives it."""

_NO_MERGE = 2**62
"""The rank of two neighbours that no merge joins."""


class Words:
    """An inventory that numbers the distinct words of a corpus as it is read."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._numbers: dict[Word, int] = {}

    def add(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the numbers of each text's words; new words get new numbers."""
        numbers = self._numbers
        return [
            [numbers.setdefault(word, len(numbers)) for word in words]
            for words in self._tokenizer.encode_words(texts)
        ]

    @property
    def words(self) -> list[Word]:
        """Return the distinct words, by number."""
        return list(self._numbers)


@dataclass(frozen=True, slots=True, eq=False)
class Segmentations:
    """Several ways to write each word: draw `d` of word `w` is entry `w * draws + d`."""

    ids: Int32[np.ndarray, " ids"]
    """The ids of all entries, one after the other."""
    offsets: Int64[np.ndarray, " bounds"]
    """Where each entry begins in `ids`, and where the last one ends."""
    draws: int
    """Segmentations of each word."""

    def expand(
        self, words: Int[np.ndarray, " words"], generator: np.random.Generator
    ) -> tuple[Int32[np.ndarray, " expanded"], Int64[np.ndarray, " words"]]:
        """Write words in ids, each in one of its ways; also return the number of ids a word."""
        entries = words.astype(np.int64) * self.draws
        entries += generator.integers(self.draws, size=len(words))
        starts = self.offsets[entries]
        lengths = self.offsets[entries + 1] - starts
        ends = np.cumsum(lengths)
        total = ends[-1] if len(ends) else 0
        # Place i of the result lies as far behind its word's start there as here.
        places = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
        return self.ids[places], lengths

    @property
    def n_words(self) -> int:
        """Return the number of words."""
        return (len(self.offsets) - 1) // self.draws

    def save(self, file: IO[bytes]) -> None:
        """Write an .npz file."""
        np.savez(file, ids=self.ids, offsets=self.offsets, draws=np.int64(self.draws))

    def check(self) -> None:
        """Raise a ValueError unless offsets, ids and number of draws belong together."""
        ids, offsets = self.ids, self.offsets
        is_whole = ids.ndim == offsets.ndim == 1 and len(offsets) and self.draws > 0
        is_typed = ids.dtype == np.int32 and offsets.dtype == np.int64
        if not (is_whole and is_typed) or (len(offsets) - 1) % self.draws:
            raise ValueError("its arrays have wrong shapes")
        is_rising = (offsets[1:] >= offsets[:-1]).all()
        if offsets[0] or offsets[-1] != len(ids) or not is_rising or (ids < 0).any():
            raise ValueError("its ids and offsets do not belong together")

    @classmethod
    def load(cls, file: IO[bytes]) -> "Segmentations":
        """Read an .npz file that `save` wrote."""
        try:
            with np.load(file, allow_pickle=False) as arrays:
                loaded = cls(arrays["ids"], arrays["offsets"], int(arrays["draws"]))
            loaded.check()
            return loaded
        except Exception as error:  # a damaged archive fails in many ways
            raise TokenizerError(
                f"not a file of segmentations ({error}); delete it to have it made again"
            ) from None


def sample_segmentations(
    tokenizer: Tokenizer, words: Sequence[Word], rate: float, draws: int, seed: int
) -> Segmentations:
    """Draw `draws` segmentations of every word, leaving out each merge with probability `rate`.

    Raises:
        TokenizerError: The tokenizer has no merges, or an argument is out of range.
    """
    if not 0 <= rate <= 1:
        raise TokenizerError(f"dropout = {rate} is no probability; give a number from 0 to 1")
    if draws < 1:
        raise TokenizerError(f"draws = {draws}: a word needs at least one segmentation")
    sampler = _Sampler(tokenizer, rate, seed)
    ids, offsets = array("i"), array("q", [0])
    for word in words:
        symbols = sampler.symbols(word)
        for _ in range(draws):
            # With no merge left out the tokenizer's own way is the only one.
            ids.extend(sampler.segment(symbols) if rate else word)
            offsets.append(len(ids))
    return Segmentations(np.array(ids, dtype=np.int32), np.array(offsets, dtype=np.int64), draws)


class _Sampler:
    """Applies the merges of a tokenizer, some left out at random."""

    def __init__(self, tokenizer: Tokenizer, rate: float, seed: int) -> None:
        merges = tokenizer.merges()
        self._rate = rate
        self._random = random.Random(seed).random
        self._ranks = {(merge.left, merge.right): rank for rank, merge in enumerate(merges)}
        self._products = [merge.product for merge in merges]
        self._halves = {merge.product: (merge.left, merge.right) for merge in reversed(merges)}

    def symbols(self, word: Word) -> list[int]:
        """Undo all merges; return characters, bytes and other single symbols."""
        symbols = []
        waiting = list(reversed(word))
        while waiting:
            token = waiting.pop()
            if token in self._halves:
                waiting.extend(reversed(self._halves[token]))
            else:
                symbols.append(token)
        return symbols

    def segment(self, symbols: list[int]) -> list[int]:
        """Run the paper's algorithm 1: join the best pair that is not left out, until none is.

        All pairs are drawn anew for every step. Going through them from the best downwards, the
        draws behind the first one kept decide nothing and need not be made.
        """
        tokens = symbols.copy()
        ranks = [self._rank(left, right) for left, right in pairwise(tokens)]
        while ranks:
            left_out = []
            while (best := min(ranks)) != _NO_MERGE:
                at = ranks.index(best)
                if self._random() >= self._rate:
                    break
                left_out.append((at, best))
                ranks[at] = _NO_MERGE
            else:
                break
            for place, rank in left_out:
                ranks[place] = rank
            self._join(tokens, ranks, at)
        return tokens

    def _join(self, tokens: list[int], ranks: list[int], at: int) -> None:
        tokens[at : at + 2] = [self._products[ranks.pop(at)]]
        if at > 0:
            ranks[at - 1] = self._rank(tokens[at - 1], tokens[at])
        if at < len(ranks):
            ranks[at] = self._rank(tokens[at], tokens[at + 1])

    def _rank(self, left: int, right: int) -> int:
        return self._ranks.get((left, right), _NO_MERGE)
