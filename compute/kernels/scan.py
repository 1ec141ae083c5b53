"""Compiled scans for nearest centers: screened in single precision, exact where that could err.

A point x is compared with centers c by the score ``s = |c|^2 - 2 c.x``, its squared
distance less ``|x|^2``. Scores are integers below 2**53. A scan computes them in
float32, as ``S``, and keeps the least two of each point. Where these are too close to
tell which is less, it computes all scores of the point again in float64, which is
exact. The result is that of exact arithmetic for any input.

How close is too close. Let ``u = 2**-24``, ``g(m) = m u / (1 - m u)``, ``C`` the
largest norm of a center, ``M = 2 C^2 + |x|^2``. Every term of a score passes at most
``d + 1`` roundings: one when it is converted to float32, and d fused multiply-adds. So
(Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.1)

    |S - s| <= g(d + 1) (|c|^2 + 2 sum_h |c_h x_h|) <= g(d + 1) M = E,

by Cauchy and Schwarz and ``2 |c| |x| <= |c|^2 + |x|^2``. If the least two differ by
more than 2 E, the least is that of the nearest center, and no other center ties with
it. A point is left out if its squared distance ``D = s + |x|^2 <= 2 M`` exceeds the
limit L of its center. The difference of D and L is wrong by at most ``E + 4 u M + u L``
before its own rounding, and where ``L > 3 M`` no error changes its sign. Both tests are
decided by the tolerance

    T = 2 g(d + 8) M;

the seven roundings more than in E make up for those of T itself, of the difference of
two scores, and of D and L.

Units: coordinates in grid steps, scores and squared norms in squared grid steps. Scans
take points as rows, one after the other in a flat array. A block of rows is transposed
in the first-level cache into groups: for each feature the coordinates of :data:`GROUP`
points.
"""

from typing import Any

import numpy as np
from numba import njit

from pkm.compute.simd.lanes import (
    LANES,
    add,
    add_integers,
    any_less,
    broadcast,
    count_equal,
    load,
    load_strided,
    multiply_add,
    prefetch,
    store,
    subtract,
    transpose,
    where_equal,
    where_less,
)
from pkm.compute.storage.points import REORDERED

GROUP = 2 * LANES  # points whose scores are in registers at the same time
TILE = 4  # centers whose scores are
FEW_FEATURES = 4  # up to so many are transposed without padding
#: Coordinates of a block: few enough for the first-level cache, many enough to use
#: centers often.
BLOCK_VALUES = 8 * LANES * GROUP
#: Up to so many coordinates of centers, sums by masks are faster than one point at a
#: time.
MASKED_VALUES = 96
#: Points after which 32-bit sums are added to 64-bit ones. A coordinate is at most
#: 2**16.
POINTS_PER_SUM = 1 << 14
CACHE_LINE = 64  # bytes
UNIT_ROUNDOFF = 2.0**-24

INFINITY = np.float32(np.inf)
ZERO = np.float32(0.0)
ONE = np.float32(1.0)
TINY = np.float32(np.finfo(np.float32).smallest_subnormal)


