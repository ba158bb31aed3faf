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

from attendo.nn.positions import Turn

LONGEST = 128
"""Longest row whose scores fit."""

WIDTHS = (16, 32, 64)
"""Head widths that the matrix units take and that fit beside the scores."""

ROOM = 96 * 1024
"""Bytes that a multiprocessor must have for one program, of which older GPUs have less."""


def fits(queries: int, keys: int, width: int, mask: Bool[Tensor, "R #H #T S"]) -> bool:
    """Tell whether the kernels are made for these; one token at a time is not their business."""
    is_short = 16 <= queries <= LONGEST and 16 <= keys <= LONGEST
    has_room = mask.is_cuda and _has_room(mask.device)
    return is_short and width in WIDTHS and mask.shape[1] == 1 and has_room


@torch.compiler.assume_constant_result
def _has_room(device: torch.device) -> bool:
    properties: Any = torch.cuda.get_device_properties(device)
    return properties.shared_memory_per_block_optin >= ROOM


# Of queries, keys and values.


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


# Of joint projections, as they come out of one product: their gradients are made where they belong,
# and those of the biases with them, instead of being copied and summed by kernels of their own.


def attention_of_projections(
    asking: Float[Tensor, "R T Q"],
    bias: Float[Tensor, " Q"],
    mask: Bool[Tensor, "R 1 #T S"],
    n_heads: int,
    memory: Float[Tensor, "R S M"] | None = None,
    memory_bias: Float[Tensor, " M"] | None = None,
    turn: Turn | None = None,
) -> Float[Tensor, "R T D"]:
    """Add the biases, split into heads, turn queries and keys, attend and join the heads.

    `asking` is the queries and `memory` the keys beside the values; without a memory, `asking` is
    all three. Only then can they be turned, since queries and keys stand in the same places.
    """
    tensors = asking.contiguous(), bias, mask
    if memory is not None:
        memory = memory.contiguous()
    cos, sin = turn or (None, None)
    averaged: Tensor = _of_projections(*tensors, n_heads, memory, memory_bias, cos, sin)
    return averaged


@torch.library.custom_op("attendo::attention_of_projections", mutates_args=())
def _of_projections(
    asking: Tensor,
    bias: Tensor,
    mask: Tensor,
    n_heads: int,
    memory: Tensor | None,
    memory_bias: Tensor | None,
    cos: Tensor | None,
    sin: Tensor | None,
) -> Tensor:
    q, k, v = _heads_of(asking, memory, n_heads)
    out = _empty(q)
    _launch(_forward, (q, k, v, out), mask, _split(bias, memory_bias), angles=(cos, sin))
    return out.transpose(1, 2).flatten(2)


