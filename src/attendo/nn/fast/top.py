"""Log-softmax and the best tokens of each row in one pass over the logits.

Each program ranks some columns of a row; a second kernel merges what they have found. Among equal
tokens the lowest id is first, as in a stable sort.
"""

from typing import NamedTuple

import torch
import triton
from jaxtyping import Bool, Float, Int
from torch import Tensor
from triton import language as tl

COLUMNS = 4096
"""Logits per program."""
MOST = 128
"""Most tokens of a row that can be found; each takes a pass over registers."""


class Best(NamedTuple):
    """The k best tokens of each row, best first, ties by id."""

    values: Float[Tensor, "R k"]
    """Shift plus log-probability; minus infinity where nothing more may follow."""
    tokens: Int[Tensor, "R k"]
    marked: Float[Tensor, " R"]
    """The log-probability of the marked token, whether it may follow or not."""
    is_broken: Bool[Tensor, " R"]
    """Rows whose logits were not finite."""


def fits(logits: Tensor, count: int) -> bool:
    """Return whether the kernels support these."""
    return logits.is_cuda and count <= MOST


def best_tokens(
    logits: Float[Tensor, "R V"],
    count: int,
    *,
    only: Int[Tensor, " R"],
    shift: Float[Tensor, " R"],
    forbidden: tuple[int, int],
    marked: int,
    is_normal: bool = False,
) -> Best:
    """Find the tokens with the highest log-probabilities.

    Args:
        logits: Scores of all tokens.
        count: How many to find.
        only: The one token that may follow in a row, or -1: any.
        shift: Added to the log-probabilities of a row, before tokens are compared.
        forbidden: Two tokens that may not follow; -1: none.
        marked: The token whose log-probability is returned in any case.
        is_normal: Whether the logits are log-probabilities, some of them set to minus infinity.
    """
    n_rows, vocabulary = logits.shape
    columns = min(COLUMNS, triton.next_power_of_2(vocabulary))
    n_parts = triton.cdiv(vocabulary, columns)
    kept = triton.next_power_of_2(count)
    scores = torch.empty(n_rows, n_parts, kept, dtype=torch.float32, device=logits.device)
    tokens = torch.empty(n_rows, n_parts, kept, dtype=torch.int32, device=logits.device)
    sums = torch.empty(n_rows, n_parts, 2, dtype=torch.float32, device=logits.device)
    _rank_parts[(n_rows, n_parts)](
        logits, scores, tokens, sums, vocabulary, n_parts, count, *forbidden,
        columns, kept, num_warps=max(1, min(8, columns // 256)),
    )  # fmt: skip
    values = torch.empty(n_rows, count, dtype=torch.float32, device=logits.device)
    found = torch.empty(n_rows, count, dtype=torch.int64, device=logits.device)
    marks = torch.empty(n_rows, dtype=torch.float32, device=logits.device)
    is_broken = torch.empty(n_rows, dtype=torch.bool, device=logits.device)
    _merge_parts[(n_rows,)](
        logits, scores, tokens, sums, only, shift, values, found, marks, is_broken,
        vocabulary, n_parts, count, marked,
        triton.next_power_of_2(n_parts), kept, is_normal, num_warps=1,
    )  # fmt: skip
    return Best(values, found, marks, is_broken)


@triton.jit
def _rank_parts(
    logits, scores, tokens, sums,
    vocabulary, n_parts, count, forbidden, forbidden_too,
    C: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    column = part * C + tl.arange(0, C)
    score = tl.load(
        logits + row * vocabulary + column, mask=column < vocabulary, other=-float("inf")
    )
    score = score.to(tl.float32)
    highest = tl.max(score, 0)
    base = tl.where(highest == -float("inf"), 0.0, highest)
    # NaN and infinity make the sum NaN.
    total = tl.sum(tl.exp(score - base), 0)
    sums += (row * n_parts + part) * 2
    tl.store(sums, base)
    tl.store(sums + 1, total)
    allowed = (column != forbidden) & (column != forbidden_too)
    score = tl.where(allowed, score, -float("inf"))
    place = (row * n_parts + part) * K
    for rank in range(K):
        best, index = tl.max(score, 0, return_indices=True, return_indices_tie_break_left=True)
        tl.store(scores + place + rank, tl.where(rank < count, best, -float("inf")))
        tl.store(tokens + place + rank, part * C + index)
        score = tl.where(tl.arange(0, C) == index, -float("inf"), score)


@triton.jit
def _merge_parts(
    logits, scores, tokens, sums, only, shift, values, found, marks, is_broken,
    vocabulary, n_parts, count, marked,
    P: tl.constexpr, K: tl.constexpr, IS_NORMAL: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, P)
    is_part = part < n_parts
    sums += row * n_parts * 2
    base = tl.load(sums + part * 2, mask=is_part, other=-float("inf"))
    total = tl.load(sums + part * 2 + 1, mask=is_part, other=0.0)
    highest = tl.max(tl.where(total > 0, base, -float("inf")), 0)
    total = tl.sum(tl.where(total == 0, 0.0, total * tl.exp(base - highest)), 0)
    log_total = tl.log(total)
    broken = (total != total) | (total == 0) | (highest == float("inf"))
    tl.store(is_broken + row, broken)
    if IS_NORMAL:
        highest = 0.0
        log_total = 0.0
    mark = tl.load(logits + row * vocabulary + marked).to(tl.float32)
    tl.store(marks + row, mark - highest - log_total)

    place = tl.arange(0, P * K)
    is_found = place < n_parts * K
    score = tl.load(scores + row * n_parts * K + place, mask=is_found, other=-float("inf"))
    token = tl.load(tokens + row * n_parts * K + place, mask=is_found, other=0)
    single = tl.load(only + row)
    added = tl.load(shift + row)
    value = added + (score - highest - log_total)
    if single >= 0:
        alone = tl.load(logits + row * vocabulary + single).to(tl.float32)
        value = tl.where(place == 0, added + (alone - highest - log_total), -float("inf"))
        token = tl.where(place == 0, single, token).to(tl.int32)
    for rank in range(count):
        best, index = tl.max(value, 0, return_indices=True, return_indices_tie_break_left=True)
        is_best = place == index
        tl.store(values + row * count + rank, best)
        tl.store(found + row * count + rank, tl.sum(tl.where(is_best, token, 0), 0).to(tl.int64))
        value = tl.where(is_best, -float("inf"), value)
