"""The curator under rho-bounded adjacency: what a move changes, noise, order, refusals.

Statistical tests use fixed seeds; their p-values or standard errors leave odds below one in a
million.
"""

import math
from collections import defaultdict

import numpy as np
import pytest
from moves import blobs, cells_of, counts_of, curator, exact, points_of, sizes_of, sums_of
from scipy import stats

from pkm.compute import exact_limit
from pkm.compute.kernels.quadtree import add_soft_counts, occupied_cells
from pkm.privacy import (
    SCALE,
    Budget,
    BudgetExceeded,
    Gaussian,
    Laplace,
    Ledger,
    NoiseStreams,
    StabilityHistogram,
    snap,
)
from pkm.privacy.queries.clipped_regions import LargeRegions
from pkm.privacy.queries.moved_records import GroupSums, SoftCounts, Total
from pkm.privacy.rho_bounded import RhoBoundedCurator


def test_rounding_to_the_grid_can_lengthen_a_move():
    """Half a step before rounding is a whole one after it: max_shift has to cover more than rho."""
    rho = 1e-6
    row = np.array([0.4999, 0.4999]) / SCALE
    moved = np.array([0.5001, 0.5001]) / SCALE
    assert np.linalg.norm(row - moved) < rho
    snapped_distance = np.linalg.norm(snap(row) - snap(moved))
    max_shift = exact(np.zeros((1, 2), np.int64), rho).max_shift
    assert snapped_distance > 10 * rho * SCALE
    assert snapped_distance <= max_shift * SCALE


def test_grouping_needs_released_points():
    """Groups refer to the released points, which are released once."""
    holder = curator(np.zeros((4, 2), np.int64))
    noise = Gaussian(10.0 * SCALE)
    with pytest.raises(ValueError, match="release AllPoints first"):
        holder.release(GroupSums(np.zeros(4, int), 1), sums=noise)
    with pytest.raises(ValueError, match="release AllPoints first"):
        holder.regions(np.zeros((1, 2), int), 0.5, members=np.ones(4, bool))
    points_of(holder, 10.0 * SCALE)
    with pytest.raises(ValueError, match="released once"):
        points_of(holder, 10.0 * SCALE)


@pytest.mark.statistical
def test_noise_has_the_declared_scale():
    rows = snap(blobs(60, d=2))
    groups = np.arange(60) % 3
    center = np.zeros((1, 2), np.int64)
    standardized = defaultdict(list)
    for seed in range(200):
        holder = curator(rows, epsilon=50.0, seed=seed)
        exact_total = holder._rows.sum(axis=0)

        noised = points_of(holder, 0.4 * SCALE)
        errors = (noised - holder._rows).ravel()
        standardized["points"].append(errors / (0.4 * SCALE))

        query = GroupSums(groups, 3)
        (sums,) = holder.release(query, sums=Gaussian(0.2 * SCALE))["sums"]
        exact_sums = [holder._rows[groups == group].sum(axis=0) for group in range(3)]
        standardized["sums"].append((sums - exact_sums).ravel() / (0.2 * SCALE))

        (total,) = holder.release(Total(), sums=Gaussian(0.3 * SCALE))["sums"]
        standardized["total"].append((total - exact_total) / (0.3 * SCALE))

        exact_soft = np.zeros(25, np.int64)
        add_soft_counts(holder._rows, 4, exact_soft)
        soft = holder.release(SoftCounts(4), counts=Gaussian(3.0 * SCALE))["counts"]
        standardized["soft"].append((soft.ravel() - exact_soft) / (3.0 * SCALE))

        regions = holder.regions(center, 1.5)
        sizes = sizes_of(regions, Gaussian(15.0 * SCALE))
        standardized["sizes"].append((sizes - 60) / 15.0)
        counts = counts_of(regions, [0], Laplace(20.0 * SCALE))
        standardized["counts"].append((counts - 60) / 20.0)
        (region_sum,) = sums_of(regions, np.zeros(1, int), 1, 20.0)
        scale = 20.0 * 1.5 * math.sqrt(2) * SCALE
        standardized["region sums"].append((region_sum - exact_total) / scale)
    assert len(standardized) == 7
    for name, values in standardized.items():
        law = stats.laplace if name == "counts" else stats.norm
        assert stats.kstest(np.concatenate(values), law.cdf).pvalue > 1e-6, name


@pytest.mark.statistical
def test_singleton_cells_are_released_with_probability_delta():
    """A lone record shows in none of its histograms except with probability delta."""
    noise = StabilityHistogram(5.0, 0.2, 6)
    point = np.zeros((1, 1), np.int64)
    n_released = 0
    for seed in range(400):
        holder = curator(point, epsilon=50.0, delta=0.5, seed=seed)
        releases = cells_of(holder, point, range(3, 6), noise)
        n_released += any(len(counts) for *_, counts in releases)
    # Three of the six cells that could differ are this neighbor's.
    assert stats.binomtest(n_released, 400, 1 - 0.8 ** (3 / 6)).pvalue > 1e-6


