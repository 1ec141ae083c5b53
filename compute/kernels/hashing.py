"""Euclidean hashing, clipped sums of buckets, costs of swaps: all in integers.

A bucket is a cell of a shifted grid on a few random projections. Directions are rounded to
integers, shifts and widths are integers, so that every product and every division below is exact
and no bucket depends on blocks, order or machine. Source of the hash: Datar, Immorlica, Indyk,
Mirrokni 2004.
"""

import math
from dataclasses import dataclass

import numpy as np
from numba import njit

from pkm.compute.kernels.nearest import squared_distances
from pkm.compute.storage.points import DIRECTION_SCALE, EXACT_BITS, SCALE, Points

BLOCK = 1 << 15  # points whose temporary arrays exist at once
SWAP_BLOCK = 256  # points per matrix of distances in swap_costs
MAX_CODES = 1 << 62
SHRINKAGE = 1 - 2.0**-48  # outweighs the rounding of the root and the quotient of a clipping


@dataclass(frozen=True, eq=False)
class Hash:
    """Cells of a shifted grid on projections: a number for each point.

    Parameters
    ----------
    directions : ndarray of shape (m, d), int64
        Entries of at most 2**16 in size, :data:`DIRECTION_SCALE` for 1.
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
    >>> hashing = Hash(np.array([[DIRECTION_SCALE, 0]]), np.array([0]), DIRECTION_SCALE * SCALE)
    >>> hashing.codes(Points.prepare(np.array([[-1, 7], [0, -9], [SCALE, 0]]))).tolist()
    [0, 1, 2]
    """

    directions: np.ndarray
    shifts: np.ndarray
    width: int

    def __post_init__(self) -> None:
        too_long = self.directions.shape[1] * 2.0**32 > 2.0**EXACT_BITS
        if too_long or np.abs(self.directions).max() > DIRECTION_SCALE:
            raise ValueError(
                f"directions must have entries of at most {DIRECTION_SCALE}, "
                "and be no longer than exact products allow"
            )
        in_range = (self.shifts >= 0) & (self.shifts < self.width)
        if self.width < 1 or not in_range.all():
            raise ValueError(f"width={self.width} must be positive and shifts between 0 and it")
        if math.prod(self.sizes) > MAX_CODES:
            width = self.width / (DIRECTION_SCALE * SCALE)
            raise ValueError(
                f"width={width:.3g} is too small: take wider cells or fewer projections"
            )

    @property
    def sizes(self) -> list[int]:
        """Number of cells of the domain along each projection."""
        return [highest - lowest + 1 for lowest, highest in self._cell_ranges()]

    def _cell_ranges(self) -> list[tuple[int, int]]:
        """Lowest and highest cell of each projection that a point of the domain can be in."""
        largest_products = np.abs(self.directions).sum(axis=1)
        ranges = []
        for shift, product in zip(self.shifts, largest_products, strict=True):
            largest = int(product) * SCALE
            lowest_cell = (int(shift) - largest) // self.width
            highest_cell = (int(shift) + largest) // self.width
            ranges.append((lowest_cell, highest_cell))
        return ranges

    def codes(self, points: Points, mask: np.ndarray | None = None) -> np.ndarray:
        """Number of each point's cell, in the cells' lexicographic order.

        Of all points, or of those that a mask (n,) marks: shape (m,), of the shortest unsigned type
        that holds the number of every cell.
        """
        lowest_cells = np.array([lowest for lowest, _ in self._cell_ranges()], np.int64)
        offsets = self.shifts - lowest_cells * self.width
        sizes = np.array(self.sizes, np.int64)
        n = points.shape[0]
        n_marked = n if mask is None else np.count_nonzero(mask)
        codes = np.empty(n_marked, np.min_scalar_type(math.prod(self.sizes) - 1))
        block_codes = np.empty(min(n, BLOCK), np.int64)
        n_found = 0
        for start in range(0, n, BLOCK):
            block = slice(start, start + BLOCK)
            rows = points.rows[block] if mask is None else points.rows[block][mask[block]]
            found = block_codes[: len(rows)]
            _codes(rows, self.directions, offsets, self.width, sizes, found)
            codes[n_found : n_found + len(rows)] = found
            n_found += len(rows)
        return codes

    def cell_centers(self, codes: np.ndarray) -> np.ndarray:
        """Point of the directions' span in the center of each cell: shape (b, d), float64.

        In grid steps. The directions are taken for orthonormal.
        """
        centers = np.zeros((len(codes), self.directions.shape[1]))
        remaining = np.asarray(codes, np.int64)
        cell_ranges = self._cell_ranges()
        # The last projection is the lowest digit of a code.
        for m in reversed(range(len(self.directions))):
            lowest, highest = cell_ranges[m]
            remaining, cell = np.divmod(remaining, highest - lowest + 1)
            product = (cell + lowest + 0.5) * self.width - self.shifts[m]
            direction = self.directions[m] / DIRECTION_SCALE
            centers += np.outer(product / DIRECTION_SCALE, direction)
        return centers


