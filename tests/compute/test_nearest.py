"""Nearest centers are exact for any shape, near ties and far centers, on any number of threads."""

from threading import Event, current_thread

import numpy as np
import pytest
from hashed import grid_points, swaps_by_definition
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from scipy.spatial.distance import cdist

from pkm.compute import SCALE, Points, exact_limit, inertia, labels, sums_and_counts
from pkm.compute.kernels import nearest as nearest_kernels
from pkm.compute.kernels.nearest import nearest_of_many, squared_distances, swap_costs
from pkm.compute.kernels.scan import (
    BLOCK_VALUES,
    FEW_FEATURES,
    GROUP,
    MASKED_VALUES,
    POINTS_PER_SUM,
    TILE,
)
from pkm.compute.simd import threads
from pkm.compute.simd.lanes import LANES, broadcast, load, multiply_add, store, transpose

#: Features whose blocks have several groups, whole registers, and one more than that.
WIDTHS = (1, 2, 3, LANES - 1, LANES, LANES + 1, 3 * LANES + 2)
#: Points up to and beyond a register, a group and a block.
BLOCK = BLOCK_VALUES // LANES
SIZES = (1, LANES - 1, LANES, GROUP, GROUP + 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5)


def exact(points, centers, limit=None):
    """Sums, counts, inertia and labels of one replicate, in int64."""
    squares = ((points[:, None] - centers) ** 2).sum(axis=2)
    label = squares.argmin(axis=1)
    least = squares[np.arange(len(points)), label]
    limits = np.full(len(centers), np.inf if limit is None else limit)
    within = least <= limits[label]
    sums = np.zeros_like(centers)
    np.add.at(sums, label[within], points[within])
    counts = np.bincount(label[within], minlength=len(centers))
    return sums, counts, int(least.sum()), label


def assert_exact(points, centers, limit=None):
    """Compare everything with int64 arithmetic, for every replicate."""
    prepared = Points.prepare(points)
    sums, counts = sums_and_counts(prepared, centers, limit)
    inertias = inertia(prepared, centers)
    assigned = labels(prepared, centers)
    for r, replicate in enumerate(centers):
        limits = limit[r] if isinstance(limit, np.ndarray) else limit
        expected_sums, expected_counts, total, label = exact(points, replicate, limits)
        assert np.array_equal(assigned[r], label)
        assert np.array_equal(sums[r], expected_sums)
        assert np.array_equal(counts[r], expected_counts)
        assert inertias[r] == total


