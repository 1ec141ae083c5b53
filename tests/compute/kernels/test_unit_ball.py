"""Projections into the unit ball, and sums of labels."""

import math

import numpy as np
import pytest

from pkm.compute import Points
from pkm.compute.kernels.unit_ball import Projection, label_sums, nearest_labels
from pkm.privacy import SCALE, Budget, Curator, Ledger, NoiseStreams


def ball_points(n, m, seed, spread=0.35):
    points = spread * np.random.default_rng(seed).standard_normal((n, m))
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    return points / np.maximum(1, norms)


def test_a_record_changes_one_cell_within_its_sensitivity():
    rng = np.random.default_rng(1)
    for _ in range(50):
        d = rng.integers(1, 8)
        m = rng.integers(1, 5)
        k = rng.integers(1, 6)
        rows = rng.choice([-SCALE, SCALE, 0, 1234], (30, d))
        matrix = rng.integers(-SCALE, SCALE, (m, d))
        centers = ball_points(k, m, seed=rng.integers(1000))

        def sums_and_counts(rows, matrix=matrix, centers=centers, k=k):
            points = Points.from_grid(rows)
            projection = Projection([points], matrix, 3.0 * SCALE**2)
            return label_sums(points.rows, nearest_labels(projection[:], centers), k)

        sums, counts = sums_and_counts(rows)
        neighbor_sums, neighbor_counts = sums_and_counts(rows[1:])
        sum_changes = sums - neighbor_sums
        count_changes = counts - neighbor_counts
        assert np.abs(count_changes).sum() == 1
        assert count_changes.min() >= 0
        changed_cells = np.abs(sum_changes).sum(axis=1) > 0
        assert changed_cells.sum() <= 1
        assert np.linalg.norm(sum_changes) <= math.sqrt(d) * SCALE


def curator(points, epsilon=1.0, delta=1e-6, seed=0):
    return Curator(points, Ledger(Budget(epsilon, delta)), NoiseStreams([seed]))


def projection(points, *args, **kwargs):
    draws = np.random.default_rng(9).standard_normal((2, points.shape[1]))
    matrix = np.rint(draws * SCALE).astype(np.int64)
    return curator(points, *args, **kwargs).projection(matrix, 3.0 * SCALE**2)


def test_projections_are_exact_or_refused():
    points = Points.from_grid(np.random.default_rng(3).integers(-SCALE, SCALE, (50, 5)))
    matrix = np.random.default_rng(4).integers(-(2**18), 2**18, (2, 5))
    length = 2.0**37
    exact = points.rows.astype(np.int64) @ matrix.T
    assert (Projection([points], matrix, length)[:] == exact / length).all()
    clipped = Projection([points], matrix, 1.0)[:]
    assert np.linalg.norm(clipped, axis=1) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="not exact"):
        Projection([points], matrix * 2**20, length)
    with pytest.raises(ValueError, match=r"integers of shape \(m, 5\)"):
        Projection([points], matrix[:, :3], length)
