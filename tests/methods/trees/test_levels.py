"""Counts of nested grids: averages against least squares, cells of positive counts."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkm.methods.trees.levels import average_with_children, nonnegative_cells, sum_children
from pkm.privacy import SCALE


def dense_least_squares(counts, variances):
    """Weighted least squares over all leaf counts, by a matrix of all nodes."""
    finest = counts[-1].shape
    rows = []
    values = []
    weights = []
    for level, level_counts in enumerate(counts):
        block = finest[0] // level_counts.shape[0]
        for position in np.ndindex(level_counts.shape):
            row = np.zeros(finest)
            row[tuple(slice(i * block, (i + 1) * block) for i in position)] = 1
            rows.append(row.ravel())
            values.append(level_counts[position])
            weights.append(1 / variances[level])
    scale = np.sqrt(weights)
    rows = np.array(rows) * scale[:, None]
    solution, *_ = np.linalg.lstsq(rows, np.array(values) * scale)
    covariance = np.linalg.inv(rows.T @ rows)
    return solution.reshape(finest), covariance


@pytest.mark.parametrize(("d", "n_levels"), [(1, 1), (1, 4), (2, 1), (2, 3), (3, 2), (4, 2)])
def test_coarsest_averages_are_the_least_squares_estimate(d, n_levels):
    """No count is above the coarsest level, so that its averages use all counts below."""
    rng = np.random.default_rng(d)
    counts = [rng.normal(size=(2**j,) * d) * 10 for j in range(1, n_levels + 1)]
    variances = rng.uniform(0.5, 4.0, n_levels)
    leaves, covariance = dense_least_squares(counts, variances)
    averaged = average_with_children(counts, variances)
    coarsest = leaves
    for _ in range(n_levels - 1):
        coarsest = sum_children(coarsest)
    np.testing.assert_allclose(counts[0], coarsest, atol=1e-8)

    # The variance of the first cell's estimate, a sum over its leaves.
    side = 2 ** (n_levels - 1)
    is_below = np.zeros(leaves.shape)
    is_below[(slice(side),) * d] = 1
    variance = is_below.ravel() @ covariance @ is_below.ravel()
    assert averaged[0] == pytest.approx(variance)


def test_exact_counts_stay():
    rng = np.random.default_rng(0)
    finest = rng.integers(0, 9, (8, 8)).astype(float)
    exact = [sum_children(sum_children(finest)), sum_children(finest), finest]
    counts = [level.copy() for level in exact]
    average_with_children(counts, np.array([1.0, 2.0, 0.5]))
    for level, expected in zip(counts, exact, strict=True):
        np.testing.assert_allclose(level, expected, atol=1e-9)


def test_sums_of_children_are_sums_of_blocks():
    counts = np.arange(64.0).reshape(4, 4, 4)
    sums = sum_children(counts)
    assert sums.shape == (2, 2, 2)
    assert math.isclose(sums[1, 0, 1], counts[2:, :2, 2:].sum())


# Cells of positive counts


def nested_counts(points, n_levels):
    """Exact counts of nested grids of points in grid steps."""
    edges = [np.linspace(-SCALE, SCALE, 2**j + 1) for j in range(1, n_levels + 1)]
    return [np.histogramdd(points, [edge] * points.shape[1])[0] for edge in edges]


@pytest.mark.parametrize("d", [1, 2, 3])
def test_exact_counts_give_the_cells_that_hold_records(d):
    rng = np.random.default_rng(d)
    counts = nested_counts(rng.integers(-SCALE // 2, SCALE // 2, (40, d)), 3)
    positions, cells = nonnegative_cells(counts, 40.0)
    assert len(cells) == np.count_nonzero(counts[-1])
    np.testing.assert_allclose(cells, counts[-1][tuple(positions.T)])


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.floats(0.01, 100.0), st.integers(0, 2**32 - 1))
def test_cells_are_positive_different_and_hold_all_records(d, n_levels, deviation, seed):
    rng = np.random.default_rng(seed)
    counts = nested_counts(rng.integers(-SCALE, SCALE, (200, d)), n_levels)
    noisy = [level + deviation * rng.normal(size=level.shape) for level in counts]
    positions, cells = nonnegative_cells(noisy, 200.0)
    assert (cells > 0).all()
    assert cells.sum() == pytest.approx(200.0)
    assert len(np.unique(positions, axis=0)) == len(positions)
    assert ((positions >= 0) & (positions < 2**n_levels)).all()


def test_an_empty_half_has_no_cell_however_noisy_its_quarters_are():
    counts = [np.array([50.0, -3.0]), np.array([20.0, 30.0, 9.0, 7.0])]
    positions, cells = nonnegative_cells(counts, 50.0)
    assert positions.ravel().tolist() == [0, 1]
    assert cells.tolist() == [20.0, 30.0]
