"""Points sorted into cells: codes on a grid, partitions, counts and sums.

The code of a coordinate is the number of its bin, or of its side of a hyperplane. A
tree of cells is built over an array of point indices. A cell is a slice of that array.
A split is a stable partition of the slice by the codes of one feature, so the points of
a cell are consecutive and in their original order.
"""

import weakref
from functools import partial

import numpy as np
from numba import njit

from pkm.compute.storage.points import (
    SCALE,
    Points,
    make_slices,
    read_weights,
    weight,
)

SIGN_BLOCK = 2048  # points per matrix product
GAP_BLOCK = 8192  # gaps per step
MAX_NORMAL = 1 << 20  # largest entry of a normal vector


def digitize(points: Points, thresholds: tuple[int, ...]) -> np.ndarray:
    """Code of each coordinate: the number of thresholds below it.

    Parameters
    ----------
    points : Points
    thresholds : tuple of int
        Increasing, in grid steps, the same for all features; at most 65,535.

    Returns
    -------
    ndarray of shape (n, d), uint8 or uint16
        The smaller type that holds all codes. Cached with the points, for all
        replicates.

    Examples
    --------
    >>> digitize(Points.from_grid(np.array([[-5], [0], [1]])), (-1, 0)).ravel().tolist()
    [0, 1, 2]
    """
    compute = partial(_digitize_points, points, thresholds)
    return points.cached("grid codes", thresholds, compute)


def _digitize_points(points: Points, thresholds: tuple[int, ...]) -> np.ndarray:
    codes = np.empty(points.shape, np.min_scalar_type(len(thresholds)))
    _digitize(points.rows, np.array(thresholds, np.int64), codes)
    codes.flags.writeable = False
    return codes


@njit(cache=True, nogil=True)
def _digitize(
    rows: np.ndarray,  # IN (n, d), float32
    thresholds: np.ndarray,  # IN, increasing
    codes: np.ndarray,  # OUT (n, d), unsigned
) -> None:
    n_thresholds = len(thresholds)
    lowest = thresholds[0]
    thresholds_per_step = (n_thresholds - 1) / max(thresholds[-1] - lowest, 1)
    for i in range(rows.shape[0]):
        for h in range(rows.shape[1]):
            x = np.int64(rows[i, h])
            # If thresholds are nearly equidistant, an interpolated code is hardly ever
            # off by more than one. The two loops correct it for any thresholds.
            guess = np.int64((x - lowest) * thresholds_per_step) + 1
            code = min(max(guess, 0), n_thresholds)
            while code > 0 and thresholds[code - 1] >= x:
                code -= 1
            while code < n_thresholds and thresholds[code] < x:
                code += 1
            codes[i, h] = code


def cell_counts(points: Points, intervals: int) -> np.ndarray:
    """Numbers of points of the cells of a grid over the domain.

    Parameters
    ----------
    points : Points
        With d features.
    intervals : int
        Number of equal intervals per feature; the last includes the domain's upper end.

    Returns
    -------
    ndarray of shape (intervals**d,), int64
        In C order: the last feature's interval varies fastest.

    Examples
    --------
    >>> cell_counts(Points.from_grid(np.array([[-SCALE, 0], [5, SCALE]])), 2).tolist()
    [0, 1, 0, 1]
    """
    return _count_cells(points.rows, read_weights(points), intervals)


@njit(cache=True, nogil=True)
def _count_cells(
    rows: np.ndarray,  # IN (n, d), float32
    weights: np.ndarray,  # IN (n,), int32, or (0,)
    intervals: int,
) -> np.ndarray:
    counts = np.zeros(intervals ** rows.shape[1], np.int64)
    for i in range(rows.shape[0]):
        # The interval of each feature is a digit of the cell's number.
        cell = 0
        for h in range(rows.shape[1]):
            position = (np.int64(rows[i, h]) + SCALE) * intervals // (2 * SCALE)
            cell = cell * intervals + min(position, intervals - 1)
        counts[cell] += weight(weights, i)
    return counts


