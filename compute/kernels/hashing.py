"""Euclidean locality-sensitive hashing; counts and clipped sums of its buckets.

A bucket is a cell of a shifted grid on a few random projections. Directions are rounded
to integers, shifts and widths are integers, so that every product and every division
below is exact and no bucket depends on blocks, order or machine. Source of the hash:
Datar, Immorlica, Indyk, Mirrokni 2004.
"""

import math
from dataclasses import dataclass

import numpy as np
from numba import njit

from pkm.compute.kernels.clipping import clipped_sums
from pkm.compute.kernels.farthest import Farthest
from pkm.compute.kernels.radix_sort import sum_by_key
from pkm.compute.storage.blocks import Arrays
from pkm.compute.storage.points import (
    DIRECTION_SCALE,
    EXACT_BITS,
    FASTMATH,
    SCALE,
    TILE,
    Points,
    make_slices,
    read_weights,
)

MAX_CODES = 1 << 62  # largest number of buckets that a hash may have


@dataclass(frozen=True, eq=False)
class Hash:
    """A locality-sensitive hash: the cell of a shifted grid on projections.

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
    >>> hashing = Hash(np.array([[DIRECTION_SCALE, 0]]), np.array([0]), SCALE**2)
    >>> points = Points.from_grid(np.array([[-1, 7], [0, -9], [SCALE, 0]]))
    >>> hashing.codes(points).tolist()
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
            raise ValueError(
                f"width={self.width} must be positive and shifts between 0 and it"
            )
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
        """Lowest and highest cell that the domain reaches, for each projection."""
        # A projection of the domain is largest at the corner with the signs of the
        # direction: SCALE times the L1 norm. Floor division gives the cells of its
        # ends.
        largest_products = np.abs(self.directions).sum(axis=1)
        ranges = []
        for shift, product in zip(self.shifts, largest_products, strict=True):
            largest = int(product) * SCALE
            lowest_cell = (int(shift) - largest) // self.width
            highest_cell = (int(shift) + largest) // self.width
            ranges.append((lowest_cell, highest_cell))
        return ranges

    def codes(
        self,
        points: Points,
        mask: np.ndarray | None = None,
    ) -> np.ndarray:
        """Code of each point: the number of its cell, in lexicographic order.

        Codes (m,) are of all points, or of those that a mask (n,) marks, in the
        shortest unsigned type that holds the number of every cell.
        """
        # Offsets move the lowest cell of each projection to 0, so that codes are not
        # negative and mixed-radix digits are below ``sizes``.
        lowest_cells = np.array([lowest for lowest, _ in self._cell_ranges()], np.int64)
        offsets = self.shifts - lowest_cells * self.width
        sizes = np.array(self.sizes, np.int64)
        n = points.shape[0]
        n_marked = n if mask is None else np.count_nonzero(mask)
        codes = np.empty(n_marked, np.min_scalar_type(math.prod(self.sizes) - 1))
        # Blocks bound the copies that masks and conversions make.
        end = 0
        for block in make_slices(n):
            rows = points.rows[block]
            if mask is not None:
                rows = rows[mask[block]]
            begin = end
            end += len(rows)
            codes[begin:end] = _compute_codes(
                rows,
                self.directions.astype(np.float64),
                offsets,
                self.width,
                sizes,
            )
        return codes

    def cell_centers(self, codes: np.ndarray) -> np.ndarray:
        """Center of each cell in the directions' span: shape (b, d), float64.

        In grid steps. The directions are taken for orthonormal.
        """
        centers = np.zeros((len(codes), self.directions.shape[1]))
        remaining = np.asarray(codes, np.int64)
        cell_ranges = self._cell_ranges()
        # The last projection is the lowest digit of a code.
        for m in reversed(range(len(self.directions))):
            lowest, highest = cell_ranges[m]
            remaining, cell = np.divmod(remaining, highest - lowest + 1)
            # Middle of the cell along the projection, in steps of 2^-32 half-widths.
            product = (cell + lowest + 0.5) * self.width - self.shifts[m]
            direction = self.directions[m] / DIRECTION_SCALE
            centers += np.outer(product / DIRECTION_SCALE, direction)
        return centers


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _compute_codes(
    rows: np.ndarray,
    directions: np.ndarray,
    offsets: np.ndarray,
    width: int,
    sizes: np.ndarray,
) -> np.ndarray:
    # IN: rows and the public hash. OUT: codes, one per row.
    codes = np.empty(len(rows), np.int64)
    for i in range(rows.shape[0]):
        row = rows[i]
        code = 0
        for m in range(directions.shape[0]):
            direction = directions[m]
            # An integer below 2**53, in steps of 2**-32 half-widths.
            product = 0.0
            for h in range(len(row)):
                product += np.float64(row[h]) * direction[h]
            # The cell along each projection is a digit of the code.
            cell = (np.int64(product) + offsets[m]) // width
            code = code * sizes[m] + cell
        codes[i] = code
    return codes


def euclidean_hash(
    generator: np.random.Generator,
    m: int,
    d: int,
    width: float,
) -> Hash:
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
    Two points whose projections on a direction differ by g fall into one cell along it
    with probability ``max(0, 1 - g / width)``.
    """
    directions = orthonormal(generator, m, d)
    steps = max(1, round(width * SCALE * DIRECTION_SCALE))
    shifts = generator.integers(0, steps, m)
    return Hash(directions, shifts, steps)


