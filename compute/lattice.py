"""Maximum cover by a lattice: how many points lie within reach of each grid point of the unit ball.

The grid is cut into blocks of 4^m grid points. For every block that a point can reach there is a bound on the number
of points within reach of any of its grid points; exact counts are held only for the blocks whose bounds say that they
matter, so memory follows the data and not the grid. Counts are integers and a distance is worked out from one point
and one grid point alone, in one order, so nothing depends on the order of the points.
"""

import itertools
import math
from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np
from numba import njit

from pkm.compute.nearest import EXACT_BITS, SCALE, Points

BLOCK_BITS = 2
BLOCK_SIDE = 1 << BLOCK_BITS
MAX_GRID_POINTS = 2.0**62  # numbers of grid points and keys of blocks are int64
PROJECTION_ROWS = 4096
CHUNK = 1 << 22  # keys sorted at once
_OUTSIDE = -(1 << 30)  # count of a grid point that is not in the ball: negative whatever is added
_UNKNOWN, _ABSENT = -2, -1


def project(points: Points, matrix: np.ndarray, length: float) -> np.ndarray:
    """Project points, scale them, and pull what lies outside the unit ball to its surface.

    Parameters
    ----------
    points : Points
        n points with d integer coordinates.
    matrix : ndarray of shape (m, d), int64
        Small enough that the products are exact in any order.
    length : float
        What is mapped to 1.

    Returns
    -------
    ndarray of shape (n, m), float64

    Raises
    ------
    ValueError
        If the matrix does not fit the points or is too large.
    """
    d = points.shape[1]
    if (
        matrix.ndim != 2
        or matrix.shape[1] != d
        or 0 in matrix.shape
        or not np.issubdtype(matrix.dtype, np.integer)
    ):
        raise ValueError(
            f"matrix must be integers of shape (m, {d}), got {matrix.dtype} of shape {matrix.shape}"
        )
    if int(np.abs(matrix).max()) * SCALE * d >= 1 << EXACT_BITS:
        raise ValueError(
            f"matrix has entries up to {np.abs(matrix).max()}: products of {d} of them are not exact"
        )
    if not 0 < length < math.inf:
        raise ValueError(f"length={length} must be positive and finite")
    transposed = matrix.T.astype(np.float64)
    projected = np.empty((points.shape[0], len(matrix)))
    for start in range(0, len(projected), PROJECTION_ROWS):
        some = slice(start, start + PROJECTION_ROWS)
        projected[some] = points.rows[some].astype(np.float64) @ transposed
    _into_ball(projected, length)
    return projected


@njit(cache=True)
def _into_ball(projected, length):
    for i in range(projected.shape[0]):
        square = 0.0
        for h in range(projected.shape[1]):
            projected[i, h] /= length
            square += projected[i, h] * projected[i, h]
        if square > 1.0:
            norm = np.sqrt(square)
            for h in range(projected.shape[1]):
                projected[i, h] /= norm


@njit(cache=True)
def _nearest(projected, centers, labels):
    for i in range(projected.shape[0]):
        best = np.inf
        for j in range(centers.shape[0]):
            square = 0.0
            for h in range(projected.shape[1]):
                step = projected[i, h] - centers[j, h]
                square += step * step
            if square < best:
                best = square
                labels[i] = j


