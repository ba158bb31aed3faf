"""The parameters of a translation model in the format of CTranslate2.

CTranslate2 is told the architecture by a specification, an object with a field for each parameter.
"""

from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attendo.bundle import Bundle
from attendo.config import AnyModelConfig, BlockConfig, TransformerConfig
from attendo.errors import ConfigError
from attendo.models import Transformer
from attendo.nn.embedding import Embedding
from attendo.nn.feedforward import FeedForward, GatedFeedForward
from attendo.nn.layers import Layer
from attendo.nn.multihead import MultiHeadAttention
from attendo.nn.positions import POSITIONS, Positions
from attendo.nn.stack import Stack
from attendo.text import Tokenizer

ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu-tanh": "GELUTanh",
    "swish": "SWISH",
    "gated": "SWISH",
}
"""Our feed-forward kinds, and the activation functions of CTranslate2."""

TABLES = ("sinusoidal", "sinusoidal-halves", "learned", "none")
"""Position kinds that are vectors added to the embeddings."""

PRECISIONS = ("int8", "float16", "float32")
"""How parameters can be stored."""

MORE = 128
"""Positions beyond twice the longest training sentence."""


def reason_against(model: AnyModelConfig) -> str | None:
    """Return why CTranslate2 cannot run a model, or None if it can."""
    if not isinstance(model, TransformerConfig):
        return f"model.kind = {model.kind!r}"
    wrong = {
        "attention": model.attention != "dot",
        "attention_pattern": bool(model.attention_pattern),
        "logit_cap": bool(model.logit_cap),
        "reversible": model.reversible,
        "query_key_norm": model.query_key_norm,
        "feed_forward": model.feed_forward not in ACTIVATIONS,
        "positions": model.positions not in (*TABLES, "rotary"),
    }
    keys = (key for key, is_wrong in wrong.items() if is_wrong)
    return next((f"model.{key} = {getattr(model, key)!r}" for key in keys), None)


def n_positions(bundle: Bundle) -> int:
    """Return the number of positions that a conversion knows."""
    return int(2 * bundle.task.max_length + MORE)


def write_model(bundle: Bundle, folder: Path, precision: str) -> None:
    """Write a folder that `ctranslate2.Translator` loads.

    Raises:
        ConfigError: CTranslate2 cannot represent the model.
    """
    if reason := reason_against(bundle.recipe.model):
        raise ConfigError(f"{reason} cannot be converted: CTranslate2 has nothing like it")
    config, model = cast(TransformerConfig, bundle.recipe.model), cast(Transformer, bundle.model)
    spec = make_spec(config, model, n_positions(bundle))
    _add_vocabularies(spec, model, bundle.task.source, bundle.task.target)
    spec.config.layer_norm_epsilon = config.norm_epsilon
    spec.validate()
    spec.optimize(quantization=precision)
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


def _add_vocabularies(spec: Any, model: Transformer, source: Tokenizer, target: Tokenizer) -> None:
    """Add the tokens of both sides, and what their special tokens are."""
    tokens = target.vocabulary(len(model.target_embedding.weight))
    spec.register_source_vocabulary(source.vocabulary(len(_source_weight(model))))
    spec.register_target_vocabulary(tokens)
    special = target.specials
    spec.config.bos_token = tokens[special.bos]
    spec.config.eos_token = tokens[special.eos]
    # A source has no token outside of its vocabulary, but the name must be one that exists.
    spec.config.unk_token = "<unk>" if "<unk>" in tokens else tokens[special.pad]
    spec.config.decoder_start_token = tokens[special.bos]
    spec.config.add_source_eos = True


def _source_weight(model: Transformer) -> Tensor:
    """Return the matrix of the source embedding, which is of tokens."""
    return cast(Embedding, model.source_embedding).weight


