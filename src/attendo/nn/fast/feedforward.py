"""max(0, x W_1 + b_1) W_2 + b_2 with few passes over the hidden layer, which is the widest of all.

Or with the square of the hidden layer.

Forward, cuBLAS adds the bias and cuts off below zero on the way out of the first product. Backward,
the product that gives the hidden layer's gradient cuts off the same on its way out, and sums what
the bias gets.
"""

from typing import Any

import torch
import triton
from jaxtyping import Float
from torch import Tensor, nn
from triton import language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

ROWS, COLUMNS, DEPTH = 128, 128, 64
"""What one program of the backward pass makes of the hidden layer, and of how much at a time."""

WARPS = 4
"""Of one program."""


def count_stages(d_model: int) -> int:
    """Return how many blocks are read ahead: the more of them there are, the more it pays."""
    return 3 if d_model > 512 else 2


def fits(x: Tensor, inner: nn.Linear) -> bool:
    """Return whether the kernel is made for these: rows must begin at multiples of 16 bytes."""
    is_aligned = inner.in_features % 8 == 0 and inner.out_features % 8 == 0
    return is_aligned and x.is_cuda and _copies_blocks(x.device)


@torch.compiler.assume_constant_result
def _copies_blocks(device: torch.device) -> bool:
    """Return whether the GPU copies blocks of a matrix by itself, as those since the H100 do."""
    return torch.version.hip is None and torch.cuda.get_device_capability(device) >= (9, 0)


def feed_forward(
    x: Float[Tensor, "R T D"], inner: nn.Linear, outer: nn.Linear, *, squared: bool = False
) -> Float[Tensor, "R T D"]:
    """Return max(0, x W_1 + b_1) W_2 + b_2, in the precision of autocast."""
    device = x.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
    tensors = x.flatten(0, 1), inner.weight, inner.bias, outer.weight, outer.bias
    result: Tensor = _feed_forward(*(tensor.to(dtype) for tensor in tensors), squared)[0]
    return result.unflatten(0, x.shape[:2])


@torch.library.custom_op("attendo::feed_forward", mutates_args=())
def _feed_forward(
    x: Tensor, inner: Tensor, bias: Tensor, outer: Tensor, outer_bias: Tensor, squared: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the result, and for the backward pass the hidden layer and its square."""
    hidden = torch._addmm_activation(bias, x, inner.T)
    square = hidden.square() if squared else hidden.new_empty(0)
    return torch.addmm(outer_bias, square if squared else hidden, outer.T), hidden, square


def _forward_outputs(
    x: Tensor, inner: Tensor, bias: Tensor, outer: Tensor, outer_bias: Tensor, squared: bool
) -> tuple[Tensor, Tensor, Tensor]:
    hidden = x.new_empty(x.shape[0], inner.shape[0])
    square = torch.empty_like(hidden) if squared else x.new_empty(0)
    return x.new_empty(x.shape[0], outer.shape[0]), hidden, square


_feed_forward.register_fake(_forward_outputs)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, inner, _, outer, _, ctx.squared = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, inner, outer, *output[1:])


def _backpropagate(ctx: Any, grad: Tensor, *unused: None) -> tuple[Tensor | None, ...]:
    x, inner, outer, hidden, square = ctx.saved_tensors
    grad = grad.contiguous()
    passed, sums = _pass_back(grad, outer, hidden, ctx.squared)
    return (
        passed @ inner,
        passed.T @ x,
        sums.sum(0).to(grad.dtype),
        grad.T @ (square if ctx.squared else hidden),
        grad.sum(0),
        None,
    )


_feed_forward.register_autograd(_backpropagate, setup_context=_remember)


@torch.library.custom_op("attendo::feed_forward_backward", mutates_args=())
def _pass_back(
    grad: Tensor, weight: Tensor, hidden: Tensor, squared: bool
) -> tuple[Tensor, Tensor]:
    """Return the gradient where something passed, and its sums over blocks of rows."""
    passed, sums = _backward_outputs(hidden)
    width = hidden.shape[1]
    _backward[(len(sums) * triton.cdiv(width, COLUMNS),)](
        TensorDescriptor.from_tensor(grad, [ROWS, DEPTH]),
        TensorDescriptor.from_tensor(weight.contiguous(), [DEPTH, COLUMNS]),
        TensorDescriptor.from_tensor(hidden, [ROWS, COLUMNS]),
        TensorDescriptor.from_tensor(passed, [ROWS, COLUMNS]),
        sums, width, grad.shape[1],
        N=ROWS, C=COLUMNS, B=DEPTH, STAGES=count_stages(grad.shape[1]), SQUARED=squared,
        num_warps=WARPS,
    )  # fmt: skip
    return passed, sums


_pass_back.register_fake(lambda grad, weight, hidden, squared: _backward_outputs(hidden))


def _backward_outputs(hidden: Tensor) -> tuple[Tensor, Tensor]:
    blocks = (hidden.shape[0] + ROWS - 1) // ROWS
    return torch.empty_like(hidden), hidden.new_empty(blocks, hidden.shape[1], dtype=torch.float32)


@triton.jit
def _backward(
    grad, weight, hidden, passed, sums, width, d_model,
    N: tl.constexpr, C: tl.constexpr, B: tl.constexpr, STAGES: tl.constexpr, SQUARED: tl.constexpr,
):  # fmt: skip
    """Compute one block of the gradient of the hidden layer."""
    across = tl.cdiv(width, C)
    block, begin = tl.program_id(0) // across, tl.program_id(0) % across * C
    slope = tl.zeros((N, C), tl.float32)
    for place in tl.range(0, d_model, B, num_stages=STAGES):
        slope = tl.dot(grad.load([block * N, place]), weight.load([place, begin]), slope)
    value = hidden.load([block * N, begin])
    slope = slope * 2 * value.to(tl.float32) if SQUARED else tl.where(value > 0, slope, 0.0)
    passed.store([block * N, begin], slope.to(passed.dtype))
    column = begin + tl.arange(0, C)
    tl.store(sums + block * width + column, tl.sum(slope, 0), mask=column < width)
