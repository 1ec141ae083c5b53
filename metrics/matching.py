"""Distances of released centers to the centers of non-private reference clusterings.

The reference of the FastLloyd paper's metrics is one clustering, made here. Those of
the DPM paper's are twenty: :mod:`pkm.metrics.references`.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans

from pkm.compute import SCALE, Points

REFERENCE_STARTS = 10
REFERENCE_SEED = 0


@lru_cache(maxsize=8)
def reference_centers(points: Points, k: int) -> np.ndarray:
    """Centers of scikit-learn's k-means, the best of ten seeded k-means++ starts.

    Parameters
    ----------
    points : Points
    k : int

    Returns
    -------
    ndarray of shape (k, d), float64
        In half-widths of the domain; the last eight results are kept in memory. There
        are fewer than k where there are fewer distinct points.
    """
    rows = points.rows.astype(np.float64) / SCALE
    # With more clusters than distinct points scikit-learn repeats centers.
    n_distinct = len(np.unique(rows, axis=0))
    # Without annotations in scikit-learn the type of `n_init` is guessed from its
    # default.
    kmeans = KMeans(
        min(k, n_distinct),
        n_init=REFERENCE_STARTS,  # type: ignore[reportArgumentType]
        random_state=REFERENCE_SEED,
    )
    return kmeans.fit(rows).cluster_centers_


def matched_distance(
    centers: Sequence[np.ndarray],
    reference: np.ndarray,
    squared: bool,
) -> np.ndarray:
    """Return the mean distance of released centers to reference centers.

    The distance is that under the best one-to-one matching.

    Parameters
    ----------
    centers : sequence of R ndarrays of shape (k, d), float64
        One per replicate; k may differ.
    reference : ndarray of shape (m, d), float64
        Where k and m differ, the smaller set is matched.
    squared : bool
        Average squared distances (the paper's text) or distances (the paper's figures).

    Returns
    -------
    ndarray of shape (R,)

    Examples
    --------
    >>> centers = np.array([[[0.0], [2.0]]])
    >>> matched_distance(centers, np.array([[2.0], [1.0]]), squared=False).tolist()
    [0.5]
    """
    norm = "sqeuclidean" if squared else "euclidean"
    costs = [cdist(replicate, reference, norm) for replicate in centers]
    return np.array([cost[linear_sum_assignment(cost)].mean() for cost in costs])


def nearest_distances(
    centers: Sequence[np.ndarray],
    references: Sequence[np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean nearest distances, from centers to references and the reverse.

    Parameters
    ----------
    centers : sequence of R ndarrays of shape (k, d), float64
        One per replicate; k may differ.
    references : sequence of ndarray of shape (m, d), float64
        Clusterings; m may differ.

    Returns
    -------
    forward : ndarray of shape (R,)
        Mean over the centers of the distance to the nearest center of a reference,
        averaged over the references.
    backward : ndarray of shape (R,)
        Mean over the centers of a reference of the distance to the nearest center,
        averaged over the references.

    Examples
    --------
    >>> centers = [np.array([[0.0], [2.0]])]
    >>> forward, backward = nearest_distances(centers, [np.array([[2.0], [5.0]])])
    >>> forward.tolist(), backward.tolist()
    ([1.0], [1.5])
    """
    sizes = np.array([len(reference) for reference in references])
    starts = np.cumsum(sizes) - sizes
    all_references = np.concatenate(references)
    forward = np.empty(len(centers))
    backward = np.empty(len(centers))
    for r, replicate in enumerate(centers):
        # One distance matrix for all references; columns are grouped by reference.
        distances = cdist(replicate, all_references)
        to_references = np.minimum.reduceat(distances, starts, axis=1)
        forward[r] = to_references.mean()

        to_centers = distances.min(axis=0)
        sums = np.add.reduceat(to_centers, starts)
        backward[r] = (sums / sizes).mean()
    return forward, backward
