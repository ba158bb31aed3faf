"""The parameters of a translation model in the format of CTranslate2.

CTranslate2 is told the architecture by a specification, an object with a field for each parameter.
"""

from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attendo.bundle import Bundle
from attendo.config import AnyModelConfig, BlockConfig, TransformerConfig
from attendo.errors import ConfigError
from attendo.models import Transformer
from attendo.models.stored import list_variables
from attendo.nn.embedding import Embedding
from attendo.nn.positions import POSITIONS, Positions
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
    for half, stack in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        half.scale_embeddings = config.scale_embedding
        if config.positions in TABLES:
            table = position_table(stack.enter.positions, config, positions)
            half.position_encodings.encodings = table
    for name, parameters in list_variables(model):
        _set(spec, name, _array(torch.cat(parameters)))
    return spec


def _set(spec: Any, name: str, value: NDArray[np.float32]) -> None:
    """Set a variable by its name, in which layer_0 is the first element of a list."""
    *path, last = name.split("/")
    for part in path:
        if hasattr(spec, part):
            spec = getattr(spec, part)
        else:
            listed, _, number = part.rpartition("_")
            spec = getattr(spec, listed)[int(number)]
    setattr(spec, last, value)


def position_table(kind: Positions, block: BlockConfig, count: int) -> NDArray[np.float32]:
    """Return what positions add to the embeddings, one row for each."""
    assert type(kind) is POSITIONS[block.positions]
    zeros = torch.zeros(1, count, block.d_model)
    return _array(kind.embed(zeros, torch.arange(count)[None])[0])


def _array(tensor: Tensor) -> NDArray[np.float32]:
    """Copy a tensor: CTranslate2 quantises in place."""
    array: NDArray[np.float32] = tensor.detach().float().cpu().numpy().copy()
    return array
