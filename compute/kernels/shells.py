"""Counts of points in shells about centers, and sums of clipped differences.

Kernels read a point's coordinates with the remainders of rounding to the grid. Floats
of one point are added in the order of its features, without reordering, and only
integers are added over points: results are the same for any order and split of the
points.
"""

import math

import numpy as np
from numba import njit

from pkm.compute.kernels.nearest import nearest_with_sq_dists, squared_distances
from pkm.compute.storage.blocks import Arrays
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
#: The integer for one radius in sums, and for one squared radius in costs.
RADIUS_SCALE = 1 << 24


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
        The lower side first. A point lies in one cell of every column. A missing
        entry lies in none.
    """
    is_missing = points.is_missing
    if is_missing is None:
        is_missing = np.empty((0, 0), np.bool_)
    return _count_sides(
        points.rows,
        read_remainders(points),
        read_weights(points),
        is_missing,
        center,
        radii,
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
    is_missing: np.ndarray,
    center: np.ndarray,
    radii: np.ndarray,
) -> np.ndarray:
    # OUT: counts by column, side (0 is the lower one) and shell.
    counts = np.zeros((rows.shape[1], 2, len(radii)), np.int64)
    for i in range(rows.shape[0]):
        for h in range(rows.shape[1]):
            if len(is_missing) and is_missing[i, h]:
                continue
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
    inner_sq_radii = (radii[1:] * radii[1:])[::-1]
    sq_dists = squared_distances(points, centers)
    weights = read_weights(points)
    counts = np.zeros(len(radii), np.int64)
    for block in make_slices(len(sq_dists)):
        inside = np.searchsorted(inner_sq_radii, sq_dists[block])
        shells = len(inner_sq_radii) - inside
        counts += count_labels(shells, weights[block], len(radii))
    return counts


def summarize(
    points: Points,
    centers: np.ndarray,
    radius: float,
    thresholds: np.ndarray,
) -> Arrays:
    """Summarize the points nearest to each center.

    Parameters
    ----------
    points : Points
    centers : ndarray of shape (k, d), int64
        In grid steps. Ties go to the lower index.
    radius : float
        In grid steps: differences to the center are clipped to it in norm.
    thresholds : ndarray of shape (m,), int64
        In grid steps, not decreasing: inner edges of the bins of every column. An edge
        belongs to the bin above it.

    Returns
    -------
    counts : ndarray of shape (k,), int64
        Rows, or their weights in units of 2^-16 records.
    sums : ndarray of shape (k, d), int64
        Sums of the clipped differences, in 2^-24 radii.
    costs : ndarray of shape (1,), int64
        Sum of the squared norms of the clipped differences, in 2^-24 squared radii.
    histograms : ndarray of shape (k, d, m + 1), int64
        Counts by bin of every column, in the same units.

    Examples
    --------
    >>> points = Points.from_grid(np.array([[3], [-9]]))
    >>> center = np.zeros((1, 1), np.int64)
    >>> counts, sums, costs, histograms = summarize(points, center, 6.0, np.array([0]))
    >>> counts.tolist(), (costs / RADIUS_SCALE).tolist(), histograms.tolist()
    ([2], [1.25], [[[1, 1]]])
    """
    nearest, sq_dists = nearest_with_sq_dists(points, centers)
    k, d = centers.shape
    counts = np.zeros(k, np.int64)
    sums = np.zeros((k, d), np.int64)
    costs = np.zeros(1, np.int64)
    histograms = np.zeros((k, d, len(thresholds) + 1), np.int64)
    _summarize(
        points.rows,
        read_weights(points),
        nearest,
        sq_dists,
        centers,
        float(radius),
        thresholds,
        counts,
        sums,
        costs,
        histograms,
    )
    return counts, sums, costs, histograms


@njit(cache=True, nogil=True)
def _summarize(
    rows: np.ndarray,
    weights: np.ndarray,
    labels: np.ndarray,
    sq_dists: np.ndarray,
    centers: np.ndarray,
    radius: float,
    thresholds: np.ndarray,
    counts: np.ndarray,
    sums: np.ndarray,
    costs: np.ndarray,
    histograms: np.ndarray,
) -> None:
    # OUT: counts, sums, costs, histograms.
    for i in range(rows.shape[0]):
        j = labels[i]
        units = weight(weights, i)
        # The most that the row can add to a cost, or in length to a sum. All rows of a
        # record add one radius at most, because their weights add up to one record.
        most = float(RADIUS_SCALE)
        if len(weights):
            most *= units / SCALE
        counts[j] += units
        costs[0] += int(most * min(sq_dists[i] / (radius * radius), 1.0))
        # Neither rounding makes a difference longer than the radius.
        factor = most * SHORTENING / max(math.sqrt(sq_dists[i]), radius)
        for h in range(rows.shape[1]):
            x = np.float64(rows[i, h])
            sums[j, h] += int((x - centers[j, h]) * factor)
            # The bin: the number of edges that are not above the coordinate.
            position = 0
            while position < len(thresholds) and thresholds[position] <= x:
                position += 1
            histograms[j, h, position] += units
