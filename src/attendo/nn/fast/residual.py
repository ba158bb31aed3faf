"""Dropout, residual sum and LayerNorm in one pass over memory, forward and backward.

The dropped places are not stored: the backward pass draws the same random numbers again.
"""

from typing import Any

import torch
import triton
from jaxtyping import Float
from torch import Tensor, nn
from triton import language as tl

PROGRAMS = 2112
"""Programs of the backward pass; each sums the gradients of the vectors over its tokens."""


def fits(x: Tensor, result: Tensor, norm: nn.Module) -> bool:
    """Return whether the kernels are made for this sum and norm."""
    is_half = x.is_cuda and result.dtype in (torch.bfloat16, torch.float16)
    return is_half and type(norm) is nn.LayerNorm and 32 <= x.shape[-1] <= 4096


def norm_of_sum(
    x: Float[Tensor, "R T D"], result: Float[Tensor, "R T D"], norm: nn.Module, p_drop: float
) -> tuple[Float[Tensor, "R T D"], Float[Tensor, "R T D"]]:
    """Compute norm(x + Dropout(result)), in the precision of `result`, and the same once more.

    It is the residual and the input of the next sub-layer. Each of two tensors gets a gradient, and
    the kernel sums them; from one tensor, their sum would take a pass of its own.
    """
    normed, again, *_ = _norm_of_sum(x, result, *_arguments(x, norm, p_drop), keeps_sum=False)
    return again, normed


def sum_and_norm(
    x: Float[Tensor, "R T D"], result: Float[Tensor, "R T D"], norm: nn.Module, p_drop: float
) -> tuple[Float[Tensor, "R T D"], Float[Tensor, "R T D"]]:
    """Compute x + Dropout(result), in the precision of x, and its norm, in that of `result`."""
    normed, total, *_ = _norm_of_sum(x, result, *_arguments(x, norm, p_drop), keeps_sum=True)
    return total, normed


def _arguments(x: Tensor, norm: nn.Module, p_drop: float) -> tuple[Any, ...]:
    return norm.weight, norm.bias, _seed(x, p_drop), p_drop, norm.eps


def _seed(x: Tensor, p_drop: float) -> Tensor:
    """Draw outside the kernels, so that a recorded step draws anew at each replay."""
    if p_drop:
        return torch.randint(2**31, (1,), device=x.device)
    return torch.zeros(1, dtype=torch.int64, device=x.device)


