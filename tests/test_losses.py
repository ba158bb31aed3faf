"""The loss is a sum that can be added up: over batches, devices and parts of a step."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from attendo import losses
from attendo.losses import cross_entropy, linear_cross_entropy
from attendo.specials import IGNORE
from conftest import ROWS, TARGET, VOCABULARY, WIDTH


@pytest.fixture
def logits() -> Tensor:
    return torch.randn(ROWS, TARGET, VOCABULARY, requires_grad=True)


@pytest.fixture
def labels() -> Tensor:
    """Labels with padding at the end of the second row and all over the third."""
    drawn = torch.randint(VOCABULARY, (ROWS, TARGET))
    drawn[1, 2:] = IGNORE
    drawn[2] = IGNORE
    return drawn


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_places_without_a_label_count_nothing_and_teach_nothing(
    logits: Tensor, labels: Tensor, smoothing: float
) -> None:
    loss = cross_entropy(logits, labels, smoothing)
    loss.total.backward()
    assert loss.n_labels == TARGET + 2
    has_label = labels != IGNORE
    assert (logits.grad[~has_label] == 0).all()
    assert logits.grad[has_label].any(dim=-1).all()
    changed = logits.detach().clone()
    changed[~has_label] += 7.0
    assert cross_entropy(changed, labels, smoothing).total == loss.total


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_parts_of_a_batch_add_up_to_the_whole(
    logits: Tensor, labels: Tensor, smoothing: float
) -> None:
    whole = cross_entropy(logits, labels, smoothing)
    parts = [
        cross_entropy(logits[row : row + 1], labels[row : row + 1], smoothing)
        for row in range(ROWS)
    ]
    torch.testing.assert_close(sum(part.total for part in parts), whole.total)
    assert sum(part.n_labels for part in parts) == whole.n_labels


def test_a_batch_of_nothing_but_padding_is_zero_and_not_nan(logits: Tensor) -> None:
    loss = cross_entropy(logits, torch.full((ROWS, TARGET), IGNORE), 0.1)
    loss.total.backward()
    assert loss.total == 0
    assert loss.n_labels == 0
    assert (logits.grad == 0).all()


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_an_even_guess_costs_the_logarithm_of_the_vocabulary(
    labels: Tensor, smoothing: float
) -> None:
    loss = cross_entropy(torch.zeros(ROWS, TARGET, VOCABULARY), labels, smoothing)
    mean = (loss.total / loss.n_labels).item()
    assert mean == pytest.approx(math.log(VOCABULARY), rel=1e-6)


def test_smoothing_makes_certainty_expensive(labels: Tensor) -> None:
    certain = 50.0 * torch.nn.functional.one_hot(labels.clamp(min=0), VOCABULARY).float()
    assert cross_entropy(certain, labels).total < 1e-6
    assert (
        cross_entropy(certain, labels, 0.1).total > cross_entropy(certain / 10, labels, 0.1).total
    )


def test_half_precision_logits_are_summed_in_full_precision(logits: Tensor, labels: Tensor) -> None:
    rounded = logits.detach().bfloat16()
    loss = cross_entropy(rounded, labels, 0.1)
    assert loss.total.dtype == torch.float32
    torch.testing.assert_close(loss.total, cross_entropy(rounded.float(), labels, 0.1).total)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_labels_may_be_of_any_integer_type(
    logits: Tensor, labels: Tensor, dtype: torch.dtype
) -> None:
    assert cross_entropy(logits, labels.to(dtype)).total == cross_entropy(logits, labels).total


# -- the loss through the output layer -------------------------------------------------------------


@pytest.fixture(params=[1, 100, 2**30], ids=["one place a part", "some", "all at once"])
def _parts(request, monkeypatch):
    monkeypatch.setitem(losses.LOGITS_AT_ONCE, "cpu", request.param)


def assert_same_gradients(ours: Tensor, plain: Tensor, inputs: tuple[Tensor, ...]) -> None:
    torch.testing.assert_close(ours, plain)
    for left, right in zip(
        torch.autograd.grad(ours / 7, inputs), torch.autograd.grad(plain / 7, inputs), strict=True
    ):
        torch.testing.assert_close(left, right)


@pytest.mark.usefixtures("_parts")
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_in_parts_the_loss_and_its_gradients_are_the_same(labels: Tensor, smoothing: float) -> None:
    hidden = torch.randn(1, ROWS, TARGET, WIDTH, requires_grad=True)
    weight = torch.randn(VOCABULARY, WIDTH, requires_grad=True)
    ours = linear_cross_entropy(hidden, weight, labels, smoothing)
    plain = cross_entropy(functional.linear(hidden[0], weight), labels, smoothing)
    assert ours.n_labels == plain.n_labels
    assert_same_gradients(ours.total, plain.total, (hidden, weight))


@pytest.mark.usefixtures("_parts")
def test_a_bias_of_the_output_layer_is_added_to_the_logits(labels: Tensor) -> None:
    hidden = torch.randn(1, ROWS, TARGET, WIDTH, requires_grad=True)
    weight = torch.randn(VOCABULARY, WIDTH, requires_grad=True)
    bias = torch.randn(VOCABULARY, requires_grad=True)
    ours = linear_cross_entropy(hidden, weight, labels, 0.1, bias=bias)
    plain = cross_entropy(functional.linear(hidden[0], weight, bias), labels, 0.1)
    assert_same_gradients(ours.total, plain.total, (hidden, weight, bias))


@pytest.mark.usefixtures("_parts")
def test_two_passes_are_averaged_and_held_together(labels: Tensor) -> None:
    hidden = torch.randn(2, ROWS, TARGET, WIDTH, requires_grad=True)
    weight = torch.randn(VOCABULARY, WIDTH, requires_grad=True)
    ours = linear_cross_entropy(hidden, weight, labels, 0.1, agreement=2.5)

    first, second = functional.linear(hidden, weight)
    mean = (cross_entropy(first, labels, 0.1).total + cross_entropy(second, labels, 0.1).total) / 2
    logs = first.log_softmax(-1), second.log_softmax(-1)
    distances = [
        functional.kl_div(one, other, reduction="none", log_target=True).sum(-1)
        for one, other in (logs, logs[::-1])
    ]
    apart = sum(distance[labels != IGNORE].sum() for distance in distances) / 2
    assert_same_gradients(ours.total, mean + 2.5 * apart, (hidden, weight))


@pytest.mark.usefixtures("_parts")
@pytest.mark.parametrize("agreement", [0.0, 2.5])
def test_a_cap_bounds_the_logits(labels: Tensor, agreement: float) -> None:
    hidden = torch.randn(2, ROWS, TARGET, WIDTH, requires_grad=True)
    weight = 3 * torch.randn(VOCABULARY, WIDTH)
    weight.requires_grad_()
    inputs = hidden if agreement else hidden[:1]
    ours = linear_cross_entropy(inputs, weight, labels, 0.1, agreement, cap=2.0)

    capped = 2.0 * torch.tanh(functional.linear(inputs, weight) / 2.0)
    losses = [cross_entropy(logits, labels, 0.1).total for logits in capped]
    expected = torch.stack(losses).mean()
    if agreement:
        logs = capped.log_softmax(-1)
        apart = (logs.exp() * (logs - logs.flip(0))).sum(-1).mean(0)
        expected = expected + agreement * apart[labels != IGNORE].sum()
    assert_same_gradients(ours.total, expected, (hidden, weight))


def test_two_passes_that_say_the_same_are_one(labels: Tensor) -> None:
    hidden = torch.randn(1, ROWS, TARGET, WIDTH)
    weight = torch.randn(VOCABULARY, WIDTH)
    once = linear_cross_entropy(hidden, weight, labels, 0.1)
    twice = linear_cross_entropy(hidden.repeat(2, 1, 1, 1), weight, labels, 0.1, agreement=5.0)
    torch.testing.assert_close(once.total, twice.total)
