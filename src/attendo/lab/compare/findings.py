"""All numbers of a comparison in one place; `report.json` is this and nothing else."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from attendo.config import DataConfig
from attendo.lab.compare.dependencies import Dependency, Kind, find_dependencies
from attendo.lab.compare.measure import Measured
from attendo.lab.compare.plan import Budget
from attendo.lab.compare.significance import (
    Verdict,
    chrf_with_interval,
    compare_all,
    has_learned,
)
from attendo.tasks.base import Metric


class Bucket(NamedTuple):
    """Some of the things that were measured: those with a value from `low` to `high`."""

    low: int
    high: int
    members: list[int]
    """Their places in what was given."""

    @property
    def label(self) -> str:
        """Return the range as text: 4–7, or 4."""
        return f"{self.low}–{self.high}" if self.low < self.high else str(self.low)


def make_buckets(values: Sequence[int], count: int) -> list[Bucket]:
    """Split values into up to `count` ranges of about equal size.

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


LENGTHS = 5
DISTANCES = 3
"""Groups of sentences, and of words that depend on others: of the latter there are fewer."""

FEWEST = 10
"""Members that a group needs, more or less, for its score to mean something."""

SAME = 1.05
"""Ratio up to which two budgets are the same: steps are whole."""

UNEVEN = 1.2
"""Ratio of the largest to the smallest model from which on a comparison is called uneven."""

Interval = tuple[float, float]
Scorer = Callable[[list[str], Bucket], tuple[float, Interval]]
"""Scores the translations of one group."""


class Breakdown(NamedTuple):
    """A score in every group of something, for every system."""

    key: str
    groups: list[str]
    counts: list[int]
    scores: dict[str, list[float]]
    """From 0 to 100, by the name of the system, one for each group."""
    intervals: dict[str, list[Interval]]
    """95 % confidence, in the same order."""
    baseline: tuple[float, ...] = ()
    """The score of always giving the most frequent answer, where there are few answers."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """What all systems learned from and were tested on."""

    name: str
    is_builtin: bool
    training_pairs: int
    test_pairs: int


@dataclass(frozen=True, slots=True)
class Findings:
    """What a comparison has found; the best system, by the metric of the task, comes first.

    Verdicts, breakdowns and what has learned nothing are known of translations only.
    """

    systems: list[Measured]
    verdicts: list[Verdict]
    breakdowns: dict[str, Breakdown]
    """By source length (`length`), and for the built-in corpus by distance (`pronoun`, `verb`)."""
    corpus: Corpus
    budget: Budget
    is_same_budget: bool
    """Whether all had the same number of target tokens, or the same time."""
    untrained: list[str]
    """Systems whose translations do not depend on their sources."""
    failed: dict[str, str]
    """Systems that could not be trained, and why."""

    @property
    def metric(self) -> Metric:
        """The metric of the task."""
        return self.systems[0].metric

    @property
    def is_translation(self) -> bool:
        """Whether there are translations to compare."""
        return self.systems[0].quality is not None

    @property
    def names(self) -> list[str]:
        """Return the names of the systems, the best first."""
        return [system.name for system in self.systems]

    @property
    def size_ratio(self) -> float:
        """Return the ratio of the largest model to the smallest."""
        counts = [system.n_parameters for system in self.systems]
        return max(counts) / min(counts)

    def verdict(self, one: str, other: str, metric: str = "BLEU") -> Verdict:
        """Return the result of the test of two systems."""
        return next(
            verdict
            for verdict in self.verdicts
            if verdict.metric == metric and {verdict.better, verdict.worse} == {one, other}
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values; what all systems share occurs once."""
        first = self.systems[0]
        shared = {"sources", "references", "translations", "recipe", "machine", "metric"}
        return {
            "metric": self.metric._asdict(),
            "budget": self.budget._asdict(),
            "is_same_budget": self.is_same_budget,
            "corpus": asdict(self.corpus),
            "size_ratio": self.size_ratio,
            "systems": [
                {
                    **{key: _plain(value) for key, value in _fields(system) if key not in shared},
                    "recipe": system.recipe.model_dump(mode="json"),
                    "machine": system.machine,
                }
                for system in self.systems
            ],
            "significance": [
                {**verdict._asdict(), "is_significant": verdict.is_significant}
                for verdict in self.verdicts
            ],
            "breakdowns": {key: one._asdict() for key, one in self.breakdowns.items()},
            "untrained": self.untrained,
            "failed": self.failed,
            "sentences": [
                {
                    "source": source,
                    "reference": first.references[number],
                    "translations": {one.name: one.translations[number] for one in self.systems},
                }
                for number, source in enumerate(first.sources)
            ],
        }


