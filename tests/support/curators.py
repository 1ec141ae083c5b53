"""Curators over small points on the grid, and a source of noise that refuses every draw."""

import numpy as np
from hypothesis import strategies as st

from pkm.privacy import (
    SCALE,
    Budget,
    Curator,
    GapPercentile,
    Gaussian,
    Ledger,
    NoiseStreams,
    Percentile,
)


class ForbiddenNoise(NoiseStreams):
    """A source that refuses every draw."""

    def normal(self, key, shape):
        raise AssertionError("noise was drawn before the charge was accepted")

    laplace = normal


SEEDS = st.integers(0, 10**6)
LARGE_BUDGET = Budget(1e6, 0.5)
ONE_CENTER = np.zeros((1, 1, 2), np.int64)
NOISE = {"sums": Gaussian(9.0 * SCALE), "counts": Gaussian(9.0 * SCALE)}
EXACT = {"sums": None, "counts": None}


def grid_points(seed, n=60, d=3, step=1):
    """Random grid points; a coarse step makes ties."""
    rng = np.random.default_rng(seed)
    return rng.integers(-SCALE // step, SCALE // step + 1, (n, d)) * step


def curator_of(points, budget=LARGE_BUDGET, streams=None, *, seed=0, domain=None):
    streams = streams or NoiseStreams([seed])
    return Curator(points, Ledger(budget), streams, domain)


def released_percentile(curator, percent, epsilon):
    """In half-widths."""
    answer = curator.release(GapPercentile(percent), gap=Percentile(epsilon))
    return answer["gap"][0] / SCALE
