"""Users of the local model and their aggregator."""

import numpy as np

from pkm.compute import Points
from pkm.privacy import SCALE, Budget, Ledger, NoiseStreams, snap
from pkm.privacy.local_aggregator import LocalAggregator


def new_ledger(epsilon=1.0):
    return Ledger(Budget(epsilon, 0.0, "local"))


def aggregator_of(points, epsilon=1.0, seed=0, ledger=None):
    if ledger is None:
        ledger = new_ledger(epsilon)
    return LocalAggregator(points, ledger, NoiseStreams([seed]))


def one_cohort(points, epsilon=1.0, radius=None):
    """Return the cohort of all users."""
    (cohort,) = aggregator_of(points, epsilon).cohorts([1], radius)
    return cohort


def uniform_points(n=1000, d=3, seed=0):
    return np.random.default_rng(seed).integers(-SCALE, SCALE + 1, (n, d))


def planted(n, d, k, seed=0, deviation=0.03):
    """Return clusters of equal size about separate centers in the unit ball, and the centers."""
    generator = np.random.default_rng(seed)
    centers = []
    while len(centers) < k:
        candidate = generator.uniform(-0.7, 0.7, d)
        distances = [np.linalg.norm(candidate - center) for center in centers]
        if np.linalg.norm(candidate) < 0.8 and all(distance > 0.5 for distance in distances):
            centers.append(candidate)
    centers = np.array(centers)
    points = centers[np.arange(n) % k] + deviation * generator.standard_normal((n, d))
    return Points.from_grid(snap(np.clip(points, -1, 1))), centers
