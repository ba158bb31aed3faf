"""Model families: grids to logits. Each keeps a promise of `base.py`."""

from typing import Any

from attendo.config import RecurrentConfig, TransformerConfig
from attendo.models.base import Memory, Recording, Seq2Seq
from attendo.models.recurrent import Recurrent
from attendo.models.transformer import Transformer

__all__ = ["MODELS", "Memory", "Recording", "Seq2Seq", "Transformer", "build_model"]

MODELS: dict[str, Any] = {"transformer": Transformer, "recurrent": Recurrent}


def build_model(
    config: TransformerConfig | RecurrentConfig, n_source: int, n_target: int
) -> Seq2Seq:
    """Build the model a recipe describes, with fresh weights from torch's random numbers."""
    model: Seq2Seq = MODELS[config.kind](config, n_source, n_target)
    return model
