"""Nearest centers, and sums over their points, for many replicates in one pass over the data.

Results are exact integers, the same for any order, split or number of threads. The scans, and the
proof that rounding does not change them, are in :mod:`pkm.compute.kernels.scan`.

Units: coordinates in grid steps, squared norms and distances in squared grid steps.
"""

import numpy as np
from numba import njit

from pkm.compute.kernels.scan import scan_and_sum, scan_labels
from pkm.compute.simd.threads import by_threads
from pkm.compute.storage.points import REORDERED, Points, exact_limit

NO_LIMIT = np.array([[np.inf]])
LOW_BITS = 24  # of numbers whose high bits are summed separately


def sums_and_counts(
    points: Points,
    centers: np.ndarray,
    max_squared_distance: float | np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Sum and count the points nearest to each center, for every replicate.

    Parameters
    ----------
    points : Points
        n points with integer coordinates.
    centers : ndarray of shape (R, k, d)
        Integer coordinates of absolute value at most :func:`exact_limit`. Ties go to the lower
        index.
    max_squared_distance : float or ndarray, optional
        Points whose squared distance to their nearest center exceeds it are left out; an array is
        one bound for each center, and broadcasts against (R, k). Default: all points count.

    Returns
    -------
    sums : ndarray of shape (R, k, d), int64
    counts : ndarray of shape (R, k), int64

    Examples
    --------
    >>> points = Points.prepare(np.array([[0], [2], [9]]))
    >>> sums_and_counts(points, np.array([[[1], [10]]]))[0].tolist()
    [[[2], [9]]]
    """
    centers = _as_centers(points, centers)
    n_replicates, k, d = centers.shape
    limits = NO_LIMIT
    if isinstance(max_squared_distance, np.ndarray):
        limits = np.empty((n_replicates, k))
        limits[:] = max_squared_distance
    elif max_squared_distance is not None:
        limits = np.array([[max_squared_distance]], np.float64)
    flat_rows = points.rows.reshape(-1)
    squared_norms = points.squared_norms
    limit = exact_limit(d)

    def scan(first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        sums = np.zeros((n_replicates, k, d), np.int64)
        counts = np.zeros((n_replicates, k), np.int64)
        if not scan_and_sum(
            flat_rows, squared_norms, first, last, centers, limit, limits, sums, counts
        ):
            raise _inexact(centers, limit)
        return sums, counts

    (sums, counts), *others = by_threads(points.shape[0], centers.size, scan)
    for more_sums, more_counts in others:
        sums += more_sums
        counts += more_counts
    return sums, counts


def subtract_centers(sums: np.ndarray, counts: np.ndarray, centers: np.ndarray) -> None:
    """Turn sums of points into sums of their steps from their centers, in place.

    Parameters
    ----------
    sums : ndarray of shape (R, k, d), int64
    counts : ndarray of shape (R, k), int64
    centers : ndarray of shape (R, k, d), any integer dtype

    Examples
    --------
    >>> sums = np.array([[[7]]])
    >>> subtract_centers(sums, np.array([[2]]), np.array([[[3]]]))
    >>> sums.tolist()
    [[[1]]]
    """
    _subtract_centers(sums, counts, np.ascontiguousarray(centers, np.int64))


@njit(cache=True)
def _subtract_centers(sums: np.ndarray, counts: np.ndarray, centers: np.ndarray) -> None:
    n_replicates, k, d = sums.shape
    for r in range(n_replicates):
        for j in range(k):
            for h in range(d):
                sums[r, j, h] -= counts[r, j] * centers[r, j, h]


def inertia(points: Points, centers: np.ndarray) -> list[int]:
    """Sum of squared distances to the nearest center, an exact integer for every replicate.

    Parameters
    ----------
    points : Points
    centers : ndarray of shape (R, k, d)

    Returns
    -------
    list of int
        In squared grid steps. Exact whatever the number of points, hence the same for any order or
        split of them.
    """
    sums, counts = sums_and_counts(points, centers)
    centers = np.asarray(centers).astype(np.int64)

    # Over the points x of a center c: |x - c|^2 = |x|^2 - 2 c.x + |c|^2. Sums are split so that no
    # product of their parts overflows.
    high_products = ((sums >> LOW_BITS) * centers).sum(axis=(1, 2))
    low_products = ((sums & ((1 << LOW_BITS) - 1)) * centers).sum(axis=(1, 2))
    center_norms = (centers * centers).sum(axis=2)
    return [
        points.total_squared_norm
        - 2 * ((int(high) << LOW_BITS) + int(low))
        + sum(int(count) * int(norm) for count, norm in zip(row, norms, strict=True))
        for high, low, row, norms in zip(
            high_products, low_products, counts, center_norms, strict=True
        )
    ]


def labels(points: Points, centers: np.ndarray) -> np.ndarray:
    """Index of the nearest center of each point; ties go to the lower index.

    Returns
    -------
    ndarray of shape (R, n), int32
    """
    centers = _as_centers(points, centers)
    flat_rows = points.rows.reshape(-1)
    result = np.empty((len(centers), points.shape[0]), np.int32)

    limit = exact_limit(centers.shape[2])

    def scan(first: int, last: int) -> None:
        if not scan_labels(flat_rows, points.squared_norms, first, last, centers, limit, result):
            raise _inexact(centers, limit)

    by_threads(points.shape[0], centers.size, scan)
    return result


def squared_distances(points: Points, centers: np.ndarray) -> np.ndarray:
    """Squared distance of each point to the nearest of centers (k, d): shape (n,), exact."""
    return nearest_with_squares(points, centers)[1]


def nearest_with_squares(points: Points, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Index of each point's nearest center of (k, d), and their squared distance: both (n,)."""
    squares = np.empty(points.shape[0])
    nearest = labels(points, centers[None])[0]
    _squared_distances(points.rows, np.asarray(centers, np.float64), nearest, squares)
    return nearest, squares


@njit(cache=True, nogil=True, fastmath=REORDERED)
def _squared_distances(
    rows: np.ndarray, centers: np.ndarray, labels: np.ndarray, squares: np.ndarray
) -> None:
    for i in range(rows.shape[0]):
        square = 0.0
        for h in range(rows.shape[1]):
            step = np.float64(rows[i, h]) - centers[labels[i], h]
            square += step * step
        squares[i] = square


def _as_centers(points: Points, centers: np.ndarray) -> np.ndarray:
    """Return centers (R, k, d) as contiguous float64; refuse other shapes."""
    centers = np.ascontiguousarray(centers, dtype=np.float64)
    d = points.shape[1]
    if centers.ndim != 3 or centers.shape[2] != d or 0 in centers.shape:
        raise ValueError(f"centers must have shape (replicate, cluster, {d}), got {centers.shape}")
    return centers


def _inexact(centers: np.ndarray, limit: int) -> ValueError:
    """What is raised for centers (R, k, d) beyond the limit of exact distances, or NaN."""
    return ValueError(
        f"centers must be finite, at most {limit} in size, "
        f"got {centers.min()} to {centers.max()}; release them through privacy.snap_centers"
    )
