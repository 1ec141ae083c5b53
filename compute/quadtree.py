"""Occupied cells of randomly shifted quadtrees, soft counts on a grid, and the nearest of many centers.

Cells are numbered by their integer position, and rows of numbers are packed into keys that are equal exactly where the
rows are: nothing is hashed. Memory is linear in the number of points.
"""

from collections.abc import Iterator

import numpy as np
from numba import njit
from scipy.spatial import cKDTree

from pkm.compute.nearest import SCALE

TOP = 19  # the top cell's side is 2**19 steps: eight half-widths
LOWEST = -2 * SCALE  # its lower end: shifted points lie between -2 and 6 half-widths
KEY_BITS = 63
TREE_DIMENSIONS = 8  # up to here a k-d tree finds the nearest center, above a matrix product does
PRODUCTS = 1 << 22  # inner products at a time


def occupied(
    points: np.ndarray, shift: np.ndarray, levels: range
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Cells of a shifted quadtree that hold a point, level by level.

    Parameters
    ----------
    points : ndarray of shape (n, d), int64
        In grid steps, within two half-widths of the middle.
    shift : ndarray of shape (d,), int64
        Added to the points; from 0 to four half-widths.
    levels : range
        Consecutive, from 0 to 18; cells of level l have the side 2**(19 - l).

    Yields
    ------
    level : int
        From the finest to the coarsest.
    cells : ndarray of shape (m, d), int64
        Positions, in lexicographic order.
    counts : ndarray of shape (m,), int64

    Examples
    --------
    >>> points = np.array([[0], [1], [70_000]])
    >>> [(cells.tolist(), counts.tolist()) for _, cells, counts in occupied(points, np.array([0]), range(2, 4))]
    [([[2], [3]], [2, 1]), ([[1]], [3])]
    """
    if not levels:
        return
    if levels.step != 1:
        raise ValueError(
            f"levels={levels} must be consecutive: cells are merged from one level to the next"
        )
    side = TOP - levels[-1]
    # The one point that lies on the top cell's upper end belongs to the last cell.
    cells = np.minimum((points + (shift - LOWEST)) >> side, (1 << levels[-1]) - 1)
    counts = np.ones(len(cells), np.int64)
    for level in reversed(levels):
        cells, counts = _merged(cells, counts, max(level, 1))
        yield level, cells, counts
        cells = cells >> 1


def middles(cells: np.ndarray, shift: np.ndarray, level: int) -> np.ndarray:
    """Middles of cells in grid steps, with the shift taken back: int64."""
    side = 1 << (TOP - level)
    return cells * side + (side // 2 + LOWEST) - shift


def _merged(cells, counts, bits) -> tuple[np.ndarray, np.ndarray]:
    """Distinct rows in lexicographic order, and the sums of their counts."""
    keys = row_keys(cells, bits)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    first = (
        np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]]) if len(keys) else np.empty(0, np.int64)
    )
    if not len(first):
        return cells, counts
    return cells[order[first]], np.add.reduceat(counts[order], first)


def row_keys(rows: np.ndarray, bits: int) -> np.ndarray:
    """Integers that stand for rows: in the rows' lexicographic order, and equal only where the rows are.

    Parameters
    ----------
    rows : ndarray of shape (m, d), int64
        Values in [0, 2**bits).
    bits : int
        From 1 to 31.

    Returns
    -------
    ndarray of shape (m,), int64

    Examples
    --------
    >>> row_keys(np.array([[0, 3], [2, 1]]), 2).tolist()
    [3, 9]
    """
    m, d = rows.shape
    width = KEY_BITS // bits
    keys, column = _packed(rows[:, :width], bits), width
    while column < d:
        # What is packed so far is replaced by its rank, which leaves room for more columns.
        _, keys = np.unique(keys, return_inverse=True)
        width = (KEY_BITS - m.bit_length()) // bits
        some = rows[:, column : column + width]
        keys = (keys.astype(np.int64) << (bits * some.shape[1])) | _packed(some, bits)
        column += width
    return keys


def _packed(rows, bits) -> np.ndarray:
    keys = np.zeros(len(rows), np.int64)
    for column in rows.T:
        keys = (keys << bits) | column
    return keys


def nearest_of_many(points: np.ndarray, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nearest of many centers for each point: a function of the point and the centers alone.

    Parameters
    ----------
    points : ndarray of shape (n, d), int64
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
    if points.shape[1] <= TREE_DIMENSIONS:
        distance, index = cKDTree(centers).query(points)
        return index.astype(np.int64, copy=False), distance
    flat, squares = centers.T.astype(np.float64), (centers.astype(np.float64) ** 2).sum(axis=1)
    index, distance = np.empty(len(points), np.int64), np.empty(len(points))
    rows = max(1, PRODUCTS // len(centers))
    for start in range(0, len(points), rows):
        some = slice(start, start + rows)
        block = points[some].astype(np.float64)
        scores = squares - 2.0 * (block @ flat)
        index[some] = scores.argmin(axis=1)
        distance[some] = np.sqrt(scores.min(axis=1) + (block * block).sum(axis=1))
    return index, distance


@njit(cache=True)
def add_soft_counts(points, intervals, counts):
    """Spread each point over the nodes around it, by how near it is to each, column by column.

    Parameters
    ----------
    points : ndarray of shape (n, d), int64
        In the domain, in grid steps.
    intervals : int
        Between the ends of the domain, per column.
    counts : ndarray of shape ((intervals + 1)**d,), int64
        Added to, in units of 2**-16 points: each weight is rounded to a whole number, so that sums are exact.
    """
    n, d = points.shape
    below, part = np.empty(d, np.int64), np.empty(d)
    for i in range(n):
        for h in range(d):
            place = (points[i, h] + SCALE) * (intervals / (2.0 * SCALE))
            below[h] = min(np.int64(place), intervals - 1)
            part[h] = place - below[h]
        for corner in range(1 << d):
            node, weight = 0, 1.0
            for h in range(d):
                above = (corner >> h) & 1
                node = node * (intervals + 1) + below[h] + above
                weight *= part[h] if above else 1.0 - part[h]
            counts[node] += np.int64(np.rint(weight * SCALE))
