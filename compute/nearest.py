"""Nearest centers, and sums over their points, for many replicates in one pass over the data.

A point x is compared with centers c by the score ``|c|^2 - 2 c.x``, its squared distance less
``|x|^2``. Three ways lead to the same integers. Up to :data:`SCAN_DIMENSIONS` features a compiled
scan runs over blocks of points, feature by feature. Above, the inner products come from a matrix
product, or, where a single replicate has too few centers to keep that busy, from a compiled product
that reads each point once; a compiled scan takes the minimum. Blocks are sized so that points,
scores and labels stay in the cache of one core.

Units: coordinates in grid steps, scores and squared norms in squared grid steps. All are integers
held in float64, below 2**53, so that every sum is exact in any order.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numba import njit

from pkm.compute.points import REORDERED, SCAN_BLOCK, Points, exact_limit

FEW_CLUSTERS = 4  # up to here masked sums are faster than one point at a time
PRODUCT_BLOCK = 128  # points per product
PRODUCT_ROWS = 256  # rows of centers per product: 128 x 256 scores are a quarter of a megabyte
#: Up to this many rows of centers the compiled product is taken. Measured: below, memory and
#: packing keep the matrix product under half of its usual rate.
FEW_ROWS = 64
LOW_BITS = 24  # of a squared distance, summed separately from its high bits


class Assignment(NamedTuple):
    """Nearest centers of a block of points, for a range of replicates.

    Attributes
    ----------
    points, replicates : slice
        Of all points and of all replicates.
    scores : ndarray of shape (n_replicates, n_points), float64
        Squared distance of each point to its nearest center, less the point's squared norm.
    labels : ndarray of shape (n_replicates, n_points), int64
    """

    points: slice
    replicates: slice
    scores: np.ndarray
    labels: np.ndarray


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
    centers = check_centers(points, centers)
    n_replicates, k, d = centers.shape
    if max_squared_distance is None:
        max_squared_distance = np.inf
    limits = np.full((n_replicates, k), max_squared_distance, np.float64)
    sums = np.zeros((n_replicates, k, d))
    counts = np.zeros((n_replicates, k), np.int64)
    if points.blocks is not None:
        _scan_and_sum(
            points.blocks,
            points.squared_norms,
            centers,
            _center_norms(centers),
            limits,
            sums,
            counts,
            (0,) * d,
        )
    else:
        for block in assign_blocks(points, centers):
            _add_assigned(
                points.rows[block.points],
                points.squared_norms[block.points],
                block.scores,
                block.labels,
                limits[block.replicates],
                sums[block.replicates],
                counts[block.replicates],
            )
    return sums.astype(np.int64), counts


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
    centers = check_centers(points, centers)
    high_sums = np.zeros(len(centers), np.int64)
    low_sums = np.zeros(len(centers), np.int64)
    for block in assign_blocks(points, centers):
        _add_inertia(
            points.squared_norms[block.points],
            block.scores,
            high_sums[block.replicates],
            low_sums[block.replicates],
        )
    return [
        (int(high) << LOW_BITS) + int(low) for high, low in zip(high_sums, low_sums, strict=True)
    ]


def labels(points: Points, centers: np.ndarray) -> np.ndarray:
    """Index of the nearest center of each point; ties go to the lower index.

    Returns
    -------
    ndarray of shape (R, n), int32
    """
    centers = check_centers(points, centers)
    result = np.empty((len(centers), points.shape[0]), np.int32)
    for block in assign_blocks(points, centers):
        result[block.replicates, block.points] = block.labels
    return result


def squared_distances(points: Points, centers: np.ndarray) -> np.ndarray:
    """Squared distance of each point to the nearest of centers (k, d): shape (n,), exact."""
    squares = np.empty(points.shape[0])
    for block in assign_blocks(points, check_centers(points, centers[None])):
        squares[block.points] = block.scores[0] + points.squared_norms[block.points]
    return squares


def check_centers(points: Points, centers: np.ndarray) -> np.ndarray:
    """Return centers (R, k, d) as contiguous float64; refuse those of inexact distances."""
    centers = np.ascontiguousarray(centers, dtype=np.float64)
    d = points.shape[1]
    if centers.ndim != 3 or centers.shape[2] != d or 0 in centers.shape:
        raise ValueError(f"centers must have shape (replicate, cluster, {d}), got {centers.shape}")
    limit = exact_limit(d)
    # Written so that NaN is refused too: it would leave points without a nearest center, and their
    # labels undefined.
    if not np.abs(centers).max() <= limit:
        raise ValueError(
            f"centers must be finite, at most {limit} in size, "
            f"got {centers.min()} to {centers.max()}; release them through privacy.snap_centers"
        )
    return centers


def assign_blocks(points: Points, centers: np.ndarray) -> Iterator[Assignment]:
    """Assign points to checked centers (R, k, d) block by block, once for every replicate."""
    if points.blocks is not None:
        return _assign_by_scan(points.blocks, points.shape[0], centers)
    return _assign_by_product(points.rows, centers)


def _assign_by_scan(blocks: np.ndarray, n: int, centers: np.ndarray) -> Iterator[Assignment]:
    n_replicates, _, d = centers.shape
    center_norms = _center_norms(centers)
    scores = np.empty((n_replicates, SCAN_BLOCK))
    labels = np.empty((n_replicates, SCAN_BLOCK), np.int64)
    replicates = slice(0, n_replicates)
    for number, block in enumerate(blocks):
        _scan_replicates(block, centers, center_norms, scores, labels, (0,) * d)
        start = number * SCAN_BLOCK
        stop = min(start + SCAN_BLOCK, n)
        size = stop - start
        yield Assignment(slice(start, stop), replicates, scores[:, :size], labels[:, :size])


def _assign_by_product(rows: np.ndarray, centers: np.ndarray) -> Iterator[Assignment]:
    n_replicates, k, d = centers.shape
    center_norms = _center_norms(centers)
    few_rows = n_replicates * k <= FEW_ROWS
    chunk = max(1, PRODUCT_ROWS // k)
    for start in range(0, len(rows), PRODUCT_BLOCK):
        block = rows[start : start + PRODUCT_BLOCK]
        size = len(block)
        if not few_rows:
            block = block.astype(np.float64)
        for first in range(0, n_replicates, chunk):
            replicates = slice(first, min(first + chunk, n_replicates))
            flat_centers = centers[replicates].reshape(-1, d)
            if few_rows:
                products = np.empty((len(flat_centers), size))
                _inner_products(block, flat_centers, products)
            else:
                products = flat_centers @ block.T
            scores = np.empty((replicates.stop - first, size))
            labels = np.empty((replicates.stop - first, size), np.int64)
            _min_scores(products.reshape(-1, k, size), center_norms[replicates], scores, labels)
            yield Assignment(slice(start, start + size), replicates, scores, labels)


@njit(cache=True, nogil=True)
def _center_norms(centers: np.ndarray) -> np.ndarray:
    """Squared norms of the centers (R, k, d), shape (R, k)."""
    n_replicates, k, d = centers.shape
    norms = np.zeros((n_replicates, k))
    for r in range(n_replicates):
        for j in range(k):
            for h in range(d):
                norms[r, j] += centers[r, j, h] * centers[r, j, h]
    return norms


# The scans take the number of features as a tuple of that length: its length is part of the type,
# so that they are compiled once per number of features, with the loop over them unrolled, and found
# in the cache by later processes.


@njit(cache=True, nogil=True, fastmath={"contract"})
def _scan_block(
    block: np.ndarray,
    centers: np.ndarray,
    center_norms: np.ndarray,
    scores: np.ndarray,
    labels: np.ndarray,
    features: tuple[int, ...],
) -> None:
    """Find the nearest center of each point of a block (d, size), for one replicate."""
    size = block.shape[1]
    for b in range(size):
        scores[b] = np.inf
    # After step j, scores and labels hold the nearest of centers 0 .. j, ties the lower one.
    for j in range(centers.shape[0]):
        center_norm = center_norms[j]
        for b in range(size):
            score = center_norm
            for h in range(len(features)):
                score -= np.float64(block[h, b]) * (2.0 * centers[j, h])
            min_score = scores[b]
            closer = score < min_score
            scores[b] = score if closer else min_score
            labels[b] = j if closer else labels[b]


@njit(cache=True, nogil=True)
def _scan_replicates(
    block: np.ndarray,
    centers: np.ndarray,
    center_norms: np.ndarray,
    scores: np.ndarray,
    labels: np.ndarray,
    features: tuple[int, ...],
) -> None:
    for r in range(centers.shape[0]):
        _scan_block(block, centers[r], center_norms[r], scores[r], labels[r], features)


@njit(cache=True, nogil=True)
def _scan_and_sum(
    blocks: np.ndarray,
    squared_norms: np.ndarray,
    centers: np.ndarray,
    center_norms: np.ndarray,
    limits: np.ndarray,
    sums: np.ndarray,
    counts: np.ndarray,
    features: tuple[int, ...],
) -> None:
    """Assign and sum block by block, while a block is in the cache."""
    size = blocks.shape[2]
    scores = np.empty(size)
    labels = np.empty(size, np.int64)
    few_clusters = centers.shape[1] <= FEW_CLUSTERS
    for number in range(blocks.shape[0]):
        block = blocks[number]
        # The last block is padded with zeros that have no norm: they are scanned, but not summed.
        norms = squared_norms[number * size : (number + 1) * size]
        for r in range(centers.shape[0]):
            _scan_block(block, centers[r], center_norms[r], scores, labels, features)
            distances = (scores, norms, limits[r])
            if few_clusters:
                _sum_by_masks(block, distances, labels, sums[r], counts[r], features)
            else:
                _sum_by_points(block, distances, labels, sums[r], counts[r], features)


@njit(cache=True, nogil=True, fastmath=REORDERED)
def _sum_by_masks(
    block: np.ndarray,
    distances: tuple[np.ndarray, np.ndarray, np.ndarray],
    labels: np.ndarray,
    sums: np.ndarray,
    counts: np.ndarray,
    features: tuple[int, ...],
) -> None:
    """Add each cluster's points as a masked sum: for few clusters faster than one point at a time.

    ``distances`` are the scores, the squared norms of the points, and the limits (k,) of their
    sum.
    """
    scores, norms, limits = distances
    size = norms.shape[0]
    mask = np.empty(size)
    for j in range(counts.shape[0]):
        count = 0.0
        limit = limits[j]
        for b in range(size):
            is_within = scores[b] + norms[b] <= limit
            mask[b] = 1.0 if (labels[b] == j) & is_within else 0.0
            count += mask[b]
        counts[j] += np.int64(count)
        for h in range(len(features)):
            total = 0.0
            for b in range(size):
                total += mask[b] * np.float64(block[h, b])
            sums[j, h] += total


@njit(cache=True, nogil=True)
def _sum_by_points(
    block: np.ndarray,
    distances: tuple[np.ndarray, np.ndarray, np.ndarray],
    labels: np.ndarray,
    sums: np.ndarray,
    counts: np.ndarray,
    features: tuple[int, ...],
) -> None:
    """Add point after point to its cluster's sum; ``distances`` as for :func:`_sum_by_masks`."""
    scores, norms, limits = distances
    for b in range(norms.shape[0]):
        j = labels[b]
        if scores[b] + norms[b] <= limits[j]:
            counts[j] += 1
            for h in range(len(features)):
                sums[j, h] += np.float64(block[h, b])


