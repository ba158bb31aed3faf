"""Positional encodings (§3.5).

A kind overrides any of three hooks, each of which does nothing by default: `embed` adds to the
embeddings, `rotate` returns a rotation of queries and keys, `bias` adds to the attention scores.
All of them take the positions of the grid, so a packed sequence is encoded as if it stood alone.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attendo.config import BlockConfig


class Rotation(NamedTuple):
    """Cosine and sine of the angles of a rotary embedding; the same in all heads and layers."""

    cos: Float[Tensor, "R T half"]
    sin: Float[Tensor, "R T half"]

    def __call__(self, x: Float[Tensor, "R H T K"]) -> Float[Tensor, "R H T K"]:
        """Rotate pairs of coordinates of queries or keys."""
        cos, sin = (table.to(x.dtype)[:, None].repeat_interleave(2, dim=-1) for table in self)
        first, second = x.unflatten(-1, (-1, 2)).unbind(-1)
        # In this order the result lies in memory as x does, and nothing has to be copied later.
        return x * cos + torch.stack((-second, first), dim=-1).flatten(-2) * sin


class Positions(nn.Module):
    """No positions at all: the output of the encoder does not depend on the order of its input."""

    def __init__(self, block: BlockConfig) -> None:
        super().__init__()

    def embed(
        self, x: Float[Tensor, "R T D"], positions: Int[Tensor, "R T"]
    ) -> Float[Tensor, "R T D"]:
        """Return the embeddings with their positions."""
        return x

    def rotate(self, positions: Int[Tensor, "R T"]) -> Rotation | None:
        """Return how queries and keys are rotated."""
        return None

    def bias(
        self, queries: Int[Tensor, "R T"], keys: Int[Tensor, "R S"]
    ) -> Float[Tensor, "R H T S"] | None:
        """Return what is added to the scores before the softmax."""
        return None


def _frequencies(width: int, device: torch.device) -> Float[Tensor, " half"]:
    """Return 1 / 10000^(2i / width): wavelengths from 2π to 10000 · 2π, a geometric progression."""
    steps = torch.arange(0, width, 2, device=device, dtype=torch.float32)
    return torch.exp(steps * (-math.log(10000.0) / width))


def _angles(positions: Int[Tensor, "R T"], width: int) -> Float[Tensor, "R T half"]:
    return positions[..., None].float() * _frequencies(width, positions.device)


class Sinusoidal(Positions):
    """The paper's: PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) the cosine."""

    def embed(
        self, x: Float[Tensor, "R T D"], positions: Int[Tensor, "R T"]
    ) -> Float[Tensor, "R T D"]:
        """Add the waves."""
        angles = _angles(positions, x.shape[-1])
        return x + self.order(angles.sin(), angles.cos()).to(x.dtype)

    def order(
        self, sines: Float[Tensor, "R T half"], cosines: Float[Tensor, "R T half"]
    ) -> Float[Tensor, "R T D"]:
        """Alternate sines and cosines."""
        return torch.stack((sines, cosines), dim=-1).flatten(-2)


class SinusoidalHalves(Sinusoidal):
    """The same waves in another order, as in Marian: first all sines, then all cosines."""

    def order(
        self, sines: Float[Tensor, "R T half"], cosines: Float[Tensor, "R T half"]
    ) -> Float[Tensor, "R T D"]:
        """Return sines and cosines side by side."""
        return torch.cat((sines, cosines), dim=-1)


class Learned(Positions):
    """One learned vector a position; those past the end of the table share its last vector."""

    def __init__(self, block: BlockConfig) -> None:
        super().__init__(block)
        self.table = nn.Embedding(block.max_positions, block.d_model)
        nn.init.normal_(self.table.weight, std=0.02)

    def embed(
        self, x: Float[Tensor, "R T D"], positions: Int[Tensor, "R T"]
    ) -> Float[Tensor, "R T D"]:
        """Add the learned vectors."""
        learned: Tensor = self.table(positions.clamp(max=self.table.num_embeddings - 1))
        return x + learned


class Rotary(Positions):
    """Su et al. 2021: rotate pairs of coordinates, so that a score depends on the distance."""

    def __init__(self, block: BlockConfig) -> None:
        super().__init__(block)
        self.width = block.d_model // block.n_heads

    def rotate(self, positions: Int[Tensor, "R T"]) -> Rotation | None:
        """Rotate coordinate pair i of position p by the angle p / 10000^(2i/d_k)."""
        angles = _angles(positions, self.width)
        return Rotation(angles.cos(), angles.sin())


class Alibi(Positions):
    """Press et al. 2022: the farther a key, the lower its score, at another rate for each head."""

    def __init__(self, block: BlockConfig) -> None:
        super().__init__(block)
        # Slopes 2^(-8/H), 2^(-16/H), ..., 2^-8: from a slow to a fast decay.
        exponents = torch.arange(1, block.n_heads + 1) * (8 / block.n_heads)
        self.slopes: Tensor
        self.register_buffer("slopes", 2.0**-exponents, persistent=False)

    def bias(
        self, queries: Int[Tensor, "R T"], keys: Int[Tensor, "R S"]
    ) -> Float[Tensor, "R H T S"] | None:
        """Return minus slope times distance."""
        distance = (queries[:, None, :, None] - keys[:, None, None, :]).abs()
        return -distance * self.slopes[:, None, None]


POSITIONS: dict[str, type[Positions]] = {
    "sinusoidal": Sinusoidal,
    "sinusoidal-halves": SinusoidalHalves,
    "learned": Learned,
    "rotary": Rotary,
    "alibi": Alibi,
    "none": Positions,
}
