"""Occupied cells of shifted quadtrees, soft counts on a grid, the nearest of many centers.

Cells are numbered by their integer position, and rows of numbers are packed into keys that are
equal exactly where the rows are: nothing is hashed. Memory is linear in the number of points.
"""

from collections.abc import Iterator

import numpy as np
from numba import njit
from scipy.spatial import KDTree

from pkm.compute.points import SCALE

ROOT_BITS = 19  # the root cell's side is 2**19 steps: eight half-widths
ROOT_LOWER = -2 * SCALE  # its lower end: shifted points lie between -2 and 6 half-widths
KEY_BITS = 63
TREE_DIMENSIONS = 8  # up to here a k-d tree finds the nearest center, above a matrix product does
#: Centers per leaf of that tree: which of several equally near ones it finds depends on it.
LEAF_SIZE = 16
MAX_PRODUCTS = 1 << 17  # inner products at a time: a megabyte, which the cache holds


def occupied_cells(
    points: np.ndarray,
    shift: np.ndarray,
    levels: range,
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Cells of a shifted quadtree that hold a point, level by level.

    Parameters
    ----------
    points : ndarray of shape (n, d), int64
        In grid steps, within two half-widths of the origin.
    shift : ndarray of shape (d,), int64
        Added to the points; from 0 to four half-widths.
    levels : range
        Consecutive, from 0 to 18; cells of level l have the side 2**(19 - l).

    Yields
    ------
    level : int
        From the finest to the coarsest.
    cells : ndarray of shape (m, d), int32
        Positions, in lexicographic order.
    counts : ndarray of shape (m,), int64

    Examples
    --------
    >>> points = np.array([[0], [1], [70_000]])
    >>> tree = occupied_cells(points, np.array([0]), range(2, 4))
    >>> [(cells.tolist(), counts.tolist()) for _, cells, counts in tree]
    [([[2], [3]], [2, 1]), ([[1]], [3])]
    """
    if not levels:
        return
    if levels.step != 1:
        raise ValueError(
            f"levels={levels} must be consecutive: cells are merged from one level to the next"
        )
    finest = levels[-1]
    # Positions are below 2**18: int32 halves what is moved.
    cells = np.empty(points.shape, np.int32)
    for h, column in enumerate(points.T):
        positions = (column + (shift[h] - ROOT_LOWER)) >> (ROOT_BITS - finest)
        # The one point that lies on the root cell's upper end belongs to the last cell.
        cells[:, h] = np.minimum(positions, (1 << finest) - 1)
    counts = np.ones(len(cells), np.int64)
    for level in reversed(levels):
        cells, counts = _merge_equal(cells, counts, max(level, 1))
        yield level, cells, counts
        cells = cells >> 1


def cell_centers(cells: np.ndarray, shift: np.ndarray, level: int) -> np.ndarray:
    """Centers of cells in grid steps, with the shift taken back: int64."""
    side = 1 << (ROOT_BITS - level)
    return cells * side + (side // 2 + ROOT_LOWER) - shift


def _merge_equal(cells: np.ndarray, counts: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Distinct rows in lexicographic order, and the sums of their counts."""
    if not len(cells):
        return cells, counts
    keys = row_keys(cells, bits)
    # Rows of equal keys are equal: any of them comes first.
    order = np.argsort(keys)
    keys = keys[order]
    is_first = np.r_[True, keys[1:] != keys[:-1]]
    first = np.flatnonzero(is_first)
    return cells[order[first]], np.add.reduceat(counts[order], first)


def row_keys(rows: np.ndarray, bits: int) -> np.ndarray:
    """Integer keys of rows: in the rows' lexicographic order, and equal only where the rows are.

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
    keys = _pack_columns(rows[:, :width], bits)
    n_packed = width
    while n_packed < d:
        # Replace the packed columns by their rank, which leaves bits for more columns.
        distinct, ranks = np.unique(keys, return_inverse=True)
        if len(distinct) == m:
            # No two rows are equal so far: the other columns decide nothing.
            return keys
        width = (KEY_BITS - m.bit_length()) // bits
        columns = rows[:, n_packed : n_packed + width]
        shifted_ranks = ranks.astype(np.int64) << (bits * columns.shape[1])
        keys = shifted_ranks | _pack_columns(columns, bits)
        n_packed += width
    return keys


def _pack_columns(rows: np.ndarray, bits: int) -> np.ndarray:
    """Concatenate the bits of the columns of each row, the first column in the highest bits."""
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
        distance, index = KDTree(centers, LEAF_SIZE).query(points)
        return np.asarray(index, np.int64), np.asarray(distance)
    transposed = centers.T.astype(np.float64)
    squared_norms = (centers.astype(np.float64) ** 2).sum(axis=1)
    index = np.empty(len(points), np.int64)
    distance = np.empty(len(points))
    block_size = max(1, MAX_PRODUCTS // len(centers))
    for start in range(0, len(points), block_size):
        block = slice(start, start + block_size)
        rows = points[block].astype(np.float64)
        scores = squared_norms - 2.0 * (rows @ transposed)
        index[block] = scores.argmin(axis=1)
        least = np.take_along_axis(scores, index[block, None], axis=1)[:, 0]
        squares = least + np.einsum("ij,ij->i", rows, rows)
        distance[block] = np.sqrt(squares)
    return index, distance


@njit(cache=True)
def add_soft_counts(points: np.ndarray, intervals: int, counts: np.ndarray) -> None:
    """Spread each point over the 2**d grid nodes around it, by multilinear interpolation weights.

    Parameters
    ----------
    points : ndarray of shape (n, d), int64
        In the domain, in grid steps.
    intervals : int
        Number of equal intervals per feature, between the ends of the domain.
    counts : ndarray of shape ((intervals + 1)**d,), int64
        Added to, in units of 2**-16 points: each weight is rounded to a whole number, so that sums
        are exact.
    """
    n, d = points.shape
    intervals_per_step = intervals / (2.0 * SCALE)
    lower_node = np.empty(d, np.int64)
    upper_weight = np.empty(d)
    for i in range(n):
        # The node below the point in each feature, and the weight of the node above.
        for h in range(d):
            position = (points[i, h] + SCALE) * intervals_per_step
            lower_node[h] = min(np.int64(position), intervals - 1)
            upper_weight[h] = position - lower_node[h]

        # A corner of the cell is a bit per feature: whether it is the node above.
        for corner in range(1 << d):
            node = 0
            weight = 1.0
            for h in range(d):
                upper = (corner >> h) & 1
                node = node * (intervals + 1) + lower_node[h] + upper
                weight *= upper_weight[h] if upper else 1.0 - upper_weight[h]
            counts[node] += np.int64(np.rint(weight * SCALE))
