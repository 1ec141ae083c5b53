"""Leaves of nonnegative counts: projections on simplices, and the leaves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from pkm.methods.coreset import project_onto_simplex
from pkm.methods.trees.nonnegative_leaves import (
    MIN_LEAF_FACTOR,
    nonnegative_leaves,
)
from pkm.privacy import SCALE

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
