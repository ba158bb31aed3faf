"""The same function of the text by other parameters, as another architecture needs them."""

import math
import re

import torch
from torch import Tensor

from attendo.config import TransformerConfig
from attendo.nn.positions import POSITIONS

Parameters = dict[str, Tensor]

_WRITES = re.compile(r".*(attention\.output|feed_forward\.outer)\.(weight|bias)")
"""What adds to the hidden states: their coordinates are the first axis."""

_READS = re.compile(r"(.*embedding|output|.*(query|key|value|inner))\.weight|.*norm\.(weight|bias)")
"""What reads them: their coordinates are the last axis."""


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
        if _WRITES.fullmatch(name):
            changed[name] = tensor[order]
        elif _READS.fullmatch(name):
            changed[name] = tensor[..., order]
        else:
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
