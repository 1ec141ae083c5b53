"""Budgets and claims."""

import math

import numpy as np
import pytest

from pkm.privacy import (
    NO_CLAIM,
    Adjacency,
    Budget,
    PrivacyClaim,
)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0,), r"epsilon=0.0 must be positive"),
        ((math.nan,), "epsilon=nan must be positive"),
        ((1.0, 1.0), r"delta=1.0 must be in \[0, 1\)"),
        ((1.0, 0.0, "nearby"), "'nearby' is not a valid Adjacency"),
        ((1.0, 0.0, "rho_bounded"), "rho=None must be given"),
        ((1.0, 0.0, "zero_out", 0.5), "rho=0.5 must be given for rho_bounded and only there"),
    ],
)
def test_budget_refuses_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        Budget(*arguments)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.longdouble, np.float64])
def test_budgets_are_of_64_bits(kind):
    budget = Budget(kind(0.1), kind(1e-5), "rho_bounded", kind(0.5))
    numbers = (budget.epsilon, budget.delta, budget.rho)
    assert {type(number) for number in numbers} == {float}
    assert numbers == (float(kind(0.1)), float(kind(1e-5)), 0.5)


def test_budgets_split_and_add_within_one_adjacency():
    parts = Budget(1.0, 1e-6).split([1, 2, 5])
    total_epsilon = math.fsum(part.epsilon for part in parts)
    assert total_epsilon == pytest.approx(1.0)
    first_two = parts[0] + parts[1]
    assert first_two.epsilon == pytest.approx(3 / 8)
    with pytest.raises(ValueError, match="zero_out unit=row and adjacency=replace_one"):
        Budget(1.0) + Budget(1.0, adjacency=Adjacency.REPLACE_ONE)


def test_claim_refuses_unknown_notions():
    with pytest.raises(ValueError, match="notion='perfect' is unknown"):
        PrivacyClaim("perfect")
    assert not NO_CLAIM.private
