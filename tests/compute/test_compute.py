"""The kernels against brute force, and independence of results from how they are computed."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import silhouette_score

from pkm.compute import (
    Points,
    cluster_means,
    converged_lloyd,
    distance_tiles,
    exact_limit,
    inertia,
    labels,
    largest_packing,
    mean_silhouettes,
)
from pkm.compute import sums_and_counts as fast_sums
from pkm.compute.simd import threads
from pkm.compute.storage import points as points_module
from pkm.compute.storage.points import MAX_TILED_FEATURES, _snap_rows, _snap_short_rows

SCALE = 1 << 16
SHAPES = [
    (1, 1, 1),
    (7, 1, 2),
    (300, 2, 5),
    (1030, 3, 4),
    (257, 5, 3),
    (90, 6, 3),
    (513, 17, 8),
    (64, 40, 60),
]


def draw(n, d, k, replicates=3, seed=0, spread=SCALE):
    rng = np.random.default_rng(seed)
    points = rng.integers(-spread, spread + 1, (n, d))
    centers = rng.integers(-spread, spread + 1, (replicates, k, d))
    return points, centers


def brute_force(points, centers, limit=None):
    """Compute everything one point and one coordinate at a time, in Python integers.

    Ties go to the lower index.
    """
    sums = [[0] * points.shape[1] for _ in centers]
    counts = [0] * len(centers)
    total = 0
    nearest_centers = []
    for point in points.tolist():
        squares = [squared_distance(point, center) for center in centers.tolist()]
        j = squares.index(min(squares))
        nearest_centers.append(j)
        total += squares[j]
        if limit is None or squares[j] <= limit:
            counts[j] += 1
            for column, coordinate in enumerate(point):
                sums[j][column] += coordinate
    return sums, counts, total, nearest_centers


def squared_distance(point, center):
    return sum((x - c) ** 2 for x, c in zip(point, center, strict=True))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("limit", [None, 0, SCALE**2 // 2])
def test_kernels_equal_brute_force(shape, limit):
    n, d, k = shape
    points, centers = draw(n, d, k)
    prepared = Points.prepare(points)
    sums, counts = fast_sums(prepared, centers, limit)
    inertias = inertia(prepared, centers)
    assigned = labels(prepared, centers)
    for r in range(len(centers)):
        expected_sums, expected_counts, total, nearest_centers = brute_force(
            points, centers[r], limit
        )
        assert sums[r].tolist() == expected_sums
        assert counts[r].tolist() == expected_counts
        assert inertias[r] == total
        assert assigned[r].tolist() == nearest_centers


@pytest.mark.parametrize("d", [2, 64, 784])
def test_extreme_coordinates_stay_exact(d):
    """Corners of the domain and the largest allowed centers: Python's integers are the truth."""
    limit = exact_limit(d)
    points = np.array([[SCALE] * d, [-SCALE] * d, [SCALE - 1] * d])
    centers = np.array(
        [
            [[limit] * d, [limit - 1] * d],
            [[-limit] * d, [limit] * d],
        ]
    )
    inertias = inertia(Points.prepare(points), centers)
    assert inertias == [brute_force(points, replicate)[2] for replicate in centers]
    assert d * (limit + SCALE) ** 2 < 2**53


def test_exact_limit_refuses_too_many_features():
    with pytest.raises(ValueError, match="n_features=1000000 is too large"):
        exact_limit(1_000_000)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(1, 6))
def test_order_and_split_do_not_matter(seed, d, k):
    points, centers = draw(120, d, k, seed=seed)
    whole = Points.prepare(points)
    sums, counts = fast_sums(whole, centers)

    shuffled = np.random.default_rng(seed).permutation(points)
    shard_sums = np.zeros_like(sums)
    shard_counts = np.zeros_like(counts)
    for shard in np.split(shuffled, [1, 50]):
        part_sums, part_counts = fast_sums(Points.prepare(shard), centers)
        shard_sums += part_sums
        shard_counts += part_counts

    assert (shard_sums == sums).all()
    assert (shard_counts == counts).all()
    assert counts.sum(axis=1).tolist() == [120] * len(centers)
    assert inertia(Points.prepare(shuffled), centers) == inertia(whole, centers)


def test_centers_of_wrong_shape_are_refused():
    points = Points.prepare(np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"centers must have shape \(replicate, cluster, 2\)"):
        labels(points, np.zeros((4, 2)))


