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
"""Logits per block of a program."""

WARPS = 8
"""Groups of threads for each row: fastest of 8, 16 and 32, and so are 4,096 columns."""

LOG2_E = tl.constexpr(1.4426950408889634)
"""With which 2 ** (x log2 e) is e ** x; processors have only the former."""


def fits(logits: Tensor) -> bool:
    """Return whether the kernel supports these."""
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
    # Triton assumes that rows begin at multiples of 8, if they do, and reads 8 at once.
    unit = 8 if vocabulary % 8 == 0 else 1
    _kernel[(n_rows,)](
        logits, labels.contiguous(), losses, gradient,
        vocabulary // unit, smoothing, IGNORE, unit,
        C=min(COLUMNS, triton.next_power_of_2(vocabulary)), num_warps=WARPS,
    )  # fmt: skip
    return losses, gradient


_losses_and_gradient.register_fake(lambda logits, *_: _outputs(logits))


def _outputs(logits: Tensor) -> tuple[Tensor, Tensor]:
    return logits.new_empty(len(logits), dtype=torch.float32), torch.empty_like(logits)


@triton.jit
def _read(logits, column, vocabulary, policy: tl.constexpr, WHOLE: tl.constexpr):
    """Read some logits as exponents of two."""
    if WHOLE:  # a mask would take longer than what is done with the logits
        score = tl.load(logits + column, eviction_policy=policy)
    else:
        score = tl.load(
            logits + column, mask=column < vocabulary, other=0.0, eviction_policy=policy
        )
    return score.to(tl.float32) * LOG2_E


@triton.jit
def _add_up(
    logits, column, vocabulary, highest, powers, plain,
    WHOLE: tl.constexpr,
):  # fmt: skip
    """Add some more logits to the sums."""
    # Read once more, so kept in the cache, unlike the gradient.
    score = _read(logits, column, vocabulary, "evict_last", WHOLE)
    plain += score
    if not WHOLE:
        score = tl.where(column < vocabulary, score, -1e30)
    higher = tl.maximum(highest, tl.max(score, 0))
    return higher, powers * tl.exp2(highest - higher) + tl.exp2(score - higher), plain


@triton.jit
def _write_slopes(logits, gradient, column, vocabulary, log_sum, even, WHOLE: tl.constexpr):
    """Write the gradients of some logits, as if none of them were the expected one."""
    score = _read(logits, column, vocabulary, "evict_first", WHOLE)
    slope = (tl.exp2(score - log_sum) - even).to(gradient.dtype.element_ty)
    if WHOLE:
        tl.store(gradient + column, slope, cache_modifier=".cs")
    else:
        tl.store(gradient + column, slope, mask=column < vocabulary, cache_modifier=".cs")


@triton.jit
def _kernel(
    logits, labels, losses, gradient,
    units, smoothing, ignore,
    UNIT: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    vocabulary = units * UNIT
    whole = vocabulary // C * C
    logits += tl.program_id(0).to(tl.int64) * vocabulary
    gradient += tl.program_id(0).to(tl.int64) * vocabulary
    label = tl.load(labels + tl.program_id(0))
    column = tl.arange(0, C)
    if label == ignore:
        tl.store(losses + tl.program_id(0), 0.0)
        nothing = tl.zeros((C,), gradient.dtype.element_ty)
        for first in range(0, vocabulary, C):
            tl.store(gradient + first + column, nothing, mask=first + column < vocabulary)
    else:
        highest = tl.full((), -1e30, tl.float32)
        powers = tl.zeros((C,), tl.float32)
        plain = tl.zeros((C,), tl.float32)
        for first in range(0, whole, C):
            highest, powers, plain = _add_up(
                logits, first + column, vocabulary, highest, powers, plain, True
            )
        highest, powers, plain = _add_up(
            logits, whole + column, vocabulary, highest, powers, plain, False
        )
        log_sum = highest + tl.log2(tl.sum(powers, 0))
        expected = tl.load(logits + label).to(tl.float32) * LOG2_E
        said = (1 - smoothing) * expected + smoothing * tl.sum(plain, 0) / vocabulary
        tl.store(losses + tl.program_id(0), (log_sum - said) / LOG2_E)

        even = smoothing / vocabulary
        for first in range(0, whole, C):
            _write_slopes(logits, gradient, first + column, vocabulary, log_sum, even, True)
        _write_slopes(logits, gradient, whole + column, vocabulary, log_sum, even, False)
        tl.debug_barrier()  # another thread has written there
        slope = tl.exp2(expected - log_sum) - even - (1 - smoothing)
        tl.store(gradient + label, slope.to(gradient.dtype.element_ty))
