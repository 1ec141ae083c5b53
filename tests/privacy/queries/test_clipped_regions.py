"""Records clipped to balls: what a move changes in sizes, counts and sums."""

import math

import numpy as np
import pytest
from moves import (
    NEGLIGIBLE,
    after_move,
    counts_of,
    draw_move,
    exact,
    large_sizes_of,
    points_of,
    sizes_of,
    sums_of,
)

from pkm.privacy import SCALE, Gaussian, snap


def tree_of(regions, rng, depth=5):
    """Return exact counts of all levels and exact sums of the leaves, for random splits."""
    noise = Gaussian(NEGLIGIBLE)
    cells = np.arange(regions.n_cells)
    counts = [counts_of(regions, cells, noise)]
    for _ in range(depth):
        chosen = cells[rng.random(len(cells)) < 0.7]
        normal = rng.integers(-SCALE, SCALE + 1, regions._points.shape[1])
        parts = regions.split(chosen, normal).ravel()
        counts.append(counts_of(regions, parts, noise))
        cells = np.concatenate([np.setdiff1d(cells, chosen), parts])

    # The groups are unions of two cells of a region.
    regions_of_cells = regions._region[cells]
    ranks = []
    for i, region in enumerate(regions_of_cells):
        ranks.append(np.count_nonzero(regions_of_cells[:i] == region))
    pairs = np.stack([regions_of_cells, np.array(ranks) // 2])
    _, group_ids = np.unique(pairs, axis=1, return_inverse=True)
    groups = np.full(regions.n_cells, -1)
    groups[cells] = group_ids.ravel()
    sums = sums_of(regions, groups, len(cells), NEGLIGIBLE / SCALE / 10)
    return counts, sums


@pytest.mark.slow
@pytest.mark.parametrize("by_noised", [False, True])
@pytest.mark.parametrize(("radius", "rho"), [(0.3, 0.1), (0.05, 0.4), (1.4, 2.8), (0.2, 1e-6)])
def test_a_move_changes_at_most_two_regions(radius, rho, by_noised, every_cell_is_released):
    """Sizes, counts of every level and sums: a record less and another more, with what was released
    before held fixed.
    """
    n_between = 0
    for trial in range(60):
        rng = np.random.default_rng(trial)
        rows, i, moved = draw_move(rng, 2, rho, n=30)
        original = exact(rows, rho)
        points_of(original, NEGLIGIBLE)
        neighbor = after_move(original, rows[i], moved)
        centers = rng.integers(-SCALE, SCALE, (6, 2))
        groups = rng.integers(-1, 6, len(rows))
        members = rng.random(len(rows)) < 0.8
        assignment = {"groups": groups} if by_noised else {"members": members}
        regions = original.regions(centers, radius, **assignment)
        neighbor_regions = neighbor.regions(centers, radius, **assignment)
        for clipped in (regions, neighbor_regions):
            assert np.linalg.norm(clipped._points, axis=1).max(initial=0) <= radius * SCALE

        # Sizes.
        sizes = large_sizes_of(regions, 6)
        neighbor_sizes = large_sizes_of(neighbor_regions, 6)
        size_changes = sizes - neighbor_sizes
        assert sorted(filter(None, size_changes)) in ([], [-1, 1])
        n_between += np.abs(size_changes).sum() > 0

        # Without a threshold the sizes of all regions are released, in public order and empty ones
        # too, and change as much.
        all_sizes = sizes_of(regions, Gaussian(NEGLIGIBLE))
        neighbor_all_sizes = sizes_of(neighbor_regions, Gaussian(NEGLIGIBLE))
        assert len(all_sizes) == 6
        assert len(neighbor_all_sizes) == 6
        assert (all_sizes - neighbor_all_sizes == size_changes).all()
        assert all_sizes.sum() == neighbor_all_sizes.sum()

        # Counts and sums.
        counts, sums = tree_of(regions, np.random.default_rng(trial))
        neighbor_counts, neighbor_sums = tree_of(neighbor_regions, np.random.default_rng(trial))
        for level_counts, neighbor_level_counts in zip(counts, neighbor_counts, strict=True):
            changes = level_counts - neighbor_level_counts
            assert sorted(filter(None, changes)) in ([], [-1], [1], [-1, 1])
        assert np.linalg.norm(sums - neighbor_sums) <= regions.sum_sensitivity * SCALE
    assert by_noised or rho < 0.1 or n_between > 0


@pytest.mark.parametrize(("n_cells", "expected"), [(2, math.sqrt(2) / 2), (1, 1.0)])
def test_region_sums_reach_their_sensitivity(n_cells, expected):
    """From one end of a ball to the other, in two cells and in one."""
    rows = snap(np.array([[-0.5, 0.0], [0.5, 0.0]]))
    sums = []
    for row in rows:
        regions = exact(row[None], 1.0).regions(np.zeros((1, 2), np.int64), 0.5)
        parts = regions.split([0], np.array([1, 0]))[0] if n_cells == 2 else [0]
        groups = np.full(regions.n_cells, -1)
        groups[parts] = np.arange(n_cells)
        sums.append(sums_of(regions, groups, n_cells, NEGLIGIBLE / SCALE / 10))
    change = np.linalg.norm(sums[0] - sums[1]) / SCALE
    assert change == pytest.approx(expected)
    assert change <= regions.sum_sensitivity