def test_packing_gives_the_published_starting_centers():
    """Check value of the published code: seed 0, d = 2, k = 3."""
    centers = largest_packing(np.random.RandomState(0), 3, 2, "halving")
    expected = [
        (0.5542328, -0.0687564),
        (-0.25994868, -0.40088381),
        (0.17169706, -0.70038811),
    ]
    np.testing.assert_allclose(centers, expected, atol=5e-8)


def straightforward_halving(seed, k, d):
    generator = np.random.RandomState(seed)
    radius = 1.0
    while True:
        kept = []
        rejected = 0
        while len(kept) < k and rejected < 100:
            candidate = generator.uniform(-1 + radius, 1 - radius, size=d)
            distances = [np.linalg.norm(candidate - center) for center in kept]
            if all(distance >= 2 * radius for distance in distances):
                kept.append(candidate)
                rejected = 0
            else:
                rejected += 1
        if len(kept) == k:
            return np.array(kept), radius
        radius /= 2


@pytest.mark.parametrize(
    ("k", "d"),
    [
        (1, 1),
        (3, 2),
        (15, 2),
        (4, 6),
        (100, 2),
        (10, 50),
    ],
)
def test_halving_equals_a_straightforward_loop(k, d):
    for seed in range(3):
        expected, _ = straightforward_halving(seed, k, d)
        packed = largest_packing(np.random.RandomState(seed), k, d, "halving")
        np.testing.assert_allclose(packed, expected, atol=1e-15)


def packing_radius(centers):
    """Return the largest radius of balls about the centers that are disjoint and in the domain."""
    distances = np.linalg.norm(centers[:, None] - centers, axis=2)
    pairs = np.triu_indices(len(centers), 1)
    half_gap = distances[pairs].min() / 2
    border_distance = (1 - np.abs(centers)).min()
    return min(half_gap, border_distance)


@pytest.mark.parametrize(("k", "d"), [(3, 2), (15, 2), (5, 8)])
def test_bisection_packs_wider_than_halving(k, d):
    for seed in range(5):
        _, halved = straightforward_halving(seed, k, d)
        bisected = largest_packing(np.random.RandomState(seed), k, d, "bisection")
        assert packing_radius(bisected) > halved


def test_unknown_search_is_refused():
    with pytest.raises(ValueError, match="radius_search='golden' is unknown"):
        largest_packing(np.random.RandomState(0), 2, 2, "golden")


@pytest.mark.parametrize(("n", "d", "k"), [(50, 1, 3), (333, 4, 6), (300, 30, 2)])
def test_silhouette_equals_scikit_learn(n, d, k):
    points, centers = draw(n, d, k, replicates=4)
    prepared = Points.prepare(points)
    assigned = labels(prepared, centers)
    means = mean_silhouettes(distance_tiles(prepared), assigned, k)
    expected = []
    for row in assigned:
        single_cluster = len(set(row)) == 1
        expected.append(-1 if single_cluster else silhouette_score(points, row))
    # Distances are in single precision.
    np.testing.assert_allclose(means, expected, rtol=0, atol=1e-6)


def test_silhouette_is_independent_of_the_batch():
    points, centers = draw(400, 3, 5, replicates=6)
    prepared = Points.prepare(points)
    assigned = labels(prepared, centers)
    tiles = distance_tiles(prepared)
    batch = mean_silhouettes(tiles, assigned, 5)
    for r in range(6):
        single = mean_silhouettes(tiles, assigned[r : r + 1], 5)
        assert batch[r] == single[0]


def test_cluster_means_against_fractions():
    points, centers = draw(40, 2, 4)
    prepared = Points.prepare(points)
    assigned = labels(prepared, centers)
    means, counts = cluster_means(prepared, assigned, 4)
    for r, row in enumerate(assigned):
        for j in range(4):
            members = points[row == j]
            divisor = max(1, len(members))
            column_sums = members.sum(axis=0)
            expected = [float(Fraction(int(total), divisor)) for total in column_sums]
            assert counts[r, j] == len(members)
            assert means[r, j].tolist() == expected


def test_points_are_equal_if_their_coordinates_are():
    points, _ = draw(20, 3, 1)
    prepared = Points.prepare(points)
    assert prepared == Points.prepare(points.copy())
    assert hash(prepared) == hash(Points.prepare(points.copy()))
    assert prepared != Points.prepare(points[::-1])
    assert prepared != Points.prepare(points.reshape(15, 4))


def test_distance_tiles_hold_every_pair():
    points, _ = draw(70, 4, 1)
    tiles = distance_tiles(Points.prepare(points))
    matrix = np.concatenate(list(tiles), axis=1)
    expected = np.linalg.norm(points[:, None] - points, axis=2)
    np.testing.assert_allclose(matrix[:, :70], expected, rtol=1e-7)
    assert (matrix[:, 70:] == 0).all()


