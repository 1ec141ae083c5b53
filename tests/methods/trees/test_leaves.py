"""Leaves: cells in grid steps, on the grid and on a linear scale."""

import numpy as np
import pytest

from pkm.compute import Symlog
from pkm.methods.trees.leaves import Leaves, gather_leaves
from pkm.privacy import SCALE

NO_CELLS = np.empty((0, 2), np.int64), np.empty(0)


def test_cells_of_several_grids_have_their_midpoints_and_sides():
    cells = np.array([[0, 1]]), np.array([3.0])
    leaves = gather_leaves([(2, *cells), (4, *cells)])
    assert (leaves.midpoints / SCALE).tolist() == [[-0.5, 0.5], [-0.75, -0.25]]
    assert (leaves.sides / SCALE).tolist() == [1.0, 0.5]
    assert leaves.weights.tolist() == [3.0, 3.0]


def test_the_domain_is_the_leaf_where_there_is_no_other():
    leaves = gather_leaves([(8, *NO_CELLS)]).or_domain(7.0)
    assert leaves.midpoints.tolist() == [[0.0, 0.0]]
    assert leaves.sides.tolist() == [2 * SCALE]
    assert leaves.weights.tolist() == [7.0]
    assert leaves.or_domain(9.0) is leaves


def test_leaves_expand_to_the_largest_side_of_their_image():
    scale = Symlog(100.0, 0.5, by_norm=False)
    midpoints = np.array([[0.0, 0.9], [-0.5, 0.1]]) * SCALE
    linear = Leaves(midpoints, np.full(2, 0.1 * SCALE), np.ones(2)).expand(scale)
    for middle, image, side in zip(midpoints, linear.midpoints, linear.sides, strict=True):
        corners = np.array([middle - 0.05 * SCALE, middle + 0.05 * SCALE]) / SCALE
        lower, upper = scale.expand(corners)
        assert side == pytest.approx((upper - lower).max() * SCALE)
        np.testing.assert_allclose(image, scale.expand(middle[None] / SCALE)[0] * SCALE)


def test_k_means_finds_the_midpoints_of_apart_leaves():
    midpoints = np.array([[-9.0, 0.0], [-8.0, 0.0], [9.0, 0.0]])
    leaves = Leaves(midpoints, np.ones(3), np.array([1.0, 3.0, 2.0]))
    centers = leaves.cluster(2, 3, np.random.default_rng(0))
    assert sorted(centers.tolist()) == [[-8.25, 0.0], [9.0, 0.0]]
