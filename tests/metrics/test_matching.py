"""Distances to reference centers."""

import warnings

import numpy as np
import pytest
from random_points import draw

from pkm.compute import Points
from pkm.metrics import (
    evaluate,
    reference_centers,
)
from pkm.metrics.matching import nearest_distances
from pkm.privacy import SCALE


def test_matching_fewer_centers_than_the_reference():
    """Reference centers that are left without a partner do not count."""
    points, _ = draw()
    mean = np.rint(points.mean(axis=0)).astype(np.int64)[None, None]
    scores = evaluate(points, mean, ["centroid_distance"], n_clusters=4)
    reference = reference_centers(Points.from_grid(points), 4)
    distances = np.linalg.norm(reference - mean[0] / SCALE, axis=1)
    assert scores["centroid_distance"][0] == pytest.approx(distances.min())


@pytest.mark.parametrize("n_copies", [1, 5])
def test_references_are_at_most_the_distinct_points(n_copies):
    """Without a warning: it would tell how many there are."""
    rows = np.array([[0, 0], [SCALE, 0]] * n_copies)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        centers = reference_centers(Points.from_grid(rows), 3)
    assert sorted(centers[:, 0]) == [0, 1]


def test_nearest_distances_swap_with_their_arguments():
    rng = np.random.default_rng(4)
    first = [rng.random((5, 2))]
    second = [rng.random((3, 2))]
    forward, backward = nearest_distances(first, second)
    swapped = nearest_distances(second, first)
    assert swapped == (pytest.approx(backward), pytest.approx(forward))
    assert nearest_distances(first, first) == (0.0, 0.0)
