"""Attention along a band: every token attends to those near it, and other scores are never built.

The row is cut into chunks; a chunk of queries attends to its own keys and those around it.
Time and memory grow with the length of the row times the width of the band.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from attendo.nn.numerics import widen

NARROWEST = 32
"""Fewest tokens of a chunk: smaller matrix products would be slower than what they save."""

NEVER = -1e30
"""Score of a masked key; finite, so that gradients are."""


class Averages(NamedTuple):
    """The outputs of attention to some keys, and the weight of those keys among all."""

    values: Float[Tensor, "*R T J"]
    log_sums: Float[Tensor, "*R T"]
    """Logarithm of the sum of the exponentials of the scores."""


class Band(NamedTuple):
    """How far tokens attend."""

    before: int
    after: int

    @property
    def chunk(self) -> int:
        """Return the number of queries of a chunk."""
        return max(self.before, self.after, NARROWEST)

    @property
    def width(self) -> int:
        """Return the number of keys of a chunk."""
        return self.before + self.chunk + self.after

    def offsets(self, device: torch.device) -> Int[Tensor, "C B"]:
        """Return the distance of each key of a chunk from each of its queries."""
        tokens = torch.arange(self.chunk, device=device)[:, None]
        return torch.arange(-self.before, self.chunk + self.after, device=device) - tokens

    def is_near(self, device: torch.device) -> Bool[Tensor, "C B"]:
        """Return which keys of a chunk each of its queries may attend to."""
        offsets = self.offsets(device)
        return (offsets >= -self.before) & (offsets <= self.after)

    def askers(self, x: Tensor, dim: int, fill: float = 0.0) -> Tensor:
        """Split a row into chunks of queries: `dim` becomes (chunks, queries of a chunk)."""
        padded = _padded(x, dim, (0, -x.shape[dim] % self.chunk), fill)
        cut: Tensor = padded.unflatten(dim, (-1, self.chunk))
        return cut

    def asked(self, x: Tensor, dim: int, fill: float = 0.0) -> Tensor:
        """Split a row into chunks of keys: `dim` becomes (chunks, keys of a chunk)."""
        rest = -x.shape[dim] % self.chunk
        padded = _padded(x, dim, (self.before, rest + self.after), fill)
        keys = padded.unfold(dim, self.width, self.chunk)
        return keys.movedim(-1, dim + 1 if dim >= 0 else dim)


def _padded(x: Tensor, dim: int, sides: tuple[int, int], fill: float) -> Tensor:
    after = [0, 0] * (x.ndim - 1 - dim if dim >= 0 else -dim - 1)
    return functional.pad(x, (*after, *sides), value=fill)


Adjust = Callable[[Float[Tensor, "*R N C B"]], Float[Tensor, "*R N C B"]]
"""Changes the scores of the chunks before the softmax."""


def band_attention(
    q: Float[Tensor, "*R T K"],
    k: Float[Tensor, "*R T K"],
    v: Float[Tensor, "*R T J"],
    labels: Int[Tensor, "*L T"],
    band: Band,
    adjust: Adjust | None = None,
) -> Averages:
    """Attend from every token to those near it with the same label, which must not be negative."""
    queries, keys, values = band.askers(q, -2), band.asked(k, -2), band.asked(v, -2)
    # As in the fused kernels: products in the precision given, all between them at least in fp32.
    scores = widen(queries @ keys.mT)
    scores = scores.mul_(q.shape[-1] ** -0.5)  # in place: scores are what takes time and memory
    if adjust is not None:
        scores = adjust(scores)
    own, others = band.askers(labels, -1, -1.0), band.asked(labels, -1, -2.0)
    allowed = (own[..., :, None] == others[..., None, :]) & band.is_near(q.device)
    scores = torch.where(allowed, scores, NEVER)
    found = scores.softmax(dim=-1).to(v.dtype) @ values
    # Separately, although the softmax computes it: where it is not needed, nothing is kept.
    log_sums = scores.logsumexp(dim=-1)
    length = q.shape[-2]
    return Averages(found.flatten(-3, -2)[..., :length, :], log_sums.flatten(-2)[..., :length])


def merge(parts: Averages, dim: int) -> Averages:
    """Merge the outputs for several sets of keys, which are stacked along `dim`.

    `dim` counts from the left, and is one of those before the tokens.
    """
    total = parts.log_sums.logsumexp(dim=dim)
    shares = (parts.log_sums - total.unsqueeze(dim)).exp()[..., None].to(parts.values.dtype)
    return Averages((parts.values * shares).sum(dim=dim), total)
