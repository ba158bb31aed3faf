"""What a recipe costs, before anything is allocated: parameters, FLOPs, memory and time.

The model is built on torch's meta device, where tensors have shapes and no memory, so the number of
parameters is exact. FLOPs and activations are estimates by the formulas below.
"""

import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from attendo.config import AnyModelConfig, BlockConfig, Recipe, TransformerConfig, presets
from attendo.errors import ConfigError, command_line
from attendo.models import Model
from attendo.models.base import layer_counts
from attendo.models.convolutional import Convolutional
from attendo.models.outline import shapes_only
from attendo.models.recurrent import Recurrent
from attendo.nn.embedding import Embedding
from attendo.nn.stack import Stack
from attendo.tasks import TASKS
from attendo.text import load_tokenizer
from attendo.training.kinds import check_kinds
from attendo.training.optimization import count_moments

GPU = "H200"
GPU_FLOPS = 790e12
"""Floating-point operations per second of large bf16 matrix products, measured on one H200."""
GPU_SHARE = 0.4
"""Share of that which the training of a large Transformer is assumed to reach."""
GPU_BYTES = 141e9
"""Memory of one H200."""

N_LABELS = 2
"""Labels of a classifier, which are known only with the data; each has one vector."""

FP32, BF16, INT8 = 4, 2, 1
"""Bytes of a number."""


@dataclass(frozen=True, slots=True)
class TrainingMemory:
    """Bytes that one training needs, all devices together."""

    parameters: int
    """In fp32."""
    gradients: int
    moments: int
    """Of the optimizer, and the moving average of the parameters if there is one."""
    half_precision: int
    """Copies of the matrices in bf16, which are made for every step on a GPU."""
    activations_stored: int
    """What one part of a batch stores for the backward pass if nothing is recomputed."""
    activations_recomputed: int
    """The same with activation checkpointing: the input of every layer, and one whole layer."""
    is_recomputed: bool
    """Whether the recipe has activation checkpointing or reversible layers."""

    @property
    def state(self) -> int:
        """Return what is there between two steps, and the gradients."""
        return self.parameters + self.gradients + self.moments

    @property
    def total(self) -> int:
        """Return all of it, with recomputation if the recipe says so."""
        kept = self.activations_recomputed if self.is_recomputed else self.activations_stored
        return self.state + self.half_precision + kept


@dataclass(frozen=True, slots=True)
class Plan:
    """What a recipe costs."""

    task: str
    family: str
    vocabulary: int
    parameters: int
    parts: dict[str, int]
    """Parameters by part of the model; a matrix that two parts share is counted once."""
    layer_parameters: dict[str, int]
    """Parameters of one layer of each stack."""
    n_layers: dict[str, int]
    """Number of layers of each stack."""
    matrix_parameters: int
    """Parameters that every token is multiplied with: all but tables, with the output layer."""
    context: int
    """Positions that a token attends to at most."""
    attention_flops: int
    """Per token, forward and backward, besides those of the parameters."""
    flops_per_token: int
    """Forward and backward, 6 · matrix parameters + attention, without recomputation."""
    tokens: int
    """Of the whole training."""
    memory: TrainingMemory
    cache_values_per_token: int
    """Numbers that generation keeps for each token: keys and values of every layer."""

    @property
    def flops(self) -> int:
        """Return the operations of the whole training, without recomputation."""
        return self.flops_per_token * self.tokens

    @property
    def computed_flops(self) -> int:
        """Return the same with recomputation, which repeats the forward pass, a third of it."""
        return self.flops * 4 // 3 if self.memory.is_recomputed else self.flops

    @property
    def fewest_gpus(self) -> int:
        """Return how many GPUs can hold it, if all of it is divided evenly among them."""
        return math.ceil(self.memory.total / GPU_BYTES)

    def seconds(self, n_gpus: int = 1) -> float:
        """Return the time on some GPUs that lose nothing to communication."""
        return self.computed_flops / (GPU_FLOPS * GPU_SHARE * n_gpus)

    def inference_bytes(self, width: int) -> int:
        """Return the memory of the parameters, given the bytes of one."""
        return self.parameters * width

    def to_dict(self, n_gpus: int = 1) -> dict[str, Any]:
        """Return everything by name, with the time on some GPUs."""
        memory = {**asdict(self.memory), "state": self.memory.state, "total": self.memory.total}
        return {
            **asdict(self),
            "memory": memory,
            "inference": {
                "fp32": self.inference_bytes(FP32),
                "bf16": self.inference_bytes(BF16),
                "int8": self.inference_bytes(INT8),
                "cache_bytes_per_token_bf16": self.cache_values_per_token * BF16,
            },
            "flops": self.flops,
            "computed_flops": self.computed_flops,
            "gpu": {
                "name": GPU,
                "flops_per_second": GPU_FLOPS,
                "share": GPU_SHARE,
                "memory": int(GPU_BYTES),
            },
            "seconds": self.seconds(),
            "gpus": n_gpus,
            "seconds_on_gpus": self.seconds(n_gpus),
            "fits_one_gpu": self.fewest_gpus == 1,
            "fewest_gpus": self.fewest_gpus,
        }


