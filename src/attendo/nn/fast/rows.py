"""Products of a few rows with a weight, and what comes before and after, as one kernel.

A product of a few rows takes as long as it takes to launch it and to read the weight. So every
program adds and normalises its rows by itself, and reads its part of the weight before it waits for
the rows (`overlap.py`). Where there are more rows, the product is left to cuBLAS.

Shapes: R rows, I inputs, O outputs.
"""

from typing import NamedTuple

import torch
import triton
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from triton import language as tl

from attendo.nn.fast.overlap import launch, wait

FEW = 64
"""Most rows for which the kernel is faster than cuBLAS."""
WIDEST = 2048
"""Most inputs."""
BLOCK = 16
"""Rows, and outputs, of a program."""
PART = 512
"""Inputs that are summed up one after the other."""


class Projection(NamedTuple):
    """A linear layer, with ReLU on request."""

    weight: Float[Tensor, "O I"]
    bias: Float[Tensor, " O"] | None
    relu: bool = False

    def __call__(self, x: Float[Tensor, "R I"]) -> Float[Tensor, "R O"]:
        """Apply it to rows."""
        if is_few(x, self):
            return _project(x, None, None, self, carries_norm=False)[1]
        return self._multiply(x)

    def after_norm(
        self,
        x: Float[Tensor, "R I"],
        y: Float[Tensor, "R I"] | None,
        norm: nn.Module,
        *,
        carries_norm: bool,
    ) -> tuple[Float[Tensor, "R I"], Float[Tensor, "R O"]]:
        """Apply it to the norm of x + y; return also that norm or the sum."""
        if is_few(x, self):
            return _project(x, y, norm, self, carries_norm=carries_norm)
        total, normed = add_and_norm(x, y, norm)
        return normed if carries_norm else total, self._multiply(normed)

    def _multiply(self, x: Float[Tensor, "R I"]) -> Float[Tensor, "R O"]:
        if self.relu and self.bias is not None:  # on the way out of the product
            return torch._addmm_activation(self.bias, x, self.weight.T)
        product = functional.linear(x, self.weight, self.bias)
        return product.relu() if self.relu else product


def is_few(x: Tensor, projection: Projection) -> bool:
    """Return whether the kernel is made for these rows."""
    is_half = x.dtype in (torch.bfloat16, torch.float16)
    return is_half and len(x) <= FEW and x.shape[1] <= WIDEST


def _project(
    x: Float[Tensor, "R I"],
    y: Float[Tensor, "R I"] | None,
    norm: nn.Module | None,
    projection: Projection,
    *,
    carries_norm: bool,
) -> tuple[Float[Tensor, "R I"], Float[Tensor, "R O"]]:
    """Apply a projection to the norm of x + y, if there is a norm; return that or the sum, too."""
    weight, bias, relu = projection
    (n_rows, n_in), n_out = x.shape, len(weight)
    output = x.new_empty(n_rows, n_out)
    is_carried = y is not None or carries_norm
    carried = torch.empty_like(x) if is_carried else x
    _project_rows[(triton.cdiv(n_out, BLOCK), triton.cdiv(n_rows, BLOCK))](
        x, x if y is None else y, *_parameters(norm, x), weight, weight if bias is None else bias,
        carried, output, n_rows, n_in, n_out,
        triton.next_power_of_2(n_in), BLOCK, count_parts(n_in),
        y is not None, norm is not None, isinstance(norm, nn.LayerNorm),
        is_carried, carries_norm, bias is not None, relu,
        num_warps=count_warps(n_in), **launch(x),
    )  # fmt: skip
    return carried, output


def count_warps(n_in: int) -> int:
    """Return the number of warps of a program."""
    return 8 if n_in > 1024 else 4


