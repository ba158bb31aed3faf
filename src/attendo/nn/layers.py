"""Encoder and decoder layers: sub-layers, each within a residual connection and a norm (§3.1)."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attendo.config import BlockConfig, choose
from attendo.nn import kernels
from attendo.nn.attention import Sight
from attendo.nn.dropout import Dropout
from attendo.nn.feedforward import FEED_FORWARDS, FeedForward
from attendo.nn.multihead import AttentionRecord, KeysValues, MultiHeadAttention
from attendo.nn.unbiased import Unbiased

if kernels.AVAILABLE:
    from attendo.nn.kernels.residual import fits, norm_of_sum, sum_and_norm

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


class Stream(NamedTuple):
    """What flows through a stack, between two sub-layers."""

    x: Float[Tensor, "R T X"]
    """What goes past the next one."""
    inside: Float[Tensor, "R T D"]
    """What goes into it: in a pre-norm stack that with a norm, in the end that of the stack."""


class Residual(nn.Module):
    """What surrounds a sub-layer.

    Post-norm, the paper's: LayerNorm(x + Dropout(Sublayer(x))).
    Pre-norm, steadier in deep stacks: x + Dropout(Sublayer(LayerNorm(x))).
    Reversible, pre-norm with two streams side by side in x: what a sub-layer makes of the second is
    added to the first, and they change places, so that the next one does the same to the other.
    """

    def __init__(self, block: BlockConfig) -> None:
        super().__init__()
        self.norm = make_norm(block)
        self.dropout = Dropout(block.p_drop)
        self.is_pre = block.norm_order == "pre"
        self.is_reversible = block.reversible

    def forward(self, x: Float[Tensor, "R T X"]) -> Float[Tensor, "R T D"]:
        """Prepare the sub-layer's input; called as a module, so that it can be compiled as one."""
        return self._normed(x, self.norm)

    def _normed(self, x: Float[Tensor, "R T X"], norm: nn.Module) -> Float[Tensor, "R T D"]:
        if self.is_reversible:
            _, x = x.chunk(2, dim=-1)
        inside: Tensor = norm(x) if self.is_pre else x
        return inside

    def leave(
        self, x: Float[Tensor, "R T X"], result: Float[Tensor, "R T D"]
    ) -> Float[Tensor, "R T X"]:
        """Add the sub-layer's result to what went past it."""
        if self.is_reversible:
            first, second = x.chunk(2, dim=-1)
            return torch.cat((second, first + self.dropout(result)), dim=-1)
        total: Tensor = x + self.dropout(result)
        return total if self.is_pre else self.norm(total)

    def pass_on(self, x: Float[Tensor, "R T X"], result: Unbiased, following: nn.Module) -> Stream:
        """Leave, and enter what comes next, which has this norm."""
        norm = following if self.is_pre else self.norm
        if kernels.AVAILABLE and not self.is_reversible and fits(x, result, norm):
            add = sum_and_norm if self.is_pre else norm_of_sum
            return Stream(*add(x, result, norm, self.dropout.p if self.training else 0.0))
        x = self.leave(x, result.biased())
        return Stream(x, self._normed(x, following))

    def addition(
        self, sublayer: Callable[[Tensor], Tensor], x: Float[Tensor, "R T D"]
    ) -> Float[Tensor, "R T D"]:
        """Compute what a sub-layer makes of one stream, to be added to the other."""
        added: Tensor = self.dropout(sublayer(self.norm(x)))
        return added


Addition = Callable[..., Float[Tensor, "R T D"]]
"""What a reversible sub-layer adds to one stream, given the other and what all sub-layers share."""


class Layer(nn.Module):
    """What both kinds of layers do: let the tokens look at each other, and transform each."""

    self_attention: MultiHeadAttention
    around_self: Residual
    feed_forward: FeedForward
    around_feed_forward: Residual

    def transform(self, stream: Stream, following: nn.Module) -> Stream:
        """Transform each token."""
        result = self.feed_forward.unbiased(stream.inside)
        return self.around_feed_forward.pass_on(stream.x, result, following)

    def added_by_looking(self, sight: Sight) -> Addition:
        """Say what the tokens' look at each other adds."""

        def attend(inside: Tensor) -> Tensor:
            return self.self_attention.attend(inside, None, sight)[0].biased()

        return lambda x, *_: self.around_self.addition(attend, x)

    def added_by_transforming(self) -> Addition:
        """Say what `transform` adds."""
        return lambda x, *_: self.around_feed_forward.addition(self.feed_forward, x)


