"""The paper in NumPy: "Attention Is All You Need" as an executable specification.

Every formula is a small pure function in float64, in the paper's words and order, save that the
stacks of §3.1 follow the parts they are made of. Speed, dropout and gradients are left out, and so
is the batch: a function takes one sequence, as batches are engineering, not the model.

Shapes: `T` queries or target tokens · `S` keys or source tokens · `H` heads · `V` vocabulary; the
widths `d_model`, `d_k`, `d_v`, `d_ff` are the paper's. Weights are (in, out): y = x @ w + b.
Masks are boolean, True = may attend.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64
from numpy.typing import NDArray

Array = NDArray[np.float64]
States = Float64[Array, "T d_model"]
Memory = Float64[Array, "S d_model"]
Ids = Int64[NDArray[np.int64], " T"]
SourceIds = Int64[NDArray[np.int64], " S"]
Mask = Bool[NDArray[np.bool_], "#T S"]


class AdditiveAttentionWeights(NamedTuple):
    """W, U and v of Bahdanau's score; `d_a` is the width of its hidden layer."""

    w: Float64[Array, "d_q d_a"]
    u: Float64[Array, "d_k d_a"]
    v: Float64[Array, " d_a"]


class AttentionWeights(NamedTuple):
    """W^Q, W^K, W^V and W^O of multi-head attention; head i owns the i-th block of columns."""

    w_q: Float64[Array, "d_model H*d_k"]
    b_q: Float64[Array, " H*d_k"]
    w_k: Float64[Array, "d_model H*d_k"]
    b_k: Float64[Array, " H*d_k"]
    w_v: Float64[Array, "d_model H*d_v"]
    b_v: Float64[Array, " H*d_v"]
    w_o: Float64[Array, "H*d_v d_model"]
    b_o: Float64[Array, " d_model"]


class FeedForwardWeights(NamedTuple):
    """The two linear transformations of eq. 2."""

    w_1: Float64[Array, "d_model d_ff"]
    b_1: Float64[Array, " d_ff"]
    w_2: Float64[Array, "d_ff d_model"]
    b_2: Float64[Array, " d_model"]


class NormWeights(NamedTuple):
    """Gain and bias of layer normalisation."""

    gain: Float64[Array, " d_model"]
    bias: Float64[Array, " d_model"]


class EncoderLayerWeights(NamedTuple):
    """The two sub-layers of an encoder layer, each with its norm."""

    self_attention: AttentionWeights
    self_attention_norm: NormWeights
    feed_forward: FeedForwardWeights
    feed_forward_norm: NormWeights


class DecoderLayerWeights(NamedTuple):
    """The three sub-layers of a decoder layer, each with its norm."""

    self_attention: AttentionWeights
    self_attention_norm: NormWeights
    encoder_decoder_attention: AttentionWeights
    encoder_decoder_attention_norm: NormWeights
    feed_forward: FeedForwardWeights
    feed_forward_norm: NormWeights


class TransformerWeights(NamedTuple):
    """The whole model; in the paper one matrix is both embeddings and, transposed, the output."""

    source_embedding: Float64[Array, "V_source d_model"]
    target_embedding: Float64[Array, "V d_model"]
    encoder: tuple[EncoderLayerWeights, ...]
    decoder: tuple[DecoderLayerWeights, ...]
    w_output: Float64[Array, "d_model V"]


def softmax(scores: Float64[Array, "... n"]) -> Float64[Array, "... n"]:
    """Convert each row of scores (..., n) into positive weights that sum to one.

    >>> softmax(np.array([[0.0, 0.0], [1.0, 3.0]])).sum(axis=-1)
    array([1., 1.])
    """
    # Subtracting the highest score changes nothing but keeps exp from overflowing.
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights: Array = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return weights


