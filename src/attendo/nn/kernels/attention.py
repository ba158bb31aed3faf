"""Attention over short rows as one GPU kernel, forward and backward.

Packed rows are short (128 columns), so one multiprocessor holds all scores of one head of one row.
Only queries, keys, values and results go through the GPU's memory: no scores, no statistics for the
backward pass (they are computed again), no copies into another layout. General kernels are made
for long rows and spend most of their time here on what short rows do not need.
"""

from typing import Any

import torch
import triton
from jaxtyping import Bool, Float
from torch import Tensor
from triton import language as tl

LONGEST = 128
"""Longest row whose scores fit."""

WIDTHS = (16, 32, 64)
"""Head widths that the matrix units take and that fit beside the scores."""

ROOM = 96 * 1024
"""Bytes that a multiprocessor must have for one program, of which older GPUs have less."""


def fits(
    q: Float[Tensor, "R H T K"], k: Float[Tensor, "R H S K"], mask: Bool[Tensor, "R #H #T S"]
) -> bool:
    """Tell whether the kernel is made for these; one token at a time is not its business."""
    is_half = q.is_cuda and q.dtype in (torch.bfloat16, torch.float16) and _has_room(q.device)
    is_short = 16 <= q.shape[2] <= LONGEST and 16 <= k.shape[2] <= LONGEST
    return is_half and is_short and q.shape[3] in WIDTHS and mask.shape[1] == 1


@torch.compiler.assume_constant_result
def _has_room(device: torch.device) -> bool:
    properties: Any = torch.cuda.get_device_properties(device)
    return properties.shared_memory_per_block_optin >= ROOM


@torch.library.custom_op("attendo::short_attention", mutates_args=())
def short_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Compute softmax(Q Kᵀ / √d_k) V with a mask: (R H T K) and (R 1 T S) to (R H T K)."""
    out = _empty(q)
    _launch(_forward, (q, k, v, out), mask)
    return out


@torch.library.custom_op("attendo::short_attention_backward", mutates_args=())
def _gradients(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    grads = _empty(q), _empty(k), _empty(v)
    _launch(_backward, (q, k, v, grad, *grads), mask)
    return grads


short_attention.register_fake(lambda q, *_: _empty(q))
_gradients.register_fake(lambda grad, q, k, v, mask: (_empty(q), _empty(k), _empty(v)))


def _remember(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backpropagate(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return *_gradients(grad, *ctx.saved_tensors), None


short_attention.register_autograd(_backpropagate, setup_context=_remember)


def _empty(x: Tensor) -> Tensor:
    """Make room for heads that lie beside each other in memory, as the output projection wants."""
    rows, heads, length, width = x.shape
    return x.new_empty(rows, length, heads, width).transpose(1, 2)


def _launch(kernel: Any, tensors: tuple[Tensor, ...], mask: Tensor) -> None:
    """Run one program for each head of each row."""
    laid = [_laid(tensor) for tensor in tensors]
    (rows, heads, queries, width), keys = laid[0].shape, laid[1].shape[2]
    mask = mask.expand(rows, 1, queries, keys).contiguous()
    kernel[(rows * heads,)](
        mask,
        *laid,
        *(tensor.stride(2) for tensor in laid),
        heads,
        queries,
        keys,
        width**-0.5,
        T=triton.next_power_of_2(queries),
        S=triton.next_power_of_2(keys),
        K=width,
        num_warps=8 if max(queries, keys) > 64 else 4,
    )


def _laid(x: Tensor) -> Tensor:
    """Lay out as (R T H K) with any distance between tokens, which is how projections come."""
    _, _, length, width = x.shape
    row, head, token, place = x.stride()
    is_laid = (row, head, place) == (length * token, width, 1)
    return x if is_laid else x.transpose(1, 2).contiguous().transpose(1, 2)


@triton.jit
def _places(stride, heads, length, N: tl.constexpr, K: tl.constexpr):
    """Where this program's head of this program's row lies, and which of it exists."""
    row, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    token = tl.arange(0, N)[:, None]
    places = (row * length + token) * stride + head * K + tl.arange(0, K)[None, :]
    return places, token < length


@triton.jit
def _read(x, stride, heads, length, N: tl.constexpr, K: tl.constexpr):
    places, exists = _places(stride, heads, length, N, K)
    return tl.load(x + places, mask=exists, other=0.0)


@triton.jit
def _write(x, value, stride, heads, length, N: tl.constexpr, K: tl.constexpr):
    places, exists = _places(stride, heads, length, N, K)
    tl.store(x + places, value.to(x.dtype.element_ty), mask=exists)


@triton.jit
def _weights(mask, q, k, heads, queries, keys, scale, T: tl.constexpr, S: tl.constexpr):
    """softmax(Q Kᵀ / √d_k) without the division, and what to multiply each row by instead."""
    query, key = tl.arange(0, T)[:, None], tl.arange(0, S)[None, :]
    row = (tl.program_id(0) // heads).to(tl.int64)
    places = (row * queries + query) * keys + key
    allowed = tl.load(mask + places, mask=(query < queries) & (key < keys), other=0) != 0
    # 2 ** (x log2 e) is e ** x; the factor goes into the scale.
    scores = tl.where(allowed, tl.dot(q, tl.trans(k)) * (scale * 1.4426950408889634), -1e30)
    weights = tl.exp2(scores - tl.max(scores, 1)[:, None])
    return weights, 1.0 / tl.sum(weights, 1)[:, None]


@triton.jit
def _forward(
    mask, q, k, v, out,
    q_stride, k_stride, v_stride, out_stride,
    heads, queries, keys, scale,
    T: tl.constexpr, S: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """One head of one row: all scores at once, so a plain softmax does."""
    asking = _read(q, q_stride, heads, queries, T, K)
    asked = _read(k, k_stride, heads, keys, S, K)
    values = _read(v, v_stride, heads, keys, S, K)
    weights, share = _weights(mask, asking, asked, heads, queries, keys, scale, T, S)
    averaged = tl.dot(weights.to(values.dtype), values) * share
    _write(out, averaged, out_stride, heads, queries, T, K)


@triton.jit
def _backward(
    mask, q, k, v, grad, grad_q, grad_k, grad_v,
    q_stride, k_stride, v_stride, grad_stride, grad_q_stride, grad_k_stride, grad_v_stride,
    heads, queries, keys, scale,
    T: tl.constexpr, S: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """The same in reverse, with the weights computed again."""
    asking = _read(q, q_stride, heads, queries, T, K)
    asked = _read(k, k_stride, heads, keys, S, K)
    weights, share = _weights(mask, asking, asked, heads, queries, keys, scale, T, S)
    weights *= share
    slope = _read(grad, grad_stride, heads, queries, T, K)
    grad_values = tl.dot(tl.trans(weights.to(slope.dtype)), slope)
    _write(grad_v, grad_values, grad_v_stride, heads, keys, S, K)
    values = _read(v, v_stride, heads, keys, S, K)
    slopes = tl.dot(slope, tl.trans(values))
    slopes = weights * (slopes - tl.sum(weights * slopes, 1)[:, None]) * scale
    slopes = slopes.to(slope.dtype)
    _write(grad_q, tl.dot(slopes, asked), grad_q_stride, heads, queries, T, K)
    _write(grad_k, tl.dot(tl.trans(slopes), asking), grad_k_stride, heads, keys, S, K)
