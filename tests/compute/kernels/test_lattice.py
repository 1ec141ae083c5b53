"""Grid points of the unit ball: their number and uniform draws."""

import math

import numpy as np
import pytest
from lattices import enumerated
from scipy import stats

from pkm.compute.kernels.lattice import Lattice, cover_scales


@pytest.mark.parametrize(
    ("m", "side"),
    [(1, 0.3), (2, 0.21), (3, 0.4), (4, 0.45), (5, 0.9), (2, 1.5)],
)
def test_lattice_counts_its_points(m, side):
    lattice = Lattice(m, side)
    assert lattice.size == len(enumerated(lattice))


@pytest.mark.statistical
def test_lattice_draws_uniformly():
    lattice = Lattice(3, 0.5)
    rng = np.random.default_rng(0)
    points = [tuple(point) for point in enumerated(lattice)]
    draws = [tuple(lattice.draw(rng.random(3))) for _ in range(100 * len(points))]
    assert set(draws) == set(points)
    frequencies = [draws.count(point) for point in points]
    assert stats.chisquare(frequencies).pvalue > 1e-6
    assert tuple(lattice.draw(np.zeros(3))) in points
    assert tuple(lattice.draw(np.ones(3))) in points


def test_too_fine_lattice_is_refused():
    """Its points could not be numbered."""
    with pytest.raises(ValueError, match="side=1e-05 is too small in 4 dimensions"):
        Lattice(4, 1e-5)


def test_scales_have_a_grid_point_near_every_point():
    scales = cover_scales(5000, 4, 0.99, 0.01)
    for side, radius in scales:
        assert side * math.sqrt(4) == pytest.approx(0.99 * radius / 1.99)
    radii = [radius / 1.99 for _, radius in scales]
    assert 0.01 <= radii[0] < 0.0199
    assert radii[-2] < 2 <= radii[-1]
    assert len(cover_scales(5000, 4, 0.99, 0.0)) == math.ceil(math.log(10_000, 1.99))