def make_spec(config: TransformerConfig, model: Transformer, positions: int) -> Any:
    """Return a specification with all parameters of a model."""
    from ctranslate2 import specs

    activation = getattr(specs.Activation, ACTIVATIONS[config.feed_forward])
    options = {
        "num_heads": config.n_heads,
        "pre_norm": config.norm_order == "pre",
        "activation": activation,
        "layernorm_embedding": config.embedding_norm,
        "ffn_glu": config.feed_forward == "gated",
        "rms_norm": config.norm == "rms",
        # 0: all coordinates of a head; neighbours are rotated together.
        "rotary_dim": 0 if config.positions == "rotary" else None,
        "rotary_interleave": True,
    }
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(config.encoder_layers, **options),
        specs.TransformerDecoderSpec(config.decoder_layers, **options),
    )
    _fill_stack(spec.encoder, model.encoder, config, positions)
    _fill_stack(spec.decoder, model.decoder, config, positions)
    spec.encoder.embeddings[0].weight = _array(_source_weight(model))
    spec.decoder.embeddings.weight = _array(model.target_embedding.weight)
    _fill_linear(spec.decoder.projection, model.output)
    return spec


def _fill_stack(spec: Any, stack: Stack, config: TransformerConfig, positions: int) -> None:
    spec.scale_embeddings = config.scale_embedding
    if config.positions in TABLES:
        spec.position_encodings.encodings = position_table(stack.enter.positions, config, positions)
    if config.embedding_norm:
        _fill_norm(spec.layernorm_embedding, stack.enter.norm)
    if config.norm_order == "pre":
        _fill_norm(spec.layer_norm, stack.norm)
    for place, layer in zip(spec.layer, stack.typed_layers(), strict=True):
        _fill_layer(place, layer)


def position_table(kind: Positions, block: BlockConfig, count: int) -> NDArray[np.float32]:
    """Return what positions add to the embeddings, one row for each."""
    assert type(kind) is POSITIONS[block.positions]
    zeros = torch.zeros(1, count, block.d_model)
    return _array(kind.embed(zeros, torch.arange(count)[None])[0])


def _fill_layer(spec: Any, layer: Layer) -> None:
    own = layer.self_attention
    _fill_joint(spec.self_attention.linear[0], [own.query, own.key, own.value])
    _fill_linear(spec.self_attention.linear[1], own.output)
    _fill_norm(spec.self_attention.layer_norm, layer.around_self.norm)
    if layer.has_cross:
        _fill_cross(spec.attention, layer.cross_attention)
        _fill_norm(spec.attention.layer_norm, layer.around_cross.norm)
    _fill_feed_forward(spec.ffn, layer.feed_forward)
    _fill_norm(spec.ffn.layer_norm, layer.around_feed_forward.norm)


def _fill_cross(spec: Any, attention: MultiHeadAttention) -> None:
    _fill_linear(spec.linear[0], attention.query)
    _fill_joint(spec.linear[1], [attention.key, attention.value])
    _fill_linear(spec.linear[2], attention.output)


def _fill_feed_forward(spec: Any, network: FeedForward) -> None:
    if isinstance(network, GatedFeedForward):
        _fill_linear(spec.linear_0, network.gate)  # what the activation function is applied to
        _fill_linear(spec.linear_0_noact, network.inner)
    else:
        _fill_linear(spec.linear_0, network.inner)
    _fill_linear(spec.linear_1, network.outer)


def _fill_linear(spec: Any, linear: nn.Linear) -> None:
    _fill_joint(spec, [linear])


def _fill_joint(spec: Any, linears: list[nn.Linear]) -> None:
    """Join projections of the same input into one."""
    spec.weight = _array(torch.cat([linear.weight for linear in linears]))
    if linears[0].bias is not None:
        spec.bias = _array(torch.cat([linear.bias for linear in linears]))


def _fill_norm(spec: Any, norm: nn.Module) -> None:
    spec.gamma = _array(cast(Tensor, norm.weight))
    if isinstance(norm, nn.LayerNorm):
        spec.beta = _array(norm.bias)


def _array(tensor: Tensor) -> NDArray[np.float32]:
    """Copy a tensor: CTranslate2 quantises in place."""
    array: NDArray[np.float32] = tensor.detach().float().cpu().numpy().copy()
    return array
