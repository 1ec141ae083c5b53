"""Nearest centers, and sums over their points, for many replicates in one pass.

Results are exact integers, the same for any order, split or number of threads. The
scans, and the proof that rounding does not change them, are in
:mod:`pkm.compute.kernels.scan`.

Units: coordinates in grid steps, squared norms and distances in squared grid steps.
"""

import math
from functools import reduce

import numpy as np
from numba import njit
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist

from pkm.compute.kernels.radix_sort import differs_from_previous, radix_argsort
from pkm.compute.kernels.scan import scan
from pkm.compute.simd.threads import map_ranges
from pkm.compute.storage.blocks import Arrays, add
from pkm.compute.storage.points import (
    EXACT_BITS,
    FASTMATH,
    SCALE,
    Points,
    exact_limit,
    make_slices,
    square_norms,
    sum_exactly,
)

NO_LIMIT = np.array([[np.inf]])
LOW_BITS = 24  # numbers are split here, and both parts summed separately
SWAP_BLOCK = 256  # points per matrix of distances in swap_costs
TREE_DIMENSIONS = 8  # at most so many features: a k-d tree; with more: a scan
#: Centers per leaf of that tree. It decides which of equally near centers is found, so
#: it is fixed.
LEAF_SIZE = 16
BLOCK_ROWS = 1 << 16  # points whose nearest centers are found at a time
MAX_EXPONENT = 63  # no exact squared distance has a larger binary exponent
#: A group of points is compared with the centers near it alone, if these are at most
#: this share of all centers.
MAX_SHARE = 0.25


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
        Integer coordinates of absolute value at most :func:`exact_limit`. Ties go to
        the lower index.
    max_squared_distance : float or ndarray, optional
        Points whose squared distance to their nearest center exceeds it are left out;
        an array is one bound for each center, and broadcasts against (R, k). Default:
        all points count.

    Returns
    -------
    sums : ndarray of shape (R, k, d), int64
    counts : ndarray of shape (R, k), int64

    Examples
    --------
    >>> points = Points.from_grid(np.array([[0], [2], [9]]))
    >>> sums_and_counts(points, np.array([[[1], [10]]]))[0].tolist()
    [[[2], [9]]]
    """
    centers = _check_centers(points, centers)
    limits = _broadcast_limits(max_squared_distance, centers)
    no_labels = np.empty((len(centers), 0), np.int32)
    sums, counts = reduce(add, _scan(points, centers, limits, no_labels))
    return sums, counts


def _broadcast_limits(
    max_squared_distance: float | np.ndarray | None, centers: np.ndarray
) -> np.ndarray:
    """Limits for the scans: one for each center, (R, k), or one for all, (1, 1)."""
    if isinstance(max_squared_distance, np.ndarray):
        limits = np.empty(centers.shape[:2])
        limits[:] = max_squared_distance
        return limits
    if max_squared_distance is None:
        return NO_LIMIT
    return np.array([[max_squared_distance]], np.float64)


def inertia(points: Points, centers: np.ndarray) -> list[int]:
    """Sum of squared distances to the nearest center, for every replicate.

    Parameters
    ----------
    points : Points
    centers : ndarray of shape (R, k, d)

    Returns
    -------
    list of int
        In squared grid steps. Exact whatever the number of points, hence the same for
        any order or split of them. What a row with a weight adds is rounded down.
    """
    if points.weights is not None:
        return [_weighted_inertia(points, points.weights, own) for own in centers]
    sums, counts = sums_and_counts(points, centers)
    centers = np.asarray(centers).astype(np.int64)

    # Over the points x of a center c: |x - c|^2 = |x|^2 - 2 c.x + |c|^2. Sums are split
    # so that no product of their parts overflows; totals are Python's integers.
    high_products = ((sums >> LOW_BITS) * centers).sum(axis=(1, 2))
    low_products = ((sums & ((1 << LOW_BITS) - 1)) * centers).sum(axis=(1, 2))
    products = (high_products.astype(object) << LOW_BITS) + low_products
    norms = (centers * centers).sum(axis=2)
    center_norms = (counts.astype(object) * norms).sum(axis=1)
    return (points.total_squared_norm - 2 * products + center_norms).tolist()


def _weighted_inertia(
    points: Points,
    weights: np.ndarray,
    centers: np.ndarray,
) -> int:
    """Sum of squared distances times weights, of one replicate."""
    costs = weigh_sq_dists(squared_distances(points, centers), weights)
    return sum_exactly(costs.astype(np.int64))


def weigh_sq_dists(sq_dists: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Squared distances times the weights of their rows, rounded down to integers.

    So a person's rows add no more to a cost than one record.

    Examples
    --------
    >>> weigh_sq_dists(np.array([7.0, 7.0]), np.array([SCALE // 2, SCALE])).tolist()
    [3.0, 7.0]
    """
    return np.floor(sq_dists * (weights / SCALE))


