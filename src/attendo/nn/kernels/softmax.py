"""Cross entropy over a large vocabulary together with its gradient: each logit is read twice.

The first pass finds the sum of the exponentials, the second writes the gradient; by then the row is
still in the GPU's cache, so that its memory is read once.
"""

import torch
import triton
from jaxtyping import Float, Int
from torch import Tensor
from triton import language as tl

from attendo.specials import IGNORE

COLUMNS = 4096
"""Logits that a program looks at at a time."""

WARPS = 8
"""Groups of threads for each row: fastest of 8, 16 and 32, and so are 4,096 columns."""


def fits(logits: Tensor) -> bool:
    """Tell whether the kernel is made for these."""
    return logits.is_cuda and logits.dtype in (torch.bfloat16, torch.float16)


def loss_and_gradient(
    logits: Float[Tensor, "N V"], labels: Int[Tensor, " N"], smoothing: float
) -> tuple[Float[Tensor, ""], Float[Tensor, "N V"]]:
    """Compute the summed loss, and what each logit adds to it: probability minus expectation."""
    losses, gradient = _losses_and_gradient(logits, labels, smoothing)
    return losses.sum(), gradient


@torch.library.custom_op("attendo::loss_and_gradient", mutates_args=())
def _losses_and_gradient(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    n_rows, vocabulary = logits.shape
    losses, gradient = _outputs(logits)
    # The kernel is told that rows begin at multiples of 8, if they do, so that it reads 8 at once.
    unit = 8 if vocabulary % 8 == 0 else 1
    _kernel[(n_rows,)](
        logits, labels, losses, gradient,
        vocabulary // unit, smoothing, IGNORE, unit,
        C=min(COLUMNS, triton.next_power_of_2(vocabulary)), num_warps=WARPS,
    )  # fmt: skip
    return losses, gradient


_losses_and_gradient.register_fake(lambda logits, *_: _outputs(logits))


def _outputs(logits: Tensor) -> tuple[Tensor, Tensor]:
    return logits.new_empty(len(logits), dtype=torch.float32), torch.empty_like(logits)


@triton.jit
def _kernel(
    logits, labels, losses, gradient,
    units, smoothing, ignore,
    UNIT: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    vocabulary = units * UNIT
    start = tl.program_id(0).to(tl.int64) * vocabulary
    label = tl.load(labels + tl.program_id(0))
    if label == ignore:
        tl.store(losses + tl.program_id(0), 0.0)
        for first in range(0, vocabulary, C):
            column = first + tl.arange(0, C)
            nothing = tl.zeros((C,), gradient.dtype.element_ty)
            tl.store(gradient + start + column, nothing, mask=column < vocabulary)
    else:
        highest = tl.full((), -1e30, tl.float32)
        exponentials = tl.zeros((), tl.float32)
        plain = tl.zeros((C,), tl.float32)
        for first in range(0, vocabulary, C):
            column = first + tl.arange(0, C)
            exists = column < vocabulary
            # To be read once more: stays in the cache, unlike the gradient.
            place = logits + start + column
            score = tl.load(place, mask=exists, other=0.0, eviction_policy="evict_last")
            score = score.to(tl.float32)
            plain += score
            score = tl.where(exists, score, -1e30)
            higher = tl.maximum(highest, tl.max(score, 0))
            exponentials *= tl.exp(highest - higher)
            exponentials += tl.sum(tl.exp(score - higher), 0)
            highest = higher
        log_sum = highest + tl.log(exponentials)
        said = (1 - smoothing) * tl.load(logits + start + label).to(tl.float32)
        said += smoothing * tl.sum(plain, 0) / vocabulary
        tl.store(losses + tl.program_id(0), log_sum - said)
        for first in range(0, vocabulary, C):
            column = first + tl.arange(0, C)
            exists = column < vocabulary
            place = logits + start + column
            score = tl.load(place, mask=exists, other=0.0, eviction_policy="evict_first")
            slope = tl.exp(score.to(tl.float32) - log_sum) - smoothing / vocabulary
            slope -= tl.where(column == label, 1 - smoothing, 0.0)
            slope = slope.to(gradient.dtype.element_ty)
            place = gradient + start + column
            tl.store(place, slope, mask=exists, cache_modifier=".cs")
