"""Occupied cells of shifted quadtrees, and multilinear counts on a grid.

A cell is named by its integer coordinates on its level. Rows of such coordinates are
packed into integer keys that are equal exactly where the rows are: nothing is hashed.
Memory is linear in the number of points.
"""

import itertools
import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from pkm.compute.kernels.radix_sort import differs_from_previous, radix_argsort
from pkm.compute.storage.points import SCALE

ROOT_BITS = 19  # the root cell's side is 2**19 steps: eight half-widths
#: Lower end of the root cell: shifted points lie between -2 and 6 half-widths.
ROOT_LOWER = -2 * SCALE
N_KEYS = 1 << 63  # number of non-negative int64
MAX_NUMBERS = 1 << 31  # values of a column: a key holds one and a row number
FIRST_MEMBERS = 16  # candidates per point that :func:`_first_members` looks for

#: Function from indices or a slice of cells to their coordinates (m, d).
CellsAt = Callable[[Any], np.ndarray]
#: Smallest and largest coordinates of points.
Span = tuple[np.ndarray, np.ndarray]


def occupied_cells(
    points: np.ndarray,
    shift: np.ndarray,
    levels: range,
) -> Iterator[tuple[int, CellsAt, np.ndarray]]:
    """Cells of a shifted quadtree that hold a point, level by level.

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
        Levels from the finest to the coarsest.
    cells_at : callable
        Function from indices or a slice of the cells to their coordinates, (m, d),
        int32. Where most cells hold one point, the coordinates of all would take more
        memory than the points.
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
            f"levels={levels} must be consecutive: "
            "cells are merged from one level to the next"
        )
    for level, cells in _merged_cells(points, find_span(points), shift, levels):
        yield level, cells.positions, cells.counts


def fullest_occupied_cells(
    points: np.ndarray,
    shifts: np.ndarray,
    last_level: int,
    n_fullest: int,
) -> Iterator[tuple[int, int, np.ndarray, np.ndarray]]:
    """Cells with the highest counts on each level; ties in lexicographic order.

    Parameters
    ----------
    points : ndarray of shape (n, d), int32 or int64
        As for :func:`occupied_cells`.
    shifts : ndarray of shape (n_trees, d), int64
    last_level : int
        Levels from 0 to this one.
    n_fullest : int
        Number of cells of each level; all where there are fewer.

    Yields
    ------
    tree, level : int
        Levels of a tree in any order.
    positions : ndarray of shape (m, d), int32
        By count, from the highest; of equal counts in lexicographic order.
    counts : ndarray of shape (m,), int64

    Examples
    --------
    >>> points = np.array([[0], [1], [70_000]])
    >>> fullest = fullest_occupied_cells(points, np.array([[0]]), 3, 1)
    >>> sorted((level, *map(np.ndarray.tolist, rest)) for _, level, *rest in fullest)
    [(0, [[0]], [3]), (1, [[0]], [3]), (2, [[1]], [3]), (3, [[2]], [2])]
    """
    n = len(points)
    span = find_span(points)
    ascending = np.argsort(points[:, 0])
    # From the level ``start`` upward (coarser), the points of a cell are merged.
    # Downward (finer), points that are alone in their cell are left out. That saves
    # most if start is the finest level that had at most half as many cells as points in
    # the last tree.
    start = last_level // 2
    for tree, shift in enumerate(shifts):
        merged_level = 0
        merged = _merged_cells(points, span, shift, range(start + 1))
        _, cells = next(merged)
        if 2 * len(cells.first) <= n:
            merged_level = start
        yield tree, start, *cells.fullest(n_fullest)

        # Points that are alone in a cell are alone on all finer levels.
        shared = cells.shared_members()
        del cells
        for level in range(start + 1, last_level + 1):
            shifted = _number_cells(points, span, shift, level)
            cells = _find_cells(shifted, shared)
            n_alone = n - len(shared)
            if 2 * (n_alone + len(cells.first)) <= n:
                merged_level = level
            shared = cells.shared_members()
            positions, counts = cells.fullest(n_fullest)
            n_shared = int(np.count_nonzero(counts > 1))
            if n_shared < n_fullest:
                # Fill up with cells of one point, the lexicographically first.
                is_alone = np.ones(n, bool)
                is_alone[shared] = False
                alone = _first_members(
                    shifted, ascending, is_alone, n_fullest - n_shared
                )
                positions = np.concatenate([positions[:n_shared], shifted.rows(alone)])
                counts = np.concatenate(
                    [counts[:n_shared], np.ones(len(alone), np.int64)]
                )
            yield tree, level, positions, counts
            del cells
        del shared

        for level, cells in merged:
            if 2 * len(cells.first) <= n:
                merged_level = max(level, merged_level)
            yield tree, level, *cells.fullest(n_fullest)
        start = merged_level


def cell_centers(
    cells: np.ndarray,
    shift: np.ndarray,
    level: int,
) -> np.ndarray:
    """Centers of cells in grid steps, with the shift taken back: int64."""
    # Half a side beyond the cell's lower corner.
    side = 1 << (ROOT_BITS - level)
    return cells * side + (side // 2 + ROOT_LOWER) - shift


@dataclass(frozen=True)
class ShiftedRows:
    """Points plus an offset, without their low bits, such as the cells they lie in.

    Rows are computed where they are needed, not stored. Entry h of row i is
    ``min((points[i, h] + offset[h]) >> dropped, last)``.

    Parameters
    ----------
    points : ndarray of shape (n, d), int32 or int64
    span : Span
        Span of the points, or wider.
    offset : ndarray of shape (d,), int64
    dropped : int, default=0
        Number of low bits that are dropped.
    last : int, optional
        Upper bound of the entries. Default: none.
    """

    points: np.ndarray
    span: Span
    offset: np.ndarray
    dropped: int = 0
    last: int = N_KEYS - 1

    @property
    def bounds(self) -> Span:
        """Smallest and largest entry of each column, or wider."""
        lowest, highest = self.span
        return self._numbers(lowest), self._numbers(highest)

    def rows(self, members: np.ndarray) -> np.ndarray:
        """Rows (m, d), int32, of points by their indices."""
        return self._numbers(self.points[members]).astype(np.int32)

    def _numbers(self, rows: np.ndarray) -> np.ndarray:
        return np.minimum((rows + self.offset) >> self.dropped, self.last)


class Cells(NamedTuple):
    """Cells of one level that hold some of the points, the members.

    A member may represent several points that share its cell.

    Attributes
    ----------
    shifted : ShiftedRows
        Cell coordinates of all points.
    members : ndarray of shape (m,), int64
        Indices of points.
    order : ndarray of shape (m,), int32 or int64
        Order of the members, by their cells in lexicographic order.
    first : ndarray of shape (n_cells,), int64
        Where cells start in that order.
    counts : ndarray of shape (n_cells,), int64
        Numbers of points, all those included that members represent.
    """

    shifted: ShiftedRows
    members: np.ndarray
    order: np.ndarray
    first: np.ndarray
    counts: np.ndarray

    def positions(self, selected: Any) -> np.ndarray:
        """Positions (c, d), int32, of the cells that indices or a slice select."""
        return self.shifted.rows(self.members[self.order[self.first[selected]]])

    def fullest(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions and counts of the n fullest cells, the first ones among equal."""
        # Radix sort by falling count; it is stable, so ties stay in lexicographic
        # order.
        largest = int(self.counts.max(initial=0))
        fullest = radix_argsort(largest - self.counts, largest.bit_length())[0][:n]
        return self.positions(fullest), self.counts[fullest]

    def shared_members(self) -> np.ndarray:
        """Members that share their cell, in order; each must represent one point."""
        is_shared = np.empty(len(self.members), bool)
        is_shared[self.order] = np.repeat(self.counts > 1, self.counts)
        return self.members[is_shared]


