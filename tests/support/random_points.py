"""Random points, centers and classes on the grid."""

import numpy as np
from sklearn.datasets import make_blobs

from pkm.privacy import SCALE


def draw(n=300, d=3, k=5, replicates=4, seed=0):
    rng = np.random.default_rng(seed)
    points = rng.integers(-SCALE, SCALE + 1, (n, d))
    centers = rng.integers(-SCALE, SCALE + 1, (replicates, k, d))
    return points, centers


def draw_with_classes(n=400, d=3, k=4, replicates=3, seed=0):
    rng = np.random.default_rng(seed)
    points = rng.integers(-SCALE, SCALE + 1, (n, d))
    centers = rng.integers(-SCALE, SCALE + 1, (replicates, k, d))
    classes = rng.integers(-1, 6, n)
    return points, centers, classes


def blobs(n=400, d=3, k=4, seed=0):
    """Draw clearly separated clusters on the grid."""
    points, classes = make_blobs(
        n,
        d,
        centers=k,
        center_box=(-0.9, 0.9),
        cluster_std=0.02,
        random_state=seed,
    )
    return np.rint(np.clip(points, -1, 1) * SCALE).astype(np.int64), classes
