"""Attention over short rows as one GPU kernel, forward and backward.

Packed rows are short (128 columns), so one multiprocessor holds all scores of one head of one row.
Only projections and results go through the GPU's memory, and one number for each query: no scores,
no masks, no copies into another layout. General kernels are made for long rows and spend most of
their time here on what short rows do not need.

The kernels take joint projections, as they come out of one product. Gradients are made where they
belong, and those of the biases with them, instead of being copied and summed by other kernels.
"""

from typing import Any

import torch
import triton
from jaxtyping import Float
from torch import Tensor
from triton import language as tl

from attendo.nn.grid import Span
from attendo.nn.positions import Rotation

LONGEST = 128
"""Longest row whose scores fit."""

WIDTHS = (16, 32, 64)
"""Head widths that the matrix units take and that fit beside the scores."""

ROOM = 96 * 1024
"""Bytes that a multiprocessor must have for one program, of which older GPUs have less."""

PART = 64
"""Keys per block of the backward pass, unless they are rotated."""


def fits(queries: int, keys: int, width: int, device: torch.device) -> bool:
    """Return whether the kernels support these; single tokens are not supported."""
    is_short = 16 <= queries <= LONGEST and 16 <= keys <= LONGEST
    return is_short and width in WIDTHS and device.type == "cuda" and _has_room(device)


@torch.compiler.assume_constant_result
def _has_room(device: torch.device) -> bool:
    properties: Any = torch.cuda.get_device_properties(device)
    return torch.version.hip is None and properties.shared_memory_per_block_optin >= ROOM


def attention_of_projections(
    projected: Float[Tensor, "R T Q"],
    bias: Float[Tensor, " Q"],
    span: Span,
    n_heads: int,
    memory: Float[Tensor, "R S M"] | None = None,
    memory_bias: Float[Tensor, " M"] | None = None,
    rotation: Rotation | None = None,
) -> Float[Tensor, "R T D"]:
    """Add the biases, split into heads, rotate queries and keys, attend and join the heads.

    `projected` holds the queries and `memory` keys and values; without a memory, `projected` holds
    all three. Only then can they be rotated, since queries and keys have the same positions.
    """
    if memory is not None:
        memory = memory.contiguous()
    projections = projected.contiguous(), bias, memory, memory_bias
    averaged: Tensor = _of_projections(*projections, *span, *(rotation or (None, None)), n_heads)[0]
    return averaged


@torch.library.custom_op("attendo::attention_of_projections", mutates_args=())
def _of_projections(
    projected: Tensor,
    bias: Tensor,
    memory: Tensor | None,
    memory_bias: Tensor | None,
    first: Tensor,
    last: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    n_heads: int,
) -> tuple[Tensor, Tensor]:
    """Return the averages, and for the backward pass the logarithm of each sum of weights."""
    outputs = _outputs(projected, memory, n_heads)
    tensors = first, last, *_split(projected, memory), *outputs, *_split(bias, memory_bias)
    is_long = max(projected.shape[1], _n_keys(projected, memory)) > 64
    # With so many registers two programs find room on one multiprocessor.
    options = {"num_warps": 8 if is_long else 4, "maxnreg": 128}
    _launch(_forward, tensors, projected, memory, (cos, sin), n_heads, **options)
    return outputs


