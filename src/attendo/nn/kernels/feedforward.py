"""max(0, x W + b) in one product: cuBLAS adds the bias and cuts off below zero on the way out.

On the way back, what was cut off and the gradient of the bias are done in one pass over memory.
"""

from typing import Any

import torch
import triton
from jaxtyping import Float
from torch import Tensor
from triton import language as tl

ROWS, COLUMNS = 16, 256
"""What a program of the backward pass looks at at a time."""

STRETCH = 512
"""Tokens that one program goes through; it sums the gradient of the bias over them."""


def relu_of_linear(
    x: Float[Tensor, "R T D"], weight: Float[Tensor, "F D"], bias: Float[Tensor, " F"]
) -> Float[Tensor, "R T F"]:
    """Compute it in the precision that is asked for."""
    device = x.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
    flat = x.to(dtype).flatten(0, 1)
    hidden: Tensor = _relu_of_linear(flat, weight.to(dtype), bias.to(dtype))
    return hidden.unflatten(0, x.shape[:2])


@torch.library.custom_op("attendo::relu_of_linear", mutates_args=())
def _relu_of_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch._addmm_activation(bias, x, weight.T)


_relu_of_linear.register_fake(lambda x, weight, bias: x.new_empty(len(x), len(weight)))


def _remember(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    x, weight, _ = inputs
    ctx.save_for_backward(x, weight, output)


def _backpropagate(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
    x, weight, hidden = ctx.saved_tensors
    passed, sums = _pass_back(grad.contiguous(), hidden)
    return passed @ weight, passed.T @ x, sums.sum(0).to(weight.dtype)


_relu_of_linear.register_autograd(_backpropagate, setup_context=_remember)


@torch.library.custom_op("attendo::relu_backward", mutates_args=())
def _pass_back(grad: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient where something passed, and its sums over stretches of tokens."""
    passed, sums = _backward_outputs(hidden)
    n_rows, width = hidden.shape
    _backward[(len(sums), triton.cdiv(width, COLUMNS))](
        grad, hidden, passed, sums, n_rows, width, STRETCH, N=ROWS, C=COLUMNS, num_warps=4
    )
    return passed, sums


_pass_back.register_fake(lambda grad, hidden: _backward_outputs(hidden))


def _backward_outputs(hidden: Tensor) -> tuple[Tensor, Tensor]:
    n_rows, width = hidden.shape
    sums = hidden.new_empty((n_rows + STRETCH - 1) // STRETCH, width, dtype=torch.float32)
    return torch.empty_like(hidden), sums


@triton.jit
def _backward(
    grad, hidden, passed, sums, n_rows, width, stretch,
    N: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(1) * C + tl.arange(0, C)[None, :]
    total = tl.zeros((N, C), tl.float32)
    start = tl.program_id(0) * stretch
    for first in range(start, min(start + stretch, n_rows), N):
        row = (first + tl.arange(0, N)[:, None]).to(tl.int64)
        exists = (row < n_rows) & (column < width)
        places = row * width + column
        is_open = tl.load(hidden + places, mask=exists, other=0.0) > 0
        slope = tl.where(is_open, tl.load(grad + places, mask=exists, other=0.0), 0.0)
        tl.store(passed + places, slope.to(passed.dtype.element_ty), mask=exists)
        total += slope.to(tl.float32)
    places = tl.program_id(0) * width + column
    tl.store(sums + places, tl.sum(total, 0)[None, :], mask=column < width)
