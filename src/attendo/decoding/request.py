"""The input of a search and its results: requests and hypotheses."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic

import torch
from torch import Tensor

from attendo.config import DecodingConfig
from attendo.decoding.rows import State
from attendo.errors import ConfigError
from attendo.specials import Specials

NOT_FINITE = (
    "the model's output is not finite (NaN or infinity): its parameters are damaged or too "
    "large; restore model.safetensors or train again"
)

Step = Callable[[Tensor, State], tuple[Tensor, State]]
"""Last tokens (B) and a state to logits (B V) and the next state; a state is used only once."""

Allow = Callable[[Tensor, Tensor, int], Tensor]
"""Tokens so far (R T), sentences (R) and the size V of the vocabulary to what may follow (R V)."""


@dataclass(frozen=True, kw_only=True)
class Request(Generic[State]):
    """B sentences to be searched together; the results do not depend on how they are batched.

    Raises:
        ConfigError: if a forced prefix does not fit into its sentence or holds a special token.
    """

    step: Step[State]
    """Predicts the next token of every row."""
    state: State
    """The decoder's state before the first token, B rows."""
    max_lengths: Sequence[int]
    """Most tokens for each sentence, forced prefix included and eos not counted."""
    numbers: Sequence[int]
    """Number of each sentence among all that are translated: part of the seed of sampling."""
    specials: Specials
    """Ids of pad, bos and eos in the target vocabulary."""
    device: torch.device
    """Device of the state."""
    prefixes: Sequence[Sequence[int]] = ()
    """Tokens each sentence must begin with; empty when nothing is forced."""
    allow: Allow | None = None
    """Decides which tokens may follow, such as those that keep brackets well-formed."""
    on_token: Callable[[int, int], bool] | None = None
    """Called with a sentence and each token chosen for it; True ends the sentence after it.

    For greedy search and sampling; a beam decides only at the end.
    """

    def __post_init__(self) -> None:
        sentences = len(self.max_lengths)
        assert len(self.numbers) == sentences, "one number for each sentence"
        assert len(self.prefixes) in (0, sentences), "one prefix for each sentence, or none at all"
        for number, prefix, limit in zip(
            self.numbers, self.prefixes, self.max_lengths, strict=bool(self.prefixes)
        ):
            _check_prefix(f"the forced prefix of sentence {number}", prefix, limit, self.specials)


def _check_prefix(name: str, prefix: Sequence[int], limit: int, specials: Specials) -> None:
    if len(prefix) > limit:
        raise ConfigError(
            f"{name} has {len(prefix)} tokens, but at most {limit} are allowed for this sentence; "
            "shorten the prefix or raise decoding.max_extra"
        )
    if special := set(prefix) & set(specials):
        raise ConfigError(
            f"{name} holds the special tokens {sorted(special)}; "
            "give text only: bos and eos are added by the search"
        )


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


def check_n_best(options: DecodingConfig, n_best: int) -> None:
    """Raise ConfigError if a search cannot find that many hypotheses a sentence."""
    if n_best < 1:
        raise ConfigError(f"n_best = {n_best}: request at least one hypothesis per sentence")
    if options.strategy == "greedy" and n_best > 1:
        raise ConfigError(
            f"n_best = {n_best}, but greedy search finds one hypothesis a sentence; "
            'set decoding.strategy = "beam" or "sample"'
        )
    if options.strategy == "beam" and n_best > options.beam:
        raise ConfigError(
            f"n_best = {n_best} is more than decoding.beam = {options.beam} can find; "
            "raise decoding.beam or request fewer"
        )
