"""BERT's masking: which tokens of a text are to be guessed, and what is in their place.

The number of tokens to guess follows from the length of a text alone, so that the most that a row
of a batch can have is known before.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool
from numpy.typing import NDArray

from attendo.data.corpus import Numbers, Ragged, offsets_of
from attendo.specials import IGNORE

MASKED, REPLACED = 0.8, 0.1
"""Shares of the tokens to guess that are masked, and that are replaced; the others are kept."""


def n_guessed(lengths: Numbers, share: float) -> Numbers:
    """Return how many tokens of texts of these lengths are to be guessed: at least one."""
    counts: Numbers = np.maximum(1, np.rint(share * lengths).astype(np.int64))
    return counts


def most_guessed(width: int, share: float) -> int:
    """Return the most tokens to guess in a row; each text has two special tokens besides."""
    lengths = np.arange(1, max(2, width - 1))
    densest = float((n_guessed(lengths, share) / (lengths + 2)).max())
    return max(1, int(densest * width + 1e-6))


@dataclass(frozen=True, slots=True, eq=False)
class Masking:
    """Chooses tokens of texts at random and hides most of them."""

    share: float
    """Of the tokens of a text that are to be guessed."""
    mask: int
    """The id of the mask token."""
    replacements: Numbers
    """Ids that a token can be replaced with."""
    continues: Bool[np.ndarray, " V"] | None = None
    """To mask whole words: for each id whether it continues the word of the token before it."""

    def apply(self, text: Ragged, chance: np.random.Generator) -> tuple[Ragged, Ragged]:
        """Return the texts with hidden tokens, and the tokens to guess as labels."""
        chosen = self._choose(text, chance)
        labels = np.full(len(text.ids), IGNORE, dtype=np.int64)
        labels[chosen] = text.ids[chosen]
        ids = text.ids.copy()
        lots = chance.random(len(chosen))
        ids[chosen[lots < MASKED]] = self.mask
        replaced = chosen[(lots >= MASKED) & (lots < MASKED + REPLACED)]
        ids[replaced] = chance.choice(self.replacements, len(replaced))
        return Ragged(ids, text.offsets), Ragged(labels, text.offsets)

    def _choose(self, text: Ragged, chance: np.random.Generator) -> Numbers:
        """Choose words in random order while they fit into the number of tokens to guess."""
        left = n_guessed(text.lengths(), self.share)
        words = self._words(text, left)
        order = np.argsort(words.texts + chance.random(len(words.texts)))
        n_words = np.bincount(words.texts, minlength=len(left))
        starts = offsets_of(n_words)[:-1]
        is_chosen = np.zeros(len(order), dtype=bool)
        for rank in range(max(n_words, default=0)):
            texts = np.flatnonzero((n_words > rank) & (left > 0))
            if not len(texts):
                break
            next_ones = order[starts[texts] + rank]
            fits = words.sizes[next_ones] <= left[texts]
            is_chosen[next_ones[fits]] = True
            left[texts[fits]] -= words.sizes[next_ones[fits]]
        return np.flatnonzero(np.repeat(is_chosen, words.sizes))

    def _words(self, text: Ragged, room: Numbers) -> "_Words":
        """Find the words; every token is one where whole words are not wanted, or do not fit."""
        if self.continues is None:
            return _Words.of(text, np.ones(len(text.ids), dtype=bool))
        begins = ~self.continues[text.ids]
        begins[text.positions() == 0] = True
        words = _Words.of(text, begins)
        shortest = np.full(len(room), len(text.ids))
        np.minimum.at(shortest, words.texts, words.sizes)
        return _Words.of(text, begins | np.repeat(shortest > room, text.lengths()))


class _Words(NamedTuple):
    """Tokens that are hidden together."""

    texts: Numbers
    """The number of the text that each belongs to."""
    sizes: NDArray[np.int64]
    """In tokens."""

    @classmethod
    def of(cls, text: Ragged, begins: Bool[np.ndarray, " tokens"]) -> "_Words":
        """Find the words, given which tokens begin one."""
        starts = np.flatnonzero(begins)
        texts = np.searchsorted(text.offsets, starts, side="right") - 1
        return cls(texts, np.diff(np.append(starts, len(text.ids))))
