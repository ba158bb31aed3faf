"""Multi-head attention: several attentions side by side, each in its own projection (§3.2.2)."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from attendo.config import BlockConfig, choose
from attendo.nn.attention import ATTENTIONS, ScaledDotProduct
from attendo.nn.attention.base import Pattern


class KeysValues(NamedTuple):
    """Projected keys and values, split into heads: what a cache holds."""

    keys: Float[Tensor, "R H S K"]
    values: Float[Tensor, "R H S K"]

    def followed_by(self, new: "KeysValues") -> "KeysValues":
        """Return these and the keys and values of later tokens; the old value is not changed."""
        return KeysValues(
            keys=torch.cat((self.keys, new.keys), dim=2),
            values=torch.cat((self.values, new.values), dim=2),
        )


class AttentionRecord(NamedTuple):
    """What one attention computed, for inspection."""

    queries: Float[Tensor, "R H T K"]
    keys: Float[Tensor, "R H S K"]
    values: Float[Tensor, "R H S K"]
    scores: Float[Tensor, "R H T S"]
    """Before mask and softmax, of all pairs."""
    weights: Float[Tensor, "R H T S"]
    """The attention weights; 0 where the mask forbids it."""
    heads: Float[Tensor, "R H T K"]
    """The outputs of the heads."""

    def __repr__(self) -> str:
        """Return the shape: the values would fill many screens."""
        return f"AttentionRecord(weights={list(self.weights.shape)})"


class MultiHeadAttention(nn.Module):
    """Concat(head_1, ..., head_h) W_O, with head_i = Attention(Q W_Qi, K W_Ki, V W_Vi)."""

    def __init__(self, block: BlockConfig, *, is_cross: bool = False) -> None:
        super().__init__()
        kind = choose(ATTENTIONS, block.attention, "model.attention")
        if is_cross and not kind.uses_mask:
            kind = ScaledDotProduct  # the others are for self-attention only
        self.n_heads = block.n_heads
        self.query = nn.Linear(block.d_model, block.d_model)
        self.key = self.query if kind.shares_queries else nn.Linear(block.d_model, block.d_model)
        self.value = nn.Linear(block.d_model, block.d_model)
        self.output = nn.Linear(block.d_model, block.d_model)
        self.query_norm = _head_norm(block)
        self.key_norm = _head_norm(block)
        self.attention = kind(block)

    def forward(
        self,
        x: Float[Tensor, "R T D"],
        memory: Float[Tensor, "R S D"],
        pattern: Pattern,
        records: list[AttentionRecord] | None = None,
    ) -> Float[Tensor, "R T D"]:
        """Attend from x to a memory, which is x itself in self-attention.

        If a list is given, a record of what was computed is appended to it.
        """
        return self.attend(x, self.keys_values(memory, pattern), pattern, records)

    def attend(
        self,
        x: Float[Tensor, "R T D"],
        memory: KeysValues,
        pattern: Pattern,
        records: list[AttentionRecord] | None = None,
    ) -> Float[Tensor, "R T D"]:
        """Attend from x to a memory that has been projected."""
        queries = self.queries(x, pattern)
        heads = self.attention(queries, *memory, pattern)
        if records is not None:
            scores = self.attention.scores(queries, memory.keys, pattern.bias)
            weights = self.attention.weights(queries, memory.keys, pattern)
            records.append(AttentionRecord(queries, *memory, scores, weights, heads))
        return self.join(heads)

    def step(
        self, x: Float[Tensor, "R 1 D"], memory: KeysValues, pattern: Pattern
    ) -> Float[Tensor, "R 1 D"]:
        """Attend from the newest token to all tokens up to itself."""
        return self.join(self.attention.step(self.queries(x, pattern), *memory, pattern))

    def keys_values(self, memory: Float[Tensor, "R S D"], pattern: Pattern) -> KeysValues:
        """Project a memory to keys and values."""
        keys = pattern.rotate(self.key_norm(self._heads(self.key(memory))))
        return KeysValues(keys, self._heads(self.value(memory)))

    def queries(self, x: Float[Tensor, "R T D"], pattern: Pattern) -> Float[Tensor, "R H T K"]:
        """Project hidden states to queries."""
        return pattern.rotate(self.query_norm(self._heads(self.query(x))))

    def _heads(self, x: Float[Tensor, "R T D"]) -> Float[Tensor, "R H T K"]:
        heads: Tensor = x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        return heads

    def join(self, heads: Float[Tensor, "R H T K"]) -> Float[Tensor, "R T D"]:
        """Concatenate the outputs of the heads and project them."""
        joined: Tensor = self.output(heads.transpose(1, 2).flatten(2))
        return joined


class HeadNorm(nn.RMSNorm):
    """RMSNorm over the width of a head, in the precision of its input."""

    def forward(self, x: Float[Tensor, "R H T K"]) -> Float[Tensor, "R H T K"]:
        """Normalise queries or keys."""
        weight = self.weight.to(x.dtype)
        return functional.rms_norm(x, self.normalized_shape, weight, self.eps)


def _head_norm(block: BlockConfig) -> nn.Module:
    """Build the norm of queries or keys, if there is one."""
    return HeadNorm(block.d_model // block.n_heads) if block.query_key_norm else nn.Identity()
