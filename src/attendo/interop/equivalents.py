"""The same function of the text by other parameters, as another architecture needs them."""

import math
import re

import torch
from torch import Tensor

from attendo.config import TransformerConfig
from attendo.nn.positions import POSITIONS

Parameters = dict[str, Tensor]

_IN, _OUT = (
    r"(query|key|value|inner|gate)\.weight",
    r"(self_attention\.output|cross_attention\.output|outer)\.",
)
_WIDE = re.compile(rf".*(embedding\.weight|norm\.(weight|bias)|{_IN}|^output\.weight)$")
"""Parameters whose last axis is the hidden states; the first is that of all others."""
_TALL = re.compile(rf".*{_OUT}(weight|bias)$")


def with_halves(
    model: TransformerConfig, parameters: Parameters
) -> tuple[TransformerConfig, Parameters]:
    """Reorder the coordinates of the hidden states, so that all sines are before all cosines.

    No layer depends on the order of coordinates; only the positions do.
    """
    if model.positions != "sinusoidal":
        return model, parameters
    order = torch.cat((torch.arange(0, model.d_model, 2), torch.arange(1, model.d_model, 2)))
    changed = {}
    for name, tensor in parameters.items():
        if _TALL.match(name):
            tensor = tensor[order]
        elif _WIDE.match(name):
            tensor = tensor[..., order]
        changed[name] = tensor
    return model.model_copy(update={"positions": "sinusoidal-halves"}), changed


def with_table(
    model: TransformerConfig, parameters: Parameters, name: str, longest: int
) -> tuple[TransformerConfig, Parameters]:
    """Write sinusoidal positions as a table, as if they had been learned."""
    if not model.positions.startswith("sinusoidal"):
        return model, parameters
    waves = POSITIONS[model.positions](model).embed(
        torch.zeros(1, longest, model.d_model), torch.arange(longest)[None]
    )
    changed = model.model_copy(update={"positions": "learned", "max_positions": longest})
    return changed, {**parameters, name: waves[0]}


def with_factor(
    model: TransformerConfig, parameters: Parameters, embedding: str, output: str
) -> tuple[TransformerConfig, Parameters]:
    """Multiply the embedding by √d_model once and for all; the output layer keeps its own."""
    if not model.scale_embedding:
        return model, parameters
    changed = {**parameters, embedding: parameters[embedding] * math.sqrt(model.d_model)}
    changed.setdefault(output, parameters[embedding])
    return model.model_copy(update={"scale_embedding": False, "tied": "none"}), changed
