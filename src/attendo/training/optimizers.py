"""Optimizers: the paper's Adam (§5.3), AdamW, and Muon for the matrices."""

from collections.abc import Callable

import torch
from torch import nn, optim

from attendo.config import TrainingConfig, choose
from attendo.nn.embedding import Embedding
from attendo.training.muon import Muon


def build_optimizers(model: nn.Module, config: TrainingConfig) -> list[optim.Optimizer]:
    """Build what a recipe names; every learned parameter belongs to exactly one of them."""
    optimizers = choose(OPTIMIZERS, config.optimizer, "training.optimizer")(model, config)
    device = next(model.parameters()).device
    if device.type == "cuda":
        for group in (group for optimizer in optimizers for group in optimizer.param_groups):
            # A recorded step reads its learning rate from the GPU's memory and must never read
            # anything on the CPU.
            group["lr"] = torch.tensor(group["lr"], device=device)
            group["capturable"] = True
    return optimizers


def adam(model: nn.Module, config: TrainingConfig) -> list[optim.Optimizer]:
    """Build Adam with β₁ = 0.9, β₂ = 0.98, ε = 10⁻⁹, as in the paper."""
    return [
        optim.Adam(
            _learned(model),
            lr=config.learning_rate,
            betas=(config.beta_1, config.beta_2),
            eps=config.epsilon,
            fused=True,
        )
    ]


def adamw(model: nn.Module, config: TrainingConfig) -> list[optim.Optimizer]:
    """Build Adam whose weight decay does not pass through the moments."""
    return [_adamw(_learned(model), config)]


def muon(model: nn.Module, config: TrainingConfig) -> list[optim.Optimizer]:
    """Build Muon (Jordan 2024) for the inner matrices, AdamW for embeddings, output and vectors."""
    tables = [module for module in model.modules() if isinstance(module, nn.Embedding | Embedding)]
    outer = {id(module.weight) for module in tables}
    outer |= {id(weight) for name, weight in model.named_parameters() if name == "output.weight"}
    hidden: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for parameter in _learned(model):
        is_inside = parameter.ndim == 2 and id(parameter) not in outer
        (hidden if is_inside else rest).append(parameter)
    return [Muon(hidden, config.learning_rate, config.weight_decay), _adamw(rest, config)]


def _learned(model: nn.Module) -> list[nn.Parameter]:
    """List the parameters that are learned; random projections are not."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _adamw(parameters: list[nn.Parameter], config: TrainingConfig) -> optim.Optimizer:
    """Build AdamW that decays matrices, not biases and norms."""
    matrices = [parameter for parameter in parameters if parameter.ndim > 1]
    vectors = [parameter for parameter in parameters if parameter.ndim == 1]
    return optim.AdamW(
        [
            {"params": matrices, "weight_decay": config.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        lr=config.learning_rate,
        betas=(config.beta_1, config.beta_2),
        eps=config.epsilon,
        fused=True,
    )


OPTIMIZERS: dict[str, Callable[[nn.Module, TrainingConfig], list[optim.Optimizer]]] = {
    "adam": adam,
    "adamw": adamw,
    "muon": muon,
}
