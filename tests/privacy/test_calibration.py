"""Calibration: mu, epsilon and delta of Gaussian noise."""

import math

import pytest
from dp_accounting.pld import accountant, common
from hypothesis import given
from hypothesis import strategies as st

from pkm.privacy import (
    gaussian_mu,
    gdp_delta,
    gdp_epsilon,
)

EPSILONS = (0.05, 0.1, 0.5, 1.0, 4.0, 10.0)
DELTAS = (1e-3, 1e-5, 1e-9)


@pytest.mark.parametrize(
    ("epsilon", "sigma"),
    [
        (0.1, 30.749566),
        (1.0, 3.730632),
        (4.0, 1.081162),
    ],
)
def test_calibration_matches_known_values(epsilon, sigma):
    """Values computed with fifty digits for delta = 1e-5."""
    mu = gaussian_mu(epsilon, 1e-5)
    assert 1 / mu == pytest.approx(sigma, abs=1e-6)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_calibration_agrees_with_dp_accounting(epsilon, delta):
    parameters = common.DifferentialPrivacyParameters(epsilon, delta)
    sigma = accountant.get_smallest_gaussian_noise(parameters, 1, 1.0)
    mu = gaussian_mu(epsilon, delta)
    assert 1 / mu == pytest.approx(sigma, rel=1e-5)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_calibration_is_conservative_and_tight(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    assert gdp_delta(mu, epsilon) <= delta < gdp_delta(mu * (1 + 1e-7), epsilon)
    assert gdp_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-6)


@given(st.floats(0.01, 5), st.floats(0.01, 5))
def test_gdp_delta_is_monotone(mu, epsilon):
    """It falls with epsilon and grows with mu."""
    delta = gdp_delta(mu, epsilon)
    delta_of_larger_epsilon = gdp_delta(mu, epsilon * 1.01)
    delta_of_larger_mu = gdp_delta(mu * 1.01, epsilon)
    assert 0 <= delta_of_larger_epsilon <= delta <= delta_of_larger_mu <= 1


def test_gdp_of_zero_mu_or_zero_delta():
    assert gdp_delta(0.0, 1.0) == 0
    assert gdp_epsilon(0.0, 0.0) == 0
    assert gdp_epsilon(1.0, 0.0) == math.inf


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [
        (0, 1e-5),
        (-1, 1e-5),
        (math.inf, 1e-5),
        (1, 0),
        (1, 1),
    ],
)
def test_calibration_refuses_bad_parameters(epsilon, delta):
    with pytest.raises(ValueError, match=r"epsilon=|delta="):
        gaussian_mu(epsilon, delta)
