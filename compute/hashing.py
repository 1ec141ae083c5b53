"""Hashing for Euclidean space, clipped sums over buckets, the farthest points, and costs of swaps: all in integers.

A bucket is a cell of a shifted grid on a few projections. Directions are rounded to integers, shifts and widths are
integers, so that every product and every division below is exact and no bucket depends on blocks, order or machine.
Source of the hash: Datar, Immorlica, Indyk, Mirrokni 2004.
"""

import math
from dataclasses import dataclass

import numpy as np
from numba import njit

from pkm.compute.nearest import EXACT_BITS, SCALE, Points, _assigned, _check

ENTRY = 1 << 16  # directions are rounded to multiples of its inverse
SWAP_BLOCK = 256
MAX_CODES = 1 << 62
SHORTER = 1 - 2.0**-48  # more than what rounding of a root and a quotient can add to a length


@dataclass(frozen=True, eq=False)
class Hash:
    """Cells of a shifted grid on projections: one value for each point.

    Parameters
    ----------
    directions : ndarray of shape (m, d), int64
        Entries of at most 2**16 in size, :data:`ENTRY` for 1.
    shifts : ndarray of shape (m,), int64
        In steps of 2**-32 half-widths, from 0 to below the width.
    width : int
        In the same steps.

    Raises
    ------
    ValueError
        If the width is so small that cells of the domain cannot be numbered.

    Examples
    --------
    >>> hashing = Hash(np.array([[ENTRY, 0]]), np.array([0]), ENTRY * SCALE)
    >>> hashing.codes(Points.prepare(np.array([[-1, 7], [0, -9], [SCALE, 0]]))).tolist()
    [0, 1, 2]
    """

    directions: np.ndarray
    shifts: np.ndarray
    width: int

    def __post_init__(self):
        if (
            np.abs(self.directions).max() > ENTRY
            or self.directions.shape[1] * 2.0**32 > 2.0**EXACT_BITS
        ):
            raise ValueError(
                f"directions must have entries of at most {ENTRY}, and be no longer than exact products allow"
            )
        if not (self.width >= 1 and (self.shifts >= 0).all() and (self.shifts < self.width).all()):
            raise ValueError(f"width={self.width} must be positive and shifts between 0 and it")
        if math.prod(self.sizes) > MAX_CODES:
            raise ValueError(
                f"width={self.width / (ENTRY * SCALE):.3g} is too small: take wider cells or fewer projections"
            )

    @property
    def _lowest(self) -> list[int]:
        """Least cell of each projection that a point of the domain can be in."""
        return [
            (int(shift) - reach) // self.width
            for shift, reach in zip(self.shifts, self._reaches(), strict=True)
        ]

    @property
    def sizes(self) -> list[int]:
        """Number of cells of the domain along each projection."""
        highest = [
            (int(shift) + reach) // self.width
            for shift, reach in zip(self.shifts, self._reaches(), strict=True)
        ]
        return [high - low + 1 for high, low in zip(highest, self._lowest, strict=True)]

    def _reaches(self) -> list[int]:
        return [int(total) * SCALE for total in np.abs(self.directions).sum(axis=1)]

    def codes(self, points: Points) -> np.ndarray:
        """Number of the cell of each point: shape (n,), int64. Numbers follow the cells' lexicographic order."""
        codes = np.empty(points.shape[0], np.int64)
        offsets = self.shifts - np.array(self._lowest, np.int64) * self.width
        _codes(
            points.rows, self.directions, offsets, self.width, np.array(self.sizes, np.int64), codes
        )
        return codes

    def middles(self, codes: np.ndarray) -> np.ndarray:
        """Point of the directions' span in the middle of each cell: shape (b, d), float64, in grid steps.

        The directions are taken for orthonormal.
        """
        middles = np.zeros((len(codes), self.directions.shape[1]))
        rest = np.asarray(codes, np.int64)
        for low, size, shift, direction in reversed(
            list(zip(self._lowest, self.sizes, self.shifts, self.directions, strict=True))
        ):
            rest, cell = np.divmod(rest, size)
            place = (cell + low + 0.5) * self.width - shift
            middles += np.outer(place / ENTRY, direction / ENTRY)
        return middles


