"""Binary trees over a sentence: the sum over all of them, the best one, and the share of each span.

A tree's score is the sum of the scores of its spans. The inside algorithm fills a chart from short
spans to long ones, all spans of one length, of all sentences, at once: n steps for n words, each
over O(n²) pairs of parts. The same steps backwards, the outside algorithm, give the gradient: the
probability of each span or, where the maximum takes the place of the sum (CKY), the best tree.

Spans have their ends at the F = n + 1 gaps between words: from gap i to gap j, i < j.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, autograd

Spans = Float[Tensor, "N F F"]
"""A number for each span of each sentence; what is not below the diagonal counts."""


class Chart(NamedTuple):
    """The score of everything below each span, by length: twice, for slices without copies."""

    by_start: Float[Tensor, "N F F"]
    """At [i, w]: of the span of w words that starts at gap i."""
    by_end: Float[Tensor, "N F F"]
    """At [j, w]: of the span of w words that ends at gap j."""


def log_partition(scores: Spans, n_words: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Return the log of the sum of exp(score) over all binary trees of each sentence."""
    totals: Tensor = _LogPartition.apply(scores, n_words)  # type: ignore[no-untyped-call]
    return totals


def best_tree(scores: Spans, n_words: Int[Tensor, " N"]) -> Spans:
    """Return 1 for the spans of the best tree of each sentence, and 0 for all others."""
    chart = _inside(scores, is_best=True)
    return _outside(chart, scores, n_words, is_best=True)


class _LogPartition(autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Spans, n_words: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        chart = _inside(scores, is_best=False)
        ctx.save_for_backward(*chart, scores, n_words)
        return chart.by_start[_rows(scores), 0, n_words]

    @staticmethod
    def backward(ctx: Any, grad: Float[Tensor, " N"]) -> tuple[Spans, None]:
        by_start, by_end, scores, n_words = ctx.saved_tensors
        shares = _outside(Chart(by_start, by_end), scores, n_words, is_best=False)
        return shares * grad[:, None, None], None


def _rows(scores: Spans) -> Int[Tensor, " N"]:
    return torch.arange(len(scores), device=scores.device)


def _of_length(scores: Spans, length: int) -> Float[Tensor, "N M"]:
    """Return the scores of all spans of one length."""
    return scores.diagonal(length, 1, 2)


def _inside(scores: Spans, *, is_best: bool) -> Chart:
    n = scores.shape[1] - 1
    chart = Chart(torch.zeros_like(scores), torch.zeros_like(scores))
    for length in range(1, n + 1):
        below = _of_length(scores, length)
        if length > 1:
            parts = _parts(chart, length)
            below = below + (parts.amax(-1) if is_best else parts.logsumexp(-1))
        chart.by_start[:, : n + 1 - length, length] = below
        chart.by_end[:, length:, length] = below
    return chart


def _parts(chart: Chart, length: int) -> Float[Tensor, "N M K"]:
    """Return the scores of both parts of each span of a length, for each place between them."""
    n_spans = chart.by_start.shape[1] - length
    left = chart.by_start[:, :n_spans, 1:length]
    right = chart.by_end[:, length:, 1:length].flip(-1)
    return left + right


def _outside(chart: Chart, scores: Spans, n_words: Int[Tensor, " N"], *, is_best: bool) -> Spans:
    """Share out the root of each sentence among the spans below it."""
    n = scores.shape[1] - 1
    shares = torch.zeros_like(scores)
    shares[_rows(scores), 0, n_words] = 1
    by_start, by_end = torch.zeros_like(scores), torch.zeros_like(scores)
    for length in range(n, 0, -1):
        n_spans = n + 1 - length
        own = _of_length(shares, length)
        own += by_start[:, :n_spans, length] + by_end[:, length:, length]
        if length > 1:
            parts = _parts(chart, length)
            split = _one_hot(parts) if is_best else parts.softmax(-1)
            split = split * own[..., None]
            by_start[:, :n_spans, 1:length] += split
            by_end[:, length:, 1:length] += split.flip(-1)
    return shares


def _one_hot(parts: Float[Tensor, "N M K"]) -> Float[Tensor, "N M K"]:
    """Choose the best place; among equals the first."""
    return torch.zeros_like(parts).scatter(-1, parts.argmax(-1, keepdim=True), 1.0)
