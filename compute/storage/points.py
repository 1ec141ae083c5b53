"""Points on the integer grid of the public domain, prepared for the kernels.

Loop indices have the same meaning in all kernels of this package: ``i`` a point, ``b``
a point's position in a block, ``h`` a feature, ``j`` a center or cluster, ``r`` a
replicate.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from pkm.compute.simd.threads import map_ranges
from pkm.compute.storage.octaves import to_octaves
from pkm.compute.storage.symlog import Symlog

#: Grid steps per half-width of the domain, hence the largest coordinate of a point.
SCALE = 1 << 16
#: The integer for 1 in directions, normal vectors and projection matrices: their
#: entries are multiples of 2**-16.
DIRECTION_SCALE = 1 << 16
#: Integers of up to this many bits are exact in float64.
EXACT_BITS = 53
#: Coordinates of short rows that are quantized in one inner loop.
TILE = 256
#: Coordinates that are quantized at a time: a megabyte in float64.
BLOCK_VALUES = 1 << 17
#: Products of coordinates that take as long as quantizing one coordinate.
QUANTIZE_COST = 32
#: Largest int16. A remainder of half a step is 2**15 units; one less is stored.
MAX_REMAINDER = 32767.0

#: Points of a block where no other size is given: their temporary arrays exist at once.
BLOCK = 1 << 15

#: Fast-math flags of numba: sums of integers are exact in any order. Flags that would
#: assume finite numbers are left out.
FASTMATH = {"reassoc", "contract", "nsz"}


@cache
def exact_limit(n_features: int) -> int:
    """Largest center coordinate for which squared distances are exact in float64.

    Parameters
    ----------
    n_features : int
        Number of coordinates d.

    Returns
    -------
    int
        In grid steps: L such that ``d * (L + SCALE)**2 < 2**53``. Norms, products and
        distances are then integers that float64 holds.

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
            f"n_features={n_features} is too large for exact distances "
            f"on a grid of +-{SCALE} steps"
        )
    return limit


