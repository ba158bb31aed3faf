"""All kinds of attention that a recipe can name."""

from attendo.nn.attention.base import Additive, Attention, ScaledDotProduct
from attendo.nn.attention.favor import Favor
from attendo.nn.attention.lsh import Lsh
from attendo.nn.attention.window import Chunks, Window

__all__ = ["ATTENTIONS", "Additive", "Attention", "ScaledDotProduct"]

ATTENTIONS: dict[str, type[Attention]] = {
    "dot": ScaledDotProduct,
    "additive": Additive,
    "window": Window,
    "chunks": Chunks,
    "lsh": Lsh,
    "favor": Favor,
}
"""Kinds that use no mask are for self-attention; attention to a source is then the paper's."""
