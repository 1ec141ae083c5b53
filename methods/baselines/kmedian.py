"""k-median without privacy: centers of weighted points for the sum of distances."""

import math

import numpy as np
from scipy.spatial.distance import cdist

from pkm.methods.base import PrivateKMeans
from pkm.methods.constraints import Integer
from pkm.methods.weighted_kmeans import best_of_starts
from pkm.privacy import NO_CLAIM, Curator, snap_centers

TOLERANCE = 1e-6  # smallest relative decrease of the cost
MAX_ITERATIONS = 300
BLOCK_ROWS = 1 << 14


class KMedian(PrivateKMeans):
    """k-median without privacy: the reference of methods with ``p=1``.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    n_init : int, default=1
        Number of starts, of which the best is kept.
    bounds, clip, random_state, missing
        As for :class:`pkm.methods.PrivateKMeans`.
    zoom, require_zoom, report, secure, adjacency
        For private methods: leave them out.

    See Also
    --------
    KMeansPlusPlus : For sums of squared distances.
    DistDP : Private, with ``p=1``.
    """

    label = "k-median, non-private"
    color = "#0072b2"
    marker = ""
    claims = {"sound": NO_CLAIM}
    constraints = {"n_init": Integer(1)}

    n_init: int = 1

    def cluster(self, curator: Curator) -> tuple[list[np.ndarray], int]:
        """Run once per seed; see :meth:`PrivateKMeans.cluster`."""
        points = curator.disclose().astype(np.float64)
        sample_weight = np.ones(len(points))
        released = []
        for seed in curator.public_seeds:
            centers = weighted_kmedian(
                points, sample_weight, self.n_clusters, self.n_init, seed % 2**32
            )
            released.append(snap_centers(centers))
        # Iterations are not counted.
        return released, 1


def weighted_kmedian(
    points: np.ndarray,
    sample_weight: np.ndarray,
    k: int,
    n_init: int,
    random_state: int | np.random.Generator,
) -> np.ndarray:
    """Cluster weighted points for the sum of distances; keep the best of some starts.

    Starts are drawn by greedy k-means++ with distances in place of squares. Then
    assignments alternate with one step of Weiszfeld's algorithm in each cluster;
    neither raises the cost by more than a grid step for each point.

    Parameters
    ----------
    points : ndarray of shape (m, d), float64
        In grid steps.
    sample_weight : ndarray of shape (m,), float64
        Positive.
    k, n_init, random_state
        As for :func:`pkm.methods.weighted_kmeans.weighted_kmeans`.

    Returns
    -------
    ndarray of shape (min(k, number of distinct points), d), float64

    Examples
    --------
    >>> points = np.array([[0.0], [100.0], [100.0], [9000.0]])
    >>> weighted_kmedian(points, np.ones(4), 2, 1, 0).round().tolist()
    [[100.0], [9000.0]]
    """
    return best_of_starts(
        points, sample_weight, k, n_init, random_state, "euclidean", move_to_medians
    )


def move_to_medians(
    points: np.ndarray,
    sample_weight: np.ndarray,
    centers: np.ndarray,
) -> tuple[np.ndarray, float]:
    """Move centers (k, d) to medians; return them and the last cost computed.

    Assignments alternate with Weiszfeld steps. Points (m, d) are in grid steps.
    """
    k = len(centers)
    previous_cost = math.inf
    cost = math.inf
    for _ in range(MAX_ITERATIONS):
        totals = np.zeros(k)
        sums = np.zeros(centers.shape)
        cost = 0.0
        costliest = points[0]
        largest_cost = -1.0
        for start in range(0, len(points), BLOCK_ROWS):
            # Assign points to their nearest centers.
            block = points[start : start + BLOCK_ROWS]
            block_weights = sample_weight[start : start + BLOCK_ROWS]
            distances = cdist(block, centers)
            labels = distances.argmin(axis=1)
            nearest = distances[np.arange(len(block)), labels]
            cost += float(block_weights @ nearest)

            # Track the point of largest cost, for clusters that are empty.
            point_costs = block_weights * nearest
            farthest = int(point_costs.argmax())
            if point_costs[farthest] > largest_cost:
                costliest = block[farthest]
                largest_cost = point_costs[farthest]

            # Weiszfeld's weights, the inverse distances, smoothed by one grid step: a
            # center on a point would otherwise never move.
            inverses = block_weights / np.sqrt(nearest * nearest + 1.0)
            totals += np.bincount(labels, inverses, k)
            for column in range(points.shape[1]):
                sums[:, column] += np.bincount(labels, inverses * block[:, column], k)

        if previous_cost - cost <= TOLERANCE * cost:
            break
        previous_cost = cost

        # Move every center to the weighted mean; that of an empty cluster to the point
        # of largest cost.
        divisors = np.where(totals > 0, totals, 1.0)[:, None]
        centers = np.where(totals[:, None] > 0, sums / divisors, costliest)
    return centers, cost
