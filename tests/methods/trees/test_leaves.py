"""Leaves: cells in grid steps, and means of their clusters without far ones."""

import numpy as np

from pkm.methods.trees.leaves import Leaves, trimmed_means


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
