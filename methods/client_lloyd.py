"""Lloyd's algorithm of one client of federated clustering, on the points of the client."""

import math

import numpy as np

MAX_ITER = 300
TOLERANCE = 1e-3  # of the loss


def local_lloyd(points: np.ndarray, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lloyd's algorithm until an iteration lowers the loss by less than a thousandth.

    An empty cluster keeps its center.

    Parameters
    ----------
    points : ndarray of shape (n, d), float64
    centers : ndarray of shape (k, d), float64
        Starting centers.

    Returns
    -------
    centers : ndarray of shape (k, d), float64
        Means of the points with each label.
    labels : ndarray of shape (n,), int64

    Examples
    --------
    >>> centers, labels = local_lloyd(np.array([[0.0], [2.0], [9.0]]), np.array([[0.0], [9.0]]))
    >>> centers.ravel().tolist(), labels.tolist()
    ([1.0, 9.0], [0, 0, 1])
    """
    labels = np.zeros(len(points), np.int64)
    previous_loss = math.inf
    for _ in range(MAX_ITER):
        # Assign the points to their nearest centers, and move these to the means.
        squares = pairwise_squared_distances(points, centers)
        labels = squares.argmin(axis=1)
        loss = squares.min(axis=1).sum()
        centers = update_centers(points, labels, centers)
        if loss >= (1 - TOLERANCE) * previous_loss:
            break
        previous_loss = loss
    return centers, labels


def update_centers(points: np.ndarray, labels: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Mean (k, d) of the points with each label; an empty cluster keeps its center."""
    means = [
        points[labels == j].mean(axis=0) if (labels == j).any() else center
        for j, center in enumerate(centers)
    ]
    return np.array(means)


def pairwise_squared_distances(points: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Squared distances (n, k) of all points to all centers."""
    return ((points[:, None] - centers) ** 2).sum(axis=2)