def hyperplane_sides(
    points: Points,
    normals: np.ndarray,
    origin: np.ndarray,
) -> np.ndarray:
    """Side of each hyperplane on which each point lies.

    Parameters
    ----------
    points : Points
    normals : ndarray of shape (m, d), int64
        Normal vectors with entries of at most 2**20: every product is then exact.
    origin : ndarray of shape (d,), int64
        A point of the domain, through which all hyperplanes pass.

    Returns
    -------
    ndarray of shape (n, m), uint8
        1 where the inner product is not negative.
    """
    largest_entry = np.abs(normals).max(initial=0)
    if largest_entry > MAX_NORMAL or np.abs(origin).max(initial=0) > SCALE:
        raise ValueError(
            "normals must have entries of at most 2**20 and "
            "origin must lie in the domain"
        )
    transposed = normals.T.astype(np.float64)
    offsets = origin.astype(np.float64) @ transposed
    codes = np.empty((points.shape[0], len(normals)), np.uint8)
    for block in make_slices(len(codes), SIGN_BLOCK):
        codes[block] = points.rows[block].astype(np.float64) @ transposed >= offsets
    return codes


@njit(cache=True, nogil=True)
def histogram(
    codes: np.ndarray,  # IN (n, d), unsigned
    order: np.ndarray,  # IN (m,)
    weights: np.ndarray,  # IN (n,), int32, or (0,)
    counts: np.ndarray,  # IN and OUT
) -> None:
    """Weigh the codes of the points ``order`` by feature: added to (d, n_codes)."""
    for p in range(order.shape[0]):
        i = order[p]
        for h in range(codes.shape[1]):
            counts[h, codes[i, h]] += weight(weights, i)


@njit(cache=True, nogil=True)
def stable_partition(
    codes: np.ndarray,  # IN
    order: np.ndarray,  # IN and OUT
    feature: int,
    boundary: int,
    buffer: np.ndarray,  # OUT
) -> int:
    """Move points with a code below a boundary to the front; the order is kept.

    Parameters
    ----------
    codes : ndarray of shape (n, d), unsigned
    order : ndarray of shape (m,), integer
        Indices of points; changed in place.
    feature, boundary : int
        Points with ``codes[:, feature] < boundary`` come first.
    buffer : ndarray of shape (m,) or longer, like order
        Overwritten.

    Returns
    -------
    n_below : int
        Size of the first part.
    """
    n_below = 0
    n_above = 0
    # order[:n_below] and buffer[:n_above] hold the two parts of order[:p].
    for p in range(order.shape[0]):
        i = order[p]
        # Write the index to both parts and extend one of them: no branch to predict.
        order[n_below] = buffer[n_above] = i
        below = codes[i, feature] < boundary
        n_below += below
        n_above += not below
    # A loop: numba takes two seconds to compile an assignment of slices, with its error
    # message.
    for p in range(n_above):
        order[n_below + p] = buffer[p]
    return n_below


def averaged_gaps(shards: tuple[Points, ...]) -> np.ndarray:
    """Gaps between neighboring values, averaged over the features rank by rank.

    Gaps between many points in a small part of the range are smaller than a grid step.
    So the remainders of rounding to the grid are added, where they are stored.

    Parameters
    ----------
    shards : tuple of Points
        All of one width; n points together.

    Returns
    -------
    ndarray of shape (n - 1,), float32
        In increasing order, in grid steps. Cached with the first shard while all shards
        exist.

    Examples
    --------
    >>> averaged_gaps((Points.from_grid(np.array([[0, 5], [3, 5], [1, 9]])),)).tolist()
    [0.5, 3.0]
    """
    first, *others = shards
    # Weak references: no shard keeps another one in memory.
    key = tuple(map(weakref.ref, others))
    return first.cached("averaged gaps", key, partial(_average_gaps, shards))


def _average_gaps(shards: tuple[Points, ...]) -> np.ndarray:
    n = sum(shard.shape[0] for shard in shards)
    d = shards[0].shape[1]
    gaps = np.zeros(max(n - 1, 0), np.float32)
    column = np.empty(n, np.int64)
    steps_per_unit = 1 / (SCALE * d)
    for h in range(d):
        _fill_column(shards, h, column)
        column.sort()
        # Block by block: all differences at once would take as much memory as the
        # column.
        for block in make_slices(len(gaps), GAP_BLOCK):
            values = column[block.start : block.stop + 1]
            gaps[block] += np.diff(values) * steps_per_unit
    gaps.sort()
    gaps.flags.writeable = False
    return gaps


def _fill_column(
    shards: tuple[Points, ...],
    feature: int,
    column: np.ndarray,
) -> None:
    """Write a feature of all shards to ``column``, in units of 2**-16 grid steps."""
    start = 0
    for shard in shards:
        stop = start + shard.shape[0]
        values = column[start:stop]
        np.multiply(shard.rows[:, feature], SCALE, out=values, casting="unsafe")
        if shard.remainders is not None:
            values += shard.remainders[:, feature]
        start = stop
