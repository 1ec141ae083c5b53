"""Occupied cells of shifted quadtrees, soft counts on a grid, the nearest of many centers.

Cells are numbered by their integer position, and rows of numbers are packed into keys that are
equal exactly where the rows are: nothing is hashed. Memory is linear in the number of points.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numba import njit
from scipy.spatial import KDTree

from pkm.compute.nearest import nearest_with_squares
from pkm.compute.points import SCALE, Points, squared_norms_of

ROOT_BITS = 19  # the root cell's side is 2**19 steps: eight half-widths
ROOT_LOWER = -2 * SCALE  # its lower end: shifted points lie between -2 and 6 half-widths
KEY_BITS = 63
MAX_DIGIT_BITS = 31  # a key holds one and the number of a row
TREE_DIMENSIONS = 8  # up to here a k-d tree finds the nearest center, above a scan does
#: Centers per leaf of that tree: which of several equally near ones it finds depends on it.
LEAF_SIZE = 16
BLOCK_ROWS = 1 << 16  # points whose nearest centers are found at a time

#: Positions of the cells that indices or a slice select.
CellsAt = Callable[[Any], np.ndarray]


def occupied_cells(
    points: np.ndarray,
    shift: np.ndarray,
    levels: range,
) -> Iterator[tuple[int, CellsAt, np.ndarray]]:
    """Cells of a shifted quadtree that hold a point, level by level, in lexicographic order.

    Parameters
    ----------
    points : ndarray of shape (n, d), int32 or int64
        In grid steps, within two half-widths of the origin.
    shift : ndarray of shape (d,), int64
        Added to the points; from 0 to four half-widths.
    levels : range
        Consecutive, from 0 to 18; cells of level l have the side 2**(19 - l).

    Yields
    ------
    level : int
        From the finest to the coarsest.
    cells_at : callable
        From indices or a slice of the cells to their positions, (m, d), int32: where most cells
        hold one point, the positions of all take more memory than the points.
    counts : ndarray of shape (m,), int64

    Examples
    --------
    >>> points = np.array([[0], [1], [70_000]])
    >>> tree = occupied_cells(points, np.array([0]), range(2, 4))
    >>> [(cells_at([0, -1]).tolist(), counts.tolist()) for _, cells_at, counts in tree]
    [([[2], [3]], [2, 1]), ([[1], [1]], [3])]
    """
    if not levels:
        return
    if levels.step != 1:
        raise ValueError(
            f"levels={levels} must be consecutive: cells are merged from one level to the next"
        )
    offset = shift - ROOT_LOWER
    members = np.arange(len(points))
    weights = None  # points that a member represents: one
    for level in reversed(levels):
        # The one point that lies on the root cell's upper end belongs to the last cell.
        digits = Digits(points, offset, ROOT_BITS - level, (1 << level) - 1, max(level, 1))
        order, is_first = lexicographic_order(digits, members)
        first = np.flatnonzero(is_first)
        if weights is None:
            counts = np.diff(first, append=len(order))
        else:
            counts = np.add.reduceat(weights[order], first)
        yield level, partial(_cells_at, digits, members, order, first), counts

        # From here on a point of each cell represents it, once that saves work.
        if 2 * len(first) <= len(members):
            members = members[order[first]]
            weights = counts


def _cells_at(
    digits: "Digits",
    members: np.ndarray,
    order: np.ndarray,
    first: np.ndarray,
    selected: np.ndarray | slice,
) -> np.ndarray:
    """Positions of the selected cells, (m, d), int32: those of the first member of each."""
    rows = digits.points[members[order[first[selected]]]] + digits.offset
    return np.minimum(rows >> digits.dropped, digits.last).astype(np.int32)


def cell_centers(cells: np.ndarray, shift: np.ndarray, level: int) -> np.ndarray:
    """Centers of cells in grid steps, with the shift taken back: int64."""
    side = 1 << (ROOT_BITS - level)
    return cells * side + (side // 2 + ROOT_LOWER) - shift


@dataclass(frozen=True)
class Digits:
    """Rows of non-negative integers that points stand for, computed where they are needed.

    Number h of point i is ``min((points[i, h] + offset[h]) >> dropped, last)``.

    Parameters
    ----------
    points : ndarray of shape (n, d), int32 or int64
    offset : ndarray of shape (d,), int64
    dropped : int
        Low bits to leave out.
    last : int
        Largest number.
    bits : int
        Of the numbers, from 1 to :data:`MAX_DIGIT_BITS`: they are below 2**bits.
    """

    points: np.ndarray
    offset: np.ndarray
    dropped: int
    last: int
    bits: int


def lexicographic_order(digits: Digits, members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sort rows lexicographically, and mark those that differ from the row before.

    Parameters
    ----------
    digits : Digits
    members : ndarray of shape (m,), int64
        Rows to sort.

    Returns
    -------
    order : ndarray of shape (m,), int64
        Positions in ``members``, equal rows in any order.
    is_first : ndarray of shape (m,), bool
        Whether a row, in that order, is the first of equal ones.

    Examples
    --------
    >>> digits = Digits(np.array([[2, 1], [0, 3], [2, 0]]), np.zeros(2, np.int64), 0, 3, 2)
    >>> order, is_first = lexicographic_order(digits, np.arange(3))
    >>> order.tolist(), is_first.tolist()
    ([1, 2, 0], [True, True, True])
    """
    d = digits.points.shape[1]

    # Sort by as many columns as fit a key.
    n_packed = min(KEY_BITS // digits.bits, d)
    keys = _packed_columns(digits, members, 0, n_packed)
    order = np.argsort(keys)
    is_first = np.ones(len(members), bool)
    mark_first(keys, order, is_first)

    while n_packed < d:
        # Sort rows that are equal so far by more columns, within their run of equal rows.
        tied = np.flatnonzero(is_tied(is_first))
        if not len(tied):
            break
        runs = np.cumsum(is_first[tied])
        width = min((KEY_BITS - len(tied).bit_length()) // digits.bits, d - n_packed)
        columns = _packed_columns(digits, members[order[tied]], n_packed, width)
        keys = runs << (digits.bits * width) | columns
        suborder = np.argsort(keys)
        keys = keys[suborder]
        order[tied] = order[tied][suborder]
        is_first[tied[1:]] = keys[1:] != keys[:-1]
        n_packed += width
    return order, is_first


@njit(cache=True, nogil=True)
def mark_first(keys: np.ndarray, order: np.ndarray, is_first: np.ndarray) -> None:
    """Clear the marks of sorted keys, ``keys[order]``, that equal the one before; all are set."""
    for row in range(1, len(order)):
        is_first[row] = keys[order[row]] != keys[order[row - 1]]


def is_tied(is_first: np.ndarray) -> np.ndarray:
    """Whether a sorted row equals the row before or after it: a mask (m,)."""
    is_last = np.ones(len(is_first), bool)
    is_last[:-1] = is_first[1:]
    return ~(is_first & is_last)


def _packed_columns(digits: Digits, members: np.ndarray, first: int, width: int) -> np.ndarray:
    """Concatenate the bits of columns of the members, the first column in the highest bits."""
    columns = slice(first, first + width)
    keys = np.empty(len(members), np.int64)
    _pack(digits.points[:, columns], digits.offset[columns], digits.dropped, digits.last,
          digits.bits, members, keys)  # fmt: skip
    return keys


@njit(cache=True, nogil=True)
def _pack(
    points: np.ndarray,
    offset: np.ndarray,
    dropped: int,
    last: int,
    bits: int,
    members: np.ndarray,
    keys: np.ndarray,
) -> None:
    for row in range(len(members)):
        i = members[row]
        key = np.int64(0)
        for h in range(len(offset)):
            number = (points[i, h] + offset[h]) >> dropped
            key = key << bits | min(number, last)
        keys[row] = key


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
    tree = KDTree(centers, LEAF_SIZE) if points.shape[1] <= TREE_DIMENSIONS else None
    index = np.empty(len(points), np.int64)
    distance = np.empty(len(points))
    for start in range(0, len(points), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        if tree is not None:
            distance[block], index[block] = tree.query(points[block])
            continue
        rows = points[block].astype(np.float32)
        prepared = Points(rows, squared_norms_of(rows))
        index[block], squares = nearest_with_squares(prepared, centers)
        distance[block] = np.sqrt(squares)
    return index, distance


@njit(cache=True)
def add_soft_counts(points: np.ndarray, intervals: int, counts: np.ndarray) -> None:
    """Spread each point over the 2**d grid nodes around it, by multilinear interpolation weights.

    Parameters
    ----------
    points : ndarray of shape (n, d), int32 or int64
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
