"""Laws behind measured points: growth, decay, and where two curves cross."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from attendo.compare.report.wording import Number


class Line(NamedTuple):
    """A straight line through points, and how well it fits."""

    slope: float
    r_squared: float


def straight(x: Sequence[Number], y: Sequence[Number]) -> Line:
    """Fit a line by least squares; R² is 1 for points that lie on it."""
    across, up = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    slope, offset = np.polyfit(across, up, 1)
    missed = float(((up - slope * across - offset) ** 2).sum())
    spread = float(((up - up.mean()) ** 2).sum())
    return Line(float(slope), 1.0 if spread == 0 else 1 - missed / spread)


def growth(x: Sequence[Number], y: Sequence[Number]) -> Line:
    """Fit y ~ x^slope: 1 for work that doubles with the length, 2 for work that quadruples."""
    return straight(np.log(x).tolist(), np.log(y).tolist())


def decay(x: Sequence[Number], y: Sequence[Number]) -> Line:
    """Fit y ~ exp(slope · x): exp(slope) is the factor that a step of x brings."""
    return straight(x, np.log(y).tolist())


def crossing(x: Sequence[Number], y: Sequence[Number], other: Sequence[Number]) -> float | None:
    """Find from where on y stays below the other curve; None if at the end it is not below.

    Between two points both are taken for powers of x, straight lines on logarithmic paper.
    """
    gaps = [math.log(below) - math.log(above) for below, above in zip(y, other, strict=True)]
    if gaps[-1] >= 0:
        return None
    from_here = float(x[0])
    for (left, before), (right, after) in pairwise(zip(x, gaps, strict=True)):
        if before >= 0 > after:
            share = before / (before - after)
            from_here = math.exp(math.log(left) + share * math.log(right / left))
    return from_here