def middle_and_half_width(
    lower: np.ndarray, upper: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Middle and half the width of columns' bounds; neither can overflow.

    Parameters
    ----------
    lower, upper : ndarray of shape (d,), float64

    Returns
    -------
    middle, half_width : ndarray of shape (d,), float64

    Examples
    --------
    >>> upper = np.array([6.0, 1e308])
    >>> middle, half_width = middle_and_half_width(np.array([2.0, -1e308]), upper)
    >>> middle.tolist(), half_width.tolist()
    ([4.0, 0.0], [2.0, 1e+308])
    """
    half_lower = 0.5 * lower
    half_upper = 0.5 * upper
    return half_upper + half_lower, half_upper - half_lower


def make_slices(n: int, size: int = BLOCK) -> list[slice]:
    """Divide n points into blocks, as slices; the last one may be shorter.

    Examples
    --------
    >>> make_slices(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


class RowWeights(NamedTuple):
    """Weights of rows; those of a record add up to one at most.

    Attributes
    ----------
    units : ndarray of shape (n,), int32
        Weight of every row: an integer, in units of 2**-16 records.
    n_persons : int
        Number of persons; 0 where every row is a record of its own.
    """

    units: np.ndarray
    n_persons: int


@dataclass(frozen=True, eq=False)
class Points:
    """Points prepared for repeated passes; equal if their content is.

    Attributes
    ----------
    rows : ndarray of shape (n, d), float32
        The integer coordinates; float32 holds them exactly, at half the memory traffic.
    squared_norms : ndarray of shape (n,), float64
        In squared grid steps.
    remainders : ndarray of shape (n, d), int16, or None
        Remainders of rounding to the grid, in units of 2**-16 steps; None for points
        that were given as integers.
    n_null : int
        Number of null records: they have no row and contribute nothing, but count among
        the records.
    weights : ndarray of shape (n,), int32, or None
        Weight of each row, in units of 2**-16 records; None where a row is one record.
    n_persons : int
        Number of persons whose rows these are; 0 where each row is a record.
    is_missing : ndarray of shape (n, d), bool, or None
        Missing entries, whose coordinates are 0, the middle of the domain. None where
        rows have all entries.
    """

    rows: np.ndarray
    squared_norms: np.ndarray
    remainders: np.ndarray | None = None
    n_null: int = 0
    weights: np.ndarray | None = None
    n_persons: int = 0
    is_missing: np.ndarray | None = None

    @classmethod
    def from_grid(
        cls,
        points: np.ndarray,
        n_null: int = 0,
    ) -> "Points":
        """Lay out integer coordinates (n, d), at most 2**16 in size."""
        points = np.asarray(points).astype(np.int64, copy=False)
        rows = np.empty(points.shape, np.float32)
        squared_norms = np.empty(len(points))
        if not _copy_rows(points, rows, squared_norms):
            raise ValueError(
                f"points must lie in the domain, [-{SCALE}, {SCALE}] on the grid; "
                "clip them first"
            )
        return cls(rows, squared_norms, n_null=n_null)

    @classmethod
    def quantize(
        cls,
        points: np.ndarray,
        lower: np.ndarray,
        upper: np.ndarray,
        *,
        keep_remainders: bool = True,
        keep_missing: bool = False,
        weights: RowWeights | None = None,
    ) -> tuple["Points", bool]:
        """Map the box between ``lower`` and ``upper`` to the grid, in one pass.

        Parameters
        ----------
        points : ndarray of shape (n, d), any real dtype
            In any order in memory, also mapped from a file: it is read once, in blocks
            of rows, and not copied as a whole.
        lower, upper : ndarray of shape (d,), float64
            Columns between minus and plus infinity are on the scale of
            :func:`pkm.compute.storage.octaves.to_octaves`.
        keep_remainders : bool, default=True
            Whether remainders are kept: 2 bytes a coordinate that most queries do not
            read.
        keep_missing : bool, default=False
            Whether a row of which only some entries are NaN is a point with missing
            entries.
        weights : RowWeights, optional
            Default: each row is one record.

        Returns
        -------
        points : Points
            Clipped to the box and rounded to the nearest grid point. Other rows with a
            coordinate that is NaN or infinite become null records.
        outside : bool
            Whether a point was clipped.
        """
        n, d = points.shape
        is_open = np.isinf(upper)
        if is_open.any():
            points = np.where(is_open, to_octaves(points), points)
            lower = np.where(is_open, -1.0, lower)
            upper = np.where(is_open, 1.0, upper)
        rows = np.empty((n, d), np.float32)
        squared_norms = np.empty(n)
        remainders = np.empty((n, d), np.int16) if keep_remainders else None
        arrays = (rows, squared_norms, remainders)
        center, half_width = middle_and_half_width(lower, upper)
        is_missing = None
        if keep_missing:
            points, is_missing = _fill_missing(points, center)

        def quantize_range(first: int, last: int) -> tuple[int, int, bool]:
            return first, *_quantize_rows(
                points,
                first,
                last,
                center,
                half_width,
                arrays,
            )

        # Ranges are filled from their first row on. Null records leave gaps, which are
        # closed here: the rows of each range move up behind those of the one before.
        n_filled = 0
        outside = False
        for first, n_present, is_outside in map_ranges(
            n, QUANTIZE_COST * d, quantize_range
        ):
            if n_filled < first:
                for array in arrays:
                    if array is not None:
                        array[n_filled : n_filled + n_present] = array[
                            first : first + n_present
                        ]
            n_filled += n_present
            outside |= is_outside
        units, n_persons = weights or (None, 0)
        if n_filled < n:
            rows = rows[:n_filled]
            squared_norms = squared_norms[:n_filled]
            remainders = None if remainders is None else remainders[:n_filled]
            if units is not None or is_missing is not None:
                present = np.isfinite(points).all(axis=1)
                units = None if units is None else units[present]
                is_missing = None if is_missing is None else is_missing[present]
        arrays = (rows, squared_norms, remainders)
        return cls(*arrays, n - n_filled, units, n_persons, is_missing), outside

    def rescale(
        self,
        center: np.ndarray,
        half_width: float,
        scale: Symlog,
    ) -> "Points":
        """Quantize the points again on the grid of a smaller domain.

        Parameters
        ----------
        center : ndarray of shape (d,), float64
            Center of the new domain, in half-widths of this one.
        half_width : float
            Half-width of the new domain in every feature, in half-widths of this one.
        scale : Symlog
            Where points beyond the half-width are on the grid.

        Returns
        -------
        Points
            Without remainders. The old remainders are used: steps of 2^-32 old
            half-widths are finer than the new grid if ``half_width`` is above 2^-16.

        Examples
        --------
        >>> points, _ = Points.quantize(np.array([[0.0501]]), -np.ones(1), np.ones(1))
        >>> clipped = Symlog(2000.0, 0.0, by_norm=False)
        >>> inner = points.rescale(np.array([0.05]), 0.001, clipped)
        >>> float(inner.rows[0, 0]) / SCALE
        0.100006103515625
        """
        d = len(center)
        n_together = max(1, TILE // d)
        filled = self.fill(center)
        rows = np.empty_like(self.rows)
        _requantize(
            filled.rows.reshape(-1),
            read_remainders(filled).reshape(-1),
            d,
            np.tile(center, n_together),
            half_width,
            scale.softness,
            scale.linear_part,
            scale.by_norm,
            rows.reshape(-1),
        )
        if self.is_missing is not None:
            rows[self.is_missing] = 0
        squared_norms = square_norms(rows)
        return replace(self, rows=rows, squared_norms=squared_norms, remainders=None)

    def fill(self, center: np.ndarray) -> "Points":
        """Fill missing entries with coordinates of a center (d,), in half-widths.

        They are clipped to the domain.

        Examples
        --------
        >>> rows = np.array([[0.5, np.nan], [np.nan, np.nan]])
        >>> box = -np.ones(2), np.ones(2)
        >>> points, _ = Points.quantize(rows, *box, keep_missing=True)
        >>> filled = points.fill(np.array([0.0, -0.25]))
        >>> (filled.rows / SCALE).tolist(), filled.n_null
        ([[0.5, -0.25]], 1)
        """
        if self.is_missing is None:
            return self
        steps = np.clip(center, -1.0, 1.0) * SCALE
        whole = np.rint(steps)
        rows = np.where(self.is_missing, whole, self.rows).astype(np.float32)
        remainders = self.remainders
        if remainders is not None:
            rest = np.minimum(np.rint((steps - whole) * SCALE), MAX_REMAINDER)
            remainders = np.where(self.is_missing, rest.astype(np.int16), remainders)
        return replace(
            self,
            rows=rows,
            squared_norms=square_norms(rows),
            remainders=remainders,
            is_missing=None,
        )

    @cached_property
    def cache(self) -> dict[str, object]:
        """Cache of arrays computed from the points, for later replicates.

        It lives as long as the points; see :meth:`cached`.
        """
        return {}

    def cached(
        self,
        name: str,
        key: object,
        compute: Callable[[], Any],
    ) -> Any:
        """Return a value computed from the points, and cache it for this key.

        Parameters
        ----------
        name : str
            Name of the value: the cache holds one for each name, the last one.
        key : object
            All that the value depends on besides the points; compared by ``==``.
        compute : callable
            Makes the value.
        """
        kept: Any = self.cache.get(name)
        if kept is None or kept[0] != key:
            kept = self.cache[name] = (key, compute())
        return kept[1]

    def drop(self, name: str) -> None:
        """Remove a value from the cache."""
        self.cache.pop(name, None)

    @cached_property
    def digest(self) -> bytes:
        """Hash of shape, coordinates, remainders, weights and missing entries."""
        shape = (*self.shape, self.n_null, self.n_persons)
        content = repr(shape).encode() + self.rows.tobytes()
        hashed = hashlib.blake2b(content, digest_size=32)
        for array in (self.remainders, self.weights, self.is_missing):
            if array is not None:
                hashed.update(array.tobytes())
        return hashed.digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Points) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @cached_property
    def total_squared_norm(self) -> int:
        """Sum of the squared norms, exact for any number of points."""
        blocks = make_slices(len(self.squared_norms), BLOCK_VALUES)
        return sum(
            sum_exactly(self.squared_norms[block].astype(np.int64)) for block in blocks
        )

    @property
    def total_weight(self) -> float:
        """Sum of the weights, in records: the number of rows without weights."""
        if self.weights is None:
            return float(len(self.rows))
        return int(self.weights.sum(dtype=np.int64)) / SCALE

    @property
    def shape(self) -> tuple[int, int]:
        """Number of points, null records left out, and of features."""
        n, d = self.rows.shape
        return n, d

    @property
    def n_records(self) -> int:
        """Number of records, null ones included: public under zero-out adjacency."""
        return self.n_persons or len(self.rows) + self.n_null


def sum_exactly(integers: np.ndarray) -> int:
    """Sum of int64 that are not negative, exact beyond 2**63.

    Examples
    --------
    >>> sum_exactly(np.full(4, 2**62)) == 2**64
    True
    """
    # High and low parts are summed separately, below 2**63.
    low = integers & ((1 << 32) - 1)
    return (int((integers >> 32).sum()) << 32) + int(low.sum())


def multiply_units(units: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Multiply weights in units of 2**-16 records, rounded down.

    Examples
    --------
    >>> multiply_units(np.array([SCALE, 3]), np.array([5, SCALE // 2])).tolist()
    [5, 1]
    """
    return (units.astype(np.int64) * others // SCALE).astype(np.int32)


def read_weights(points: Points) -> np.ndarray:
    """Weights of the rows, (n,); (0,) where a row is one record."""
    if points.weights is not None:
        return points.weights
    return np.empty(0, np.int32)


@njit(cache=True)
def weight(weights: np.ndarray, i: int) -> int:
    """Weight of a row, in units of 2**-16 records; 1 where each is one record."""
    return int(weights[i]) if len(weights) else 1


@njit(cache=True, nogil=True)
def count_labels(
    labels: np.ndarray,
    weights: np.ndarray,
    n_labels: int,
) -> np.ndarray:
    """Weight of each label, int64 (n_labels,); the number of rows without weights.

    Examples
    --------
    >>> count_labels(np.array([0, 2, 2]), np.array([7, 1, 3]), 3).tolist()
    [7, 0, 4]
    """
    counts = np.zeros(n_labels, np.int64)
    for i in range(len(labels)):
        counts[labels[i]] += weight(weights, i)
    return counts


def read_remainders(points: Points) -> np.ndarray:
    """Remainders of rounding to the grid, (n, d); (0, d) where all are zero."""
    if points.remainders is not None:
        return points.remainders
    return np.empty((0, points.shape[1]), np.int16)


@njit(cache=True)
def coordinate(
    rows: np.ndarray,
    remainders: np.ndarray,
    i: int,
    h: int,
) -> float:
    """Coordinate of a point in half-widths, with its remainder: exact in float64."""
    remainder = remainders[i, h] / SCALE if len(remainders) else 0.0
    return (np.float64(rows[i, h]) + remainder) / SCALE


# Without fast-math: the result for a point must not depend on its position among
# others.
@njit(cache=True, nogil=True, error_model="numpy")
def _requantize(
    values: np.ndarray,  # IN, flat, float32
    remainders: np.ndarray,  # IN, flat, int16, or (0,)
    d: int,
    centers: np.ndarray,  # IN, of a tile
    half_width: float,
    softness: float,
    linear_part: float,
    by_norm: bool,
    new_values: np.ndarray,  # OUT, like values
) -> None:
    # Several points at a time, as one flat array of values. Slices: the compiler
    # vectorizes loops from zero.
    positions = np.empty(len(centers))
    for start in range(0, len(values), len(centers)):
        tile = values[start : start + len(centers)]
        new_tile = new_values[start : start + len(centers)]

        # Coordinates in new half-widths about the center.
        for j in range(len(tile)):
            positions[j] = np.float64(tile[j])
        if len(remainders):
            remainder_tile = remainders[start : start + len(centers)]
            for j in range(len(tile)):
                positions[j] += remainder_tile[j] / SCALE
        for j in range(len(tile)):
            positions[j] = (positions[j] / SCALE - centers[j]) / half_width

        # Scale each point, or each value.
        n_together = d if by_norm else 1
        for first in range(0, len(tile), n_together):
            row = positions[first : first + n_together]
            squared = 0.0
            for h in range(n_together):
                squared += row[h] * row[h]
            factor = linear_part
            if squared > 1.0:
                factor *= _shorten(np.sqrt(squared), softness)
            for h in range(n_together):
                row[h] *= factor

        # Clip to [-1, 1] and round to whole grid steps. Comparisons are faster than min
        # and max, which handle NaN.
        for j in range(len(tile)):
            position = positions[j]
            position = position if position > -1.0 else -1.0
            position = position if position < 1.0 else 1.0
            new_tile[j] = np.rint(position * SCALE)


@njit(cache=True, nogil=True, error_model="numpy")
def _shorten(length: float, softness: float) -> float:
    """Factor that a length is multiplied by; see :class:`Symlog`."""
    if length <= 1.0:
        return 1.0
    beyond = softness * np.log1p((length - 1.0) / softness) if softness > 0.0 else 0.0
    return (1.0 + beyond) / length


def _fill_missing(
    points: np.ndarray,
    middle: np.ndarray,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Fill missing entries with the middle (d,) of the domain; return their mask, too.

    Those of rows with some value and no infinite one: others stay null. The mask is
    None where there are none.
    """
    is_missing = np.isnan(points)
    n_missing = is_missing.sum(axis=1)
    has_missing = (n_missing > 0) & (n_missing < points.shape[1])
    # A row with an infinite value is null, whatever else it has.
    has_missing &= np.isinf(points).sum(axis=1) == 0
    if not has_missing.any():
        return points, None
    is_missing &= has_missing[:, None]
    return np.where(is_missing, middle, points), is_missing


def _quantize_rows(
    points: np.ndarray,
    first: int,
    last: int,
    center: np.ndarray,
    half_width: np.ndarray,
    arrays: tuple[np.ndarray, np.ndarray, np.ndarray | None],
) -> tuple[int, bool]:
    """Fill the arrays of Points from a range of rows, leaving out null records.

    The arrays are filled from ``first`` on; the range is read block by block.

    Returns
    -------
    n_filled : int
        Number of rows that were filled.
    outside : bool
        Whether a point was clipped.
    """
    rows, squared_norms, remainders = arrays
    d = points.shape[1]
    # Bounds of several rows make the inner loop long enough for vector registers.
    n_together = max(1, TILE // d)
    centers = np.tile(center, n_together)
    half_widths = np.tile(half_width, n_together)

    def snap(block: np.ndarray, filled: slice) -> bool:
        flat_remainders = None
        if remainders is not None:
            flat_remainders = remainders[filled].reshape(-1)
        return _snap_values(
            block.reshape(-1),
            centers,
            half_widths,
            rows[filled].reshape(-1),
            flat_remainders,
        )

    outside = False
    end = first
    block_size = max(1, BLOCK_VALUES // d)
    for start in range(first, last, block_size):
        block = points[start : min(start + block_size, last)]
        # Single precision is not converted. Kernels are compiled for writable arrays.
        dtype = np.float32 if block.dtype == np.float32 else np.float64
        block = np.require(block, dtype, ("C", "W"))
        filled = slice(end, end + len(block))
        is_inside = snap(block, filled)
        if not is_inside:
            present = np.isfinite(block).all(axis=1)
            if not present.all():
                # The next block follows behind the finite rows of this one.
                block = block[present]
                filled = slice(end, end + len(block))
                is_inside = snap(block, filled)
        outside |= not is_inside
        squared_norms[filled] = square_norms(rows[filled])
        end = filled.stop
    return end - first, outside


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _copy_rows(
    points: np.ndarray,  # IN (n, d), int64
    rows: np.ndarray,  # OUT (n, d), float32
    squared_norms: np.ndarray,  # OUT (n,), float64
) -> bool:
    """Fill rows and squared norms; return whether all points lie in the domain."""
    signs = 0
    for i in range(len(points)):
        squared_norm = 0.0
        for h in range(points.shape[1]):
            x = points[i, h]
            # A coordinate outside the domain sets the sign bit: a test without a
            # branch.
            signs |= (SCALE - x) | (SCALE + x)
            rows[i, h] = x
            squared_norm += np.float64(x) * np.float64(x)
        squared_norms[i] = squared_norm
    return signs >= 0


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def square_norms(rows: np.ndarray) -> np.ndarray:
    """Squared norms (n,), float64, of integer coordinates (n, d), in grid steps."""
    squared_norms = np.empty(len(rows))
    for i in range(len(rows)):
        squared_norm = 0.0
        for h in range(rows.shape[1]):
            squared_norm += np.float64(rows[i, h]) * np.float64(rows[i, h])
        squared_norms[i] = squared_norm
    return squared_norms


# With Python's error model every division is checked for zero, which prevents
# vectorization.
@njit(cache=True, nogil=True, fastmath=FASTMATH, error_model="numpy")
def _snap_values(
    values: np.ndarray,  # IN, flat
    centers: np.ndarray,  # IN, of a tile
    half_widths: np.ndarray,  # IN, of a tile
    snapped_values: np.ndarray,  # OUT, flat, float32
    remainders: np.ndarray | None,  # OUT, flat, int16
) -> bool:
    """Quantize values, with the bounds of a tile of them; return if all are inside.

    NaN and infinite values count as outside.
    """
    n_outside = 0
    for start in range(0, len(values), len(centers)):
        # Slices: the compiler vectorizes loops from zero.
        tile = values[start : start + len(centers)]
        snapped_tile = snapped_values[start : start + len(centers)]
        remainder_tile = None if remainders is None else remainders[start:]
        for i in range(len(tile)):
            # Clip to [-1, 1], in half-widths.
            x = (np.float64(tile[i]) - centers[i]) / half_widths[i]
            clipped = x if x < 1.0 else 1.0
            clipped = clipped if clipped > -1.0 else -1.0
            n_outside += clipped != x

            # Round to whole grid steps; the remainder is in units of 1 / SCALE steps.
            snapped = np.rint(clipped * SCALE)
            snapped_tile[i] = snapped
            if remainder_tile is not None:
                remainder = np.rint((clipped * SCALE - snapped) * SCALE)
                remainder_tile[i] = np.int16(min(remainder, MAX_REMAINDER))
    return n_outside == 0
