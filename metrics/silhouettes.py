"""Mean silhouettes of many labelings of the same points, which share distances."""

from functools import lru_cache

import numpy as np

from pkm.compute import Points, distance_tiles, mean_silhouettes

#: With more points, silhouettes are taken over a fixed sample of this many.
SILHOUETTE_POINTS = 10_000
SILHOUETTE_SEED = 0
#: Labelings per batch, so that their sums stay in the cache of the core.
LABELINGS = 8


def silhouette_sample(n: int) -> np.ndarray:
    """Indices of the points that silhouettes of n points are taken over."""
    if n <= SILHOUETTE_POINTS:
        return np.arange(n)
    generator = np.random.default_rng(SILHOUETTE_SEED)
    sample = generator.choice(n, SILHOUETTE_POINTS, replace=False)
    # In the order of memory, in which rows and labels are then read.
    return np.sort(sample)


def silhouettes(
    points: Points,
    labels: np.ndarray,
    k: int,
) -> np.ndarray:
    """Mean silhouette of each labeling, over the sample of the points.

    Parameters
    ----------
    points : Points
        n points.
    labels : ndarray of shape (R, m), int32
        Labels in [0, k) of the m points of :func:`silhouette_sample`.
    k : int

    Returns
    -------
    ndarray of shape (R,)
        -1 where fewer than two clusters have points.
    """
    tiles = sampled_distances(points)
    means = []
    for start in range(0, len(labels), LABELINGS):
        batch = np.ascontiguousarray(labels[start : start + LABELINGS])
        means.append(mean_silhouettes(tiles, batch, k))
    return np.concatenate(means)


# Cells of one data set are run in a row; one matrix can take 400 MB.
@lru_cache(maxsize=1)
def sampled_distances(points: Points) -> np.ndarray:
    """Distances between the points of :func:`silhouette_sample`, in tiles."""
    sample = silhouette_sample(points.shape[0])
    sampled = Points.from_grid(points.rows[sample])
    return distance_tiles(sampled)
