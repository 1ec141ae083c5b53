"""Lloyd's algorithm on weighted points."""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def weighted_lloyd(points, weights, centers, tolerance, iterations):
    """Move centers to weighted means until they stand still; a center without points goes where the cost is largest.

    Sums run over the points in order, so that results do not depend on a library's blocking.

    Parameters
    ----------
    points : ndarray of shape (m, d), float64
    weights : ndarray of shape (m,), float64
    centers : ndarray of shape (k, d), float64
        Changed in place.
    tolerance : float
        Sum of squared moves at which to stop.
    iterations : int
        At most.
    """
    (m, d), k = points.shape, len(centers)
    sizes, moved = np.empty(k), np.empty((k, d))
    for _ in range(iterations):
        sizes[:], moved[:] = 0.0, 0.0
        costliest, largest = 0, -1.0
        for i in range(m):
            member, nearest = 0, np.inf
            for j in range(k):
                square = 0.0
                for h in range(d):
                    step = points[i, h] - centers[j, h]
                    square += step * step
                if square < nearest:
                    member, nearest = j, square
            sizes[member] += weights[i]
            for h in range(d):
                moved[member, h] += weights[i] * points[i, h]
            if nearest * weights[i] > largest:
                costliest, largest = i, nearest * weights[i]
        shift = 0.0
        for j in range(k):
            for h in range(d):
                moved[j, h] = moved[j, h] / sizes[j] if sizes[j] > 0 else points[costliest, h]
                step = moved[j, h] - centers[j, h]
                shift += step * step
                centers[j, h] = moved[j, h]
        if shift <= tolerance:
            break
