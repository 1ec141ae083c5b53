"""Lloyd's algorithm on the points of one client of federated clustering."""

import numpy as np

from pkm.compute import converged_lloyd

MAX_ITER = 300
TOLERANCE = 1e-3  # smallest relative decrease of the loss


def local_lloyd(
    points: np.ndarray, centers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Run Lloyd's algorithm until the loss decreases by less than a thousandth.

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
    >>> points = np.array([[0.0], [2.0], [9.0]])
    >>> centers, labels = local_lloyd(points, np.array([[0.0], [9.0]]))
    >>> centers.ravel().tolist(), labels.tolist()
    ([1.0, 9.0], [0, 0, 1])
    """
    moved = np.array(centers, np.float64)
    labels = converged_lloyd(np.ascontiguousarray(points), moved, TOLERANCE, MAX_ITER)
    return moved, labels
