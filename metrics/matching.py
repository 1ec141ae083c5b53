"""How far released centres are from the centres of strong non-private clusterings."""

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
def reference_centres(points: Points, k: int) -> np.ndarray:
    """Centres of scikit-learn's k-means, the best of ten seeded k-means++ starts.

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


def matched_distance(centres: Sequence[np.ndarray], reference: np.ndarray, squared: bool) -> np.ndarray:
    """Mean distance between released and reference centres under the best one-to-one matching.

    Parameters
    ----------
    centres : sequence of R ndarrays of shape (k, d), float64
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
    cost = [cdist(each, reference, "sqeuclidean" if squared else "euclidean") for each in centres]
    return np.array([each[linear_sum_assignment(each)].mean() for each in cost])


def nearest_distances(centres: Sequence[np.ndarray], references: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean distance from centres to the nearest reference centre, and the other way round.

    Parameters
    ----------
    centres : sequence of R ndarrays of shape (k, d), float64
        One per replicate; k may differ.
    references : sequence of ndarray of shape (m, d), float64
        Clusterings; m may differ.

    Returns
    -------
    there : ndarray of shape (R,)
        Mean over the centres of the distance to the nearest centre of a reference, averaged over the references.
    back : ndarray of shape (R,)
        Mean over the centres of a reference of the distance to the nearest centre, averaged over the references.

    Examples
    --------
    >>> there, back = nearest_distances([np.array([[0.0], [2.0]])], [np.array([[2.0], [5.0]])])
    >>> there.tolist(), back.tolist()
    ([1.0], [1.5])
    """
    sizes = np.array([len(each) for each in references])
    starts = np.cumsum(sizes) - sizes
    together = np.concatenate(references)
    there, back = np.empty(len(centres)), np.empty(len(centres))
    for r, each in enumerate(centres):
        apart = cdist(each, together)
        there[r] = np.minimum.reduceat(apart, starts, axis=1).mean()
        back[r] = (np.add.reduceat(apart.min(axis=0), starts) / sizes).mean()
    return there, back
