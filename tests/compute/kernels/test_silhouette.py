"""Silhouettes and means of clusters against scikit-learn and fractions."""

from fractions import Fraction

import numpy as np
import pytest
from random_points import draw
from sklearn.metrics import silhouette_score

from pkm.compute import Points, cluster_means, distance_tiles, labels, mean_silhouettes


@pytest.mark.parametrize(("n", "d", "k"), [(50, 1, 3), (333, 4, 6), (300, 30, 2)])
def test_silhouette_equals_scikit_learn(n, d, k):
    points, centers = draw(n, d, k, replicates=4)
    prepared = Points.from_grid(points)
    assigned = labels(prepared, centers)
    means = mean_silhouettes(distance_tiles(prepared), assigned, k)
    expected = []
    for row in assigned:
        single_cluster = len(set(row)) == 1
        expected.append(-1 if single_cluster else silhouette_score(points, row))
    # Distances are in single precision.
    np.testing.assert_allclose(means, expected, rtol=0, atol=1e-6)


def test_silhouette_is_independent_of_the_batch():
    points, centers = draw(400, 3, 5, replicates=6)
    prepared = Points.from_grid(points)
    assigned = labels(prepared, centers)
    tiles = distance_tiles(prepared)
    batch = mean_silhouettes(tiles, assigned, 5)
    for r in range(6):
        single = mean_silhouettes(tiles, assigned[r : r + 1], 5)
        assert batch[r] == single[0]


def test_cluster_means_against_fractions():
    points, centers = draw(40, 2, 4, replicates=3)
    prepared = Points.from_grid(points)
    assigned = labels(prepared, centers)
    means, counts = cluster_means(prepared, assigned, 4)
    for r, row in enumerate(assigned):
        for j in range(4):
            members = points[row == j]
            divisor = max(1, len(members))
            column_sums = members.sum(axis=0)
            expected = [float(Fraction(int(total), divisor)) for total in column_sums]
            assert counts[r, j] == len(members)
            assert means[r, j].tolist() == expected


def test_distance_tiles_hold_every_pair():
    points, _ = draw(70, 4, 1)
    tiles = distance_tiles(Points.from_grid(points))
    matrix = np.concatenate(list(tiles), axis=1)
    expected = np.linalg.norm(points[:, None] - points, axis=2)
    np.testing.assert_allclose(matrix[:, :70], expected, rtol=1e-7)
    assert (matrix[:, 70:] == 0).all()