def masked_softmax(
    scores: Float64[Array, "... T S"], mask: Mask | None = None
) -> Float64[Array, "... T S"]:
    """Apply softmax to each row of scores (..., T, S) over its allowed keys; or return zeros."""
    if mask is None:
        return softmax(scores)
    # The paper's minus infinity, but finite: a row of nothing else then gives numbers, not NaN.
    lowest = np.finfo(np.float64).min
    return np.where(mask, softmax(np.where(mask, scores, lowest)), 0.0)


def scaled_dot_product_attention(
    query: Float64[Array, "*H T d_k"],
    key: Float64[Array, "*H S d_k"],
    value: Float64[Array, "*H S d_v"],
    mask: Mask | None = None,
) -> tuple[Float64[Array, "*H T d_v"], Float64[Array, "*H T S"]]:
    """Compute softmax(Q K^T / sqrt(d_k)) V (§3.2.1, eq. 1), for each head if there are several.

    Query (T, d_k), key (S, d_k) and value (S, d_v) give the output (T, d_v) and the weights (T, S).

    In "Tom eats fish", the query of "eats" is 1.0; the keys of the three words are 2.0, 0.1 and
    1.5. As d_k is 1, the scores are not changed; the weights are 0.569, 0.085 and 0.345:

    >>> query, key = np.array([[1.0]]), np.array([[2.0], [0.1], [1.5]])
    >>> value = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    >>> output, weights = scaled_dot_product_attention(query, key, value)
    >>> weights.round(2)
    array([[0.57, 0.09, 0.35]])
    >>> output.round(2)
    array([[0.57, 0.35]])
    """
    d_k = query.shape[-1]
    scores = query @ key.swapaxes(-1, -2) / math.sqrt(d_k)  # (*H, T, S)
    weights = masked_softmax(scores, mask)
    return weights @ value, weights


def additive_attention(
    query: Float64[Array, "T d_q"],
    key: Float64[Array, "S d_k"],
    value: Float64[Array, "S d_v"],
    weights: AdditiveAttentionWeights,
    mask: Mask | None = None,
) -> tuple[Float64[Array, "T d_v"], Float64[Array, "T S"]]:
    """Attend with the scores v^T tanh(W q + U k) of Bahdanau et al., to which §3.2.1 compares.

    Query (T, d_q), key (S, d_k) and value (S, d_v) give the output (T, d_v) and the weights (T, S).
    """
    # Each query is added to each key inside the tanh, so one matrix product is not enough.
    hidden = np.tanh((query @ weights.w)[:, np.newaxis] + key @ weights.u)  # (T, S, d_a)
    attention = masked_softmax(hidden @ weights.v, mask)
    return attention @ value, attention


def multi_head_attention(
    query: States,
    key: Memory,
    value: Memory,
    weights: AttentionWeights,
    n_heads: int,
    mask: Mask | None = None,
) -> tuple[States, Float64[Array, "H T S"]]:
    """Compute Concat(head_1, ..., head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).

    Query (T, d_model), key and value (S, d_model) give the output (T, d_model) and the weights of
    every head (H, T, S) (§3.2.2).
    """
    heads, attention = scaled_dot_product_attention(
        split_heads(query @ weights.w_q + weights.b_q, n_heads),
        split_heads(key @ weights.w_k + weights.b_k, n_heads),
        split_heads(value @ weights.w_v + weights.b_v, n_heads),
        mask,
    )
    return concatenate_heads(heads) @ weights.w_o + weights.b_o, attention


def split_heads(x: Float64[Array, "T width"], n_heads: int) -> Float64[Array, "H T d_k"]:
    """Split each row of (T, H * d_k) into heads: (H, T, d_k)."""
    return x.reshape(len(x), n_heads, -1).swapaxes(0, 1)


def concatenate_heads(heads: Float64[Array, "H T d_v"]) -> Float64[Array, "T width"]:
    """Concatenate the heads (H, T, d_v): (T, H * d_v)."""
    return heads.swapaxes(0, 1).reshape(heads.shape[1], -1)


