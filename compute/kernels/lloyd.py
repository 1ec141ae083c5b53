"""Lloyd's algorithm in float64: on weighted points, and on the points of one client."""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def nearest_center(
    points: np.ndarray,
    i: int,
    centers: np.ndarray,
) -> tuple[int, float]:
    """Center nearest to point ``i``, ties to the first, and the squared distance."""
    nearest = 0
    min_sq_dist = np.inf
    for j in range(centers.shape[0]):
        sq_dist = 0.0
        for h in range(centers.shape[1]):
            diff = points[i, h] - centers[j, h]
            sq_dist += diff * diff
        if sq_dist < min_sq_dist:
            nearest = j
            min_sq_dist = sq_dist
    return nearest, min_sq_dist


@njit(cache=True, nogil=True)
def weighted_lloyd(
    points: np.ndarray,
    sample_weight: np.ndarray,
    centers: np.ndarray,
    tol: float,
    max_iter: int,
) -> None:
    """Move centers to weighted means until they no longer move.

    The center of an empty cluster goes to the point with the largest weighted squared
    distance to its nearest center. Sums run over the points in order, so that results
    do not depend on a library's blocking.

    Parameters
    ----------
    points : ndarray of shape (m, d), float64
    sample_weight : ndarray of shape (m,), float64
    centers : ndarray of shape (k, d), float64
        Changed in place.
    tol : float
        Sum of squared center shifts at which to stop.
    max_iter : int
        At most so many iterations.
    """
    # Buffers of an iteration; ``means`` holds sums first.
    k, d = centers.shape
    labels = np.empty(len(points), np.int64)
    cluster_weights = np.empty(k)
    means = np.empty((k, d))
    for _ in range(max_iter):
        farthest, _ = _assign(
            points,
            sample_weight,
            centers,
            labels,
            cluster_weights,
            means,
        )

        # Turn sums into means and move the centers there.
        center_shift = 0.0
        for j in range(k):
            for h in range(d):
                if cluster_weights[j] > 0:
                    means[j, h] /= cluster_weights[j]
                else:
                    # Several empty clusters get one point. Ties go to the first of
                    # them, so the others get another point in the next iteration.
                    means[j, h] = points[farthest, h]
                diff = means[j, h] - centers[j, h]
                center_shift += diff * diff
                centers[j, h] = means[j, h]
        # As scikit-learn's criterion: the squared Frobenius norm of the shifts.
        if center_shift <= tol:
            break


@njit(cache=True, nogil=True)
def _assign(
    points: np.ndarray,
    sample_weight: np.ndarray,
    centers: np.ndarray,
    labels: np.ndarray,
    cluster_weights: np.ndarray,
    sums: np.ndarray,
) -> tuple[int, float]:
    """Label points, sum weights and weighted points by label.

    Returns
    -------
    farthest : int
        The point of largest weighted squared distance to its center.
    loss : float
        Sum of these distances.
    """
    # OUT: labels, cluster_weights and sums. After point i they hold the sums of points
    # 0 .. i.
    cluster_weights[:] = 0.0
    sums[:] = 0.0
    farthest = 0
    largest = -1.0
    loss = 0.0
    for i in range(len(points)):
        label, min_sq_dist = nearest_center(points, i, centers)
        labels[i] = label
        cluster_weights[label] += sample_weight[i]
        for h in range(points.shape[1]):
            sums[label, h] += sample_weight[i] * points[i, h]
        cost = min_sq_dist * sample_weight[i]
        loss += cost
        if cost > largest:
            farthest = i
            largest = cost
    return farthest, loss


@njit(cache=True, nogil=True)
def converged_lloyd(
    points: np.ndarray,
    centers: np.ndarray,
    tolerance: float,
    max_iter: int,
) -> np.ndarray:
    """Move centers to means until an iteration lowers the loss by too small a share.

    An empty cluster keeps its center. Sums run over the points in order.

    Parameters
    ----------
    points : ndarray of shape (n, d), float64
    centers : ndarray of shape (k, d), float64
        Changed in place: means of the points with each label.
    tolerance : float
        Relative decrease of the loss below which an iteration is the last.
    max_iter : int
        At most so many iterations.

    Returns
    -------
    ndarray of shape (n,), int64
        Nearest center before the last move, ties to the first.
    """
    k, d = centers.shape
    weights = np.ones(len(points))
    labels = np.zeros(len(points), np.int64)
    counts = np.empty(k)
    sums = np.empty((k, d))
    previous_loss = np.inf
    for _ in range(max_iter):
        _, loss = _assign(
            points,
            weights,
            centers,
            labels,
            counts,
            sums,
        )

        # Move the centers to the means.
        for j in range(k):
            if counts[j] > 0:
                for h in range(d):
                    centers[j, h] = sums[j, h] / counts[j]
        # ``loss`` is that of the centers before this move.
        if loss >= (1 - tolerance) * previous_loss:
            break
        previous_loss = loss
    return labels