class EncoderLayer(Layer):
    """Self-attention, then feed-forward."""

    def __init__(self, block: BlockConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(block)
        self.around_self = Residual(block)
        self.feed_forward = make_feed_forward(block)
        self.around_feed_forward = Residual(block)

    def forward(
        self, stream: Stream, sight: Sight, following: nn.Module, *, record: bool = False
    ) -> tuple[Stream, AttentionRecord | None]:
        """Let the tokens look at each other, then transform each."""
        result, recorded = self.self_attention.attend(stream.inside, None, sight, record=record)
        stream = self.around_self.pass_on(stream.x, result, self.around_feed_forward.norm)
        return self.transform(stream, following), recorded

    def additions(self, sight: Sight) -> list[Addition]:
        """List what the sub-layers add, for reversible stacks."""
        return [self.added_by_looking(sight), self.added_by_transforming()]


class Decoded(NamedTuple):
    """What a decoder layer makes of whole rows."""

    stream: Stream
    looked_back: AttentionRecord | None
    """Self-attention, if it was to be recorded."""
    looked_across: AttentionRecord | None
    """Encoder-decoder attention, if it was to be recorded."""


class DecoderLayer(Layer):
    """Self-attention, then encoder-decoder attention, then feed-forward."""

    def __init__(self, block: BlockConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(block)
        self.around_self = Residual(block)
        self.cross_attention = MultiHeadAttention(block, is_cross=True)
        self.around_cross = Residual(block)
        self.feed_forward = make_feed_forward(block)
        self.around_feed_forward = Residual(block)

    def forward(
        self,
        stream: Stream,
        sight: Sight,
        memory: Float[Tensor, "R S D"],
        memory_sight: Sight,
        following: nn.Module,
        *,
        record: bool = False,
    ) -> Decoded:
        """Look at the target so far, then at the source, then transform each token."""
        result, looked_back = self.self_attention.attend(stream.inside, None, sight, record=record)
        stream = self.around_self.pass_on(stream.x, result, self.around_cross.norm)
        result, looked_across = self.cross_attention.attend(
            stream.inside, memory, memory_sight, record=record
        )
        stream = self.around_cross.pass_on(stream.x, result, self.around_feed_forward.norm)
        return Decoded(self.transform(stream, following), looked_back, looked_across)

    def additions(self, sight: Sight, memory_sight: Sight) -> list[Addition]:
        """List what the sub-layers add, for reversible stacks; the memory is shared by all."""

        def look_across(x: Tensor, memory: Tensor) -> Tensor:
            def attend(inside: Tensor) -> Tensor:
                return self.cross_attention.attend(inside, memory, memory_sight)[0].biased()

            return self.around_cross.addition(attend, x)

        return [self.added_by_looking(sight), look_across, self.added_by_transforming()]

    def step(
        self,
        stream: Stream,
        sight: Sight,
        past: KeysValues,
        memory: KeysValues,
        memory_sight: Sight,
        following: nn.Module,
    ) -> tuple[Stream, KeysValues]:
        """Do the same for one more token of every row; returns also what the next one needs."""
        queries, new = self.self_attention.project(stream.inside, sight)
        present = past.followed_by(new)
        result = Unbiased(self.self_attention.step(queries, present, sight))
        stream = self.around_self.pass_on(stream.x, result, self.around_cross.norm)
        # Rows that share a source ask it side by side, as the tokens of one row do.
        asking = stream.inside.reshape(len(memory.keys), -1, stream.inside.shape[-1])
        queries = self.cross_attention.queries(asking)
        found, _ = self.cross_attention(queries, memory, memory_sight)
        result = Unbiased(found.reshape_as(stream.inside))
        stream = self.around_cross.pass_on(stream.x, result, self.around_feed_forward.norm)
        return self.transform(stream, following), present
