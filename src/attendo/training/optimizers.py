"""Optimizers: the paper's Adam (§5.3), AdamW, and Muon for the matrices."""

from collections.abc import Callable

from torch import nn, optim

from attendo.config import TrainingConfig, choose


def build_optimizers(model: nn.Module, config: TrainingConfig) -> list[optim.Optimizer]:
    """Build what a recipe names; every weight belongs to exactly one of the optimizers."""
    return choose(OPTIMIZERS, config.optimizer, "training.optimizer")(model, config)


def adam(model: nn.Module, config: TrainingConfig) -> list[optim.Optimizer]:
    """Adam with β₁ = 0.9, β₂ = 0.98, ε = 10⁻⁹, as in the paper."""
    return [
        optim.Adam(
            model.parameters(),
            lr=config.learning_rate,
            betas=(config.beta_1, config.beta_2),
            eps=config.epsilon,
            fused=True,
        )
    ]


def adamw(model: nn.Module, config: TrainingConfig) -> list[optim.Optimizer]:
    """Adam whose weight decay does not pass through the moments."""
    return [_adamw(list(model.parameters()), config)]


def muon(model: nn.Module, config: TrainingConfig) -> list[optim.Optimizer]:
    """Muon (Jordan 2024) for the matrices of the layers, AdamW for embeddings and vectors."""
    hidden: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        (hidden if ".layers." in name and parameter.ndim == 2 else rest).append(parameter)
    # With this adjustment Muon's updates are as large as AdamW's, so both take the same rate.
    whitened = optim.Muon(
        hidden,
        lr=config.learning_rate,
        weight_decay=config.weight_decay,
        adjust_lr_fn="match_rms_adamw",
    )
    return [whitened, _adamw(rest, config)]


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
