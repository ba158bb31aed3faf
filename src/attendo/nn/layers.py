"""The layers of figure 1: sub-layers, each within a residual connection and a norm (§3.1)."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attendo.config import BlockConfig, choose
from attendo.nn.attention.base import Pattern
from attendo.nn.feedforward import FEED_FORWARDS, FeedForward
from attendo.nn.multihead import AttentionRecord, KeysValues, MultiHeadAttention
from attendo.nn.numerics import Dropout

NORMS: dict[str, type[nn.LayerNorm] | type[nn.RMSNorm]] = {
    "layer": nn.LayerNorm,
    "rms": nn.RMSNorm,
}


def make_norm(block: BlockConfig) -> nn.Module:
    """Build the norm that a recipe names."""
    return choose(NORMS, block.norm, "model.norm")(block.d_model, eps=block.norm_epsilon)


def make_feed_forward(block: BlockConfig) -> FeedForward:
    """Build the feed-forward network that a recipe names."""
    return choose(FEED_FORWARDS, block.feed_forward, "model.feed_forward")(block)


Sublayer = Callable[[Float[Tensor, "R T D"]], Float[Tensor, "R T D"]]


class Residual(nn.Module):
    """A residual connection with a norm around a sub-layer."""

    def __init__(self, block: BlockConfig) -> None:
        super().__init__()
        self.norm = make_norm(block)
        self.dropout = Dropout(block.p_drop)

    def forward(self, x: Float[Tensor, "R T X"], sublayer: Sublayer) -> Float[Tensor, "R T X"]:
        """Apply the sub-layer."""
        raise NotImplementedError


class PostNorm(Residual):
    """The paper's: normalise after the sum."""

    def forward(self, x: Float[Tensor, "R T D"], sublayer: Sublayer) -> Float[Tensor, "R T D"]:
        """Return LayerNorm(x + Dropout(Sublayer(x)))."""
        normed: Tensor = self.norm(x + self.dropout(sublayer(x)))
        return normed


class PreNorm(Residual):
    """More stable in deep stacks: normalise before the sub-layer."""

    def forward(self, x: Float[Tensor, "R T D"], sublayer: Sublayer) -> Float[Tensor, "R T D"]:
        """Return x + Dropout(Sublayer(LayerNorm(x)))."""
        total: Tensor = x + self.dropout(sublayer(self.norm(x)))
        return total


class Reversible(PreNorm):
    """Pre-norm with two halves side by side in x (Gomez et al. 2017; Reformer, §3).

    A sub-layer of the second half is added to the first, and they change places. So the input can
    be computed from the output, which saves memory in training (`fast/reversible.py`).
    """

    def forward(self, x: Float[Tensor, "R T X"], sublayer: Sublayer) -> Float[Tensor, "R T X"]:
        """Return the second half, and beside it the first plus Sublayer(LayerNorm(second))."""
        first, second = x.chunk(2, dim=-1)
        return torch.cat((second, first + self.addition(second, sublayer)), dim=-1)

    def addition(self, x: Float[Tensor, "R T D"], sublayer: Sublayer) -> Float[Tensor, "R T D"]:
        """Return what is added to the other half."""
        added: Tensor = self.dropout(sublayer(self.norm(x)))
        return added


def make_residual(block: BlockConfig) -> Residual:
    """Build the residual connection that a recipe describes."""
    if block.reversible:
        return Reversible(block)
    return PreNorm(block) if block.norm_order == "pre" else PostNorm(block)


class Records(NamedTuple):
    """Where a layer writes what its attentions compute; None: nowhere."""

    attention: list[AttentionRecord] | None = None
    cross: list[AttentionRecord] | None = None


class Layer(nn.Module):
    """Self-attention, attention to a memory if there is one, feed-forward."""

    def __init__(self, block: BlockConfig, *, cross: bool = False) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(block)
        self.around_self = make_residual(block)
        self.has_cross = cross
        if cross:
            self.cross_attention = MultiHeadAttention(block, is_cross=True)
            self.around_cross = make_residual(block)
        self.feed_forward = make_feed_forward(block)
        self.around_feed_forward = make_residual(block)

    def forward(
        self,
        x: Float[Tensor, "R T X"],
        pattern: Pattern,
        memory: Float[Tensor, "R S D"] | None = None,
        memory_pattern: Pattern | None = None,
        records: Records = Records(),  # noqa: B008 -- a constant
    ) -> Float[Tensor, "R T X"]:
        """Apply the sub-layers one after the other."""
        x = self.around_self(x, lambda x: self.self_attention(x, x, pattern, records.attention))
        if self.has_cross:
            x = self.around_cross(
                x, lambda x: self.cross_attention(x, memory, memory_pattern, records.cross)
            )
        output: Tensor = self.around_feed_forward(x, self.feed_forward)
        return output

    def step(
        self,
        x: Float[Tensor, "R 1 X"],
        pattern: Pattern,
        past: KeysValues,
        memory: KeysValues | None = None,
        memory_pattern: Pattern | None = None,
    ) -> tuple[Float[Tensor, "R 1 X"], KeysValues]:
        """Run one more token of every row; return also the cache with that token."""
        present = past

        def attend(x: Tensor) -> Tensor:
            nonlocal present
            present = past.followed_by(self.self_attention.keys_values(x, pattern))
            return self.self_attention.step(x, present, pattern)

        def attend_to_memory(x: Tensor) -> Tensor:
            assert memory is not None
            assert memory_pattern is not None
            # Hypotheses of one source share its keys, like the tokens of one row.
            queries = x.reshape(memory.keys.shape[0], -1, x.shape[-1])
            return self.cross_attention.attend(queries, memory, memory_pattern).reshape_as(x)

        x = self.around_self(x, attend)
        if self.has_cross:
            x = self.around_cross(x, attend_to_memory)
        x = self.around_feed_forward(x, self.feed_forward)
        return x, present