@njit(cache=True, nogil=True)
def _codes(
    rows: np.ndarray,
    directions: np.ndarray,
    offsets: np.ndarray,
    width: int,
    sizes: np.ndarray,
    codes: np.ndarray,
) -> None:
    for i in range(rows.shape[0]):
        code = 0
        for m in range(directions.shape[0]):
            # Of integers, below 2**53, in steps of 2**-32 half-widths.
            product = 0
            for h in range(rows.shape[1]):
                product += np.int64(rows[i, h]) * directions[m, h]
            code = code * sizes[m] + (product + offsets[m]) // width
        codes[i] = code


def euclidean_hash(generator: np.random.Generator, m: int, d: int, width: float) -> Hash:
    """Draw a hash with orthonormal directions and uniform shifts.

    Parameters
    ----------
    generator : numpy.random.Generator
        Public.
    m, d : int
        Numbers of projections and of features, m at most d.
    width : float
        In half-widths of the domain.

    Returns
    -------
    Hash

    Notes
    -----
    Two points whose projections on a direction differ by g fall into one cell along it with
    probability ``max(0, 1 - g / width)``.
    """
    directions = orthonormal(generator, m, d)
    steps = max(1, round(width * SCALE * DIRECTION_SCALE))
    shifts = generator.integers(0, steps, m)
    return Hash(directions, shifts, steps)


def orthonormal(generator: np.random.Generator, m: int, d: int) -> np.ndarray:
    """Draw m random orthonormal directions of d features, shape (m, d), int64.

    Entries are rounded to integers, with :data:`DIRECTION_SCALE` for 1. Sums are correctly rounded,
    so that the outcome does not depend on a linear algebra library.
    """
    if not 1 <= m <= d:
        raise ValueError(f"projections={m} must be from 1 to the number of features, {d}")
    directions: list[np.ndarray] = []
    for row in generator.standard_normal((m, d)):
        # Gram-Schmidt: the second pass removes the rounding errors of the first.
        for _ in range(2):
            for direction in directions:
                row = row - math.fsum(row * direction) * direction
        directions.append(row / math.sqrt(math.fsum(row * row)))
    return np.rint(np.array(directions) * DIRECTION_SCALE).astype(np.int64)


def clipped_sums(
    points: Points,
    labels: np.ndarray,
    origins: np.ndarray,
    radius: float,
) -> np.ndarray:
    """Sum of the differences of each bucket's points from its origin, each clipped in norm.

    Parameters
    ----------
    points : Points
    labels : ndarray of shape (n,), int32
        Bucket of each point; points with -1 are left out.
    origins : ndarray of shape (b, d), int64
        In grid steps.
    radius : float
        In grid steps.

    Returns
    -------
    ndarray of shape (b, d), int64
        No point adds more than the radius in length.
    """
    sums = np.zeros(origins.shape, np.int64)
    _clipped_sums(points.rows, labels, origins, float(radius), sums)
    return sums


@njit(cache=True, nogil=True)
def _clipped_sums(
    rows: np.ndarray,
    labels: np.ndarray,
    origins: np.ndarray,
    radius: float,
    sums: np.ndarray,
) -> None:
    d = rows.shape[1]
    squared_radius = radius * radius
    for i in range(rows.shape[0]):
        label = labels[i]
        if label < 0:
            continue
        square = 0.0
        for h in range(d):
            step = np.float64(rows[i, h]) - origins[label, h]
            square += step * step
        if square <= squared_radius:
            for h in range(d):
                sums[label, h] += np.int64(rows[i, h]) - origins[label, h]
        else:
            factor = radius / math.sqrt(square) * SHRINKAGE
            for h in range(d):
                # Toward zero: no longer than the radius.
                step = np.float64(rows[i, h]) - origins[label, h]
                sums[label, h] += np.int64(step * factor)


