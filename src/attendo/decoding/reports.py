"""What was found, from the memory of the device to hypotheses on the CPU.

Shapes: M entries, K sentences, H hypotheses of each, T tokens.
"""

from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attendo.hypotheses import Hypothesis

NEVER = torch.iinfo(torch.int64).max
NOTHING, CUT, ENDED = 0, 1, 2
"""Kinds of hypotheses: there is none; one without eos; one that has ended with eos."""


@dataclass(frozen=True)
class Reports:
    """What was found for each entry, in memory that a GPU writes and the CPU reads.

    H hypotheses of each, 1 in greedy search and sampling.
    """

    tokens: Int[Tensor, "M H T"]
    lengths: Int[Tensor, "M H"]
    scores: Float[Tensor, "M H"]
    kinds: Int[Tensor, "M H"]
    done_at: Int[Tensor, " M"]
    """The number of the steps with which it was done, or NEVER."""

    @classmethod
    def empty(cls, n_entries: int, n_places: int, length: int, *, is_pinned: bool) -> "Reports":
        """Return reports of nothing."""

        def full(*shape: int, dtype: torch.dtype = torch.int32, value: int = 0) -> Tensor:
            return torch.full((n_entries, *shape), value, dtype=dtype, pin_memory=is_pinned)

        return cls(
            tokens=full(n_places, length),
            lengths=full(n_places),
            scores=full(n_places, dtype=torch.float32),
            kinds=full(n_places),
            done_at=full(dtype=torch.int64, value=NEVER),
        )

    def find_done(self, number: int) -> list[int]:
        """Return the entries that were done with these steps, or before."""
        found: list[int] = np.flatnonzero(self.done_at.numpy() <= number).tolist()
        return found

    def take(self, entries: list[int]) -> "Columns":
        """Copy what was found for some entries, which can be used again then."""
        columns = (self.tokens, self.lengths, self.scores, self.kinds)
        taken = Columns(*(column.numpy()[entries] for column in columns))
        self.done_at.numpy()[entries] = NEVER
        return taken


@dataclass(frozen=True)
class Columns:
    """The hypotheses of K sentences, in H places each."""

    tokens: Int[np.ndarray, "K H T"]
    lengths: Int[np.ndarray, "K H"]
    scores: Float[np.ndarray, "K H"]
    kinds: Int[np.ndarray, "K H"]

    @classmethod
    def joined(cls, parts: list["Columns"]) -> "Columns":
        """Join several."""
        columns = ([getattr(part, field.name) for part in parts] for field in fields(cls))
        return cls(*map(np.concatenate, columns))

    def is_finite(self) -> bool:
        """Return whether all scores are numbers."""
        return not np.isnan(self.scores[self.kinds != NOTHING]).any()

    def best(self, alpha: float, n_best: int) -> list[list[Hypothesis]]:
        """Return the best hypotheses of each sentence, as `rank` sorts them."""
        is_ended, exists = self.kinds == ENDED, self.kinds != NOTHING
        scores = self.scores.astype(np.float64)
        normalised = scores / ((5 + self.lengths + is_ended) / 6) ** alpha  # `length_penalty`
        order = np.lexsort((-normalised, ~is_ended, ~exists))[:, :n_best]
        rows = np.arange(len(order))[:, None]
        longest = self.lengths.max(initial=0)
        chosen = zip(
            self.tokens[..., :longest][rows, order].tolist(),
            self.lengths[rows, order].tolist(),
            scores[rows, order].tolist(),
            self.kinds[rows, order].tolist(),
            strict=True,
        )
        return [
            [
                Hypothesis(tuple(tokens[:length]), score, finished=kind == ENDED)
                for tokens, length, score, kind in zip(*columns, strict=True)
                if kind != NOTHING
            ]
            for columns in chosen
        ]