def labels(
    points: Points,
    centers: np.ndarray,
    max_squared_distance: float | np.ndarray | None = None,
) -> np.ndarray:
    """Index of the nearest center of each point; ties go to the lower index.

    Returns
    -------
    ndarray of shape (R, n), int32
        -1 for points whose squared distance exceeds the limit of their center.
    """
    centers = _check_centers(points, centers)
    limits = _broadcast_limits(max_squared_distance, centers)
    result = np.empty((len(centers), points.shape[0]), np.int32)
    _scan(points, centers, limits, result)
    result[result >= centers.shape[1]] = -1
    return result


def labels_by_present(
    points: Points,
    centers: np.ndarray,
    max_squared_distance: float | np.ndarray | None = None,
) -> np.ndarray:
    """As :func:`labels` of points with missing entries, by distances in the others."""
    is_missing = points.is_missing
    assert is_missing is not None, "points have missing entries"
    centers = _check_centers(points, centers)
    limits = np.empty(centers.shape[:2])
    limits[:] = _broadcast_limits(max_squared_distance, centers)
    result = np.empty((len(centers), points.shape[0]), np.int32)

    def label_range(first: int, last: int) -> None:
        rows = slice(first, last)
        _label_by_present(
            points.rows[rows],
            is_missing[rows],
            centers,
            limits,
            result[:, rows],
        )

    map_ranges(points.shape[0], centers.size, label_range)
    return result


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _label_by_present(
    rows: np.ndarray,  # IN (n, d), float32
    is_missing: np.ndarray,  # IN (n, d), bool
    centers: np.ndarray,  # IN (R, k, d)
    limits: np.ndarray,  # IN (R, k)
    labels: np.ndarray,  # OUT (R, n), int32
) -> None:
    # Squared distances are sums of exact integers, in any order; ties go to the lower
    # index.
    for r in range(len(centers)):
        for i in range(len(rows)):
            nearest = 0
            least = np.inf
            for j in range(centers.shape[1]):
                sq_dist = 0.0
                for h in range(centers.shape[2]):
                    diff = np.float64(rows[i, h]) - centers[r, j, h]
                    sq_dist += 0.0 if is_missing[i, h] else diff * diff
                if sq_dist < least:
                    least = sq_dist
                    nearest = j
            labels[r, i] = nearest if least <= limits[r, nearest] else -1


def _check_centers(points: Points, centers: np.ndarray) -> np.ndarray:
    """Return centers (R, k, d) as contiguous float64; refuse bad shapes and sizes."""
    centers = np.ascontiguousarray(centers, dtype=np.float64)
    d = points.shape[1]
    if centers.ndim != 3 or centers.shape[2] != d or 0 in centers.shape:
        raise ValueError(
            f"centers must have shape (replicate, cluster, {d}), got {centers.shape}"
        )
    # NaN is not within the limit: it would leave points without a nearest center, and
    # their labels undefined.
    limit = exact_limit(d)
    if not np.abs(centers).max() <= limit:
        raise ValueError(
            f"centers must be finite, at most {limit} in size, got {centers.min()} to "
            f"{centers.max()}; release them through privacy.snap_centers"
        )
    return centers


