"""Weighted k-means on small public sets: what coresets and released centers are reduced by. Post-processing."""

import numpy as np
from scipy.spatial.distance import cdist

from pkm.compute import weighted_lloyd

ITERATIONS = 300
TOLERANCE = 1e-4  # of the mean variance: as scikit-learn's default


def weighted_kmeans(
    points: np.ndarray, weights: np.ndarray, k: int, n_init: int, seed: int
) -> np.ndarray:
    """Cluster weighted points by Lloyd's algorithm from greedy k-means++ starts, and keep the best.

    scikit-learn's algorithm; a call of its estimator takes longer than the work on a few hundred points.

    Parameters
    ----------
    points : ndarray of shape (m, d), float64
    weights : ndarray of shape (m,), float64
        Positive.
    k : int
    n_init : int
        Number of starts.
    seed : int

    Returns
    -------
    ndarray of shape (min(k, number of distinct points), d), float64

    Examples
    --------
    >>> weighted_kmeans(np.array([[0.0], [1.0], [9.0]]), np.array([3.0, 1.0, 2.0]), 2, 1, 0).tolist()
    [[0.25], [9.0]]
    """
    return best_of_starts(points, weights, k, n_init, seed, "sqeuclidean", _lloyd)


def best_of_starts(points, weights, k, n_init, seed, distance, refine) -> np.ndarray:
    """Draw greedy starts by a cost, refine each, and keep the best; the other parameters as for `weighted_kmeans`.

    Parameters
    ----------
    distance : {"sqeuclidean", "euclidean"}
        What the cost of a point is.
    refine : callable
        From points, weights and starting centers to centers and their cost.

    Returns
    -------
    ndarray of shape (min(k, number of distinct points), d), float64
    """
    points, weights = (
        np.ascontiguousarray(points, np.float64),
        np.ascontiguousarray(weights, np.float64),
    )
    distinct = np.unique(points, axis=0)
    if len(distinct) <= k:
        return distinct
    generator = np.random.default_rng(seed)
    found = [
        refine(points, weights, _seeding(points, weights, k, generator, distance))
        for _ in range(n_init)
    ]
    centers = min(found, key=lambda fit: fit[1])[0]
    return centers[np.lexsort(centers.T[::-1])]


def _seeding(points, weights, k, generator, distance) -> np.ndarray:
    """Greedy k-means++: of 2 + log k candidates drawn by their cost, the one that lowers the total cost most."""
    trials = 2 + int(np.log(k))
    centers = np.empty((k, points.shape[1]))
    centers[0] = points[generator.choice(len(points), p=weights / weights.sum())]
    nearest = cdist(points, centers[:1], distance)[:, 0]
    for j in range(1, k):
        cost = np.cumsum(nearest * weights)
        drawn = np.minimum(
            np.searchsorted(cost, generator.random(trials) * cost[-1]), len(points) - 1
        )
        closer = np.minimum(nearest, cdist(points[drawn], points, distance))
        best = np.argmin((closer * weights).sum(axis=1))
        centers[j], nearest = points[drawn[best]], closer[best]
    return centers


def _lloyd(points, weights, centers) -> tuple[np.ndarray, float]:
    weighted_lloyd(points, weights, centers, TOLERANCE * points.var(axis=0).mean(), ITERATIONS)
    return centers, float((cdist(points, centers, "sqeuclidean").min(axis=1) * weights).sum())