def orthonormal(
    generator: np.random.Generator,
    m: int,
    d: int,
) -> np.ndarray:
    """Draw m random orthonormal directions of d features, shape (m, d), int64.

    Entries are rounded to integers, with :data:`DIRECTION_SCALE` for 1. Sums are
    correctly rounded, so that the outcome does not depend on a linear algebra library.
    """
    if not 1 <= m <= d:
        raise ValueError(
            f"projections={m} must be from 1 to the number of features, {d}"
        )
    directions: list[np.ndarray] = []
    for row in generator.standard_normal((m, d)):
        # Gram-Schmidt: the second pass removes the rounding errors of the first.
        for _ in range(2):
            for direction in directions:
                row = row - math.fsum(row * direction) * direction
        directions.append(row / math.sqrt(math.fsum(row * row)))
    return np.rint(np.array(directions) * DIRECTION_SCALE).astype(np.int64)


def bucket_counts(
    points: Points,
    hashing: Hash,
    remaining: Farthest | None,
) -> Arrays:
    """Codes of the remaining points' buckets, increasing, and their counts.

    Of ``remaining`` only the points in its mask are counted, not its tied rows. Counts
    of rows with weights are in 2**-16 records.
    """
    codes = _bucket_codes(points, hashing, remaining)
    if points.weights is None:
        return np.unique(codes, return_counts=True)
    marked = slice(None) if remaining is None else remaining.mask(points)
    weights = points.weights[marked].astype(np.int64)
    # A row of weight 0 counts as none: it must not make its bucket occupied.
    return sum_by_key(codes[weights > 0], weights[weights > 0])


def merge_counts(counted: Arrays, more: Arrays) -> Arrays:
    """Codes of either of two sets of points, increasing, and their added counts."""
    codes, counts = (np.concatenate(pair) for pair in zip(counted, more, strict=True))
    return sum_by_key(codes, counts)


def bucket_sums(
    points: Points,
    hashing: Hash,
    remaining: Farthest | None,
    released: np.ndarray,
    origins: np.ndarray,
    radius: float,
) -> Arrays:
    """Sums (b, d) of the remaining points in released buckets, about origins.

    Of ``remaining`` only the points in its mask are added, not its tied rows. Sums of
    rows with weights are in 2**-16 grid steps.
    """
    # Position of each point's bucket among the released ones; the mask's points only.
    positions = _find_positions(_bucket_codes(points, hashing, remaining), released)
    if remaining is None:
        buckets = positions
    else:
        buckets = np.full(points.shape[0], -1, np.int32)
        buckets[remaining.mask(points)] = positions
    weights = read_weights(points)
    sums = clipped_sums(points.rows, weights, buckets, origins, float(radius), True)
    return (sums,)


def _bucket_codes(
    points: Points,
    hashing: Hash,
    remaining: Farthest | None,
) -> np.ndarray:
    """Codes of the points in a mask, or of all."""
    mask = None if remaining is None else remaining.mask(points)
    return hashing.codes(points, mask)


@njit(cache=True, nogil=True)
def _find_positions(codes: np.ndarray, released: np.ndarray) -> np.ndarray:
    """Position (n,), int32, of each bucket among the released ones, or -1."""
    if not len(released):
        return np.full(len(codes), -1, np.int32)
    positions = np.zeros(len(codes), np.int32)
    # A binary search of several codes at a time: the compiler vectorizes each step.
    for start in range(0, len(codes), TILE):
        tile = codes[start : start + TILE]
        places = positions[start : start + TILE]
        size = len(released)
        while size > 1:
            half = np.int32(size // 2)
            for i in range(len(tile)):
                # Unsigned: indices that are negative would need a test.
                middle = np.uint32(places[i] + half)
                places[i] += half if released[middle] <= np.int64(tile[i]) else 0
            size -= half
        for i in range(len(tile)):
            is_released = released[np.uint32(places[i])] == np.int64(tile[i])
            places[i] = places[i] if is_released else -1
    return positions