@njit(cache=True, nogil=True)
def _prepare_centers(
    centers: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lay out centers (R, k, d), float64, for the scans.

    Returns
    -------
    norms : ndarray of shape (R, k), float64
        Squared norms; infinite for a center that equals an earlier one, which is
        nearest to no point.
    tiles : ndarray of shape (R, K * d), float32
        ``-2 c``, feature by feature for each :data:`TILE` centers. K is k rounded up to
        whole tiles.
    tile_norms : ndarray of shape (R, K), float32
        The norms; infinite beyond k.
    """
    n_replicates, k, d = centers.shape
    n_padded = -(-k // TILE) * TILE
    norms = np.zeros((n_replicates, k))
    tiles = np.zeros((n_replicates, n_padded * d), np.float32)
    tile_norms = np.empty((n_replicates, n_padded), np.float32)
    for r in range(n_replicates):
        for j in range(k):
            first = j // TILE * TILE * d + j % TILE
            for h in range(d):
                c = centers[r, j, h]
                norms[r, j] += c * c
                tiles[r, first + h * TILE] = -2.0 * c
        for j in range(k):
            for i in range(j):
                if norms[r, i] == norms[r, j] and _are_equal(
                    centers[r, i], centers[r, j]
                ):
                    norms[r, j] = np.inf
        for j in range(n_padded):
            tile_norms[r, j] = norms[r, j] if j < k else np.inf
    return norms, tiles, tile_norms


@njit(cache=True, nogil=True)
def _are_equal(a: np.ndarray, b: np.ndarray) -> bool:
    n_different = 0
    for h in range(len(a)):
        n_different += a[h] != b[h]
    return n_different == 0


@njit(cache=True, nogil=True)
def _are_within(centers: np.ndarray, limit: int) -> bool:
    """Whether all coordinates are at most the limit in size.

    NaN is not: it would leave points without a nearest center, and their labels
    undefined.
    """
    n_within = 0
    for coordinate in centers.flat:
        n_within += abs(coordinate) <= limit
    return n_within == centers.size


@njit(cache=True, nogil=True)
def scan_and_sum(
    flat_rows: np.ndarray,
    squared_norms: np.ndarray,
    first: int,
    last: int,
    centers: np.ndarray,
    largest: int,
    limits: np.ndarray,
    sums: np.ndarray,
    counts: np.ndarray,
) -> bool:
    """Add points ``first`` to ``last - 1`` to the sums and counts of their nearest centers.

    Parameters
    ----------
    flat_rows : ndarray of shape (n * d,), float32
    squared_norms : ndarray of shape (n,), float64
    first, last : int
    centers : ndarray of shape (R, k, d), float64
    largest : int
        Largest coordinate of a center for which distances are exact.
    limits : ndarray of shape (R, k), float64, or (1, 1) if all centers have the same
        Points whose squared distance to their center exceeds its limit are left out.
    sums : ndarray of shape (R, k, d), int64
        Added to.
    counts : ndarray of shape (R, k), int64
        Added to.

    Returns
    -------
    bool
        Whether all centers are that small; otherwise nothing is added.
    """
    if not _are_within(centers, largest):
        return False
    center_norms, tiles, tile_norms = _prepare_centers(centers)
    n_replicates, _, d = centers.shape
    n_padded = tile_norms.shape[1]
    width = -(-d // LANES) * LANES
    size = _block_size(d)
    columns, norms, nearest, margins = _buffers(d, size)

    # What stands beyond k needs none: its norm is infinite.
    n_limits = limits.shape[1]
    tile_limits = np.zeros(
        (n_replicates, n_limits if n_limits == 1 else n_padded), np.float32
    )
    for r in range(n_replicates):
        for j in range(n_limits):
            tile_limits[r, j] = limits[r % len(limits), j]

    # 32-bit sums: by masks for each lane separately, else for whole registers of
    # features and one row more, for the points that are left out.
    masked = n_padded * d <= MASKED_VALUES
    sum_size = n_padded * d * LANES if masked else (n_padded + 1) * width
    count_size = (n_padded + LANES) // LANES * LANES
    small_sums = _aligned(n_replicates * sum_size, np.int32)
    small_counts = _aligned(n_replicates * count_size, np.int32)
    small_sums[:] = 0
    small_counts[:] = 0

    n_pending = 0
    for start in range(first, last, size):
        stop = min(start + size, last)
        n_groups = -(-(stop - start) // GROUP)
        rows, row = _padded_rows(flat_rows, start, n_groups * GROUP, d)
        _transpose_rows(rows, row, d, n_groups, columns)
        _round_norms(squared_norms[start:stop], norms)
        for r in range(n_replicates):
            tests = _tests(d, center_norms[r], n_padded)
            # One replicate fetches the next block, the others what is there already.
            ahead = row + (size * d if r == 0 else 0)
            if _screen(columns, d, n_groups, tiles[r], tile_norms[r], tile_limits[r], tests, norms,
                       nearest, margins, rows, ahead):  # fmt: skip
                _settle(rows, row, squared_norms[start:stop], centers[r], center_norms[r],
                        limits[r % len(limits)], n_padded, margins, nearest)  # fmt: skip
            block_sums = small_sums[r * sum_size : (r + 1) * sum_size]
            block_counts = small_counts[r * count_size : (r + 1) * count_size]
            if masked:
                nearest[stop - start : n_groups * GROUP] = n_padded
                _sum_by_masks(
                    columns, d, n_groups, nearest, n_padded, block_sums, block_counts
                )
            else:
                _sum_by_points(
                    rows, row, d, nearest[: stop - start], block_sums, block_counts
                )
        n_pending += size
        if n_pending + size > POINTS_PER_SUM or stop == last:
            for r in range(n_replicates):
                block_sums = small_sums[r * sum_size : (r + 1) * sum_size]
                block_counts = small_counts[r * count_size : (r + 1) * count_size]
                if masked:
                    _add_lanes(block_sums, sums[r])
                else:
                    _add_rows(block_sums, width, sums[r])
                _add_rows(block_counts, 1, counts[r : r + 1].T)
                block_sums[:] = 0
                block_counts[:] = 0
            n_pending = 0
    return True


@njit(cache=True, nogil=True)
def scan_labels(
    flat_rows: np.ndarray,
    squared_norms: np.ndarray,
    first: int,
    last: int,
    centers: np.ndarray,
    largest: int,
    labels: np.ndarray,
) -> bool:
    """Write the index of the nearest center of points ``first`` to ``last - 1``.

    Parameters are those of :func:`scan_and_sum`; ``labels`` is of shape (R, n), int32.
    """
    if not _are_within(centers, largest):
        return False
    center_norms, tiles, tile_norms = _prepare_centers(centers)
    n_replicates, _, d = centers.shape
    n_padded = tile_norms.shape[1]
    size = _block_size(d)
    columns, norms, nearest, margins = _buffers(d, size)
    no_limit = np.array([INFINITY])
    for start in range(first, last, size):
        stop = min(start + size, last)
        n_groups = -(-(stop - start) // GROUP)
        rows, row = _padded_rows(flat_rows, start, n_groups * GROUP, d)
        _transpose_rows(rows, row, d, n_groups, columns)
        _round_norms(squared_norms[start:stop], norms)
        for r in range(n_replicates):
            tests = _tests(d, center_norms[r], n_padded)
            # One replicate fetches the next block, the others what is there already.
            ahead = row + (size * d if r == 0 else 0)
            if _screen(columns, d, n_groups, tiles[r], tile_norms[r], no_limit, tests, norms,
                       nearest, margins, rows, ahead):  # fmt: skip
                _settle(rows, row, squared_norms[start:stop], centers[r], center_norms[r],
                        no_limit, n_padded, margins, nearest)  # fmt: skip
            for b in range(stop - start):
                labels[r, start + b] = np.int32(nearest[b])
    return True


@njit(cache=True, nogil=True)
def _columns_of(d: int) -> int:
    """Number of columns of a group: few features, or whole registers of them."""
    return d if d <= FEW_FEATURES else -(-d // LANES) * LANES


@njit(cache=True, nogil=True)
def _block_size(d: int) -> int:
    """Number of points of a block, in whole groups."""
    return max(1, BLOCK_VALUES // (_columns_of(d) * GROUP)) * GROUP


@njit(cache=True, nogil=True)
def _aligned(size: int, dtype: type) -> np.ndarray:
    """An array of 32-bit numbers that begins with a cache line."""
    array = np.empty(size + CACHE_LINE // 4, dtype)
    offset = (-array.ctypes.data % CACHE_LINE) // 4
    return array[offset : offset + size]


@njit(cache=True, nogil=True)
def _buffers(
    d: int, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Arrays of a block: columns, squared norms, nearest centers, margins."""
    columns = _aligned(_columns_of(d) * size, np.float32)
    norms = _aligned(size, np.float32)
    nearest = _aligned(size, np.float32)
    margins = _aligned(size, np.float32)
    return columns, norms, nearest, margins


@njit(cache=True, nogil=True)
def _padded_rows(
    flat_rows: np.ndarray, start: int, size: int, d: int
) -> tuple[np.ndarray, int]:
    """An array and the position in it where the rows of a block begin.

    Registers read up to a register beyond a block: where the points end before that, it
    is a copy of what is left, followed by zeros.
    """
    begin = start * d
    end = begin + size * d + LANES
    if end <= len(flat_rows):
        return flat_rows, begin
    copy = np.zeros(end - begin, np.float32)
    rest = flat_rows[begin:]
    copy[: len(rest)] = rest
    return copy, 0


@njit(cache=True, nogil=True)
def _transpose_rows(
    rows: np.ndarray, row: int, d: int, n_groups: int, columns: np.ndarray
) -> None:
    """Transpose a block: feature h of point b of group g to ``(g * width + h) * GROUP + b``.

    The width is that of :func:`_columns_of`.
    """
    # The compiler makes vector code of each case, because the stride is a constant.
    if d == 1:
        _separate(rows, row, 1, n_groups, columns)
    elif d == 2:
        _separate(rows, row, 2, n_groups, columns)
    elif d == 3:
        _separate(rows, row, 3, n_groups, columns)
    elif d == 4:
        _separate(rows, row, 4, n_groups, columns)
    else:
        width = _columns_of(d)
        for half in range(2 * n_groups):
            begin = row + half * LANES * d
            to = half // 2 * width * GROUP + half % 2 * LANES
            for h in range(0, d, LANES):
                transpose(rows, begin + h, d, columns, to + h * GROUP, GROUP)


@njit(cache=True, nogil=True, inline="always")
def _separate(
    rows: np.ndarray, row: int, d: int, n_groups: int, columns: np.ndarray
) -> None:
    """Transpose rows of few features, which fill a small part of a tile."""
    for half in range(2 * n_groups):
        begin = row + half * LANES * d
        to = half // 2 * d * GROUP + half % 2 * LANES
        for h in range(d):
            store(columns, to + h * GROUP, load_strided(rows, begin + h, d))


@njit(cache=True, nogil=True)
def _round_norms(squared_norms: np.ndarray, norms: np.ndarray) -> None:
    for b in range(len(squared_norms)):
        norms[b] = squared_norms[b]
    norms[len(squared_norms) :] = ZERO


@njit(cache=True, nogil=True)
def _screen(
    columns: np.ndarray,
    d: int,
    n_groups: int,
    tiles: np.ndarray,
    tile_norms: np.ndarray,
    tile_limits: np.ndarray,
    tests: tuple[Any, Any, Any],
    norms: np.ndarray,
    nearest: np.ndarray,
    margins: np.ndarray,
    rows: np.ndarray,
    ahead: int,
) -> bool:
    """Nearest center of each point of a block, in float32, and the margin of that decision.

    Parameters
    ----------
    tile_limits : ndarray of float32
        One for each center, or a single one for all.
    tests : tuple
        From :func:`_tests`.
    norms : ndarray of float32
        Squared norms of the points.
    nearest : ndarray of float32
        Filled with the index of the nearest center, or with that which stands for none.
    margins : ndarray of float32
        Filled; where not positive, exact arithmetic may decide otherwise.
    rows : ndarray of float32
        Coordinates of all points.
    ahead : int
        Where those of the next block begin: they are fetched from memory meanwhile.

    Returns
    -------
    bool
        Whether a margin may not be positive.
    """
    width = _columns_of(d)
    is_open = False
    for g in range(n_groups):
        group = g * width * GROUP
        # s_uv is the score of center j + u for half v of a group.
        least_0 = least_1 = broadcast(INFINITY)
        second_0 = second_1 = broadcast(INFINITY)
        nearest_0 = nearest_1 = broadcast(ZERO)
        for j in range(0, len(tile_norms), TILE):
            # The rows of a group are two registers for each feature: the first two
            # tiles fetch one each. Between the products this costs nothing, and a pass
            # from memory half as much.
            line = ahead + (2 * g + min(j // TILE, 1)) * d * LANES
            step = LANES if j < 2 * TILE else 0
            s_00 = s_01 = broadcast(tile_norms[j])
            s_10 = s_11 = broadcast(tile_norms[j + 1])
            s_20 = s_21 = broadcast(tile_norms[j + 2])
            s_30 = s_31 = broadcast(tile_norms[j + 3])
            # After step h the scores lack the products of features h + 1 and above.
            for h in range(d):
                x_0 = load(columns, group + h * GROUP)
                x_1 = load(columns, group + h * GROUP + LANES)
                at = j * d + h * TILE
                prefetch(rows, line + h * step)
                c = broadcast(tiles[at])
                s_00 = multiply_add(x_0, c, s_00)
                s_01 = multiply_add(x_1, c, s_01)
                c = broadcast(tiles[at + 1])
                s_10 = multiply_add(x_0, c, s_10)
                s_11 = multiply_add(x_1, c, s_11)
                c = broadcast(tiles[at + 2])
                s_20 = multiply_add(x_0, c, s_20)
                s_21 = multiply_add(x_1, c, s_21)
                c = broadcast(tiles[at + 3])
                s_30 = multiply_add(x_0, c, s_30)
                s_31 = multiply_add(x_1, c, s_31)

            # Ties stay with the lower index.
            for u in range(TILE):
                center = broadcast(np.float32(j + u))
                s_0 = (s_00, s_10, s_20, s_30)[u]
                s_1 = (s_01, s_11, s_21, s_31)[u]
                second_0 = _second(least_0, second_0, s_0)
                second_1 = _second(least_1, second_1, s_1)
                nearest_0 = where_less(s_0, least_0, center, nearest_0)
                nearest_1 = where_less(s_1, least_1, center, nearest_1)
                least_0 = where_less(s_0, least_0, s_0, least_0)
                least_1 = where_less(s_1, least_1, s_1, least_1)

        limit_0 = limit_1 = broadcast(tile_limits[0])
        if len(tile_limits) > 1:
            limit_0 = _at(tile_limits, nearest_0)
            limit_1 = _at(tile_limits, nearest_1)
        b = g * GROUP
        norm = load(norms, b)
        nearest_0, margin_0 = _decide(
            least_0, second_0, nearest_0, limit_0, norm, tests
        )
        norm = load(norms, b + LANES)
        nearest_1, margin_1 = _decide(
            least_1, second_1, nearest_1, limit_1, norm, tests
        )
        store(nearest, b, nearest_0)
        store(nearest, b + LANES, nearest_1)
        store(margins, b, margin_0)
        store(margins, b + LANES, margin_1)
        is_open |= any_less(margin_0, broadcast(TINY)) | any_less(
            margin_1, broadcast(TINY)
        )
    return is_open


@njit(cache=True, nogil=True)
def _at(values: np.ndarray, indices: Any) -> Any:
    """The value at each index, in registers."""
    found = broadcast(values[0])
    for j in range(1, len(values)):
        found = where_equal(
            indices, broadcast(np.float32(j)), broadcast(values[j]), found
        )
    return found


@njit(cache=True, nogil=True)
def _second(least: Any, second: Any, score: Any) -> Any:
    """Second-least score with one more score, in registers."""
    larger = where_less(score, least, least, score)
    return where_less(larger, second, larger, second)


@njit(cache=True, nogil=True)
def _decide(
    least: Any,
    second: Any,
    nearest: Any,
    limit: Any,
    norm: Any,
    tests: tuple[Any, Any, Any],
) -> tuple[Any, Any]:
    """Nearest center, or none beyond its limit, and the margin of both decisions, in registers."""
    from_centers, from_point, left_out = tests
    tolerance = multiply_add(broadcast(from_point), norm, broadcast(from_centers))
    excess = subtract(add(least, norm), limit)
    negative = subtract(broadcast(ZERO), excess)
    distance = where_less(excess, negative, negative, excess)
    gap = subtract(second, least)
    margin = subtract(where_less(gap, distance, gap, distance), tolerance)
    return where_less(tolerance, excess, broadcast(left_out), nearest), margin


@njit(cache=True, nogil=True)
def _tests(d: int, center_norms: np.ndarray, left_out: int) -> tuple[Any, Any, Any]:
    """Tolerance ``T = a + b |x|^2`` as a and b, and what stands for no center."""
    largest = 0.0
    for center_norm in center_norms:
        if center_norm < np.inf:
            largest = max(largest, center_norm)
    n_roundings = (d + 8) * UNIT_ROUNDOFF
    twice_error = 2.0 * n_roundings / (1.0 - n_roundings)
    return (
        np.float32(2.0 * largest * twice_error),
        np.float32(twice_error),
        np.float32(left_out),
    )


@njit(cache=True, nogil=True)
def _settle(
    rows: np.ndarray,
    row: int,
    squared_norms: np.ndarray,
    centers: np.ndarray,
    center_norms: np.ndarray,
    limits: np.ndarray,
    left_out: int,
    margins: np.ndarray,
    nearest: np.ndarray,
) -> None:
    """Find the nearest centers of the points with no margin in float64; ``left_out`` for none."""
    d = centers.shape[1]
    for b in range(len(squared_norms)):
        if margins[b] <= ZERO:
            begin = row + b * d
            j, score = _exact_nearest(rows[begin : begin + d], centers, center_norms)
            is_within = score + squared_norms[b] <= limits[j if len(limits) > 1 else 0]
            nearest[b] = j if is_within else left_out


@njit(cache=True, nogil=True, fastmath=REORDERED)
def _exact_nearest(
    point: np.ndarray, centers: np.ndarray, center_norms: np.ndarray
) -> tuple[int, float]:
    """Nearest center of a point and its score, in float64, which holds all of them."""
    nearest = 0
    least = np.inf
    for j in range(centers.shape[0]):
        product = 0.0
        for h in range(len(point)):
            product += np.float64(point[h]) * centers[j, h]
        score = center_norms[j] - 2.0 * product
        if score < least:
            nearest = j
            least = score
    return nearest, least


@njit(cache=True, nogil=True)
def _sum_by_masks(
    columns: np.ndarray,
    d: int,
    n_groups: int,
    nearest: np.ndarray,
    n_padded: int,
    sums: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Add the points of each center in registers, for :data:`TILE` centers at a time.

    A lane adds at most ``GROUP * n_groups / LANES`` coordinates, 256 of up to 2**16:
    float32 holds that exactly.
    """
    width = _columns_of(d)
    zero = broadcast(ZERO)
    none = (zero, zero, zero, zero)
    for j in range(0, n_padded, TILE):
        center = np.float32(j)
        tile = (
            broadcast(center),
            broadcast(center + ONE),
            broadcast(center + np.float32(2.0)),
            broadcast(center + np.float32(3.0)),
        )
        # Two features at a time; of an odd number the last one twice.
        for h in range(0, d, 2):
            other = min(h + 1, d - 1)
            n_0 = n_1 = n_2 = n_3 = 0
            firsts = none
            seconds = none
            for half in range(2 * n_groups):
                labels = load(nearest, half * LANES)
                begin = half // 2 * width * GROUP + half % 2 * LANES
                n_0 += count_equal(labels, tile[0])
                n_1 += count_equal(labels, tile[1])
                n_2 += count_equal(labels, tile[2])
                n_3 += count_equal(labels, tile[3])
                firsts = _add_where(
                    labels, tile, load(columns, begin + h * GROUP), firsts
                )
                seconds = _add_where(
                    labels, tile, load(columns, begin + other * GROUP), seconds
                )
            for u in range(TILE):
                at = (j + u) * d * LANES
                add_integers(sums, at + h * LANES, firsts[u])
                if other > h:
                    add_integers(sums, at + other * LANES, seconds[u])
            if h == 0:
                counts[j] += n_0
                counts[j + 1] += n_1
                counts[j + 2] += n_2
                counts[j + 3] += n_3


@njit(cache=True, nogil=True, inline="always")
def _add_where(labels: Any, centers: Any, x: Any, sums: Any) -> Any:
    """Sums of a tile of centers with one more register of points, each in that of its label."""
    c_0, c_1, c_2, c_3 = centers
    sum_0, sum_1, sum_2, sum_3 = sums
    return (
        where_equal(labels, c_0, add(sum_0, x), sum_0),
        where_equal(labels, c_1, add(sum_1, x), sum_1),
        where_equal(labels, c_2, add(sum_2, x), sum_2),
        where_equal(labels, c_3, add(sum_3, x), sum_3),
    )


@njit(cache=True, nogil=True)
def _sum_by_points(
    rows: np.ndarray,
    row: int,
    d: int,
    nearest: np.ndarray,
    sums: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Add point after point to its center's sum; what follows a row in its last register too."""
    width = -(-d // LANES) * LANES
    for b in range(len(nearest)):
        j = np.int64(nearest[b])
        counts[j] += 1
        for h in range(0, d, LANES):
            add_integers(sums, j * width + h, load(rows, row + b * d + h))


@njit(cache=True, nogil=True)
def _add_lanes(lanes: np.ndarray, totals: np.ndarray) -> None:
    """Add the sums of all lanes, of one element after the other, to totals (rows, columns)."""
    n_columns = totals.shape[1]
    for j in range(totals.shape[0]):
        for h in range(n_columns):
            first = (j * n_columns + h) * LANES
            for lane in range(first, first + LANES):
                totals[j, h] += lanes[lane]


@njit(cache=True, nogil=True)
def _add_rows(rows: np.ndarray, width: int, totals: np.ndarray) -> None:
    """Add rows of ``width`` elements, one after the other, to totals (k, d), d up to ``width``."""
    for j in range(totals.shape[0]):
        for h in range(totals.shape[1]):
            totals[j, h] += rows[j * width + h]
