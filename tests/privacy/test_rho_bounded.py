"""The curator under rho-bounded adjacency: what a move changes, noise, order, refusals.

Statistical tests use fixed seeds; their p-values or standard errors leave odds below one in a
million.
"""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from moves import (
    NEGLIGIBLE,
    after_move,
    blobs,
    cells_of,
    counts_of,
    curator,
    draw_move,
    exact,
    large_sizes_of,
    points_of,
    sizes_of,
    sums_of,
    with_move,
)
from scipy import stats

from pkm.compute.kernels.quadtree import (
    add_soft_counts,
    occupied_cells,
)
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
from pkm.privacy.queries.clipped_regions import (
    LargeRegions,
)
from pkm.privacy.queries.moved_records import (
    GroupSums,
    SoftCounts,
    Total,
    _sorted_order,
    soft_sensitivity,
)
from pkm.privacy.rho_bounded import RhoBoundedCurator


@pytest.fixture
def every_cell_is_released(monkeypatch):
    monkeypatch.setattr(StabilityHistogram, "threshold", 0.0)


@pytest.mark.parametrize("spread", [2, 1 << 10, 1 << 50])
def test_noised_rows_are_sorted_with_equal_ones_in_random_order(spread):
    rng = np.random.default_rng(spread)
    rows = rng.integers(-spread, spread, (500, 3))
    rows[250:] = rows[:250]
    ties = rng.permutation(500) / 500
    assert (_sorted_order(rows, ties) == np.lexsort((ties, *rows.T[::-1]))).all()


@pytest.mark.slow
@pytest.mark.parametrize("rho", [1e-6, 0.003, 0.2, 1.5])
@pytest.mark.parametrize("d", [1, 2, 4])
def test_a_move_changes_points_and_sums_within_max_shift(d, rho):
    rng = np.random.default_rng(d)
    noise = Gaussian(NEGLIGIBLE)
    farthest = 0.0
    for _ in range(100):
        rows, i, moved = draw_move(rng, d, rho)
        original = exact(rows, rho)
        farthest = max(farthest, np.linalg.norm(moved - rows[i]))
        noised = points_of(original, NEGLIGIBLE)
        assert (noised == rows[np.lexsort(rows.T[::-1])]).all()

        neighbor = after_move(original, rows[i], moved)
        largest = original.max_shift * SCALE
        groups = rng.integers(-1, 3, len(rows))
        query = GroupSums(groups, 3)
        (sums,) = original.release(query, sums=noise)["sums"]
        (neighbor_sums,) = neighbor.release(query, sums=noise)["sums"]
        exact_sums = [original._rows[groups == group].sum(axis=0) for group in range(3)]
        assert (sums == exact_sums).all()
        assert np.linalg.norm(sums - neighbor_sums) <= largest

        (total,) = original.release(Total(), sums=noise)["sums"]
        (neighbor_total,) = neighbor.release(Total(), sums=noise)["sums"]
        assert np.linalg.norm(total - neighbor_total) <= largest
    assert farthest > 0.9 * min(rho, 1.0) * SCALE  # moves of the full length were among them


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("d", "trees", "levels"),
    [(1, 3, range(4, 9)), (3, 3, range(4, 9)), (2, 1, range(6, 7))],
)
def test_a_move_changes_two_cells_of_every_histogram(d, trees, levels, every_cell_is_released):
    rng = np.random.default_rng(d)
    noise = StabilityHistogram(1e-9, 1e-6, 2 * trees * len(levels))
    keys = [(tree, level) for tree in range(trees) for level in reversed(levels)]

    def histograms(points, shifts):
        releases = cells_of(exact(points), shifts, levels, noise)
        assert [release[:2] for release in releases] == keys
        tables = []
        for *_, cells, counts in releases:
            table = Counter(dict(zip(map(tuple, cells), counts, strict=True)))
            assert sum(table.values()) == len(points)
            tables.append(table)
        return tables

    largest_change = 0
    for _ in range(50):
        rows, i, moved = draw_move(rng, d, 0.6)
        shifts = rng.integers(0, 4 * SCALE + 1, (trees, d))
        tables = histograms(rows, shifts)
        neighbor_tables = histograms(with_move(rows, i, moved), shifts)
        squared_change = 0
        for table, neighbor_table in zip(tables, neighbor_tables, strict=True):
            cells = table.keys() | neighbor_table.keys()
            changes = [table[cell] - neighbor_table[cell] for cell in cells]
            assert sorted(filter(None, changes)) in ([], [-1, 1])
            squared_change += sum(change * change for change in changes)
        assert squared_change <= noise.max_changed_cells
        largest_change = max(largest_change, squared_change)
    assert largest_change == noise.max_changed_cells


@pytest.mark.slow
@pytest.mark.parametrize(
    ("d", "side", "rho"),
    [
        (1, 0.5, 0.05),
        (2, 0.25, 0.2),
        (3, 0.4, 0.1),
        (4, 1.0, 0.4),
        (2, 0.1, 0.5),
    ],
)
def test_a_move_changes_soft_counts_within_their_sensitivity(d, side, rho):
    rng = np.random.default_rng(d)
    intervals = round(2 / side)
    max_shift = exact(np.zeros((1, d), np.int64), rho).max_shift
    sensitivity = soft_sensitivity(d, 2 / intervals, max_shift)

    def soft_counts(points):
        holder = exact(points, rho)
        answer = holder.release(SoftCounts(intervals), counts=Gaussian(NEGLIGIBLE))
        return answer["counts"].ravel() / SCALE

    largest_change = 0.0
    for trial in range(300):
        rows, i, moved = draw_move(rng, d, rho, n=3)
        if trial % 3 == 0:
            # Moves at a node, along the diagonal: where weights change fastest.
            node = 2 / intervals * rng.integers(0, intervals + 1, d) - 1
            direction = np.sign(node + 1e-9) / math.sqrt(d)
            rows[i] = snap(node)
            moved = snap(np.clip(node - direction * rho, -1, 1))
        neighbor = with_move(rows, i, moved)
        change = np.linalg.norm(soft_counts(rows) - soft_counts(neighbor))
        assert change <= sensitivity
        largest_change = max(largest_change, change)
    assert largest_change > 0.5 * sensitivity  # the bound is not idle


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


@pytest.mark.statistical
def test_released_order_hides_the_private_order(monkeypatch):
    """Where noised values are equal, which true point comes first is a fair coin."""
    monkeypatch.setattr(Gaussian, "draw", lambda self, values, *_: values * 0)
    rows = snap(np.array([[-0.5], [0.5]]))
    n_first = 0
    for seed in range(400):
        shuffled = curator(rows, seed=seed)
        points_of(shuffled, 10.0 * SCALE)
        n_first += shuffled._rows[0, 0] < 0
    assert stats.binomtest(int(n_first), 400).pvalue > 1e-6


def test_grouping_needs_released_points():
    """Groups refer to the released points, which are released once."""
    holder = curator(np.zeros((4, 2), np.int64))
    noise = Gaussian(10.0 * SCALE)
    with pytest.raises(ValueError, match="query noised_points first"):
        holder.release(GroupSums(np.zeros(4, int), 1), sums=noise)
    with pytest.raises(ValueError, match="query noised_points first"):
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
