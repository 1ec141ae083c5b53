"""k-median: centers for the sum of distances, on weighted points, and without privacy as what others are held to."""

import math
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
from scipy.spatial.distance import cdist

from pkm.methods.base import PrivateKMeans
from pkm.methods.weighted_kmeans import best_of_starts
from pkm.privacy import NO_CLAIM, PrivacyClaim, snap_centers

TOLERANCE = 1e-6  # relative fall of the k-median cost at which to stop
ITERATIONS = 300
ROWS = 1 << 14


@dataclass(eq=False, repr=False)
class KMedian(PrivateKMeans):
    """k-median without privacy: what the methods with ``p=1`` are held to.

    Parameters
    ----------
    n_clusters : int, default=8
    n_init : int, default=1
        Number of starts, of which the best is kept.
    bounds, clip, random_state
        As for :class:`pkm.methods.base.PrivateKMeans`.
    """

    claims: ClassVar[dict[str, PrivacyClaim]] = {"sound": NO_CLAIM}

    _: KW_ONLY
    n_init: int = 1

    def cluster(self, curator):
        """Run once per seed; see :meth:`PrivateKMeans.cluster`."""
        points = curator.disclose().astype(np.float64)
        weights = np.ones(len(points))
        found = [
            weighted_kmedian(points, weights, self.n_clusters, self.n_init, seed % 2**32)
            for seed in curator.seeds
        ]
        return [snap_centers(centers) for centers in found], 1


def weighted_kmedian(
    points: np.ndarray, weights: np.ndarray, k: int, n_init: int, seed: int
) -> np.ndarray:
    """Cluster weighted points for the sum of distances, and keep the best of a few starts.

    Starts are drawn by distance; then every center moves by one step of Weiszfeld's algorithm over the points that are
    nearest to it, and points are assigned anew: the cost falls at each of both.

    Parameters
    ----------
    points : ndarray of shape (m, d), float64
        In grid steps.
    weights : ndarray of shape (m,), float64
        Positive.
    k, n_init, seed : int

    Returns
    -------
    ndarray of shape (min(k, number of distinct points), d), float64

    Examples
    --------
    >>> points = np.array([[0.0], [100.0], [100.0], [9000.0]])
    >>> weighted_kmedian(points, np.ones(4), 2, 1, 0).round().tolist()
    [[100.0], [9000.0]]
    """
    return best_of_starts(points, weights, k, n_init, seed, "euclidean", _medians)


def _medians(points, weights, centers) -> tuple[np.ndarray, float]:
    k, last = len(centers), math.inf
    for _ in range(ITERATIONS):
        pulls, moved, cost = np.zeros(k), np.zeros(centers.shape), 0.0
        costliest = points[0], -1.0
        for start in range(0, len(points), ROWS):
            some, own = points[start : start + ROWS], weights[start : start + ROWS]
            distance = cdist(some, centers)
            label = distance.argmin(axis=1)
            nearest = distance[np.arange(len(some)), label]
            cost += float(own @ nearest)
            farthest = int((own * nearest).argmax())
            if own[farthest] * nearest[farthest] > costliest[1]:
                costliest = some[farthest], own[farthest] * nearest[farthest]
            # Distances are smoothed by one grid step: a center on a point would stay there for ever.
            pull = own / np.sqrt(nearest * nearest + 1.0)
            pulls += np.bincount(label, pull, k)
            for column in range(points.shape[1]):
                moved[:, column] += np.bincount(label, pull * some[:, column], k)
        if last - cost <= TOLERANCE * cost:
            break
        last = cost
        centers = np.where(
            pulls[:, None] > 0, moved / np.where(pulls > 0, pulls, 1.0)[:, None], costliest[0]
        )
    return centers, cost
