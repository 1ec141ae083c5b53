"""The kernels against brute force, and the equalities that make results independent of how they
were computed.
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import silhouette_score

from pkm.compute import (
    Points,
    cluster_means,
    distance_tiles,
    exact_limit,
    inertia,
    labels,
    largest_packing,
    mean_silhouettes,
    nearest,
)
from pkm.compute import sums_and_counts as fast_sums

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
    return rng.integers(-spread, spread + 1, (n, d)), rng.integers(
        -spread, spread + 1, (replicates, k, d)
    )


def brute_force(points, centers, limit=None):
    """Points, centers and coordinates one by one, in Python integers; ties to the lower index."""
    sums = [[0] * points.shape[1] for _ in centers]
    counts = [0] * len(centers)
    total = 0
    found = []
    for x in points.tolist():
        squares = [sum((a - b) ** 2 for a, b in zip(x, c, strict=True)) for c in centers.tolist()]
        j = squares.index(min(squares))
        found.append(j)
        total += squares[j]
        if limit is None or squares[j] <= limit:
            counts[j] += 1
            sums[j] = [a + b for a, b in zip(sums[j], x, strict=True)]
    return sums, counts, total, found


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("limit", [None, 0, SCALE**2 // 2])
def test_kernels_equal_brute_force(shape, limit):
    n, d, k = shape
    points, centers = draw(n, d, k)
    prepared = Points.prepare(points)
    sums, counts = fast_sums(prepared, centers, limit)
    totals = inertia(prepared, centers)
    found = labels(prepared, centers)
    for r in range(len(centers)):
        expected = brute_force(points, centers[r], limit)
        assert (sums[r].tolist(), counts[r].tolist(), totals[r], found[r].tolist()) == expected


@pytest.mark.parametrize("d", [1, 4, 5])
def test_scan_and_products_give_the_same_bits(monkeypatch, d):
    """Three ways to the nearest center, chosen by shape, must agree exactly, on ties too (small
    integers tie often).
    """
    points, centers = draw(2500, d, 9, spread=3)
    scanned = (
        fast_sums(Points.prepare(points), centers, 5),
        inertia(Points.prepare(points), centers),
    )
    monkeypatch.setattr("pkm.compute.points.SCAN_DIMENSIONS", 0)
    for few in (0, 1000):
        monkeypatch.setattr(nearest, "FEW_ROWS", few)
        prepared = Points.prepare(points)
        again = fast_sums(prepared, centers, 5)
        assert (again[0] == scanned[0][0]).all() and (again[1] == scanned[0][1]).all()
        assert inertia(prepared, centers) == scanned[1]


@pytest.mark.parametrize("d", [2, 64, 784])
def test_extreme_coordinates_stay_exact(d):
    """At the corners of the domain and the largest allowed centers, distances still equal Python's
    integers.
    """
    limit = exact_limit(d)
    points = np.array([[SCALE] * d, [-SCALE] * d, [SCALE - 1] * d])
    centers = np.array([[[limit] * d, [limit - 1] * d], [[-limit] * d, [limit] * d]])
    totals = inertia(Points.prepare(points), centers)
    assert totals == [brute_force(points, each)[2] for each in centers]
    assert d * (limit + SCALE) ** 2 < 2**53


def test_exact_limit_refuses_too_many_features():
    with pytest.raises(ValueError, match="n_features=1000000 is too large"):
        exact_limit(1_000_000)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(1, 6))
def test_order_and_split_do_not_matter(seed, d, k):
    points, centers = draw(120, d, k, seed=seed)
    whole = fast_sums(Points.prepare(points), centers)
    shuffled = np.random.default_rng(seed).permutation(points)
    parts = [fast_sums(Points.prepare(part), centers) for part in np.split(shuffled, [1, 50])]
    assert (sum(part[0] for part in parts) == whole[0]).all()
    assert (sum(part[1] for part in parts) == whole[1]).all()
    assert whole[1].sum(axis=1).tolist() == [120] * len(centers)
    assert inertia(Points.prepare(shuffled), centers) == inertia(Points.prepare(points), centers)


def test_centers_of_wrong_shape_are_refused():
    with pytest.raises(ValueError, match=r"centers must have shape \(replicate, cluster, 2\)"):
        labels(Points.prepare(np.zeros((3, 2))), np.zeros((4, 2)))


def test_packing_meets_the_published_starting_centers():
    """Check value of the published code: seed 0, d = 2, k = 3."""
    centers = largest_packing(np.random.RandomState(0), 3, 2, "halving")
    expected = [(0.5542328, -0.0687564), (-0.25994868, -0.40088381), (0.17169706, -0.70038811)]
    np.testing.assert_allclose(centers, expected, atol=5e-8)


def straightforward_halving(seed, k, d):
    generator = np.random.RandomState(seed)
    radius = 1.0
    while True:
        kept = []
        rejected = 0
        while len(kept) < k and rejected < 100:
            candidate = generator.uniform(-1 + radius, 1 - radius, size=d)
            if all(np.linalg.norm(candidate - other) >= 2 * radius for other in kept):
                kept = [*kept, candidate]
                rejected = 0
            else:
                rejected += 1
        if len(kept) == k:
            return np.array(kept), radius
        radius /= 2


@pytest.mark.parametrize(("k", "d"), [(1, 1), (3, 2), (15, 2), (4, 6), (100, 2), (10, 50)])
def test_halving_equals_a_straightforward_loop(k, d):
    for seed in range(3):
        expected, _ = straightforward_halving(seed, k, d)
        np.testing.assert_allclose(
            largest_packing(np.random.RandomState(seed), k, d, "halving"), expected, atol=1e-15
        )


def packing_radius(centers):
    """Largest a that these centers respect: half the least pair distance, and the distance to the
    border.
    """
    apart = (
        np.linalg.norm(centers[:, None] - centers, axis=2)[np.triu_indices(len(centers), 1)].min()
        / 2
    )
    return min(apart, (1 - np.abs(centers)).min())


@pytest.mark.parametrize(("k", "d"), [(3, 2), (15, 2), (5, 8)])
def test_bisection_packs_wider_than_halving(k, d):
    for seed in range(5):
        _, halved = straightforward_halving(seed, k, d)
        assert (
            packing_radius(largest_packing(np.random.RandomState(seed), k, d, "bisection")) > halved
        )


def test_unknown_search_is_refused():
    with pytest.raises(ValueError, match="radius_search='golden' is unknown"):
        largest_packing(np.random.RandomState(0), 2, 2, "golden")


@pytest.mark.parametrize(("n", "d", "k"), [(50, 1, 3), (333, 4, 6), (300, 30, 2)])
def test_silhouette_equals_scikit_learn(n, d, k):
    points, centers = draw(n, d, k, replicates=4)
    found = labels(Points.prepare(points), centers)
    ours = mean_silhouettes(distance_tiles(Points.prepare(points)), found, k)
    expected = [silhouette_score(points, row) if len(set(row)) > 1 else -1 for row in found]
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-6)  # distances in single precision


def test_silhouette_does_not_depend_on_the_other_replicates():
    points, centers = draw(400, 3, 5, replicates=6)
    prepared = Points.prepare(points)
    found = labels(prepared, centers)
    tiles = distance_tiles(prepared)
    batch = mean_silhouettes(tiles, found, 5)
    alone = [mean_silhouettes(tiles, found[r : r + 1], 5)[0] for r in range(6)]
    assert batch.tolist() == alone


def test_cluster_means_against_fractions():
    points, centers = draw(40, 2, 4)
    found = labels(Points.prepare(points), centers)
    means, counts = cluster_means(Points.prepare(points), found, 4)
    for r, row in enumerate(found):
        for j in range(4):
            members = points[row == j]
            assert counts[r, j] == len(members)
            expected = [
                float(Fraction(int(total), max(1, len(members)))) for total in members.sum(axis=0)
            ]
            assert means[r, j].tolist() == expected


def test_points_are_equal_if_their_coordinates_are():
    points, _ = draw(20, 3, 1)
    assert Points.prepare(points) == Points.prepare(points.copy())
    assert hash(Points.prepare(points)) == hash(Points.prepare(points.copy()))
    assert Points.prepare(points) != Points.prepare(points[::-1])
    assert Points.prepare(points) != Points.prepare(points.reshape(15, 4))


def test_distance_tiles_hold_every_pair():
    points, _ = draw(70, 4, 1)
    tiles = distance_tiles(Points.prepare(points))
    matrix = np.concatenate(list(tiles), axis=1)
    np.testing.assert_allclose(
        matrix[:, :70], np.linalg.norm(points[:, None] - points, axis=2), rtol=1e-7
    )
    assert (matrix[:, 70:] == 0).all()


def test_points_off_the_grid_are_refused():
    with pytest.raises(ValueError, match="points must lie in the domain"):
        Points.prepare(np.array([[-SCALE - 1, 0]]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, 2.0**40])
@pytest.mark.parametrize("d", [2, 20])
def test_centers_without_exact_distances_are_refused(bad, d):
    """NaN above all: no point would find a nearest center, and labels would be whatever memory
    holds.
    """
    with pytest.raises(ValueError, match="centers must be finite, at most"):
        fast_sums(Points.prepare(np.zeros((3, d), np.int64)), np.full((1, 2, d), bad))


@pytest.mark.parametrize("d", [2, 11])
def test_mapping_a_box_is_scaling_clipping_and_rounding(d):
    rng = np.random.default_rng(0)
    lower = rng.uniform(-5, 0, d)
    upper = rng.uniform(1, 9, d)
    points = rng.uniform(-6, 10, (300, d))
    mapped, outside = Points.from_box(points, lower, upper)
    units = (points - (upper / 2 + lower / 2)) / (upper / 2 - lower / 2)
    assert outside
    steps = np.clip(units, -1, 1) * SCALE
    assert (mapped.rows == np.rint(steps)).all() and (
        mapped.squared_norms == (np.rint(steps) ** 2).sum(axis=1)
    ).all()
    assert mapped.remainders == pytest.approx((steps - np.rint(steps)) * SCALE, abs=0.6)
    assert mapped != Points.prepare(
        np.rint(steps).astype(np.int64)
    )  # which do not know what was rounded away
    assert not Points.from_box(np.clip(points, lower + 1e-9, upper - 1e-9), lower, upper)[1]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_points_that_are_not_finite_are_refused(bad):
    points = np.zeros((5, 3))
    points[2, 1] = bad
    with pytest.raises(ValueError, match="NaN or infinite"):
        Points.from_box(points, np.full(3, -1.0), np.full(3, 1.0))
