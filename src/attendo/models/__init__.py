"""Model families: grids to logits. Each keeps a promise of `base.py`."""

from attendo.config import TransformerConfig
from attendo.models.base import Memory, Recording, Seq2Seq
from attendo.models.transformer import Transformer

__all__ = ["MODELS", "Memory", "Recording", "Seq2Seq", "Transformer", "build_model"]

MODELS: dict[str, type[Transformer]] = {"transformer": Transformer}


def build_model(config: TransformerConfig, n_source: int, n_target: int) -> Seq2Seq:
    """Build the model a recipe describes, with fresh weights from torch's random numbers."""
    return MODELS[config.kind](config, n_source, n_target)
