"""Maximum cover by a lattice: numbers of points that its grid points cover.

A grid point covers the points within a radius. The grid is divided into blocks of 4^m
grid points. Every block near a point has a bound on the number of points that any of
its grid points covers. Exact counts are stored for the blocks with large bounds alone,
so memory grows with the data and not with the grid. Counts are integers, and a distance
is computed from a point and a grid point alone, always in the same order. So nothing
depends on the order of the points.

Units: points, grid points and the radius are in grid steps, squared distances in
squared grid steps, blocks in sides of a block.
"""

import itertools
import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numba import njit

from pkm.compute.kernels.lattice import MAX_GRID_POINTS, cached_lattice
from pkm.compute.kernels.radix_sort import (
    differs_from_previous,
    radix_argsort,
    sum_by_key,
)
from pkm.compute.kernels.unit_ball import PROJECTION_BLOCK, Projection
from pkm.compute.storage.points import make_slices

BLOCK_BITS = 2
BLOCK_SIDE = 1 << BLOCK_BITS
MIN_KEYS = 1 << 14  # at least so many keys are sorted at once, if there are
SLACK = 1e-9  # relative, of a squared radius: rounding must not leave a block out

#: Count of a grid point outside the ball. It stays negative after all additions.
_OUTSIDE = -(1 << 30)
_UNKNOWN = -2  # a block that was not searched for
_ABSENT = -1  # a block without counts


class BlockGrid(NamedTuple):
    """Radius and block numbering of a grid, as kernels take them.

    A block's key is a number whose digits are its coordinates, the first one highest.

    Attributes
    ----------
    radius : float
        Distance up to which a grid point covers, in grid steps.
    max_coordinate : int
        Largest coordinate of a grid point, in grid steps.
    span : int
        Blocks along an axis that may hold a grid point within the radius of a point.
    shift : int
        Added to a block's coordinates to make digits of them.
    base : int
        Number of values of a digit.
    """

    radius: float
    max_coordinate: int
    span: int
    shift: int
    base: int


class PartialPoints(NamedTuple):
    """Grid points near a point by some of their coordinates: buffers, partly in use.

    Attributes
    ----------
    codes : ndarray, int64
        Position of the first grid point with these coordinates: in the high bits the
        number of its block in the window, in the lowest 2 m bits its rank in the block.
    squares : ndarray, float64
        Squared distance to the point along these coordinates.
    """

    codes: np.ndarray
    squares: np.ndarray


