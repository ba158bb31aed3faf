"""The checks of types and shapes that all tests run with."""

import beartype
import pytest
import torch
from jaxtyping import Float, TypeCheckError
from torch import Tensor

import checks
from attendo.nn.numerics import widen
from conftest import without_checks


@checks.jaxtyped(typechecker=beartype.beartype)
def product(a: Float[Tensor, "n k"], b: Float[Tensor, "k m"]) -> Float[Tensor, "n m"]:
    return a.mT @ b.mT if a.shape[0] == 7 else a @ b


def test_functions_of_the_package_are_checked():
    with pytest.raises(TypeCheckError):
        widen("text")


def test_arguments_and_results_are_checked_in_the_first_calls():
    a = torch.zeros(2, 3)
    assert product(a, torch.zeros(3, 5)).shape == (2, 5)
    with pytest.raises(TypeCheckError, match="parameters of"):
        product(a, torch.zeros(2, 5))
    with pytest.raises(TypeCheckError, match="return value"):
        product(torch.zeros(7, 5), torch.zeros(5, 7))


def test_of_many_calls_some_are_checked():
    a, b = torch.zeros(2, 3), torch.zeros(3, 5)
    for _ in range(checks.FIRST):
        product(a, b)
    wrong = torch.zeros(7, 5), torch.zeros(5, 7)
    n_found = 0
    for _ in range(2 * checks.EVERY):
        try:
            product(*wrong)
        except TypeCheckError:
            n_found += 1
    assert n_found == 2


def test_checks_can_be_left_out():
    with without_checks():
        assert product(torch.zeros(7, 5), torch.zeros(5, 7)).shape == (5, 5)
