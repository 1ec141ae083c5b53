"""Compiled scans for nearest centers: in float32, exact where rounding could matter.

A point x is compared with centers c by the score ``s = |c|^2 - 2 c.x``, its squared
distance less ``|x|^2``. Scores are integers below 2**53. A scan computes them in
float32, as ``S``, and keeps the smallest two of each point. Where these are too close
to tell which is smaller, it computes all scores of the point again in float64, which is
exact. The result is that of exact arithmetic for any input.

How close is too close. Let ``u = 2**-24``, ``g(m) = m u / (1 - m u)``, ``C`` the
largest norm of a center, ``M = 2 C^2 + |x|^2``. Every term of a score passes at most
``d + 1`` roundings: one when it is converted to float32, and d fused multiply-adds. So
(Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.1)

    |S - s| <= g(d + 1) (|c|^2 + 2 sum_h |c_h x_h|) <= g(d + 1) M = E,

by Cauchy and Schwarz and ``2 |c| |x| <= |c|^2 + |x|^2``. If the smallest two differ by
more than 2 E, the smallest is that of the nearest center, and no other center ties with
it. A point is left out if its squared distance ``D = s + |x|^2 <= 2 M`` exceeds the
limit L of its center. The difference of D and L is wrong by at most ``E + 4 u M + u L``
before its own rounding, and where ``L > 3 M`` no error changes its sign. Both
comparisons, of scores and of distance and limit, are decided by the tolerance

    T = 2 g(d + 8) M;

which allows for seven roundings more than E. They cover the roundings of T itself, of
the difference of two scores, and of D and L.

Units: coordinates in grid steps, scores and squared norms in squared grid steps. Scans
take points as rows, one after the other in a flat array. A block of rows is transposed
in the first-level cache into groups: for each feature the coordinates of :data:`GROUP`
points.
"""

from typing import Any, NamedTuple

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
from pkm.compute.storage.points import FASTMATH

GROUP = 2 * LANES  # points whose scores are in registers at the same time
TILE = 4  # centers whose scores are in registers at the same time
FEW_FEATURES = 4  # at most so many features are transposed without padding
#: Coordinates of a block: few enough for the first-level cache, many enough to use
#: centers often.
BLOCK_VALUES = 8 * LANES * GROUP
#: With at most so many coordinates of centers, points are summed by comparing labels in
#: registers (masks), which is then faster than point by point.
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


class Buffers(NamedTuple):
    """Points of a block in float32: IN columns and norms, OUT nearest and margins.

    Attributes
    ----------
    columns : ndarray, float32
        Coordinates, transposed in groups.
    norms : ndarray, float32
        Squared norms.
    nearest : ndarray, float32
        Index of the nearest center; the padded number of centers stands for none.
    margins : ndarray, float32
        Where not positive, exact arithmetic may give another result.
    """

    columns: np.ndarray
    norms: np.ndarray
    nearest: np.ndarray
    margins: np.ndarray


