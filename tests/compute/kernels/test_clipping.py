"""Vectors and sums that are clipped to a ball."""

import numpy as np
from hashed import grid_points, norms

from pkm.compute import Points
from pkm.compute.kernels.clipping import clip_norms, clipped_sums
from pkm.privacy import SCALE


def test_clipped_sums_agree_with_their_definition():
    rows = grid_points(300, 5, 0)
    origins = grid_points(4, 5, 1)
    labels = np.random.default_rng(2).integers(-1, 4, 300, dtype=np.int32)
    radius = 60_000.0
    no_weights = np.empty(0, np.int32)
    points = Points.from_grid(rows)
    sums = clipped_sums(points.rows, no_weights, labels, origins, radius, True)
    for label in range(4):
        expected = np.zeros(5, np.int64)
        for row in rows[labels == label]:
            step = row - origins[label]
            length = np.linalg.norm(step)
            if length > radius:
                shortened = step * (radius / length * (1 - 2.0**-48))
                step = np.trunc(shortened).astype(int)
            expected += step
        assert (sums[label] == expected).all()


def test_clipped_points_lie_in_the_ball():
    rows = grid_points(500, 3, 0)
    for radius in (0.3, 1.0, 1.5):
        limit = radius * SCALE
        clipped = clip_norms(rows, limit)
        assert ((clipped**2).sum(axis=1) <= limit**2).all()
        inside = (rows**2).sum(axis=1) <= limit**2
        assert 0 < inside.sum() < 500
        assert (clipped[inside] == rows[inside]).all()
        outside = rows[~inside]
        expected = outside * (limit / norms(outside))
        assert np.abs(clipped[~inside] - expected).max() <= 1