@pytest.mark.parametrize("d", WIDTHS)
@pytest.mark.parametrize("n", SIZES)
def test_any_number_of_points_and_features(n, d):
    rng = np.random.default_rng(1000 * n + d)
    points = rng.integers(-SCALE, SCALE + 1, (n, d))
    for k in (1, TILE, TILE + 1, MASKED_VALUES // d + 2 * TILE):
        assert_exact(points, rng.integers(-SCALE, SCALE + 1, (2, k, d)))


@pytest.mark.parametrize("d", range(1, FEW_FEATURES + 2))
@pytest.mark.parametrize("beyond", [-GROUP, -1, 0, 1])
def test_blocks_of_few_features(d, beyond):
    n = 2 * (BLOCK_VALUES // (d * GROUP)) * GROUP + beyond
    rng = np.random.default_rng(n)
    points = rng.integers(-SCALE, SCALE + 1, (n, d))
    for k in (1, 15, MASKED_VALUES // d + TILE):
        assert_exact(points, rng.integers(-SCALE, SCALE + 1, (2, k, d)))


@pytest.mark.parametrize("d", [1, 2, LANES, 40])
@pytest.mark.parametrize("spread", [0, 1, 3])
def test_ties_go_to_the_lower_index(d, spread):
    rng = np.random.default_rng(d)
    points = rng.integers(-spread, spread + 1, (700, d))
    centers = rng.integers(-spread, spread + 1, (3, 30, d))
    for limit in (None, 0, spread * d // 2):
        assert_exact(points, centers, limit)


@pytest.mark.parametrize("d", [2, 10, 40, 200])
def test_points_between_two_centers_that_float32_cannot_decide(d):
    """Points on the bisector of two far centers, and a step to either side of it."""
    rng = np.random.default_rng(d)
    first = rng.integers(SCALE // 2, SCALE, (1, d))
    second = first.copy()
    second[0, 0] -= 2
    centers = np.concatenate([-first, first, second])[None]
    points = rng.integers(SCALE // 4, SCALE, (600, d))
    points[:, 0] = first[0, 0] - 1 + rng.integers(-1, 2, 600)
    assert_exact(points, centers)

    # In float32 alone many of them go to the wrong center.
    single = centers[0].astype(np.float32)
    scores = (single**2).sum(axis=1) - 2 * points.astype(np.float32) @ single.T
    wrong = scores.argmin(axis=1) != exact(points, centers[0])[3]
    assert wrong.sum() > 100


@pytest.mark.parametrize("d", [2, 40])
def test_points_at_the_limit_count_and_beyond_do_not(d):
    rng = np.random.default_rng(d)
    points = rng.integers(-SCALE, SCALE + 1, (400, d))
    centers = rng.integers(-SCALE, SCALE + 1, (1, 5, d))
    least = ((points[:, None] - centers[0]) ** 2).sum(axis=2).min(axis=1)
    prepared = Points.prepare(points)
    for limit in np.sort(least)[::20].tolist():
        at_limit = sums_and_counts(prepared, centers, limit)[1].sum()
        below = sums_and_counts(prepared, centers, limit - 1)[1].sum()
        assert at_limit == (least <= limit).sum()
        assert below == (least <= limit - 1).sum()
        assert at_limit > below
        assert_exact(points, centers, limit)


@pytest.mark.parametrize("d", [2, 40])
@pytest.mark.parametrize("k", [3, 30])
def test_every_center_has_a_limit(d, k):
    rng = np.random.default_rng(k)
    points = rng.integers(-SCALE, SCALE + 1, (500, d))
    centers = rng.integers(-SCALE, SCALE + 1, (2, k, d))
    limits = rng.integers(0, d * SCALE**2, (2, k)).astype(float)
    limits[0, 0] = 0
    limits[1, 1] = np.inf
    assert_exact(points, centers, limits)


@pytest.mark.parametrize("d", [1, 3, 50])
def test_centers_up_to_the_exact_limit(d):
    rng = np.random.default_rng(d)
    limit = exact_limit(d)
    points = rng.integers(-SCALE, SCALE + 1, (300, d))
    centers = rng.integers(-limit, limit + 1, (2, 6, d))
    centers[:, 3] = limit
    centers[:, 4] = limit - 1
    assert_exact(points, centers[:, 3:5])
    assert_exact(points, centers)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_any_small_input(data):
    d = data.draw(st.integers(1, 20))
    n = data.draw(st.integers(1, 150))
    k = data.draw(st.integers(1, 12))
    size = data.draw(st.sampled_from([1, 2, 200, SCALE]))
    seed = data.draw(st.integers(0, 2**32 - 1))
    limit = data.draw(st.none() | st.integers(0, d * (2 * size) ** 2))
    rng = np.random.default_rng(seed)
    points = rng.integers(-size, size + 1, (n, d))
    centers = rng.integers(-size, size + 1, (2, k, d))
    # Some centers are points, some equal others.
    centers[0, rng.integers(k)] = points[rng.integers(n)]
    centers[1, rng.integers(k)] = centers[1, rng.integers(k)]
    assert_exact(points, centers, limit)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_centers_that_float32_cannot_tell_apart(data):
    """Centers a few steps from each other, and limits a step about the distance of a point."""
    d = data.draw(st.integers(1, 40))
    k = data.draw(st.integers(2, 12))
    n = data.draw(st.integers(1, 300))
    spread = data.draw(st.integers(1, 4))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    points = rng.integers(-SCALE, SCALE + 1, (n, d))
    middle = rng.integers(-SCALE, SCALE + 1, d)
    centers = middle + rng.integers(-spread, spread + 1, (1, k, d))
    least = ((points[:, None] - centers[0]) ** 2).sum(axis=2).min(axis=1)
    limit = int(rng.choice(least)) + data.draw(st.integers(-1, 1))
    assert_exact(points, centers, limit)


@pytest.mark.parametrize("shape", [(4, 1), (3, LANES + 1), (50, 2)])
def test_sums_beyond_32_bits(shape):
    k, d = shape
    n = 3 * POINTS_PER_SUM + 7
    points = np.full((n, d), SCALE)
    points[: n // 3] = -SCALE
    centers = np.zeros((1, k, d), np.int64)
    centers[0, :, 0] = np.arange(k)
    sums, counts = sums_and_counts(Points.prepare(points), centers)
    expected_sums, expected_counts, _, _ = exact(points, centers[0])
    assert np.array_equal(sums[0], expected_sums)
    assert np.array_equal(counts[0], expected_counts)
    assert n * SCALE > 2**31


@pytest.mark.parametrize("n_threads", [2, 3, 8])
@pytest.mark.parametrize("d", [2, 20])
def test_threads_change_nothing(monkeypatch, n_threads, d):
    rng = np.random.default_rng(d)
    points = Points.prepare(rng.integers(-SCALE, SCALE + 1, (1001, d)))
    centers = rng.integers(-SCALE, SCALE + 1, (3, 7, d))
    limits = np.array([[0.0], [d * SCALE**2 / 4], [np.inf]])
    alone = sums_and_counts(points, centers, limits)
    labels_alone = labels(points, centers)
    monkeypatch.setattr(threads, "THREADED_PRODUCTS", 0)
    monkeypatch.setattr("numba.get_num_threads", lambda: n_threads)
    threaded = sums_and_counts(points, centers, limits)
    assert np.array_equal(threaded[0], alone[0])
    assert np.array_equal(threaded[1], alone[1])
    assert np.array_equal(labels(points, centers), labels_alone)


def test_squared_distances_are_exact():
    rng = np.random.default_rng(0)
    points = rng.integers(-SCALE, SCALE + 1, (500, 9))
    centers = rng.integers(-SCALE, SCALE + 1, (6, 9))
    expected = ((points[:, None] - centers) ** 2).sum(axis=2).min(axis=1)
    assert np.array_equal(squared_distances(Points.prepare(points), centers), expected)


@njit
def _transposed(rows, columns):
    transpose(rows, 0, LANES + 1, columns, 0, LANES)


def test_a_tile_is_transposed():
    rows = np.arange(LANES * (LANES + 1), dtype=np.float32)
    columns = np.empty(LANES * LANES, np.float32)
    _transposed(rows, columns)
    expected = rows.reshape(LANES, LANES + 1)[:, :LANES].T
    assert np.array_equal(columns.reshape(LANES, LANES), expected)


@njit
def _multiplied_and_added(a, c, result):
    store(result, 0, multiply_add(load(a, 0), load(a, 0), broadcast(c)))


def test_a_product_and_a_sum_are_rounded_once():
    """(1 + e)^2 - 1 keeps e^2, which rounding the product would lose."""
    e = np.float32(2.0**-13)
    result = np.empty(LANES, np.float32)
    _multiplied_and_added(np.full(LANES, 1 + e, np.float32), np.float32(-1.0), result)
    assert (result == np.float32(2.0 * e + e * e)).all()


@given(n=st.integers(1, 10**9), n_threads=st.integers(1, 64), smallest=st.integers(1, 10**7))
def test_ranges_are_all_points_in_order_and_never_larger_than_a_share(n, n_threads, smallest):
    smallest = max(smallest, n // 1000)
    ranges = threads.shrinking_ranges(n, n_threads, smallest)
    firsts, lasts = zip(*ranges, strict=True)
    assert (firsts[0], lasts[-1]) == (0, n)
    assert firsts[1:] == lasts[:-1]
    sizes = [last - first for first, last in ranges]
    assert sizes == sorted(sizes, reverse=True)
    assert 0 < sizes[0] <= max(n / n_threads, smallest)
    assert all(size >= smallest for size in sizes[:-1])


@pytest.mark.parametrize("range_that_fails", [0, 1, 5, -1])
def test_an_error_in_any_thread_is_raised(monkeypatch, range_that_fails):
    n = 3 * threads.THREADED_PRODUCTS
    monkeypatch.setattr("numba.get_num_threads", lambda: 3)
    ranges = threads.by_threads(n, 1, lambda first, last: (first, last))
    wrong = ranges[range_that_fails]

    def work(first, last):
        if (first, last) == wrong:
            raise MemoryError(f"points {first} to {last}")

    with pytest.raises(MemoryError, match=f"points {wrong[0]} to {wrong[1]}"):
        threads.by_threads(n, 1, work)


def test_a_thread_that_is_held_up_leaves_its_ranges_to_the_others(monkeypatch):
    """The first range of the other thread lasts until the calling one has done all the others."""
    monkeypatch.setattr("numba.get_num_threads", lambda: 2)
    caller = current_thread()
    held_up = Event()
    others_done = Event()
    taken = {}

    def work(first, last):
        taken[first] = current_thread()
        if current_thread() is caller:
            held_up.wait(60)
            if last == n:
                others_done.set()
        else:
            held_up.set()
            others_done.wait(60)
        return first, last

    n = 8 * threads.THREADED_PRODUCTS
    ranges = threads.by_threads(n, 1, work)
    assert ranges == sorted(ranges)
    assert list(taken.values()).count(caller) == len(ranges) - 1


@pytest.mark.parametrize("d", [1, 3, 8, 9, 20])
def test_nearest_center_agrees_with_all_distances(d):
    rng = np.random.default_rng(d)
    points = rng.integers(-SCALE, SCALE, (200, d))
    centers = rng.integers(-6 * SCALE, 6 * SCALE, (70, d))
    indices, nearest_distances = nearest_of_many(points, centers)
    distances = cdist(points, centers)
    assert (indices == distances.argmin(axis=1)).all()
    assert np.allclose(nearest_distances, distances.min(axis=1), rtol=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    d=st.integers(9, 12),
    n=st.integers(1, 400),
    m=st.integers(1, 90),
    n_clusters=st.integers(1, 12),
    spread=st.sampled_from([1, 2, 500, SCALE]),
    seed=st.integers(0, 10**6),
)
def test_leaving_out_far_centers_changes_no_nearest_one(d, n, m, n_clusters, spread, seed):
    # Small spreads make equal centers and ties, large ones clusters that overlap.
    rng = np.random.default_rng(seed)
    middles = rng.integers(-SCALE, SCALE, (n_clusters, d))
    points = middles[rng.integers(n_clusters, size=n)] + rng.integers(-spread, spread + 1, (n, d))
    centers = middles[rng.integers(n_clusters, size=m)] + rng.integers(-spread, spread + 1, (m, d))
    centers[rng.random(m) < 0.1] = points[0]
    squares = ((points[:, None] - centers) ** 2).sum(axis=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearest_kernels, "BLOCK_ROWS", 128)
        index, distance = nearest_of_many(points, centers)
    assert index.tolist() == squares.argmin(axis=1).tolist()
    assert (distance == np.sqrt(squares.min(axis=1))).all()


def test_points_are_compared_with_the_centers_of_their_cluster_alone(monkeypatch):
    """Of ten clusters far from each other: the scans see a part of the pairs."""
    rng = np.random.default_rng(1)
    middles = rng.integers(-SCALE, SCALE, (10, 12))
    points = np.repeat(middles, 200, axis=0) + rng.integers(-99, 100, (2000, 12))
    centers = np.repeat(middles, 40, axis=0) + rng.integers(-99, 100, (400, 12))
    n_pairs = 0
    scan = nearest_kernels.nearest_with_squares

    def counted(points, centers):
        nonlocal n_pairs
        n_pairs += points.shape[0] * len(centers)
        return scan(points, centers)

    monkeypatch.setattr(nearest_kernels, "nearest_with_squares", counted)
    index, _ = nearest_of_many(points, centers)
    assert (index // 40 == np.arange(2000) // 200).all()
    assert n_pairs < len(points) * len(centers) / 5


@given(st.integers(0, 10**6), st.integers(1, 5), st.booleans())
@settings(max_examples=40, deadline=None)
def test_swap_costs_are_exact(seed, k, tied):
    rng = np.random.default_rng(seed)
    kind = "tied" if tied else "spread"
    rows = grid_points(int(rng.integers(1, 700)), 3, seed, kind)
    candidates = grid_points(6, 3, seed + 1, kind)
    current = rng.permutation(6)[:k]
    for slots in (np.arange(k), np.array([k - 1])):
        costs = swap_costs(Points.prepare(rows), candidates, current, slots)
        assert (costs == swaps_by_definition(rows, candidates, current, slots)).all()
