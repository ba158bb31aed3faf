"""Attention over spans as one GPU kernel, which PyTorch makes from the rule that is given here.

Only blocks of pairs that somebody sees are visited, and no scores go through the GPU's memory. The
lists of these blocks hold some (T / 128)² numbers, which is little up to a million tokens.
"""

from collections.abc import Callable, Sequence
from functools import cache, reduce
from operator import or_

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from attendo.nn import kernels
from attendo.nn.long.spans import Span

BLOCK = 128
"""Tokens on either side of a block of pairs."""

SHORTEST = 4 * BLOCK
"""Least tokens in a row: over fewer, there is nearly nothing to leave out."""

NARROWEST = 16
"""Least width of a head that the matrix units take."""


def fits(q: Float[Tensor, "R H T K"], v: Float[Tensor, "R H T J"]) -> bool:
    """Tell whether the kernel is made for these, and worth to be compiled: in training only.

    Elsewhere lengths change, and validation compiles nothing; uncompiled it would build all pairs.
    """
    is_used = kernels.AVAILABLE and torch.is_grad_enabled()
    is_half = q.is_cuda and q.dtype in (torch.bfloat16, torch.float16)
    is_long = q.shape[2] >= SHORTEST
    is_wide = q.shape[3] >= NARROWEST and q.shape[3] == v.shape[3]
    return is_used and is_half and is_long and is_wide


def fused_attention(
    q: Float[Tensor, "R H T K"],
    k: Float[Tensor, "R H T K"],
    v: Float[Tensor, "R H T J"],
    spans: Sequence[Span],
) -> Float[Tensor, "R H T J"]:
    """Let every token ask all that lies in at least one of its spans."""
    narrow = [Span(span.first.int(), span.last.int()) for span in spans]
    attend = _attend if torch.compiler.is_compiling() else _compiled()
    return attend(q, k, v, narrow)


@cache
def _compiled() -> Callable[..., Tensor]:
    """Compile once, and not before it is needed."""
    return torch.compile(_attend)


def _attend(q: Tensor, k: Tensor, v: Tensor, spans: Sequence[Span]) -> Tensor:
    averaged: Tensor = flex_attention(q, k, v, block_mask=block_mask(spans))
    return averaged


def block_mask(spans: Sequence[Span]) -> BlockMask:
    """Say which blocks of pairs are seen, and by what rule the pairs of those seen in part."""
    length = spans[0].first.shape[-1]
    seen, whole = (reduce(or_, blocks) for blocks in zip(*map(_blocks, spans), strict=True))
    part = seen & ~whole

    def sees(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        inside = [
            (key >= span.first[row, query]) & (key <= span.last[row, query]) for span in spans
        ]
        return reduce(or_, inside)

    return BlockMask(
        (length, length),
        *_listed(part),
        *_listed(whole),
        *_listed(part.mT),  # for the gradients of those that are asked
        *_listed(whole.mT),
        BLOCK_SIZE=(BLOCK, BLOCK),
        mask_mod=sees,
    )


def _blocks(span: Span) -> tuple[Bool[Tensor, "R 1 N N"], Bool[Tensor, "R 1 N N"]]:
    """Find the blocks of pairs that may hold one that is seen, and those where all are."""
    length = span.first.shape[-1]
    n_blocks = -(-length // BLOCK)
    # The last block is filled up with the row's last token, which changes no extreme.
    index = torch.arange(n_blocks * BLOCK, device=span.first.device).clamp(max=length - 1)
    first, last = (ends[:, None, index].unflatten(-1, (-1, BLOCK)) for ends in span)
    begins = torch.arange(n_blocks, device=index.device) * BLOCK
    ends = begins + BLOCK - 1
    seen = (ends >= first.amin(-1)[..., None]) & (begins <= last.amax(-1)[..., None])
    whole = (begins >= first.amax(-1)[..., None]) & (ends <= last.amin(-1)[..., None])
    return seen, whole


def _listed(
    blocks: Bool[Tensor, "R 1 N N"],
) -> tuple[Int[Tensor, "R 1 N"], Int[Tensor, "R 1 N N"]]:
    """Count the blocks of each row of blocks, and name them before the others."""
    flags = blocks.to(torch.int32, memory_format=torch.contiguous_format)
    order = flags.argsort(dim=-1, descending=True, stable=True)
    return flags.sum(dim=-1, dtype=torch.int32), order.int()
