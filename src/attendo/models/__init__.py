"""Model families: grids to hidden states and logits. Each keeps some promises of `base.py`."""

from typing import TypeVar

from attendo.config import AnyModelConfig
from attendo.errors import ConfigError
from attendo.models.base import CausalLM, Encoder, Memory, Model, Recording, Seq2Seq
from attendo.models.convolutional import (
    Convolutional,
    ConvolutionalDecoder,
    ConvolutionalEncoder,
)
from attendo.models.recurrent import Recurrent, RecurrentDecoder, RecurrentEncoder
from attendo.models.transformer import Transformer, TransformerDecoder, TransformerEncoder
from attendo.nn.embedding import GridEmbedding

__all__ = [
    "MODELS",
    "CausalLM",
    "Encoder",
    "Memory",
    "Model",
    "Recording",
    "Seq2Seq",
    "Transformer",
    "build_model",
]

M = TypeVar("M", bound=Model)

MODELS: dict[str, tuple[type[Model], ...]] = {
    "transformer": (Transformer, TransformerDecoder, TransformerEncoder),
    "recurrent": (Recurrent, RecurrentDecoder, RecurrentEncoder),
    "convolutional": (Convolutional, ConvolutionalDecoder, ConvolutionalEncoder),
}
"""By family, one class for each promise that it keeps."""


def build_model(
    config: AnyModelConfig,
    *vocabularies: int | GridEmbedding,
    promise: type[M] = Seq2Seq,  # type: ignore[assignment]
) -> M:
    """Build the model a recipe describes, with new parameters from torch's random numbers.

    Args:
        config: The section [model] of a recipe.
        vocabularies: Sizes of the vocabularies: of source and target, or of the only one; or the
            embedding of a source that is no text.
        promise: `Seq2Seq`, `CausalLM` or `Encoder`.
    """
    multiple = config.vocabulary_multiple
    sizes = [
        size if isinstance(size, GridEmbedding) else -(-size // multiple) * multiple
        for size in vocabularies
    ]
    fitting = [name for name, kinds in MODELS.items() if any(issubclass(k, promise) for k in kinds)]
    for kind in MODELS[config.kind]:
        if issubclass(kind, promise):
            return kind(config, *sizes)
    raise ConfigError(
        f"model.kind = {config.kind!r} cannot be used for this task; choose from: "
        f"{', '.join(fitting)}"
    )
