"""Weighted k-means on small public sets, such as coresets and released centers."""

from collections.abc import Callable
from typing import Literal

import numpy as np
from scipy.spatial.distance import cdist

from pkm.compute import weighted_lloyd

MAX_ITERATIONS = 300
CHECKED_ROWS = 10  # first rows to search for distinct points, for each center
BLOCK_ROWS = 1 << 14
TOLERANCE = 1e-4  # of the mean variance of features: scikit-learn's default


def weighted_kmeans(
    points: np.ndarray,
    sample_weight: np.ndarray,
    k: int,
    n_init: int,
    random_state: int | np.random.Generator,
) -> np.ndarray:
    """Cluster weighted points by greedy k-means++ and Lloyd's algorithm.

    This is scikit-learn's algorithm. On a few hundred points the overhead of its
    estimator takes longer than the run.

    Parameters
    ----------
    points : ndarray of shape (m, d), float64
    sample_weight : ndarray of shape (m,), float64
        Positive.
    k : int
    n_init : int
        Number of starts, of which the best is kept.
    random_state : int or numpy.random.Generator
        Seed of the starts, or a generator that draws it.

    Returns
    -------
    ndarray of shape (min(k, number of distinct points), d), float64

    Examples
    --------
    >>> points = np.array([[0.0], [1.0], [9.0]])
    >>> weighted_kmeans(points, np.array([3.0, 1.0, 2.0]), 2, 1, 0).tolist()
    [[0.25], [9.0]]
    """
    return best_of_starts(
        points, sample_weight, k, n_init, random_state, "sqeuclidean", _lloyd
    )


def best_of_starts(
    points: np.ndarray,
    sample_weight: np.ndarray,
    k: int,
    n_init: int,
    random_state: int | np.random.Generator,
    distance: Literal["sqeuclidean", "euclidean"],
    refine: Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, float]],
) -> np.ndarray:
    """Draw starts by greedy k-means++, refine each, and keep the best.

    Parameters
    ----------
    points, sample_weight, k, n_init, random_state
        As for :func:`weighted_kmeans`.
    distance : {"sqeuclidean", "euclidean"}
        Cost of a point, as a function of its nearest center.
    refine : callable
        From points, sample_weight and starting centers to centers and their cost.

    Returns
    -------
    ndarray of shape (min(k, number of distinct points), d), float64
        In lexicographic order.
    """
    if isinstance(random_state, np.random.Generator):
        random_state = int(random_state.integers(2**32))
    points = np.ascontiguousarray(points, np.float64)
    sample_weight = np.ascontiguousarray(sample_weight, np.float64)
    # With at most k distinct points these are the centers. Some rows almost always show
    # that there are more.
    if len(np.unique(points[: CHECKED_ROWS * k], axis=0)) <= k:
        distinct = np.unique(points, axis=0)
        if len(distinct) <= k:
            return distinct

    generator = np.random.default_rng(random_state)
    fits = []
    for _ in range(n_init):
        start = _greedy_start(points, sample_weight, k, generator, distance)
        fits.append(refine(points, sample_weight, start))
    centers, _ = min(fits, key=lambda fit: fit[1])
    return centers[np.lexsort(centers.T[::-1])]


def _greedy_start(
    points: np.ndarray,
    sample_weight: np.ndarray,
    k: int,
    generator: np.random.Generator,
    distance: Literal["sqeuclidean", "euclidean"],
) -> np.ndarray:
    """Draw k of the points, (k, d), by greedy k-means++."""
    n_trials = 2 + int(np.log(k))
    centers = np.empty((k, points.shape[1]))

    # Pick the first center by weight.
    probabilities = sample_weight / sample_weight.sum()
    centers[0] = points[generator.choice(len(points), p=probabilities)]
    nearest = cdist(points, centers[:1], distance)[:, 0]
    for j in range(1, k):
        # Draw candidates with probability proportional to their cost.
        cumulated = np.cumsum(nearest * sample_weight)
        drawn = np.searchsorted(cumulated, generator.random(n_trials) * cumulated[-1])
        candidates = points[np.minimum(drawn, len(points) - 1)]

        # Keep the candidate with the lowest total cost.
        closer = cdist(candidates, points, distance)
        np.minimum(nearest, closer, out=closer)
        costs = [(distances * sample_weight).sum() for distances in closer]
        best = np.argmin(costs)
        centers[j] = candidates[best]
        nearest = closer[best]
    return centers


def _lloyd(
    points: np.ndarray,
    sample_weight: np.ndarray,
    centers: np.ndarray,
) -> tuple[np.ndarray, float]:
    """Move the centers in place by Lloyd's algorithm; return them and their cost."""
    # Stop where the squared move of the centers is at most the tolerance.
    tolerance = TOLERANCE * points.var(axis=0).mean()
    weighted_lloyd(points, sample_weight, centers, tolerance, MAX_ITERATIONS)
    return centers, weighted_inertia(points, sample_weight, centers)


def weighted_inertia(
    points: np.ndarray,
    sample_weight: np.ndarray,
    centers: np.ndarray,
) -> float:
    """Sum of the squared distances of points (m, d) to nearest centers, by weight."""
    nearest = np.empty(len(points))
    for start in range(0, len(points), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        nearest[block] = cdist(points[block], centers, "sqeuclidean").min(axis=1)
    return float((nearest * sample_weight).sum())
