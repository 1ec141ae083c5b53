"""Nearest centers, and what is summed over them, for a whole batch of replicates in one pass over the data.

Three ways lead to the same integers. Up to :data:`SCAN_DIMENSIONS` features a compiled scan runs over blocks of points,
feature by feature. Above, the inner products come from a matrix product, or, where a single replicate has too few
centers to keep that busy, from a compiled product that reads each point once; a compiled scan takes the minimum.
Blocks are sized so that points, scores and labels stay in the core's own cache.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numba import njit

SCAN_DIMENSIONS = 8  # measured: from nine features on, the matrix product wins even with its extra pass over the scores
SCAN_BLOCK = 512
FEW_CLUSTERS = 4
PRODUCT_BLOCK = 128
PRODUCT_ROWS = 256  # rows of centers per product: 128 x 256 scores are a quarter of a megabyte
FEW_ROWS = (
    64  # measured: below, memory and packing keep the matrix product under half of its usual rate
)
EXACT_BITS = 53
SCALE = 1 << 16  # grid steps per half-width of the domain, hence the largest coordinate of a point
REORDERED = {
    "reassoc",
    "contract",
    "nsz",
}  # sums of integers are exact in any order; infinities keep their meaning


def exact_limit(n_features: int) -> int:
    """Largest center coordinate for which squared distances to points of the domain are exact in float64.

    Parameters
    ----------
    n_features : int
        Number of coordinates d.

    Returns
    -------
    int
        In grid steps: L such that ``d * (L + SCALE)**2 < 2**53``. Norms, products and distances are then integers that
        float64 holds.

    Raises
    ------
    ValueError
        If not even the domain itself is within the limit.

    Examples
    --------
    >>> exact_limit(784) // SCALE
    50
    """
    limit = int(np.sqrt(2.0**EXACT_BITS / n_features)) - SCALE - 1
    if limit < SCALE:
        raise ValueError(
            f"n_features={n_features} is too large for exact distances on a grid of +-{SCALE} steps"
        )
    return limit


@njit(cache=True, fastmath=REORDERED)
def _copy_long(points, rows, norms):
    """Fill long rows and their norms in one pass; tell whether all coordinates lie in the domain."""
    signs = 0
    for i in range(points.shape[0]):
        norm = 0.0
        for h in range(points.shape[1]):
            x = points[i, h]
            signs |= (SCALE - x) | (
                SCALE + x
            )  # negative once one of them is: a test without a branch
            rows[i, h] = x
            norm += np.float64(x) * np.float64(x)
        norms[i] = norm
    return signs >= 0


@njit(cache=True, fastmath=REORDERED)
def _squared_norms(rows, norms):
    for i in range(rows.shape[0]):
        norm = 0.0
        for h in range(rows.shape[1]):
            norm += np.float64(rows[i, h]) * np.float64(rows[i, h])
        norms[i] = norm


def _copy_short(points, rows, norms):
    """Do the same for rows too short to fill vector registers: whole-array passes are faster then."""
    np.copyto(rows, points, casting="unsafe")
    _squared_norms(rows, norms)
    return rows.size == 0 or (rows.min() >= -SCALE and rows.max() <= SCALE)


@njit(cache=True, fastmath=REORDERED)
def _snap(points, middle, half, rows, norms, remainders):
    """Fill rows, norms and remainders from a box; return by how much coordinates were clipped (NaN where one is)."""
    spill = 0.0
    for i in range(points.shape[0]):
        norm = 0.0
        for h in range(points.shape[1]):
            x = (points[i, h] - middle[h]) / half[h]
            clipped = x if x < 1.0 else 1.0
            clipped = clipped if clipped > -1.0 else -1.0
            spill += abs(x - clipped)
            snapped = np.rint(clipped * SCALE)
            rows[i, h] = snapped
            remainders[i, h] = np.int16(min(np.rint((clipped * SCALE - snapped) * SCALE), 32767.0))
            norm += snapped * snapped
        norms[i] = norm
    return spill


@dataclass(frozen=True, eq=False)
class Points:
    """Points prepared for repeated passes; two are equal, and hash alike, if their coordinates are.

    Attributes
    ----------
    rows : ndarray of shape (n, d), float32
        The integer coordinates; float32 holds them exactly, at half the memory traffic.
    blocks : ndarray of shape (n_blocks, d, SCAN_BLOCK), float32, or None
        The same, feature by feature in blocks padded with zeros; only for few features.
    norms : ndarray of shape (n,), float64
        Squared norms.
    remainders : ndarray of shape (n, d), int16, or None
        What rounding to the grid took away, in units of 2**-16 steps; None where points came as integers.
    """

    rows: np.ndarray
    blocks: np.ndarray | None
    norms: np.ndarray
    remainders: np.ndarray | None = None

    @classmethod
    def prepare(cls, points: np.ndarray) -> "Points":
        """Lay out integer coordinates of shape (n, d), at most 2**16 in size, for the kernels."""
        points = np.asarray(points).astype(np.int64, copy=False)
        rows, norms = np.empty(points.shape, np.float32), np.empty(len(points))
        copy = _copy_long if points.shape[1] > SCAN_DIMENSIONS else _copy_short
        if not copy(points, rows, norms):
            raise ValueError(
                f"points must lie in the domain, [-{SCALE}, {SCALE}] on the grid; clip them first"
            )
        return cls._of_rows(rows, norms)

    @classmethod
    def from_box(
        cls, points: np.ndarray, lower: np.ndarray, upper: np.ndarray
    ) -> tuple["Points", bool]:
        """Map the box between ``lower`` and ``upper`` to the grid, in one pass over the points.

        Parameters
        ----------
        points : ndarray of shape (n, d), float64
        lower, upper : ndarray of shape (d,), float64

        Returns
        -------
        points : Points
            Clipped to the box and rounded to the nearest grid point.
        outside : bool
            Whether a point was clipped.

        Raises
        ------
        ValueError
            If a coordinate is NaN or infinite.
        """
        rows, norms = np.empty(points.shape, np.float32), np.empty(len(points))
        remainders = np.empty(points.shape, np.int16)
        spill = _snap(points, upper / 2 + lower / 2, upper / 2 - lower / 2, rows, norms, remainders)
        if not np.isfinite(spill):
            raise ValueError("points contain NaN or infinite values; remove or impute those rows")
        return cls._of_rows(rows, norms, remainders), spill > 0

    @classmethod
    def _of_rows(
        cls, rows: np.ndarray, norms: np.ndarray, remainders: np.ndarray | None = None
    ) -> "Points":
        n, d = rows.shape
        if d > SCAN_DIMENSIONS:
            return cls(rows, None, norms, remainders)
        blocks = np.zeros((-(-n // SCAN_BLOCK), d, SCAN_BLOCK), np.float32)
        whole = n // SCAN_BLOCK
        blocks[:whole] = rows[: whole * SCAN_BLOCK].reshape(whole, SCAN_BLOCK, d).transpose(0, 2, 1)
        if rest := n % SCAN_BLOCK:
            blocks[whole, :, :rest] = rows[-rest:].T
        return cls(rows, blocks, norms, remainders)

    @cached_property
    def digest(self) -> bytes:
        """Hash of shape and coordinates, with what rounding took away."""
        found = hashlib.blake2b(repr(self.shape).encode() + self.rows.tobytes(), digest_size=32)
        if self.remainders is not None:
            found.update(self.remainders.tobytes())
        return found.digest()

    def __eq__(self, other):
        return isinstance(other, Points) and self.digest == other.digest

    def __hash__(self):
        return hash(self.digest)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of points and of features."""
        return self.rows.shape


