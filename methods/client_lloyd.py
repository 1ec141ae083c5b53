"""What clients of federated clustering do with their own points."""

import math

import numpy as np

ROUNDS, CHANGE = 300, 1e-3


def local_lloyd(points: np.ndarray, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lloyd's algorithm until a round lowers the loss by less than a thousandth; an empty cluster keeps its center.

    Parameters
    ----------
    points : ndarray of shape (n, d), float64
    centers : ndarray of shape (k, d), float64
        Where to start.

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
    before = math.inf
    for _ in range(ROUNDS):
        squares = ((points[:, None] - centers) ** 2).sum(axis=2)
        labels, loss = squares.argmin(axis=1), squares.min(axis=1).sum()
        centers = np.array(
            [
                points[labels == j].mean(axis=0) if (labels == j).any() else c
                for j, c in enumerate(centers)
            ]
        )
        if loss >= (1 - CHANGE) * before:
            break
        before = loss
    return centers, labels
