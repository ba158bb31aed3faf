"""Whether a difference between two systems could be chance: sacrebleu's paired bootstrap.

It shows whether two systems would be in the same order on other test sentences of the same kind.
It does not show what another training, with another random seed, would have given.

Two systems that have learned nothing are not tested: their outputs may well differ, but not in how
good a translation they are.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from attendo.metrics import Scores, score

LEVEL = 0.05
"""Chance of a false alarm, over all comparisons together."""

RESAMPLES = 1000

METRICS = ("BLEU", "chrF")

FEWEST = 30
"""Fewest test sentences for a test: resamples of fewer are too similar."""

Output = tuple[str, Sequence[str]]
"""The name of a system and its translations."""


class Quality(NamedTuple):
    """How good translations are, with 95 % confidence intervals."""

    scores: Scores
    chrf_interval: tuple[float, float]
    exact: float
    """Share of the translations that are the reference, word for word."""


class Verdict(NamedTuple):
    """The result of a test of two systems."""

    better: str
    worse: str
    metric: str
    difference: float
    p: float
    """Chance of so large a difference between equals; 1 if there is none."""
    p_of_all: float
    """The same, corrected for the number of comparisons (Holm)."""
    is_tested: bool = True
    """False for two systems that have learned nothing; then both chances are 1."""

    @property
    def is_significant(self) -> bool:
        """Return whether the difference is significant."""
        return self.p_of_all < LEVEL


def measure_quality(translations: Sequence[str], references: Sequence[str]) -> Quality:
    """Score the translations of one system."""
    right = sum(one == other for one, other in zip(translations, references, strict=True))
    return Quality(
        score(translations, references, n_bootstrap=RESAMPLES),
        chrf_with_interval(translations, references)[1],
        right / len(references),
    )


def chrf_with_interval(
    translations: Sequence[str], references: Sequence[str]
) -> tuple[float, tuple[float, float]]:
    """Compute chrF and its 95 % confidence interval."""
    _, (own,) = next(iter(_bootstrap([("", translations)], references, ["chrF"], RESAMPLES)))
    mean, half = float(own.mean), float(own.ci)
    return float(own.score), (max(0.0, round(mean - half, 2)), min(100.0, round(mean + half, 2)))


def has_learned(
    sources: Sequence[str], translations: Sequence[str], references: Sequence[str]
) -> bool:
    """Return whether translations depend on their sources.

    They do if their chrF is significantly higher than that of the same translations exchanged
    among sources of about the same length. For few sentences it cannot be tested, and is assumed.
    """
    if len(references) < FEWEST:
        return True
    by_length = sorted(range(len(sources)), key=lambda place: len(sources[place]))
    exchanged = list(translations)
    for place, neighbour in pairwise([*by_length, by_length[0]]):
        exchanged[place] = translations[neighbour]
    others = [("exchanged", exchanged)]
    [verdict] = _against("own", translations, others, references, ["chrF"], RESAMPLES)
    return verdict.better == "own" and verdict.is_significant


def compare_all(
    translations: Mapping[str, Sequence[str]],
    references: Sequence[str],
    untrained: Collection[str] = (),
) -> list[Verdict]:
    """Test every pair of systems by BLEU and chrF; the better one comes first.

    Two systems that are both among the untrained are compared, but not tested.
    """
    names = list(translations)
    n_samples = count_resamples(len(names))
    verdicts: list[Verdict] = []
    for number, name in enumerate(names[:-1]):
        others = [(other, translations[other]) for other in names[number + 1 :]]
        verdicts += _against(name, translations[name], others, references, METRICS, n_samples)
    verdicts = [
        one._replace(p=1.0, p_of_all=1.0, is_tested=False)
        if one.better in untrained and one.worse in untrained
        else one
        for one in verdicts
    ]
    return [
        verdict
        for metric in METRICS
        for verdict in _corrected([one for one in verdicts if one.metric == metric])
    ]


def count_resamples(n_systems: int) -> int:
    """Return how many samples are needed for the p-values of so many comparisons."""
    return max(RESAMPLES, 100 * n_systems * (n_systems - 1))


def _against(
    name: str,
    outputs: Sequence[str],
    others: Sequence[Output],
    references: Sequence[str],
    metrics: Sequence[str],
    n_samples: int,
) -> list[Verdict]:
    """Test one system against some others."""
    found = []
    tested = _bootstrap([(name, outputs), *others], references, metrics, n_samples)
    for metric, (own, *rest) in tested:
        for (other, _), result in zip(others, rest, strict=True):
            difference = float(own.score - result.score)
            # sacrebleu tests one side, but which system is better is not known beforehand.
            p = min(1.0, 2 * float(result.p_value))
            # No difference is no evidence, though the formula's chance of it is near zero.
            p = p if abs(difference) > 1e-9 and len(references) >= FEWEST else 1.0
            better, worse = (name, other) if difference >= 0 else (other, name)
            found.append(Verdict(better, worse, metric, abs(difference), p, p))
    return found


def _bootstrap(
    systems: Sequence[Output], references: Sequence[str], metrics: Sequence[str], n_samples: int
) -> Iterator[tuple[str, list[Any]]]:
    """Run the bootstrap test of sacrebleu; yield its results metric by metric."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.significance import PairedTest

    makers = {"BLEU": BLEU, "chrF": CHRF}
    for metric in metrics:
        chosen = {metric: makers[metric](references=[references])}
        test = PairedTest(list(systems), chosen, None, test_type="bs", n_samples=n_samples)
        _, results = test()
        [title] = [title for title in results if title != "System"]  # such as chrF2
        yield metric, results[title]


def _corrected(verdicts: list[Verdict]) -> list[Verdict]:
    """Correct the p-values for multiple tests (Holm)."""
    tested = [place for place, verdict in enumerate(verdicts) if verdict.is_tested]
    highest, corrected = 0.0, list(verdicts)
    for rank, place in enumerate(sorted(tested, key=lambda place: verdicts[place].p)):
        highest = max(highest, min(1.0, verdicts[place].p * (len(tested) - rank)))
        corrected[place] = verdicts[place]._replace(p_of_all=highest)
    return corrected
