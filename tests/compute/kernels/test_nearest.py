"""Nearest centers against brute force, for any order, split and number of threads."""

import numpy as np
import pytest
from hashed import grid_points, swaps_by_definition
from hypothesis import given, settings
from hypothesis import strategies as st
from random_points import draw
from scipy.spatial.distance import cdist

from pkm.compute import SCALE, Points, exact_limit, inertia, labels, sums_and_counts
from pkm.compute import sums_and_counts as fast_sums
from pkm.compute.kernels import nearest as nearest_kernels
from pkm.compute.kernels.nearest import nearest_of_many, squared_distances, swap_costs
from pkm.compute.simd import threads

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
    points, centers = draw(n, d, k, replicates=3)
    prepared = Points.from_grid(points)
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
    inertias = inertia(Points.from_grid(points), centers)
    assert inertias == [brute_force(points, replicate)[2] for replicate in centers]
    assert d * (limit + SCALE) ** 2 < 2**53


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(1, 6))
def test_order_and_split_do_not_matter(seed, d, k):
    points, centers = draw(120, d, k, replicates=3, seed=seed)
    whole = Points.from_grid(points)
    sums, counts = fast_sums(whole, centers)

    shuffled = np.random.default_rng(seed).permutation(points)
    shard_sums = np.zeros_like(sums)
    shard_counts = np.zeros_like(counts)
    for shard in np.split(shuffled, [1, 50]):
        part_sums, part_counts = fast_sums(Points.from_grid(shard), centers)
        shard_sums += part_sums
        shard_counts += part_counts

    assert (shard_sums == sums).all()
    assert (shard_counts == counts).all()
    assert counts.sum(axis=1).tolist() == [120] * len(centers)
    assert inertia(Points.from_grid(shuffled), centers) == inertia(whole, centers)


def test_centers_of_wrong_shape_are_refused():
    points = Points.from_grid(np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"centers must have shape \(replicate, cluster, 2\)"):
        labels(points, np.zeros((4, 2)))


@pytest.mark.parametrize("bad", [np.nan, np.inf, 2.0**40])
@pytest.mark.parametrize("d", [2, 20])
def test_centers_without_exact_distances_are_refused(bad, d):
    """NaN above all: no center would be nearest, and labels would be uninitialized memory."""
    points = Points.from_grid(np.zeros((3, d), np.int64))
    centers = np.full((1, 2, d), bad)
    with pytest.raises(ValueError, match="centers must be finite, at most"):
        fast_sums(points, centers)


@pytest.mark.parametrize("n_threads", [2, 3, 8])
@pytest.mark.parametrize("d", [2, 20])
def test_threads_change_nothing(monkeypatch, n_threads, d):
    rng = np.random.default_rng(d)
    points = Points.from_grid(rng.integers(-SCALE, SCALE + 1, (1001, d)))
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
    assert np.array_equal(squared_distances(Points.from_grid(points), centers), expected)


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
    scan = nearest_kernels.nearest_with_sq_dists

    def counted(points, centers):
        nonlocal n_pairs
        n_pairs += points.shape[0] * len(centers)
        return scan(points, centers)

    monkeypatch.setattr(nearest_kernels, "nearest_with_sq_dists", counted)
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
        costs = swap_costs(Points.from_grid(rows), candidates, current, slots)
        assert (costs == swaps_by_definition(rows, candidates, current, slots)).all()
