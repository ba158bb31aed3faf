"""Muon (Jordan 2024): momentum whose every direction is made equally large.

Torch's own takes the matrices one by one. A Transformer has many matrices of few shapes, so here
all of one shape go through the iteration together, which keeps a GPU busy, and the learning rate
may be a tensor, so that a step can be recorded as a graph.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn, optim

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the polynomial a x + b x³ + c x⁵ that pulls every singular value towards 1 (Jordan 2024)."""

ROUNDS = 5


class Muon(optim.Optimizer):
    """Muon with Nesterov momentum and decoupled weight decay, for matrices only.

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
