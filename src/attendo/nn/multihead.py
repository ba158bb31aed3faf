"""Multi-head attention: several attentions side by side, each in its own projection (§3.2.2)."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from attendo.config import BlockConfig, choose
from attendo.nn.attention import ATTENTIONS


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


class Sight(NamedTuple):
    """Who may attend to whom, and what the positions add: the same for all layers of a stack."""

    mask: Bool[Tensor, "R 1 T S"] | None
    bias: Float[Tensor, "R H T S"] | None = None
    rotate: Callable[[Tensor], Tensor] = lambda x: x


class MultiHeadAttention(nn.Module):
    """Concat(head_1, ..., head_h) W_O, with head_i = Attention(Q W_Qi, K W_Ki, V W_Vi)."""

    def __init__(self, block: BlockConfig) -> None:
        super().__init__()
        self.n_heads = block.n_heads
        self.query = nn.Linear(block.d_model, block.d_model)
        self.key = nn.Linear(block.d_model, block.d_model)
        self.value = nn.Linear(block.d_model, block.d_model)
        self.output = nn.Linear(block.d_model, block.d_model)
        self.attention = choose(ATTENTIONS, block.attention, "model.attention")(block)

    def project(
        self, x: Float[Tensor, "R T D"], sight: Sight
    ) -> tuple[Float[Tensor, "R H T K"], KeysValues]:
        """Project for self-attention, where the tokens that ask are those that are asked."""
        queries, keys, values = self._in_heads(x, self.query, self.key, self.value)
        return sight.rotate(queries), KeysValues(sight.rotate(keys), values)

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
        want_weights: bool = False,
    ) -> tuple[Float[Tensor, "R T D"], Float[Tensor, "R H T S"] | None]:
        """Let every query ask in all heads, and join their answers."""
        heads, weights = self.attention(
            queries, *attended, sight.mask, sight.bias, want_weights=want_weights
        )
        return self.output(heads.transpose(1, 2).flatten(2)), weights

    def _in_heads(self, x: Float[Tensor, "R T D"], *layers: nn.Linear) -> list[Tensor]:
        """Apply several projections to the same tokens, and split each into heads: (R, H, T, K)."""
        if len(layers) > 1 and torch.is_grad_enabled():
            # One product with a larger matrix is faster than several, which pays for joining the
            # weights as long as there are many tokens, as in training.
            weight = torch.cat([layer.weight for layer in layers])
            bias = torch.cat([layer.bias for layer in layers])
            projected = functional.linear(x, weight, bias).chunk(len(layers), dim=-1)
        else:
            projected = tuple(layer(x) for layer in layers)
        return [part.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for part in projected]