# The scans take the number of features as a tuple of that length: its length is part of the type, so that they are
# compiled once per number of features, with the loop over them unrolled, and found in the cache by later processes.


@njit(cache=True, nogil=True, fastmath={"contract"})
def _scan(block, centers, squares, best, label, features):
    """Find the nearest center of each point of a block, for one replicate."""
    size = block.shape[1]
    for b in range(size):
        best[b] = np.inf
    for j in range(centers.shape[0]):
        square = squares[j]
        for b in range(size):
            score = square
            for h in range(len(features)):
                score -= np.float64(block[h, b]) * (2.0 * centers[j, h])
            old = best[b]
            closer = score < old
            best[b] = score if closer else old
            label[b] = j if closer else label[b]


@njit(cache=True, nogil=True)
def _scan_all(block, centers, squares, best, label, features):
    for r in range(centers.shape[0]):
        _scan(block, centers[r], squares[r], best[r], label[r], features)


@njit(cache=True, nogil=True, fastmath=REORDERED)
def _sum_by_masks(block, norms, best, label, limit, sums, counts, features):
    """Add each cluster's points as a masked sum: for few clusters faster than one point at a time."""
    size = norms.shape[0]
    inside = np.empty(size)
    for j in range(counts.shape[0]):
        members = 0.0
        for b in range(size):
            inside[b] = 1.0 if (label[b] == j) & (best[b] + norms[b] <= limit) else 0.0
            members += inside[b]
        counts[j] += np.int64(members)
        for h in range(len(features)):
            total = 0.0
            for b in range(size):
                total += inside[b] * np.float64(block[h, b])
            sums[j, h] += total