@njit(cache=True, nogil=True, fastmath={"contract"})
def _min_scores(
    products: np.ndarray,
    center_norms: np.ndarray,
    scores: np.ndarray,
    labels: np.ndarray,
) -> None:
    """Turn inner products (R, k, size) into the least score of each point and its label."""
    n_replicates, k, size = products.shape
    for r in range(n_replicates):
        replicate_scores = scores[r]
        replicate_labels = labels[r]
        for b in range(size):
            replicate_scores[b] = np.inf
        # After step j, scores and labels hold the nearest of centers 0 .. j, ties the lower one.
        for j in range(k):
            center_norm = center_norms[r, j]
            row = products[r, j]
            for b in range(size):
                score = center_norm - 2.0 * row[b]
                min_score = replicate_scores[b]
                closer = score < min_score
                replicate_scores[b] = score if closer else min_score
                replicate_labels[b] = j if closer else replicate_labels[b]


@njit(cache=True, nogil=True, fastmath=REORDERED)
def _inner_products(rows: np.ndarray, centers: np.ndarray, products: np.ndarray) -> None:
    """Inner products (n_centers, n) of many points with few centers.

    Tiles of two centers by four points keep eight sums in registers: ``p_uv`` is that of center j +
    u and point b + v.
    """
    n, d = rows.shape
    n_centers = centers.shape[0]
    n_tiled = n - n % 4
    n_centers_tiled = n_centers - n_centers % 2
    for b in range(0, n_tiled, 4):
        for j in range(0, n_centers_tiled, 2):
            p_00 = p_01 = p_02 = p_03 = 0.0
            p_10 = p_11 = p_12 = p_13 = 0.0
            for h in range(d):
                c_0 = centers[j, h]
                c_1 = centers[j + 1, h]
                x = np.float64(rows[b, h])
                p_00 += x * c_0
                p_10 += x * c_1
                x = np.float64(rows[b + 1, h])
                p_01 += x * c_0
                p_11 += x * c_1
                x = np.float64(rows[b + 2, h])
                p_02 += x * c_0
                p_12 += x * c_1
                x = np.float64(rows[b + 3, h])
                p_03 += x * c_0
                p_13 += x * c_1
            products[j, b] = p_00
            products[j, b + 1] = p_01
            products[j, b + 2] = p_02
            products[j, b + 3] = p_03
            products[j + 1, b] = p_10
            products[j + 1, b + 1] = p_11
            products[j + 1, b + 2] = p_12
            products[j + 1, b + 3] = p_13

    # The remainder: an odd last center, and up to three last points for all centers.
    for b in range(n):
        first_center = n_centers_tiled if b < n_tiled else 0
        for j in range(first_center, n_centers):
            product = 0.0
            for h in range(d):
                product += np.float64(rows[b, h]) * centers[j, h]
            products[j, b] = product


@njit(cache=True, nogil=True)
def _add_assigned(
    rows: np.ndarray,
    squared_norms: np.ndarray,
    scores: np.ndarray,
    labels: np.ndarray,
    limits: np.ndarray,
    sums: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Add a block of points to the sums (R, k, d) and counts (R, k) of their nearest centers."""
    for r in range(scores.shape[0]):
        for b in range(rows.shape[0]):
            j = labels[r, b]
            if scores[r, b] + squared_norms[b] <= limits[r, j]:
                counts[r, j] += 1
                for h in range(rows.shape[1]):
                    sums[r, j, h] += rows[b, h]


@njit(cache=True, nogil=True)
def _add_inertia(
    squared_norms: np.ndarray,
    scores: np.ndarray,
    high_sums: np.ndarray,
    low_sums: np.ndarray,
) -> None:
    """Add squared distances, high and low bits separately: neither sum (R,) can overflow."""
    mask = (1 << LOW_BITS) - 1
    for r in range(scores.shape[0]):
        for b in range(squared_norms.shape[0]):
            square = np.int64(scores[r, b] + squared_norms[b])
            high_sums[r] += square >> LOW_BITS
            low_sums[r] += square & mask
