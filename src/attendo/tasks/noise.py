"""Noise in training pairs, drawn anew each time they are read, and repeated exactly on resume."""

import random
from collections.abc import Mapping

import numpy as np
from jaxtyping import Int

from attendo.config import NoiseConfig
from attendo.data.corpus import Ragged, joined, ragged
from attendo.text import NOISES, Tokenizer, add_noise


class PairNoise:
    """Adds noise to some of the encoded pairs that training reads."""

    def __init__(self, shares: NoiseConfig, tokenizers: Mapping[str, Tokenizer]) -> None:
        self.tokenizers = tokenizers
        """By the name of the column: source and target."""
        self.bounds = np.cumsum([getattr(shares, kind) for kind in NOISES])

    def __call__(
        self, columns: Mapping[str, Ragged], chance: np.random.Generator
    ) -> dict[str, Ragged]:
        """Return the columns, some pairs with noise."""
        kinds = self._draw(len(columns["source"].offsets) - 1, chance)
        chosen = np.flatnonzero(kinds < len(NOISES))
        drawn = random.Random(int(chance.integers(2**62)))
        before = {name: column.take(chosen) for name, column in columns.items()}
        texts = zip(
            *(
                [self.tokenizers[name].decode(ids) for ids in column.sequences()]
                for name, column in before.items()
            ),
            strict=True,
        )
        names = list(NOISES)
        noisy = [
            add_noise(names[kind], pair, drawn)
            for kind, pair in zip(kinds[chosen], texts, strict=True)
        ]
        return {
            name: self._put(columns[name], chosen, name, [pair[side] for pair in noisy])
            for side, name in enumerate(columns)
        }

    def _draw(self, n: int, chance: np.random.Generator) -> Int[np.ndarray, " n"]:
        """Choose a kind of noise for each pair, by number; most have none, the last number."""
        return np.searchsorted(self.bounds, chance.random(n), side="right")

    def _put(
        self, column: Ragged, chosen: Int[np.ndarray, " chosen"], name: str, texts: list[str]
    ) -> Ragged:
        """Return a column with other texts in some places."""
        places = np.arange(len(column.offsets) - 1)
        places[chosen] = len(places) + np.arange(len(chosen))
        return joined([column, ragged(self.tokenizers[name].encode_batch(texts))]).take(places)