def make_plan(recipe: Recipe, tokens: int | None = None) -> Plan:
    """Compute what a recipe costs.

    Args:
        recipe: The recipe; no data is read.
        tokens: Tokens to train on, instead of the steps of the recipe times the size of a batch.

    Raises:
        ConfigError: The recipe cannot be built, or leaves its settings to the data.
    """
    if recipe.auto:
        raise ConfigError(
            "the recipe chooses its settings when it sees the data; plan another one, such as small"
        )
    check_kinds(recipe)
    model = outline(recipe)
    if model is None:
        raise ConfigError(f"the size of a model for the task {recipe.task!r} depends on its data")
    config, training = recipe.model, recipe.training
    parts = _parts(model)
    stacks = {name: one for name, one in parts.items() if isinstance(one, Stack)}
    matrices = _matrix_parameters(model)
    context = recipe.data.max_length
    attention = _attention_flops(config, model, context)
    if tokens is None:
        tokens = training.steps * training.batch_tokens
    passes = 2 if training.r_drop else 1
    return Plan(
        task=recipe.task,
        family=config.kind,
        vocabulary=vocabulary_size(recipe),
        parameters=_count(model),
        parts=_counts(parts),
        layer_parameters={name: _count(stack.layers[0]) for name, stack in stacks.items()},
        n_layers={name: len(stack.layers) for name, stack in stacks.items()},
        matrix_parameters=matrices,
        context=context,
        attention_flops=attention,
        flops_per_token=passes * (6 * matrices + attention),
        tokens=tokens,
        memory=_training_memory(recipe, model, matrices),
        cache_values_per_token=_cache(model, config.d_model),
    )


def outline(recipe: Recipe) -> Model | None:
    """Build the model of a recipe without its parameters' memory; None: it depends on the data."""
    task = TASKS[recipe.task]
    sizes = dict.fromkeys(task.columns, vocabulary_size(recipe)) | {"label": N_LABELS}
    with shapes_only():
        return task.outline_of(recipe, sizes)


def vocabulary_size(recipe: Recipe) -> int:
    """Return the size of an existing tokenizer, or else the largest that one may be learned."""
    path = recipe.tokenizer.path
    if path is not None and Path(path).exists():
        return load_tokenizer(path).size
    return recipe.tokenizer.vocabulary


# -- parameters ----------------------------------------------------------------------------------


def _count(*modules: nn.Module) -> int:
    parameters = {parameter for module in modules for parameter in module.parameters()}
    return sum(parameter.numel() for parameter in parameters)


def _parts(model: nn.Module) -> dict[str, nn.Module]:
    """Return the parts of a model by name; those of a classifier's encoder among them."""
    parts: dict[str, nn.Module] = {}
    for name, part in model.named_children():
        if part is getattr(model, "body", None):
            parts |= _parts(part)
        elif isinstance(part, Stack):
            parts |= {f"{name}_positions": part.enter, name: part}
        else:
            parts[name] = part
    return parts


def _counts(parts: dict[str, nn.Module]) -> dict[str, int]:
    """Count the parameters of each part; those it shares with an earlier one are not its own."""
    seen: set[nn.Parameter] = set()
    counts: dict[str, int] = {}
    for name, part in parts.items():
        own = set(part.parameters()) - seen
        counts[name] = sum(parameter.numel() for parameter in own)
        seen |= own
    return {name: count for name, count in counts.items() if count or name == "output"}


def _matrix_parameters(model: nn.Module) -> int:
    """Count the parameters that are multiplied with every token.

    Tables are only looked up, but an output layer that shares one is multiplied.
    """
    tables = [module for module in model.modules() if isinstance(module, nn.Embedding | Embedding)]
    output = getattr(model, "output", None)
    looked_up = {module.weight for module in tables} - ({output.weight} if output else set())
    return _count(model) - sum(table.numel() for table in looked_up)


def _cache(model: nn.Module, d_model: int) -> int:
    """Count the keys and values of one token in the decoder; an encoder keeps nothing."""
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    return sum(2 * d_model * len(stack.layers) for stack in stacks if stack.causal)