@njit(cache=True, nogil=True)
def _sum_by_points(block, norms, best, label, limit, sums, counts, features):
    for b in range(norms.shape[0]):
        if best[b] + norms[b] <= limit:
            j = label[b]
            counts[j] += 1
            for h in range(len(features)):
                sums[j, h] += np.float64(block[h, b])


@njit(cache=True, nogil=True)
def _scan_and_sum(blocks, norms, centers, squares, limit, sums, counts, features):
    """Scan and accumulate block by block while the block is at hand."""
    size = blocks.shape[2]
    best, label = np.empty(size), np.empty(size, np.int64)
    for i in range(blocks.shape[0]):
        nearby = norms[i * size : (i + 1) * size]
        for r in range(centers.shape[0]):
            _scan(blocks[i], centers[r], squares[r], best, label, features)
            if centers.shape[1] <= FEW_CLUSTERS:
                _sum_by_masks(
                    blocks[i], nearby, best, label, limit[r], sums[r], counts[r], features
                )
            else:
                _sum_by_points(
                    blocks[i], nearby, best, label, limit[r], sums[r], counts[r], features
                )


@njit(cache=True, nogil=True, fastmath={"contract"})
def _minimum(products, squares, best, label):
    """Turn inner products (replicates, k, block) into the least ``|c|^2 - 2 c.x`` and its index."""
    replicates, k, size = products.shape
    for r in range(replicates):
        nearest, at = best[r], label[r]
        for b in range(size):
            nearest[b] = np.inf
        for j in range(k):
            square = squares[r, j]
            row = products[r, j]
            for b in range(size):
                score = square - 2.0 * row[b]
                old = nearest[b]
                closer = score < old
                nearest[b] = score if closer else old
                at[b] = j if closer else at[b]


@njit(cache=True, nogil=True, fastmath=REORDERED)
def _few_products(rows, centers, products):
    """Inner products of many points with few centers, four points by two centers at a time."""
    n, d = rows.shape
    m = centers.shape[0]
    for b in range(0, n - n % 4, 4):
        for j in range(0, m - m % 2, 2):
            s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = 0.0
            for h in range(d):
                c, e = centers[j, h], centers[j + 1, h]
                x = np.float64(rows[b, h])
                s00 += x * c
                s10 += x * e
                x = np.float64(rows[b + 1, h])
                s01 += x * c
                s11 += x * e
                x = np.float64(rows[b + 2, h])
                s02 += x * c
                s12 += x * e
                x = np.float64(rows[b + 3, h])
                s03 += x * c
                s13 += x * e
            products[j, b], products[j, b + 1], products[j, b + 2], products[j, b + 3] = (
                s00,
                s01,
                s02,
                s03,
            )
            j1 = j + 1
            products[j1, b], products[j1, b + 1], products[j1, b + 2], products[j1, b + 3] = (
                s10,
                s11,
                s12,
                s13,
            )
    for b in range(n):
        for j in range(m - m % 2 if b < n - n % 4 else 0, m):
            total = 0.0
            for h in range(d):
                total += np.float64(rows[b, h]) * centers[j, h]
            products[j, b] = total


@njit(cache=True, nogil=True)
def _accumulate(rows, norms, best, label, limit, sums, counts):
    replicates, d = best.shape[0], rows.shape[1]
    for r in range(replicates):
        for b in range(rows.shape[0]):
            if best[r, b] + norms[b] <= limit[r]:
                j = label[r, b]
                counts[r, j] += 1
                for h in range(d):
                    sums[r, j, h] += rows[b, h]


_LOW_BITS = 24


@njit(cache=True, nogil=True)
def _accumulate_inertia(norms, best, high, low):
    mask = (1 << _LOW_BITS) - 1
    for r in range(best.shape[0]):
        for b in range(norms.shape[0]):
            square = np.int64(best[r, b] + norms[b])
            high[r] += square >> _LOW_BITS
            low[r] += square & mask