def count_parts(n_in: int) -> int:
    """Return in how many parts to sum up, side by side."""
    return max(1, triton.next_power_of_2(n_in) // PART)


def _parameters(norm: nn.Module | None, x: Tensor) -> tuple[Tensor, Tensor, float]:
    """Return the gain, the offset and the epsilon of a norm; what it does not have is not used."""
    if norm is None:
        return x, x, 0.0
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    epsilon = torch.finfo(x.dtype).eps if norm.eps is None else norm.eps
    return norm.weight, norm.bias if isinstance(norm, nn.LayerNorm) else norm.weight, epsilon


@triton.jit
def _normalise(value, gain, offset, column, is_inside, width, epsilon, IS_LAYER: tl.constexpr):
    """Normalise rows, columns of which beyond their width are 0."""
    if IS_LAYER:
        value -= (tl.sum(value, 1) / width)[:, None]
        value = tl.where(is_inside[None], value, 0.0)
    value *= tl.rsqrt(tl.sum(value * value, 1) / width + epsilon)[:, None]
    value *= tl.load(gain + column, mask=is_inside, other=0.0).to(tl.float32)[None]
    if IS_LAYER:
        value += tl.load(offset + column, mask=is_inside, other=0.0).to(tl.float32)[None]
    return value


@triton.jit
def _project_rows(
    x, y, gain, offset, epsilon, weight, bias, carried, output,
    n_rows, n_in, n_out,
    D: tl.constexpr, B: tl.constexpr, P: tl.constexpr,
    ADDS: tl.constexpr, NORMS: tl.constexpr, IS_LAYER: tl.constexpr,
    CARRIES: tl.constexpr, CARRIES_NORM: tl.constexpr,
    HAS_BIAS: tl.constexpr, RELU: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0) * B + tl.arange(0, B)
    row = tl.program_id(1) * B + tl.arange(0, B)
    column = tl.arange(0, D)
    is_inside = column < n_in
    factors = tl.load(
        weight + place[:, None] * n_in + column[None],
        mask=(place < n_out)[:, None] & is_inside[None], other=0.0,
    )  # fmt: skip
    wait(EARLY)
    kind = output.dtype.element_ty
    cell = row[:, None] * n_in + column[None]
    is_cell = (row < n_rows)[:, None] & is_inside[None]
    is_first = is_cell & (tl.program_id(0) == 0)
    value = tl.load(x + cell, mask=is_cell, other=0.0)
    if ADDS:
        value = value.to(tl.float32) + tl.load(y + cell, mask=is_cell, other=0.0).to(tl.float32)
        value = value.to(kind)  # as a sum of its own would be
    if CARRIES and not CARRIES_NORM:
        tl.store(carried + cell, value, mask=is_first)
    if NORMS:
        value = _normalise(
            value.to(tl.float32), gain, offset, column, is_inside, n_in, epsilon, IS_LAYER
        ).to(kind)
    if CARRIES_NORM:
        tl.store(carried + cell, value, mask=is_first)
    if P == 1:
        total = tl.dot(value, tl.trans(factors), input_precision="ieee")
    else:  # parts of the sum, which do not wait for each other
        values = tl.permute(tl.reshape(value, (B, P, D // P)), (1, 0, 2))
        weights = tl.permute(tl.reshape(factors, (B, P, D // P)), (1, 2, 0))
        total = tl.sum(tl.dot(values, weights, input_precision="ieee"), 0)
    is_place = place < n_out
    if HAS_BIAS:
        total += tl.load(bias + place, mask=is_place, other=0.0).to(tl.float32)[None]
    if RELU:
        total = tl.maximum(total, 0.0)
    target = output + row[:, None] * n_out + place[None]
    tl.store(target, total.to(kind), mask=(row < n_rows)[:, None] & is_place[None])


def add_and_norm(
    x: Float[Tensor, "R I"], y: Float[Tensor, "R I"] | None, norm: nn.Module
) -> tuple[Float[Tensor, "R I"], Float[Tensor, "R I"]]:
    """Return x + y, and its norm; without y that of x."""
    normed = torch.empty_like(x)
    total = x if y is None else torch.empty_like(x)
    width = x.shape[-1]
    _add_and_norm[(len(x),)](
        x, x if y is None else y, *_parameters(norm, x), total, normed, width,
        triton.next_power_of_2(width), y is not None, isinstance(norm, nn.LayerNorm),
        num_warps=max(1, min(8, width // 256)), **launch(x),
    )  # fmt: skip
    return total, normed


@triton.jit
def _add_and_norm(
    x, y, gain, offset, epsilon, total, normed, width,
    D: tl.constexpr, ADDS: tl.constexpr, IS_LAYER: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    wait(EARLY)
    cell = tl.program_id(0).to(tl.int64) * width + tl.arange(0, D)[None]
    column = tl.arange(0, D)
    is_inside = column < width
    kind = normed.dtype.element_ty
    value = tl.load(x + cell, mask=is_inside[None], other=0.0)
    if ADDS:
        value = value.to(tl.float32) + tl.load(y + cell, mask=is_inside[None], other=0.0).to(
            tl.float32
        )
        value = value.to(kind)  # as a sum of its own would be
        tl.store(total + cell, value, mask=is_inside[None])
    value = _normalise(
        value.to(tl.float32), gain, offset, column, is_inside, width, epsilon, IS_LAYER
    )
    tl.store(normed + cell, value.to(kind), mask=is_inside[None])
