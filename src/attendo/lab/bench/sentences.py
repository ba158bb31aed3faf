"""Generated sentences: random token ids with the lengths of real text."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attendo.config import Recipe
from attendo.data.corpus import Corpus, MemorySide, Numbers, Ragged
from attendo.errors import ConfigError
from attendo.specials import NAMES
from attendo.tasks import LanguageModel, Translation
from attendo.text import Tokenizer

MEAN_LENGTH = 27.0
"""Tokens a side of WMT's English-German news; picture captions have about 13."""

SPREAD = 0.6
"""Standard deviation of the logarithm of the lengths: many short sentences, few long ones."""

UNEVENNESS = 0.15
"""The same for how much longer one side is than the other."""


class Sentences(NamedTuple):
    """Pairs of sentences as ids, without special tokens."""

    source: Ragged
    target: Ragged

    @property
    def size(self) -> int:
        """Return the number of pairs."""
        return len(self.source.offsets) - 1

    def corpus(self, columns: Sequence[str] = ("source", "target")) -> Corpus:
        """Return the pairs, or with one column the targets alone, as training reads them."""
        sides = (self.source, self.target)[-len(columns) :]
        named = {name: MemorySide(side) for name, side in zip(columns, sides, strict=True)}
        return Corpus(named, self.size)

    def source_ids(self, number: int) -> list[int]:
        """Return the source of a pair."""
        return _ids(self.source, number)

    def target_ids(self, number: int) -> list[int]:
        """Return the target of a pair."""
        return _ids(self.target, number)

    def source_texts(self) -> list[str]:
        """Write the sources in the words of `numbered_tokenizer`."""
        return [" ".join(map(str, self.source_ids(number))) for number in range(self.size)]


def _ids(side: Ragged, number: int) -> list[int]:
    start, end = side.offsets[number : number + 2]
    ids: list[int] = side.ids[start:end].tolist()
    return ids


def draw_sentences(n_pairs: int, recipe: Recipe, mean_length: float, seed: int) -> Sentences:
    """Draw pairs with lengths like those of real text, cut at data.max_length."""
    check_mean_length(recipe, mean_length)
    longest = recipe.data.max_length - 1  # one place is for </s>
    chance = np.random.default_rng(seed)
    source, target = draw_lengths(n_pairs, mean_length, longest, chance)
    vocabulary = recipe.tokenizer.vocabulary
    return Sentences(_fill(source, vocabulary, chance), _fill(target, vocabulary, chance))


def check_mean_length(recipe: Recipe, mean_length: float) -> None:
    """Raise an error if sentences of the recipe cannot have this mean length."""
    longest = recipe.data.max_length - 2  # one place is for </s>, and the mean is not the maximum
    if not 1 <= mean_length <= longest:
        raise ConfigError(
            f"--mean-length {mean_length:g} does not fit data.max_length = "
            f"{recipe.data.max_length}; give a number from 1 to {longest}"
        )


def draw_lengths(
    n_pairs: int, mean: float, longest: int, chance: np.random.Generator
) -> tuple[Numbers, Numbers]:
    """Draw the lengths of both sides: log-normal, and long sources have long targets."""
    source = mean * _around_one(SPREAD, n_pairs, chance)
    target = source * _around_one(UNEVENNESS, n_pairs, chance)
    return _whole(source, longest), _whole(target, longest)


def _around_one(sigma: float, size: int, chance: np.random.Generator) -> NDArray[np.float64]:
    """Draw factors whose mean is 1."""
    return chance.lognormal(-(sigma**2) / 2, sigma, size)


def _whole(lengths: NDArray[np.float64], longest: int) -> Numbers:
    whole: Numbers = lengths.round().clip(1, longest).astype(np.int64)
    return whole


def _fill(lengths: Numbers, vocabulary: int, chance: np.random.Generator) -> Ragged:
    """Draw ids so that the n-th is about n times rarer than the first, as words are (Zipf)."""
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    room = vocabulary - len(NAMES)
    ids = len(NAMES) - 1 + (room ** chance.random(int(offsets[-1]))).astype(np.int64)
    return Ragged(ids, offsets)


def numbered_task(recipe: Recipe) -> Any:
    """Return a task whose words are numbers, with as many of them as the recipe's vocabulary."""
    tokenizer = numbered_tokenizer(recipe.tokenizer.vocabulary)
    if recipe.task == "language-model":
        return LanguageModel(tokenizer, recipe.data)
    if recipe.task == "translation":
        return Translation(tokenizer, tokenizer, recipe.data.max_length)
    raise ConfigError(
        f"the speed of the task {recipe.task!r} cannot be measured with generated text; "
        "give a recipe of translation or language-model"
    )


def numbered_tokenizer(size: int) -> Tokenizer:
    """Build a tokenizer in which token 17 is the word "17"; the special tokens come first."""
    words = [*NAMES, *map(str, range(len(NAMES), size))]
    vocabulary = {word: number for number, word in enumerate(words)}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"}
    whole = {"version": "1.0", "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": model}
    empty = ("truncation", "padding", "normalizer", "post_processor", "decoder")
    return Tokenizer.from_json(json.dumps({**whole, "added_tokens": [], **dict.fromkeys(empty)}))