def euclidean_hash(generator: np.random.Generator, m: int, d: int, width: float) -> Hash:
    """Draw a hash with orthonormal directions and uniform shifts.

    Parameters
    ----------
    generator : numpy.random.Generator
        Public.
    m, d : int
        Numbers of projections and of columns, m at most d.
    width : float
        In half-widths of the domain.

    Returns
    -------
    Hash

    Notes
    -----
    Two points whose projections on one direction are g apart fall into one cell there with probability
    ``max(0, 1 - g / width)``.
    """
    directions = orthonormal(generator, m, d)
    steps = max(1, round(width * SCALE * ENTRY))
    return Hash(directions, generator.integers(0, steps, m), steps)


def orthonormal(generator: np.random.Generator, m: int, d: int) -> np.ndarray:
    """Draw m random orthonormal directions of d columns, rounded to integers with :data:`ENTRY` for 1.

    Sums are correctly rounded, so that the outcome does not depend on a linear algebra library.
    """
    if not 1 <= m <= d:
        raise ValueError(f"projections={m} must be from 1 to the number of columns, {d}")
    found: list[np.ndarray] = []
    for row in generator.standard_normal((m, d)):
        for _ in range(2):  # twice is enough
            for other in found:
                row = row - math.fsum(row * other) * other
        found.append(row / math.sqrt(math.fsum(row * row)))
    return np.rint(np.array(found) * ENTRY).astype(np.int64)


@njit(cache=True, nogil=True)
def _codes(rows, directions, offsets, width, sizes, codes):
    for i in range(rows.shape[0]):
        code = 0
        for j in range(directions.shape[0]):
            product = 0  # of integers, below 2**53
            for h in range(rows.shape[1]):
                product += np.int64(rows[i, h]) * directions[j, h]
            code = code * sizes[j] + (product + offsets[j]) // width
        codes[i] = code


@njit(cache=True, nogil=True)
def _clipped_sums(rows, labels, about, radius, sums):
    square = radius * radius
    for i in range(rows.shape[0]):
        b = labels[i]
        if b < 0:
            continue
        norm = 0.0
        for h in range(rows.shape[1]):
            step = np.float64(rows[i, h]) - about[b, h]
            norm += step * step
        if norm <= square:
            for h in range(rows.shape[1]):
                sums[b, h] += np.int64(rows[i, h]) - about[b, h]
        else:
            factor = radius / math.sqrt(norm) * SHORTER
            for h in range(rows.shape[1]):
                # Toward zero: no longer than the radius.
                sums[b, h] += np.int64((np.float64(rows[i, h]) - about[b, h]) * factor)


def clipped_sums(
    points: Points, labels: np.ndarray, about: np.ndarray, radius: float
) -> np.ndarray:
    """Sum of the points of each bucket about its reference, each difference shortened to a radius.

    Parameters
    ----------
    points : Points
    labels : ndarray of shape (n,), int64
        Bucket of each point; points with -1 are left out.
    about : ndarray of shape (b, d), int64
    radius : float
        In grid steps.

    Returns
    -------
    ndarray of shape (b, d), int64
        No point adds more than the radius in length.
    """
    sums = np.zeros(about.shape, np.int64)
    _clipped_sums(points.rows, labels, about, float(radius), sums)
    return sums


@njit(cache=True, nogil=True)
def _pull(rows, norms, radius, pulled):
    square = radius * radius
    for i in range(rows.shape[0]):
        factor = 1.0 if norms[i] <= square else radius / math.sqrt(norms[i]) * SHORTER
        for h in range(rows.shape[1]):
            pulled[i, h] = np.int64(rows[i, h] * factor)


def pulled(rows: np.ndarray, radius: float) -> np.ndarray:
    """Grid vectors (n, d), those longer than a radius shortened to it, rounded toward zero; int64."""
    rows = np.asarray(rows, np.float64)
    found = np.empty(rows.shape, np.int64)
    _pull(rows, (rows * rows).sum(axis=1), float(radius), found)
    return found


