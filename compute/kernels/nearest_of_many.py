"""Nearest of many centers: far fewer distances than pairs of a point and a center."""

import math

import numpy as np
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist

from pkm.compute.kernels.nearest import nearest_with_squares
from pkm.compute.kernels.radix_sort import differs_from_previous, radix_argsort
from pkm.compute.storage.points import Points, squared_norms_of

TREE_DIMENSIONS = 8  # up to here a k-d tree finds the nearest center, above a scan does
#: Centers per leaf of that tree: which of several equally near ones it finds depends on it.
LEAF_SIZE = 16
BLOCK_ROWS = 1 << 16  # points whose nearest centers are found at a time
MAX_EXPONENT = 63  # of a squared distance that is exact, or above
MAX_SHARE = 0.25  # of the centers: a part of the points is compared with so many, or with all


def nearest_of_many(points: np.ndarray, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nearest of many centers for each point: a function of the point and the centers alone.

    Parameters
    ----------
    points : ndarray of shape (n, d), int32 or int64
        Below 2**24 in size.
    centers : ndarray of shape (m, d), int64
        In grid steps, like the points small enough that squared distances are exact in float64.

    Returns
    -------
    index : ndarray of shape (n,), int64
    distance : ndarray of shape (n,), float64
        In grid steps.

    Examples
    --------
    >>> nearest_of_many(np.array([[0, 0], [7, 4]]), np.array([[4, 0], [1, 0]]))
    (array([1, 0]), array([1., 5.]))
    """
    index = np.empty(len(points), np.int64)
    distance = np.empty(len(points))
    blocks = [slice(row, row + BLOCK_ROWS) for row in range(0, len(points), BLOCK_ROWS)]

    if points.shape[1] <= TREE_DIMENSIONS:
        tree = KDTree(centers, LEAF_SIZE)
        for block in blocks:
            distance[block], index[block] = tree.query(points[block])
        return index, distance

    # Pivots: some of the centers, with their distances to all.
    pivots = np.linspace(0, len(centers) - 1, math.isqrt(len(centers)), dtype=int)
    between = cdist(centers[pivots], centers, "sqeuclidean")
    for block in blocks:
        index[block], squares = _nearest_by_pivots(points[block], centers, pivots, between)
        distance[block] = np.sqrt(squares)
    return index, distance


def _nearest_by_pivots(
    points: np.ndarray, centers: np.ndarray, pivots: np.ndarray, between: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Index and squared distance of each point's nearest center, both (b,).

    A center that is as near as a pivot lies, by the triangle inequality, at most twice as far from
    the pivot as the point does. So points near one pivot, at like distances from it, are compared
    with such centers alone. All squares are whole numbers: no rounding leaves out a center.

    Parameters
    ----------
    points : ndarray of shape (b, d), int32 or int64
    centers : ndarray of shape (m, d), int64
    pivots : ndarray of shape (p,), int64
        Some of the centers.
    between : ndarray of shape (p, m), float64
        Squared distances of these to all centers.
    """
    rows = points.astype(np.float32)
    norms = squared_norms_of(rows)
    pivot, squares = nearest_with_squares(Points(rows, norms), centers[pivots])
    index = np.empty(len(points), np.int64)

    # Part the points by their pivots and the exponents of their squared distances.
    exponent_bits = MAX_EXPONENT.bit_length()
    parts = pivot.astype(np.int64) << exponent_bits | np.frexp(squares)[1]
    order, parts = radix_argsort(parts, len(pivots).bit_length() + exponent_bits)
    starts = np.flatnonzero(differs_from_previous(parts))

    # Compare each part with the centers near its pivot, or with all where these are not few.
    with_all = [order[:0]]
    for part in np.split(order, starts[1:]):
        near = np.flatnonzero(between[pivot[part[0]]] <= 4 * squares[part].max())
        if len(near) > MAX_SHARE * len(centers):
            with_all.append(part)
            continue
        selected = Points(rows[part], norms[part])
        nearest, squares[part] = nearest_with_squares(selected, centers[near])
        index[part] = near[nearest]
    rest = np.concatenate(with_all)
    if len(rest):
        selected = Points(rows[rest], norms[rest])
        index[rest], squares[rest] = nearest_with_squares(selected, centers)
    return index, squares
