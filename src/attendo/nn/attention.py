"""Attention: a query asks, keys say how well they fit, values are averaged accordingly (§3.2).

The public function for the paper's formula is `scaled_dot_product_attention`; it runs fused and
never builds the matrix of weights. `Attention.weights` builds it, for looking.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from attendo.config import BlockConfig
from attendo.nn.grid import Grid
from attendo.nn.positions import Turn
from attendo.nn.spans import Span

Heads = Float[Tensor, "R H T K"]
Keys = Float[Tensor, "R H S K"]
Values = Float[Tensor, "R H S J"]
"""As wide as the keys, or to see what becomes of each, one place for each."""
Found = Float[Tensor, "R H T J"]
Mask = Bool[Tensor, "R #H #T S"] | None
Bias = Float[Tensor, "R H T S"] | None
Weights = Float[Tensor, "R H T S"]


def scaled_dot_product_attention(
    q: Heads, k: Keys, v: Keys, mask: Mask = None, bias: Bias = None, p_drop: float = 0.0
) -> Heads:
    """Compute softmax(Q Kᵀ / √d_k) V, eq. 1; every query must be allowed to attend to something."""
    if q.device.type == "cpu" and q.dtype == torch.bfloat16 and q.shape[2] > 1:
        return _averages_in_products(q, k, v, mask, bias, p_drop)
    allowed: Tensor | None = mask
    if bias is not None:
        allowed = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
        allowed = allowed.to(q.dtype)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed, dropout_p=p_drop)


def _averages_in_products(
    q: Heads, k: Keys, v: Keys, mask: Mask, bias: Bias, p_drop: float
) -> Heads:
    """Compute the same from two products, which CPUs do several times faster in bf16."""
    shift = torch.zeros((), dtype=q.dtype) if bias is None else bias
    if mask is not None:
        shift = shift.masked_fill(~mask, -torch.inf)
    shift = shift.to(q.dtype).expand(*q.shape[:3], k.shape[2]).flatten(0, 1)
    scale = q.shape[-1] ** -0.5
    scores = torch.baddbmm(shift, q.flatten(0, 1), k.flatten(0, 1).mT, alpha=scale)
    weights = functional.dropout(scores.softmax(dim=-1), p_drop)
    averaged: Tensor = (weights @ v.flatten(0, 1)).unflatten(0, q.shape[:2])
    return averaged


def attention_scores(q: Heads, k: Keys, bias: Bias = None) -> Weights:
    """Compute Q Kᵀ / √d_k: how well each key fits each query, before the softmax."""
    scores: Tensor = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    return scores if bias is None else scores + bias


def masked_softmax(scores: Weights, mask: Mask) -> Weights:
    """Share out the attention among the allowed keys; forbidden ones get exactly 0."""
    if mask is None:
        return scores.softmax(dim=-1)
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)


class Sight(NamedTuple):
    """Who may attend to whom, and what the positions add: the same for all layers of a stack."""

    mask: Mask
    bias: Bias = None
    turn: Turn | None = None
    grid: Grid | None = None
    """For kinds without a mask, in self-attention: where the tokens stand."""
    is_causal: bool = False
    """For them, too: nobody sees what comes later."""
    span: Span | None = None
    """For the kernels of training: the mask in two numbers a token."""

    def turned(self, x: Float[Tensor, "R H T K"]) -> Float[Tensor, "R H T K"]:
        """Turn queries or keys by their positions."""
        return x if self.turn is None else self.turn(x)


class Attention(nn.Module):
    """An attention kind: how queries, keys and values become one output for each query."""

    has_mask = True
    """Who may attend to whom is said by a mask of all pairs, so that costs grow with its size."""
    shares_queries = False
    """Queries serve as keys."""

    def __init__(self, block: BlockConfig) -> None:
        super().__init__()
        self.p_drop = block.p_drop_attention

    def scores(self, q: Heads, k: Keys, bias: Bias) -> Weights:
        """Compute how well each key fits each query, whether it may be looked at or not."""
        raise NotImplementedError

    def weights(self, q: Heads, k: Keys, sight: Sight) -> Weights:
        """Compute how much each query takes from each key."""
        return masked_softmax(self.scores(q, k, sight.bias), sight.mask)

    def forward(self, q: Heads, k: Keys, v: Values, sight: Sight) -> Found:
        """Average the values by the weights."""
        weights = self.weights(q, k, sight)
        return functional.dropout(weights, self.p_drop, self.training) @ v

    def step(self, q: Heads, k: Keys, v: Values, sight: Sight) -> Found:
        """Let the newest token ask all tokens up to itself; one sentence a row."""
        averaged: Tensor = self(q, k, v, sight)
        return averaged


class ScaledDotProduct(Attention):
    """The paper's attention, eq. 1."""

    def scores(self, q: Heads, k: Keys, bias: Bias) -> Weights:
        """Compute Q Kᵀ / √d_k."""
        return attention_scores(q, k, bias)

    def forward(self, q: Heads, k: Keys, v: Values, sight: Sight) -> Found:
        """Run fused, without building the weights."""
        p_drop = self.p_drop if self.training else 0.0
        return scaled_dot_product_attention(q, k, v, sight.mask, sight.bias, p_drop)


class Additive(Attention):
    """Bahdanau et al. 2015: a small network with one hidden layer scores each query with each key.

    The score is vᵀ tanh(W q + U k), with its own v for each head; W and U are shared by the heads.
    """

    def __init__(self, block: BlockConfig) -> None:
        super().__init__(block)
        width = block.d_model // block.n_heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width, bias=False)
        self.score = nn.Parameter(torch.empty(block.n_heads, width))
        nn.init.xavier_uniform_(self.score)

    def scores(self, q: Heads, k: Keys, bias: Bias) -> Weights:
        """Compute vᵀ tanh(W q + U k); takes memory for T · S hidden layers."""
        scores = self.scores_of_projected(q, self.key(k))
        return scores if bias is None else scores + bias

    def scores_of_projected(self, q: Heads, k: Keys) -> Weights:
        """Compute them from U k, which those who ask again and again need not do each time."""
        hidden = torch.tanh(self.query(q)[..., :, None, :] + k[..., None, :, :])
        return torch.einsum("rhtsk,hk->rhts", hidden, self.score)


ATTENTIONS: dict[str, type[Attention]] = {"dot": ScaledDotProduct, "additive": Additive}
