"""Accounting from charges alone."""

import math

import pandas as pd
import pytest

from pkm.analysis.tables.accounting import (
    composed_delta,
    gaussian_delta,
    gaussian_epsilon,
    noise_multiplier,
)
from pkm.privacy import gdp_epsilon


def test_noise_multiplier_inverts_delta():
    sigma = noise_multiplier(1.0, 1e-5)
    assert sigma == pytest.approx(3.730632, abs=1e-5)  # analytic Gaussian, published example value
    assert gaussian_delta(1 / sigma, 1.0) == pytest.approx(1e-5, rel=1e-9)


def test_composed_delta_of_gaussian_charges():
    charges = pd.DataFrame({"mu": [0.3, 0.4], "delta": [0.0, 1e-3]})
    assert composed_delta(charges, 1.0) == pytest.approx(gaussian_delta(0.5, 1.0) + 1e-3)
    assert composed_delta(charges.assign(mu=0.0), 1.0) == 1e-3


def test_gaussian_epsilon_equals_the_ledger():
    for mu in (0.01, 0.3, 2.0, 9.0):
        for delta in (1e-12, 1e-6, 0.1):
            expected = gdp_epsilon(mu, delta)
            assert gaussian_epsilon(mu, delta) == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert gaussian_epsilon(1.0, 0.0) == math.inf
    assert gaussian_epsilon(1.0, -1e-9) == math.inf
