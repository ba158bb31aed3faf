"""What was found in the slots, in memory that the device writes and the CPU reads.

A slot that is done is reported once, at the end of some steps, with the number of these steps. So
the CPU can read it while the device already runs the next ones.

Shapes: B slots, H hypotheses of each (1 in greedy search and sampling), T tokens.
"""

from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attendo.decoding.slots import Slots
from attendo.hypotheses import Hypothesis

NEVER = torch.iinfo(torch.int64).max
NOTHING, CUT, ENDED = 0, 1, 2
"""Kinds of hypotheses: there is none; one without eos; one that has ended with eos."""


@dataclass(frozen=True)
class Reports:
    """The hypotheses of each slot that is done."""

    tokens: Int[Tensor, "B H T"]
    lengths: Int[Tensor, "B H"]
    scores: Float[Tensor, "B H"]
    kinds: Int[Tensor, "B H"]
    done_at: Int[Tensor, " B"]
    """The number of the steps with which it was done, or NEVER."""

    @classmethod
    def empty(cls, slots: Slots, *, is_beam: bool) -> "Reports":
        """Return reports of nothing for some slots; a GPU writes them to the CPU's own memory."""
        n_slots, n_beams, length = slots.tokens.shape
        n_places = slots.ended_scores.shape[1] + n_beams if is_beam else 1
        is_pinned = slots.tokens.is_cuda

        def full(*shape: int, dtype: torch.dtype = torch.int32, value: int = 0) -> Tensor:
            return torch.full((n_slots, *shape), value, dtype=dtype, pin_memory=is_pinned)

        return cls(
            tokens=full(n_places, length),
            lengths=full(n_places),
            scores=full(n_places, dtype=torch.float32),
            kinds=full(n_places),
            done_at=full(dtype=torch.int64, value=NEVER),
        )

    def first(self, n_slots: int) -> "Reports":
        """Return those of the first slots."""
        return Reports(*(getattr(self, field.name)[:n_slots] for field in fields(self)))

    def find_done(self, number: int) -> list[int]:
        """Return the slots that were done with these steps, or before."""
        found: list[int] = np.flatnonzero(self.done_at.numpy() <= number).tolist()
        return found

    def take(self, slots: list[int]) -> "Columns":
        """Copy what was found in some slots, which can be used again then."""
        fields = (self.tokens, self.lengths, self.scores, self.kinds)
        columns = Columns(*(field.numpy()[slots] for field in fields))
        self.done_at.numpy()[slots] = NEVER
        return columns


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


def report(slots: Slots, reports: Reports, number: Int[Tensor, " 1"]) -> None:
    """Report the slots that are done and have not been reported."""
    is_new = ~(slots.is_open | slots.is_reported)
    n_new = is_new[:, None]
    is_beam = reports.kinds.shape[1] > 1
    tokens, lengths, scores, kinds = _branches(slots) if is_beam else _paths(slots)
    reports.tokens.copy_(torch.where(n_new[..., None], tokens, reports.tokens))
    reports.lengths.copy_(torch.where(n_new, lengths, reports.lengths))
    reports.scores.copy_(torch.where(n_new, scores, reports.scores))
    reports.kinds.copy_(torch.where(n_new, kinds, reports.kinds))
    reports.done_at.copy_(torch.where(is_new, number, reports.done_at))
    slots.is_reported.logical_or_(is_new)


def _paths(slots: Slots) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the only hypothesis of each slot."""
    kinds = torch.where(slots.n_ended > 0, ENDED, CUT)
    return slots.tokens, slots.lengths[:, None], slots.scores, kinds[:, None]


def _branches(slots: Slots) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the hypotheses of each slot: those that have ended, then those that were cut."""
    places = torch.arange(slots.ended_scores.shape[1], device=slots.tokens.device)
    is_ended = places < slots.n_ended[:, None]
    lengths = slots.lengths[:, None].expand_as(slots.is_cut)
    return (
        torch.cat((slots.ended_tokens, slots.tokens), dim=1),
        torch.cat((slots.ended_lengths, lengths), dim=1),
        torch.cat((slots.ended_scores, slots.scores), dim=1),
        torch.cat((is_ended * ENDED, slots.is_cut * CUT), dim=1),
    )