def _outputs(projected: Tensor, memory: Tensor | None, n_heads: int) -> tuple[Tensor, Tensor]:
    rows, queries, width = projected.shape
    averaged = projected.new_empty(rows, queries, width // (3 if memory is None else 1))
    return averaged, projected.new_empty(rows, n_heads, queries, dtype=torch.float32)


@torch.library.custom_op("attendo::attention_of_projections_backward", mutates_args=())
def _gradients(
    grad: Tensor,
    averaged: Tensor,
    logs: Tensor,
    projected: Tensor,
    bias: Tensor,
    memory: Tensor | None,
    memory_bias: Tensor | None,
    first: Tensor,
    last: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    n_heads: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of the projections, and of the biases as sums for each row."""
    outputs = found, found_memory, sums, sums_memory = _gradient_outputs(projected, memory)
    if memory is None:
        of_parts = *_split(found, None), *_split(sums, None)
    else:
        of_parts = *_split(found, found_memory), *_split(sums, sums_memory)
    given = first, last, *_split(projected, memory), averaged, logs, *_split(bias, memory_bias)
    keys = triton.next_power_of_2(_n_keys(projected, memory))
    # Rotation needs more registers than few warps have: then all keys are one block.
    is_rotated, is_long = cos is not None, max(projected.shape[1], keys) > 64
    part, warps = keys if is_rotated else min(keys, PART), 8 if is_rotated and is_long else 4
    tensors = *given, grad.contiguous(), *of_parts
    _launch(_backward, tensors, projected, memory, (cos, sin), n_heads, P=part, num_warps=warps)
    return outputs


def _gradient_outputs(
    projected: Tensor, memory: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    nothing = projected.new_empty(0)
    return (
        torch.empty_like(projected),
        nothing if memory is None else torch.empty_like(memory),
        _sums_for(projected),
        nothing.clone() if memory is None else _sums_for(memory),
    )


def _sums_for(projection: Tensor) -> Tensor:
    rows, _, width = projection.shape
    return projection.new_empty(rows, width, dtype=torch.float32)


_of_projections.register_fake(
    lambda projected, bias, memory, *others: _outputs(projected, memory, others[-1])
)
_gradients.register_fake(
    lambda grad, averaged, logs, projected, bias, memory, *_: _gradient_outputs(projected, memory)
)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.n_heads = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output, *tensors)


def _backpropagate(ctx: Any, grad: Tensor, unused: None) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors  # read once: with activation checkpointing, it cannot be twice
    _, _, _, bias, memory, memory_bias, *_ = saved
    found, found_memory, *sums = _gradients(grad, *saved, ctx.n_heads)
    of_projected = found, sums[0].sum(0).to(bias.dtype)
    of_memory = None, None
    if memory is not None and memory_bias is not None:
        of_memory = found_memory, sums[1].sum(0).to(memory_bias.dtype)
    return *of_projected, *of_memory, None, None, None, None, None


_of_projections.register_autograd(_backpropagate, setup_context=_remember)


def _split(projected: Tensor, memory: Tensor | None) -> list[Tensor]:
    """Split into the parts of queries, keys and values."""
    if memory is None:
        return list(projected.chunk(3, dim=-1))
    return [projected, *memory.chunk(2, dim=-1)]


def _n_keys(projected: Tensor, memory: Tensor | None) -> int:
    return (projected if memory is None else memory).shape[1]


def _launch(
    kernel: Any,
    tensors: tuple[Tensor, ...],
    projected: Tensor,
    memory: Tensor | None,
    angles: tuple[Tensor | None, Tensor | None],
    n_heads: int,
    **options: int,
) -> None:
    """Run one program for each head of each row."""
    (rows, queries, stride), keys = projected.shape, _n_keys(projected, memory)
    d_model = stride // (3 if memory is None else 1)
    width = d_model // n_heads
    kernel[(rows * n_heads,)](
        *tensors,
        *(projected if table is None else table.contiguous() for table in angles),
        stride,
        stride if memory is None else memory.shape[2],
        n_heads,
        queries,
        keys,
        width**-0.5,
        T=triton.next_power_of_2(queries),
        S=triton.next_power_of_2(keys),
        K=width,
        ROTATED=angles[0] is not None,
        **options,
    )


@triton.jit
def _places(begin, stride, heads, length, N: tl.constexpr, K: tl.constexpr):
    """Return the offsets of tokens of this program's row and head, and which of them exist."""
    row, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    token = begin + tl.arange(0, N)[:, None]
    places = (row * length + token) * stride + head * K + tl.arange(0, K)[None, :]
    return places, token < length


@triton.jit
def _of_head(heads, K: tl.constexpr):
    """Return the offsets of this program's head in a vector."""
    return tl.program_id(0) % heads * K + tl.arange(0, K)


@triton.jit
def _read(x, begin, stride, heads, length, N: tl.constexpr, K: tl.constexpr):
    places, exists = _places(begin, stride, heads, length, N, K)
    return tl.load(x + places, mask=exists, other=0.0)


@triton.jit
def _read_biased(x, bias, begin, stride, heads, length, N: tl.constexpr, K: tl.constexpr):
    value = _read(x, begin, stride, heads, length, N, K)
    added = tl.load(bias + _of_head(heads, K))[None, :].to(tl.float32)
    return (value.to(tl.float32) + added).to(value.dtype)


@triton.jit
def _rotated(value, cos, sin, direction, begin, heads, length, N: tl.constexpr, K: tl.constexpr):
    """Rotate pairs of coordinates by the angles of their tokens, or back with direction -1."""
    row, token = (tl.program_id(0) // heads).to(tl.int64), begin + tl.arange(0, N)[:, None]
    places = (row * length + token) * (K // 2) + tl.arange(0, K // 2)[None, :]
    cosine = tl.load(cos + places, mask=token < length, other=0.0)
    sine = tl.load(sin + places, mask=token < length, other=0.0) * direction
    first, second = tl.split(tl.reshape(value.to(tl.float32), (N, K // 2, 2)))
    rotated = tl.join(first * cosine - second * sine, second * cosine + first * sine)
    rotated = tl.reshape(rotated, (N, K))
    if value.dtype == tl.float32:
        # Changes nothing, but Triton 3.6 cannot compile a product straight after a reshape.
        rotated = tl.where(token < length, rotated, 0.0)
    return rotated.to(value.dtype)


@triton.jit
def _write(x, value, begin, stride, heads, length, N: tl.constexpr, K: tl.constexpr):
    places, exists = _places(begin, stride, heads, length, N, K)
    tl.store(x + places, value.to(x.dtype.element_ty), mask=exists)


@triton.jit
def _write_sum(sums, value, stride, heads, K: tl.constexpr):
    """Write what this row adds to the gradient of a bias."""
    row = (tl.program_id(0) // heads).to(tl.int64)
    tl.store(sums + row * stride + _of_head(heads, K), value)


@triton.jit
def _span(first, last, heads, queries, T: tl.constexpr):
    """Return the span of the queries; it is empty for those that do not exist."""
    query = tl.arange(0, T)
    places = (tl.program_id(0) // heads).to(tl.int64) * queries + query
    first = tl.load(first + places, mask=query < queries, other=0)
    return first[:, None], tl.load(last + places, mask=query < queries, other=-1)[:, None]


@triton.jit
def _forward(
    first, last, q, k, v, out, logs, q_bias, k_bias, v_bias, cos, sin,
    q_stride, kv_stride, heads, queries, keys, scale,
    T: tl.constexpr, S: tl.constexpr, K: tl.constexpr, ROTATED: tl.constexpr,
):  # fmt: skip
    """Compute one head of one row: with all scores at once, a plain softmax is enough."""
    q_block = _read_biased(q, q_bias, 0, q_stride, heads, queries, T, K)
    k_block = _read_biased(k, k_bias, 0, kv_stride, heads, keys, S, K)
    if ROTATED:
        q_block = _rotated(q_block, cos, sin, 1.0, 0, heads, queries, T, K)
        k_block = _rotated(k_block, cos, sin, 1.0, 0, heads, keys, S, K)
    values = _read_biased(v, v_bias, 0, kv_stride, heads, keys, S, K)
    first, last = _span(first, last, heads, queries, T)
    key = tl.arange(0, S)[None, :]
    # 2 ** (x log2 e) is e ** x; the factor goes into the scale.
    scores = tl.dot(q_block, tl.trans(k_block)) * (scale * 1.4426950408889634)
    scores = tl.where((key >= first) & (key <= last), scores, -1e30)
    highest = tl.max(scores, 1)
    weights = tl.exp2(scores - highest[:, None])
    total = tl.sum(weights, 1)
    averaged = tl.dot(weights.to(values.dtype), values) / total[:, None]
    _write(out, averaged, 0, heads * K, heads, queries, T, K)
    query = tl.arange(0, T)
    logs += tl.program_id(0).to(tl.int64) * queries
    tl.store(logs + query, highest + tl.log2(total), mask=query < queries)


@triton.jit
def _backward(
    first, last, q, k, v, out, logs, q_bias, k_bias, v_bias,
    grad, grad_q, grad_k, grad_v, sum_q, sum_k, sum_v, cos, sin,
    q_stride, kv_stride, heads, queries, keys, scale,
    T: tl.constexpr, S: tl.constexpr, K: tl.constexpr, P: tl.constexpr, ROTATED: tl.constexpr,
):  # fmt: skip
    """Compute the gradients for some keys at a time, with recomputed attention weights."""
    q_block = _read_biased(q, q_bias, 0, q_stride, heads, queries, T, K)
    slope = _read(grad, 0, heads * K, heads, queries, T, K)
    result = _read(out, 0, heads * K, heads, queries, T, K)
    inward = tl.sum(result.to(tl.float32) * slope.to(tl.float32), 1)[:, None]
    query = tl.arange(0, T)
    logs += tl.program_id(0).to(tl.int64) * queries
    log = tl.load(logs + query, mask=query < queries, other=0.0)[:, None]
    # Each query's weights sum to one, so what it passes to the values is what it gets, in all.
    _write_sum(sum_v, tl.sum(slope.to(tl.float32), 0), kv_stride, heads, K)
    if ROTATED:
        q_block = _rotated(q_block, cos, sin, 1.0, 0, heads, queries, T, K)
    first, last = _span(first, last, heads, queries, T)
    grad_q_block = tl.zeros((T, K), tl.float32)
    k_sums = tl.zeros((K,), tl.float32)
    for begin in tl.static_range(0, S, P):
        k_block = _read_biased(k, k_bias, begin, kv_stride, heads, keys, P, K)
        values = _read_biased(v, v_bias, begin, kv_stride, heads, keys, P, K)
        if ROTATED:
            k_block = _rotated(k_block, cos, sin, 1.0, begin, heads, keys, P, K)
        key = begin + tl.arange(0, P)[None, :]
        scores = tl.dot(q_block, tl.trans(k_block)) * (scale * 1.4426950408889634) - log
        weights = tl.exp2(tl.where((key >= first) & (key <= last), scores, -1e30))
        grad_values = tl.dot(tl.trans(weights.to(slope.dtype)), slope)
        _write(grad_v, grad_values, begin, kv_stride, heads, keys, P, K)
        slopes = tl.dot(slope, tl.trans(values))
        slopes = (weights * (slopes - inward) * scale).to(slope.dtype)
        grad_q_block = tl.dot(slopes, k_block, grad_q_block)
        grad_k_block = tl.dot(tl.trans(slopes), q_block)
        if ROTATED:
            grad_k_block = _rotated(grad_k_block, cos, sin, -1.0, begin, heads, keys, P, K)
            k_sums += tl.sum(grad_k_block, 0)
        _write(grad_k, grad_k_block, begin, kv_stride, heads, keys, P, K)
    # What is added to all keys alike changes no softmax, so this is zero unless they are rotated.
    _write_sum(sum_k, k_sums, kv_stride, heads, K)
    if ROTATED:
        grad_q_block = _rotated(grad_q_block, cos, sin, -1.0, 0, heads, queries, T, K)
    _write(grad_q, grad_q_block, 0, q_stride, heads, queries, T, K)
    _write_sum(sum_q, tl.sum(grad_q_block, 0), q_stride, heads, K)
