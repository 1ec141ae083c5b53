"""Packed starting centers against a straightforward loop."""

import math

import numpy as np
import pytest

from pkm.compute import largest_packing
from pkm.compute.kernels.seeding import ball_packing


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


@pytest.mark.parametrize(("m", "d"), [(1, 1), (2, 2), (40, 3), (300, 8)])
def test_ball_packing_keeps_distances(m, d):
    """From each other and from the surface, by a power of two that could not be doubled twice."""
    centers = ball_packing(np.random.default_rng(m), m, d)
    gaps = np.linalg.norm(centers[:, None] - centers, axis=2) + 9 * np.eye(m)
    largest = min(gaps.min() / 2, 1 - np.linalg.norm(centers, axis=1).max())
    radius = 2.0 ** math.floor(math.log2(largest))
    assert centers.shape == (m, d)
    # m balls of four times the radius do not fit into one of volume 1.
    assert m * (radius / 4) ** d < 1
    assert radius > 0.02
