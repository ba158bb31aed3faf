"""Model families: grids to logits. Each keeps a promise of `base.py`."""

from typing import Any

from attendo.config import AnyModelConfig
from attendo.models.base import Memory, Recording, Seq2Seq
from attendo.models.convolutional import Convolutional
from attendo.models.recurrent import Recurrent
from attendo.models.transformer import Transformer

__all__ = ["MODELS", "Memory", "Recording", "Seq2Seq", "Transformer", "build_model"]

MODELS: dict[str, Any] = {
    "transformer": Transformer,
    "recurrent": Recurrent,
    "convolutional": Convolutional,
}


def build_model(config: AnyModelConfig, n_source: int, n_target: int) -> Seq2Seq:
    """Build the model a recipe describes, with fresh weights from torch's random numbers."""
    model: Seq2Seq = MODELS[config.kind](config, n_source, n_target)
    return model
