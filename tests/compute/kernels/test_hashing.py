"""Hashing by projections: directions, codes, collisions.

Seeds are fixed; thresholds are five standard errors or a p-value of 1e-6.
"""

import itertools
import math

import numpy as np
import pytest
from hashed import (
    grid_points,
)
from scipy import integrate, stats

from pkm.compute import DIRECTION_SCALE, SCALE, Points
from pkm.compute.kernels.hashing import Hash, euclidean_hash, orthonormal
from pkm.privacy import (
    snap,
)


def test_directions_are_orthonormal_and_reproducible():
    for m, d in ((1, 1), (4, 4), (4, 50)):
        directions = orthonormal(np.random.default_rng(d), m, d)
        unit = directions / DIRECTION_SCALE
        assert np.abs(unit @ unit.T - np.eye(m)).max() < d * 2.0**-15
        assert (directions == orthonormal(np.random.default_rng(d), m, d)).all()
    message = "projections=3 must be from 1 to the number of features, 2"
    with pytest.raises(ValueError, match=message):
        orthonormal(np.random.default_rng(0), 3, 2)


@pytest.mark.parametrize(
    ("m", "d", "width"),
    [(1, 1, 0.5), (2, 2, 0.01), (4, 9, 0.7), (3, 20, 5.0)],
)
def test_codes_are_the_cells_in_exact_arithmetic(m, d, width):
    rows = np.concatenate([grid_points(200, d, 1), grid_points(50, d, 2, "extreme")])
    hashing = euclidean_hash(np.random.default_rng(3), m, d, width)
    projections = list(zip(hashing.directions, hashing.shifts, strict=True))

    def interval(row, direction, shift):
        product = sum(int(a) * int(x) for a, x in zip(direction, row, strict=True))
        return (product + int(shift)) // hashing.width

    cells = [[interval(row, *projection) for projection in projections] for row in rows]
    codes = hashing.codes(Points.from_grid(rows))
    assert codes.min() >= 0
    assert codes.max() < math.prod(hashing.sizes)
    order = sorted(range(len(rows)), key=lambda i: cells[i])
    for i, j in itertools.pairwise(order):
        assert (codes[i] == codes[j]) == (cells[i] == cells[j])
        assert codes[i] <= codes[j]

    projected = hashing.cell_centers(codes) @ hashing.directions.T + hashing.shifts
    offsets = projected / hashing.width - np.array(cells) - 0.5
    assert np.abs(offsets).max() < 0.01 * max(1, 0.1 / width)


def test_collisions_follow_the_closed_form():
    """One projection of a pair at a distance: the mean of max(0, 1 - g / w) over the law of its gap
    g.
    """
    d = 6
    width = 0.8
    n_draws = 4000
    rng = np.random.default_rng(0)
    start = 0.2 * rng.standard_normal(d)
    unit = rng.standard_normal(d)
    unit /= np.linalg.norm(unit)
    distances = np.array([0.1, 0.4, 0.8])
    rows = np.concatenate([start[None], start + distances[:, None] * unit])
    points = Points.from_grid(snap(rows))
    generator = np.random.default_rng(1)
    codes = np.array([euclidean_hash(generator, 1, d, width).codes(points) for _ in range(n_draws)])
    rates = (codes[:, 1:] == codes[:, :1]).mean(axis=0)
    # A coordinate u of a uniform unit vector: (u + 1) / 2 is Beta((d - 1) / 2, (d - 1) / 2).
    law = stats.beta((d - 1) / 2, (d - 1) / 2, loc=-1, scale=2)
    for distance, rate in zip(distances, rates, strict=True):

        def integrand(u, distance=distance):
            return law.pdf(u) * max(0.0, 1 - abs(u) * distance / width)

        expected, _ = integrate.quad(integrand, -1, 1)
        assert abs(rate - expected) < 5 * math.sqrt(expected * (1 - expected) / n_draws)

    # Points at a distance of more than a cell's width never collide.
    pair = Points.from_grid(snap([[0.1], [0.5]]))
    for _ in range(99):
        first, second = euclidean_hash(generator, 1, 1, 0.3).codes(pair)
        assert first != second


def test_bad_hashes_are_refused():
    with pytest.raises(
        ValueError,
        match="is too small: take wider cells or fewer projections",
    ):
        euclidean_hash(np.random.default_rng(0), 8, 8, 1e-3)
    with pytest.raises(ValueError, match="shifts between 0"):
        Hash(np.array([[DIRECTION_SCALE]]), np.array([5]), 5)
    with pytest.raises(ValueError, match="entries of at most 65536"):
        Hash(np.array([[DIRECTION_SCALE + 1]]), np.array([0]), 5)


@pytest.mark.parametrize("width", [8, 2**20, 2**31, 2**33])
@pytest.mark.parametrize("n_released", [0, 1, 2, 3, 8, 100])
def test_buckets_are_found_among_the_released_ones(width, n_released):
    """Codes up to 2**60, which float64 does not tell apart; some are of no point."""
    rng = np.random.default_rng(n_released)
    points = Points.from_grid(grid_points(400, 2, 5))
    hashing = Hash(np.eye(2, dtype=np.int64) * DIRECTION_SCALE, np.zeros(2, np.int64), width)
    codes = hashing.codes(points).astype(np.int64)
    others = np.concatenate([codes[:200], codes[:200] + 1, codes[:200] ^ (1 << 20)])
    others = others[others >= 0]
    released = np.sort(rng.permutation(np.unique(others))[:n_released])
    positions = {code: j for j, code in enumerate(released.tolist())}
    expected = np.array([positions.get(code, -1) for code in codes.tolist()])
    mask = rng.random(400) < 0.5
    assert (hashing.find_buckets(points, None, released) == expected).all()
    masked = np.where(mask, expected, -1)
    assert (hashing.find_buckets(points, mask, released) == masked).all()
    assert (hashing.codes(points, mask) == codes[mask]).all()


@pytest.mark.parametrize("width", [1, 3, 2**16 + 1, 10**9 + 7])
def test_cells_divide_exactly_at_their_ends(width):
    """Products at multiples of the width, and one step beside them."""
    columns = np.arange(-SCALE, SCALE + 1, 97)[:, None]
    points = Points.from_grid(columns)
    hashing = Hash(np.array([[1]]), np.array([0]), width)
    lowest = -SCALE // width
    expected = columns[:, 0] // width - lowest
    assert (hashing.codes(points) == expected).all()