def test_points_off_the_grid_are_refused():
    with pytest.raises(ValueError, match="points must lie in the domain"):
        Points.prepare(np.array([[-SCALE - 1, 0]]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, 2.0**40])
@pytest.mark.parametrize("d", [2, 20])
def test_centers_without_exact_distances_are_refused(bad, d):
    """NaN above all: no center would be nearest, and labels would be uninitialized memory."""
    points = Points.prepare(np.zeros((3, d), np.int64))
    centers = np.full((1, 2, d), bad)
    with pytest.raises(ValueError, match="centers must be finite, at most"):
        fast_sums(points, centers)


@pytest.mark.parametrize("d", [2, 11])
def test_mapping_a_box_scales_clips_and_rounds(d):
    rng = np.random.default_rng(0)
    lower = rng.uniform(-5, 0, d)
    upper = rng.uniform(1, 9, d)
    points = rng.uniform(-6, 10, (300, d))
    mapped, outside = Points.quantize(points, lower, upper)
    assert outside

    midpoint = upper / 2 + lower / 2
    half_width = upper / 2 - lower / 2
    units = (points - midpoint) / half_width
    steps = np.clip(units, -1, 1) * SCALE
    rounded = np.rint(steps)
    assert (mapped.rows == rounded).all()
    assert (mapped.squared_norms == (rounded**2).sum(axis=1)).all()
    assert mapped.remainders == pytest.approx((steps - rounded) * SCALE, abs=0.6)

    # Points on the grid do not know what was rounded away.
    assert mapped != Points.prepare(rounded.astype(np.int64))

    inside = np.clip(points, lower + 1e-9, upper - 1e-9)
    _, outside = Points.quantize(inside, lower, upper)
    assert not outside


@pytest.mark.parametrize("d", [1, 2, 7, 64])
def test_short_rows_are_snapped_alike_by_both_kernels(d):
    rng = np.random.default_rng(d)
    points = rng.uniform(-1, 1, (301, d))
    points[0] = 1.0
    points[1] = -1.0
    points[2] = np.nextafter(1.0, 0.0)
    points[3] = 0.5 / SCALE  # half a step
    inside = snapped_by(_snap_short_rows, points)
    assert inside[0]
    by_rows = snapped_by(_snap_rows, points)
    assert by_rows[0] == (0, 0)
    for of_values, of_rows in zip(inside[1:], by_rows[1:], strict=True):
        assert np.array_equal(of_values, of_rows)


@pytest.mark.parametrize("is_inside", [True, False])
@pytest.mark.parametrize("d", [1, 10, MAX_TILED_FEATURES + 1])
def test_points_are_entered_alike_in_any_layout_and_precision(d, is_inside):
    rng = np.random.default_rng(d)
    points = rng.uniform(-3, 3, (500, d)).astype(np.float32)
    if not is_inside:
        points[7] = 4.0
        points[11, 0] = np.nan
    upper = np.full(d, 3.0)
    expected, outside = Points.quantize(points.astype(np.float64), -upper, upper)
    assert outside != is_inside
    read_only = points.copy()
    read_only.flags.writeable = False
    strided = np.repeat(points, 2, axis=0)[::2]
    for array in (points, np.asfortranarray(points), read_only, strided):
        for keep_remainders in (True, False):
            entered, _ = Points.quantize(array, -upper, upper, keep_remainders=keep_remainders)
            assert np.array_equal(entered.rows, expected.rows)
            assert np.array_equal(entered.squared_norms, expected.squared_norms)
            assert entered.n_null == expected.n_null
            if keep_remainders:
                assert np.array_equal(entered.remainders, expected.remainders)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1.0 + 1e-12, -2.0])
def test_a_value_outside_is_noticed_at_any_position(bad):
    for position in range(0, 300, 7):
        points = np.zeros((100, 3))
        points.flat[position] = bad
        assert not snapped_by(_snap_short_rows, points)[0]


def snapped_by(kernel, points):
    """What a kernel returns for points of [-1, 1]^d, and the arrays that it fills."""
    n, d = points.shape
    rows = np.empty((n, d), np.float32)
    squared_norms = np.empty(n)
    remainders = np.empty((n, d), np.int16)
    result = kernel(points, np.zeros(d), np.ones(d), rows, squared_norms, remainders)
    return result, rows, squared_norms, remainders


