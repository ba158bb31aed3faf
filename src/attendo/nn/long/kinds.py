"""The long kinds as parts of a model: what they are told by a recipe and by a grid."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from attendo.config import BlockConfig
from attendo.nn.attention import (
    Attention,
    Bias,
    Found,
    Heads,
    Keys,
    Sight,
    Values,
    Weights,
    attention_scores,
)
from attendo.nn.grid import Grid
from attendo.nn.long.chunks import chunk_attention, chunk_step
from attendo.nn.long.favor import favor_attention, favor_step, orthogonal_features
from attendo.nn.long.lsh import lsh_attention, lsh_step, make_rotations
from attendo.nn.long.window import window_attention, window_step


class Long(Attention):
    """An attention among the tokens of a grid that never sees all pairs."""

    has_mask = False

    def scores(self, q: Heads, k: Keys, bias: Bias) -> Weights:
        """Compute Q Kᵀ / √d_k of all pairs, which it approximates; for looking only."""
        return attention_scores(q, k, bias)

    def weights(self, q: Heads, k: Keys, sight: Sight) -> Weights:
        """Find what each token takes from each by letting every value name its own place."""
        rows, heads, length, _ = k.shape
        places = torch.eye(length, dtype=q.dtype, device=q.device)
        found: Tensor = self(q, k, places.expand(rows, heads, length, length), sight)
        return found


class Window(Long):
    """Longformer's: the neighbours, and the first tokens of the sentence."""

    def __init__(self, block: BlockConfig) -> None:
        super().__init__(block)
        self.window, self.n_global = block.window, block.n_global

    def forward(self, q: Heads, k: Keys, v: Values, sight: Sight) -> Found:
        """Let every token ask its neighbours."""
        grid = _grid(sight)
        where = grid.segments, grid.positions
        return window_attention(q, k, v, *where, self.window, self.n_global, sight.is_causal)

    def step(self, q: Heads, k: Keys, v: Values, sight: Sight) -> Found:
        """Let the newest token ask its neighbours."""
        return window_step(q, k, v, self.window, self.n_global)


class Chunks(Long):
    """The text cut into pieces that overlap."""

    def __init__(self, block: BlockConfig) -> None:
        super().__init__(block)
        self.chunk, self.overlap = block.window, block.overlap

    def forward(self, q: Heads, k: Keys, v: Values, sight: Sight) -> Found:
        """Let every token ask its piece."""
        grid = _grid(sight)
        where = grid.segments, grid.positions
        return chunk_attention(q, k, v, *where, self.chunk, self.overlap, sight.is_causal)

    def step(self, q: Heads, k: Keys, v: Values, sight: Sight) -> Found:
        """Let the newest token ask its piece."""
        return chunk_step(q, k, v, self.chunk, self.overlap)


class Lsh(Long):
    """Reformer's: tokens that point in about the same direction, found by sorting."""

    shares_queries = True

    def __init__(self, block: BlockConfig) -> None:
        super().__init__(block)
        self.reach = block.window
        width = block.d_model // block.n_heads
        sizes = block.n_heads, block.n_rounds, width
        self.rotations = _kept(
            (*sizes, block.n_buckets // 2),
            lambda: make_rotations(*sizes, block.n_buckets, torch.default_generator),
        )

    def scores(self, q: Heads, k: Keys, bias: Bias) -> Weights:
        """Compute the scores of all pairs; keys have length 1."""
        return super().scores(q, functional.normalize(k, dim=-1), bias)

    def forward(self, q: Heads, k: Keys, v: Values, sight: Sight) -> Found:
        """Let every token ask its buckets."""
        segments, is_causal = _grid(sight).segments, sight.is_causal
        return lsh_attention(q, v, self.rotations, segments, reach=self.reach, is_causal=is_causal)

    def step(self, q: Heads, k: Keys, v: Values, sight: Sight) -> Found:
        """Let the newest token ask its buckets."""
        return lsh_step(q, k, v, self.rotations, self.reach)


class Favor(Long):
    """Performer's: all tokens of the sentence, by way of random features."""

    def __init__(self, block: BlockConfig) -> None:
        super().__init__(block)
        width = block.d_model // block.n_heads
        self.features = _kept(
            (block.n_features, width),
            lambda: orthogonal_features(block.n_features, width, torch.default_generator),
        )

    def forward(self, q: Heads, k: Keys, v: Values, sight: Sight) -> Found:
        """Let every token ask the sums over its sentence."""
        return favor_attention(q, k, v, self.features, _grid(sight).segments, sight.is_causal)

    def step(self, q: Heads, k: Keys, v: Values, sight: Sight) -> Found:
        """Let the newest token ask the sums up to itself."""
        return favor_step(q, k, v, self.features)


def _grid(sight: Sight) -> Grid:
    assert sight.grid is not None, "only for the tokens of one grid among themselves"
    return sight.grid


def _kept(shape: tuple[int, ...], draw: Callable[[], Float[Tensor, "..."]]) -> nn.Parameter:
    """Keep random numbers with the parameters: not learned, but part of the model.

    On the meta device, where a model is only measured, none are drawn.
    """
    is_measured = torch.get_default_device().type == "meta"
    return nn.Parameter(torch.empty(shape) if is_measured else draw(), requires_grad=False)
