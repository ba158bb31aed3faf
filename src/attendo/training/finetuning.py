"""Fine-tuning: which parameters of a start are trained, and at which share of the learning rate."""

from collections.abc import Iterator
from typing import NamedTuple, cast

from torch import nn

from attendo.config import FinetuningConfig
from attendo.errors import ConfigError
from attendo.models import Transformer
from attendo.nn.embedding import Embedding
from attendo.nn.lora import add_lora
from attendo.nn.stack import Stack


class Place(NamedTuple):
    """Where a parameter of the body is."""

    depth: int
    """0 for embeddings and positions, then the number of its layer, from 1."""
    height: int
    """Steps below the head, which has 0; the last layer has 1."""


def taken_over(body: nn.Module, *, encoder_only: bool) -> nn.Module:
    """Return the part of a body that a start has trained: all of it, or the encoder."""
    return cast(Transformer, body).as_encoder() if encoder_only else body


def set_trained(model: nn.Module, body: nn.Module, config: FinetuningConfig) -> None:
    """Freeze the parameters that are not to be trained, and add low-rank matrices.

    Args:
        model: The whole model.
        body: The part of it that models of other tasks can start from.
        config: The section [finetuning] of a recipe.

    Raises:
        ConfigError: The model has no such layers, or no parameter would be trained.
    """
    body = taken_over(body, encoder_only=config.encoder_only)
    if config.frozen or config.lora_rank:
        body.requires_grad_(False)
    if config.frozen_layers:
        _check_layers(body, config.frozen_layers)
        for parameter, place in _places(body):
            parameter.requires_grad_(place.depth > config.frozen_layers)
    if config.lora_rank:
        names, rank = config.lora_projections, config.lora_rank
        if not sum(add_lora(one, names, rank, config.lora_alpha) for one in _stacks(body)):
            raise ConfigError(
                f"finetuning.lora_projections = {list(names)}: no layer of the model has them"
            )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError(
            "finetuning.frozen = true leaves nothing to train, since models of this task have no "
            "head of their own; set finetuning.frozen_layers or finetuning.lora_rank instead"
        )


def rate_scales(
    model: nn.Module, body: nn.Module, config: FinetuningConfig
) -> dict[nn.Parameter, float]:
    """Return the share of the learning rate that each parameter has, by its distance to the head.

    >>> scales = rate_scales(classifier, classifier.body, FinetuningConfig(layer_decay=0.9))
    >>> scales[classifier.output.weight]
    1.0
    """
    body, decay = taken_over(body, encoder_only=config.encoder_only), config.layer_decay
    if decay == 1.0:
        return dict.fromkeys(model.parameters(), 1.0)
    _check_layers(body, 1)
    below = {parameter: place.height for parameter, place in _places(body)}
    return {parameter: decay ** below.get(parameter, 0) for parameter in model.parameters()}


def _places(body: nn.Module) -> Iterator[tuple[nn.Parameter, Place]]:
    """Place the parameters of a body, each once; encoder and decoder are counted on their own."""
    stacks = _stacks(body)
    n_most = max(len(stack.layers) for stack in stacks)
    found: dict[nn.Parameter, Place] = {}
    for stack in stacks:
        n = len(stack.layers)
        for number, layer in enumerate(stack.layers, start=1):
            found |= dict.fromkeys(layer.parameters(), Place(number, n + 1 - number))
        found |= dict.fromkeys(stack.norm.parameters(), Place(n, 1))
    tables = {one.weight for one in body.modules() if isinstance(one, Embedding)}
    output = getattr(body, "output", None)
    if output is not None:  # one that shares the matrix of an embedding has its place
        own = [one for one in output.parameters() if one not in tables]
        found |= dict.fromkeys(own, Place(n_most + 1, 0))
    for parameter in body.parameters():
        yield parameter, found.get(parameter, Place(0, n_most + 1))


def _stacks(body: nn.Module) -> list[Stack]:
    stacks = [module for module in body.modules() if isinstance(module, Stack)]
    if not stacks:
        raise ConfigError(
            "[finetuning] layer_decay, frozen_layers and lora_rank are for Transformers; "
            "leave them out for models of other families"
        )
    return stacks


def _check_layers(body: nn.Module, n_frozen: int) -> None:
    fewest = min(len(stack.layers) for stack in _stacks(body))
    if n_frozen > fewest:
        raise ConfigError(
            f"finetuning.frozen_layers = {n_frozen}: the model has {fewest} layers; "
            "freeze all of them with finetuning.frozen = true"
        )