def look_ahead_mask(n_positions: int) -> Mask:
    """Return the mask (T, T) that allows each position itself and earlier ones (§3.2.3).

    >>> look_ahead_mask(3)
    array([[ True, False, False],
           [ True,  True, False],
           [ True,  True,  True]])
    """
    return np.tri(n_positions, dtype=np.bool_)


def padding_mask(ids: SourceIds, pad: int) -> Mask:
    """Return the mask (1, S) that allows every query the tokens that are not padding.

    >>> padding_mask(np.array([7, 4, 0, 0]), pad=0)
    array([[ True,  True, False, False]])
    """
    return np.array([ids != pad])


def feed_forward(x: States, weights: FeedForwardWeights) -> States:
    """Compute max(0, x W_1 + b_1) W_2 + b_2 at each position of x (T, d_model) (§3.3, eq. 2)."""
    return np.maximum(0.0, x @ weights.w_1 + weights.b_1) @ weights.w_2 + weights.b_2


def embed(ids: Ids, embedding: Float64[Array, "V d_model"]) -> States:
    """Look up the rows of (V, d_model) for T ids and multiply them by sqrt(d_model) (§3.4)."""
    rows: Array = embedding[ids]
    return rows * math.sqrt(embedding.shape[1])


def output_projection(
    hidden: States, w_output: Float64[Array, "d_model V"]
) -> Float64[Array, "T V"]:
    """Compute the logits of the vocabulary, (T, V); their softmax is the prediction (§3.4)."""
    return hidden @ w_output


def positional_encoding(n_positions: int, d_model: int) -> States:
    """Compute PE(pos, 2i) = sin(pos / 10000^(2i/d_model)) and PE(pos, 2i+1) = cos(same) (§3.5).

    The result is (T, d_model) for T = n_positions; d_model is even.

    >>> positional_encoding(n_positions=1, d_model=6)
    array([[0., 1., 0., 1., 0., 1.]])
    """
    position = np.arange(n_positions)[:, np.newaxis]
    two_i = np.arange(0, d_model, 2)
    angle = position / 10000 ** (two_i / d_model)  # (T, d_model / 2)
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(n_positions, d_model)