class Cover:
    """Numbers of points that the grid points of a lattice cover; points are removable.

    Blocks are of three kinds. Counted blocks have an exact count for each grid point,
    bounded blocks one upper bound for all, and no grid point of the others covers a
    point. Grid points can be looked up by their count or bound.

    Parameters
    ----------
    points : Projection or ndarray of shape (n, m), float64
        In the unit ball; read in blocks.
    side, radius : float
        Side of the grid, and the distance up to which a grid point covers.
    weight : float
        Weight of a covered point in the exponent. It decides which blocks are counted:
        the others, at ``exp(weight * bound) - 1`` per grid point, have together at most
        the weight of the whole grid at one per grid point.
    uncovered : ndarray of shape (n,), bool, optional
        Whether a point is not removed yet; changed in place. Default: no point is.

    Attributes
    ----------
    lattice : Lattice
    bounds, n_bounded : ndarray
        Distinct bounds of bounded blocks, and the numbers of such blocks.
    uncovered : ndarray of shape (n,), bool
    """

    def __init__(
        self,
        points: Projection | np.ndarray,
        side: float,
        radius: float,
        weight: float,
        uncovered: np.ndarray | None = None,
    ):
        d = points.shape[1]
        self.lattice = cached_lattice(d, side)
        self.uncovered = np.ones(len(points), bool) if uncovered is None else uncovered
        self._points = points
        self._side = side
        self._grid = _block_grid(radius / side, self.lattice.max_coordinate)
        if float(self._grid.base) ** d >= MAX_GRID_POINTS:
            raise ValueError(
                f"side={side} is too small in {d} dimensions: blocks cannot be numbered"
            )

        # From the lowest bound on, blocks stay bounded while their total weight is at
        # most that of the grid: then at most half of the draws are of bounded blocks.
        self._order, keys, counts = self._sorted_blocks()
        keys, bounds = self._bounded_blocks(keys, counts)
        order = np.argsort(bounds, kind="stable")
        log_weights = d * math.log(BLOCK_SIDE) + log_expm1(weight * bounds[order])
        log_ratios = log_weights - math.log(self.lattice.size)
        total_ratios = np.cumsum(np.exp(np.minimum(log_ratios, 1.0)))
        is_counted = np.ones(len(keys), bool)
        is_counted[order[total_ratios <= 1.0]] = False
        self._bounded_keys = keys[~is_counted]
        self._block_bounds = bounds[~is_counted]
        self.bounds, self.n_bounded = np.unique(self._block_bounds, return_counts=True)

        # Count the points of all other blocks, grid point by grid point. Rows of counts
        # are given out to blocks in the order in which they first cover a point.
        self._keys = keys[is_counted]
        self._rows = np.full(len(self._keys), _ABSENT)
        self._n_rows = 0
        self._counts = np.zeros((len(self._keys), BLOCK_SIDE**d), np.int32)
        self._update_counts(self.uncovered, 1)

    def positive_counts(self) -> tuple[np.ndarray, np.ndarray]:
        """Distinct positive counts in counted blocks; numbers of their grid points."""
        return self._distinct_counts, self._multiplicities

    def counted_point(self, count: int, rank: int) -> np.ndarray:
        """Grid point by count, and by rank in lexicographic order of blocks."""
        rows, positions = np.nonzero(self._counts[: self._n_rows] == count)
        used = np.flatnonzero(self._rows != _ABSENT)
        block_of_row = used[np.argsort(self._rows[used])]
        blocks = block_of_row[rows]
        chosen = np.lexsort((positions, blocks))[rank]
        key = int(self._keys[blocks[chosen]])
        return self._grid_point(key, int(positions[chosen]))

    def bounded_point(
        self,
        bound: int,
        block: int,
        position: int,
    ) -> np.ndarray:
        """Return a grid point by its position in one of the blocks with this bound.

        It may lie outside the ball.
        """
        blocks = np.flatnonzero(self._block_bounds == bound)
        return self._grid_point(int(self._bounded_keys[blocks[block]]), position)

    def covered(self, grid_point: np.ndarray) -> np.ndarray:
        """Mask (n,) of the remaining points that a grid point of the ball covers."""
        is_covered = np.zeros(len(self._points), bool)
        if int(grid_point @ grid_point) <= self.lattice.max_squared_norm:
            for block in make_slices(len(self._points), PROJECTION_BLOCK):
                # Terms are added in the order of _add_points: both agree.
                pairs = zip(grid_point, self._scaled(block).T, strict=True)
                squares = sum((value - column) ** 2 for value, column in pairs)
                is_covered[block] = squares <= self._grid.radius**2
            is_covered &= self.uncovered
        return is_covered

    def remove(self, is_removed: np.ndarray) -> None:
        """Take points (a mask) out of all counts; bounds stay, and stay valid."""
        self.uncovered[is_removed] = False
        self._update_counts(is_removed, -1)

    def _scaled(self, selected: slice | np.ndarray) -> np.ndarray:
        """Selected points (b, m) in grid steps."""
        return self._points[selected] / self._side

    def _sorted_blocks(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Uncovered points in the order of their blocks, the blocks, and their counts.

        Returns
        -------
        order : ndarray, int32
            Consecutive points are often near each other and share their window of
            blocks.
        keys, counts : ndarray, int64
            Keys and counts of the blocks that hold a point, increasing.
        """
        left = np.flatnonzero(self.uncovered).astype(np.int32)
        keys = np.empty(len(left), np.int64)
        for block in make_slices(len(left), PROJECTION_BLOCK):
            blocks = np.floor(np.floor(self._scaled(left[block])) / BLOCK_SIDE)
            keys[block] = self._block_keys(blocks.astype(np.int64))
        n_keys = int(self._grid.base) ** self.lattice.dimensions
        order, keys = radix_argsort(keys, (n_keys - 1).bit_length())
        firsts = np.flatnonzero(differs_from_previous(keys))
        distinct_keys = keys[firsts]
        del keys  # of all points
        return left[order], distinct_keys, np.diff(firsts, append=len(left))

    def _bounded_blocks(
        self,
        keys: np.ndarray,
        counts: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sorted keys of all blocks near a point, and a bound on the counts in each.

        Parameters
        ----------
        keys, counts : ndarray, int64
            Keys and counts of the blocks that hold a point.
        """
        # Add each count to all blocks within the radius: a grid point cannot cover more
        # than their points.
        offsets = _block_offsets(self.lattice.dimensions, self._grid.radius)
        key_offsets = offsets @ self._key_strides()
        merged_keys = np.empty(0, np.int64)
        bounds = np.empty(0, np.int64)
        start = 0
        while start < len(keys):
            # As many keys at once as are merged already: a sum is then sorted only a
            # logarithmic number of times.
            stop = start + max(1, max(MIN_KEYS, len(merged_keys)) // len(key_offsets))
            near_keys = (keys[start:stop, None] + key_offsets).ravel()
            added = np.repeat(counts[start:stop], len(key_offsets))
            merged_keys, bounds = sum_by_key(
                np.concatenate([merged_keys, near_keys]),
                np.concatenate([bounds, added]),
            )
            start = stop
        return merged_keys, bounds

    def _key_strides(self) -> np.ndarray:
        """Steps of keys between neighboring blocks along each axis: (m,), int64."""
        exponents = np.arange(self.lattice.dimensions - 1, -1, -1)
        return self._grid.base**exponents

    def _block_keys(self, blocks: np.ndarray) -> np.ndarray:
        """Keys (b,), int64, of blocks (b, m)."""
        keys = np.zeros(len(blocks), np.int64)
        for column in blocks.T:
            keys = keys * self._grid.base + (column + self._grid.shift)
        return keys

    def _corners(self, keys: np.ndarray) -> np.ndarray:
        """Lowest grid points (b, m) of blocks, by their keys (b,)."""
        digits = keys[:, None] // self._key_strides() % self._grid.base
        return (digits - self._grid.shift) * BLOCK_SIDE

    def _grid_point(self, key: int, position: int) -> np.ndarray:
        """Grid point by its block's key and its rank inside the block."""
        exponents = np.arange(self.lattice.dimensions - 1, -1, -1)
        steps = position // BLOCK_SIDE**exponents % BLOCK_SIDE
        (corner,) = self._corners(np.array([key]))
        return corner + steps

    def _update_counts(self, is_selected: np.ndarray, sign: int) -> None:
        """Add points (a mask) to all counts (1) or take them out (-1)."""
        largest = self.lattice.max_squared_norm
        n_counted = len(self._order) if len(self._keys) else 0
        for block in make_slices(n_counted, PROJECTION_BLOCK):
            indices = self._order[block]
            scaled = self._scaled(indices[is_selected[indices]])
            self._n_rows = _add_points(
                scaled,
                sign,
                self._grid,
                largest,
                self._keys,
                self._rows,
                self._n_rows,
                self._counts,
            )
        # Draws need the number of grid points of each count, not their positions.
        tally = _tally(self._counts[: self._n_rows])
        self._distinct_counts = np.flatnonzero(tally)
        self._multiplicities = tally[self._distinct_counts]


def _block_grid(radius: float, max_coordinate: int) -> BlockGrid:
    """Number the blocks for a radius and a largest coordinate in grid steps."""
    span = (int(2 * radius) + BLOCK_SIDE - 1) // BLOCK_SIDE + 1
    # At least the largest coordinate of a block near a point of the ball.
    shift = (
        (max_coordinate + int(radius) + 3) // BLOCK_SIDE + int(radius) // BLOCK_SIDE + 4
    )
    return BlockGrid(
        radius,
        max_coordinate,
        span,
        shift,
        base=2 * shift + 1,
    )


@lru_cache(maxsize=64)
def _block_offsets(dimensions: int, radius: float) -> np.ndarray:
    """Blocks (b, m) with a grid point within the radius of a point of block zero."""
    largest = int(radius) // BLOCK_SIDE + 2
    steps = np.arange(-largest, largest + 1)
    # Smallest distance along an axis from a point of block zero to a grid point of
    # another block, by block offset. The last grid point of a block is one step below
    # the block's end. So the distance to a lower block is larger by one.
    upper_gaps = (steps - 1) * BLOCK_SIDE
    lower_gaps = (-steps - 1) * BLOCK_SIDE + 1
    gaps = np.select([steps > 0, steps < 0], [upper_gaps, lower_gaps])
    squares = dict(zip(steps.tolist(), gaps**2, strict=True))
    max_square = radius**2 * (1 + SLACK)
    offsets = [
        offset
        for offset in itertools.product(squares, repeat=dimensions)
        if sum(squares[step] for step in offset) <= max_square
    ]
    return np.array(offsets, np.int64)


def log_expm1(exponents: np.ndarray) -> np.ndarray:
    """Logarithm of ``exp(x) - 1`` for positive x of any size."""
    return exponents + np.log(-np.expm1(-exponents))


@njit(cache=True)
def _add_points(
    scaled: np.ndarray,  # IN
    sign: int,
    grid: BlockGrid,
    max_squared_norm: int,
    keys: np.ndarray,  # IN
    rows: np.ndarray,  # IN and OUT
    n_rows: int,
    counts: np.ndarray,  # IN and OUT
) -> int:
    """Add ``sign`` for each point to the counts of all grid points that cover it.

    The window of a point is the cube of ``span`` blocks a side that holds all grid
    points within the radius. Their coordinates without the last one are listed as
    prefixes. The last coordinate runs over whole blocks, four grid points at a time
    without a branch.

    Parameters
    ----------
    scaled : ndarray of shape (n, m), float64
        Points in grid steps. Blocks are looked up once for successive points with the
        same window.
    sign : int
        1 or -1.
    grid : BlockGrid
    max_squared_norm : int
        Bound for the grid points of the ball, in squared grid steps.
    keys : ndarray of shape (n_blocks,), int64
        Counted blocks, increasing.
    rows : ndarray of shape (n_blocks,), int64
        Row of each block in ``counts``, filled when it first covers a point.
    n_rows : int
        Number of rows in use.
    counts : ndarray of shape (n_blocks, 4**m), int32
        Added to, in points; those of grid points outside the ball stay negative.

    Returns
    -------
    int
        Number of rows in use now.
    """
    m = scaled.shape[1]
    bits = BLOCK_BITS * m
    position_mask = (1 << bits) - 1
    max_square = grid.radius * grid.radius
    increment = np.int32(sign)
    zero = np.int32(0)

    # Buffers: the values of a coordinate, prefixes, their continuations, and the last
    # axis.
    width = int(2 * grid.radius) + 1  # grid points in a row that may cover a point
    axis = _empty_partial_points(width)
    prefixes = _empty_partial_points(width ** (m - 1))
    buffer = _empty_partial_points(width ** (m - 1))
    last_squares = np.empty((grid.span, BLOCK_SIDE))
    min_squares = np.empty(grid.span)

    # The window's lowest block, and for each of its blocks the row in counts, once
    # searched for.
    window = np.full(m, np.iinfo(np.int64).max)
    rows_of_window = np.full(grid.span**m, _UNKNOWN)
    for i in range(len(scaled)):
        point = scaled[i]
        if _move_window(point, grid.radius, window):
            rows_of_window[:] = _UNKNOWN
        n_prefixes, prefixes, buffer = _list_prefixes(
            point,
            window,
            grid,
            axis,
            prefixes,
            buffer,
        )
        _last_squares(point, window, grid, last_squares, min_squares)

        # Continue every prefix along the last axis, a block at a time.
        for p in range(n_prefixes):
            first_block = prefixes.codes[p] >> bits
            position = prefixes.codes[p] & position_mask
            square = prefixes.squares[p]
            for s in range(grid.span):
                if square + min_squares[s] > max_square:
                    continue
                block = first_block + s
                # First look-up of this block in the window: find its row of counts, or
                # give it the next free one.
                if rows_of_window[block] == _UNKNOWN:
                    index = _find(keys, _window_key(block, window, grid))
                    if index >= 0 and rows[index] == _ABSENT:
                        _mark_outside(
                            keys[index],
                            grid,
                            max_squared_norm,
                            m,
                            counts[n_rows],
                        )
                        rows[index] = n_rows
                        n_rows += 1
                    rows_of_window[block] = rows[index] if index >= 0 else _ABSENT
                row = rows_of_window[block]
                if row >= 0:
                    for q in range(BLOCK_SIDE):
                        is_within = square + last_squares[s, q] <= max_square
                        counts[row, position + q] += increment if is_within else zero
    return n_rows


@njit(cache=True)
def _empty_partial_points(n: int) -> PartialPoints:
    return PartialPoints(np.empty(n, np.int64), np.empty(n))


# Inlined: with few dimensions, a call takes as long as their work for a point.


@njit(cache=True, inline="always")
def _move_window(
    point: np.ndarray,  # IN (m,)
    radius: float,
    window: np.ndarray,  # IN the last point's, OUT this point's
) -> bool:
    """Write the lowest block (m,) of a point's window; return whether it changed."""
    moved = False
    for h in range(len(point)):
        lowest_block = np.int64(np.ceil(point[h] - radius)) >> BLOCK_BITS
        moved |= lowest_block != window[h]
        window[h] = lowest_block
    return moved


@njit(cache=True, inline="always")
def _list_prefixes(
    point: np.ndarray,  # IN (m,)
    window: np.ndarray,  # IN (m,)
    grid: BlockGrid,
    axis: PartialPoints,  # OUT, overwritten at each step
    prefixes: PartialPoints,  # OUT, overwritten
    longer: PartialPoints,  # OUT, overwritten
) -> tuple[int, PartialPoints, PartialPoints]:
    """List all but the last coordinate of the grid points that cover a point.

    Returns
    -------
    n_prefixes : int
    prefixes, longer : PartialPoints
        The two buffers, the one with the prefixes first.
    """
    m = len(point)
    bits = BLOCK_BITS * m
    max_square = grid.radius * grid.radius
    prefixes.codes[0] = 0
    prefixes.squares[0] = 0.0
    n_prefixes = 1
    # Before step h, prefixes holds those of h coordinates, in lexicographic order.
    for h in range(m - 1):
        # The values of this coordinate, and what each adds to a prefix.
        # Grid points within the radius along this axis, and inside the ball's cube.
        lowest = np.int64(np.ceil(point[h] - grid.radius))
        start = max(lowest, -grid.max_coordinate)
        stop = min(lowest + len(axis.codes), grid.max_coordinate + 1)
        block_stride = grid.span ** (m - 1 - h)
        position_shift = BLOCK_BITS * (m - 1 - h)
        n_values = 0
        for value in range(start, stop):
            block = ((value >> BLOCK_BITS) - window[h]) * block_stride
            position = (value & (BLOCK_SIDE - 1)) << position_shift
            diff = np.float64(value) - point[h]
            axis.codes[n_values] = (block << bits) + position
            axis.squares[n_values] = diff * diff
            n_values += 1

        # Continue every prefix with every value, and drop those beyond the radius.
        n_longer = 0
        for p in range(n_prefixes):
            code = prefixes.codes[p]
            partial = prefixes.squares[p]
            for v in range(n_values):
                square = partial + axis.squares[v]
                if square <= max_square:
                    longer.codes[n_longer] = code + axis.codes[v]
                    longer.squares[n_longer] = square
                    n_longer += 1
        prefixes, longer = longer, prefixes
        n_prefixes = n_longer
    return n_prefixes, prefixes, longer


@njit(cache=True, inline="always")
def _last_squares(
    point: np.ndarray,  # IN (m,)
    window: np.ndarray,  # IN (m,)
    grid: BlockGrid,
    squares: np.ndarray,  # OUT (span, 4)
    min_squares: np.ndarray,  # OUT (span,)
) -> None:
    """Fill squares along the last axis (span, 4), and their minima per block."""
    coordinate = point[-1]
    lowest_block = window[-1]
    for s in range(grid.span):
        min_squares[s] = np.inf
        for q in range(BLOCK_SIDE):
            value = (lowest_block + s) * BLOCK_SIDE + q
            diff = np.float64(value) - coordinate
            squares[s, q] = diff * diff if abs(value) <= grid.max_coordinate else np.inf
            min_squares[s] = min(min_squares[s], squares[s, q])


@njit(cache=True)
def _window_key(
    block: int,
    window: np.ndarray,  # IN (m,)
    grid: BlockGrid,
) -> int:
    """Key of a block by its number in the window."""
    # Digits of the block's number in the window, to base span, plus the window's lowest
    # block, are the digits of the key.
    m = len(window)
    key = 0
    remaining = block
    for h in range(m):
        stride = grid.span ** (m - 1 - h)
        key = key * grid.base + (window[h] + remaining // stride + grid.shift)
        remaining %= stride
    return key


@njit(cache=True)
def _find(
    keys: np.ndarray,  # IN, increasing
    key: int,
) -> int:
    """Index of a key among increasing ones."""
    index = int(np.searchsorted(keys, key))
    return index if index < len(keys) and keys[index] == key else _ABSENT


@njit(cache=True)
def _mark_outside(
    key: int,
    grid: BlockGrid,
    max_squared_norm: int,
    m: int,
    counts: np.ndarray,  # OUT (4**m,), other entries are left as they are
) -> None:
    """Mark the grid points of a block that are outside the ball."""
    for position in range(len(counts)):
        squared_norm = 0
        remaining_key = key
        remaining = position
        for _ in range(m):
            corner = (remaining_key % grid.base - grid.shift) * BLOCK_SIDE
            value = corner + remaining % BLOCK_SIDE
            squared_norm += value * value
            remaining_key //= grid.base
            remaining //= BLOCK_SIDE
        if squared_norm > max_squared_norm:
            counts[position] = _OUTSIDE


@njit(cache=True)
def _tally(
    counts: np.ndarray,  # IN (n_rows, 4**m), int32
) -> np.ndarray:
    """Numbers of grid points with each positive count: a histogram of the counts."""
    largest = 0
    for count in counts.flat:
        largest = max(largest, count)
    tally = np.zeros(largest + 1, np.int64)
    for count in counts.flat:
        if count > 0:
            tally[count] += 1
    return tally