def nearest_shells(points: Points, centers: np.ndarray, radii: np.ndarray) -> np.ndarray:
    """Count the points by their distance to the nearest center.

    Parameters
    ----------
    points : Points
    centers : ndarray of shape (k, d), int64
        In grid steps.
    radii : ndarray of shape (m,), float64
        Decreasing, in grid steps. Shell 0 is all that is farther than ``radii[1]``, shell j the
        points with ``radii[j + 1] < distance <= radii[j]``, the last one all that is nearer.

    Returns
    -------
    ndarray of shape (m,), int64
    """
    # A point's shell is the number of inner radii that it is within.
    inner_squares = (radii[1:] * radii[1:])[::-1]
    squares = squared_distances(points, centers)
    counts = np.zeros(len(radii), np.int64)
    for start in range(0, len(squares), BLOCK):
        inside = np.searchsorted(inner_squares, squares[start : start + BLOCK])
        counts += np.bincount(len(inner_squares) - inside, minlength=len(radii))
    return counts


def clip_norms(rows: np.ndarray, radius: float) -> np.ndarray:
    """Grid vectors (n, d), int64: those longer than a radius shortened to it, toward zero."""
    rows = np.asarray(rows, np.float64)
    squared_norms = (rows * rows).sum(axis=1)
    clipped = np.empty(rows.shape, np.int64)
    _clip_norms(rows, squared_norms, float(radius), clipped)
    return clipped


@njit(cache=True, nogil=True)
def _clip_norms(
    rows: np.ndarray,
    squared_norms: np.ndarray,
    radius: float,
    clipped: np.ndarray,
) -> None:
    squared_radius = radius * radius
    for i in range(rows.shape[0]):
        factor = 1.0
        if squared_norms[i] > squared_radius:
            factor = radius / math.sqrt(squared_norms[i]) * SHRINKAGE
        for h in range(rows.shape[1]):
            clipped[i, h] = np.int64(rows[i, h] * factor)


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
        In the domain.
    current : ndarray of shape (k,), int64
        Indices of the candidates that are the current centers.
    slots : ndarray of int64
        Positions in ``current`` that may be replaced.

    Returns
    -------
    ndarray of shape (len(slots), m), object
        Exact sums of squared distances to the nearest center, as Python integers, in squared grid
        steps.

    Notes
    -----
    Removing a center changes only the points that are nearest to it, to the distance of their
    second nearest center: all swaps together take one pass over the n m distances.
    """
    squared_norms = (candidates * candidates).sum(axis=1).astype(np.float64)
    doubled = np.ascontiguousarray(-2.0 * candidates.T)
    # Partial sums of a block stay below 2**53: sums of integers are then exact in any order.
    max_square = points.shape[1] * 4.0 * SCALE**2
    block_size = int(min(SWAP_BLOCK, 2.0**EXACT_BITS // max_square))
    costs = np.zeros((len(slots), len(candidates)), object)
    for start in range(0, points.shape[0], block_size):
        block = slice(start, start + block_size)
        rows = points.rows[block]
        squares = np.zeros((len(rows), len(candidates)))
        _add_products(rows, doubled, squares)
        squares += squared_norms
        squares += points.squared_norms[block, None]
        costs += _swap_costs(squares, current, slots).astype(np.int64)
    return costs


@njit(cache=True, nogil=True)
def _add_products(rows: np.ndarray, columns: np.ndarray, products: np.ndarray) -> None:
    """Add the matrix product of rows (n, d) and columns (d, m) to products (n, m)."""
    for i in range(rows.shape[0]):
        products_of_row = products[i]
        for h in range(rows.shape[1]):
            x = np.float64(rows[i, h])
            for j in range(columns.shape[1]):
                products_of_row[j] += x * columns[h, j]


@njit(cache=True, nogil=True)
def _swap_costs(squares: np.ndarray, current: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Costs (slots, m) of a block of points after each swap, from squared distances (n, m)."""
    n, m = squares.shape
    slot_of_center = np.full(len(current), -1)
    for s in range(len(slots)):
        slot_of_center[slots[s]] = s

    # Cost of adding each candidate without removing a center, and the increase from removing the
    # center of each slot.
    added_costs = np.zeros(m)
    removal_costs = np.zeros((len(slots), m))
    for i in range(n):
        row = squares[i]
        center, first, second = _two_nearest(row, current)
        slot = slot_of_center[center]
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
def _two_nearest(squares: np.ndarray, current: np.ndarray) -> tuple[int, float, float]:
    """Position of the nearest current center; squared distances to it and to the second nearest."""
    nearest = 0
    first = np.inf
    second = np.inf
    for c in range(len(current)):
        square = float(squares[current[c]])
        if square < first:
            second = first
            first = square
            nearest = c
        elif square < second:
            second = square
    return nearest, first, second
