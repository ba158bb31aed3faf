"""Encoder and decoder layers: sub-layers, each within a residual connection and a norm (§3.1)."""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from attendo.config import BlockConfig, choose
from attendo.nn import kernels
from attendo.nn.dropout import Dropout
from attendo.nn.feedforward import FEED_FORWARDS, FeedForward
from attendo.nn.multihead import AttentionRecord, KeysValues, MultiHeadAttention, Sight

if kernels.AVAILABLE:
    from attendo.nn.kernels.residual import fits, norm_of_sum

NORMS: dict[str, type[nn.LayerNorm] | type[nn.RMSNorm]] = {
    "layer": nn.LayerNorm,
    "rms": nn.RMSNorm,
}


def make_norm(block: BlockConfig) -> nn.Module:
    """Build the norm that a recipe names."""
    return choose(NORMS, block.norm, "model.norm")(block.d_model, eps=1e-5)


def make_feed_forward(block: BlockConfig) -> FeedForward:
    """Build the feed-forward network that a recipe names."""
    return choose(FEED_FORWARDS, block.feed_forward, "model.feed_forward")(block)


class Residual(nn.Module):
    """What surrounds a sub-layer.

    Post-norm, the paper's: LayerNorm(x + Dropout(Sublayer(x))).
    Pre-norm, steadier in deep stacks: x + Dropout(Sublayer(LayerNorm(x))).
    """

    def __init__(self, block: BlockConfig) -> None:
        super().__init__()
        self.norm = make_norm(block)
        self.dropout = Dropout(block.p_drop)
        self.is_pre = block.norm_order == "pre"

    def enter(self, x: Float[Tensor, "R T D"]) -> Float[Tensor, "R T D"]:
        """Prepare the sub-layer's input."""
        inside: Tensor = self.norm(x) if self.is_pre else x
        return inside

    def leave(
        self, x: Float[Tensor, "R T D"], result: Float[Tensor, "R T D"]
    ) -> Float[Tensor, "R T D"]:
        """Add the sub-layer's result to what went past it."""
        if kernels.AVAILABLE and not self.is_pre and fits(x, result, self.norm):
            p_drop = self.dropout.p if self.training else 0.0
            return norm_of_sum(x, result, self.norm, p_drop)
        total: Tensor = x + self.dropout(result)
        return total if self.is_pre else self.norm(total)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, block: BlockConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(block)
        self.around_self = Residual(block)
        self.feed_forward = make_feed_forward(block)
        self.around_feed_forward = Residual(block)

    def forward(
        self, x: Float[Tensor, "R T D"], sight: Sight, *, record: bool = False
    ) -> tuple[Float[Tensor, "R T D"], AttentionRecord | None]:
        """Let the tokens look at each other, then transform each."""
        inside = self.around_self.enter(x)
        result, recorded = self.self_attention.attend(inside, None, sight, record=record)
        x = self.around_self.leave(x, result)
        inside = self.around_feed_forward.enter(x)
        return self.around_feed_forward.leave(x, self.feed_forward(inside)), recorded


class Decoded(NamedTuple):
    """What a decoder layer makes of whole rows."""

    x: Float[Tensor, "R T D"]
    looked_back: AttentionRecord | None
    """Self-attention, if it was to be recorded."""
    looked_across: AttentionRecord | None
    """Encoder-decoder attention, if it was to be recorded."""


class DecoderLayer(nn.Module):
    """Self-attention, then encoder-decoder attention, then feed-forward."""

    def __init__(self, block: BlockConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(block)
        self.around_self = Residual(block)
        self.cross_attention = MultiHeadAttention(block)
        self.around_cross = Residual(block)
        self.feed_forward = make_feed_forward(block)
        self.around_feed_forward = Residual(block)

    def forward(
        self,
        x: Float[Tensor, "R T D"],
        sight: Sight,
        memory: Float[Tensor, "R S D"],
        memory_sight: Sight,
        *,
        record: bool = False,
    ) -> Decoded:
        """Look at the target so far, then at the source, then transform each token."""
        inside = self.around_self.enter(x)
        result, looked_back = self.self_attention.attend(inside, None, sight, record=record)
        x = self.around_self.leave(x, result)
        inside = self.around_cross.enter(x)
        result, looked_across = self.cross_attention.attend(
            inside, memory, memory_sight, record=record
        )
        x = self.around_cross.leave(x, result)
        return Decoded(self._transform(x), looked_back, looked_across)

    def step(
        self,
        x: Float[Tensor, "R 1 D"],
        sight: Sight,
        past: KeysValues,
        memory: KeysValues,
        memory_sight: Sight,
    ) -> tuple[Float[Tensor, "R 1 D"], KeysValues]:
        """Do the same for one more token of every row; returns what the next one needs."""
        queries, new = self.self_attention.project(self.around_self.enter(x), sight)
        present = past.followed_by(new)
        result, _ = self.self_attention(queries, present, sight)
        x = self.around_self.leave(x, result)
        queries = self.cross_attention.queries(self.around_cross.enter(x))
        result, _ = self.cross_attention(queries, memory, memory_sight)
        return self._transform(self.around_cross.leave(x, result)), present

    def _transform(self, x: Float[Tensor, "R T D"]) -> Float[Tensor, "R T D"]:
        inside = self.around_feed_forward.enter(x)
        return self.around_feed_forward.leave(x, self.feed_forward(inside))