def test_other_adjacencies_are_refused():
    rows = np.zeros((3, 2), np.int64)
    streams = NoiseStreams([0])
    with pytest.raises(ValueError, match="adjacency=zero_out is not supported"):
        RhoBoundedCurator(rows, Ledger(Budget(1.0, 1e-6)), streams)
    with pytest.raises(ValueError, match="adjacency=None"):
        RhoBoundedCurator(rows, None, streams)
    ledger = Ledger(Budget(1.0, 1e-6, "rho_bounded", 0.1))
    with pytest.raises(ValueError, match="one replicate at a time"):
        RhoBoundedCurator(rows, ledger, NoiseStreams([0, 1]))


def test_nothing_is_drawn_beyond_the_budget(monkeypatch):
    zero = np.zeros((1, 2), np.int64)
    group = np.zeros(1, int)
    small = Gaussian(0.01 * SCALE)
    little_noise = StabilityHistogram(1.0, 1e-7, 6)
    large_delta = StabilityHistogram(1e4, 1e-5, 6)
    two_cells = StabilityHistogram(1.0, 1e-7, 2)
    queries = (
        lambda holder, regions: points_of(curator(zero), 0.1 * SCALE),
        lambda holder, regions: holder.release(Total(), sums=small),
        lambda holder, regions: holder.release(GroupSums(np.zeros(5, int), 1), sums=small),
        lambda holder, regions: cells_of(holder, zero, range(3), little_noise),
        lambda holder, regions: cells_of(holder, zero, range(3), large_delta),
        lambda holder, regions: holder.release(SoftCounts(2), counts=small),
        lambda holder, regions: counts_of(regions, [0], Laplace(SCALE)),
        lambda holder, regions: regions.release(LargeRegions(), counts=two_cells),
        lambda holder, regions: sizes_of(regions, Gaussian(1.0 * SCALE)),
        lambda holder, regions: sums_of(regions, group, 1, 0.1),
    )
    for query in queries:
        holder = curator(np.zeros((5, 2), np.int64), epsilon=0.5)
        holder._released = True
        with monkeypatch.context() as patch:
            for law in ("normal", "laplace", "uniform"):
                patch.setattr(
                    NoiseStreams,
                    law,
                    lambda *_: pytest.fail("noise was drawn"),
                )
            with pytest.raises(BudgetExceeded):
                query(holder, holder.regions(zero, 0.5))


def test_bad_queries_are_refused_without_charge():
    holder = curator(np.zeros((5, 2), np.int64))
    points_of(holder, 10.0 * SCALE)
    charges_before = holder._ledger.charges
    zero = np.zeros((1, 2), np.int64)
    far_centers = np.array([[-9, 0], [9, 0]])
    noise = Gaussian(SCALE)
    six_cells = StabilityHistogram(1e9, 1e-9, 6)
    five_cells = StabilityHistogram(10.0, 1e-7, 5)
    one_cell = StabilityHistogram(10.0, 1e-7)

    def regions(centers=zero, radius=0.5, **assignment):
        return holder.regions(centers, radius, **assignment)

    queries = (
        (
            lambda: holder.release(GroupSums(np.zeros(4, int), 1), sums=noise),
            "groups must be 5 integers",
        ),
        (
            lambda: holder.release(GroupSums(np.zeros(5), 1), sums=noise),
            "groups must be 5 integers",
        ),
        (
            lambda: holder.release(GroupSums(np.full(5, 2), 1), sums=noise),
            "groups must be from -1 to 0",
        ),
        (
            lambda: regions(members=np.ones(5)),
            "members must be 5 bools",
        ),
        (
            lambda: regions(zero + 0.5),
            "centers must be grid integers",
        ),
        (
            lambda: regions(zero + exact_limit(2) + 1),
            "centers must be from",
        ),
        (
            lambda: regions(radius=math.inf),
            "radius=inf must be positive and finite",
        ),
        (
            lambda: cells_of(holder, zero, range(3), five_cells),
            "max_changed_cells=5 of the noise must be at least 6",
        ),
        (
            lambda: regions().release(LargeRegions(), counts=one_cell),
            "max_changed_cells=1 of the noise must be at least 2",
        ),
        (
            lambda: counts_of(regions(), [0, 0], noise),
            "must be different",
        ),
        (
            lambda: counts_of(regions(), [1], noise),
            "must be different and below 1",
        ),
        (
            lambda: regions().split([0], np.array([1 << 21, 0])),
            "normal must be from -1048576 to 1048576",
        ),
        (
            lambda: sums_of(regions(), np.ones(1, int), 1, 10.0),
            "groups must be from -1 to 0",
        ),
        (
            lambda: sums_of(regions(far_centers), np.zeros(2, int), 1, 10.0),
            "must not unite cells of different regions",
        ),
        (
            lambda: list(occupied_cells(zero, zero[0], range(2, 7, 2))),
            "must be consecutive",
        ),
        (
            lambda: cells_of(holder, zero, range(2, 7, 2), six_cells),
            "must be consecutive",
        ),
        (
            lambda: cells_of(holder, zero + 0.5, range(3), six_cells),
            "shifts must be grid integers",
        ),
        (
            lambda: holder.release(SoftCounts(0), counts=noise),
            "intervals=0 in 2 features must be at least 1",
        ),
        (
            lambda: holder.release(SoftCounts(10_000), counts=noise),
            "at most 262144 nodes",
        ),
    )
    for query, message in queries:
        with pytest.raises(ValueError, match=message):
            query()
    assert holder._ledger.charges == charges_before