def farthest(parts: list[Points], centers: np.ndarray, many: int) -> list[np.ndarray]:
    """Mark the points that are farthest from their nearest center.

    Parameters
    ----------
    parts : list of Points
        Shards of one set.
    centers : ndarray of shape (k, d), int64
    many : int
        How many to mark; all if there are fewer.

    Returns
    -------
    list of ndarray of bool
        For each part. Which points are marked, as a multiset, is a function of the multiset of points: among equally
        far ones, those first in lexicographic order are.
    """
    squares = [_squared_distances(part, centers) for part in parts]
    together = np.concatenate(squares)
    if many >= len(together):
        return [np.ones(len(each), bool) for each in squares]
    if many < 1:
        return [np.zeros(len(each), bool) for each in squares]
    limit = np.partition(together, len(together) - many)[len(together) - many]
    marked = together > limit
    tied = np.flatnonzero(together == limit)
    short = many - np.count_nonzero(marked)
    if short < len(tied):
        starts = np.cumsum([0, *(len(each) for each in squares)])
        rows = [
            part.rows[tied[(tied >= a) & (tied < a + part.shape[0])] - a]
            for part, a in zip(parts, starts, strict=False)
        ]
        tied = tied[np.lexsort(np.concatenate(rows).T[::-1])[:short]]
    marked[tied] = True
    return np.split(marked, np.cumsum([len(each) for each in squares])[:-1])


def _squared_distances(points: Points, centers: np.ndarray) -> np.ndarray:
    """Squared distance of each point to its nearest center, exact, shape (n,), float64."""
    found = np.empty(points.shape[0])
    for where, _, best, _ in _assigned(points, _check(points, centers[None])):
        found[where] = best[0] + points.norms[where]
    return found


def swap_costs(
    points: Points, candidates: np.ndarray, current: np.ndarray, slots: np.ndarray
) -> np.ndarray:
    """Cost of a set of candidates after each possible swap.

    Parameters
    ----------
    points : Points
    candidates : ndarray of shape (m, d), int64
        In the domain.
    current : ndarray of shape (k,), int64
        Indices of the candidates that are chosen now.
    slots : ndarray of int64
        Positions in ``current`` that may be given up.

    Returns
    -------
    ndarray of shape (len(slots), m), object
        Exact sums of squared distances to the nearest center, as Python integers.

    Notes
    -----
    With the nearest chosen center of a point and the distance to the second nearest, giving up a center changes only
    the points that are nearest to it: all swaps together take one pass over the n m distances.
    """
    squares = (candidates * candidates).sum(axis=1).astype(np.float64)
    doubled = np.ascontiguousarray(-2.0 * candidates.T)
    # Partial sums of a block stay below 2**53: sums of integers are then exact in any order.
    block = int(min(SWAP_BLOCK, 2.0**EXACT_BITS // (points.shape[1] * 4.0 * SCALE**2)))
    total = np.zeros((len(slots), len(candidates)), object)
    for start in range(0, points.shape[0], block):
        rows, norms = points.rows[start : start + block], points.norms[start : start + block]
        distances = np.zeros((len(rows), len(candidates)))
        _products(rows, doubled, distances)
        distances += squares
        distances += norms[:, None]
        total += _swaps(distances, current, slots).astype(np.int64)
    return total


@njit(cache=True, nogil=True)
def _products(rows, others, products):
    for i in range(rows.shape[0]):
        row = products[i]
        for h in range(rows.shape[1]):
            x = np.float64(rows[i, h])
            for j in range(others.shape[1]):
                row[j] += x * others[h, j]


@njit(cache=True, nogil=True)
def _swaps(distances, current, slots):
    m = distances.shape[1]
    slot_of = np.full(len(current), -1)
    for s in range(len(slots)):
        slot_of[slots[s]] = s
    kept, gained = np.zeros(m), np.zeros((len(slots), m))
    for i in range(distances.shape[0]):
        row = distances[i]
        first, second, own = np.inf, np.inf, 0
        for c in range(len(current)):
            square = row[current[c]]
            if square < first:
                first, second, own = square, first, c
            elif square < second:
                second = square
        s = slot_of[own]
        if s < 0:
            for j in range(m):
                kept[j] += row[j] if row[j] < first else first
            continue
        mine = gained[s]
        for j in range(m):
            square = row[j]
            near = square if square < first else first
            kept[j] += near
            mine[j] += (square if square < second else second) - near
    return gained + kept
