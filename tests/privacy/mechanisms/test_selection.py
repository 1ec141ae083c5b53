"""Selections: the exponential mechanism, its law and its price.

Seeds are fixed; thresholds are five standard errors or a p-value of 1e-6.
"""

import math

import numpy as np
import pytest
from curators import SEEDS
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import expit, ndtri

from pkm.privacy import (
    Exponential,
    NoiseStreams,
    gdp_delta,
)
from pkm.privacy.mechanisms.selection import ScoreSensitivity, selection_epsilon, selection_mu


class GivenUniforms(NoiseStreams):
    """A source whose uniforms are given."""

    def __init__(self, uniforms):
        super().__init__([0])
        self.uniforms = np.atleast_1d(uniforms)

    def uniform(self, key, shape):
        assert shape == self.uniforms.shape
        return self.uniforms[None]


def choose(exponents, uniforms):
    """Choices of the exponential mechanism, one for each uniform."""
    uniforms = np.atleast_1d(uniforms)
    scores = [np.asarray(exponents)] * len(uniforms)
    change = ScoreSensitivity(np.ones(len(uniforms)))
    return GivenUniforms(uniforms).release(Exponential(1.0), scores, ("x", 0), change)[0]


@pytest.mark.statistical
def test_selection_follows_its_probabilities():
    exponents = np.array([0.0, 1.5, -2.0, 0.5, -np.inf, 1.0])
    change = ScoreSensitivity(np.full(20_000, 2.0))
    scores = [exponents] * 20_000
    # Exponents are epsilon times the score over its sensitivity.
    choices = NoiseStreams([11]).release(Exponential(2.0), scores, ("x", 0), change)[0]
    observed = np.bincount(choices, minlength=6)
    assert observed[4] == 0

    weights = np.exp(exponents)
    expected = 20_000 * weights / weights.sum()
    possible = weights > 0
    assert stats.chisquare(observed[possible], expected[possible]).pvalue > 1e-6


def test_selection_is_stable_for_extreme_exponents():
    for uniform in (2.0**-54, 0.5, 1 - 2.0**-53):
        assert choose([-1e6, 1e6, 0.0], uniform) == 1
        assert choose([-np.inf, 1e6, -np.inf], uniform) == 1
        assert choose(np.full(3, -np.inf), uniform)[0] in range(3)
    with pytest.raises(ValueError, match="epsilon=0 of a selection"):
        Exponential(0)


@given(
    st.lists(st.floats(-60, 60), min_size=1, max_size=30),
    SEEDS,
)
def test_selection_inverts_the_distribution_function(values, seed):
    exponents = np.array(values)
    largest = exponents.max()
    uniform = np.random.default_rng(seed).uniform(2.0**-54, 1)
    (choice,) = choose(exponents, uniform)

    weights = [math.exp(exponent - largest) for exponent in exponents]
    below = math.fsum(weights[:choice])
    total = math.fsum(weights)
    lower = below / total
    upper = (below + weights[choice]) / total
    assert lower - 1e-14 <= uniform <= upper + 1e-14


def test_selection_mu_covers_the_worst_pair():
    """No event of a bounded-range pair is likelier than Gaussians at the distance mu allow; the
    bound is attained at one half.
    """
    for epsilon in (1e-3, 0.1, 1.0, 4.0, 20.0):
        mu = selection_mu(epsilon)
        assert selection_epsilon(mu) == pytest.approx(epsilon, rel=1e-9)
        log_odds = np.linspace(-12 - epsilon, 12, 4001)
        distances = -ndtri(expit(-log_odds - epsilon)) - ndtri(expit(log_odds))
        assert (distances <= mu * (1 + 1e-9)).all()
        assert -2 * ndtri(expit(-epsilon / 2)) == pytest.approx(mu)
    assert selection_mu(1e-6) == pytest.approx(math.sqrt(2 * math.pi) / 4 * 1e-6, rel=1e-6)
    assert math.isfinite(selection_epsilon(1e6))


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_exponential_mechanism_is_as_private_as_charged(epsilon):
    rng = np.random.default_rng(0)
    largest_ratio = 0.0

    def exponential_law(costs):
        weights = np.exp(-epsilon * costs)
        return weights / weights.sum()

    for trial in range(200):
        costs = rng.uniform(0, 5, 6)
        increases = rng.integers(0, 2, 6) if trial % 2 else rng.uniform(0, 1, 6)
        law = exponential_law(costs)
        neighbor_law = exponential_law(costs + increases)
        for tested_epsilon in np.linspace(0, epsilon, 7):
            allowed = gdp_delta(selection_mu(epsilon), tested_epsilon)
            for p, q in ((law, neighbor_law), (neighbor_law, law)):
                needed = np.maximum(p - math.exp(tested_epsilon) * q, 0).sum()
                assert needed <= allowed * (1 + 1e-9) + 1e-15
                if tested_epsilon == 0:
                    largest_ratio = max(largest_ratio, needed / allowed)
    assert largest_ratio > 0.6
