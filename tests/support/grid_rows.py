"""Rows with clipped, missing and null entries, and bounds for them."""

import numpy as np

BOUNDS = np.array([-1.0, -2.0, 0.5]), np.array([1.0, 3.0, 9.0])


def matrix(n=300):
    """Points of which some are outside of the bounds and some are null records."""
    rng = np.random.default_rng(0)
    X = rng.uniform(BOUNDS[0], BOUNDS[1], (n, 3))
    X[3] = [5, 5, 5]
    X[7, 1] = np.nan
    X[200, 2] = -np.inf
    return X
