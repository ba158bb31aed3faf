"""The loss is a sum that can be added up: over batches, devices and parts of a step."""

import math

import pytest
import torch
from torch import Tensor

from attendo.losses import cross_entropy
from attendo.specials import IGNORE
from conftest import ROWS, TARGET, VOCABULARY


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