def _warps(width: int) -> int:
    """Return the number of warps per token: few, as sums within a warp need no shared memory."""
    return max(1, triton.next_power_of_2(width) // 512)


@torch.library.custom_op("attendo::norm_of_sum", mutates_args=())
def _norm_of_sum(
    x: Tensor,
    result: Tensor,
    gain: Tensor,
    offset: Tensor,
    seed: Tensor,
    p_drop: float,
    epsilon: float,
    keeps_sum: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the normalised sum, and the residual of the next sub-layer: the sum or this.

    Then, for the backward pass, the sum, where it is not among these, its mean and 1 / deviation.
    """
    outputs = _outputs(x, result, keeps_sum)
    width = x.shape[-1]
    _forward[(x.numel() // width,)](
        x.contiguous(), result.contiguous(), gain, offset, seed,
        *outputs,
        width, p_drop, epsilon,
        D=triton.next_power_of_2(width), KEEPS_SUM=keeps_sum,
        num_warps=_warps(width),
    )  # fmt: skip
    return outputs


_norm_of_sum.register_fake(lambda x, result, *others: _outputs(x, result, others[-1]))


def _outputs(x: Tensor, result: Tensor, keeps_sum: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    normed = result.new_empty(result.shape)
    past = torch.empty_like(normed, dtype=x.dtype if keeps_sum else result.dtype)
    total = result.new_empty(0) if keeps_sum else torch.empty_like(normed)
    return normed, past, total, x.new_empty(x.numel() // x.shape[-1], 2, dtype=torch.float32)


@torch.library.custom_op("attendo::norm_of_sum_backward", mutates_args=())
def _gradients(
    grad: Tensor,
    past_grad: Tensor | None,
    total: Tensor,
    scale: Tensor,
    gain: Tensor,
    seed: Tensor,
    p_drop: float,
    keeps_sum: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x and result, and of gain and offset as partial sums."""
    outputs = _gradient_outputs(grad, total, gain, p_drop)
    width = total.shape[-1]
    n_rows = total.numel() // width
    _backward[(PROGRAMS,)](
        grad.contiguous(), grad if past_grad is None else past_grad.contiguous(),
        total, scale, gain, seed, *outputs,
        n_rows, width, p_drop,
        D=triton.next_power_of_2(width), IS_SPLIT=past_grad is not None, KEEPS_SUM=keeps_sum,
        HAS_RESULT=outputs[1].numel() > 0,
        num_warps=_warps(width),
    )  # fmt: skip
    return outputs


_gradients.register_fake(
    lambda grad, past_grad, total, scale, gain, seed, p_drop, keeps_sum: _gradient_outputs(
        grad, total, gain, p_drop
    )
)


def _gradient_outputs(
    grad: Tensor, total: Tensor, gain: Tensor, p_drop: float
) -> tuple[Tensor, Tensor, Tensor]:
    # Without dropout, in one precision, both gradients are the same; the second is not written.
    is_same = not p_drop and grad.dtype == total.dtype
    result = grad.new_empty(0) if is_same else torch.empty_like(total, dtype=grad.dtype)
    return torch.empty_like(total), result, gain.new_empty(PROGRAMS, 2, len(gain))


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, _, gain, _, seed, ctx.p_drop, _, ctx.keeps_sum = inputs
    normed, past, total, scale = output
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(past if ctx.keeps_sum else total, scale, gain, seed)
    ctx.dtypes = x.dtype, normed.dtype


def _backpropagate(
    ctx: Any, grad: Tensor | None, past_grad: Tensor | None, *unused: Tensor | None
) -> tuple[Tensor | None, ...]:
    total, *others = ctx.saved_tensors
    of_x, of_result = ctx.dtypes
    if grad is None:  # only the residual was used
        grad = torch.zeros_like(total, dtype=of_result)
    grad_x, grad_result, sums = _gradients(
        grad, past_grad, total, *others, ctx.p_drop, ctx.keeps_sum
    )
    grad_result = grad_result if grad_result.numel() else grad_x
    vectors = sums.sum(0).unbind()  # of gain and offset
    return grad_x.to(of_x), grad_result.to(of_result), *vectors, None, None, None, None


_norm_of_sum.register_autograd(_backpropagate, setup_context=_remember)


@triton.jit
def _is_kept(seed, row, p_drop, D: tl.constexpr):
    """Draw which elements of a token are kept. One draw of the generator yields four numbers."""
    quarters = row * (D // 4) + tl.arange(0, D // 4)
    a, b, c, d = tl.randint4x(tl.load(seed), quarters)
    drawn = tl.interleave(tl.interleave(a, c), tl.interleave(b, d))
    return tl.uint_to_uniform_float(drawn) >= p_drop


@triton.jit
def _forward(
    x, result, gain, offset, seed, normed, past, total, scale,
    width, p_drop, epsilon,
    D: tl.constexpr, KEEPS_SUM: tl.constexpr,
):  # fmt: skip
    """Process one token."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, D)
    exists = column < width
    places = row * width + column
    added = tl.load(result + places, mask=exists, other=0.0).to(tl.float32)
    if p_drop > 0:
        added = tl.where(_is_kept(seed, row, p_drop, D), added / (1 - p_drop), 0.0)
    added += tl.load(x + places, mask=exists, other=0.0).to(tl.float32)
    if KEEPS_SUM:
        tl.store(past + places, added.to(past.dtype.element_ty), mask=exists)
    else:
        tl.store(total + places, added.to(total.dtype.element_ty), mask=exists)
    mean = tl.sum(added, 0) / width
    centred = tl.where(exists, added - mean, 0.0)
    steepness = tl.rsqrt(tl.sum(centred * centred, 0) / width + epsilon)
    gains = tl.load(gain + column, mask=exists, other=0.0).to(tl.float32)
    offsets = tl.load(offset + column, mask=exists, other=0.0).to(tl.float32)
    value = centred * steepness * gains + offsets
    tl.store(normed + places, value.to(normed.dtype.element_ty), mask=exists)
    if not KEEPS_SUM:
        tl.store(past + places, value.to(past.dtype.element_ty), mask=exists)
    tl.store(scale + row * 2, mean)
    tl.store(scale + row * 2 + 1, steepness)


@triton.jit
def _backward(
    grad, past_grad, total, scale, gain, seed, grad_x, grad_result, sums,
    n_rows, width, p_drop,
    D: tl.constexpr, IS_SPLIT: tl.constexpr, KEEPS_SUM: tl.constexpr, HAS_RESULT: tl.constexpr,
):  # fmt: skip
    """Process every n-th token."""
    column = tl.arange(0, D)
    exists = column < width
    gains = tl.load(gain + column, mask=exists, other=0.0).to(tl.float32)
    sum_gain = tl.zeros((D,), tl.float32)
    sum_offset = tl.zeros((D,), tl.float32)
    for number in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        row = tl.cast(number, tl.int64)
        places = row * width + column
        mean, steepness = tl.load(scale + row * 2), tl.load(scale + row * 2 + 1)
        summed = tl.load(total + places, mask=exists, other=0.0).to(tl.float32)
        unit = tl.where(exists, (summed - mean) * steepness, 0.0)
        slope = tl.load(grad + places, mask=exists, other=0.0).to(tl.float32)
        if IS_SPLIT:
            past = tl.load(past_grad + places, mask=exists, other=0.0).to(tl.float32)
            if not KEEPS_SUM:
                slope += past
        sum_gain += slope * unit
        sum_offset += slope
        slope *= gains
        inward = tl.sum(slope * unit, 0) / width
        slope = (slope - tl.sum(slope, 0) / width - unit * inward) * steepness
        if IS_SPLIT and KEEPS_SUM:
            slope += past
        tl.store(grad_x + places, slope.to(grad_x.dtype.element_ty), mask=exists)
        if HAS_RESULT:
            if p_drop > 0:
                slope = tl.where(_is_kept(seed, row, p_drop, D), slope / (1 - p_drop), 0.0)
            tl.store(grad_result + places, slope.to(grad_result.dtype.element_ty), mask=exists)
    sums += tl.program_id(0) * 2 * width + column
    tl.store(sums, sum_gain, mask=exists)
    tl.store(sums + width, sum_offset, mask=exists)