@pytest.mark.parametrize("n_threads", [2, 3, 7])
def test_points_are_entered_alike_by_any_number_of_threads(monkeypatch, n_threads):
    rng = np.random.default_rng(n_threads)
    points = rng.uniform(-1.1, 1.1, (5000, 10))
    points[rng.random(5000) < 0.3] = np.nan
    box = (-np.ones(10), np.ones(10))
    expected, outside = Points.quantize(points, *box)
    monkeypatch.setattr(points_module, "BLOCK_VALUES", 700)
    monkeypatch.setattr(threads, "THREADED_PRODUCTS", 0)
    monkeypatch.setattr(threads.numba, "get_num_threads", lambda: n_threads)
    entered, also_outside = Points.quantize(points, *box)
    assert entered == expected
    assert entered.n_null == expected.n_null > 0
    assert (entered.squared_norms == expected.squared_norms).all()
    assert outside == also_outside


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_null_records(bad):
    rng = np.random.default_rng(0)
    points = rng.uniform(-2, 2, (700, 3))
    without = np.delete(points, 2, axis=0)
    points[2, 1] = bad
    lower = np.full(3, -1.0)
    upper = np.full(3, 1.0)
    with_null, _ = Points.quantize(points, lower, upper)
    finite, _ = Points.quantize(without, lower, upper)
    assert with_null.n_null == 1
    assert with_null.n_records == 700
    assert with_null.shape == (699, 3)
    assert (with_null.rows == finite.rows).all()
    assert (with_null.squared_norms == finite.squared_norms).all()
    assert with_null != finite


@pytest.mark.parametrize("d", [1, 3, MAX_TILED_FEATURES + 1])
@pytest.mark.parametrize("with_null", [False, True])
def test_blocks_of_rows_are_entered_alike(monkeypatch, d, with_null):
    """Any number of rows at a time, in any order in memory, of any dtype: the same points."""
    rng = np.random.default_rng(d)
    points = rng.uniform(-1.2, 1.2, (500, d)).astype(np.float32)
    points[100:300] /= 2  # some blocks lie inside the box, others do not
    if with_null:
        points[[0, 1, 77, 250, 499], rng.integers(0, d, 5)] = [np.nan, np.inf, -np.inf, 9e9, np.nan]
    box = (np.full(d, -1.0), np.ones(d))
    whole, outside = Points.quantize(points.astype(np.float64), *box)
    assert outside
    assert whole.n_null == (4 if with_null else 0)
    for rows in (1, 7, 100, 499):
        monkeypatch.setattr("pkm.compute.storage.points.BLOCK_VALUES", rows * d)
        for array in (points, np.asfortranarray(points), np.repeat(points, 2, axis=0)[::2]):
            entered, outside = Points.quantize(array, *box)
            assert outside
            assert entered == whole
            assert np.array_equal(entered.squared_norms, whole.squared_norms)
            without, outside = Points.quantize(array, *box, keep_remainders=False)
            assert outside
            assert without.remainders is None
            assert without.n_null == whole.n_null
            assert np.array_equal(without.rows, whole.rows)
            assert np.array_equal(without.squared_norms, whole.squared_norms)


@pytest.mark.parametrize("width", [1e-3, 1.0, 1e300])
def test_any_finite_row_is_clipped(width):
    """Sums of clipped amounts overflowed for some rows and not for their neighbors."""
    largest = np.finfo(np.float64).max
    points = np.array([[1e306], [1e308], [-largest], [largest], [0.0]])
    entered, outside = Points.quantize(points, np.array([0.0]), np.array([width]))
    assert outside
    assert entered.n_null == 0
    assert entered.rows[:, 0].tolist() == [SCALE, SCALE, -SCALE, SCALE, -SCALE]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 3), st.integers(1, 7))
def test_converged_lloyd_is_lloyd_in_plain_numpy(seed, n, d, k):
    """Points of few values, so that ties and empty clusters occur."""
    rng = np.random.default_rng(seed)
    points = rng.integers(-4, 5, (n, d)).astype(np.float64)
    expected = rng.integers(-6, 7, (k, d)).astype(np.float64)
    centers = expected.copy()
    labels = converged_lloyd(points, centers, 0.125, 20)

    previous = np.inf
    for _ in range(20):
        squares = ((points[:, None] - expected) ** 2).sum(axis=2)
        nearest = squares.argmin(axis=1)
        for j in np.unique(nearest):
            expected[j] = points[nearest == j].sum(axis=0) / (nearest == j).sum()
        loss = squares.min(axis=1).sum()
        if loss >= 0.875 * previous:
            break
        previous = loss
    assert labels.tolist() == nearest.tolist()
    assert centers.tolist() == expected.tolist()
