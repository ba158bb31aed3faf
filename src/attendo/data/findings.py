"""The findings of `attendo check`, and the evidence for them: scripts and alignment of lines.

A line on the wrong side is found by its script. Misaligned lines are found in any language: long
sentences have long translations, and a number is mostly written the same on both sides; a higher
correlation with a neighbouring line is a sign of a shift.
"""

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attendo.data.readers import Pair

EXAMPLES = 3
"""Lines shown for each finding."""

Severity = Literal["ok", "note", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """One result, in one sentence, with a few example lines."""

    severity: Severity
    sentence: str
    examples: tuple[str, ...] = ()


class Draft(NamedTuple):
    """A finding whose examples are still row numbers."""

    severity: Severity
    sentence: str
    rows: Iterable[int] = ()
    numbers: Mapping[str, int | float] = MappingProxyType({})
    dropped: tuple[str, ...] = ()
    """Examples that never became rows."""


def grade(count: int, total: int, warn_above: float) -> Severity:
    """Return the severity of something that occurs so many times."""
    if not count:
        return "ok"
    return "warning" if count > warn_above * total else "note"


def share(count: int, total: int) -> str:
    """Format a count with its total, and in percent."""
    if not count:
        return f"0 of {total:,}"
    percent = f"{count / total:.1%}" if count >= 0.001 * total else "under 0.1%"
    return f"{count:,} of {total:,} ({percent})"


_HEAD = 300  # characters of a line are enough to judge it
_MIN_LETTERS = 5  # a short name or unit may be in any script
_UNKNOWN = 255

# Japanese mixes three scripts in one sentence, and shares one of them with Chinese.
_FAMILIES = dict.fromkeys(
    ["CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "BOPOMOFO"], "Chinese or Japanese"
)


class Scripts:
    """Numbers for the scripts found so far; 0 is none or no clear one."""

    def __init__(self) -> None:
        self.names = ["none"]
        self._numbers = np.full(0x110000, _UNKNOWN, np.uint8)

    def dominant(self, lines: Sequence[str]) -> NDArray[np.uint8]:
        """Return the number of the script of more than half of the letters of each line."""
        heads = [line[:_HEAD] for line in lines]
        points = np.frombuffer("".join(heads).encode("utf-32-le"), np.uint32)
        for point in np.unique(points[self._numbers[points] == _UNKNOWN]):
            self._numbers[point] = self._number_of(chr(point))
        lengths = np.fromiter(map(len, heads), np.int64, len(heads))
        cells = np.repeat(np.arange(len(heads)) * len(self.names), lengths) + self._numbers[points]
        counts = np.bincount(cells, minlength=len(heads) * len(self.names))
        counts = counts.reshape(len(heads), len(self.names))
        counts[:, 0] = 0
        letters, most = counts.sum(axis=1), counts.max(axis=1)
        clear = (letters >= _MIN_LETTERS) & (2 * most > letters)
        return np.where(clear, counts.argmax(axis=1), 0).astype(np.uint8)

    def _number_of(self, character: str) -> int:
        if not character.isalpha():
            return 0
        plain = unicodedata.normalize("NFKC", character)[0]  # full-width forms and the like
        name = unicodedata.name(plain, "UNNAMED").split()[0].split("-")[0]
        name = _FAMILIES.get(name, name.capitalize())
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)


_NUMBER = re.compile(r"\d{2,18}")  # single digits meet by chance, and are often written as words
_LAGS = range(-3, 4)  # lines
_HERE = _LAGS.index(0)
_WINDOW = 1000  # pairs over which alignment is judged
_MIN_WINDOW = 50
_CHANCE = 10  # how far the sum of evidence falls at random, seldom more


def compare_numbers(pair: Pair) -> int:
    """Return 0 without numbers, 1 if the sides have one in common, 2 if they have none."""
    source, target = _NUMBER.findall(pair.source), _NUMBER.findall(pair.target)
    if not source and not target:
        return 0
    return 2 if {int(number) for number in source}.isdisjoint(map(int, target)) else 1


def judge_alignment(
    source_characters: NDArray[Any], target_characters: NDArray[Any], numbers: NDArray[Any]
) -> Draft:
    """Check by lengths and numbers whether line k belongs to line k, or to a neighbour.

    `numbers` holds the result of `compare_numbers` for every pair.
    """
    n_pairs = len(numbers)
    windows = max(1, n_pairs // _WINDOW)
    size = n_pairs // windows
    if size < _MIN_WINDOW:
        return Draft("note", f"too few pairs to judge the alignment: {n_pairs}")
    source, target = (
        np.log(side[: windows * size]).reshape(windows, size)
        for side in (source_characters, target_characters)
    )
    # Lines that all have the same length are no evidence.
    varied = np.minimum(source.std(axis=1), target.std(axis=1)) > 0.1
    correlations = _correlations(source[varied], target[varied])
    starts = np.flatnonzero(varied) * size
    counts = np.bincount(numbers, minlength=3)
    draft = (
        _shifted(correlations, source, target, starts)
        or _unrelated_lengths(correlations, starts, size)
        or _unrelated_numbers(numbers, counts)
        or Draft("ok", "no sign of misaligned lines")
    )
    evidence: dict[str, int | float] = {
        "pairs_with_a_common_number": int(counts[1]),
        "pairs_with_no_common_number": int(counts[2]),
    }
    if len(starts):
        evidence["length_correlation"] = round(float(correlations[_HERE].mean()), 3)
    return draft._replace(numbers=evidence)


def _correlations(source: NDArray[Any], target: NDArray[Any]) -> NDArray[Any]:
    """Correlate source line k with target line k + lag, for each lag and window."""
    source, target = (
        (lengths - lengths.mean(axis=1, keepdims=True))
        / (lengths.std(axis=1, keepdims=True) * math.sqrt(lengths.shape[1]))
        for lengths in (source, target)
    )
    end = source.shape[1]
    sums = [
        np.einsum(
            "ij,ij->i",
            source[:, max(-lag, 0) : end - max(lag, 0)],
            target[:, max(lag, 0) : end - max(-lag, 0)],
        )
        for lag in _LAGS
    ]
    return np.stack(sums)


def _shifted(
    correlations: NDArray[Any], source: NDArray[Any], target: NDArray[Any], starts: NDArray[Any]
) -> Draft | None:
    here, size = correlations[_HERE], source.shape[1]
    # Five standard errors of a correlation: windows that are shifted, not unlucky.
    found = np.flatnonzero(correlations.max(axis=0) - here > max(0.2, 5 / math.sqrt(size)))
    if not len(found):
        return None
    best = int(correlations[:, found].mean(axis=1).argmax())
    first = int(starts[found[0]])
    # A shift in the second half of a window is found in the next one only.
    before = max(0, first - size)
    region = slice(before, first + size)
    start = before + _locate(source.ravel()[region], target.ravel()[region], _LAGS[best])
    return Draft(
        "warning",
        f"the sides seem shifted, from about pair {start + 1:,} on: by their lengths, source line "
        f"k belongs to target line k{_LAGS[best]:+d} (correlation "
        f"{correlations[best, found].mean():.2f} instead of {here[found].mean():.2f})",
        range(first + size - EXAMPLES, first + size),
    )


def _locate(source: NDArray[Any], target: NDArray[Any], lag: int) -> int:
    """Find the line from which on the lengths fit better with the lag than without it."""
    source, target = ((side - side.mean()) / (side.std() or 1.0) for side in (source, target))
    lines = np.arange(max(0, -lag), len(source) - max(0, lag))
    evidence = source[lines] * (target[lines + lag] - target[lines])
    # Before the shift the evidence is negative, after it positive: the sum is lowest in between.
    total = np.concatenate(([0.0], np.cumsum(evidence)))
    return int(lines[0] + total.argmin()) if total.min() < -_CHANCE else 0


def _unrelated_lengths(correlations: NDArray[Any], starts: NDArray[Any], size: int) -> Draft | None:
    here = correlations[_HERE]
    found = np.flatnonzero(here < 0.25)
    if len(found) <= 0.1 * len(here):
        return None
    return Draft(
        "warning",
        f"from about pair {starts[found[0]] + 1:,} on, the lengths of the two sides are hardly "
        f"correlated ({here[found].mean():.2f}): are these translations?",
        range(starts[found[0]] + size - EXAMPLES, starts[found[0]] + size),
    )


def _unrelated_numbers(numbers: NDArray[Any], counts: NDArray[Any]) -> Draft | None:
    total = int(counts[1] + counts[2])
    if total < 30 or counts[1] >= 0.4 * total:
        return None
    return Draft(
        "warning",
        f"of the pairs with numbers only {share(int(counts[1]), total)} have one in common: "
        "are these translations?",
        np.flatnonzero(numbers == 2),
    )
