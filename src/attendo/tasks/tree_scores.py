"""How well trees are predicted: bracketing precision, recall and F1 by the rules of evalb.

The rules are those of Collins's parameter file, with which parsers of English are compared:
labelled constituents, without TOP and without punctuation, ADVP and PRT alike. Parts of speech are
no constituents. Which words are punctuation is decided by the tags of the expected tree, since a
predicted tag must not change what is counted.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from attendo.data.corpus import Numbers
from attendo.errors import DataError
from attendo.text.trees import TOP, TRACE, Tree

DELETED = frozenset((TOP, TRACE, ",", ":", "``", "''", "."))
"""Words with these tags, and constituents with these labels, are not counted."""

EQUAL = {"PRT": "ADVP"}
"""Labels that count as others."""

RESAMPLES = 1000


class Counts(NamedTuple):
    """What is counted in one sentence."""

    matched: int
    expected: int
    predicted: int


@dataclass(frozen=True, slots=True)
class TreeScores:
    """Bracketing scores in percent; higher is better."""

    f1: float
    """Harmonic mean of precision and recall, over all constituents of the test set."""
    f1_interval: tuple[float, float]
    """95 % confidence interval by bootstrap resampling of the sentences."""
    precision: float
    """Share of the predicted constituents that are right."""
    recall: float
    """Share of the expected constituents that are found."""
    exact: float
    """Share of the sentences whose constituents are all right."""
    tag_accuracy: float
    """Share of the words with the right part of speech; not part of F1."""
    well_formed: float
    """Share of the predictions that are one tree over exactly the given words."""
    sentences: int
    words: int

    def to_dict(self) -> dict[str, Any]:
        """Return the scores by name."""
        return {name: getattr(self, name) for name in self.__slots__}


def count(expected: Tree, predicted: Tree) -> Counts | None:
    """Count the constituents of a sentence; None if it has only punctuation, as evalb does."""
    is_counted = [tag not in DELETED for tag in expected.tags()]
    if not any(is_counted):
        return None
    places = np.concatenate(([0], np.cumsum(is_counted))).tolist()
    wanted, found = (_constituents(tree, places) for tree in (expected, predicted))
    return Counts((wanted & found).total(), wanted.total(), found.total())


def _constituents(tree: Tree, places: list[int]) -> Counter[tuple[str, int, int]]:
    """Return the constituents of a tree, without punctuation; one of punctuation alone is none."""
    spans = ((label, places[start], places[end]) for label, start, end in tree.spans())
    return Counter(
        (EQUAL.get(label, label), start, end)
        for label, start, end in spans
        if start < end and label not in DELETED
    )


def score_trees(expected: Sequence[Tree], predicted: Sequence[Tree]) -> TreeScores:
    """Score predicted trees; one that is not over the expected words has no right constituent."""
    if not expected:
        raise DataError("no trees to score: give at least one")
    pairs = list(zip(expected, predicted, strict=True))
    is_whole = [one.words() == other.words() for one, other in pairs]
    counted = [
        count(one, other if whole else Tree(TOP, tuple(one.leaves())))
        for (one, other), whole in zip(pairs, is_whole, strict=True)
    ]
    counts = np.array([one for one in counted if one is not None] or [Counts(0, 0, 0)])
    precision, recall, f1 = _rates(counts.sum(axis=0))
    n_right = sum(
        one == other
        for (gold, found), whole in zip(pairs, is_whole, strict=True)
        if whole
        for one, other in zip(gold.tags(), found.tags(), strict=True)
    )
    n_words = sum(len(tree.words()) for tree in expected)
    return TreeScores(
        f1=_percent(f1),
        f1_interval=_interval(counts),
        precision=_percent(precision),
        recall=_percent(recall),
        exact=_percent((counts == counts[:, :1]).all(axis=1).mean()),
        tag_accuracy=_percent(n_right / n_words),
        well_formed=_percent(sum(is_whole) / len(is_whole)),
        sentences=len(expected),
        words=n_words,
    )


def _rates(sums: Numbers) -> tuple[Any, Any, Any]:
    """Return precision, recall and F1 of sums of `Counts`, or of many rows of them."""
    matched, expected, predicted = np.moveaxis(np.asarray(sums, dtype=float), -1, 0)
    precision = matched / np.maximum(predicted, 1)
    recall = matched / np.maximum(expected, 1)
    return precision, recall, 2 * matched / np.maximum(expected + predicted, 1)


def _interval(counts: Numbers) -> tuple[float, float]:
    """Return the 95 % confidence interval of F1 over resampled sentences, always the same ones."""
    chance = np.random.default_rng(0)
    n = len(counts)
    sums = np.stack([counts[chance.integers(n, size=n)].sum(axis=0) for _ in range(RESAMPLES)])
    low, high = np.percentile(_rates(sums)[2], (2.5, 97.5))
    return _percent(low), _percent(high)


def _percent(share: Any) -> float:
    return round(100 * float(share), 2)