def _number_cells(
    points: np.ndarray,
    span: Span,
    shift: np.ndarray,
    level: int,
) -> ShiftedRows:
    """Coordinates of the cells of a level."""
    # A point on the upper end of the root cell belongs to the last cell.
    last = (1 << level) - 1
    return ShiftedRows(
        points,
        span,
        shift - ROOT_LOWER,
        ROOT_BITS - level,
        last,
    )


def find_span(points: np.ndarray) -> Span:
    """Smallest and largest of zero and the coordinates of points, each (d,), int64."""
    lowest = points.min(axis=0, initial=0)
    highest = points.max(axis=0, initial=0)
    return lowest.astype(np.int64), highest.astype(np.int64)


def _find_cells(
    shifted: ShiftedRows,
    members: np.ndarray,
    weights: np.ndarray | None = None,
) -> Cells:
    """Cells of the members; a member counts as its weight, or as one."""
    order, is_first = lexicographic_order(shifted, members)
    first = np.flatnonzero(is_first)
    if weights is None:
        counts = np.diff(first, append=len(order))
    else:
        counts = np.add.reduceat(weights[order], first)
    return Cells(shifted, members, order, first, counts)


def _merged_cells(
    points: np.ndarray,
    span: Span,
    shift: np.ndarray,
    levels: range,
) -> Iterator[tuple[int, Cells]]:
    """Levels and cells, from the finest on; a member represents its cell's points."""
    members = np.arange(len(points))
    weights = None
    for level in reversed(levels):
        cells = _find_cells(_number_cells(points, span, shift, level), members, weights)
        yield level, cells

        # Once at most half of the members are needed, one per cell represents it.
        if 2 * len(cells.first) <= len(members):
            members = members[cells.order[cells.first]]
            weights = cells.counts
        del cells


