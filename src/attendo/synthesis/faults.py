"""Translations that nobody should learn from: empty, in a loop, far too long or too short."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from attendo.errors import DataError
from attendo.synthesis.shards import Outcome

RATIO = 3
"""Most times as many characters as the other side."""

SLACK = 20
"""Characters more that are always allowed: a ratio says little about short texts."""

LOOPS = 4
"""Times that the same one to four words in a row make a loop."""

_LETTERS = re.compile(r"([^\W\d_]{1,4})\1{7}")
"""The same letters eight times in a row."""


def find_fault(source: str, translation: str) -> str | None:
    """Return what is obviously wrong with a translation; None if nothing is."""
    if not translation.strip():
        return "empty"
    short, long = sorted((len(source), len(translation)))
    if long > RATIO * short + SLACK:
        return "length"
    if _repeats(translation) and not _repeats(source):
        return "repetition"
    return None


def _repeats(text: str) -> bool:
    """Return whether a text is caught in a loop of words or letters."""
    words = text.split()
    return any(_loops(words, n) for n in range(1, 5)) or _LETTERS.search(text) is not None


def _loops(words: list[str], n: int) -> bool:
    """Return whether `n` words are repeated; dots, dashes and numbers may be."""
    length = 0
    for place, (one, other) in enumerate(zip(words, words[n:], strict=False)):
        length = length + 1 if one == other else 0
        is_loop = length == (LOOPS - 1) * n
        if is_loop and any(map(str.isalpha, "".join(words[place : place + n]))):
            return True
    return False


def without_faults(outcomes: Iterable[Outcome], dropped: Counter[str]) -> Iterator[Outcome]:
    """Leave out bad translations, and texts that have no other; these are counted by reason.

    Raises:
        DataError: Nothing is left.
    """
    n_good = 0
    for one in outcomes:
        faults = [find_fault(one.source, text) for text in one.translations]
        good = [text for text, fault in zip(one.translations, faults, strict=True) if fault is None]
        if good:
            n_good += 1
            yield one._replace(translations=good)
        else:
            dropped[next((fault for fault in faults if fault), "unfinished")] += 1
    if not n_good:
        reasons = ", ".join(f"{count:,} × {reason}" for reason, count in dropped.items())
        raise DataError(
            f"none of the translations can be used ({reasons}); translate with a better model"
        )