def _check(points: Points, centers: np.ndarray) -> np.ndarray:
    centers = np.ascontiguousarray(centers, dtype=np.float64)
    d = points.shape[1]
    if centers.ndim != 3 or centers.shape[2] != d or 0 in centers.shape:
        raise ValueError(f"centers must have shape (replicate, cluster, {d}), got {centers.shape}")
    limit = exact_limit(d)
    # Written so that NaN is refused too: it would leave points without a nearest center, and their labels undefined.
    if not np.abs(centers).max() <= limit:
        raise ValueError(
            f"centers must be finite, at most {limit} in size, got {centers.min()} to {centers.max()}; "
            "release them through privacy.snap_centers"
        )
    return centers


def _assigned(
    points: Points, centers: np.ndarray
) -> Iterator[tuple[slice, slice, np.ndarray, np.ndarray]]:
    """Yield (points, replicates, best, label) block by block; ``best`` is the squared distance less ``|x|^2``."""
    n, d = points.shape
    replicates, k, _ = centers.shape
    squares = np.einsum("rjh,rjh->rj", centers, centers)
    if points.blocks is not None:
        best, label = (
            np.empty((replicates, SCAN_BLOCK)),
            np.empty((replicates, SCAN_BLOCK), np.int64),
        )
        for i, block in enumerate(points.blocks):
            _scan_all(block, centers, squares, best, label, (0,) * d)
            size = min(SCAN_BLOCK, n - i * SCAN_BLOCK)
            yield (
                slice(i * SCAN_BLOCK, i * SCAN_BLOCK + size),
                slice(0, replicates),
                best[:, :size],
                label[:, :size],
            )
        return
    chunk, few = max(1, PRODUCT_ROWS // k), replicates * k <= FEW_ROWS
    for start in range(0, n, PRODUCT_BLOCK):
        rows = points.rows[start : start + PRODUCT_BLOCK]
        size = len(rows)
        rows = rows if few else rows.astype(np.float64)
        for first in range(0, replicates, chunk):
            some = slice(first, min(first + chunk, replicates))
            flat = centers[some].reshape(-1, d)
            if few:
                products = np.empty((len(flat), size))
                _few_products(rows, flat, products)
            else:
                products = flat @ rows.T
            best, label = (
                np.empty((some.stop - first, size)),
                np.empty((some.stop - first, size), np.int64),
            )
            _minimum(products.reshape(-1, k, size), squares[some], best, label)
            yield slice(start, start + size), some, best, label


def sums_and_counts(
    points: Points, centers: np.ndarray, limit=None
) -> tuple[np.ndarray, np.ndarray]:
    """Sum and count the points nearest to each center, for every replicate.

    Parameters
    ----------
    points : Points
        n points with integer coordinates.
    centers : ndarray of shape (R, k, d)
        Integer coordinates of absolute value at most :func:`exact_limit`. Ties go to the lower index.
    limit : int or ndarray of shape (R,), optional
        Points whose squared distance to their nearest center exceeds it are left out. Default: none is.

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
    centers = _check(points, centers)
    replicates, k, d = centers.shape
    limit = np.full(replicates, np.inf if limit is None else limit, np.float64)
    sums, counts = np.zeros((replicates, k, d)), np.zeros((replicates, k), np.int64)
    if points.blocks is not None:
        squares = np.einsum("rjh,rjh->rj", centers, centers)
        _scan_and_sum(points.blocks, points.norms, centers, squares, limit, sums, counts, (0,) * d)
        return sums.astype(np.int64), counts
    for where, some, best, label in _assigned(points, centers):
        _accumulate(
            points.rows[where],
            points.norms[where],
            best,
            label,
            limit[some],
            sums[some],
            counts[some],
        )
    return sums.astype(np.int64), counts


def inertia(points: Points, centers: np.ndarray) -> list[int]:
    """Sum of squared distances to the nearest center, one exact integer per replicate.

    Parameters
    ----------
    points : Points
    centers : ndarray of shape (R, k, d)

    Returns
    -------
    list of int
        Exact whatever the number of points, hence the same for any order or split of them.
    """
    centers = _check(points, centers)
    high, low = np.zeros(len(centers), np.int64), np.zeros(len(centers), np.int64)
    for where, some, best, _ in _assigned(points, centers):
        _accumulate_inertia(points.norms[where], best, high[some], low[some])
    return [(int(h) << _LOW_BITS) + int(low_) for h, low_ in zip(high, low, strict=True)]


def labels(points: Points, centers: np.ndarray) -> np.ndarray:
    """Index of the nearest center of each point; ties go to the lower index.

    Returns
    -------
    ndarray of shape (R, n), int32
    """
    centers = _check(points, centers)
    result = np.empty((len(centers), points.shape[0]), np.int32)
    for where, some, _, label in _assigned(points, centers):
        result[some, where] = label
    return result
