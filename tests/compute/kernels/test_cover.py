"""Counts of covered points against enumeration."""

import itertools
import math

import numpy as np
import pytest
from lattices import ball_points, covered_counts, enumerated

from pkm.compute.kernels.cover import BLOCK_SIDE, Cover
from pkm.compute.kernels.lattice import Lattice


@pytest.mark.slow
@pytest.mark.parametrize("weight", [1e-6, 0.05, 5.0])
@pytest.mark.parametrize(("m", "side"), [(1, 0.02), (2, 0.07), (3, 0.22), (4, 0.4), (5, 0.6)])
def test_cover_agrees_with_enumeration(m, side, weight):
    """Every grid point is counted exactly or has a bound on its count, also after removals."""
    points = ball_points(80, m, seed=m)
    radius = 1.99 / 0.99 * side * math.sqrt(m)
    cover = Cover(points, side, radius, weight)
    rng = np.random.default_rng(m)
    for removed in ([], [0, 7, 8, 50], list(range(20, 45))):
        cover.remove(np.isin(np.arange(len(points)), removed))
        grid_points = enumerated(cover.lattice)
        counts = covered_counts(grid_points, points[cover.uncovered], side, radius)
        exact = {tuple(v): count for v, count in zip(grid_points, counts, strict=True)}

        # The grid points that the cover counts.
        counted = {}
        for count, multiplicity in zip(*cover.positive_counts(), strict=True):
            for rank in range(multiplicity):
                counted[tuple(cover.counted_point(count, rank))] = count
        assert len(counted) == cover.positive_counts()[1].sum()
        assert all(exact[v] == count for v, count in counted.items())

        # The grid points of blocks that it only bounds; of many, a sample.
        blocks = []
        for bound, n_blocks in zip(cover.bounds, cover.n_bounded, strict=True):
            blocks += [(bound, i) for i in range(n_blocks)]
        positions = list(itertools.product(blocks, range(BLOCK_SIDE**m)))
        complete = len(positions) < 5000
        if not complete:
            positions = [positions[i] for i in rng.choice(len(positions), 1000, replace=False)]
        bounded = {}
        for (bound, i), position in positions:
            bounded[tuple(cover.bounded_point(bound, i, position))] = bound
        assert len(bounded) == len(positions)
        assert not bounded.keys() & counted.keys()
        for v, bound in bounded.items():
            count = cover.covered(np.array(v)).sum()
            assert count == exact.get(v, 0)
            assert count <= bound

        if complete:
            nonzero = {v for v, count in exact.items() if count}
            assert nonzero <= counted.keys() | bounded.keys()
    if m == 2:
        assert (len(cover.positive_counts()[0]) == 0) == (weight == 1e-6)
        assert (len(cover.bounds) == 0) == (weight == 5.0)


def test_cover_does_not_depend_on_the_order_of_points():
    points = ball_points(300, 3, seed=3)
    shuffled_points = np.random.default_rng(0).permutation(points)
    cover = Cover(points, 0.1, 0.35, 0.05)
    shuffled = Cover(shuffled_points, 0.1, 0.35, 0.05)
    counts, multiplicities = cover.positive_counts()
    shuffled_counts, shuffled_multiplicities = shuffled.positive_counts()
    assert (counts == shuffled_counts).all()
    assert (multiplicities == shuffled_multiplicities).all()
    assert np.array_equal(cover.bounds, shuffled.bounds)
    for count, multiplicity in zip(counts, multiplicities, strict=True):
        last = cover.counted_point(count, multiplicity - 1)
        assert (last == shuffled.counted_point(count, multiplicity - 1)).all()


def test_a_record_changes_no_count_by_more_than_one():
    """And all in one direction, as the cost of the cover needs it."""
    rng = np.random.default_rng(5)
    grid_points = enumerated(Lattice(3, 0.3))
    for trial in range(20):
        points = ball_points(40, 3, seed=trial)
        neighbor = np.delete(points, rng.integers(40), axis=0)
        cover = Cover(points, 0.3, 1.0, 0.1)
        neighbor_cover = Cover(neighbor, 0.3, 1.0, 0.1)
        changes = [cover.covered(v).sum() - neighbor_cover.covered(v).sum() for v in grid_points]
        assert set(changes) <= {0, 1}
        assert sum(changes) > 0
