"""Log-softmax and the best tokens of each row, with one pass over the logits.

The k best tokens of a row lie in the k chunks with the highest maxima. So a first kernel finds the
maximum of every chunk, and the sum of all exponentials; a second one ranks the tokens of the best
chunks only. Among equal tokens the lowest id is first, as in a stable sort.
"""

from typing import NamedTuple

import torch
import triton
from jaxtyping import Bool, Float, Int
from torch import Tensor
from triton import language as tl

from attendo.nn.fast.overlap import launch, wait

COLUMNS = 4096
"""Logits per program of the first kernel."""
CHUNK = 128
"""Logits that have one maximum."""
MOST = 128
"""Most tokens of a row that can be found; each takes a pass over the best chunks."""


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
    columns = min(COLUMNS, max(CHUNK, triton.next_power_of_2(vocabulary)))
    n_parts, n_chunks = triton.cdiv(vocabulary, columns), triton.cdiv(vocabulary, CHUNK)
    maxima = torch.empty(n_rows, n_chunks, dtype=torch.float32, device=logits.device)
    sums = torch.empty(n_rows, n_parts, 2, dtype=torch.float32, device=logits.device)
    _reduce[(n_rows, n_parts)](
        logits, maxima, sums, vocabulary, n_parts, n_chunks, *forbidden,
        columns // CHUNK, CHUNK, num_warps=max(1, min(8, columns // 512)), **launch(logits),
    )  # fmt: skip
    values = torch.empty(n_rows, count, dtype=torch.float32, device=logits.device)
    found = torch.empty(n_rows, count, dtype=torch.int64, device=logits.device)
    marks = torch.empty(n_rows, dtype=torch.float32, device=logits.device)
    is_broken = torch.empty(n_rows, dtype=torch.bool, device=logits.device)
    kept = triton.next_power_of_2(count)
    _rank[(n_rows,)](
        logits, maxima, sums, only, shift, values, found, marks, is_broken,
        vocabulary, n_parts, n_chunks, count, marked, *forbidden,
        triton.next_power_of_2(n_parts), triton.next_power_of_2(n_chunks), kept, CHUNK, is_normal,
        num_warps=max(1, min(8, kept * CHUNK // 1024)), **launch(logits),
    )  # fmt: skip
    return Best(values, found, marks, is_broken)


@triton.jit
def _reduce(
    logits, maxima, sums,
    vocabulary, n_parts, n_chunks, forbidden, forbidden_too,
    S: tl.constexpr, C: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    wait(EARLY)
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    chunk = part * S + tl.arange(0, S)
    column = chunk[:, None] * C + tl.arange(0, C)[None]
    score = tl.load(
        logits + row * vocabulary + column, mask=column < vocabulary, other=-float("inf")
    )
    score = score.to(tl.float32)
    highest = tl.max(tl.max(score, 1), 0)
    base = tl.where(highest == -float("inf"), 0.0, highest)
    # NaN and infinity make the sum NaN.
    total = tl.sum(tl.sum(tl.exp(score - base), 1), 0)
    sums += (row * n_parts + part) * 2
    tl.store(sums, base)
    tl.store(sums + 1, total)
    allowed = (column != forbidden) & (column != forbidden_too)
    score = tl.where(allowed, score, -float("inf"))
    tl.store(maxima + row * n_chunks + chunk, tl.max(score, 1), mask=chunk < n_chunks)


@triton.jit
def _rank(
    logits, maxima, sums, only, shift, values, found, marks, is_broken,
    vocabulary, n_parts, n_chunks, count, marked, forbidden, forbidden_too,
    P: tl.constexpr, M: tl.constexpr, K: tl.constexpr, C: tl.constexpr, IS_NORMAL: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    wait(EARLY)
    row = tl.program_id(0).to(tl.int64)
    logits += row * vocabulary
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
    mark = tl.load(logits + marked).to(tl.float32)
    tl.store(marks + row, mark - highest - log_total)
    single = tl.load(only + row)
    added = tl.load(shift + row)

    chunk = tl.arange(0, M)
    best = tl.load(maxima + row * n_chunks + chunk, mask=chunk < n_chunks, other=-float("inf"))
    best = tl.where(broken, -float("inf"), added + (best - highest - log_total))
    is_left = chunk < n_chunks
    rank = tl.arange(0, K)
    chosen = tl.full((K,), M, tl.int32)
    for number in range(K):
        order = tl.where(is_left, tl.maximum(best, -3e38), -float("inf"))
        _, index = tl.max(order, 0, return_indices=True, return_indices_tie_break_left=True)
        chosen = tl.where((rank == number) & (number < n_chunks), index, chosen)
        is_left = is_left & (chunk != index)

    token = chosen[:, None] * C + tl.arange(0, C)[None]
    is_token = (chosen < n_chunks)[:, None] & (token < vocabulary)
    score = tl.load(logits + token, mask=is_token, other=-float("inf")).to(tl.float32)
    allowed = is_token & (token != forbidden) & (token != forbidden_too) & (broken == 0)
    value = added + (score - highest - log_total)
    value = tl.where(allowed, value, -float("inf"))
    if single >= 0:
        alone = added + (tl.load(logits + single).to(tl.float32) - highest - log_total)
        for number in range(count):
            tl.store(values + row * count + number, tl.where(number == 0, alone, -float("inf")))
            tl.store(found + row * count + number, single)
    else:
        for number in range(count):
            top = tl.max(tl.max(value, 1), 0)
            lowest = tl.min(tl.min(tl.where(is_token & (value == top), token, 1 << 30), 1), 0)
            tl.store(values + row * count + number, top)
            tl.store(found + row * count + number, tl.minimum(lowest, vocabulary - 1).to(tl.int64))
            is_token = is_token & (token != lowest)
            value = tl.where(is_token, value, -float("inf"))