def layer_norm(x: States, weights: NormWeights, epsilon: float = 1e-5) -> States:
    """Normalise each row of x (T, d_model) to mean 0 and variance 1; apply gain and bias.

    The paper cites Ba et al. for it and names no epsilon; the variance divides by d_model.
    """
    mean: Array = x.mean(axis=-1, keepdims=True)
    variance: Array = x.var(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * weights.gain + weights.bias


def add_and_norm(x: States, sublayer: States, weights: NormWeights) -> States:
    """Compute LayerNorm(x + Sublayer(x)), what surrounds every sub-layer (§3.1)."""
    return layer_norm(x + sublayer, weights)


def encoder_layer(
    x: States, weights: EncoderLayerWeights, n_heads: int, mask: Mask | None = None
) -> States:
    """Apply self-attention and feed-forward to x (T, d_model) (§3.1, figure 1, left)."""
    attended, _ = multi_head_attention(x, x, x, weights.self_attention, n_heads, mask)
    x = add_and_norm(x, attended, weights.self_attention_norm)
    return add_and_norm(x, feed_forward(x, weights.feed_forward), weights.feed_forward_norm)


def decoder_layer(
    x: States,
    memory: Memory,
    weights: DecoderLayerWeights,
    n_heads: int,
    memory_mask: Mask | None = None,
) -> States:
    """Apply masked self-attention, attention to the memory (S, d_model), and feed-forward to x.

    x is (T, d_model) and the memory is the encoder's output (§3.1, figure 1, right).
    """
    # Padding at the end of the target needs no mask of its own: it lies in the future.
    mask = look_ahead_mask(len(x))
    attended, _ = multi_head_attention(x, x, x, weights.self_attention, n_heads, mask)
    x = add_and_norm(x, attended, weights.self_attention_norm)
    attended, _ = multi_head_attention(
        x, memory, memory, weights.encoder_decoder_attention, n_heads, memory_mask
    )
    x = add_and_norm(x, attended, weights.encoder_decoder_attention_norm)
    return add_and_norm(x, feed_forward(x, weights.feed_forward), weights.feed_forward_norm)


def encode(
    source: SourceIds, weights: TransformerWeights, n_heads: int, source_mask: Mask | None = None
) -> Memory:
    """Encode S source ids as the memory (S, d_model): embedding, position, stack of N layers."""
    x = embed(source, weights.source_embedding)
    x = x + positional_encoding(*x.shape)
    for layer in weights.encoder:
        x = encoder_layer(x, layer, n_heads, source_mask)
    return x


def decode(
    target: Ids,
    memory: Memory,
    weights: TransformerWeights,
    n_heads: int,
    source_mask: Mask | None = None,
) -> States:
    """Decode T target ids, shifted right by a first <s>, with the memory: (T, d_model)."""
    x = embed(target, weights.target_embedding)
    x = x + positional_encoding(*x.shape)
    for layer in weights.decoder:
        x = decoder_layer(x, memory, layer, n_heads, source_mask)
    return x


def transformer(
    source: SourceIds,
    target: Ids,
    weights: TransformerWeights,
    n_heads: int,
    source_mask: Mask | None = None,
) -> Float64[Array, "T V"]:
    """Compute the probabilities (T, V) of the word that follows each target token (figure 1)."""
    memory = encode(source, weights, n_heads, source_mask)
    hidden = decode(target, memory, weights, n_heads, source_mask)
    return softmax(output_projection(hidden, weights.w_output))


def learning_rate(step: int, d_model: int = 512, warmup_steps: int = 4000) -> float:
    """Compute d_model^-0.5 min(step^-0.5, step warmup_steps^-1.5), step from 1 (§5.3, eq. 3)."""
    return float(d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))


def smooth_labels(targets: Ids, n_words: int, epsilon: float) -> Float64[Array, "T V"]:
    """Mix the one-hot targets with the uniform distribution: (1 - epsilon) one-hot + epsilon / V.

    >>> smooth_labels(np.array([2]), n_words=4, epsilon=0.1)
    array([[0.025, 0.025, 0.925, 0.025]])
    """
    return (1 - epsilon) * np.eye(n_words)[targets] + epsilon / n_words


def label_smoothed_cross_entropy(
    logits: Float64[Array, "T V"], targets: Ids, epsilon: float = 0.1
) -> Float64[Array, " T"]:
    """Compute the loss of each of T predictions (T, V) against smoothed labels, unsummed (§5.4)."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    # The logarithm of the softmax, taken without the detour over probabilities that round to 0.
    log_probs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    loss: Array = -(smooth_labels(targets, logits.shape[-1], epsilon) * log_probs).sum(axis=-1)
    return loss


def length_penalty(length: int, alpha: float = 0.6) -> float:
    """Compute lp(Y) = ((5 + |Y|) / 6)^alpha of Wu et al.; it divides log P(Y|X) (§6.1)."""
    return float(((5 + length) / 6) ** alpha)


def greedy_decode(
    source: SourceIds,
    weights: TransformerWeights,
    n_heads: int,
    *,
    bos: int,
    eos: int,
    max_extra: int = 50,
) -> list[int]:
    """Append the most likely word until eos, or up to S + max_extra words (§6.1).

    The ids returned are without bos and eos. The paper searches with a beam instead.
    """
    memory = encode(source, weights, n_heads)
    target = [bos]
    for _ in range(len(source) + max_extra):
        hidden = decode(np.array(target), memory, weights, n_heads)
        word = int(output_projection(hidden[-1:], weights.w_output).argmax())
        if word == eos:
            break
        target.append(word)
    return target[1:]
