"""Sentences on the device: they wait in a queue until a slot is free, and leave a report.

A slot that is done takes the next sentence from the queue by itself. So no slot is idle while the
CPU, which may be several steps behind, reads what was found and adds more sentences. A sentence has
an entry until then, with all that does not change while it is searched.

Shapes: M entries, K sentences, R rows of a request, T tokens.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

NONE = -1
"""In place of an entry: there is no sentence."""


@dataclass(frozen=True)
class Entries:
    """What is known of sentences before they are searched, changed in place."""

    limits: Int[Tensor, " M"]
    """Most tokens, eos not counted."""
    starts: Int[Tensor, " M"]
    """Number of forced tokens."""
    prefixes: Int[Tensor, "M T"]
    """Forced tokens."""
    numbers: Float[Tensor, "M T"]
    """Random numbers of sampling, one a step."""
    queue: Int[Tensor, " M"]
    """The entries in the order in which they were added: a ring."""
    n_added: Int[Tensor, " 1"]
    """How many entries were ever added to the queue."""
    n_taken: Int[Tensor, " 1"]
    """How many of them were taken by a slot."""

    @classmethod
    def empty(cls, n_entries: int, length: int, device: torch.device) -> "Entries":
        """Return entries without sentences."""

        def zeros(*shape: int, dtype: torch.dtype = torch.long) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        return cls(
            limits=zeros(n_entries),
            starts=zeros(n_entries),
            prefixes=zeros(n_entries, length),
            numbers=zeros(n_entries, length, dtype=torch.float64),
            queue=zeros(n_entries),
            n_added=zeros(1),
            n_taken=zeros(1),
        )

    def clear(self) -> None:
        """Empty the queue."""
        self.n_added.zero_()
        self.n_taken.zero_()


class Entering(NamedTuple):
    """Sentences of a request for which there are entries."""

    entries: Int[Tensor, " K"]
    rows: Int[Tensor, " K"]
    """Rows of the request."""
    limits: Int[Tensor, " R"]
    starts: Int[Tensor, " R"]
    prefixes: Int[Tensor, "R P"]


def add(entries: Entries, entering: Entering, n_added: int) -> None:
    """Put sentences at the end of the queue, of which so many were added before."""
    chosen, rows = entering.entries, entering.rows
    entries.limits[chosen] = entering.limits[rows]
    entries.starts[chosen] = entering.starts[rows]
    prefixes = entering.prefixes[rows]
    entries.prefixes[chosen, : prefixes.shape[1]] = prefixes
    places = n_added + torch.arange(len(chosen), device=chosen.device)
    entries.queue[places % len(entries.queue)] = chosen
    entries.n_added.fill_(n_added + len(chosen))
