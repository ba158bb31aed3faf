"""The recipe `auto`: settings chosen for the data and the hardware, each with its reason."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from attendo.config import FAMILIES, Recipe, TrainingConfig, make_recipe
from attendo.data.texts import Texts
from attendo.training.optimization import SCHEDULES

CHARACTERS_A_TOKEN = 4
"""Mean length of a subword token in most languages with spaces between words."""

CPU_HOURS = 2
"""The longest training that `auto` starts on a CPU."""

CPU_RATE = 25e9
"""Floating-point operations per second of one core in training."""

ROOM = 1.5
"""Size of a batch for all pairs of a small corpus, times their estimated tokens."""

ADAPTATION_EPOCHS = 5
"""Epochs of a training that starts from trained parameters."""

ADAPTATION_BATCHES = 50
"""Fewest batches per epoch of such a training."""

ADAPTATION_RATE = 1 / 3
"""Its highest learning rate, as a share of the highest one of the run it starts from."""


FINETUNING_TEXTS = 32
"""Texts per batch of a fine-tuning."""

FINETUNING_RATE = 3e-4
"""Its highest learning rate at a width of 128; it falls as the width grows."""

FINETUNING_RATES = (3e-5, 1e-3)
"""The lowest and the highest one."""

FINETUNING_FACTORS = {"frozen": 100, "lora_rank": 5}
"""What it is multiplied by where the body is frozen, which then cannot forget anything."""

NEW_DECODER_FACTOR = 4
"""What it is multiplied by with a new decoder."""

NEW_DECODER_DECAY = 0.8
"""Learning rate of each layer below a new decoder, as a share of that of the layer above."""


class Choice(NamedTuple):
    """A setting and why it was chosen."""

    key: str
    value: Any
    reason: str


@dataclass(frozen=True, slots=True)
class Size:
    """A model size that works well, and the data it needs."""

    name: str
    d_model: int
    d_ff: int
    n_heads: int
    layers: int
    fewest_pairs: int
    """On a GPU; on a CPU only the two smaller ones are chosen, so that training takes hours."""


SIZES = (
    Size("tiny", 128, 512, 4, 3, 0),
    Size("small", 256, 1024, 4, 4, 10_000),
    Size("base", 512, 2048, 8, 6, 300_000),
)


class _Chooser:
    """Chooses one setting after the other; what the user has set is kept."""

    def __init__(self, recipe: Recipe) -> None:
        self.values = recipe.model_dump(exclude_unset=True, mode="json")
        self.model_settings = FAMILIES[recipe.model.kind].model_fields
        self.made: list[Choice] = []

    def __call__(self, key: str, value: Any, reason: str) -> Any:
        """Choose a value, unless the user has; return the one that is used."""
        section, name = key.split(".")
        inside = self.values.setdefault(section, {})
        if section == "model" and name not in self.model_settings:
            return value  # another family's
        if name not in inside:
            inside[name] = value
            self.made.append(Choice(key, value, reason))
        return inside[name]

    def settled(self) -> tuple[Recipe, list[Choice]]:
        """Return the complete recipe, and what was chosen in it."""
        return make_recipe({**self.values, "auto": False}), self.made


def choose_settings(
    recipe: Recipe, texts: Texts, device: torch.device
) -> tuple[Recipe, list[Choice]]:
    """Fill in what the recipe leaves out."""
    choose = _Chooser(recipe)
    size = _choose_model(choose, texts, device)
    _choose_training(choose, texts, device, size)
    return choose.settled()


def choose_adaptation(
    recipe: Recipe, base: Recipe, n_pairs: int, mean_tokens: float
) -> tuple[Recipe, list[Choice]]:
    """Fill in the training of an adaptation: short, and at a low learning rate."""
    choose, before = _Chooser(recipe), base.training
    n_tokens = n_pairs * mean_tokens
    batch_tokens = max(512, min(before.batch_tokens, round(n_tokens / ADAPTATION_BATCHES)))
    batch_tokens = choose("training.batch_tokens", batch_tokens, "enough updates from few pairs")
    steps = max(30, math.ceil(ADAPTATION_EPOCHS * n_tokens / batch_tokens))
    steps = choose("training.steps", steps, f"{ADAPTATION_EPOCHS} epochs over {n_pairs:,} pairs")
    every = math.ceil(steps / 10)
    choose("training.validate_every", every, f"{math.ceil(steps / every)} validations in total")
    choose("training.save_every", every, "with every validation")
    warmup_steps = choose("training.warmup_steps", max(1, steps // 10), "a tenth of all steps")
    rate = ADAPTATION_RATE * before.learning_rate * _highest(before, base.model.d_model)
    if choose("training.schedule", "cosine", "decays to zero at the last step") == "paper":
        rate *= math.sqrt(base.model.d_model * max(1, warmup_steps))
    choose(
        "training.learning_rate", float(f"{rate:.2g}"), "a third of the highest rate of the start"
    )
    choose.values["training"] = {**before.model_dump(mode="json"), **choose.values["training"]}
    return choose.settled()


def choose_finetuning(
    recipe: Recipe, n_texts: int, mean_tokens: float
) -> tuple[Recipe, list[Choice]]:
    """Fill in the training of a new head on the body of a start, as of BERT (Devlin et al. 2019).

    A few epochs, at a learning rate that rises and then falls in a straight line.
    """
    choose, d_model = _Chooser(recipe), recipe.model.d_model
    # A row must fit into a batch, and many texts fit into a row.
    batch_tokens = min(8192, max(512, recipe.data.max_length, FINETUNING_TEXTS * mean_tokens))
    batch_tokens = choose(
        "training.batch_tokens", math.ceil(batch_tokens), f"about {FINETUNING_TEXTS} texts"
    )
    epochs = 3 if n_texts >= 100_000 else 5 if n_texts >= 10_000 else 10
    steps = max(200, math.ceil(epochs * n_texts * mean_tokens / batch_tokens))
    epochs = round(steps * batch_tokens / (n_texts * mean_tokens))
    steps = choose("training.steps", steps, f"about {epochs} epochs over {n_texts:,} texts")
    every = math.ceil(steps / 10)
    choose("training.validate_every", every, f"{math.ceil(steps / every)} validations in total")
    choose("training.save_every", every, "with every validation")
    choose("training.optimizer", "adamw", "the usual one for fine-tuning")
    choose("training.epsilon", 1e-8, "the usual value for bf16 and fp32")
    choose("training.weight_decay", 0.01, "the usual value for fine-tuning")
    choose("training.clip_norm", 1.0, "limits the effect of a bad batch")
    warmup_steps = choose("training.warmup_steps", max(1, steps // 10), "a tenth of all steps")
    lowest, highest = FINETUNING_RATES
    rate = min(highest, max(lowest, FINETUNING_RATE * 128 / d_model))
    reason = f"for the width {d_model}"
    if recipe.finetuning.encoder_only:
        rate *= NEW_DECODER_FACTOR
        reason = f"{reason}, {NEW_DECODER_FACTOR} times as high for a new decoder"
        if not recipe.finetuning.is_partial:
            choose("finetuning.layer_decay", NEW_DECODER_DECAY, "spares the layers of the start")
    else:
        for way, factor in FINETUNING_FACTORS.items():
            if getattr(recipe.finetuning, way):
                rate, reason = factor * rate, f"{reason}, {factor} times as high with a frozen body"
    if choose("training.schedule", "linear", "decays to zero at the last step") == "paper":
        rate *= math.sqrt(d_model * max(1, warmup_steps))
    choose("training.learning_rate", float(f"{rate:.2g}"), reason)
    return choose.settled()


def _highest(training: TrainingConfig, d_model: int) -> float:
    """Compute the highest factor that a schedule reached."""
    step = min(max(1, training.warmup_steps), training.steps)
    return SCHEDULES[training.schedule](step, training, d_model)


def _choose_model(choose: _Chooser, texts: Texts, device: torch.device) -> Size:
    n = texts.n_train
    size = _size(n, is_gpu=device.type != "cpu")
    shape = f"the size {size.name!r} suits {n:,} pairs on {_where(device)}"
    length = _length(texts)
    p_drop = 0.3 if n < 100_000 else 0.2 if n < 500_000 else 0.1
    choose("tokenizer.vocabulary", _vocabulary(n), f"for {n:,} pairs")
    choose("model.d_model", size.d_model, shape)
    choose("model.d_ff", size.d_ff, shape)
    choose("model.n_heads", size.n_heads, shape)
    choose("model.encoder_layers", size.layers, shape)
    choose("model.decoder_layers", size.layers, shape)
    choose("model.p_drop", p_drop, f"against overfitting on {n:,} pairs")
    choose("model.norm_order", "pre", "trains more stably than the paper's order")
    choose("model.positions", "rotary", "learns word order faster than sinusoidal positions")
    choose("data.max_length", _width(length), f"sentences have about {length:.0f} tokens")
    return size


def _choose_training(choose: _Chooser, texts: Texts, device: torch.device, size: Size) -> None:
    n, is_gpu = texts.n_train, device.type != "cpu"
    full = (25_000 if size.name == "base" else 8192) if is_gpu else 4096
    # A batch that is larger than the corpus would be mostly padding.
    all_pairs = max(512, 64 * math.ceil(ROOM * n * _length(texts) / 64))
    reason = f"uses {_where(device)} fully" if full < all_pairs else "room for all pairs"
    batch_tokens = choose("training.batch_tokens", min(full, all_pairs), reason)
    epochs = min(100.0, max(4.0, 6000 / math.sqrt(n)))
    steps = math.ceil(epochs * n * _length(texts) / batch_tokens)
    reason = f"about {epochs:.0f} epochs over {n:,} pairs"
    affordable = _affordable_steps(size, _vocabulary(n), batch_tokens)
    if not is_gpu and steps > affordable:
        steps, reason = affordable, f"about {CPU_HOURS} hours on this CPU"
    steps = choose("training.steps", max(300, steps), reason)
    every = max(50, steps // 20)
    choose("training.validate_every", every, f"{math.ceil(steps / every)} validations in total")
    choose("training.save_every", every, "with every validation")
    optimizer = choose("training.optimizer", "muon", "needs fewer steps than Adam")
    choose("training.epsilon", 1e-8, "the usual value for bf16 and fp32")
    choose("training.clip_norm", 1.0, "limits the effect of a bad batch")
    if choose("training.schedule", "cosine", "decays to zero at the last step") == "paper":
        choose("training.learning_rate", 1.0, "the paper's formula, unchanged")
    else:
        rate = 4e-3 if optimizer == "muon" else 1e-3
        is_wide = choose.values["model"]["d_model"] >= 512
        choose("training.learning_rate", 0.75 * rate if is_wide else rate, "for this width")
    choose("training.warmup_steps", max(1, min(4000, steps // 10)), "a tenth of all steps")


def _where(device: torch.device) -> str:
    return "a CPU" if device.type == "cpu" else "a GPU"


def _length(texts: Texts) -> float:
    """Estimate the tokens of a sentence."""
    return max(2.0, texts.mean_characters / CHARACTERS_A_TOKEN)


def _size(n: int, *, is_gpu: bool) -> Size:
    fitting = [size for size in SIZES if size.fewest_pairs <= n and (is_gpu or size.name != "base")]
    return fitting[-1]


def _vocabulary(n: int) -> int:
    steps = ((5_000, 2_000), (20_000, 4_000), (200_000, 8_000), (1_000_000, 16_000))
    return next((vocabulary for limit, vocabulary in steps if n < limit), 32_000)


def _width(length: float) -> int:
    """Return four times the mean length; a multiple of 8 suits all hardware."""
    return min(256, max(48, 8 * math.ceil(4 * length / 8)))


def _affordable_steps(size: Size, vocabulary: int, batch_tokens: int) -> int:
    """Estimate the steps of a CPU in CPU_HOURS, at 6 operations per parameter and token."""
    parameters = size.layers * (12 * size.d_model**2 + 4 * size.d_model * size.d_ff)
    parameters += vocabulary * size.d_model
    a_step = 6 * parameters * batch_tokens / (CPU_RATE * (torch.get_num_threads() or 1))
    return int(CPU_HOURS * 3600 / a_step)
