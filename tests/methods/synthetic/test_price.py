"""The price law: its shape, its inverse, and refusals. Constants are of a study."""

import math

import pytest

from pkm.methods.synthetic.price import (
    HASHING,
    detection_limit,
    epsilon_for,
    expected_excess,
)


@pytest.mark.parametrize("d", [2, 8])
@pytest.mark.parametrize("excess", [0.01, 0.3, 2.0])
def test_epsilon_is_the_inverse_of_the_excess(d, excess):
    epsilon = epsilon_for(excess, 5000, d, 10)
    assert expected_excess(5000, d, 10, epsilon) == pytest.approx(excess, rel=1e-6)


@pytest.mark.parametrize("d", [1, 3, 4, 64])
def test_excess_falls_with_the_budget_from_that_of_the_mean(d):
    excesses = [expected_excess(5000, d, 10, epsilon) for epsilon in (1e-6, 0.1, 1.0, 10.0)]
    assert excesses == sorted(excesses, reverse=True)
    assert excesses[0] == pytest.approx(3.0, rel=1e-3)


def test_records_and_budget_are_exchangeable():
    assert expected_excess(1000, 2, 5, 1.0) == pytest.approx(expected_excess(4000, 2, 10, 0.5))
    assert HASHING.excess(math.inf, 5, 3.0) == 0


def test_delta_matters_from_four_columns_on():
    assert expected_excess(1000, 3, 5, 1.0, delta=1e-9) == expected_excess(1000, 3, 5, 1.0)
    assert expected_excess(1000, 4, 5, 1.0, delta=1e-9) > expected_excess(1000, 4, 5, 1.0)
    assert detection_limit(4, 1.0, delta=1e-9) > detection_limit(4, 1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: expected_excess(0, 2, 5, 1.0), "n_samples=0 must be a positive number"),
        (lambda: expected_excess(10, 2, 5, -1.0), "epsilon=-1.0 must be a positive number"),
        (lambda: detection_limit(0, 1.0), "n_features=0 must be a positive number"),
        (lambda: epsilon_for(3.5, 10, 2, 5), "excess=3.5 must be below variance_ratio=3"),
    ],
)
def test_bad_numbers_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
