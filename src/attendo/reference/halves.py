"""BERT and GPT in NumPy: each keeps one half of the paper's figure 1 and predicts tokens of a text.

Both are made of the functions of `attendo.reference.paper`; shapes and masks are as there. The
models that were published learn their positional encodings and have GELU in their feed-forward
networks; here these parts are the paper's, so that only the differences in structure remain.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from attendo.reference.paper import (
    Array,
    EncoderLayerWeights,
    Ids,
    NormWeights,
    States,
    embed,
    encoder_layer,
    layer_norm,
    look_ahead_mask,
    output_projection,
    positional_encoding,
    softmax,
)


class HeadWeights(NamedTuple):
    """What BERT has between its last layer and the output projection."""

    w: Float64[Array, "d_model d_model"]
    b: Float64[Array, " d_model"]
    norm: NormWeights


class BertWeights(NamedTuple):
    """An encoder with its head."""

    embedding: Float64[Array, "V d_model"]
    layers: tuple[EncoderLayerWeights, ...]
    head: HeadWeights
    w_output: Float64[Array, "d_model V"]
    b_output: Float64[Array, " V"]


class GptWeights(NamedTuple):
    """A decoder without attention to a source: its layers have the parts of an encoder's."""

    embedding: Float64[Array, "V d_model"]
    layers: tuple[EncoderLayerWeights, ...]
    w_output: Float64[Array, "d_model V"]


def bert(ids: Ids, weights: BertWeights, n_heads: int) -> Float64[Array, "T V"]:
    """Compute the probabilities (T, V) of the token at each position, from all T tokens."""
    x = embed(ids, weights.embedding)
    x = x + positional_encoding(*x.shape)
    for layer in weights.layers:
        x = encoder_layer(x, layer, n_heads)
    return softmax(output_projection(head(x, weights.head), weights.w_output) + weights.b_output)


def head(x: States, weights: HeadWeights) -> States:
    """Transform hidden states (T, d_model) for the output projection (Devlin et al. 2019)."""
    return layer_norm(gelu(x @ weights.w + weights.b), weights.norm)


def gelu(x: States) -> States:
    """Multiply each number by the share of a normal distribution below it.

    >>> gelu(np.array([[-1.0, 0.0, 1.0]])).round(4)
    array([[-0.1587,  0.    ,  0.8413]])
    """
    below: Array = 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    return x * below


def gpt(ids: Ids, weights: GptWeights, n_heads: int) -> Float64[Array, "T V"]:
    """Compute the probabilities (T, V) of the token after each position, from those up to it."""
    x = embed(ids, weights.embedding)
    x = x + positional_encoding(*x.shape)
    mask = look_ahead_mask(len(ids))
    for layer in weights.layers:
        x = encoder_layer(x, layer, n_heads, mask)
    return softmax(output_projection(x, weights.w_output))
