"""Multi-head attention: several attentions side by side, each in its own projection (§3.2.2)."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from attendo.config import BlockConfig, choose
from attendo.nn import kernels
from attendo.nn.attention import ScaledDotProduct, Sight
from attendo.nn.long import SELF_ATTENTIONS
from attendo.nn.unbiased import Unbiased

if kernels.AVAILABLE:
    from attendo.nn.kernels.attention import attention_of_projections, fits


class KeysValues(NamedTuple):
    """Projected keys and values, split into heads: what a cache holds."""

    keys: Float[Tensor, "R H S K"]
    values: Float[Tensor, "R H S K"]

    def followed_by(self, new: "KeysValues") -> "KeysValues":
        """Append the keys and values of later tokens; a new value, the old one stays as it is."""
        return self._replace(
            keys=torch.cat((self.keys, new.keys), dim=2),
            values=torch.cat((self.values, new.values), dim=2),
        )


class AttentionRecord(NamedTuple):
    """What happened in an attention, for looking at it."""

    queries: Float[Tensor, "R H T K"]
    keys: Float[Tensor, "R H S K"]
    values: Float[Tensor, "R H S K"]
    scores: Float[Tensor, "R H T S"]
    """Before the softmax; of all keys, also of those that may not be looked at."""
    weights: Float[Tensor, "R H T S"]
    """What each query takes from each key; 0 where it may not look."""
    heads: Float[Tensor, "R H T K"]
    """The averages of the values."""

    def __repr__(self) -> str:
        """Name the shape: the values would fill many screens."""
        return f"AttentionRecord(weights={list(self.weights.shape)})"


class MultiHeadAttention(nn.Module):
    """Concat(head_1, ..., head_h) W_O, with head_i = Attention(Q W_Qi, K W_Ki, V W_Vi)."""

    def __init__(self, block: BlockConfig, *, is_cross: bool = False) -> None:
        super().__init__()
        kind = choose(SELF_ATTENTIONS, block.attention, "model.attention")
        if is_cross and not kind.has_mask:
            kind = ScaledDotProduct  # others are for the tokens of one sequence only
        self.n_heads = block.n_heads
        self.query = nn.Linear(block.d_model, block.d_model)
        self.key = self.query if kind.shares_queries else nn.Linear(block.d_model, block.d_model)
        self.value = nn.Linear(block.d_model, block.d_model)
        self.output = nn.Linear(block.d_model, block.d_model)
        self.attention = kind(block)

    def attend(
        self,
        x: Float[Tensor, "R T D"],
        memory: Float[Tensor, "R S D"] | None,
        sight: Sight,
        *,
        record: bool = False,
    ) -> tuple[Unbiased, AttentionRecord | None]:
        """Let tokens ask those of a memory; without one, each other."""
        if not record and self._is_fused(x, x if memory is None else memory, sight):
            product = functional.linear(self._fused(x, memory, sight), self.output.weight)
            return Unbiased(product, self.output.bias), None
        if memory is None:
            queries, attended = self.project(x, sight)
        else:
            queries, attended = self.queries(x), self.keys_values(memory)
        result, recorded = self.forward(queries, attended, sight, record=record)
        return Unbiased(result), recorded

    def project(
        self, x: Float[Tensor, "R T D"], sight: Sight
    ) -> tuple[Float[Tensor, "R H T K"], KeysValues]:
        """Project for self-attention, where the tokens that ask are those that are asked."""
        queries, keys, values = self._in_heads(x, self.query, self.key, self.value)
        return sight.turned(queries), KeysValues(sight.turned(keys), values)

    def queries(self, x: Float[Tensor, "R T D"]) -> Float[Tensor, "R H T K"]:
        """Project what asks another sequence."""
        return self._in_heads(x, self.query)[0]

    def keys_values(self, x: Float[Tensor, "R S D"]) -> KeysValues:
        """Project what another sequence asks; done once for the whole memory."""
        return KeysValues(*self._in_heads(x, self.key, self.value))

    def forward(
        self,
        queries: Float[Tensor, "R H T K"],
        attended: KeysValues,
        sight: Sight,
        *,
        record: bool = False,
    ) -> tuple[Float[Tensor, "R T D"], AttentionRecord | None]:
        """Let every query ask in all heads, and join their answers."""
        heads = self.attention(queries, *attended, sight)
        return self._joined(heads), (
            self._record(queries, attended, sight, heads) if record else None
        )

    def step(
        self, queries: Float[Tensor, "R H 1 K"], attended: KeysValues, sight: Sight
    ) -> Float[Tensor, "R 1 D"]:
        """Let the newest token ask all tokens up to itself, and join the heads' answers."""
        return self._joined(self.attention.step(queries, *attended, sight))

    def _joined(self, heads: Float[Tensor, "R H T K"]) -> Float[Tensor, "R T D"]:
        joined: Tensor = self.output(heads.transpose(1, 2).flatten(2))
        return joined

    def _record(
        self,
        queries: Float[Tensor, "R H T K"],
        attended: KeysValues,
        sight: Sight,
        heads: Float[Tensor, "R H T K"],
    ) -> AttentionRecord:
        """Compute what the fast ways of attending never write down."""
        keys, values = attended
        scores = self.attention.scores(queries, keys, sight.bias)
        weights = self.attention.weights(queries, keys, sight)
        return AttentionRecord(queries, keys, values, scores, weights, heads)

    def _is_fused(
        self, x: Float[Tensor, "R T D"], memory: Float[Tensor, "R S D"], sight: Sight
    ) -> bool:
        """Tell whether one kernel does all between the projections."""
        if not kernels.AVAILABLE or not kernels.is_half(x):
            return False
        drops = self.training and self.attention.p_drop > 0
        is_plain = isinstance(self.attention, ScaledDotProduct) and not drops
        if not is_plain or sight.span is None or sight.bias is not None:
            return False
        return fits(x.shape[1], memory.shape[1], x.shape[2] // self.n_heads, x.device)

    def _fused(
        self, x: Float[Tensor, "R T D"], memory: Float[Tensor, "R S D"] | None, sight: Sight
    ) -> Float[Tensor, "R T D"]:
        assert sight.span is not None
        if memory is None:
            weight, bias = _together(self.query, self.key, self.value)
            asking = functional.linear(x, weight)
            turn = sight.turn
            return attention_of_projections(asking, bias, sight.span, self.n_heads, turn=turn)
        weight, bias = _together(self.key, self.value)
        asking, memory = functional.linear(x, self.query.weight), functional.linear(memory, weight)
        return attention_of_projections(
            asking, self.query.bias, sight.span, self.n_heads, memory, bias
        )

    def _in_heads(self, x: Float[Tensor, "R T D"], *layers: nn.Linear) -> list[Tensor]:
        """Apply several projections to the same tokens, and split each into heads: (R, H, T, K)."""
        if len(layers) > 1 and torch.is_grad_enabled():
            # One product with a larger matrix is faster than several, which pays for joining the
            # weights as long as there are many tokens, as in training.
            projected = functional.linear(x, *_together(*layers)).chunk(len(layers), dim=-1)
        else:
            projected = tuple(layer(x) for layer in layers)
        return [part.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for part in projected]


def _together(*layers: nn.Linear) -> tuple[Float[Tensor, "F D"], Float[Tensor, " F"]]:
    """Join several projections of the same tokens into one."""
    weight = torch.cat([layer.weight for layer in layers])
    return weight, torch.cat([layer.bias for layer in layers])
