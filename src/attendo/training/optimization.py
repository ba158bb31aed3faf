"""Optimization (§5.3): optimizers, and schedules of the learning rate.

Optimizers are the paper's Adam, AdamW, and Muon for the matrices. A schedule is a factor for each
step, from 1 to the last; a training by time advances by fractions of a step.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn, optim

from attendo.config import TrainingConfig, choose
from attendo.nn.embedding import Embedding


def build_optimizers(
    model: nn.Module,
    config: TrainingConfig,
    scales: Mapping[nn.Parameter, float] | None = None,
) -> list[optim.Optimizer]:
    """Build what a recipe names; every learned parameter belongs to exactly one of them.

    `scales` has the share of the learning rate of each parameter; without it, all have the whole.
    """
    optimizers = choose(OPTIMIZERS, config.optimizer, "training.optimizer")(model, config)
    for optimizer in optimizers:
        _split_by_scale(optimizer, scales or {})
    device = next(model.parameters()).device
    if device.type == "cuda":
        for group in (group for optimizer in optimizers for group in optimizer.param_groups):
            # A recorded step reads its learning rate from the GPU's memory and must never read
            # anything on the CPU.
            group["lr"] = torch.tensor(group["lr"], device=device)
            group["capturable"] = True
    return optimizers


def _split_by_scale(optimizer: optim.Optimizer, scales: Mapping[nn.Parameter, float]) -> None:
    """Split the groups of an optimizer, so that all parameters of a group have one `scale`."""
    groups: list[dict[str, Any]] = []
    for group in optimizer.param_groups:
        alike: dict[float, list[nn.Parameter]] = defaultdict(list)
        for parameter in group["params"]:
            alike[scales.get(parameter, 1.0)].append(parameter)
        groups += [{**group, "params": some, "scale": scale} for scale, some in alike.items()]
    optimizer.param_groups = groups


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
    inner, rest = _inner_and_rest(model)
    optimizers: list[optim.Optimizer] = []
    if inner:  # all of them may be frozen
        optimizers.append(Muon(inner, config.learning_rate, config.weight_decay))
    return [*optimizers, _adamw(rest, config)] if rest else optimizers


def _inner_and_rest(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Separate the learned matrices of the layers from all other parameters."""
    tables = [module for module in model.modules() if isinstance(module, nn.Embedding | Embedding)]
    outer = {id(module.weight) for module in tables}
    outer |= {id(weight) for name, weight in model.named_parameters() if name == "output.weight"}
    inner: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for parameter in _learned(model):
        is_inner = parameter.ndim == 2 and id(parameter) not in outer
        (inner if is_inner else rest).append(parameter)
    return inner, rest


def count_moments(model: nn.Module, config: TrainingConfig) -> int:
    """Count the numbers that the optimizers will keep: two a parameter, one where Muon is used."""
    is_muon = config.optimizer == "muon"
    inner, rest = _inner_and_rest(model) if is_muon else ([], _learned(model))
    return sum(one.numel() for one in inner) + 2 * sum(one.numel() for one in rest)


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


COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the polynomial a x + b x³ + c x⁵ that pulls every singular value towards 1 (Jordan 2024)."""

ROUNDS = 5


class Muon(optim.Optimizer):
    """Muon (Jordan 2024) with Nesterov momentum and decoupled weight decay, for matrices only.

    All directions of the momentum get the same size. Torch's own implementation processes the
    matrices one by one. A Transformer has many matrices of few shapes, so here all of one shape are
    processed together, which is faster on a GPU, and the learning rate may be a tensor, so that a
    step can be recorded as a graph.

    Updates have the size that AdamW's have (Liu et al. 2025), so both take the same learning rate.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float | Tensor,
        weight_decay: float = 0.0,
        momentum: float = 0.95,
    ) -> None:
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(parameters, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update the parameters."""
        for group in self.param_groups:
            alike: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    alike[parameter.shape].append(parameter)
            for shape, parameters in alike.items():
                self._change(shape, parameters, group)

    def _change(self, shape: torch.Size, parameters: list[Tensor], group: dict[str, Any]) -> None:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        momenta = [self._momentum(parameter) for parameter in parameters]
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        ahead = torch._foreach_lerp(gradients, momenta, group["momentum"])
        directions = orthogonalised(torch.stack(ahead)).to(parameters[0].dtype)
        rate = group["lr"] * 0.2 * max(shape) ** 0.5
        if group["weight_decay"]:
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_sub_(parameters, list((directions * rate).unbind()))

    def _momentum(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        momentum: Tensor = state["momentum_buffer"]
        return momentum


def orthogonalised(matrices: Float[Tensor, "N A B"]) -> Float[Tensor, "N A B"]:
    """Return a matrix with all singular values near 1, 0.7 to 1.2, by Newton-Schulz iteration.

    In bf16, which is exact enough here and faster.
    """
    x = matrices.bfloat16()
    is_tall = x.shape[1] > x.shape[2]
    if is_tall:
        x = x.mT
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(ROUNDS):
        square = x @ x.mT
        polynomial = torch.baddbmm(square, square, square, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
    return x.mT if is_tall else x


def paper(step: int | float, config: TrainingConfig, d_model: int) -> float:
    """Return d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5), eq. 3."""
    warmup = max(1, config.warmup_steps)
    return float(d_model**-0.5 * min(step**-0.5, step * warmup**-1.5))


def cosine(step: int | float, config: TrainingConfig, d_model: int) -> float:
    """Return a factor that rises over the warm-up, then falls to zero along half a cosine."""
    return _rise(step, config) * 0.5 * (1 + math.cos(math.pi * _progress(step, config)))


def linear(step: int | float, config: TrainingConfig, d_model: int) -> float:
    """Return a factor that rises over the warm-up, then falls to zero in a straight line."""
    return _rise(step, config) * (1 - _progress(step, config))


def constant(step: int | float, config: TrainingConfig, d_model: int) -> float:
    """Return a factor that rises over the warm-up and then remains 1."""
    return _rise(step, config)


def _rise(step: int | float, config: TrainingConfig) -> float:
    return min(1.0, step / max(1, config.warmup_steps))


def _progress(step: int | float, config: TrainingConfig) -> float:
    """Return the progress from 0 at the end of the warm-up to 1 just after the last step."""
    after = max(0, step - config.warmup_steps)
    return min(1.0, after / max(1, config.steps - config.warmup_steps + 1))


SCHEDULES: dict[str, Callable[[int | float, TrainingConfig, int], float]] = {
    "paper": paper,
    "cosine": cosine,
    "linear": linear,
    "constant": constant,
}
