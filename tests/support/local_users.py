"""Users of the local model and their aggregator."""

import numpy as np

from pkm.privacy import SCALE, Budget, Ledger, NoiseStreams
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
