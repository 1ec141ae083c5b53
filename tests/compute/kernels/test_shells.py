"""Counts of shells and clipped sums against brute force."""

from dataclasses import replace

import numpy as np
import pytest

from pkm.compute import SCALE, Points
from pkm.compute.kernels.shells import (
    RADIUS_SCALE,
    clipped_sum,
    shell_counts,
    side_counts,
    summarize,
)


def fine_points(rng, n, d, width):
    """Points on a grid 1 / width as fine as they are, and their coordinates, exactly."""
    given = rng.uniform(-1, 1, (n, d)) / width
    points, _ = Points.quantize(given, -np.ones(d), np.ones(d))
    steps = points.rows.astype(np.int64) * SCALE + points.remainders
    return points, steps / 2.0**32


@pytest.mark.parametrize("d", [1, 2, 9])
def test_kernels_equal_brute_force(d):
    rng = np.random.default_rng(d)
    points, x = fine_points(rng, 700, d, 1.0)
    center = rng.uniform(-0.5, 0.5, d)
    radii = 2.0 * 2 ** (-np.arange(12) / 2)
    differences = x - center
    edges = np.append(radii[1:], 0.0)

    def histogram(distances):
        return [
            int(((distances > low) & ((distances <= high) | (j == 0))).sum())
            for j, (low, high) in enumerate(zip(edges, radii, strict=True))
        ]

    distances = np.sqrt((differences**2).sum(axis=1))
    assert shell_counts(points, center, radii, box=False).tolist() == histogram(distances)
    largest = np.abs(differences).max(axis=1)
    assert shell_counts(points, center, radii, box=True).tolist() == histogram(largest)
    sides = side_counts(points, center, radii)
    for h in range(d):
        column = differences[:, h]
        below = column[column <= 0]
        assert sides[h].tolist() == [histogram(-below), histogram(column[column > 0])]

    radius = 0.3
    shortened = differences * np.minimum(1, radius / distances)[:, None] / radius * SCALE
    exact = clipped_sum(points, center, radius)
    np.testing.assert_allclose(exact, shortened.sum(axis=0), atol=700)


def test_a_clipped_difference_is_never_longer_than_the_radius():
    rng = np.random.default_rng(0)
    for _ in range(300):
        d = int(rng.integers(1, 12))
        points, _ = fine_points(rng, 1, d, 1.0)
        radius = float(rng.uniform(1e-4, 0.5))
        (one,) = clipped_sum(points, np.zeros(d), radius)[None].tolist()
        assert sum(int(value) ** 2 for value in one) <= SCALE**2


@pytest.mark.parametrize("weighs", [False, True])
@pytest.mark.parametrize("d", [1, 2, 9])
def test_summaries_equal_brute_force(d, weighs):
    """Ties go to the lower center, edges to the bin above; weights are parts of records."""
    rng = np.random.default_rng(d)
    rows = rng.integers(-40, 41, (500, d))
    centers = rng.integers(-40, 41, (6, d))
    thresholds = np.array([-20, -20, 0, 35])
    radius = 9.0 * d
    weights = rng.integers(0, SCALE + 1, 500).astype(np.int32) if weighs else None
    points = replace(Points.from_grid(rows), weights=weights)
    counts, sums, costs, histograms = summarize(points, centers, radius, thresholds)

    shares = np.ones(500) if weights is None else weights / SCALE
    units = np.ones(500, int) if weights is None else weights
    differences = rows[:, None] - centers
    squares = (differences**2).sum(axis=2)
    labels = squares.argmin(axis=1)
    offsets = differences[np.arange(500), labels] / radius
    lengths = np.linalg.norm(offsets, axis=1)
    assert (lengths > 1).any() and (lengths < 1).any()
    clipped = offsets / np.maximum(lengths, 1)[:, None]
    norms = np.minimum(lengths, 1) ** 2
    assert costs / RADIUS_SCALE == pytest.approx(shares @ norms, abs=500 / RADIUS_SCALE)
    bins = np.searchsorted(thresholds, rows, side="right")
    for j in range(6):
        own = labels == j
        assert counts[j] == units[own].sum()
        mean = (shares[own, None] * clipped[own]).sum(axis=0)
        np.testing.assert_allclose(sums[j] / RADIUS_SCALE, mean, atol=500 / RADIUS_SCALE)
        for h in range(d):
            expected = np.bincount(bins[own, h], units[own], minlength=5)
            assert histograms[j, h].tolist() == expected.tolist()