def _first_members(
    shifted: ShiftedRows,
    ascending: np.ndarray,
    is_selected: np.ndarray,
    n: int,
) -> np.ndarray:
    """The n selected points that are first in lexicographic order; all differ.

    Parameters
    ----------
    shifted : ShiftedRows
    ascending : ndarray of shape (points,), int64
        All points, by their first coordinate.
    is_selected : ndarray of shape (points,), bool
    n : int
        Fewer points are returned where fewer are selected.
    """
    size = FIRST_MEMBERS * n
    while True:
        candidates = ascending[:size]
        selected = candidates[is_selected[candidates]]
        if size >= len(ascending):
            break
        # The points after the candidates have at least the first coordinate of the last
        # candidate: smaller ones are complete.
        numbers = (
            shifted.points[:, 0][selected] + shifted.offset[0]
        ) >> shifted.dropped
        last = (
            shifted.points[candidates[-1], 0] + shifted.offset[0]
        ) >> shifted.dropped
        selected = selected[numbers < last]
        if len(selected) >= n:
            break
        size *= 4
    order, _ = lexicographic_order(shifted, selected)
    return selected[order[:n]]


def lexicographic_order(
    shifted: ShiftedRows, members: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Sort rows lexicographically, and mark those that differ from the row before.

    Parameters
    ----------
    shifted : ShiftedRows
    members : ndarray of shape (m,), int64
        Rows to sort.

    Returns
    -------
    order : ndarray of shape (m,), int32 or int64
        Positions in ``members``; equal rows are in the order of these.
    is_first : ndarray of shape (m,), bool
        Whether a row, in that order, is the first of equal ones.

    Examples
    --------
    >>> points = np.array([[2, 1], [0, 3], [2, 0]])
    >>> shifted = ShiftedRows(points, find_span(points), np.zeros(2, int))
    >>> order, is_first = lexicographic_order(shifted, np.arange(3))
    >>> order.tolist(), is_first.tolist()
    ([1, 2, 0], [True, True, True])
    """
    lowest, highest = shifted.bounds
    sizes = (highest - lowest + 1).tolist()

    # Sort by as many columns as fit a key.
    strides, n_values = _strides(sizes, N_KEYS)
    pack = partial(
        _pack_rows,
        shifted.points,
        shifted.offset,
        shifted.dropped,
        shifted.last,
        lowest,
    )
    keys = pack(strides, 0, members)
    order, keys = radix_argsort(keys, (n_values - 1).bit_length())
    is_first = differs_from_previous(keys)
    n_packed = len(strides)

    while n_packed < len(sizes):
        # Invariant: rows are sorted by the first n_packed columns. Sort runs of equal
        # rows by more columns; a key is the number of the run and the packed columns.
        tied = np.flatnonzero(is_tied(is_first))
        if not len(tied):
            break
        runs = np.cumsum(is_first[tied]) - 1
        n_runs = int(runs[-1]) + 1
        strides, n_values = _strides(sizes[n_packed:], N_KEYS // n_runs)
        keys = pack(strides, n_packed, members[order[tied]])
        keys += runs * n_values
        suborder, keys = radix_argsort(keys, (n_runs * n_values - 1).bit_length())
        order[tied] = order[tied][suborder]
        is_first[tied] = differs_from_previous(keys)
        n_packed += len(strides)
    return order, is_first


def is_tied(is_first: np.ndarray) -> np.ndarray:
    """Whether a sorted row equals the row before or after it: a mask (m,)."""
    is_last = np.ones(len(is_first), bool)
    is_last[:-1] = is_first[1:]
    return ~(is_first & is_last)


def _strides(sizes: list[int], n_keys: int) -> tuple[np.ndarray, int]:
    """Strides that pack the first columns into one key; the last is 1.

    Parameters
    ----------
    sizes : list of int
        Numbers of values per column.
    n_keys : int
        Largest number of keys that the packed columns may make.

    Returns
    -------
    strides : ndarray of shape (columns,), int64
    n_values : int
        Number of keys that the columns make.
    """
    n_columns = sum(
        n_values <= n_keys for n_values in itertools.accumulate(sizes, operator.mul)
    )
    strides = [math.prod(sizes[column + 1 : n_columns]) for column in range(n_columns)]
    return np.array(strides, np.int64), math.prod(sizes[:n_columns])


@njit(cache=True, nogil=True)
def _pack_rows(
    points: np.ndarray,
    offset: np.ndarray,
    dropped: int,
    last: int,
    lowest: np.ndarray,
    strides: np.ndarray,
    column: int,
    members: np.ndarray,
) -> np.ndarray:
    """Pack some columns of each member into a key, in mixed radix.

    Column ``column + h`` counts in units of ``strides[h]``.
    """
    keys = np.empty(len(members), np.int64)
    for row in range(len(members)):
        i = members[row]
        key = 0
        for h in range(len(strides)):
            number = (points[i, column + h] + offset[column + h]) >> dropped
            key += (min(number, last) - lowest[column + h]) * strides[h]
        keys[row] = key
    return keys


@njit(cache=True)
def add_soft_counts(
    points: np.ndarray,
    intervals: int,
    counts: np.ndarray,
) -> None:
    """Add each point to the 2**d grid nodes around it, with multilinear weights.

    Parameters
    ----------
    points : ndarray of shape (n, d), int32 or int64
        In the domain, in grid steps.
    intervals : int
        Number of equal intervals per feature, between the ends of the domain.
    counts : ndarray of shape ((intervals + 1)**d,), int64
        Added to, in units of 2**-16 points: each weight is rounded to a whole number,
        so that sums are exact.
    """
    # OUT: counts, in C order over the features.
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

        # Bit h of a corner tells whether it is the upper node in feature h.
        for corner in range(1 << d):
            node = 0
            weight = 1.0
            for h in range(d):
                upper = (corner >> h) & 1
                node = node * (intervals + 1) + lower_node[h] + upper
                weight *= upper_weight[h] if upper else 1.0 - upper_weight[h]
            counts[node] += np.int64(np.rint(weight * SCALE))
