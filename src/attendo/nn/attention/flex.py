"""Attention to some of all pairs as one GPU kernel, which PyTorch makes from the rules given here.

Only blocks with allowed pairs are visited, and no scores go through the GPU's memory. The
lists of these blocks hold some (T / 128)² numbers, which is little up to a million tokens.
"""

from collections.abc import Callable, Sequence
from functools import cache, reduce
from operator import add, or_
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

from attendo.nn import fast
from attendo.nn.attention.band import Averages, Band
from attendo.nn.grid import Span

Attend = Callable[..., Any]

BLOCK = 128
"""Tokens on either side of a block of pairs."""

SHORTEST = 4 * BLOCK
"""Fewest tokens of a row: with fewer, there is almost nothing to skip."""

NARROWEST = 16
"""Smallest width of a head that the matrix units support."""

SPANS: Any = {
    "fwd_BLOCK_M": 64,  # the best of four that were tried on an H200 (docs/performance.md)
    "fwd_BLOCK_N": 64,
    "fwd_num_warps": 4,
    "fwd_num_stages": 3,
}
"""How the kernel for spans is made."""


def fits(q: Float[Tensor, "R H T K"], v: Float[Tensor, "R H T J"]) -> bool:
    """Return whether the kernel supports these, and compiling it pays: in training only.

    Elsewhere lengths change, and validation compiles nothing; uncompiled it would build all pairs.
    """
    is_used = fast.AVAILABLE and torch.is_grad_enabled()
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
    """Attend from every token to the positions of its spans."""
    narrow = [Span(span.first.int(), span.last.int()) for span in spans]
    averaged: Tensor = _compiled(_attend_spans)(q, k, v, narrow)
    return averaged


def fused_rounds(
    q: Float[Tensor, "R H N T K"],
    k: Float[Tensor, "R H N T K"],
    v: Float[Tensor, "R H N T J"],
    labels: Int[Tensor, "R H N T"],
    marks: Int[Tensor, "R H N M T"],
    band: Band,
    own_score: float,
) -> Averages:
    """Attend from every token to those near it with the same label, in N rounds at once.

    A pair whose marks are near in several of all M rounds shares its weight among them. For itself
    a token has a score of its own, in the first round only.
    """
    lined_up = (x.flatten(1, 2) for x in (q, k, v))
    rules = labels.int().flatten(1, 2), marks.int().flatten(1, 2)
    # PyTorch makes sizes that differ from call to call variables, unless that is disabled.
    attend = _compiled(_attend_rounds, is_dynamic=False)
    values, log_sums = attend(*lined_up, *rules, band, own_score)
    return Averages(values.unflatten(1, q.shape[1:3]), log_sums.unflatten(1, q.shape[1:3]))


def _compiled(attend: Attend, is_dynamic: bool | None = None) -> Attend:
    """Compile once, and not before it is needed; within a program being compiled not at all."""
    return attend if torch.compiler.is_compiling() else _program(attend, is_dynamic)


@cache
def _program(attend: Attend, is_dynamic: bool | None) -> Attend:
    return torch.compile(attend, dynamic=is_dynamic)


def _attend_spans(q: Tensor, k: Tensor, v: Tensor, spans: Sequence[Span]) -> Any:
    return flex_attention(q, k, v, block_mask=block_mask(spans), kernel_options=SPANS)


def _attend_rounds(
    q: Tensor, k: Tensor, v: Tensor, labels: Tensor, marks: Tensor, band: Band, own_score: float
) -> Any:
    n_rounds, reach = marks.shape[2], max(band)

    def sees(row: Tensor, lane: Tensor, query: Tensor, key: Tensor) -> Tensor:
        is_near = (query - key <= band.before) & (key - query <= band.after)
        is_counted = (query != key) | (lane % n_rounds == 0)
        return is_near & is_counted & (labels[row, lane, query] == labels[row, lane, key])

    def share(score: Tensor, row: Tensor, lane: Tensor, query: Tensor, key: Tensor) -> Tensor:
        apart = [marks[row, lane, n, query] - marks[row, lane, n, key] for n in range(n_rounds)]
        n_met = reduce(add, [torch.where(far.abs() <= reach, 1.0, 0.0) for far in apart])
        return torch.where(query == key, own_score, score - n_met.clamp(min=1.0).log())

    places = torch.arange(q.shape[2], device=q.device)[None]
    # Which tokens share a label is not known beforehand: all near ones are visited, by the rule.
    seen, _ = _blocks(Span(places - band.before, places + band.after))
    mask = _listed_mask(seen, torch.zeros_like(seen), sees, q.shape[2])
    values, more = flex_attention(q, k, v, share, mask, return_aux=AuxRequest(lse=True))
    return values, more.lse


def block_mask(spans: Sequence[Span]) -> BlockMask:
    """Return which blocks of pairs are allowed, and the rule for those allowed in part."""
    seen, whole = (reduce(or_, blocks) for blocks in zip(*map(_blocks, spans), strict=True))

    def sees(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        inside = [
            (key >= span.first[row, query]) & (key <= span.last[row, query]) for span in spans
        ]
        return reduce(or_, inside)

    return _listed_mask(seen & ~whole, whole, sees, spans[0].first.shape[-1])


def _listed_mask(
    part: Bool[Tensor, "R 1 N N"],
    whole: Bool[Tensor, "R 1 N N"],
    rule: Callable[..., Tensor],
    length: int,
) -> BlockMask:
    """List the blocks of which some pairs are allowed, by a rule, and those of which all are."""
    return BlockMask(
        (length, length),
        *_listed(part),
        *_listed(whole),
        *_listed(part.mT),  # for the gradients of the keys
        *_listed(whole.mT),
        BLOCK_SIZE=(BLOCK, BLOCK),
        mask_mod=rule,
    )


def _blocks(span: Span) -> tuple[Bool[Tensor, "R 1 N N"], Bool[Tensor, "R 1 N N"]]:
    """Return which blocks may have allowed pairs, and which have only allowed pairs."""
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
    """Count the blocks of each row of blocks, and list them before the others."""
    # Compiled, this takes seconds; a sort would be compiled for minutes.
    until, others_until = blocks.cumsum(dim=-1), (~blocks).cumsum(dim=-1)
    n_blocks = until[..., -1:]
    ranks = torch.where(blocks, until, n_blocks + others_until) - 1
    names = torch.arange(blocks.shape[-1], device=blocks.device).expand_as(ranks)
    order = torch.zeros_like(ranks).scatter(-1, ranks, names)
    return n_blocks[..., 0].int(), order.int()