@torch.library.custom_op("attendo::attention_of_projections_backward", mutates_args=())
def _gradients_of_projections(
    grad: Tensor,
    asking: Tensor,
    bias: Tensor,
    mask: Tensor,
    n_heads: int,
    memory: Tensor | None,
    memory_bias: Tensor | None,
    cos: Tensor | None,
    sin: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of the projections, and of the biases as sums for each row."""
    outputs = _projected_outputs(asking, memory)
    found, sums, found_memory, sums_memory = outputs
    parts = _heads_of(asking, memory, n_heads)
    if memory is None:
        found_parts, sum_parts = _heads_of(found, None, n_heads), _split(sums, None)
    else:
        found_parts, sum_parts = _heads_of(found, found_memory, n_heads), _split(sums, sums_memory)
    (slope,) = _in_heads([grad.contiguous()], n_heads)
    biases = _split(bias, memory_bias)
    _launch(_backward, (*parts, slope, *found_parts), mask, biases, sum_parts, (cos, sin))
    return outputs


def _split(asking: Tensor, memory: Tensor | None) -> list[Tensor]:
    """Take apart what belongs to queries, keys and values."""
    if memory is None:
        return list(asking.chunk(3, dim=-1))
    return [asking, *memory.chunk(2, dim=-1)]


def _heads_of(asking: Tensor, memory: Tensor | None, n_heads: int) -> list[Tensor]:
    return _in_heads(_split(asking, memory), n_heads)


def _in_heads(parts: list[Tensor], n_heads: int) -> list[Tensor]:
    return [part.unflatten(-1, (n_heads, -1)).transpose(1, 2) for part in parts]


def _projected_outputs(
    asking: Tensor, memory: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    nothing = asking.new_empty(0)
    return (
        torch.empty_like(asking),
        _sums_for(asking),
        nothing if memory is None else torch.empty_like(memory),
        nothing.clone() if memory is None else _sums_for(memory),
    )


def _sums_for(projection: Tensor) -> Tensor:
    rows, _, width = projection.shape
    return projection.new_empty(rows, width, dtype=torch.float32)


def _averaged_output(asking: Tensor, memory: Tensor | None) -> Tensor:
    width = asking.shape[2] // (3 if memory is None else 1)
    return asking.new_empty(*asking.shape[:2], width)


_of_projections.register_fake(
    lambda asking, bias, mask, n_heads, memory, *_: _averaged_output(asking, memory)
)
_gradients_of_projections.register_fake(
    lambda grad, asking, bias, mask, n_heads, memory, *_: _projected_outputs(asking, memory)
)


def _remember_projections(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    asking, bias, mask, ctx.n_heads, *others = inputs
    ctx.save_for_backward(asking, bias, mask, *others)


def _backpropagate_projections(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    asking, bias, mask, memory, memory_bias, *angles = ctx.saved_tensors
    found, sums, found_memory, sums_memory = _gradients_of_projections(
        grad, asking, bias, mask, ctx.n_heads, memory, memory_bias, *angles
    )
    of_asking = found, sums.sum(0).to(bias.dtype)
    if memory is None or memory_bias is None:
        return *of_asking, None, None, None, None, None, None
    of_memory = found_memory, sums_memory.sum(0).to(memory_bias.dtype)
    return *of_asking, None, None, *of_memory, None, None


_of_projections.register_autograd(_backpropagate_projections, setup_context=_remember_projections)


def _launch(
    kernel: Any,
    tensors: tuple[Tensor, ...],
    mask: Tensor,
    biases: list[Tensor] | None = None,
    sums: list[Tensor] | None = None,
    angles: tuple[Tensor | None, Tensor | None] = (None, None),
) -> None:
    """Run one program for each head of each row."""
    laid = [_laid(tensor) for tensor in tensors]
    (rows, heads, queries, width), keys = laid[0].shape, laid[1].shape[2]
    mask = mask.expand(rows, 1, queries, keys).contiguous()
    absent = [mask] * 3  # never read
    summed = (*sums, sums[0].stride(0), sums[1].stride(0)) if sums else (*absent, 0, 0)
    cos, sin = (mask if table is None else table.contiguous() for table in angles)
    kernel[(rows * heads,)](
        mask,
        *laid,
        *(tensor.stride(2) for tensor in laid),
        *(biases or absent),
        *(summed if kernel is _backward else ()),
        cos,
        sin,
        heads,
        queries,
        keys,
        width**-0.5,
        T=triton.next_power_of_2(queries),
        S=triton.next_power_of_2(keys),
        K=width,
        BIASED=biases is not None,
        TURNED=angles[0] is not None,
        num_warps=8 if max(queries, keys) > 64 else 4,
        # With so many registers two programs find room on one multiprocessor.
        **({"maxnreg": 128} if kernel is _forward else {}),
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
def _of_head(heads, K: tl.constexpr):
    """Where this program's head lies in a vector."""
    return tl.program_id(0) % heads * K + tl.arange(0, K)


@triton.jit
def _read(x, bias, stride, heads, length, N: tl.constexpr, K: tl.constexpr, BIASED: tl.constexpr):
    places, exists = _places(stride, heads, length, N, K)
    value = tl.load(x + places, mask=exists, other=0.0)
    if BIASED:
        added = tl.load(bias + _of_head(heads, K))[None, :].to(tl.float32)
        value = (value.to(tl.float32) + added).to(value.dtype)
    return value


@triton.jit
def _turned(value, cos, sin, direction, heads, length, N: tl.constexpr, K: tl.constexpr):
    """Turn pairs of coordinates by the angles of their tokens, or back with direction -1."""
    row, token = (tl.program_id(0) // heads).to(tl.int64), tl.arange(0, N)[:, None]
    places = (row * length + token) * (K // 2) + tl.arange(0, K // 2)[None, :]
    cosine = tl.load(cos + places, mask=token < length, other=0.0)
    sine = tl.load(sin + places, mask=token < length, other=0.0) * direction
    first, second = tl.split(tl.reshape(value.to(tl.float32), (N, K // 2, 2)))
    turned = tl.join(first * cosine - second * sine, second * cosine + first * sine)
    turned = tl.reshape(turned, (N, K))
    if value.dtype == tl.float32:
        # Changes nothing, but Triton 3.6 cannot compile a product straight after a reshape.
        turned = tl.where(token < length, turned, 0.0)
    return turned.to(value.dtype)


@triton.jit
def _write(x, value, stride, heads, length, N: tl.constexpr, K: tl.constexpr):
    places, exists = _places(stride, heads, length, N, K)
    tl.store(x + places, value.to(x.dtype.element_ty), mask=exists)


@triton.jit
def _write_sum(sums, value, stride, heads, K: tl.constexpr):
    """Write what this row adds to the gradient of a bias."""
    row = (tl.program_id(0) // heads).to(tl.int64)
    tl.store(sums + row * stride + _of_head(heads, K), tl.sum(value, 0))


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
    q_bias, k_bias, v_bias, cos, sin,
    heads, queries, keys, scale,
    T: tl.constexpr, S: tl.constexpr, K: tl.constexpr, BIASED: tl.constexpr, TURNED: tl.constexpr,
):  # fmt: skip
    """One head of one row: all scores at once, so a plain softmax does."""
    asking = _read(q, q_bias, q_stride, heads, queries, T, K, BIASED)
    asked = _read(k, k_bias, k_stride, heads, keys, S, K, BIASED)
    if TURNED:
        asking = _turned(asking, cos, sin, 1.0, heads, queries, T, K)
        asked = _turned(asked, cos, sin, 1.0, heads, keys, S, K)
    values = _read(v, v_bias, v_stride, heads, keys, S, K, BIASED)
    weights, share = _weights(mask, asking, asked, heads, queries, keys, scale, T, S)
    averaged = tl.dot(weights.to(values.dtype), values) * share
    _write(out, averaged, out_stride, heads, queries, T, K)


@triton.jit
def _backward(
    mask, q, k, v, grad, grad_q, grad_k, grad_v,
    q_stride, k_stride, v_stride, grad_stride, grad_q_stride, grad_k_stride, grad_v_stride,
    q_bias, k_bias, v_bias,
    sum_q, sum_k, sum_v, sum_q_stride, sum_k_stride, cos, sin,
    heads, queries, keys, scale,
    T: tl.constexpr, S: tl.constexpr, K: tl.constexpr, BIASED: tl.constexpr, TURNED: tl.constexpr,
):  # fmt: skip
    """The same in reverse, with the weights computed again."""
    asking = _read(q, q_bias, q_stride, heads, queries, T, K, BIASED)
    asked = _read(k, k_bias, k_stride, heads, keys, S, K, BIASED)
    if TURNED:
        asking = _turned(asking, cos, sin, 1.0, heads, queries, T, K)
        asked = _turned(asked, cos, sin, 1.0, heads, keys, S, K)
    weights, share = _weights(mask, asking, asked, heads, queries, keys, scale, T, S)
    weights *= share
    slope = _read(grad, grad, grad_stride, heads, queries, T, K, False)
    grad_values = tl.dot(tl.trans(weights.to(slope.dtype)), slope)
    _write(grad_v, grad_values, grad_v_stride, heads, keys, S, K)
    values = _read(v, v_bias, v_stride, heads, keys, S, K, BIASED)
    slopes = tl.dot(slope, tl.trans(values))
    slopes = weights * (slopes - tl.sum(weights * slopes, 1)[:, None]) * scale
    slopes = slopes.to(slope.dtype)
    grad_asking = tl.dot(slopes, asked)
    if TURNED:
        grad_asking = _turned(grad_asking, cos, sin, -1.0, heads, queries, T, K)
    _write(grad_q, grad_asking, grad_q_stride, heads, queries, T, K)
    grad_asked = tl.dot(tl.trans(slopes), asking)
    if TURNED:
        grad_asked = _turned(grad_asked, cos, sin, -1.0, heads, keys, S, K)
    _write(grad_k, grad_asked, grad_k_stride, heads, keys, S, K)
    if BIASED:
        _write_sum(sum_q, grad_asking, sum_q_stride, heads, K)
        _write_sum(sum_k, grad_asked, sum_k_stride, heads, K)
        _write_sum(sum_v, grad_values, sum_k_stride, heads, K)
