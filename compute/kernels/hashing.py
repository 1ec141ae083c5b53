"""Euclidean locality-sensitive hashing; counts and clipped sums of its buckets.

A bucket is a cell of a shifted grid on a few random projections. Directions are rounded
to integers, shifts and widths are integers, so that every product and every division
below is exact and no bucket depends on blocks, order or machine. Source of the hash:
Datar, Immorlica, Indyk, Mirrokni 2004.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

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
    Points,
    make_slices,
    read_weights,
)

MAX_CODES = 1 << 62  # largest number of buckets that a hash may have
NO_MASK = np.empty(0, np.bool_)  # what kernels read as: all rows
#: Odd, nearest to 2**64 over the golden ratio: spreads consecutive codes over a table
#: (Knuth, The Art of Computer Programming, volume 3, section 6.4).
HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)


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
        n = points.shape[0]
        n_marked = n if mask is None else np.count_nonzero(mask)
        codes = np.empty(n_marked, np.min_scalar_type(math.prod(self.sizes) - 1))
        cells = self._cells()
        # Blocks bound the copies that conversions make.
        end = 0
        for block in make_slices(n):
            marked = NO_MASK if mask is None else mask[block]
            computed = _compute_codes(points.rows[block], marked, cells)
            begin = end
            end += len(computed)
            codes[begin:end] = computed
        return codes

    def find_buckets(
        self,
        points: Points,
        mask: np.ndarray | None,
        released: np.ndarray,
    ) -> np.ndarray:
        """Position (n,), int32, of each point's code among released ones, or -1.

        Released codes (b,), int64, are distinct. Points that a mask (n,) does not mark
        have -1.
        """
        marked = NO_MASK if mask is None else mask
        return _find_buckets(points.rows, marked, self._cells(), released)

    def _cells(self) -> "Cells":
        """Lay out the hash for the kernels."""
        # Offsets move the lowest cell of each projection to 0, so that codes are not
        # negative and mixed-radix digits are below ``sizes``.
        lowest_cells = np.array([lowest for lowest, _ in self._cell_ranges()], np.int64)
        return Cells(
            self.directions.astype(np.float64),
            self.shifts - lowest_cells * self.width,
            self.width,
            1 / self.width,
            np.array(self.sizes, np.int64),
        )

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


class Cells(NamedTuple):
    """A hash as kernels read it.

    Attributes
    ----------
    directions : ndarray of shape (m, d), float64
    offsets : ndarray of shape (m,), int64
        Added to products, in steps of 2**-32 half-widths.
    width : int
        In the same steps.
    sizes : ndarray of shape (m,), int64
        Number of cells along each projection.
    """

    directions: np.ndarray
    offsets: np.ndarray
    width: int
    inverse_width: float
    sizes: np.ndarray


@njit(cache=True, nogil=True, fastmath=FASTMATH, inline="always")
def _compute_code(
    rows: np.ndarray,
    i: int,
    directions: np.ndarray,
    offsets: np.ndarray,
    width: int,
    inverse_width: float,
    sizes: np.ndarray,
) -> int:
    """Code of the cell of row i."""
    code = 0
    for m in range(directions.shape[0]):
        # An integer below 2**53, in steps of 2**-32 half-widths.
        product = 0.0
        for h in range(rows.shape[1]):
            product += np.float64(rows[i, h]) * directions[m, h]
        position = np.int64(product) + offsets[m]
        # Floor division: the rounded quotient is wrong by one at most.
        cell = np.int64(np.float64(position) * inverse_width)
        rest = position - cell * width
        cell += np.int64(rest >= width) - np.int64(rest < 0)
        # The cell along each projection is a digit of the code.
        code = code * sizes[m] + cell
    return code


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _compute_codes(rows: np.ndarray, mask: np.ndarray, cells: Cells) -> np.ndarray:
    """Codes (m,), int64, of the rows in a mask, or of all if it is empty."""
    directions, offsets, width, inverse_width, sizes = cells
    codes = np.empty(len(rows), np.int64)
    n_marked = 0
    for i in range(len(rows)):
        if len(mask) and not mask[i]:
            continue
        codes[n_marked] = _compute_code(
            rows,
            i,
            directions,
            offsets,
            width,
            inverse_width,
            sizes,
        )
        n_marked += 1
    return codes[:n_marked]


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _find_buckets(
    rows: np.ndarray,  # IN
    mask: np.ndarray,  # IN, or empty: all rows
    cells: Cells,
    released: np.ndarray,  # IN
) -> np.ndarray:
    """Position (n,), int32, of each row's code among the released ones, or -1."""
    # A hash table of at least twice as many slots, with linear probing.
    bits = 1
    while 1 << bits < 2 * len(released):
        bits += 1
    slot_codes = np.full(1 << bits, -1, np.int64)
    slot_positions = np.full(1 << bits, -1, np.int32)
    for j in range(len(released)):
        slot = _find_slot(slot_codes, released[j], bits)
        slot_codes[slot] = released[j]
        slot_positions[slot] = j

    directions, offsets, width, inverse_width, sizes = cells
    positions = np.full(len(rows), -1, np.int32)
    for i in range(len(rows)):
        if len(mask) and not mask[i]:
            continue
        code = _compute_code(
            rows,
            i,
            directions,
            offsets,
            width,
            inverse_width,
            sizes,
        )
        positions[i] = slot_positions[_find_slot(slot_codes, code, bits)]
    return positions


@njit(cache=True, nogil=True)
def _find_slot(slot_codes: np.ndarray, code: int, bits: int) -> np.int64:
    """Slot of a code in a table of 2**bits slots, or the empty one where it belongs."""
    slot = np.int64((np.uint64(code) * HASH_FACTOR) >> np.uint64(64 - bits))
    while slot_codes[slot] >= 0 and slot_codes[slot] != code:
        slot = (slot + 1) & (len(slot_codes) - 1)
    return slot


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
    mask = None if remaining is None else remaining.mask(points)
    codes = hashing.codes(points, mask)
    if points.weights is None:
        return np.unique(codes, return_counts=True)
    weights = points.weights if mask is None else points.weights[mask]
    weights = weights.astype(np.int64)
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
    mask = None if remaining is None else remaining.mask(points)
    buckets = hashing.find_buckets(points, mask, released)
    weights = read_weights(points)
    sums = clipped_sums(points.rows, weights, buckets, origins, float(radius), True)
    return (sums,)
