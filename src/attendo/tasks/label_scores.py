"""How well labels are predicted: accuracy, F1, Matthews correlation, and F1 of entities."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

Pairs = Sequence[tuple[str, str]]
"""Expected and predicted labels."""


@dataclass(frozen=True, slots=True)
class LabelScores:
    """How often predicted labels are right; higher is better."""

    accuracy: float
    """Share of right labels, in percent."""
    macro_f1: float
    """Mean over labels of the harmonic mean of precision and recall, in percent."""
    matthews: float | None
    """Matthews correlation, from -1 to 1; only where there are two labels."""
    entity_f1: float | None
    """F1 of whole entities, in percent; only for words with BIO labels."""
    f1: dict[str, float]
    """For each label, in percent."""
    confusion: dict[str, dict[str, int]]
    """How often, by label, then by predicted label."""
    counts: dict[str, int]
    """Number of texts, and of words where they are labelled."""

    def to_dict(self) -> dict[str, Any]:
        """Return the scores by name."""
        values = asdict(self)
        del values["counts"]
        return {key: value for key, value in values.items() if value is not None} | self.counts


def score_labels(
    texts: Sequence[Pairs], known: Sequence[str] = (), *, of_words: bool = False
) -> LabelScores:
    """Compare labels with predicted labels, text by text; others may be known as well."""
    pairs = [pair for text in texts for pair in text]
    counts = Counter(pairs)
    labels = sorted({label for pair in pairs for label in pair})
    f1 = {label: _f1(counts, label) for label in labels}
    present = {expected for expected, _ in pairs}
    possible = sorted({*labels, *known})
    is_bio = of_words and _are_bio(possible)
    return LabelScores(
        accuracy=_percent(sum(counts[label, label] for label in labels), len(pairs)),
        macro_f1=round(sum(f1[label] for label in present) / len(present), 2),
        matthews=round(matthews(counts, possible[0]), 4) if len(possible) == 2 else None,
        entity_f1=entity_f1(texts) if is_bio else None,
        f1=f1,
        confusion={
            one: {other: counts[one, other] for other in labels if counts[one, other]}
            for one in sorted(present)
        },
        counts={"words": len(pairs), "texts": len(texts)} if of_words else {"texts": len(texts)},
    )


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 2) if whole else 0.0


def _f1(counts: Mapping[tuple[str, str], int], label: str) -> float:
    total = sum(n for pair, n in counts.items() for one in pair if one == label)
    return _percent(2 * counts.get((label, label), 0), total)


def matthews(counts: Mapping[tuple[str, str], int], positive: str) -> float:
    """Return the Matthews correlation of two labels; 0 if one of them is always predicted."""
    table = Counter[tuple[bool, bool]]()
    for (expected, predicted), n in counts.items():
        table[expected == positive, predicted == positive] += n
    hits, rejections = table[True, True], table[False, False]
    misses, alarms = table[True, False], table[False, True]
    sides = (hits + misses, hits + alarms, rejections + misses, rejections + alarms)
    return (hits * rejections - misses * alarms) / math.sqrt(math.prod(sides) or 1)


def _are_bio(labels: Sequence[str]) -> bool:
    """Return whether labels are B-X at the beginning of an entity, I-X inside it, O elsewhere."""
    is_any = any(label.startswith("B-") for label in labels)
    return is_any and all(label == "O" or label.startswith(("B-", "I-")) for label in labels)


def entity_f1(texts: Sequence[Pairs]) -> float:
    """Return F1 of entities, in percent; one is right if its kind and both of its ends are."""
    expected, predicted = (
        {
            (number, *entity)
            for number, text in enumerate(texts)
            for entity in entities([pair[side] for pair in text])
        }
        for side in (0, 1)
    )
    return _percent(2 * len(expected & predicted), len(expected) + len(predicted))


def entities(labels: Sequence[str]) -> list[tuple[int, int, str]]:
    """List the entities of BIO labels: first word, end and kind.

    As usual, an I-X that continues no X begins an entity.
    """
    found: list[tuple[int, int, str]] = []
    before = "O"
    for place, label in enumerate(labels):
        kind = label[2:]
        if label.startswith("I-") and before[2:] == kind:
            found[-1] = (found[-1][0], place + 1, kind)
        elif label != "O":
            found.append((place, place + 1, kind))
        before = label
    return found
