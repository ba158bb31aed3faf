"""Hypotheses: what a search of any engine finds, and how they are ranked."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from attendo.config import DecodingConfig
from attendo.errors import ConfigError

STRATEGIES = dict.fromkeys(("beam", "greedy", "sample"))
"""The names of all ways to search (`decoding/`)."""

NOT_FINITE = (
    "the model's output is not finite (NaN or infinity): its parameters are damaged or too "
    "large; restore model.safetensors or train again"
)

LONGEST_LOOP = 10
"""Most tokens in a block whose repetition is noticed; longer loops meet the length limit."""


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


def check_n_best(decoding: DecodingConfig, n_best: int) -> None:
    """Raise an error if a search cannot find as many hypotheses a sentence."""
    if n_best < 1:
        raise ConfigError(f"n_best = {n_best}: request at least one hypothesis per sentence")
    if decoding.strategy == "greedy" and n_best > 1:
        raise ConfigError(
            f"n_best = {n_best}, but greedy search finds one hypothesis a sentence; "
            'set decoding.strategy = "beam" or "sample"'
        )
    if decoding.strategy == "beam" and n_best > decoding.beam:
        raise ConfigError(
            f"n_best = {n_best} is more than decoding.beam = {decoding.beam} can find; "
            "raise decoding.beam or request fewer"
        )


def find_loop(tokens: Sequence[int], start: int, times: int) -> int | None:
    """Return the length at which tokens first end with one block, `times` times in a row.

    All of it is after `start`. None: there is no such length.
    """
    if not tokens or max(Counter(tokens).values()) < times:  # the usual case, decided quickly
        return None
    for length in range(start + times, len(tokens) + 1):
        for block in range(1, min(LONGEST_LOOP, (length - start) // times) + 1):
            first = length - block * times
            if tokens[first + block : length] == tokens[first : length - block]:
                return length
    return None