def nearest(projected: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Index of the center (k, m) nearest to each projected point (n, m); ties go to the lower index.

    Examples
    --------
    >>> nearest(np.array([[0.0], [0.5], [1.0]]), np.array([[0.0], [1.0]])).tolist()
    [0, 0, 1]
    """
    labels = np.empty(len(projected), np.int64)
    _nearest(projected, np.ascontiguousarray(centers, np.float64), labels)
    return labels


@njit(cache=True)
def _add_rows(rows, labels, sums):
    for i in range(rows.shape[0]):
        for h in range(rows.shape[1]):
            sums[labels[i], h] += np.int64(rows[i, h])


def label_sums(points: Points, labels: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums (k, d) and counts (k,) of the points of each label, int64."""
    sums = np.zeros((k, points.shape[1]), np.int64)
    _add_rows(points.rows, labels, sums)
    return sums, np.bincount(labels, minlength=k)


class Lattice:
    """The integer points v with ``|v| side <= 1``: the grid points of the unit ball for one side of the grid.

    Parameters
    ----------
    dimensions : int
    side : float
        In (0, infinity); at least so large that the grid points of the surrounding cube can be numbered.

    Attributes
    ----------
    limit : int
        Largest squared norm.
    reach : int
        Largest coordinate.
    size : int
        Number of grid points, exact.

    Examples
    --------
    >>> Lattice(2, 0.5).size  # the origin, four at distance 1, four at sqrt(2), four at 2
    13
    """

    def __init__(self, dimensions: int, side: float):
        if dimensions < 1 or not 0 < side < math.inf:
            raise ValueError(
                f"dimensions={dimensions} must be at least 1, side={side} positive and finite"
            )
        if (2 / side + 1) ** dimensions >= MAX_GRID_POINTS:
            raise ValueError(
                f"side={side} is too small in {dimensions} dimensions: more than 2^62 grid points"
            )
        self.dimensions, self.side = dimensions, side
        self.limit = int(1 / side**2 * (1 + 1e-12))
        self.reach = math.isqrt(self.limit)

    @cached_property
    def _sizes(self) -> np.ndarray:
        """Number of integer points of squared norm at most s (column) in fewer dimensions (row)."""
        sizes = np.ones((self.dimensions, self.limit + 1), np.int64)
        for fewer, more in itertools.pairwise(sizes):
            more[:] = fewer
            for v in range(1, self.reach + 1):
                more[v * v :] += 2 * fewer[: len(fewer) - v * v]
        return sizes

    def _tails(self, rest: int, left: int) -> tuple[np.ndarray, np.ndarray]:
        """Values of the next coordinate, and how many points continue each, with ``left`` coordinates to follow."""
        most = math.isqrt(rest)
        values = np.arange(-most, most + 1)
        return values, self._sizes[left, rest - values * values]

    @cached_property
    def size(self) -> int:
        """Number of grid points."""
        return int(self._tails(self.limit, self.dimensions - 1)[1].sum())

    def draw(self, uniforms: np.ndarray) -> np.ndarray:
        """Turn uniforms in [0, 1], one per dimension, into a grid point, all equally likely."""
        point, rest = np.empty(self.dimensions, np.int64), self.limit
        for h, uniform in enumerate(uniforms):
            values, sizes = self._tails(rest, self.dimensions - h - 1)
            ends = np.cumsum(sizes)
            point[h] = values[np.searchsorted(ends, pick(uniform, int(ends[-1])), side="right")]
            rest -= int(point[h]) ** 2
        return point


def pick(uniform: float, n: int) -> int:
    """Turn a uniform in [0, 1] into one of 0 .. n - 1."""
    return min(int(uniform * n), n - 1)


@lru_cache(maxsize=64)
def lattice(dimensions: int, side: float) -> Lattice:
    """The same lattice again and again: its tables take longer than anything that is asked of it."""
    return Lattice(dimensions, side)


@lru_cache(maxsize=64)
def _block_offsets(dimensions: int, reach: float) -> np.ndarray:
    """Blocks, relative to the one that a point lies in, that have a grid point within reach of some point of it."""
    most = int(reach) // BLOCK_SIDE + 2
    steps = np.arange(-most, most + 1)
    # A point is below the block's end, grid points go up to one less: gaps are larger by one on the lower side.
    gaps = np.where(
        steps > 0, (steps - 1) * BLOCK_SIDE, np.where(steps < 0, (-steps - 1) * BLOCK_SIDE + 1, 0)
    )
    near = [
        [steps[i] for i in each]
        for each in itertools.product(range(len(steps)), repeat=dimensions)
        if sum(int(gaps[i]) ** 2 for i in each) <= reach**2 * (1 + 1e-9)
    ]
    return np.array(near, np.int64)


@njit(cache=True)
def _find(keys, key):
    low, high = 0, keys.shape[0]
    while low < high:
        middle = (low + high) // 2
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low if low < keys.shape[0] and keys[low] == key else _ABSENT


@njit(cache=True)
def _add(scaled, members, sign, reach, edge, keys, shift, base, span, counts):
    """Add ``sign`` for each member to the counts (blocks, 4^m) of all grid points within reach of it and of the origin.

    All but the last coordinate of the grid points within reach are listed one coordinate after the other; the last one
    runs over whole blocks, four grid points at a time without a branch.
    """
    last, width, most = scaled.shape[1] - 1, int(2 * reach) + 1, reach * reach
    bits = BLOCK_BITS * (last + 1)
    totals = np.zeros((2, width**last))
    codes = np.zeros((2, width**last), np.int64)  # which of the blocks around, and where inside it
    square, code = np.empty(width), np.empty(width, np.int64)
    row, least = np.empty((span, BLOCK_SIDE)), np.empty(span)
    first = np.full(last + 1, np.iinfo(np.int64).max)
    known = np.full(span ** (last + 1), _UNKNOWN)  # of the blocks around: their place in keys
    one, none = np.int32(sign), np.int32(0)
    for i in members:
        moved = False
        size, now, outer, inner = 1, 0, span**last, bits - BLOCK_BITS
        totals[0, 0], codes[0, 0] = 0.0, 0
        for h in range(last + 1):
            start = np.int64(np.ceil(scaled[i, h] - reach))
            lowest = start >> BLOCK_BITS
            moved |= lowest != first[h]
            first[h] = lowest
            if h == last:
                break
            some = 0
            for v in range(max(start, -edge), min(start + width, edge + 1)):
                step = np.float64(v) - scaled[i, h]
                square[some] = step * step
                block = ((v >> BLOCK_BITS) - lowest) * outer
                code[some] = (block << bits) + ((v & (BLOCK_SIDE - 1)) << inner)
                some += 1
            longer = 0
            for e in range(size):
                before, where = totals[now, e], codes[now, e]
                for j in range(some):
                    total = before + square[j]
                    if total <= most:
                        totals[1 - now, longer] = total
                        codes[1 - now, longer] = where + code[j]
                        longer += 1
            size, now, outer, inner = longer, 1 - now, outer // span, inner - BLOCK_BITS
        for s in range(span):
            least[s] = np.inf
            for q in range(BLOCK_SIDE):
                v = (first[last] + s) * BLOCK_SIDE + q
                step = np.float64(v) - scaled[i, last]
                row[s, q] = step * step if abs(v) <= edge else np.inf
                least[s] = min(least[s], row[s, q])
        if moved:
            known[:] = _UNKNOWN
        for e in range(size):
            total, block, at = (
                totals[now, e],
                codes[now, e] >> bits,
                codes[now, e] & ((1 << bits) - 1),
            )
            for s in range(span):
                if total + least[s] > most:
                    continue
                if known[block + s] == _UNKNOWN:
                    key, rest = 0, block + s
                    for h in range(last + 1):
                        key = key * base + (first[h] + rest // span ** (last - h) + shift)
                        rest %= span ** (last - h)
                    known[block + s] = _find(keys, key)
                place = known[block + s]
                if place >= 0:
                    for q in range(BLOCK_SIDE):
                        counts[place, at + q] += one if total + row[s, q] <= most else none


@njit(cache=True)
def _within(scaled, point, reach, members):
    """Mark the points within reach of a grid point; distances as in :func:`_add`, term by term."""
    for i in range(scaled.shape[0]):
        total = 0.0
        for h in range(scaled.shape[1]):
            step = np.float64(point[h]) - scaled[i, h]
            total += step * step
        members[i] = total <= reach * reach


@njit(cache=True)
def _leave_out(corners, limit, counts):
    """Mark the grid points of blocks (given by their lowest corner) that lie outside the ball."""
    d = corners.shape[1]
    for b in range(corners.shape[0]):
        for at in range(counts.shape[1]):
            norm, rest = 0, at
            for h in range(d - 1, -1, -1):
                v = corners[b, h] + rest % BLOCK_SIDE
                rest //= BLOCK_SIDE
                norm += v * v
            if norm > limit:
                counts[b, at] = _OUTSIDE


@njit(cache=True)
def _tally(counts, tally):
    for count in counts.flat:
        if count > 0:
            tally[count] += 1


@njit(cache=True)
def _at_rank(counts, count, rank):
    for i, value in enumerate(counts.flat):
        if value == count:
            if rank == 0:
                return i
            rank -= 1
    return _ABSENT


class Cover:
    """The points that each grid point of a lattice covers, while points are taken out.

    Every grid point belongs to one of three kinds, each of which can be reached by count or bound and rank: those that
    cover nothing for certain, those of counted blocks, and those of bounded blocks.

    Parameters
    ----------
    points : ndarray of shape (n, m), float64
        In the unit ball; none is taken out yet.
    side, radius : float
        Side of the grid, and the distance up to which a grid point covers.
    weight : float
        Weight of a covered point in the exponent: decides which blocks are counted and which are only bounded, so
        that the bounded ones, at ``exp(weight * bound) - 1`` per grid point, weigh no more than the whole grid at one.

    Attributes
    ----------
    lattice : Lattice
    bounds, n_bounded : ndarray
        The different bounds of bounded blocks, and the numbers of such blocks.
    """

    def __init__(self, points: np.ndarray, side: float, radius: float, weight: float):
        d = points.shape[1]
        self.lattice = lattice(d, side)
        self._points, self._scaled, self._reach = points, points / side, radius / side
        self._left = np.ones(len(points), bool)
        self._shift = (
            (self.lattice.reach + int(self._reach) + 3) // BLOCK_SIDE
            + int(self._reach) // BLOCK_SIDE
            + 4
        )
        self._base = 2 * self._shift + 1
        if float(self._base) ** d >= MAX_GRID_POINTS:
            raise ValueError(
                f"side={side} is too small in {d} dimensions: blocks cannot be numbered"
            )
        keys, bounds = self._bounded()
        order = np.argsort(bounds, kind="stable")
        envelope = (
            d * math.log(BLOCK_SIDE)
            + log_expm1(weight * bounds[order])
            - math.log(self.lattice.size)
        )
        light = order[np.cumsum(np.exp(np.minimum(envelope, 1.0))) <= 1.0]
        heavy = np.ones(len(keys), bool)
        heavy[light] = False
        self._keys, self._light_keys, self._light_bounds = keys[heavy], keys[~heavy], bounds[~heavy]
        self.bounds, self.n_bounded = np.unique(self._light_bounds, return_counts=True)
        self._counts = np.zeros((len(self._keys), BLOCK_SIDE**d), np.int32)
        _leave_out(self._corners(self._keys), self.lattice.limit, self._counts)
        span = (
            int(2 * self._reach) + BLOCK_SIDE - 1
        ) // BLOCK_SIDE + 1  # blocks in a row that a point can reach
        self._layout = self._reach, self.lattice.reach, self._keys, self._shift, self._base, span
        self._change(np.arange(len(points)), 1)

    def _bounded(self) -> tuple[np.ndarray, np.ndarray]:
        """Keys of all blocks within reach of a point, sorted, and bounds on the counts of their grid points."""
        d = self._scaled.shape[1]
        blocks = np.floor(np.floor(self._scaled) / BLOCK_SIDE).astype(np.int64)
        keys, bounds = _summed(self._key(blocks), np.ones(len(blocks), np.int64))
        offsets = _block_offsets(d, self._reach) @ self._base ** np.arange(d - 1, -1, -1)
        merged = np.empty(0, np.int64), np.empty(0, np.int64)
        step = max(1, CHUNK // len(offsets))
        for start in range(0, len(keys), step):
            near = (keys[start : start + step, None] + offsets).ravel()
            more = np.repeat(bounds[start : start + step], len(offsets))
            merged = _summed(np.concatenate([merged[0], near]), np.concatenate([merged[1], more]))
        return merged

    def _key(self, blocks: np.ndarray) -> np.ndarray:
        key = np.zeros(len(blocks), np.int64)
        for column in blocks.T:
            key = key * self._base + (column + self._shift)
        return key

    def _corners(self, keys: np.ndarray) -> np.ndarray:
        d = self._scaled.shape[1]
        places = self._base ** np.arange(d - 1, -1, -1)
        return (keys[:, None] // places % self._base - self._shift) * BLOCK_SIDE

    def _grid_point(self, key: int, at: int) -> np.ndarray:
        places = BLOCK_SIDE ** np.arange(self._scaled.shape[1] - 1, -1, -1)
        return self._corners(np.array([key]))[0] + at // places % BLOCK_SIDE

    def _change(self, members: np.ndarray, sign: int) -> None:
        if len(self._keys) and len(members):
            # Neighbors in space one after the other: the blocks around need not be found again.
            members = members[np.lexsort(np.floor(self._scaled[members] / BLOCK_SIDE).T)]
            _add(self._scaled, members, sign, *self._layout, self._counts)
        tally = np.zeros(len(self._scaled) + 1, np.int64)
        _tally(self._counts, tally)
        self._values = np.flatnonzero(tally)
        self._multiplicities = tally[self._values]

    def counted(self) -> tuple[np.ndarray, np.ndarray]:
        """The different positive counts in counted blocks, and the numbers of their grid points."""
        return self._values, self._multiplicities

    def counted_point(self, count: int, rank: int) -> np.ndarray:
        """Grid point by count and rank (in lexicographic order of blocks, then inside the block)."""
        block, at = divmod(_at_rank(self._counts, count, rank), self._counts.shape[1])
        return self._grid_point(self._keys[block], at)

    def bounded_point(self, bound: int, block: int, at: int) -> np.ndarray:
        """Grid point by bound, rank of its block and rank inside the block; it may lie outside the ball."""
        return self._grid_point(
            self._light_keys[np.flatnonzero(self._light_bounds == bound)[block]], at
        )

    def members(self, point: np.ndarray) -> np.ndarray:
        """Indices of the points, of those left, that a grid point covers; a point outside the ball covers none."""
        if int(point @ point) > self.lattice.limit:
            return np.empty(0, np.int64)
        inside = np.empty(len(self._scaled), bool)
        _within(self._scaled, point, self._reach, inside)
        return np.flatnonzero(inside & self._left)

    def rest(self) -> np.ndarray:
        """The points that are left, in their own coordinates."""
        return self._points[self._left]

    def take_out(self, members: np.ndarray) -> None:
        """Take points out of all counts; bounds stay as they are, which bounds may."""
        self._left[members] = False
        if len(members):
            self._change(members, -1)


def _summed(keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sorted different keys and the sums of their values."""
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], values[order]
    starts = (
        np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        if len(keys)
        else np.empty(0, np.int64)
    )
    return keys[starts], np.add.reduceat(values, starts) if len(keys) else values


def log_expm1(exponents: np.ndarray) -> np.ndarray:
    """Logarithm of ``exp(x) - 1`` for positive x of any size."""
    return exponents + np.log(-np.expm1(-exponents))


def scales(
    n_points: int, dimensions: int, gamma: float, smallest_radius: float
) -> Sequence[tuple[float, float]]:
    """Sides of the grids and radii of the covers, from fine to coarse (Nguyen, Chaturvedi, Xu).

    Radii are ``(1 + gamma)^i / n`` up to the first of at least 2, the diameter of the unit ball; those below the
    smallest are left out. A grid of side ``gamma r / sqrt(m)`` has a grid point within ``gamma r`` of every point, so
    a cover extends to ``(1 + gamma) r``.

    Examples
    --------
    >>> [(round(side, 3), round(radius, 3)) for side, radius in scales(100, 4, 0.99, 0.5)]
    [(0.307, 1.236), (0.612, 2.459), (1.217, 4.894)]
    """
    steps = math.ceil(math.log(2 * n_points, 1 + gamma))
    radii = [(1 + gamma) ** i / n_points for i in range(1, steps + 1)]
    return [
        (gamma * r / math.sqrt(dimensions), (1 + gamma) * r) for r in radii if r >= smallest_radius
    ]
