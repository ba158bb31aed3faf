"""The recipe `auto`: settings chosen by the data and the hardware, each with its reason."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from attendo.config import Recipe, make_recipe
from attendo.data.texts import Texts

CHARACTERS_A_TOKEN = 4
"""What a subword token is worth, in most languages that put spaces between words."""

CPU_HOURS = 2
"""The longest training that `auto` starts on a CPU."""

CPU_RATE = 25e9
"""Floating-point operations a second that one core manages in training."""


class Choice(NamedTuple):
    """A setting and why it was chosen."""

    key: str
    value: Any
    reason: str


@dataclass(frozen=True, slots=True)
class Size:
    """A model size that has proved itself, and the data it needs."""

    name: str
    d_model: int
    d_ff: int
    n_heads: int
    layers: int
    fewest_pairs: int
    """On a GPU; a CPU stays with the two smaller ones, so that training ends in hours."""


SIZES = (
    Size("tiny", 128, 512, 4, 3, 0),
    Size("small", 256, 1024, 4, 4, 10_000),
    Size("base", 512, 2048, 8, 6, 300_000),
)


def choose_settings(
    recipe: Recipe, texts: Texts, device: torch.device
) -> tuple[Recipe, list[Choice]]:
    """Fill in what the recipe leaves open; what the person has set stays."""
    values = recipe.model_dump(exclude_unset=True, mode="json")
    values.pop("auto", None)
    made = []
    for choice in _choices(texts, device):
        section, key = choice.key.split(".")
        inside = values.setdefault(section, {})
        if key not in inside:
            inside[key] = choice.value
            made.append(choice)
    return make_recipe(values), made


def _choices(texts: Texts, device: torch.device) -> list[Choice]:
    n, is_gpu = texts.n_train, device.type != "cpu"
    where = "a GPU" if is_gpu else "a CPU"
    size = _size(n, is_gpu=is_gpu)
    vocabulary = _vocabulary(n)
    p_drop = 0.3 if n < 100_000 else 0.2 if n < 500_000 else 0.1
    length = max(2.0, texts.mean_characters / CHARACTERS_A_TOKEN)
    batch_tokens = (25_000 if size.name == "base" else 8192) if is_gpu else 4096
    epochs = min(100.0, max(4.0, 6000 / math.sqrt(n)))
    steps = math.ceil(epochs * n * length / batch_tokens)
    reason = f"about {epochs:.0f} times through {n:,} pairs"
    affordable = _affordable_steps(size, vocabulary, batch_tokens)
    if not is_gpu and steps > affordable:
        steps, reason = affordable, f"about {CPU_HOURS} hours on this CPU"
    steps = max(300, steps)
    every = max(50, steps // 20)
    shape = f"the size {size.name!r} suits {n:,} pairs on {where}"
    return [
        Choice("tokenizer.vocabulary", vocabulary, f"for {n:,} pairs"),
        Choice("model.d_model", size.d_model, shape),
        Choice("model.d_ff", size.d_ff, shape),
        Choice("model.n_heads", size.n_heads, shape),
        Choice("model.encoder_layers", size.layers, shape),
        Choice("model.decoder_layers", size.layers, shape),
        Choice("model.p_drop", p_drop, f"{n:,} pairs are soon learned by heart without it"),
        Choice("model.norm_order", "pre", "steadier than the paper's order, whatever the data"),
        Choice("data.max_length", _width(length), f"sentences have about {length:.0f} tokens"),
        Choice("training.batch_tokens", batch_tokens, f"keeps {where} busy"),
        Choice("training.optimizer", "adamw", "with the schedule below"),
        Choice("training.schedule", "cosine", "falls to zero just at the end"),
        Choice("training.learning_rate", 1e-3 if size.d_model < 512 else 7e-4, "for this width"),
        Choice("training.epsilon", 1e-8, "AdamW's usual"),
        Choice("training.clip_norm", 1.0, "one bad batch does no harm"),
        Choice("training.warmup_steps", max(20, min(4000, steps // 10)), "a tenth of all steps"),
        Choice("training.steps", steps, reason),
        Choice("training.validate_every", every, "twenty times in all"),
        Choice("training.save_every", every, "with every validation"),
    ]


def _size(n: int, *, is_gpu: bool) -> Size:
    fitting = [size for size in SIZES if size.fewest_pairs <= n and (is_gpu or size.name != "base")]
    return fitting[-1]


def _vocabulary(n: int) -> int:
    steps = ((5_000, 2_000), (20_000, 4_000), (200_000, 8_000), (1_000_000, 16_000))
    return next((vocabulary for limit, vocabulary in steps if n < limit), 32_000)


def _width(length: float) -> int:
    """Leave room for sentences four times the mean; a multiple of 8 suits all hardware."""
    return min(256, max(48, 8 * math.ceil(4 * length / 8)))


def _affordable_steps(size: Size, vocabulary: int, batch_tokens: int) -> int:
    """Estimate how many steps a CPU does in CPU_HOURS, at 6 operations a weight and token."""
    weights = size.layers * (12 * size.d_model**2 + 4 * size.d_model * size.d_ff)
    weights += vocabulary * size.d_model
    a_step = 6 * weights * batch_tokens / (CPU_RATE * (torch.get_num_threads() or 1))
    return int(CPU_HOURS * 3600 / a_step)