def find(
    systems: Sequence[Measured],
    data: DataConfig,
    budget: Budget,
    failed: dict[str, str],
    n_tests: int,
) -> Findings:
    """Compare systems that have been measured."""
    metric = systems[0].metric
    ranked = sorted(systems, key=lambda one: one.score, reverse=metric.higher_is_better)
    sources, references = ranked[0].sources, ranked[0].references
    outputs = {system.name: system.translations for system in ranked}
    corpus = Corpus(
        name=_corpus_name(data),
        is_builtin=bool(data.builtin),
        training_pairs=max(system.training.pairs for system in systems),
        test_pairs=n_tests,
    )
    is_translation = ranked[0].quality is not None
    breakdowns = _breakdowns(corpus, sources, references, outputs) if is_translation else []
    untrained = [
        name
        for name, texts in outputs.items()
        if is_translation and not has_learned(sources, texts, references)
    ]
    return Findings(
        systems=ranked,
        verdicts=compare_all(outputs, references, untrained) if is_translation else [],
        breakdowns={one.key: one for one in breakdowns},
        corpus=corpus,
        budget=budget,
        is_same_budget=budget.kind == "seconds" or _have_same_tokens(systems),
        untrained=untrained,
        failed=failed,
    )


def _have_same_tokens(systems: Sequence[Measured]) -> bool:
    counts = [system.training.padded_tokens for system in systems]
    return max(counts) <= SAME * min(counts)


def _corpus_name(data: DataConfig) -> str:
    if data.builtin:
        return "the built-in English-German corpus"
    return ", ".join((*data.source, *data.target, *data.pairs, *data.files))


def _breakdowns(
    corpus: Corpus, sources: list[str], references: list[str], outputs: dict[str, list[str]]
) -> list[Breakdown]:
    found = [by_length(sources, references, outputs)]
    if corpus.is_builtin:
        known = find_dependencies(sources, references)
        kinds: tuple[Kind, ...] = ("pronoun", "verb")
        found += [by_distance(kind, known, outputs) for kind in kinds]
    return [one for one in found if len(one.groups) > 1]


def by_length(
    sources: list[str], references: list[str], outputs: dict[str, list[str]]
) -> Breakdown:
    """Score short and long sentences apart, by chrF, which is fit for few sentences."""
    buckets = _buckets([len(source.split()) for source in sources], LENGTHS)

    def score(texts: list[str], bucket: Bucket) -> tuple[float, Interval]:
        chosen = [texts[place] for place in bucket.members]
        right = [references[place] for place in bucket.members]
        return chrf_with_interval(chosen, right)

    return _breakdown("length", buckets, outputs, score)


def by_distance(
    kind: Kind, dependencies: Sequence[Dependency], outputs: dict[str, list[str]]
) -> Breakdown:
    """Count how often words are right that depend on others near by and far off."""
    chosen = [one for one in dependencies if one.kind == kind]
    buckets = _buckets([one.distance for one in chosen], DISTANCES)

    def score(texts: list[str], bucket: Bucket) -> tuple[float, Interval]:
        members = [chosen[place] for place in bucket.members]
        n_right = sum(one.is_met(texts[one.sentence]) for one in members)
        return 100 * n_right / len(members), wilson(n_right, len(members))

    found = _breakdown(kind, buckets, outputs, score)
    if kind != "pronoun":
        return found
    answers = [Counter(chosen[place].expected for place in bucket.members) for bucket in buckets]
    return found._replace(baseline=tuple(100 * max(n.values()) / n.total() for n in answers))


def _buckets(values: list[int], count: int) -> list[Bucket]:
    """Return so many buckets, or as many as have enough members."""
    return make_buckets(values, max(1, min(count, len(values) // FEWEST)))


def _breakdown(
    key: str, buckets: list[Bucket], outputs: dict[str, list[str]], score: Scorer
) -> Breakdown:
    scored = {name: [score(texts, one) for one in buckets] for name, texts in outputs.items()}
    return Breakdown(
        key=key,
        groups=[bucket.label for bucket in buckets],
        counts=[len(bucket.members) for bucket in buckets],
        scores={name: [value for value, _ in found] for name, found in scored.items()},
        intervals={name: [interval for _, interval in found] for name, found in scored.items()},
    )


def wilson(n_right: int, count: int) -> Interval:
    """Return the 95 % interval of a percentage by Wilson's formula, which suits few cases."""
    z = 1.96
    share, spread = n_right / count, z * z / count
    centre = (share + spread / 2) / (1 + spread)
    half = z * (share * (1 - share) / count + spread / (4 * count)) ** 0.5 / (1 + spread)
    return max(0.0, 100 * (centre - half)), min(100.0, 100 * (centre + half))


def _fields(system: Measured) -> list[tuple[str, Any]]:
    return [(name, getattr(system, name)) for name in Measured.__dataclass_fields__]


def _plain(value: Any) -> Any:
    """Convert named tuples and dataclasses to dictionaries, recursively."""
    if hasattr(value, "_asdict"):
        return {key: _plain(inner) for key, inner in value._asdict().items()}
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
