"""Attention: softmax(Q Kᵀ / √d_k) V (§3.2), and what a kind of attention has to provide.

The public function for the paper's formula is `scaled_dot_product_attention`; it runs fused and
never builds the matrix of attention weights. `Attention.weights` builds it, for inspection.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from attendo.config import BlockConfig
from attendo.nn.grid import Grid
from attendo.nn.positions import Rotation

Heads = Float[Tensor, "R H T K"]
Keys = Float[Tensor, "R H S K"]
Values = Float[Tensor, "R H S J"]
"""As wide as the keys in a model; any other width gives outputs of that width."""
Output = Float[Tensor, "R H T J"]
Mask = Bool[Tensor, "#R #H #T S"] | None
Bias = Float[Tensor, "R H T S"] | None
Weights = Float[Tensor, "R H T S"]


def scaled_dot_product_attention(
    q: Heads,
    k: Keys,
    v: Keys,
    mask: Mask = None,
    bias: Bias = None,
    p_drop: float = 0.0,
    *,
    is_causal: bool = False,
) -> Heads:
    """Return softmax(Q Kᵀ / √d_k) V, eq. 1; every query must be allowed to attend to something.

    Instead of a mask, `is_causal` allows every position all those up to itself.
    """
    is_slow = q.device.type == "cpu" and q.dtype == torch.bfloat16 and q.shape[2] > 1
    if is_causal and (is_slow or bias is not None):
        mask, is_causal = causal_mask(q, k), False
    if is_slow:
        return _attention_by_products(q, k, v, mask, bias, p_drop)
    allowed: Tensor | None = mask
    if bias is not None:
        allowed = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
        allowed = allowed.to(q.dtype)
    return functional.scaled_dot_product_attention(
        q, k, v, attn_mask=allowed, dropout_p=p_drop, is_causal=is_causal
    )


def causal_mask(q: Heads, k: Keys) -> Bool[Tensor, "1 1 T S"]:
    """Return the mask that allows every position all those up to itself."""
    return torch.ones(1, 1, q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()


def _attention_by_products(
    q: Heads, k: Keys, v: Keys, mask: Mask, bias: Bias, p_drop: float
) -> Heads:
    """Return the same from two matrix products, several times faster on CPUs in bf16."""
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
    """Return Q Kᵀ / √d_k, the scores before the softmax."""
    scores: Tensor = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    return scores if bias is None else scores + bias


def masked_softmax(scores: Weights, mask: Mask) -> Weights:
    """Return the attention weights; keys that the mask forbids get exactly 0."""
    if mask is None:
        return scores.softmax(dim=-1)
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)


class Pattern(NamedTuple):
    """Which positions may attend to which, and what the positional encoding adds.

    It is the same for all layers of a stack; a kind that uses no mask leaves it aside.
    """

    mask: Mask
    """None: all may, or the kind takes it from the grid."""
    bias: Bias = None
    """Added to the scores."""
    rotation: Rotation | None = None
    """Applied to queries and keys."""
    grid: Grid | None = None
    """In self-attention, the grid of the stack; for kinds that use no mask."""
    is_causal: bool = False
    """Nothing later may be attended to; for the same kinds, and where there is no mask."""

    def rotate(self, x: Float[Tensor, "R H T K"]) -> Float[Tensor, "R H T K"]:
        """Apply the rotary embedding, if there is one."""
        return x if self.rotation is None else self.rotation(x)


class Attention(nn.Module):
    """A kind of attention: queries, keys and values in, one output for each query."""

    uses_mask = True
    """Needs a mask of all pairs, so that cost grows with the square of the length."""
    shares_queries = False
    """Queries serve as keys."""

    def __init__(self, block: BlockConfig) -> None:
        super().__init__()
        self.p_drop = block.p_drop_attention

    def scores(self, q: Heads, k: Keys, bias: Bias) -> Weights:
        """Return the scores of all pairs, before mask and softmax."""
        raise NotImplementedError

    def weights(self, q: Heads, k: Keys, pattern: Pattern) -> Weights:
        """Return the attention weights."""
        needs_mask = pattern.mask is None and pattern.is_causal
        mask = causal_mask(q, k) if needs_mask else pattern.mask
        return masked_softmax(self.scores(q, k, pattern.bias), mask)

    def forward(self, q: Heads, k: Keys, v: Values, pattern: Pattern) -> Output:
        """Return the mean of the values, weighted by the attention weights."""
        weights = self.weights(q, k, pattern)
        return functional.dropout(weights, self.p_drop, self.training) @ v

    def step(self, q: Heads, k: Keys, v: Values, pattern: Pattern) -> Output:
        """Attend from the newest token to all tokens up to itself; one sequence a row."""
        output: Tensor = self(q, k, v, pattern)
        return output


class ScaledDotProduct(Attention):
    """The paper's attention, eq. 1."""

    def scores(self, q: Heads, k: Keys, bias: Bias) -> Weights:
        """Return Q Kᵀ / √d_k."""
        return attention_scores(q, k, bias)

    def forward(self, q: Heads, k: Keys, v: Values, pattern: Pattern) -> Output:
        """Run fused, without building the attention weights."""
        return scaled_dot_product_attention(
            q,
            k,
            v,
            pattern.mask,
            pattern.bias,
            self.p_drop if self.training else 0.0,
            is_causal=pattern.mask is None and pattern.is_causal,
        )


class Additive(Attention):
    """Bahdanau et al. 2015: a network with one hidden layer scores each query with each key.

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
        """Return vᵀ tanh(W q + U k); takes memory for T · S hidden layers."""
        scores = self.scores_of_projected(q, self.key(k))
        return scores if bias is None else scores + bias

    def scores_of_projected(self, q: Heads, k: Keys) -> Weights:
        """Return the scores given U k, which a recurrent decoder computes only once."""
        hidden = torch.tanh(self.query(q)[..., :, None, :] + k[..., None, :, :])
        return torch.einsum("rhtsk,hk->rhts", hidden, self.score)


class SparseAttention(Attention):
    """An attention within one grid that never builds all pairs: for long sequences."""

    uses_mask = False

    def scores(self, q: Heads, k: Keys, bias: Bias) -> Weights:
        """Return Q Kᵀ / √d_k of all pairs, which this kind approximates; for inspection only."""
        return attention_scores(q, k, bias)

    def weights(self, q: Heads, k: Keys, pattern: Pattern) -> Weights:
        """Return the attention weights, read off by giving every key a one-hot value."""
        rows, heads, length, _ = k.shape
        one_hot = torch.eye(length, dtype=q.dtype, device=q.device)
        weights: Tensor = self(q, k, one_hot.expand(rows, heads, length, length), pattern)
        return weights


def frozen(shape: tuple[int, ...], draw: Callable[[], Float[Tensor, "..."]]) -> nn.Parameter:
    """Draw a parameter that is saved but not learned: another draw would be another model.

    On the meta device, where only the sizes of a model matter, nothing is drawn.
    """
    is_meta = torch.get_default_device().type == "meta"
    return nn.Parameter(torch.empty(shape) if is_meta else draw(), requires_grad=False)


def grid_of(pattern: Pattern) -> Grid:
    """Return the grid of self-attention."""
    assert pattern.grid is not None, "this kind is for self-attention within a grid only"
    return pattern.grid
