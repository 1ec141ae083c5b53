"""k-median on weighted points."""

import numpy as np
import pytest
from scipy import optimize

from pkm.methods.baselines.kmedian import weighted_kmedian
from pkm.privacy import (
    SCALE,
)


@pytest.mark.parametrize("seed", range(5))
def test_single_center_is_the_geometric_median(seed):
    rng = np.random.default_rng(seed)
    points = SCALE * rng.standard_normal((40, 3))
    weights = rng.integers(1, 9, 40).astype(float)

    def total(center):
        return float(weights @ np.linalg.norm(points - center, axis=1))

    (median,) = weighted_kmedian(points, weights, 1, 1, 0)
    best = optimize.minimize(
        total,
        points.mean(axis=0),
        method="Nelder-Mead",
        options={"xatol": 1e-3, "fatol": 1e-6},
    )
    assert total(median) <= best.fun * (1 + 1e-5)


def test_weights_are_equivalent_to_copies():
    rng = np.random.default_rng(0)
    clusters = [rng.normal(center, 0.02, (30, 2)) for center in (-0.5, 0.0, 0.6)]
    points = SCALE * np.concatenate(clusters)
    weights = rng.integers(1, 5, len(points))
    copies = np.repeat(points, weights, axis=0)
    weighted = weighted_kmedian(points, weights, 3, 5, 0)
    copied = weighted_kmedian(copies, np.ones(len(copies)), 3, 5, 0)
    assert np.abs(weighted - copied).max() < 2e-3 * SCALE


def test_medians_resist_outliers():
    points = SCALE * np.array([[0.0]] * 5 + [[0.9]] * 2)
    median = weighted_kmedian(points, np.ones(7), 1, 1, 0)
    assert median[0, 0] == pytest.approx(0, abs=2)


def test_kmedian_returns_few_distinct_points():
    points = SCALE * np.array([[0.0]] * 5 + [[0.9]] * 2)
    assert len(weighted_kmedian(points, np.ones(7), 3, 1, 0)) == 2
