"""Points sorted into cells: codes on a grid, a stable partition of their indices, counts and sums of cells.

A tree of cells is grown over an array of indices. A cell is a stretch of it, a split a stable partition of the stretch
by one column of the codes, so that the points of a cell always lie together and in their original order.
"""

from functools import lru_cache

import numpy as np
from numba import njit

from pkm.compute.nearest import SCALE, Points

SIGN_BLOCK = 2048
GAP_BLOCK = 8192


@njit(cache=True)
def _encode(rows, thresholds, codes):
    last = len(thresholds)
    inverse = (last - 1) / max(thresholds[-1] - thresholds[0], 1)
    for i in range(rows.shape[0]):
        for h in range(rows.shape[1]):
            x = np.int64(rows[i, h])
            # Thresholds are about equally far apart: the first guess is hardly ever off by more than one.
            code = min(max(np.int64((x - thresholds[0]) * inverse) + 1, 0), last)
            while code > 0 and thresholds[code - 1] >= x:
                code -= 1
            while code < last and thresholds[code] < x:
                code += 1
            codes[i, h] = code


@lru_cache(maxsize=2)
def encode(points: Points, thresholds: tuple[int, ...]) -> np.ndarray:
    """Number of thresholds below each coordinate.

    Parameters
    ----------
    points : Points
    thresholds : tuple of int
        Increasing, in grid steps, the same for all columns; at most 65,535.

    Returns
    -------
    ndarray of shape (n, d), uint8 or uint16
        As narrow as the number of thresholds allows. The last two are kept: replicates share them.

    Examples
    --------
    >>> encode(Points.prepare(np.array([[-5], [0], [1]])), (-1, 0)).ravel().tolist()
    [0, 1, 2]
    """
    codes = np.empty(points.shape, np.min_scalar_type(len(thresholds)))
    _encode(points.rows, np.array(thresholds, np.int64), codes)
    codes.flags.writeable = False
    return codes


def signs(points: Points, normals: np.ndarray, about: np.ndarray) -> np.ndarray:
    """On which side of hyperplanes the points lie.

    Parameters
    ----------
    points : Points
    normals : ndarray of shape (m, d), int64
        Normal vectors with entries of at most 2**20: every product is then exact.
    about : ndarray of shape (d,), int64
        A point of the domain, through which all hyperplanes pass.

    Returns
    -------
    ndarray of shape (n, m), uint8
        1 where the inner product is not negative.
    """
    if np.abs(normals).max(initial=0) > 1 << 20 or np.abs(about).max(initial=0) > SCALE:
        raise ValueError(
            "normals must have entries of at most 2**20 and about must lie in the domain"
        )
    flat = normals.T.astype(np.float64)
    offset = about.astype(np.float64) @ flat
    codes = np.empty((points.shape[0], len(normals)), np.uint8)
    for start in range(0, len(codes), SIGN_BLOCK):
        some = slice(start, start + SIGN_BLOCK)
        codes[some] = points.rows[some].astype(np.float64) @ flat >= offset
    return codes


@njit(cache=True)
def histogram(codes, order, counts):
    """Count the codes of the points ``order`` per column, into zeroed counts of shape (d, n_codes)."""
    for p in range(order.shape[0]):
        i = order[p]
        for h in range(codes.shape[1]):
            counts[h, codes[i, h]] += 1


@njit(cache=True)
def divide(codes, order, feature, boundary, spare):
    """Move indices of points with ``codes[:, feature] < boundary`` to the front, keeping order; return their number."""
    left, right = 0, 0
    for p in range(order.shape[0]):
        i = order[p]
        # To both, and one of them moves on: there is no branch that the processor could guess wrong.
        order[left] = spare[right] = i
        below = codes[i, feature] < boundary
        left += below
        right += not below
    order[left:] = spare[:right]
    return left


@njit(cache=True)
def column_sums(rows, order):
    """Sum of the rows ``order`` of integer-valued float32, exact, int64."""
    d = rows.shape[1]
    sums = np.zeros(d)
    for p in range(order.shape[0]):
        row = rows[order[p]]
        for h in range(d):
            sums[h] += row[h]
    return sums.astype(np.int64)


@lru_cache(maxsize=2)
def averaged_gaps(shards: tuple[Points, ...]) -> np.ndarray:
    """Distances between neighboring values of a column, averaged over the columns rank by rank.

    The one statistic for which the grid is too coarse: gaps of many points in a small part of the range are smaller
    than a step, so that what rounding took away is put back where it is known.

    Parameters
    ----------
    shards : tuple of Points
        All of one width; n points together.

    Returns
    -------
    ndarray of shape (n - 1,), float32
        In increasing order, in grid steps.

    Examples
    --------
    >>> averaged_gaps((Points.prepare(np.array([[0, 5], [3, 5], [1, 9]])),)).tolist()
    [0.5, 3.0]
    """
    n, d = sum(shard.shape[0] for shard in shards), shards[0].shape[1]
    gaps, column = np.zeros(n - 1, np.float32), np.empty(n, np.int64)
    for h in range(d):
        first = 0
        for shard in shards:
            part = column[first : first + shard.shape[0]]
            np.multiply(shard.rows[:, h], SCALE, out=part, casting="unsafe")
            if shard.remainders is not None:
                part += shard.remainders[:, h]
            first += len(part)
        column.sort()
        for start in range(0, n - 1, GAP_BLOCK):
            some = slice(start, min(start + GAP_BLOCK, n - 1))
            gaps[some] += (column[some.start + 1 : some.stop + 1] - column[some]) * (
                1 / (SCALE * d)
            )
    gaps.sort()
    gaps.flags.writeable = False
    return gaps


def forget() -> None:
    """Drop what is kept of the points between fits, so that a fit that is timed does all of its work."""
    encode.cache_clear()
    averaged_gaps.cache_clear()
