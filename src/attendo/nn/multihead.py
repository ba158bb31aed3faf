"""Multi-head attention: several attentions side by side, each in its own projection (§3.2.2)."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

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

    def keys_values(self, x: Float[Tensor, "R S D"], sight: Sight | None = None) -> KeysValues:
        """Project what is attended to; done once for the memory, token by token for a cache."""
        keys = self._split(self.key(x))
        return KeysValues(sight.rotate(keys) if sight else keys, self._split(self.value(x)))

    def forward(
        self,
        x: Float[Tensor, "R T D"],
        attended: KeysValues,
        sight: Sight,
        *,
        want_weights: bool = False,
    ) -> tuple[Float[Tensor, "R T D"], Float[Tensor, "R H T S"] | None]:
        """Let every token of x ask all heads, and join their answers."""
        queries = sight.rotate(self._split(self.query(x)))
        heads, weights = self.attention(
            queries, *attended, sight.mask, sight.bias, want_weights=want_weights
        )
        return self.output(heads.transpose(1, 2).flatten(2)), weights

    def _split(self, x: Float[Tensor, "R T D"]) -> Float[Tensor, "R H T K"]:
        heads: Tensor = x.unflatten(-1, (self.n_heads, -1))  # (R, T, H, K)
        return heads.transpose(1, 2)
