"""Sentences sorted into groups of about the same size: by length, or by how far words reach."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple


class Bucket(NamedTuple):
    """Some of the things that were measured: those with a value from `low` to `high`."""

    low: int
    high: int
    members: list[int]
    """Their places in what was given."""

    @property
    def label(self) -> str:
        """Name the values: 4–7, or 4."""
        return f"{self.low}–{self.high}" if self.low < self.high else str(self.low)


def make_buckets(values: Sequence[int], count: int) -> list[Bucket]:
    """Cut values into up to `count` ranges that hold about equally many.

    The same value is never in two buckets, so there may be fewer.
    """
    if not values:
        return []
    edges = [*_edges(values, count), max(values) + 1]
    buckets = []
    for low, end in pairwise(edges):
        members = [place for place, value in enumerate(values) if low <= value < end]
        held = [values[place] for place in members]
        buckets.append(Bucket(min(held), max(held), members))
    return buckets


def _edges(values: Sequence[int], count: int) -> list[int]:
    """Find the lowest value of every bucket, each as near as it can be to its equal share."""
    below, shares = 0, {}
    for value, number in sorted(Counter(values).items()):
        shares[value] = below / len(values)
        below += number
    wanted = [part / count for part in range(count)]
    return sorted({min(shares, key=lambda value: abs(shares[value] - share)) for share in wanted})
