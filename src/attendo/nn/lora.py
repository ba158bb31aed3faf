"""Low-rank adaptation (LoRA, Hu et al. 2021): y = W x + b + (alpha / rank) B A x, with W frozen.

Only A and B are learned. B starts at zero, so that the model is unchanged at first; in the end
their product is added to W, and the model is a plain one again.
"""

import math
from collections.abc import Callable, Collection

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional


class LoraLinear(nn.Linear):
    """A projection with two low-rank matrices beside it; it shares the parameters of the plain one.

    Only `lora_a` and `lora_b` are learned.
    """

    def __init__(self, plain: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__(
            plain.in_features, plain.out_features, bias=plain.bias is not None, device="meta"
        )
        self.weight, self.bias = plain.weight, plain.bias
        self.lora_a = nn.Parameter(plain.weight.new_empty(rank, plain.in_features))
        self.lora_b = nn.Parameter(plain.weight.new_zeros(plain.out_features, rank))
        self.scale = alpha / rank
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))
        for parameter in plain.parameters():
            parameter.requires_grad_(False)

    def forward(self, input: Float[Tensor, "*R D"]) -> Float[Tensor, "*R F"]:
        """Return the projection plus the low-rank one."""
        low = functional.linear(functional.linear(input, self.lora_a), self.lora_b)
        return super().forward(input) + self.scale * low

    def merged(self) -> nn.Linear:
        """Return a plain projection that computes the same."""
        weight = self.weight + self.scale * (self.lora_b @ self.lora_a)
        plain = nn.Linear(
            self.in_features, self.out_features, bias=self.bias is not None, device="meta"
        )
        plain.weight = nn.Parameter(weight.detach())
        plain.bias = self.bias
        return plain


def add_lora(module: nn.Module, names: Collection[str], rank: int, alpha: float) -> int:
    """Put low-rank matrices beside all projections of these names; return how many there are."""

    def wrap(name: str, projection: nn.Linear) -> nn.Linear | None:
        is_chosen = name in names and type(projection) is nn.Linear
        return LoraLinear(projection, rank, alpha) if is_chosen else None

    return _replace_projections(module, wrap)


@torch.no_grad()
def merge_lora(module: nn.Module) -> None:
    """Add the products of all low-rank matrices to their projections, which become plain ones."""
    _replace_projections(
        module, lambda _, one: one.merged() if isinstance(one, LoraLinear) else None
    )


def _replace_projections(
    module: nn.Module, change: Callable[[str, nn.Linear], nn.Linear | None]
) -> int:
    """Replace projections; one that has two names, such as query and key, is replaced as one."""
    places = [
        (parent, name, child)
        for parent in module.modules()
        for name, child in parent._modules.items()
        if isinstance(child, nn.Linear)
    ]
    changed: dict[nn.Linear, nn.Linear] = {}
    for _, name, child in places:
        if child not in changed and (new := change(name, child)) is not None:
            changed[child] = new
    for parent, name, child in places:
        if child in changed:
            setattr(parent, name, changed[child])
    return len(changed)
