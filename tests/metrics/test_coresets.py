"""Costs of many sets of centers, on points and on weighted points."""

import numpy as np
import pytest
from scipy.stats import kstest

from pkm.compute import SCALE, Points
from pkm.methods.coreset import Coreset
from pkm.metrics import coresets
from pkm.metrics.coresets import center_sets, compute_costs, largest_cost_ratio

POINTS = Points.from_grid(np.random.default_rng(3).integers(-SCALE, SCALE, (60, 2)))


def test_sets_of_centers_are_in_the_ball_and_repeatable():
    sets = center_sets(POINTS, 4)
    assert sets.shape == (1100, 4, 2)
    assert np.linalg.norm(sets[:1000], axis=2).max() <= SCALE + 1
    assert np.array_equal(sets, center_sets(POINTS, 4))
    assert not np.array_equal(sets, center_sets(POINTS, 4, seed=1))


@pytest.mark.statistical
def test_random_centers_are_uniform_in_the_ball():
    """The squared norm of a uniform point of the disk is uniform; fails once in 1,000 seeds."""
    norms = np.linalg.norm(center_sets(POINTS, 4)[:1000] / SCALE, axis=2)
    assert kstest((norms**2).ravel(), "uniform").pvalue > 1e-3


def test_lloyd_steps_raise_no_cost(monkeypatch):
    improved = compute_costs(POINTS, center_sets(POINTS, 4)[1000:])
    monkeypatch.setattr(coresets, "LLOYD_STEPS", 0)
    starts = compute_costs(POINTS, center_sets(POINTS, 4)[1000:])
    # Centers are rounded to the grid, which adds far less than a millionth.
    assert np.all(improved <= starts * (1 + 1e-6))
    assert np.mean(improved < starts) > 0.9


@pytest.mark.statistical
def test_lloyd_steps_improve_the_last_sets():
    """Were all sets drawn as the first ones, this would pass with a probability of 3e-7.

    Then the difference of the means has mean 0 and this standard error, and a normal variable
    exceeds 5 of them once in 3.5 million. The real difference is about 40 of them: it falls below
    5 for no seed.
    """
    costs = compute_costs(POINTS, center_sets(POINTS, 4))
    random, improved = costs[:1000], costs[1000:]
    standard_error = np.sqrt(random.var() / len(random) + improved.var() / len(improved))
    assert random.mean() - improved.mean() > 5 * standard_error


def test_points_with_weight_one_are_a_coreset_without_error():
    sets = center_sets(POINTS, 3)
    rows = POINTS.rows / SCALE
    whole = Coreset(rows, np.ones(len(rows)))
    estimates = np.array([whole.cost_estimate(centers / SCALE) for centers in sets])
    assert largest_cost_ratio(compute_costs(POINTS, sets), estimates, 1e-9) == pytest.approx(1)


@pytest.mark.parametrize("factor", [0.25, 4.0])
def test_ratio_counts_both_directions(factor):
    costs = np.array([1.0, 2.0])
    assert largest_cost_ratio(costs, factor * costs, 1e-12) == pytest.approx(4)
    assert 1 < largest_cost_ratio(costs, factor * costs, 5.0) < 4


def test_additive_error_must_be_positive():
    with pytest.raises(ValueError, match=r"additive=0 must be a number above 0"):
        largest_cost_ratio(np.ones(1), np.ones(1), 0)
