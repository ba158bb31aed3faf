"""Hypotheses, the results of a search, and their order."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One output for one sentence."""

    ids: tuple[int, ...]
    """Its tokens, without bos and eos."""
    score: float
    """Sum of the model's own log-probabilities of its tokens, eos included when it has one."""
    finished: bool
    """Whether it ended with eos; False when the limit on its length cut it."""

    def normalised(self, alpha: float) -> float:
        """Divide the score by the length penalty, so that long outputs can compete (§6.1)."""
        return self.score / length_penalty(len(self.ids) + self.finished, alpha)


def length_penalty(length: int, alpha: float) -> float:
    """Return ((5 + |Y|) / 6) ** alpha of Wu et al. (2016), which §6.1 uses; |Y| counts eos."""
    return float(((5 + length) / 6) ** alpha)


def rank(hypotheses: Iterable[Hypothesis], alpha: float) -> list[Hypothesis]:
    """Sort best first: by normalised score, and what was cut after all that is finished."""
    return sorted(hypotheses, key=lambda found: (not found.finished, -found.normalised(alpha)))
