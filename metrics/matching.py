"""How far released centers are from the centers of strong non-private clusterings."""

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
        In half-widths of the domain; computed once per data set and process.
    """
    fit = KMeans(k, n_init=REFERENCE_STARTS, random_state=REFERENCE_SEED)
    return fit.fit(points.rows.astype(np.float64) / SCALE).cluster_centers_


def matched_distance(
    centers: Sequence[np.ndarray], reference: np.ndarray, squared: bool
) -> np.ndarray:
    """Mean distance between released and reference centers under the best one-to-one matching.

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
    >>> matched_distance(np.array([[[0.0], [2.0]]]), np.array([[2.0], [1.0]]), squared=False).tolist()
    [0.5]
    """
    cost = [cdist(each, reference, "sqeuclidean" if squared else "euclidean") for each in centers]
    return np.array([each[linear_sum_assignment(each)].mean() for each in cost])


def nearest_distances(
    centers: Sequence[np.ndarray], references: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Mean distance from centers to the nearest reference center, and the other way round.

    Parameters
    ----------
    centers : sequence of R ndarrays of shape (k, d), float64
        One per replicate; k may differ.
    references : sequence of ndarray of shape (m, d), float64
        Clusterings; m may differ.

    Returns
    -------
    there : ndarray of shape (R,)
        Mean over the centers of the distance to the nearest center of a reference, averaged over
        the references.
    back : ndarray of shape (R,)
        Mean over the centers of a reference of the distance to the nearest center, averaged over
        the references.

    Examples
    --------
    >>> there, back = nearest_distances([np.array([[0.0], [2.0]])], [np.array([[2.0], [5.0]])])
    >>> there.tolist(), back.tolist()
    ([1.0], [1.5])
    """
    sizes = np.array([len(each) for each in references])
    starts = np.cumsum(sizes) - sizes
    together = np.concatenate(references)
    there, back = np.empty(len(centers)), np.empty(len(centers))
    for r, each in enumerate(centers):
        apart = cdist(each, together)
        there[r] = np.minimum.reduceat(apart, starts, axis=1).mean()
        back[r] = (np.add.reduceat(apart.min(axis=0), starts) / sizes).mean()
    return there, back
