"""Counts of points in shells about a center, and sums of clipped differences.

Kernels read a point's coordinates with the remainders of rounding to the grid. Floats
of one point are added in the order of its features, without reordering, and only
integers are added over points: results are the same for any order and split of the
points.
"""

import math

import numpy as np
from numba import njit

from pkm.compute.kernels.nearest import squared_distances
from pkm.compute.storage.points import (
    SCALE,
    Points,
    coordinate,
    count_labels,
    make_slices,
    read_remainders,
    read_weights,
    weight,
)

#: Clipped differences are shorter by this factor, so that rounding cannot make one
#: longer than the radius.
SHORTENING = 1 - 2.0**-40


def shell_counts(
    points: Points,
    center: np.ndarray,
    radii: np.ndarray,
    *,
    box: bool,
) -> np.ndarray:
    """Count the points of every shell about a center.

    Parameters
    ----------
    points : Points
    center : ndarray of shape (d,), float64
        In half-widths.
    radii : ndarray of shape (m,), float64
        Decreasing, in half-widths. Shell 0 is all that is farther than ``radii[1]``,
        shell j the points with ``radii[j + 1] < distance <= radii[j]``, the last one
        all that is nearer.
    box : bool
        Whether distances are Chebyshev (the largest difference of a coordinate) instead
        of Euclidean.

    Returns
    -------
    ndarray of shape (m,), int64

    Examples
    --------
    >>> points = Points.from_grid(np.array([[0, 0], [SCALE, SCALE]]))
    >>> shell_counts(points, np.zeros(2), np.array([1.5, 1.2, 0.5]), box=False).tolist()
    [1, 0, 1]
    """
    return _count_shells(
        points.rows,
        read_remainders(points),
        read_weights(points),
        center,
        radii,
        box,
    )


def side_counts(
    points: Points,
    center: np.ndarray,
    radii: np.ndarray,
) -> np.ndarray:
    """Count, in every column, the points by side of a center and distance to it.

    Parameters
    ----------
    points : Points
    center : ndarray of shape (d,), float64
        In half-widths.
    radii : ndarray of shape (m,), float64
        As for :func:`shell_counts`, here of distances in one column.

    Returns
    -------
    ndarray of shape (d, 2, m), int64
        The lower side first. A point lies in one cell of every column.
    """
    return _count_sides(
        points.rows, read_remainders(points), read_weights(points), center, radii
    )


def clipped_sum(
    points: Points,
    center: np.ndarray,
    radius: float,
) -> np.ndarray:
    """Sum the differences of points and a center, each clipped in norm to a radius.

    Parameters
    ----------
    points : Points
    center : ndarray of shape (d,), float64
        In half-widths.
    radius : float
        In half-widths.

    Returns
    -------
    ndarray of shape (d,), int64
        In units of 2^-16 radii. Coordinates are rounded toward zero before they are
        added, so that no point adds a vector that is longer than the radius.
    """
    return _sum_clipped(
        points.rows, read_remainders(points), read_weights(points), center, radius
    )


@njit(cache=True, nogil=True)
def _count_shells(
    rows: np.ndarray,
    remainders: np.ndarray,
    weights: np.ndarray,
    center: np.ndarray,
    radii: np.ndarray,
    box: bool,
) -> np.ndarray:
    # Distances in half-widths: for a box the maximum over the features, else the root
    # of the sum of squares, which ``distance`` holds before the last line.
    counts = np.zeros(len(radii), np.int64)
    for i in range(rows.shape[0]):
        distance = 0.0
        for h in range(rows.shape[1]):
            difference = coordinate(rows, remainders, i, h) - center[h]
            if box:
                distance = max(distance, abs(difference))
            else:
                distance += difference * difference
        shell = _find_shell(distance if box else math.sqrt(distance), radii)
        counts[shell] += weight(weights, i)
    return counts


@njit(cache=True, nogil=True)
def _count_sides(
    rows: np.ndarray,
    remainders: np.ndarray,
    weights: np.ndarray,
    center: np.ndarray,
    radii: np.ndarray,
) -> np.ndarray:
    # OUT: counts by column, side (0 is the lower one) and shell.
    counts = np.zeros((rows.shape[1], 2, len(radii)), np.int64)
    for i in range(rows.shape[0]):
        for h in range(rows.shape[1]):
            difference = coordinate(rows, remainders, i, h) - center[h]
            shell = _find_shell(abs(difference), radii)
            counts[h, int(difference > 0), shell] += weight(weights, i)
    return counts


@njit(cache=True)
def _find_shell(distance: float, radii: np.ndarray) -> int:
    """Shell of a distance: the last one with ``distance <= radii[shell]``, or 0."""
    shell = 0
    while shell + 1 < len(radii) and distance <= radii[shell + 1]:
        shell += 1
    return shell


@njit(cache=True, nogil=True)
def _sum_clipped(
    rows: np.ndarray,
    remainders: np.ndarray,
    weights: np.ndarray,
    center: np.ndarray,
    radius: float,
) -> np.ndarray:
    # OUT: total, in units of 2^-16 radii. Integers are added, so the order of the
    # points does not matter.
    d = rows.shape[1]
    total = np.zeros(d, np.int64)
    differences = np.empty(d)
    for i in range(rows.shape[0]):
        squared = 0.0
        for h in range(d):
            difference = coordinate(rows, remainders, i, h) - center[h]
            differences[h] = difference
            squared += difference * difference
        # Differences in units of 2^-16 radii: clipped to the norm SCALE, then truncated
        # toward zero, so that neither rounding makes one longer.
        factor = SCALE * SHORTENING / max(math.sqrt(squared), radius)
        if len(weights):
            factor *= weights[i] / SCALE
        for h in range(d):
            total[h] += int(differences[h] * factor)
    return total


def nearest_shells(
    points: Points,
    centers: np.ndarray,
    radii: np.ndarray,
) -> np.ndarray:
    """Count the points by their distance to the nearest center.

    Parameters
    ----------
    points : Points
    centers : ndarray of shape (k, d), int64
        In grid steps.
    radii : ndarray of shape (m,), float64
        Decreasing, in grid steps. Shell 0 is all that is farther than ``radii[1]``,
        shell j the points with ``radii[j + 1] < distance <= radii[j]``, the last one
        all that is nearer.

    Returns
    -------
    ndarray of shape (m,), int64
    """
    # A point's shell is the number of inner radii that its distance does not exceed.
    inner_squares = (radii[1:] * radii[1:])[::-1]
    squares = squared_distances(points, centers)
    weights = read_weights(points)
    counts = np.zeros(len(radii), np.int64)
    for block in make_slices(len(squares)):
        inside = np.searchsorted(inner_squares, squares[block])
        shells = len(inner_squares) - inside
        counts += count_labels(shells, weights[block], len(radii))
    return counts
