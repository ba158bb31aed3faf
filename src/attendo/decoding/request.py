"""The input of a search: requests."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

import torch
from torch import Tensor

from attendo.decoding.rows import State
from attendo.errors import ConfigError
from attendo.specials import Specials

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