def _scan(
    points: Points,
    centers: np.ndarray,
    limits: np.ndarray,
    labels: np.ndarray,
) -> list[Arrays]:
    """Sums and counts of each range of points; zeros if labels (R, n) are written."""
    flat_rows = points.rows.reshape(-1)

    def scan_range(first: int, last: int) -> Arrays:
        sums = np.zeros(centers.shape, np.int64)
        counts = np.zeros(centers.shape[:2], np.int64)
        scan(
            flat_rows,
            points.squared_norms,
            first,
            last,
            centers,
            limits,
            sums,
            counts,
            labels,
        )
        return sums, counts

    return map_ranges(points.shape[0], centers.size, scan_range)


def squared_distances(points: Points, centers: np.ndarray) -> np.ndarray:
    """Squared distance (n,) of each point to the nearest of centers (k, d), exact."""
    return nearest_with_sq_dists(points, centers)[1]


def nearest_with_sq_dists(
    points: Points, centers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Each point's nearest center of (k, d), and their squared distance: both (n,)."""
    nearest = labels(points, centers[None])[0]
    float_centers = np.asarray(centers, np.float64)
    return nearest, _sq_dists_by_label(points.rows, float_centers, nearest)


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _sq_dists_by_label(
    rows: np.ndarray,
    centers: np.ndarray,
    labels: np.ndarray,
) -> np.ndarray:
    n, d = rows.shape
    sq_dists = np.empty(n)
    for i in range(n):
        sq_dist = 0.0
        for h in range(d):
            diff = np.float64(rows[i, h]) - centers[labels[i], h]
            sq_dist += diff * diff
        sq_dists[i] = sq_dist
    return sq_dists


def nearest_of_many(
    points: np.ndarray, centers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Nearest of many centers for each point, found without comparing all pairs.

    Parameters
    ----------
    points : ndarray of shape (n, d), int32 or int64
        Below 2**24 in size.
    centers : ndarray of shape (m, d), int64
        In grid steps, like the points small enough that squared distances are exact in
        float64.

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
    index = np.empty(len(points), np.int64)
    distance = np.empty(len(points))
    blocks = make_slices(len(points), BLOCK_ROWS)

    if points.shape[1] <= TREE_DIMENSIONS:
        tree = KDTree(centers, LEAF_SIZE)
        for block in blocks:
            distance[block], index[block] = tree.query(points[block])
        return index, distance

    # Pivots: the square root of the number of centers, with their distances to all.
    pivots = np.linspace(0, len(centers) - 1, math.isqrt(len(centers)), dtype=int)
    between = cdist(centers[pivots], centers, "sqeuclidean")
    for block in blocks:
        index[block], sq_dists = _nearest_by_pivots(
            points[block], centers, pivots, between
        )
        distance[block] = np.sqrt(sq_dists)
    return index, distance


def _nearest_by_pivots(
    points: np.ndarray,
    centers: np.ndarray,
    pivots: np.ndarray,
    between: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Index and squared distance of each point's nearest center, both (b,).

    A center that is at least as near to a point as the pivot is at most twice as far
    from the pivot as the point is, by the triangle inequality. So points near one
    pivot, at similar distances from it, are compared with such centers alone. Squared
    distances are integers and exact: no rounding leaves out a center.

    Parameters
    ----------
    points : ndarray of shape (b, d), int32 or int64
    centers : ndarray of shape (m, d), int64
    pivots : ndarray of shape (p,), int64
        Some of the centers.
    between : ndarray of shape (p, m), float64
        Squared distances of these to all centers.
    """
    rows = points.astype(np.float32)
    norms = square_norms(rows)
    pivot, sq_dists = nearest_with_sq_dists(Points(rows, norms), centers[pivots])
    index = np.empty(len(points), np.int64)

    # Group the points by pivot and binary exponent of the squared distance to it.
    exponent_bits = MAX_EXPONENT.bit_length()
    groups = pivot.astype(np.int64) << exponent_bits | np.frexp(sq_dists)[1]
    order, groups = radix_argsort(groups, len(pivots).bit_length() + exponent_bits)
    starts = np.flatnonzero(differs_from_previous(groups))

    # Choose the centers to compare each group with; 4 is the square of the factor 2.
    everything = np.arange(len(centers))
    with_all = [order[:0]]
    comparisons = []
    for group in np.split(order, starts[1:]):
        near = np.flatnonzero(between[pivot[group[0]]] <= 4 * sq_dists[group].max())
        if len(near) > MAX_SHARE * len(centers):
            with_all.append(group)
        else:
            comparisons.append((group, near))
    comparisons.append((np.concatenate(with_all), everything))
    for group, near in comparisons:
        selected = Points(rows[group], norms[group])
        nearest, sq_dists[group] = nearest_with_sq_dists(selected, centers[near])
        index[group] = near[nearest]
    return index, sq_dists


def swap_costs(
    points: Points,
    candidates: np.ndarray,
    current: np.ndarray,
    slots: np.ndarray,
) -> np.ndarray:
    """Cost of a set of candidates after each possible swap.

    Parameters
    ----------
    points : Points
    candidates : ndarray of shape (m, d), int64
    current : ndarray of shape (k,), int64
        Indices of the candidates that are the current centers.
    slots : ndarray of int64
        Positions in ``current`` that may be replaced.

    Returns
    -------
    ndarray of shape (len(slots), m), object
        Exact sums of squared distances to the nearest center, as Python integers, in
        squared grid steps. What a row with a weight adds is rounded down.

    Notes
    -----
    If a center is removed, only the points nearest to it change, to their second
    nearest center or to the candidate. So all swaps together take one pass over the n m
    distances.
    """
    squared_norms = (candidates * candidates).sum(axis=1).astype(np.float64)
    doubled = -2.0 * candidates.T
    # Partial sums of a block stay below 2**53: sums of integers are then exact in any
    # order.
    reach = SCALE + max(SCALE, float(np.abs(candidates).max(initial=0)))
    max_sq_dist = points.shape[1] * reach**2
    block_size = int(max(1, min(SWAP_BLOCK, 2.0**EXACT_BITS // max_sq_dist)))
    costs = np.zeros((len(slots), len(candidates)), object)
    for block in make_slices(points.shape[0], block_size):
        sq_dists = points.rows[block].astype(np.float64) @ doubled
        sq_dists += squared_norms
        sq_dists += points.squared_norms[block, None]
        if points.weights is not None:
            sq_dists = weigh_sq_dists(sq_dists, points.weights[block, None])
        costs += _swap_costs(sq_dists, current, slots).astype(np.int64)
    return costs


@njit(cache=True, nogil=True)
def _swap_costs(
    sq_dists: np.ndarray,
    current: np.ndarray,
    slots: np.ndarray,
) -> np.ndarray:
    """Costs (slots, m) of points after each swap, from squared distances (n, m)."""
    n, m = sq_dists.shape
    slot_numbers = np.full(len(current), -1)
    for s in range(len(slots)):
        slot_numbers[slots[s]] = s

    # added_costs[j]: cost with candidate j added and no center removed.
    # removal_costs[s, j]: increase if the center of slot s is removed as well. In
    # squared grid steps.
    added_costs = np.zeros(m)
    removal_costs = np.zeros((len(slots), m))
    for i in range(n):
        row = sq_dists[i]
        center, first, second = _find_two_nearest(row, current)
        slot = slot_numbers[center]
        if slot < 0:
            for j in range(m):
                added_costs[j] += row[j] if row[j] < first else first
        else:
            removal_cost = removal_costs[slot]
            for j in range(m):
                with_center = row[j] if row[j] < first else first
                without_center = row[j] if row[j] < second else second
                added_costs[j] += with_center
                removal_cost[j] += without_center - with_center
    return removal_costs + added_costs


@njit(cache=True, nogil=True)
def _find_two_nearest(
    sq_dists: np.ndarray, current: np.ndarray
) -> tuple[int, float, float]:
    """Nearest current center; squared distances to it and to the second nearest."""
    nearest = 0
    first = np.inf
    second = np.inf
    for c in range(len(current)):
        sq_dist = float(sq_dists[current[c]])
        if sq_dist < first:
            second = first
            first = sq_dist
            nearest = c
        elif sq_dist < second:
            second = sq_dist
    return nearest, first, second
