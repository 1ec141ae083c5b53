"""Costs of many sets of centers, on points and on weighted points."""

import numpy as np
import pytest

from pkm.compute import SCALE, Points
from pkm.methods.coreset import Coreset
from pkm.metrics.coresets import center_sets, compute_costs, largest_cost_ratio

POINTS = Points.prepare(np.random.default_rng(3).integers(-SCALE, SCALE, (60, 2)))


def test_sets_of_centers_are_in_the_ball_and_repeatable():
    sets = center_sets(POINTS, 4)
    assert sets.shape == (1100, 4, 2)
    assert np.linalg.norm(sets[:1000], axis=2).max() <= SCALE + 1
    assert np.array_equal(sets, center_sets(POINTS, 4))
    assert not np.array_equal(sets, center_sets(POINTS, 4, seed=1))


def test_lloyd_steps_improve_the_last_sets():
    costs = compute_costs(POINTS, center_sets(POINTS, 4))
    assert np.median(costs[1000:]) < np.median(costs[:1000])
    assert costs[1000:].min() < costs[:1000].min()


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
