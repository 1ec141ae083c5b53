"""Tests of resampled statistics against SciPy, and Holm's correction."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pkm.analysis.tables.inference import estimate, holm


def test_holm_equals_its_definition():
    p = np.array([0.01, 0.04, 0.03, 0.005])
    assert holm(p).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_between_no_correction_and_bonferroni(p):
    p = np.array(p)
    adjusted = holm(p)
    assert (adjusted >= p).all()
    assert (adjusted <= np.minimum(p * p.size, 1) + 1e-15).all()
    assert (np.diff(adjusted[np.argsort(p, kind="stable")]) >= 0).all()


def resampled_columns(values, repeats=4000):
    """Means of every column, on the sample and on resamples of its lines."""
    rng = np.random.default_rng(2)
    n_seeds = len(values)
    counts = rng.multinomial(n_seeds, np.full(n_seeds, 1 / n_seeds), size=repeats)
    return np.vstack([np.ones(n_seeds), counts]) @ values / n_seeds


def test_estimates_of_means_equal_scipy():
    values = np.random.default_rng(2).normal(0.1, 1, (15, 3))
    estimates = estimate(resampled_columns(values), 15, log=False)
    expected = stats.ttest_1samp(values, 0.2, alternative="greater")
    np.testing.assert_allclose(estimates.p_above(0.2), expected.pvalue, atol=0.02)
    interval = stats.ttest_1samp(values, 0.2).confidence_interval()
    np.testing.assert_allclose(estimates.interval(), interval, rtol=0.06, atol=0.02)


def test_estimates_are_logarithms_of_what_is_above_zero():
    resampled = resampled_columns(np.random.default_rng(3).lognormal(0, 1, (15, 1)))
    low, high = estimate(resampled, 15, log=True).interval()
    center = np.log(resampled[0])
    np.testing.assert_allclose(np.log(low) - center, center - np.log(high))
    reverse = estimate(1 / resampled, 15, log=True)
    p = estimate(resampled, 15, log=True).p_above(2.0)
    np.testing.assert_allclose(reverse.p_above(0.5), 1 - p)


def test_estimates_of_constant_columns():
    resampled = np.tile([0.0, 2.0, -2.0, np.inf], (5, 1))
    p = estimate(resampled, 10, log=False).p_above(0.0)
    assert p[1:3].tolist() == [0.0, 1.0]
    assert np.isnan(p[[0, 3]]).all()
