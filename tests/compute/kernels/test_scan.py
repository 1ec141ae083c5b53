"""Scans are exact for any shape, near ties and far centers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkm.compute import SCALE, Points, exact_limit, inertia, labels, sums_and_counts
from pkm.compute.kernels.scan import (
    BLOCK_VALUES,
    FEW_FEATURES,
    GROUP,
    MASKED_VALUES,
    POINTS_PER_SUM,
    TILE,
)
from pkm.compute.simd.lanes import LANES

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
    prepared = Points.from_grid(points)
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
    prepared = Points.from_grid(points)
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
    sums, counts = sums_and_counts(Points.from_grid(points), centers)
    expected_sums, expected_counts, _, _ = exact(points, centers[0])
    assert np.array_equal(sums[0], expected_sums)
    assert np.array_equal(counts[0], expected_counts)
    assert n * SCALE > 2**31
