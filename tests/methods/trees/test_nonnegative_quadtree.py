"""Quadtrees of nonnegative counts: projections, leaves, trimmed means, releases, quality."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from tuned import tree_of

from pkm.methods.baselines.kmeans import KMeansPlusPlus
from pkm.methods.coreset import project_onto_simplex
from pkm.methods.synthetic.synopsis import NONNEGATIVE
from pkm.methods.trees.leaves import Leaves
from pkm.methods.trees.nonnegative_quadtree import (
    MIN_LEAF_FACTOR,
    nonnegative_leaves,
    trimmed_means,
)
from pkm.methods.trees.quadtree import QuadtreeKMeans
from pkm.metrics import evaluate
from pkm.privacy import SCALE, snap

# Projections


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 5), st.integers(1, 16), st.integers(0, 2**32 - 1))
def test_projection_is_the_nearest_point_of_the_simplex(m, c, seed):
    """Optimal by Karush, Kuhn and Tucker: one shift, and zero where that makes less than zero."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(m, c)) * 10
    totals = rng.uniform(0.1, 50.0, m)
    projected = project_onto_simplex(values, totals)
    assert (projected >= 0).all()
    np.testing.assert_allclose(projected.sum(axis=1), totals, rtol=1e-12)
    for row, source in zip(projected, values, strict=True):
        shifts = (source - row)[row > 0]
        np.testing.assert_allclose(shifts, shifts[0], atol=1e-9)
        assert (source[row == 0] <= shifts[0] + 1e-9).all()


def test_projection_agrees_with_a_general_solver():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(1, 4))
    solution = minimize(
        lambda row: ((row - values[0]) ** 2).sum(),
        np.full(4, 0.5),
        bounds=[(0, None)] * 4,
        constraints={"type": "eq", "fun": lambda row: row.sum() - 2.0},
    )
    projected = project_onto_simplex(values, np.array([2.0]))[0]
    np.testing.assert_allclose(projected, solution.x, atol=1e-6)


# Leaves


def nested_counts(points, n_levels):
    """Exact counts of nested grids of points in grid steps."""
    edges = [np.linspace(-SCALE, SCALE, 2**j + 1) for j in range(1, n_levels + 1)]
    return [np.histogramdd(points, [edge] * points.shape[1])[0] for edge in edges]


