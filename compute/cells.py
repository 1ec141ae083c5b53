"""Points sorted into cells: codes on a grid, a stable partition of their indices, counts and sums of cells.

A tree of cells is grown over an array of indices. A cell is a stretch of it, a split a stable partition of the stretch
by one column of the codes, so that the points of a cell always lie together and in their original order.
"""

from functools import lru_cache

import numpy as np
from numba import njit

from compute.nearest import SCALE, Points

SIGN_BLOCK = 2048


@njit(cache=True)
def _look_up(rows, table, codes):
    for i in range(rows.shape[0]):
        for h in range(rows.shape[1]):
            codes[i, h] = table[np.int64(rows[i, h]) + SCALE]


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
    steps = np.diff(np.clip([-SCALE - 1, *thresholds, SCALE], -SCALE - 1, SCALE))
    table = np.repeat(np.arange(len(steps), dtype=np.min_scalar_type(len(thresholds))), steps)
    codes = np.empty(points.shape, table.dtype)
    _look_up(points.rows, table, codes)
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
        raise ValueError("normals must have entries of at most 2**20 and about must lie in the domain")
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
        order[left] = spare[right] = (
            i  # to both, and one of them moves on: no branch that the processor could guess wrong
        )
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
def distinct_gaps(shards: tuple[Points, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Distances between neighbouring values of a column, added up over the columns rank by rank.

    Parameters
    ----------
    shards : tuple of Points
        All of one width; n points together, which give n - 1 sums.

    Returns
    -------
    values : ndarray of shape (m,), int64
        The distinct sums in increasing order, in grid steps.
    ranks : ndarray of shape (m,), int64
        How many sums are at most as large.

    Examples
    --------
    >>> [each.tolist() for each in distinct_gaps((Points.prepare(np.array([[0, 5], [3, 5], [1, 9]])),))]
    [[1, 6], [1, 2]]
    """
    n = sum(shard.shape[0] for shard in shards)
    # Sums stay below 2^31 for up to 16,383 columns, far beyond what distances are exact for.
    gaps, column = np.zeros(n - 1, np.int32), np.empty(n, np.int32)
    for h in range(shards[0].shape[1]):
        np.concatenate([shard.rows[:, h] for shard in shards], out=column, casting="unsafe")
        column.sort()
        column[:-1] = column[1:] - column[:-1]
        gaps += column[:-1]
    gaps.sort()
    last = np.append(np.flatnonzero(gaps[1:] != gaps[:-1]), np.arange(n - 1)[-1:])
    return gaps[last].astype(np.int64), last + 1
