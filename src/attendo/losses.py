"""Losses: logits and labels to a sum and a count.

Means are taken once, at the end, over all devices and accumulation steps; so a loss never divides.
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, autograd
from torch.nn import functional

from attendo.nn import fast
from attendo.nn.numerics import soft_cap
from attendo.specials import IGNORE

if fast.AVAILABLE:
    from attendo.nn.fast import softmax


class Loss(NamedTuple):
    """A loss that can be added up."""

    total: Float[Tensor, ""]
    n_labels: Int[Tensor, ""]


def cross_entropy(
    logits: Float[Tensor, "R T V"], labels: Int[Tensor, "R T"], smoothing: float = 0.0
) -> Loss:
    """Return the cross entropy with label smoothing (§5.4) over all positions that have a label."""
    total = functional.cross_entropy(
        logits.flatten(0, 1).float(),
        labels.flatten().long(),
        ignore_index=IGNORE,
        label_smoothing=smoothing,
        reduction="sum",
    )
    return Loss(total, count_labels(labels))


def linear_cross_entropy(
    hidden: Float[Tensor, "P R T D"],
    weight: Float[Tensor, "V D"],
    labels: Int[Tensor, "R T"],
    smoothing: float = 0.0,
    agreement: float = 0.0,
    bias: Float[Tensor, " V"] | None = None,
    cap: float = 0.0,
) -> Loss:
    """Compute the same from what the output layer is given, without all logits at once.

    The logits of a few thousand places are made, turned into their own gradients and forgotten
    before the next; so the largest tensor of the whole training never exists. The gradients are
    therefore computed along with the loss.

    With two passes (P = 2) over the same pairs the loss is the mean of both, and `agreement` is the
    weight of their distance, as in R-Drop (Liang et al. 2021).

    With a cap, logits are bounded by it (`soft_cap`).
    """
    total: Tensor = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden.flatten(1, 2), weight, labels.flatten().long(), smoothing, agreement, bias, cap
    )
    return Loss(total, count_labels(labels))


def count_labels(labels: Int[Tensor, "*R T"]) -> Int[Tensor, ""]:
    """Count the places that have something to predict."""
    return (labels != IGNORE).sum()


LOGITS_AT_ONCE = {"cuda": 2**28, "cpu": 2**21}
"""Enough to keep a GPU busy; few enough for a CPU to find them in its cache again."""


class _LinearCrossEntropy(autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Float[Tensor, "P N D"],
        weight: Float[Tensor, "V D"],
        labels: Int[Tensor, " N"],
        smoothing: float,
        agreement: float,
        bias: Float[Tensor, " V"] | None,
        cap: float,
    ) -> Float[Tensor, ""]:
        device = hidden.device.type
        kinds = hidden.dtype, weight.dtype
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            hidden, weight = hidden.to(dtype), weight.to(dtype)
            bias = None if bias is None else bias.to(dtype)
        n_logits = hidden.shape[0] * hidden.shape[1] * len(weight)
        n_parts = math.ceil(n_logits / LOGITS_AT_ONCE.get(device, 2**28))
        # Of other sizes than multiples of 8, the compiler pads products, and copies all logits.
        size = 8 * math.ceil(len(labels) / n_parts / 8)
        total = hidden.new_zeros((), dtype=torch.float32)
        grad_weight = torch.zeros_like(weight, dtype=torch.float32)
        grad_bias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        grads_hidden = []
        for part, expected in zip(hidden.split(size, 1), labels.split(size), strict=True):
            flat = part.flatten(0, 1)
            logits = soft_cap(functional.linear(flat, weight, bias), cap)
            loss, grad = _loss_and_gradient(logits, expected, smoothing, agreement)
            if cap:  # the slope of cap · tanh(x / cap)
                grad = grad * (1 - (logits / cap).square())
            total = total + loss
            grads_hidden.append((grad @ weight).to(kinds[0]).view_as(part))
            grad_weight = grad_weight + grad.T @ flat
            if grad_bias is not None:
                grad_bias = grad_bias + grad.sum(0, dtype=torch.float32)
        ctx.save_for_backward(torch.cat(grads_hidden, dim=1), grad_weight.to(kinds[1]), grad_bias)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Float[Tensor, ""]) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_weight, grad_bias = ctx.saved_tensors
        grad_bias = None if grad_bias is None else grad_bias * grad
        return grad_hidden * grad, grad_weight * grad, None, None, None, grad_bias, None


def _loss_and_gradient(
    logits: Float[Tensor, "M V"], labels: Int[Tensor, " N"], smoothing: float, agreement: float
) -> tuple[Float[Tensor, ""], Float[Tensor, "M V"]]:
    """Compute the loss, summed over places, and its gradient for each logit."""
    if len(logits) > len(labels):
        return _of_two_passes(logits, labels, smoothing, agreement)
    if fast.AVAILABLE and softmax.fits(logits):
        return softmax.loss_and_gradient(logits, labels, smoothing)
    return _of_one_pass(logits, labels, smoothing)


def _of_one_pass(
    logits: Float[Tensor, "N V"], labels: Int[Tensor, " N"], smoothing: float
) -> tuple[Float[Tensor, ""], Float[Tensor, "N V"]]:
    """Compute in place: a new tensor for each operation would take longer than the arithmetic."""
    has_label = (labels != IGNORE)[:, None]
    expected = labels.clamp(min=0)[:, None]
    log_probs = logits.float().log_softmax(dim=-1)
    said = (1 - smoothing) * log_probs.gather(1, expected)
    said = said + smoothing * log_probs.mean(1, keepdim=True)
    loss = -torch.where(has_label, said, 0.0).sum()
    # The gradient of a cross entropy is the prediction minus the expected distribution.
    grad = log_probs.exp_().sub_(smoothing / logits.shape[1])
    grad.scatter_add_(1, expected, torch.full_like(said, smoothing - 1))
    return loss, grad.mul_(has_label).to(logits.dtype)


def _of_two_passes(
    logits: Float[Tensor, "NN V"], labels: Int[Tensor, " N"], smoothing: float, agreement: float
) -> tuple[Float[Tensor, ""], Float[Tensor, "NN V"]]:
    """Return the mean of both losses, and the distance between the predictions of both passes."""
    log_probs = logits.unflatten(0, (2, -1)).float().log_softmax(dim=-1)
    probs = log_probs.exp()
    has_label = (labels != IGNORE)[:, None]
    expected = labels.clamp(min=0)[:, None]
    hits = log_probs.gather(-1, expected.expand(2, -1, -1))
    said = (1 - smoothing) * hits + smoothing * log_probs.mean(-1, keepdim=True)
    vocabulary = logits.shape[1]
    is_expected = torch.arange(vocabulary, device=logits.device) == expected
    target = smoothing / vocabulary + (1 - smoothing) * is_expected
    distances, slopes = _disagreement(log_probs, probs)
    losses = agreement * distances - said / 2
    grad = agreement * slopes + (probs - target) / 2
    loss = torch.where(has_label, losses, 0.0).sum()
    return loss, torch.where(has_label, grad, 0.0).to(logits.dtype).flatten(0, 1)


def _disagreement(
    log_probs: Float[Tensor, "2 N V"], probs: Float[Tensor, "2 N V"]
) -> tuple[Float[Tensor, "2 N 1"], Float[Tensor, "2 N V"]]:
    """Return the mean of KL(p_1 ‖ p_2) and KL(p_2 ‖ p_1), and its gradient."""
    ratio = log_probs - log_probs.flip(0)
    distances = (probs * ratio).sum(-1, keepdim=True)
    slopes = probs * (ratio - distances) + probs - probs.flip(0)
    return distances / 2, slopes / 2
