"""How far released centres are from the centres of a strong non-private clustering."""

from functools import lru_cache

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans

from compute import SCALE, Points

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


def matched_distance(centres: np.ndarray, reference: np.ndarray, squared: bool) -> np.ndarray:
    """Mean distance between released and reference centres under the best one-to-one matching.

    Parameters
    ----------
    centres : ndarray of shape (R, k, d), float64
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
