"""Codes on a grid, sides of hyperplanes, stable partitions, averaged gaps."""

import numpy as np
import pytest
from curators import SEEDS, grid_points
from hypothesis import given, settings
from hypothesis import strategies as st

from pkm.compute import (
    Points,
    averaged_gaps,
    digitize,
    histogram,
    hyperplane_sides,
    stable_partition,
)
from pkm.privacy import SCALE


@pytest.mark.parametrize("n_thresholds", [1, 5, 255, 256, 4000])
def test_codes_count_the_thresholds_below(n_thresholds):
    points = grid_points(1, n=200, d=2)
    rng = np.random.default_rng(n_thresholds)
    grid_steps = np.arange(-SCALE, SCALE)
    thresholds = np.sort(rng.choice(grid_steps, n_thresholds, replace=False))
    points[:n_thresholds, 0] = thresholds[:200]  # points on a threshold belong below it
    codes = digitize(Points.from_grid(points), tuple(thresholds.tolist()))
    expected = (points[:, :, None] > thresholds).sum(axis=2)
    assert (codes == expected).all()
    assert codes.dtype == (np.uint8 if n_thresholds <= 255 else np.uint16)


def test_partition_is_stable_and_counts_are_exact():
    points = Points.from_grid(grid_points(2, n=500))
    codes = digitize(points, tuple(range(-60000, 60000, 7000)))
    order = np.random.default_rng(0).permutation(500).astype(np.int32)
    original_order = order.copy()
    n_left = stable_partition(codes, order, 1, 8, np.empty(500, np.int32))
    is_left = codes[original_order, 1] < 8
    expected_order = np.concatenate([original_order[is_left], original_order[~is_left]])
    assert n_left == is_left.sum()
    assert (order == expected_order).all()

    left = order[:n_left]
    counts = np.zeros((3, 19), np.uint32)
    histogram(codes, left, np.empty(0, np.int32), counts)
    for feature in range(3):
        expected_counts = np.bincount(codes[left, feature], minlength=19)
        assert (counts[feature] == expected_counts).all()


def test_hyperplane_sides_by_exact_integer_products():
    points = grid_points(3, n=3000, d=7)
    rng = np.random.default_rng(3)
    normals = np.rint(rng.standard_normal((9, 7)) * SCALE).astype(int)
    # A point on all hyperplanes: its products are zero and count as not negative.
    origin = points[5]
    exact_normals = normals.T.astype(object)
    products = points.astype(object) @ exact_normals
    offsets = origin.astype(object) @ exact_normals
    expected = (products >= offsets).astype(int)
    prepared = Points.from_grid(points)
    assert (hyperplane_sides(prepared, normals, origin) == expected).all()
    with pytest.raises(ValueError, match=r"at most 2\*\*20"):
        hyperplane_sides(prepared, normals * 1000, origin)


def sorted_mean_gaps(points):
    """Gaps between consecutive values of each column, averaged over columns rank by rank."""
    gaps = np.diff(np.sort(points, axis=0), axis=0)
    return np.sort(gaps.mean(axis=1))


@given(
    SEEDS,
    st.integers(1, 3),
    st.sampled_from([1, 4096, 32768]),
)
@settings(max_examples=30, deadline=None)
def test_gaps_are_averaged_by_rank_across_shards(seed, d, step):
    points = grid_points(seed, n=12, d=d, step=step)
    expected = sorted_mean_gaps(points)
    for parts in ([points], [points[:5], points[5:6], points[6:]]):
        shards = tuple(Points.from_grid(part) for part in parts)
        assert averaged_gaps(shards) == pytest.approx(expected, rel=1e-5, abs=1e-3)


def test_gaps_are_finer_than_the_grid():
    """Points in a thousandth of the range: their gaps are far below a grid step, and known to
    2**-16 of a step.
    """
    raw = np.random.default_rng(0).uniform(0, 0.002, (5000, 3))
    points, _ = Points.quantize(raw, np.full(3, -1.0), np.ones(3))
    expected = sorted_mean_gaps(raw) * SCALE
    assert expected[-1] < 0.3
    assert averaged_gaps((points,)) == pytest.approx(expected, abs=2 * 2.0**-16)

    # Points that were on the grid from the start have few different gaps.
    rounded = Points.from_grid(points.rows.astype(int))
    assert np.unique(averaged_gaps((rounded,))).size < 10

    repeated = np.repeat([[0.1], [0.2]], 50, axis=0)
    ties, _ = Points.quantize(repeated, np.array([0.0]), np.array([1.0]))
    assert (averaged_gaps((ties,))[:-1] == 0).all()
