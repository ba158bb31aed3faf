"""A model's weights for the paper in NumPy, so that both can be asked the same."""

import numpy as np
from torch import Tensor, nn

from attendo.models import Transformer
from attendo.nn.feedforward import FeedForward
from attendo.nn.layers import DecoderLayer, EncoderLayer
from attendo.nn.multihead import MultiHeadAttention
from attendo.reference import paper


def array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().double().numpy()


def affine_weights(*modules: nn.Module) -> list[np.ndarray]:
    """Turn (out, in) into the paper's (in, out), each with its bias."""
    return [part for module in modules for part in (array(module.weight).T, array(module.bias))]


def attention_of(module: MultiHeadAttention) -> paper.AttentionWeights:
    return paper.AttentionWeights(
        *affine_weights(module.query, module.key, module.value, module.output)
    )


def norm_of(module: nn.Module) -> paper.NormWeights:
    return paper.NormWeights(*affine_weights(module))


def feed_forward_of(module: FeedForward) -> paper.FeedForwardWeights:
    return paper.FeedForwardWeights(*affine_weights(module.inner, module.outer))


def encoder_layer_of(layer: EncoderLayer) -> paper.EncoderLayerWeights:
    return paper.EncoderLayerWeights(
        attention_of(layer.self_attention),
        norm_of(layer.around_self.norm),
        feed_forward_of(layer.feed_forward),
        norm_of(layer.around_feed_forward.norm),
    )


def decoder_layer_of(layer: DecoderLayer) -> paper.DecoderLayerWeights:
    return paper.DecoderLayerWeights(
        attention_of(layer.self_attention),
        norm_of(layer.around_self.norm),
        attention_of(layer.cross_attention),
        norm_of(layer.around_cross.norm),
        feed_forward_of(layer.feed_forward),
        norm_of(layer.around_feed_forward.norm),
    )


def transformer_of(model: Transformer) -> paper.TransformerWeights:
    return paper.TransformerWeights(
        source_embedding=array(model.source_embedding.weight),
        target_embedding=array(model.target_embedding.weight),
        encoder=tuple(encoder_layer_of(layer) for layer in model.encoder.layers),
        decoder=tuple(decoder_layer_of(layer) for layer in model.decoder.layers),
        w_output=array(model.output.weight).T,
    )
