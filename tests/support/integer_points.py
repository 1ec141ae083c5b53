"""Random points and centers on the integer grid."""

import numpy as np

from pkm.compute import SCALE


def draw(n, d, k, replicates=3, seed=0, spread=SCALE):
    rng = np.random.default_rng(seed)
    points = rng.integers(-spread, spread + 1, (n, d))
    centers = rng.integers(-spread, spread + 1, (replicates, k, d))
    return points, centers
