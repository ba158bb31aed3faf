"""Parameters of a model for the paper in NumPy (`attendo.reference`), to compare the two."""

from typing import Any, cast

import numpy.typing as npt
from torch import Tensor, nn

from attendo.models import Transformer
from attendo.models.masked import MaskedLM
from attendo.models.transformer import TransformerDecoder, TransformerEncoder
from attendo.nn.feedforward import FeedForward
from attendo.nn.layers import Layer
from attendo.nn.multihead import MultiHeadAttention
from attendo.reference import halves, paper

Array = npt.NDArray[Any]


def array(tensor: Tensor) -> Array:
    """Copy to NumPy, exactly."""
    return tensor.detach().cpu().double().numpy()


def affine_weights(*modules: nn.Module) -> list[Array]:
    """Convert (out, in) to the paper's (in, out), each with its bias."""
    tensors = [(cast(Tensor, module.weight), cast(Tensor, module.bias)) for module in modules]
    return [part for weight, bias in tensors for part in (array(weight).T, array(bias))]


def attention_of(module: MultiHeadAttention) -> paper.AttentionWeights:
    """Convert multi-head attention."""
    return paper.AttentionWeights(
        *affine_weights(module.query, module.key, module.value, module.output)
    )


def norm_of(module: nn.Module) -> paper.NormWeights:
    """Convert a layer norm."""
    return paper.NormWeights(*affine_weights(module))


def feed_forward_of(module: FeedForward) -> paper.FeedForwardWeights:
    """Convert a feed-forward network."""
    return paper.FeedForwardWeights(*affine_weights(module.inner, module.outer))


def encoder_layer_of(layer: Layer) -> paper.EncoderLayerWeights:
    """Convert an encoder layer."""
    return paper.EncoderLayerWeights(
        attention_of(layer.self_attention),
        norm_of(layer.around_self.norm),
        feed_forward_of(layer.feed_forward),
        norm_of(layer.around_feed_forward.norm),
    )


def decoder_layer_of(layer: Layer) -> paper.DecoderLayerWeights:
    """Convert a decoder layer."""
    return paper.DecoderLayerWeights(
        attention_of(layer.self_attention),
        norm_of(layer.around_self.norm),
        attention_of(layer.cross_attention),
        norm_of(layer.around_cross.norm),
        feed_forward_of(layer.feed_forward),
        norm_of(layer.around_feed_forward.norm),
    )


def transformer_of(model: Transformer) -> paper.TransformerWeights:
    """Convert a whole model; it must have the architecture of the paper."""
    return paper.TransformerWeights(
        source_embedding=array(model.get_parameter("source_embedding.weight")),
        target_embedding=array(model.target_embedding.weight),
        encoder=tuple(map(encoder_layer_of, model.encoder.typed_layers())),
        decoder=tuple(map(decoder_layer_of, model.decoder.typed_layers())),
        w_output=array(model.output.weight).T,
    )


def bert_of(model: MaskedLM) -> halves.BertWeights:
    """Convert a masked language model; it must have the architecture of the paper."""
    body = cast(TransformerEncoder, model.body)
    linear, _, norm = model.transform
    w, b = affine_weights(linear)
    return halves.BertWeights(
        embedding=array(body.get_parameter("embedding.weight")),
        layers=tuple(map(encoder_layer_of, body.encoder.typed_layers())),
        head=halves.HeadWeights(w, b, norm_of(norm)),
        w_output=array(model.output.weight).T,
        b_output=array(model.output.bias),
    )


def gpt_of(model: TransformerDecoder) -> halves.GptWeights:
    """Convert a language model; it must have the architecture of the paper."""
    return halves.GptWeights(
        embedding=array(model.embedding.weight),
        layers=tuple(map(encoder_layer_of, model.decoder.typed_layers())),
        w_output=array(model.output.weight).T,
    )
