"""An n-gram model with interpolated Kneser-Ney smoothing, over any sequence of numbers.

Chen and Goodman 1999, with one discount for each order. What a model of this kind needs is counted
with sorted arrays, so that millions of symbols take seconds.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Numbers = NDArray[np.float64]

UNSEEN = -1
"""Number of an n-gram that was not in the training text."""


class Order(NamedTuple):
    """The n-grams of one length, and how the last symbol is spread after the others."""

    codes: Integers
    """Each different n-gram, sorted: the number of its beginning, then its last symbol."""
    counts: Numbers
    """How often it occurs; in lower orders, after how many different symbols."""
    totals: Numbers
    """For each beginning, the sum of the counts."""
    discount: float
    shares: Numbers
    """For each beginning, the share that the discount leaves to the lower order."""


class KneserNey:
    """Probabilities of the next symbol given the n - 1 before it."""

    def __init__(self, symbols: Integers, n: int, vocabulary: int) -> None:
        """Count the n-grams of a text of symbols from 0 to vocabulary - 1."""
        self.vocabulary = vocabulary
        grams = [symbols]  # each n-gram of the text as one number: that of its beginning, a symbol
        for length in range(2, n + 1):
            ranks = np.unique(grams[-1], return_inverse=True)[1]
            grams.append(ranks[:-1] * vocabulary + symbols[length - 1 :])
        self.orders: list[Order] = []
        for shorter, longer in zip(grams, [*grams[1:], None], strict=True):
            n_beginnings = len(self.orders[-1].codes) if self.orders else 1
            self.orders.append(self._order(shorter, longer, n_beginnings))

    def _order(self, grams: Integers, longer: Integers | None, n_beginnings: int) -> Order:
        codes, occurrences = np.unique(grams, return_counts=True)
        counts = occurrences.astype(np.float64)
        if longer is not None:  # different symbols before it, not occurrences
            places = np.unique(longer, return_index=True)[1] + 1
            ranks = np.searchsorted(codes, grams[places])
            counts = np.bincount(ranks, minlength=len(codes)).astype(np.float64)
        once, twice = (counts == 1).sum(), (counts == 2).sum()
        discount = (once + 1) / (once + 2 * twice + 2)  # never 0, or a new symbol would have none
        beginnings = codes // self.vocabulary
        totals = np.bincount(beginnings, counts, n_beginnings)
        taken = np.bincount(beginnings, np.minimum(counts, discount), n_beginnings)
        shares = np.divide(taken, totals, out=np.ones_like(totals), where=totals > 0)
        return Order(codes, counts, totals, float(discount), shares)

    def probabilities(self, symbols: Integers) -> Numbers:
        """Return the probability of each symbol of a text, given those before it."""
        result = np.full(len(symbols), 1.0 / self.vocabulary)
        for length, order in enumerate(self.orders, start=1):
            beginnings = self._beginnings(symbols, length)
            rest = symbols[length - 1 :]
            is_known = (beginnings != UNSEEN) & (order.totals[beginnings] > 0)
            found = np.where(is_known, self._find(order, beginnings, rest), UNSEEN)
            counts = np.where(found != UNSEEN, order.counts[found], 0.0)
            kept = np.maximum(counts - order.discount, 0.0)
            totals = np.where(is_known, order.totals[beginnings], 1.0)
            lower = result[length - 1 :]
            mixed = kept / totals + order.shares[beginnings] * lower
            result[length - 1 :] = np.where(is_known, mixed, lower)
        return result

    def _find(self, order: Order, beginnings: Integers, symbols: Integers) -> Integers:
        """Return the rank of each n-gram among those of an order."""
        codes = beginnings * self.vocabulary + symbols
        ranks = np.minimum(np.searchsorted(order.codes, codes), len(order.codes) - 1)
        is_seen = (order.codes[ranks] == codes) & (beginnings != UNSEEN)
        return np.where(is_seen, ranks, UNSEEN)

    def _beginnings(self, symbols: Integers, length: int) -> Integers:
        """Return the number of what stands before the last symbol of every n-gram of a text."""
        numbers = np.zeros(len(symbols) - length + 1, dtype=np.int64)
        for place in range(length - 1):
            numbers = self._find(self.orders[place], numbers, symbols[place : place + len(numbers)])
        return numbers


def bits_per_symbol(model: KneserNey, symbols: Integers) -> float:
    """Return the mean number of bits that a text needs for each symbol."""
    return float(-np.log2(model.probabilities(symbols)).mean())