# -- operations ----------------------------------------------------------------------------------


def _attention_flops(config: AnyModelConfig, model: nn.Module, width: int) -> int:
    """Return 12 · d_model · keys for every attention: two products, forward and twice backward.

    All positions of a row count as keys, also those that a causal mask hides (Chowdhery et al.
    2022, appendix B).
    """
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    n_keys = sum(_keys(config, n, width) for stack in stacks for n in range(len(stack.layers)))
    n_keys += sum(len(stack.layers) * width for stack in stacks if stack.cross)
    if isinstance(model, Convolutional):
        n_keys = config.decoder_layers * width
    elif isinstance(model, Recurrent) and model.attention is not None:
        n_keys = width
    return 12 * config.d_model * n_keys


def _keys(config: AnyModelConfig, layer: int, width: int) -> int:
    """Return the number of keys that a token is compared with in the self-attention of a layer."""
    assert isinstance(config, BlockConfig)
    keys = {
        "window": 2 * config.window.reach + 1 + config.window.n_global,
        "chunks": config.chunks.size + 2 * config.chunks.overlap,
        "lsh": config.lsh.n_rounds * (2 * config.lsh.reach + 1),
        "favor": 2 * config.favor.n_features,
    }
    return min(width, keys.get(config.of_layer(layer).attention, width))


# -- memory --------------------------------------------------------------------------------------


def _training_memory(recipe: Recipe, model: Model, n_matrices: int) -> TrainingMemory:
    config, training = recipe.model, recipe.training
    learned = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    n_numbers = FP32 if training.precision == "fp32" else BF16
    part = math.ceil(training.batch_tokens / training.accumulate)
    part = max(part, recipe.data.max_length) * (2 if training.r_drop else 1)
    layers = _stored(config, model)
    ends = 3 * config.d_model  # embedding, its dropout, last norm
    is_reversible = getattr(config, "reversible", False)
    kept = 2 if is_reversible else len(layers)  # two halves at the end, or the input of each layer
    recomputed = ends + kept * config.d_model + max(layers)
    return TrainingMemory(
        parameters=FP32 * _count(model),
        gradients=FP32 * learned,
        moments=_moments(recipe, model),
        half_precision=0 if training.precision == "fp32" else BF16 * n_matrices,
        activations_stored=n_numbers * part * (ends + sum(layers)),
        activations_recomputed=n_numbers * part * recomputed,
        is_recomputed=training.activation_checkpointing or is_reversible,
    )


def _moments(recipe: Recipe, model: Model) -> int:
    """Count the bytes of the optimizer's state and of a moving average."""
    averaged = _count(model) if recipe.training.ema else 0
    return FP32 * (count_moments(model, recipe.training) + averaged)


def _stored(config: AnyModelConfig, model: Model) -> list[int]:
    """Return how many numbers each layer stores per token for its backward pass."""
    width = config.d_model
    if not isinstance(config, TransformerConfig):
        # Gates of recurrent cells; of convolutions, the window, its gates and what it attends to.
        return [8 * width] * sum(layer_counts(config, type(model)))
    # Each sub-layer stores the sum that enters it, the same normalised, queries, keys, values and
    # the output of the heads, or the inner layer before and after its activation.
    inner = {"relu": 1, "gelu": 2, "gated": 4}.get(config.feed_forward, 2) * config.d_ff
    dropped = width if config.p_drop else 0
    stored: list[int] = []
    for stack in (module for module in model.modules() if isinstance(module, Stack)):
        across = 6 * width + dropped if stack.cross else 0
        stored += [8 * width + inner + 2 * dropped + across] * len(stack.layers)
    return stored


def memory_of(device: torch.device) -> int:
    """Return the memory of a device in bytes; of a CPU, that of the machine."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def check_memory(recipe: Recipe, device: torch.device) -> None:
    """Raise an error if parameters, gradients and moments alone are more than a device can hold.

    Activations and what other programs use are not counted: what might fit is tried.
    """
    if recipe.auto or (model := outline(recipe)) is None:
        return
    learned = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    needed = FP32 * (_count(model) + learned) + _moments(recipe, model)
    if needed <= (there := memory_of(device)):
        return
    where = "this machine" if device.type == "cpu" else f"the device {device}"
    name = recipe.name if recipe.name in presets() else "RECIPE"
    raise ConfigError(
        f"the model has {_count(model):,} parameters, and its training needs at least "
        f"{needed / 1e9:,.0f} GB for them, their gradients and the optimizer; {where} has "
        f"{there / 1e9:,.0f} GB: lower model.d_model or the number of layers, or see "
        f"'{command_line('plan', name)}'"
    )