@pytest.mark.parametrize("d", [1, 2, 3])
def test_exact_counts_give_the_cells_that_hold_records(d):
    rng = np.random.default_rng(d)
    points = rng.integers(-SCALE // 2, SCALE // 2, (40, d))
    counts = nested_counts(points, 3)
    leaves = nonnegative_leaves([level.copy() for level in counts], np.full(3, 1e-6), 40.0)
    assert set(leaves.sides) == {2 * SCALE / 8}
    assert len(leaves.weights) == np.count_nonzero(counts[-1])
    positions = ((leaves.midpoints / SCALE + 1) * 4).astype(int)
    np.testing.assert_allclose(leaves.weights, counts[-1][tuple(positions.T)], atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.floats(0.01, 100.0), st.integers(0, 2**32 - 1))
def test_leaves_do_not_overlap_and_hold_at_most_all_records(d, n_levels, deviation, seed):
    rng = np.random.default_rng(seed)
    counts = nested_counts(rng.integers(-SCALE, SCALE, (200, d)), n_levels)
    noisy = [level + deviation * rng.normal(size=level.shape) for level in counts]
    leaves = nonnegative_leaves(noisy, np.full(n_levels, deviation), 200.0)
    assert (leaves.weights > 0).all()
    assert leaves.weights.sum() <= 200.0 + 1e-6
    probes = rng.integers(-SCALE, SCALE, (100, d))
    inside = np.abs(probes[:, None] - leaves.midpoints[None]) < leaves.sides[:, None] / 2
    assert (inside.all(axis=2).sum(axis=1) <= 1).all()
    if n_levels == 1:
        assert leaves.weights.sum() == pytest.approx(200.0)


def test_a_large_leaf_of_few_records_is_left_out():
    """Of [8, 2] records in halves only the first is opened; the second is less than its noise."""
    halves = np.array([1000.0, 2.0])
    quarters = np.array([1000.0, 0.0, 1.0, 1.0])
    deviations = np.array([20.0, 20.0])
    leaves = nonnegative_leaves([halves, quarters], deviations, 1002.0)
    assert leaves.sides.tolist() == [SCALE / 2]
    # The average of a half and its quarters has two thirds of the variance.
    assert MIN_LEAF_FACTOR * 20.0 * np.sqrt(2 / 3) > 2.0


def test_the_domain_is_the_leaf_where_all_others_are_left_out():
    leaves = nonnegative_leaves([np.ones(2), np.ones(4)], np.full(2, 1e3), 2.0)
    assert leaves.midpoints.tolist() == [[0.0]]
    assert leaves.weights.tolist() == [2.0]


# Trimmed means


def test_without_far_leaves_trimmed_means_are_means():
    rng = np.random.default_rng(3)
    angles = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    ring = 1000 * np.column_stack([np.cos(angles), np.sin(angles)])
    leaves = Leaves(ring, np.full(40, 1.0), rng.uniform(1, 2, 40))
    expected = np.average(ring, axis=0, weights=leaves.weights)
    np.testing.assert_allclose(trimmed_means(np.zeros((1, 2), int), leaves)[0], expected, atol=1)


def test_far_leaves_do_not_move_a_tight_cluster():
    rng = np.random.default_rng(4)
    tight = rng.normal(size=(50, 2)) * 100
    far = rng.uniform(20_000, 60_000, (8, 2))
    weights = np.r_[np.full(50, 10.0), np.full(8, 5.0)]
    leaves = Leaves(np.r_[tight, far], np.full(58, 10.0), weights)
    drawn_away = np.average(leaves.midpoints, axis=0, weights=weights)
    assert np.linalg.norm(drawn_away) > 2000
    moved = trimmed_means(drawn_away[None].astype(int), leaves)
    assert np.linalg.norm(moved[0]) < 100


def test_a_center_without_leaves_stays():
    leaves = Leaves(np.zeros((1, 2)), np.ones(1), np.ones(1))
    centers = np.array([[5, 5], [900, 900]])
    assert trimmed_means(centers, leaves).tolist() == [[0, 0], [900, 900]]


# Runs


@pytest.mark.parametrize("d", [1, 2, 3])
def test_releases_spend_epsilon_on_counts_alone(d):
    points = np.random.default_rng(0).integers(-SCALE, SCALE, (1000, d))
    method = tree_of(NONNEGATIVE)(10, epsilon=0.5)
    run = method.fit_batch(points, [0])
    assert run.ledger is not None
    assert {charge.label for charge in run.ledger.charges} == {"grid_counts"}
    assert run.ledger.spent() == pytest.approx(0.5)


@pytest.mark.statistical
def test_small_domains_in_wide_bounds_cost_less_than_with_one_grid():
    """Four tight clusters in a fifth of each column, 50 records times epsilon for each center.

    Its cost is at most a third of that of the quadtree in the mean of the logarithms over 40 seeds;
    it was 0.06, and the standard error of the logarithm 0.1.
    """
    rng = np.random.default_rng(5)
    centers = 0.3 + 0.15 * np.array([[-1, -1], [-1, 1], [1, -1], [1, 1]])
    points = snap(centers[rng.integers(4, size=2000)] + 0.01 * rng.normal(size=(2000, 2)))
    costs = [
        evaluate(points, method.fit_batch(points, range(40)).centers, ["nicv"])
        for method in (
            tree_of(NONNEGATIVE)(4, epsilon=0.1),
            QuadtreeKMeans(4, epsilon=0.1),
        )
    ]
    ratios = np.log(costs[0]["nicv"] / costs[1]["nicv"])
    assert ratios.mean() < np.log(1 / 3)
    best = KMeansPlusPlus(4, n_init=3).fit_batch(points, [0]).centers
    assert (costs[0]["nicv"] >= 0.999 * evaluate(points, best, ["nicv"])["nicv"]).all()