@njit(cache=True, nogil=True)
def _prepare_centers(
    centers: np.ndarray,  # IN (R, k, d)
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
    tile_norms = np.full((n_replicates, n_padded), INFINITY)
    for r in range(n_replicates):
        for j in range(k):
            first = j // TILE * TILE * d + j % TILE
            for h in range(d):
                c = centers[r, j, h]
                norms[r, j] += c * c
                tiles[r, first + h * TILE] = -2.0 * c
        # Of equal centers the first one alone is nearest to points.
        for j in range(k):
            for i in range(j):
                is_same_norm = norms[r, i] == norms[r, j]
                if is_same_norm and (centers[r, i] == centers[r, j]).all():
                    norms[r, j] = np.inf
        for j in range(k):
            tile_norms[r, j] = norms[r, j]
    return norms, tiles, tile_norms


@njit(cache=True, nogil=True)
def scan(
    flat_rows: np.ndarray,  # IN
    squared_norms: np.ndarray,  # IN
    first: int,
    last: int,
    centers: np.ndarray,  # IN
    limits: np.ndarray,  # IN
    sums: np.ndarray,  # IN and OUT
    counts: np.ndarray,  # IN and OUT
    labels: np.ndarray,  # OUT, or an empty array
) -> None:
    """Find the nearest centers of a range of points; sum and count, or label them.

    Parameters
    ----------
    flat_rows : ndarray of shape (n * d,), float32
    squared_norms : ndarray of shape (n,), float64
    first, last : int
    centers : ndarray of shape (R, k, d), float64
        No coordinate is larger than exact distances allow.
    limits : ndarray of shape (R, k), float64, or with 1 instead of R or k
        Points whose squared distance to their center exceeds its limit are left out.
    sums : ndarray of shape (R, k, d), int64
        Added to.
    counts : ndarray of shape (R, k), int64
        Added to.
    labels : ndarray of shape (R, n), int32, or (R, 0)
        Written, and nothing is summed, unless it is empty.
    """
    # Buffers of one block, which stays in the first-level cache for all replicates.
    center_norms, tiles, tile_norms = _prepare_centers(centers)
    n_replicates, k, d = centers.shape
    n_padded = tile_norms.shape[1]
    width = -(-d // LANES) * LANES
    size = _count_block_points(d)
    buffers = _make_buffers(d, size)
    nearest = buffers.nearest
    labels_only = labels.shape[1] > 0

    # Padding beyond k needs no limit: its norm is infinite.
    n_limits = limits.shape[1]
    tile_limits = np.zeros(
        (n_replicates, n_limits if n_limits == 1 else n_padded), np.float32
    )
    for r in range(n_replicates):
        for j in range(n_limits):
            tile_limits[r, j] = limits[r % len(limits), j]

    # 32-bit sums: if masked, one for each lane of each coordinate; else rows of whole
    # registers, and one row more for the points that are left out.
    masked = n_padded * d <= MASKED_VALUES
    sum_size = n_padded * d * LANES if masked else (n_padded + 1) * width
    count_size = (n_padded + LANES) // LANES * LANES
    small_sums = _align(n_replicates * sum_size, np.int32)
    small_counts = _align(n_replicates * count_size, np.int32)
    small_sums = small_sums.reshape(n_replicates, sum_size)
    small_counts = small_counts.reshape(n_replicates, count_size)
    small_sums[:] = 0
    small_counts[:] = 0

    # For each block: transpose, compare in float32, compare again in float64 what is
    # too close, then sum or label. n_pending counts the points in the 32-bit sums.
    n_pending = 0
    for start in range(first, last, size):
        stop = min(start + size, last)
        n_groups = -(-(stop - start) // GROUP)
        rows, row = _pad_rows(flat_rows, start, n_groups * GROUP, d)
        _transpose_rows(
            rows,
            row,
            d,
            n_groups,
            buffers.columns,
        )
        _round_norms(squared_norms[start:stop], buffers.norms)
        for r in range(n_replicates):
            error_bounds = _bound_errors(d, center_norms[r], n_padded)
            # The first replicate prefetches the next block. The others prefetch this
            # one, which is in the cache already: cheaper than a branch.
            ahead = row + (size * d if r == 0 else 0)
            is_uncertain = _compare_in_float32(
                buffers,
                d,
                n_groups,
                tiles[r],
                tile_norms[r],
                tile_limits[r],
                error_bounds,
                rows,
                ahead,
            )
            if is_uncertain:
                _compare_in_float64(
                    buffers,
                    rows,
                    row,
                    squared_norms[start:stop],
                    centers[r],
                    center_norms[r],
                    limits[r % len(limits)],
                    n_padded,
                )
            if labels_only:
                for b in range(stop - start):
                    labels[r, start + b] = np.int32(nearest[b])
            elif masked:
                # Masks read whole groups: beyond the block no point has a center.
                nearest[stop - start : n_groups * GROUP] = n_padded
                _sum_by_masks(
                    buffers,
                    d,
                    n_groups,
                    n_padded,
                    small_sums[r],
                    small_counts[r],
                )
            else:
                _sum_by_points(
                    rows,
                    row,
                    d,
                    nearest[: stop - start],
                    small_sums[r],
                    small_counts[r],
                )

        # Add the 32-bit sums to the 64-bit ones before they can overflow.
        n_pending += size
        if n_pending + size > POINTS_PER_SUM or stop == last:
            for r in range(n_replicates):
                if masked:
                    _add_small(
                        small_sums[r],
                        d * LANES,
                        LANES,
                        LANES,
                        sums[r],
                    )
                else:
                    _add_small(
                        small_sums[r],
                        width,
                        1,
                        1,
                        sums[r],
                    )
                # Entry by entry, as in `_pad_rows`.
                for j in range(k):
                    counts[r, j] += small_counts[r, j]
            small_sums[:] = 0
            small_counts[:] = 0
            n_pending = 0


@njit(cache=True, nogil=True)
def _count_columns(d: int) -> int:
    """Columns of a group: d if that is small, else d padded to whole registers."""
    return d if d <= FEW_FEATURES else -(-d // LANES) * LANES


@njit(cache=True, nogil=True)
def _count_block_points(d: int) -> int:
    """Number of points of a block, in whole groups."""
    return max(1, BLOCK_VALUES // (_count_columns(d) * GROUP)) * GROUP


@njit(cache=True, nogil=True)
def _align(size: int, dtype: type) -> np.ndarray:
    """Array of 32-bit numbers that begins at a cache line."""
    array = np.empty(size + CACHE_LINE // 4, dtype)
    offset = (-array.ctypes.data % CACHE_LINE) // 4
    return array[offset : offset + size]


@njit(cache=True, nogil=True)
def _make_buffers(d: int, size: int) -> Buffers:
    columns = _align(_count_columns(d) * size, np.float32)
    norms = _align(size, np.float32)
    nearest = _align(size, np.float32)
    margins = _align(size, np.float32)
    return Buffers(columns, norms, nearest, margins)


@njit(cache=True, nogil=True)
def _pad_rows(
    flat_rows: np.ndarray,  # IN, returned itself where it is long enough
    start: int,
    size: int,
    d: int,
) -> tuple[np.ndarray, int]:
    """Array that holds the rows of a block, and the position where they begin.

    Loads read up to one register beyond a block. Where the points end before that, the
    array is a copy of the last points, followed by zeros.
    """
    begin = start * d
    end = begin + size * d + LANES
    if end <= len(flat_rows):
        return flat_rows, begin
    copy = np.zeros(end - begin, np.float32)
    # Entry by entry: the compiler takes seconds for the assignment of a slice.
    for i in range(len(flat_rows) - begin):
        copy[i] = flat_rows[begin + i]
    return copy, 0


@njit(cache=True, nogil=True)
def _transpose_rows(
    rows: np.ndarray,  # IN, flat
    row: int,
    d: int,
    n_groups: int,
    columns: np.ndarray,  # OUT, flat
) -> None:
    """Transpose the rows of a block to ``columns``, which is written.

    Feature h of point b of group g goes to ``(g * width + h) * GROUP + b``, where
    ``width`` is that of :func:`_count_columns`.
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
        width = _count_columns(d)
        for half in range(2 * n_groups):
            begin = row + half * LANES * d
            to = half // 2 * width * GROUP + half % 2 * LANES
            for h in range(0, d, LANES):
                transpose(
                    rows,
                    begin + h,
                    d,
                    columns,
                    to + h * GROUP,
                    GROUP,
                )


@njit(cache=True, nogil=True, inline="always")
def _separate(
    rows: np.ndarray,  # IN, flat
    row: int,
    d: int,
    n_groups: int,
    columns: np.ndarray,  # OUT, flat
) -> None:
    """Transpose rows of few features, which fill a small part of a tile."""
    for half in range(2 * n_groups):
        begin = row + half * LANES * d
        to = half // 2 * d * GROUP + half % 2 * LANES
        for h in range(d):
            store(columns, to + h * GROUP, load_strided(rows, begin + h, d))


@njit(cache=True, nogil=True)
def _round_norms(
    squared_norms: np.ndarray,  # IN (b,), float64
    norms: np.ndarray,  # OUT (size,), float32, 0 from b on
) -> None:
    for b in range(len(squared_norms)):
        norms[b] = squared_norms[b]
    norms[len(squared_norms) :] = ZERO


@njit(cache=True, nogil=True)
def _compare_in_float32(
    buffers: Buffers,  # IN and OUT, see the class
    d: int,
    n_groups: int,
    tiles: np.ndarray,  # IN (K * d,)
    tile_norms: np.ndarray,  # IN (K,)
    tile_limits: np.ndarray,  # IN (1,) or (K,)
    error_bounds: tuple[Any, Any, Any],
    rows: np.ndarray,  # IN, flat, read ahead only
    ahead: int,
) -> bool:
    """Nearest center of each point of a block, in float32, and whether it is certain.

    Parameters
    ----------
    buffers : Buffers
        Columns and norms are read, nearest centers and margins written.
    d, n_groups : int
    tiles, tile_norms : ndarray of float32
        Results of :func:`_prepare_centers`.
    tile_limits : ndarray of float32
        Limit of each center, or a single one for all.
    error_bounds : tuple
        Result of :func:`_bound_errors`.
    rows : ndarray of float32
        Coordinates of all points, for prefetching.
    ahead : int
        Where the coordinates of the next block begin.

    Returns
    -------
    bool
        Whether some margin is not positive: then float64 must decide.
    """
    columns = buffers.columns
    width = _count_columns(d)
    is_uncertain = False
    for g in range(n_groups):
        group = g * width * GROUP
        # A group is two registers of points, halves 0 and 1. s_uv is the score of
        # center j + u for half v. Invariant over j: least and second are the two
        # smallest scores of centers 0 .. j - 1, and nearest is the index of the least.
        least_0 = least_1 = broadcast(INFINITY)
        second_0 = second_1 = broadcast(INFINITY)
        nearest_0 = nearest_1 = broadcast(ZERO)
        for j in range(0, len(tile_norms), TILE):
            # Prefetch the next block's rows of this group, half of them with each of
            # the first two tiles. Between the products this costs nothing, and it
            # halves the time of a pass over points in memory.
            line = ahead + (2 * g + min(j // TILE, 1)) * d * LANES
            step = LANES if j < 2 * TILE else 0
            s_00 = s_01 = broadcast(tile_norms[j])
            s_10 = s_11 = broadcast(tile_norms[j + 1])
            s_20 = s_21 = broadcast(tile_norms[j + 2])
            s_30 = s_31 = broadcast(tile_norms[j + 3])
            # After step h the scores have the products of features 0 .. h.
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

            # Update the two smallest scores; ties stay with the lower index.
            for u in range(TILE):
                center = broadcast(np.float32(j + u))
                s_0 = (s_00, s_10, s_20, s_30)[u]
                s_1 = (s_01, s_11, s_21, s_31)[u]
                second_0 = _second_least(least_0, second_0, s_0)
                second_1 = _second_least(least_1, second_1, s_1)
                nearest_0 = where_less(s_0, least_0, center, nearest_0)
                nearest_1 = where_less(s_1, least_1, center, nearest_1)
                least_0 = where_less(s_0, least_0, s_0, least_0)
                least_1 = where_less(s_1, least_1, s_1, least_1)

        limit_0 = limit_1 = broadcast(tile_limits[0])
        if len(tile_limits) > 1:
            limit_0 = _select(tile_limits, nearest_0)
            limit_1 = _select(tile_limits, nearest_1)
        b = g * GROUP
        is_uncertain |= _store_nearest(
            buffers,
            b,
            least_0,
            second_0,
            nearest_0,
            limit_0,
            error_bounds,
        )
        b += LANES
        is_uncertain |= _store_nearest(
            buffers,
            b,
            least_1,
            second_1,
            nearest_1,
            limit_1,
            error_bounds,
        )
    return is_uncertain


@njit(cache=True, nogil=True)
def _select(values: np.ndarray, indices: Any) -> Any:
    """Value at each index, in registers."""
    selected = broadcast(values[0])
    for j in range(1, len(values)):
        index = broadcast(np.float32(j))
        selected = where_equal(indices, index, broadcast(values[j]), selected)
    return selected


@njit(cache=True, nogil=True)
def _second_least(least: Any, second: Any, score: Any) -> Any:
    """Second-smallest score with one more score, in registers."""
    larger = where_less(score, least, least, score)
    return where_less(larger, second, larger, second)


@njit(cache=True, nogil=True)
def _store_nearest(
    buffers: Buffers,  # IN norms, OUT nearest and margins
    b: int,
    least: Any,
    second: Any,
    nearest: Any,
    limit: Any,
    error_bounds: tuple[Any, Any, Any],
) -> bool:
    """Store nearest centers, or none beyond the limits, and the margins.

    For one register of points, from ``b`` on, by their two smallest scores. Returns
    whether some margin is not positive.
    """
    from_centers, from_point, left_out = error_bounds
    norm = load(buffers.norms, b)
    # T = a + b |x|^2; excess is D - L. The margin is the smaller of the two
    # differences, between the scores and between D and L, less T.
    tolerance = multiply_add(broadcast(from_point), norm, broadcast(from_centers))
    excess = subtract(add(least, norm), limit)
    negative = subtract(broadcast(ZERO), excess)
    distance = where_less(excess, negative, negative, excess)
    score_difference = subtract(second, least)
    smaller = where_less(score_difference, distance, score_difference, distance)
    margin = subtract(smaller, tolerance)
    nearest = where_less(tolerance, excess, broadcast(left_out), nearest)
    store(buffers.nearest, b, nearest)
    store(buffers.margins, b, margin)
    # Below the least positive number: zero or negative.
    return any_less(margin, broadcast(TINY))


@njit(cache=True, nogil=True)
def _bound_errors(
    d: int,
    center_norms: np.ndarray,  # IN (k,), infinite for repeated centers
    left_out: int,
) -> tuple[Any, Any, Any]:
    """Coefficients a and b of ``T = a + b |x|^2``, and the index for no center."""
    # A repeated center has an infinite norm here; its first copy has the true one.
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
def _compare_in_float64(
    buffers: Buffers,  # IN margins, OUT nearest
    rows: np.ndarray,  # IN, flat
    row: int,
    squared_norms: np.ndarray,  # IN (b,)
    centers: np.ndarray,  # IN (k, d)
    center_norms: np.ndarray,  # IN (k,)
    limits: np.ndarray,  # IN (1,) or (k,)
    left_out: int,
) -> None:
    """Find nearest centers again in float64 for points whose margin is not positive."""
    d = centers.shape[1]
    for b in range(len(squared_norms)):
        if buffers.margins[b] <= ZERO:
            begin = row + b * d
            point = rows[begin : begin + d]
            j, score = _find_exactly(point, centers, center_norms)
            is_within = score + squared_norms[b] <= limits[j if len(limits) > 1 else 0]
            buffers.nearest[b] = j if is_within else left_out


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _find_exactly(
    point: np.ndarray,  # IN (d,), float32
    centers: np.ndarray,  # IN (k, d), float64
    center_norms: np.ndarray,  # IN (k,), float64
) -> tuple[int, float]:
    """Nearest center of a point and its score, in float64, which is exact here."""
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
    buffers: Buffers,  # IN columns and nearest
    d: int,
    n_groups: int,
    n_padded: int,
    sums: np.ndarray,  # IN and OUT (K * d * LANES,), int32
    counts: np.ndarray,  # IN and OUT (K + 1,) or longer, int32
) -> None:
    """Add the points of each center in registers, :data:`TILE` centers at a time.

    A lane adds at most ``GROUP * n_groups / LANES`` coordinates of up to 2**16. These
    are 256 with 16 lanes, and 128 with 8: float32 holds their sum exactly.
    """
    width = _count_columns(d)
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
                labels = load(buffers.nearest, half * LANES)
                begin = half // 2 * width * GROUP + half % 2 * LANES
                n_0 += count_equal(labels, tile[0])
                n_1 += count_equal(labels, tile[1])
                n_2 += count_equal(labels, tile[2])
                n_3 += count_equal(labels, tile[3])
                x = load(buffers.columns, begin + h * GROUP)
                firsts = _add_where(labels, tile, x, firsts)
                x = load(buffers.columns, begin + other * GROUP)
                seconds = _add_where(labels, tile, x, seconds)
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
def _add_where(
    labels: Any,
    centers: Any,
    x: Any,
    sums: Any,
) -> Any:
    """Add a register of points to the sums of a tile, each point to its label's sum."""
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
    rows: np.ndarray,  # IN, flat
    row: int,
    d: int,
    nearest: np.ndarray,  # IN (b,), float32
    sums: np.ndarray,  # IN and OUT, (K + 1) padded rows, int32
    counts: np.ndarray,  # IN and OUT (K + 1,) or longer, int32
) -> None:
    """Add point after point to its center's sum, in whole registers of features."""
    # Beyond the last feature a register holds the next row: those sums are never read.
    width = -(-d // LANES) * LANES
    for b in range(len(nearest)):
        j = np.int64(nearest[b])
        counts[j] += 1
        for h in range(0, d, LANES):
            add_integers(sums, j * width + h, load(rows, row + b * d + h))


@njit(cache=True, nogil=True)
def _add_small(
    small: np.ndarray,  # IN, flat, int32
    row_stride: int,
    stride: int,
    n_lanes: int,
    totals: np.ndarray,  # IN and OUT (k, d), int64
) -> None:
    """Add 32-bit sums, each split over ``n_lanes`` neighbors, to totals (k, d)."""
    for j in range(totals.shape[0]):
        for h in range(totals.shape[1]):
            begin = j * row_stride + h * stride
            for lane in range(begin, begin + n_lanes):
                totals[j, h] += small[lane]
