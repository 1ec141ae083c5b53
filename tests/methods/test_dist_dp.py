"""Distance-based privacy: cells and soft counts, sensitivities on random moves, accounting, limits.
Statistical tests use fixed seeds; their p-values or standard errors leave odds below one in a
million.
"""

import itertools
import math
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans

from pkm.compute.kernels import nearest as nearest_kernels
from pkm.compute.kernels.nearest import nearest_of_many
from pkm.compute.kernels.quadtree import (
    Digits,
    add_soft_counts,
    cell_centers,
    fullest_occupied_cells,
    lexicographic_order,
    occupied_cells,
    span_of,
)
from pkm.methods.baselines.kmedian import KMedian, weighted_kmedian
from pkm.methods.distance import published as dist_dp_published
from pkm.methods.distance.dist_dp import DistDP, NoisedPoints
from pkm.methods.distance.sound import sound_schedule
from pkm.methods.distance.tree import RegionTrees, released_histograms
from pkm.privacy import (
    SCALE,
    Budget,
    BudgetExceeded,
    Charge,
    Gaussian,
    Laplace,
    Ledger,
    NoiseStreams,
    StabilityHistogram,
    gaussian_mu,
    gdp_delta,
    snap,
    to_unit,
)
from pkm.privacy.queries.clipped_regions import (
    ClippedRegions,
    LargeRegions,
    RegionCounts,
    RegionSizes,
    RegionSums,
)
from pkm.privacy.queries.moved_records import (
    AllPoints,
    GroupSums,
    QuadtreeCounts,
    SoftCounts,
    SortedGaussian,
    Total,
    _sorted_order,
    soft_sensitivity,
)
from pkm.privacy.rho_bounded import RhoBoundedCurator

NEGLIGIBLE = 1e-3  # grid steps: noise that is always rounded to zero


def blobs(n, d=2, k=4, spread=0.03, seed=0):
    rng = np.random.default_rng(seed)
    lattice = np.array(list(itertools.product((-0.6, 0.0, 0.6), repeat=d)))
    centers = lattice[rng.choice(len(lattice), k, replace=False)]
    points = centers[np.arange(n) % k] + spread * rng.standard_normal((n, d))
    return np.clip(points, -1, 1)


def curator(points, rho=0.05, epsilon=1.0, delta=1e-6, seed=0):
    ledger = Ledger(Budget(epsilon, delta, "rho_bounded", rho))
    return RhoBoundedCurator(points, ledger, NoiseStreams([seed]))


def exact(points, rho=0.05):
    """Return a curator whose budget suffices for noise that rounds to zero."""
    return curator(points, rho, epsilon=1e20, delta=0.5)


def draw_move(rng, d, rho, n=12):
    """Return grid points, the index of a record, and a point that it can move to.

    The move is within rho in the domain before both were rounded.
    """
    rows = rng.uniform(-1, 1, (n, d))
    i = rng.integers(n)
    step = rng.standard_normal(d)
    step *= rho * rng.choice([1.0, rng.random()]) / np.linalg.norm(step)
    moved = np.clip(rows[i] + step, -1, 1)
    return snap(rows), i, snap(moved)


def with_move(rows, i, moved):
    return np.concatenate([np.delete(rows, i, axis=0), moved[None]])


def after_move(original, row, moved):
    """Return the neighbor's curator: the same releases so far, with one record elsewhere."""
    neighbor = exact(original._rows, rho=original._ledger.budget.rho)
    neighbor._rows = original._rows.copy()
    neighbor._released = original._released
    (index,) = np.flatnonzero((original._rows == row).all(axis=1))[:1]
    neighbor._rows[index] = moved
    return neighbor


def points_of(holder, scale):
    return holder.release(AllPoints(), points=SortedGaussian(scale))["points"][0]


def counts_of(regions, cells, noise):
    """Noisy counts of cells, in records."""
    return regions.release(RegionCounts(np.asarray(cells)), counts=noise)["counts"] / SCALE


def sizes_of(regions, noise):
    """Noisy sizes of all regions, in records."""
    return regions.release(RegionSizes(), counts=noise)["counts"] / SCALE


def large_sizes_of(regions, n_regions):
    """Exact sizes of the regions above the threshold, in records, and 0 for the others."""
    noise = StabilityHistogram(1e-9, 1e-6, 2)
    released = regions.release(LargeRegions(), counts=noise)["counts"]
    return np.bincount(released.cells, released.counts / SCALE, minlength=n_regions)


def sums_of(regions, groups, n_groups, multiplier):
    return regions.release(RegionSums(groups, n_groups), sums=Gaussian(multiplier))["sums"]


def cells_of(holder, shifts, levels, noise):
    """Released cells of quadtrees: tree, level, cells and counts, in records, of each histogram."""
    (released,) = holder.release(QuadtreeCounts(shifts, levels), counts=noise)["counts"]
    return released_histograms(released)


@pytest.fixture
def every_cell_is_released(monkeypatch):
    monkeypatch.setattr(StabilityHistogram, "threshold", 0.0)


# Cells


@pytest.mark.parametrize(
    ("d", "levels"),
    [(1, range(0, 4)), (2, range(5)), (3, range(6, 11)), (10, range(8, 11))],
)
def test_cells_agree_with_plain_counting(d, levels):
    rng = np.random.default_rng(d)
    points = rng.integers(-2 * SCALE, 2 * SCALE + 1, (300, d)) // (1 << 12) * (1 << 12)
    points[0] = 2 * SCALE
    points[1] = -2 * SCALE
    shift = rng.integers(0, 4 * SCALE + 1, d)
    for level, cells_at, counts in occupied_cells(points, shift, levels):
        cells = cells_at(slice(None))
        side = 8 * SCALE / 2**level
        indices = np.floor((points + shift + 2 * SCALE) / side).astype(int)
        indices = np.minimum(indices, 2**level - 1)
        expected = Counter(tuple(index) for index in indices.tolist())
        assert [tuple(cell) for cell in cells.tolist()] == sorted(expected)
        assert counts.tolist() == [expected[cell] for cell in sorted(expected)]

        # Every point is in a cell: its center is within half a side.
        centers = cell_centers(cells, shift, level)
        distances = np.abs(centers[:, None] - points).max(axis=2)
        assert (distances.min(axis=0) <= side / 2).all()


@pytest.mark.parametrize("n_fullest", [1, 7, 500])
@pytest.mark.parametrize(("n", "d", "spread"), [(300, 1, 20), (300, 2, 3000), (300, 9, 9000)])
def test_fullest_cells_are_the_first_of_all_cells_by_count(n, d, spread, n_fullest):
    """Of trees that start at the finest level, at one in the middle and at the root."""
    rng = np.random.default_rng(d)
    dense = rng.normal(0, spread, (n, d)).round().astype(np.int32)
    sparse = rng.integers(-2 * SCALE, 2 * SCALE + 1, (n // 3, d), dtype=np.int32)
    shifts = rng.integers(0, 4 * SCALE + 1, (3, d))
    for points in (np.concatenate([dense, sparse]), sparse, sparse[:1]):
        expected = {}
        for tree, shift in enumerate(shifts):
            for level, cells_at, counts in occupied_cells(points, shift, range(12)):
                order = np.argsort(-counts, kind="stable")[:n_fullest]
                expected[tree, level] = cells_at(order).tolist(), counts[order].tolist()
        found = fullest_occupied_cells(points, shifts, 11, n_fullest)
        fullest = {(tree, level): (c.tolist(), m.tolist()) for tree, level, c, m in found}
        assert fullest == expected


def test_largest_shift_stays_in_the_last_cell():
    points = np.full((1, 2), 2 * SCALE)
    shift = np.full(2, 4 * SCALE)
    tree = occupied_cells(points, shift, range(2))
    cells_by_level = [cells_at(slice(None)).tolist() for _, cells_at, _ in tree]
    assert cells_by_level == [[[1, 1]], [[0, 0]]]


def test_no_points_have_no_cells():
    points = np.zeros((0, 2), np.int64)
    shift = np.zeros(2, np.int64)
    levels = [counts.tolist() for _, _, counts in occupied_cells(points, shift, range(3))]
    assert levels == [[], [], []]
    fullest = fullest_occupied_cells(points, shift[None], 3, 1)
    assert [counts.tolist() for *_, counts in fullest] == [[], [], [], []]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 31),
    st.integers(1, 12),
    st.integers(1, 40),
    st.integers(0, 10**6),
)
def test_rows_are_sorted_and_equal_ones_found(bits, d, m, seed):
    rng = np.random.default_rng(seed)
    last = (1 << bits) - 1
    rows = rng.integers(0, 1 << bits, (m, d))
    rows[rng.random((m, d)) < 0.7] = last
    members = rng.permutation(m)[: rng.integers(1, m + 1)]
    # One column has one number only.
    rows[:, rng.integers(d)] = last
    points = (rows - 5) * 4 + rng.integers(0, 4, (m, d))
    digits = Digits(points, span_of(points), np.full(d, 20), 2, last)
    order, is_first = lexicographic_order(digits, members)
    assert digits.rows(members).tolist() == rows[members].tolist()
    ordered = rows[members[order]].tolist()
    assert ordered == sorted(rows[members].tolist())
    pairs = itertools.pairwise(ordered)
    assert is_first.tolist() == [True, *(row != following for row, following in pairs)]


@pytest.mark.parametrize("spread", [2, 1 << 10, 1 << 50])
def test_noised_rows_are_sorted_with_equal_ones_in_random_order(spread):
    rng = np.random.default_rng(spread)
    rows = rng.integers(-spread, spread, (500, 3))
    rows[250:] = rows[:250]
    ties = rng.permutation(500) / 500
    assert (_sorted_order(rows, ties) == np.lexsort((ties, *rows.T[::-1]))).all()


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
    scan = nearest_kernels.nearest_with_squares

    def counted(points, centers):
        nonlocal n_pairs
        n_pairs += points.shape[0] * len(centers)
        return scan(points, centers)

    monkeypatch.setattr(nearest_kernels, "nearest_with_squares", counted)
    index, _ = nearest_of_many(points, centers)
    assert (index // 40 == np.arange(2000) // 200).all()
    assert n_pairs < len(points) * len(centers) / 5


@pytest.mark.parametrize(("d", "intervals"), [(1, 1), (1, 7), (2, 5), (3, 4)])
def test_soft_counts_keep_every_point_as_a_mean(d, intervals):
    rng = np.random.default_rng(d)
    node_indices = np.array(list(itertools.product(range(intervals + 1), repeat=d)))
    nodes = node_indices * 2 / intervals - 1
    corners = (np.full(d, SCALE), np.full(d, -SCALE))
    for row in (*corners, *rng.integers(-SCALE, SCALE + 1, (20, d))):
        counts = np.zeros(len(nodes), np.int64)
        add_soft_counts(row[None], intervals, counts)
        weights = counts / SCALE
        assert weights.min() >= 0
        assert (weights > 0).sum() <= 2**d
        assert weights.sum() == pytest.approx(1, abs=2**d / SCALE)
        assert weights @ nodes == pytest.approx(row / SCALE, abs=2**d / SCALE)
        # Only nodes around the point have a part in it.
        distances = np.abs(nodes[weights > 0] - row / SCALE)
        assert distances.max() <= 2 / intervals + 1e-9


# What a move changes


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
        assert squared_change <= noise.cells
        largest_change = max(largest_change, squared_change)
    assert largest_change == noise.cells


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


# Names, order, noise


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


# The curator's refusals


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
            "cells=5 of the noise must be at least 6",
        ),
        (
            lambda: regions().release(LargeRegions(), counts=one_cell),
            "cells=1 of the noise must be at least 2",
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
            "normal must have entries of at most",
        ),
        (
            lambda: sums_of(regions(), np.ones(1, int), 1, 10.0),
            "groups must have 1 entries",
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


# Accounting

CASES = [
    {"variant": "published"},
    {"variant": "published", "ball": "printed", "calibration": "analytic"},
    {"variant": "published", "regions": "noised", "least_region": 20},
    {"variant": "published", "epsilon": 4.0, "delta": 1e-9},
    {"variant": "published", "sizes": "noisy", "size_share": 0.2},
    {"variant": "published", "fine_counts": "split", "coreset_clusters": 1},
    {"variant": "published", "rho": "diagonal", "epsilon": 2.0},
    {"variant": "sound", "rho": 0.002},
    {"variant": "sound", "rho": 0.5},
    {"variant": "sound", "rho": 2.0, "epsilon": 0.3},
    {"variant": "sound", "rho": 2.0, "epsilon": 4.0, "quadtrees": 2},
    {"variant": "sound", "rho": "diagonal"},
]


def detail_of(charge, ending):
    """Return the only detail of a charge whose name has the ending."""
    (name,) = [name for name in charge.details if name.endswith(ending)]
    return charge.details[name]


def randomized_response_law(losses):
    """Return the law of the total loss of independent worst-case binary releases.

    ``losses`` counts how often each epsilon occurs; a release is right with odds
    exp(epsilon) : 1.
    """
    law = {0.0: 1.0}
    for loss, n_releases in losses.items():
        right = stats.binom(n_releases, 1 / (1 + math.exp(-loss)))
        composed = {}
        for total, probability in law.items():
            for n_right in range(n_releases + 1):
                composed_total = total + loss * (2 * n_right - n_releases)
                composed[composed_total] = probability * right.pmf(n_right)
        law = composed
    return law


def delta_of(charges, epsilon):
    """Compute delta of logged releases from their logged scales and sensitivities alone.

    A Laplace release is at worst randomized response that is right with odds exp(1 / scale) : 1,
    and the rest one Gaussian.
    """
    mu = 0.0
    laplace_losses = Counter()
    delta = 0.0
    for charge in charges:
        details = charge.details
        scale = detail_of(charge, "_scale")
        sensitivity = detail_of(charge, "_sensitivity")
        if charge.mechanism == "laplace":
            laplace_losses[sensitivity / scale] += 1
        else:
            mu = math.hypot(mu, sensitivity / scale)
        if charge.mechanism == "gaussian_threshold":
            # Every cell that can differ may exceed the threshold.
            cells = round(sensitivity**2)
            hidden = cells * stats.norm.logcdf((details["count_threshold"] - 1) / scale)
            delta += -math.expm1(hidden)
    for loss, probability in randomized_response_law(laplace_losses).items():
        rest = epsilon - loss
        upper = stats.norm.cdf(mu / 2 - rest / mu)
        lower = math.exp(rest) * stats.norm.cdf(-mu / 2 - rest / mu)
        delta += probability * max(upper - lower, 0.0)
    return delta


def test_recomputed_delta_agrees_with_an_accountant():
    """Of the Gaussian part, with dp-accounting; and of Laplace noise it is a bound."""
    details = {"sum_scale": 10.0, "sum_sensitivity": 1.0}
    charges = [Charge("a", i, "gaussian", mu=0.1, details=details) for i in range(3)]
    gaussian = privacy_loss_distribution.from_gaussian_mechanism(10 / math.sqrt(3))
    expected = gaussian.get_delta_for_epsilon(0.7)
    assert delta_of(charges, 0.7) == pytest.approx(expected, rel=1e-3)

    details = {"count_scale": 5.0, "count_sensitivity": 1.0}
    charges += [Charge("b", i, "laplace", epsilon=0.2, details=details) for i in range(2)]
    laplace = privacy_loss_distribution.from_laplace_mechanism(5.0).self_compose(2)
    expected = gaussian.compose(laplace).get_delta_for_epsilon(0.7)
    bound = delta_of(charges, 0.7)
    assert expected < bound
    assert bound < 1.5 * expected


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_logged_scales_stay_within_the_budget(case):
    method = DistDP(4, **case)
    points = blobs(3000, d=2)
    if method.quadtrees == 2:
        points = np.tile(points, 3)  # six columns: adaptive cells
    run = method.fit_batch(snap(points), [0, 1])
    delta = 1e-6 if method.delta == "auto" else method.delta
    rho = method.rho
    if rho == "diagonal":
        rho = 2 * math.sqrt(points.shape[1])
    assert run.ledger.budget == Budget(method.epsilon, delta, "rho_bounded", rho)
    assert delta_of(run.ledger.charges, method.epsilon) <= delta * (1 + 1e-3)
    assert run.ledger.spent() <= method.epsilon * (1 + 1e-9)
    if method.quadtrees == 2:
        assert run.ledger.charges[0].label == "cell_counts"
    if method.variant == "sound":
        # All of the budget is used.
        assert run.ledger.spent() == pytest.approx(method.epsilon, rel=1e-5)


@pytest.mark.parametrize(
    "interpretation",
    [
        {},
        {"regions": "noised", "least_region": 20},
        {"ball": "printed"},
        {"sizes": "noisy"},
        {"fine_counts": "split"},
        {"sizes": "noisy", "size_share": 0.1, "fine_counts": "split"},
        {"size_share": 0.9, "coreset_clusters": 1},
    ],
    ids=str,
)
def test_published_spends_three_equal_parts(interpretation):
    """Points, fine cells, and regions with their summaries stay within a third of both parameters
    each.
    """
    method = DistDP(4, variant="published", **interpretation)
    charges = method.fit_batch(snap(blobs(3000, d=2)), [0]).ledger.charges
    parts = {"points": [], "cells": [], "regions": []}
    for charge in charges:
        kind = {"noised_points": "points", "cell_counts": "cells"}.get(charge.label, "regions")
        parts[kind].append(charge)
    joint = method.fine_counts == "joint"
    assert len(parts["points"]) == 1
    assert len(parts["cells"]) == (1 if joint else 25)
    assert len(parts["regions"]) == 43 + (method.regions == "true")
    for kind, part in parts.items():
        assert delta_of(part, 1 / 3) <= 1e-6 / 3 * (1 + 1e-3), kind

    # Classical noise leaves some of its part, and summaries are calibrated as randomized response;
    # cells use all of their part.
    n_shares = len(parts["cells"])
    for charge in parts["cells"]:
        cell_delta = delta_of([charge], 1 / 3 / n_shares)
        assert cell_delta == pytest.approx(1e-6 / 3 / n_shares, rel=1e-3)
    if method.regions == "true":
        # Sizes use up their share of the third part, and summaries stay within the rest.
        share = method.size_share
        (sizes, *summaries) = parts["regions"]
        assert sizes.label == "region_sizes"
        assert (sizes.delta == 0) == (method.sizes == "noisy")
        size_delta = delta_of([sizes], share / 3)
        assert size_delta == pytest.approx(share * 1e-6 / 3, rel=1e-3)
        summary_delta = delta_of(summaries, (1 - share) / 3)
        assert summary_delta <= (1 - share) * 1e-6 / 3 * (1 + 1e-3)


def test_published_scales_are_the_papers():
    rows = snap(blobs(3000, d=2))
    ledger = DistDP(4, variant="published", rho=0.1).fit_batch(rows, [0]).ledger
    points, cells, sizes = ledger.charges[:3]
    classical = math.sqrt(2 * math.log(1.25 / (1e-6 / 3))) * 3
    assert points.details["point_scale"] == pytest.approx(0.1 * classical, rel=1e-3)

    cell_mu = gaussian_mu(1 / 3, 1e-6 / 6)
    deviation = math.sqrt(50) / cell_mu
    threshold = 1 + deviation * stats.norm.ppf((1 - 1e-6 / 6) ** (1 / 50))
    assert cells.details["count_scale"] == pytest.approx(deviation)
    assert cells.details["count_threshold"] == pytest.approx(threshold, rel=1e-6)
    assert cells.mu == pytest.approx(cell_mu)
    assert cells.delta == pytest.approx(1e-6 / 6)

    assert sizes.label == "region_sizes"
    assert sizes.details["count_sensitivity"] == pytest.approx(math.sqrt(2))
    far_factor = DistDP(4, variant="published").far_factor(3000, 2)
    assert far_factor == pytest.approx(33.8 * math.sqrt(2), rel=2e-3)


def test_noisy_sizes_have_no_threshold(monkeypatch):
    """Regions whose noisy size is not above zero are dropped."""
    rows = snap(blobs(3000, d=2))
    released = []
    summarized = []
    original_release = ClippedRegions.release
    original_summarize = dist_dp_published._summarize

    def release(self, query, **noise):
        answer = original_release(self, query, **noise)
        if isinstance(query, RegionSizes):
            released.append((noise["counts"], self.n_cells, answer["counts"]))
        return answer

    def summarize(method, assigned, *arguments):
        summarized.append(assigned.roots)
        return original_summarize(method, assigned, *arguments)

    monkeypatch.setattr(ClippedRegions, "release", release)
    monkeypatch.setattr(dist_dp_published, "_summarize", summarize)
    method = DistDP(4, variant="published", sizes="noisy", size_share=0.25)
    run = method.fit_batch(rows, [0])
    ((noise, n_regions, noisy_sizes),) = released
    (kept,) = summarized
    # Noise for the whole delta of the share, on two sizes that change by one.
    (charge,) = (charge for charge in run.ledger.charges if charge.label == "region_sizes")
    assert charge.mu == pytest.approx(gaussian_mu(0.25 / 3, 0.25e-6 / 3))
    assert charge.delta == 0
    assert noise.scale / SCALE == pytest.approx(math.sqrt(2) / charge.mu)
    assert len(noisy_sizes) == n_regions
    assert (noisy_sizes <= 0).any()
    assert kept.tolist() == np.flatnonzero(noisy_sizes > 0).tolist()


@pytest.mark.parametrize(("coreset_clusters", "k"), [("auto", 4), (1, 1), (7, 7)])
def test_trees_use_coreset_clusters(coreset_clusters, k, monkeypatch):
    n_clusters = []
    original_init = RegionTrees.__init__

    def recorded_init(self, *args, **options):
        n_clusters.append(options["n_clusters"])
        original_init(self, *args, **options)

    monkeypatch.setattr(RegionTrees, "__init__", recorded_init)
    method = DistDP(4, variant="published", coreset_clusters=coreset_clusters)
    run = method.fit_batch(snap(blobs(3000, d=2)), [0])
    assert n_clusters == [k]
    assert run.centers.shape == (1, 4, 2)


@pytest.mark.parametrize(
    "method",
    [
        DistDP(4, rho="diagonal"),
        DistDP(4, rho="diagonal", epsilon=0.2),
        NoisedPoints(4, rho="diagonal"),
    ],
)
@pytest.mark.parametrize("d", [2, 12])
def test_the_diagonal_protects_any_move(method, d):
    """No point moves farther, and every release has the noise that the largest possible change
    needs.
    """
    points = snap(np.tile(blobs(20_000, d=2), d // 2))
    charges = method.fit_batch(points, [0]).ledger.charges
    diagonal = 2 * math.sqrt(d)
    sensitivities = {
        "noised_points": diagonal,
        "total": diagonal,
        "cell_counts": math.sqrt(2 * 5 * 10),
        "region_counts": math.sqrt(2),
        "soft_counts": math.sqrt(2) + math.sqrt(2.0**d) / SCALE,
    }
    for charge in charges:
        # The curator's tests check that the sensitivity of sums is twice the radius.
        if charge.label != "region_sums":
            sensitivity = detail_of(charge, "_sensitivity")
            expected = sensitivities[charge.label]
            assert sensitivity == pytest.approx(expected, rel=1e-12), charge.label
    assert method.budget(len(points), d).rho == diagonal
    if isinstance(method, DistDP):
        run = replace(method, rho=diagonal).fit_batch(points, [0])
        assert run.ledger.charges == charges


def test_projected_points_lie_in_their_box(shared_noise):
    rows = snap(blobs(2000))

    def run(**parameters):
        return NoisedPoints(4, rho=1.0, **parameters).fit_batch(rows, [0])

    narrow = run(project=0.25)
    wide = run(project=1e6)
    unprojected = run(project=None)
    assert np.abs(narrow.centers).max() <= 0.25 * SCALE
    assert (wide.centers == unprojected.centers).all()
    # Noise of sixteen times the half-width: without a projection centers lie far out, and are moved
    # into the domain.
    assert np.abs(unprojected.centers).max() == SCALE
    assert np.abs(run().centers).max() <= SCALE
    assert narrow.ledger.charges == unprojected.ledger.charges


def test_uncharged_replacement_is_a_named_flaw():
    """A moved record changes two regions; the flawed variant charges for one."""
    rows = snap(blobs(3000, d=2))
    charged = DistDP(4, variant="published", replacement="charged")
    uncharged = DistDP(4, variant="published", replacement="uncharged")
    assert charged.claim.flaws == ()
    assert uncharged.claim.flaws == ("F-17",)
    assert DistDP(4, variant="sound", replacement="uncharged").claim.flaws == ()

    charges = charged.fit_batch(rows, [0]).ledger.charges
    flawed_charges = uncharged.fit_batch(rows, [0]).ledger.charges
    assert {charge.flaw for charge in charges} == {""}
    flawed_labels = {charge.label for charge in flawed_charges if charge.flaw == "F-17"}
    assert flawed_labels == {"region_counts", "region_sums"}

    def count_scale(charges):
        counts = [charge for charge in charges if charge.label == "region_counts"]
        return counts[0].details["count_scale"]

    assert count_scale(charges) > 1.3 * count_scale(flawed_charges)
    # Two records at the scales that cover one: over the part's budget by far.
    first = flawed_charges[3:]
    second = [replace(charge, label=charge.label + "'", delta=0.0) for charge in first]
    assert delta_of([*first, *second], 1 / 6) > 5 * 1e-6 / 6


@pytest.mark.parametrize(
    ("calibration", "epsilon"),
    [
        ("classical", 1.0),
        ("analytic", 1.0),
        ("analytic", 8.0),
    ],
)
def test_noised_points_spend_the_budget_on_one_release(calibration, epsilon):
    rows = snap(blobs(500))
    run = NoisedPoints(4, calibration=calibration, epsilon=epsilon).fit_batch(rows, [0])
    (charge,) = run.ledger.charges
    assert charge.label == "noised_points"
    if calibration == "classical":
        expected = 0.05 * math.sqrt(2 * math.log(1.25e6))
        assert charge.details["point_scale"] == pytest.approx(expected, rel=1e-3)
        assert gdp_delta(charge.mu, 1.0) < 1e-6
    else:
        assert run.ledger.spent() == pytest.approx(epsilon, rel=1e-6)


# Quality


def cost(points, centers, p=2):
    distances = cdist(points, centers).min(axis=1)
    return float((distances**p).sum())


def kmeans_cost(points, k, n_init=5):
    return KMeans(k, n_init=n_init, random_state=0).fit(points).inertia_


def median_cost(points, run):
    return np.median([cost(points, to_unit(centers)) for centers in run.centers])


@pytest.mark.parametrize("variant", ["published", "sound"])
def test_tiny_rho_gives_plain_clustering(variant):
    """As rho goes to 0 nearly all points stay as they are, and the cost is scikit-learn's, or that
    of k-median.
    """
    rows = snap(blobs(2000, d=2, k=6, spread=0.05, seed=3))
    points = to_unit(rows)
    run = DistDP(6, variant=variant, rho=1e-6, n_init=5).fit_batch(rows, [0])
    private_cost = cost(points, to_unit(run.centers[0]))
    assert private_cost == pytest.approx(kmeans_cost(points, 6), rel=1e-4)

    median = KMedian(6, n_init=5).fit_batch(rows, [0])
    run = DistDP(6, variant=variant, p=1, rho=1e-6, n_init=5).fit_batch(rows, [0])
    exact_cost = cost(points, to_unit(median.centers[0]), 1)
    private_cost = cost(points, to_unit(run.centers[0]), 1)
    assert private_cost == pytest.approx(exact_cost, rel=1e-3)


@pytest.mark.parametrize(
    ("d", "rho", "strategy"),
    [
        (2, 0.0005, "groups"),
        (2, 0.002, "grid"),
        (2, 0.5, "cells"),
        (6, 0.2, "cells"),
        (12, 0.002, "groups"),
        (12, 1.0, "tree"),
    ],
)
def test_sound_chooses_its_strategy_by_public_values(d, rho, strategy):
    method = DistDP(4, rho=rho)
    points = snap(np.tile(blobs(20_000, d=2), d // 2))
    labels = {
        "groups": {"noised_points", "group_sums"},
        "grid": {"soft_counts"},
        "cells": {"cell_counts", "region_counts"},
        "tree": {"total", "region_counts", "region_sums"},
    }
    assert method.schedule(20_000, d).strategy == strategy
    charges = method.fit_batch(points, [0]).ledger.charges
    assert {charge.label for charge in charges} == labels[strategy]


@pytest.mark.parametrize("d", [1, 2, 3, 5, 8, 10])
@pytest.mark.parametrize("n", [2000, 20_000, 250_000])
def test_sound_keeps_the_cells_as_the_budget_grows(n, d):
    for k in (2, 8, 64):
        schedules = [
            sound_schedule(DistDP(k, epsilon=epsilon, rho="diagonal"), n, d)
            for epsilon in 2.0 ** np.arange(-2, 5)
        ]
        chosen = [schedule.strategy for schedule in schedules if not schedule.insufficient_data(n)]
        if "cells" in chosen:
            assert set(chosen[chosen.index("cells") :]) == {"cells"}


def test_sound_does_not_get_worse_with_more_budget():
    # Clusters that fill a small part of the domain, which a grid cannot resolve.
    points = 0.1 * blobs(20_000, d=3, k=4, spread=0.03, seed=1)
    costs = [
        median_cost(
            points,
            DistDP(4, epsilon=epsilon, rho="diagonal", n_init=5).fit_batch(snap(points), range(3)),
        )
        for epsilon in (1.0, 2.0, 4.0, 8.0)
    ]
    assert max(costs) < 1.2 * kmeans_cost(points, 4)


def test_sound_cells_find_clusters_of_different_sizes():
    points = np.tile(blobs(20_000, d=2, k=4, spread=0.01, seed=1), 3)
    noise = 0.2 * np.random.default_rng(0).standard_normal((5000, 6))
    points[::4] = np.clip(points[::4] + noise, -1, 1)
    method = DistDP(4, rho=1.0, n_init=5)
    assert method.schedule(*points.shape).strategy == "cells"
    run = method.fit_batch(snap(points), range(3))
    assert median_cost(points, run) < 1.3 * kmeans_cost(points, 4)


@pytest.mark.parametrize("rho", [0.001, 0.02, 0.05, 1.0])
def test_sound_is_close_to_kmeans_in_two_dimensions(rho):
    points = blobs(5000, d=2, k=6, spread=0.06, seed=1)
    run = DistDP(6, rho=rho, n_init=5).fit_batch(snap(points), range(5))
    assert median_cost(points, run) < 1.1 * kmeans_cost(points, 6, n_init=10)


def test_sound_tree_finds_separated_clusters():
    points = np.tile(blobs(50_000, d=2, k=4, spread=0.05, seed=1), 6)
    method = DistDP(4, rho=1.0, n_init=5)
    assert method.schedule(*points.shape).strategy == "tree"
    run = method.fit_batch(snap(points), range(3))
    assert median_cost(points, run) < 1.5 * kmeans_cost(points, 4)


def test_published_finds_dense_and_far_clusters():
    """A cluster large enough for regions, and far points that stay as they were released."""
    rng = np.random.default_rng(0)
    dense = 0.002 * rng.standard_normal((20_000, 2))
    points = np.concatenate([dense, [[0.8, 0.8]] * 40])
    run = DistDP(2, variant="published", rho=1e-4, n_init=3).fit_batch(snap(points), [0])
    centers = to_unit(run.centers[0])
    assert np.abs(centers - [[0, 0], [0.8, 0.8]]).max() < 0.05


@pytest.mark.parametrize("case", [*CASES[:3], {"variant": "published", "p": 1, "rho": 0.001}])
def test_order_and_shards_do_not_matter(case):
    points = snap(blobs(1500, d=3))
    method = DistDP(4, **case)
    centers = method.fit_batch(points, [5]).centers
    shuffled = np.random.default_rng(0).permutation(points)
    shards = [shuffled[:7], shuffled[7:8], shuffled[8:]]
    assert (method.fit_batch(shuffled, [5]).centers == centers).all()
    assert (method.fit_batch(shards, [5]).centers == centers).all()


# Bad input


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rho": 0}, "rho=0 must be a positive finite number"),
        ({"rho": -0.1}, "rho=-0.1 must be"),
        ({"rho": math.nan}, "rho=nan must be"),
        ({"rho": math.inf}, "rho=inf must be"),
        (
            {"rho": "0.1"},
            "rho='0.1' must be a positive finite number, "
            "in half-widths of the domain, or 'diagonal'",
        ),
        ({"rho": 2.9}, "rho=2.9 must be at most the diagonal 2.82843"),
        ({"p": 3}, "p=3 is unknown, choose one of 1, 2"),
        ({"variant": "other"}, "variant='other' is unknown"),
        ({"regions": "both"}, "regions='both' is unknown"),
        (
            {"ball": 0},
            "ball=0 must be a positive finite number or one of 'capped', 'printed'",
        ),
        ({"ball": "big"}, "ball='big' must be"),
        ({"least_region": -1}, "least_region=-1 must be"),
        (
            {"sizes": "exact"},
            "sizes='exact' is unknown, choose one of 'thresholded', 'noisy'",
        ),
        (
            {"fine_counts": "even"},
            "fine_counts='even' is unknown, choose one of 'joint', 'split'",
        ),
        (
            {"coreset_clusters": 0},
            "coreset_clusters=0 must be 'auto' or an integer of at least 1",
        ),
        (
            {"coreset_clusters": 1.5},
            "coreset_clusters=1.5 must be 'auto' or an integer",
        ),
        (
            {"coreset_clusters": True},
            "coreset_clusters=True must be 'auto' or an integer",
        ),
        ({"size_share": 0}, r"size_share=0 must be a number in \(0, 1\)"),
        ({"size_share": 1.0}, r"size_share=1.0 must be a number in \(0, 1\)"),
        (
            {"size_share": "half"},
            r"size_share='half' must be a number in \(0, 1\)",
        ),
        ({"quadtrees": 0}, "quadtrees=0 must be an integer from 1 to 64"),
        ({"finest": 5}, "finest=5 must be above coarse=5"),
        ({"finest": 19}, "finest=19 must be an integer from 1 to 18"),
        ({"cells": 0}, "cells=0 must be 'auto' or an integer"),
        (
            {"points_share": 1.0},
            r"points_share=1.0 must be a number in \(0, 1\)",
        ),
        ({"n_init": 0}, "n_init=0 must be an integer of at least 1"),
        (
            {"n_clusters": 51},
            "n_clusters=51 must be at most the number of points n=50",
        ),
        (
            {"variant": "published", "epsilon": 60.0},
            "calibration='classical' gives too little noise",
        ),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    points = snap(blobs(50))
    method = DistDP(**{"n_clusters": 3, **parameters})
    with pytest.raises(ValueError, match=message):
        method.fit_batch(points, [0])


@pytest.mark.parametrize("project", [0, -1.0, math.nan, math.inf, "far", True])
def test_a_bad_projection_is_refused(project):
    points = snap(blobs(50))
    message = r"project=.* must be None or a positive finite number, in half-widths"
    with pytest.raises(ValueError, match=message):
        NoisedPoints(3, project=project).fit_batch(points, [0])


def test_values_that_are_not_finite_are_moved_into_the_domain():
    for value, place in ((math.nan, 0.0), (math.inf, 1.0), (-math.inf, -1.0)):
        points = blobs(50)
        points[3, 1] = value
        fitted = DistDP(3, random_state=0, bounds=(-1, 1)).fit(points)
        points[3, 1] = place
        expected = DistDP(3, random_state=0, bounds=(-1, 1)).fit(points)
        assert (fitted.cluster_centers_ == expected.cluster_centers_).all()


def test_classical_calibration_refuses_a_large_epsilon():
    message = "calibration='classical' gives too little noise for epsilon=60"
    with pytest.raises(ValueError, match=message):
        NoisedPoints(3, epsilon=60.0, bounds=(-1, 1)).fit(blobs(50))


@pytest.mark.parametrize(
    "case",
    [
        {"variant": "published"},
        {"variant": "published", "sizes": "noisy"},
        {},
    ],
    ids=str,
)
def test_refusal_names_a_sufficient_budget(case):
    """Too few points or too little epsilon: the message names n and epsilon that suffice."""
    rows = snap(blobs(50))
    method = DistDP(3, epsilon=0.01, rho=1.0, **case)
    message = r"epsilon=0.01 with n=50 points and rho=1.0 is too little"
    with pytest.raises(ValueError, match=message) as refused:
        method.fit_batch(rows, [0])
    words = str(refused.value).split()
    n = int(float(words[words.index("n") + 2].rstrip(",")))
    epsilon = float(words[words.index("epsilon") + 2].rstrip(","))

    method.set_params(epsilon=epsilon).fit_batch(rows, [0])
    method.set_params(epsilon=epsilon / 1.1)
    with pytest.raises(ValueError, match="is too little"):
        method.fit_batch(rows, [0])
    method.set_params(epsilon=0.01).fit_batch(np.resize(rows, (n, 2)), [0])
    with pytest.raises(ValueError, match="is too little"):
        method.fit_batch(np.resize(rows, (n - 1, 2)), [0])


# k-median


@pytest.mark.parametrize("seed", range(5))
def test_single_center_is_the_geometric_median(seed):
    rng = np.random.default_rng(seed)
    points = SCALE * rng.standard_normal((40, 3))
    weights = rng.integers(1, 9, 40).astype(float)

    def total(center):
        return float(weights @ np.linalg.norm(points - center, axis=1))

    (median,) = weighted_kmedian(points, weights, 1, 1, 0)
    best = optimize.minimize(
        total,
        points.mean(axis=0),
        method="Nelder-Mead",
        options={"xatol": 1e-3, "fatol": 1e-6},
    )
    assert total(median) <= best.fun * (1 + 1e-5)


def test_weights_are_equivalent_to_copies():
    rng = np.random.default_rng(0)
    clusters = [rng.normal(center, 0.02, (30, 2)) for center in (-0.5, 0.0, 0.6)]
    points = SCALE * np.concatenate(clusters)
    weights = rng.integers(1, 5, len(points))
    copies = np.repeat(points, weights, axis=0)
    weighted = weighted_kmedian(points, weights, 3, 5, 0)
    copied = weighted_kmedian(copies, np.ones(len(copies)), 3, 5, 0)
    assert np.abs(weighted - copied).max() < 2e-3 * SCALE


def test_medians_resist_outliers():
    points = SCALE * np.array([[0.0]] * 5 + [[0.9]] * 2)
    median = weighted_kmedian(points, np.ones(7), 1, 1, 0)
    assert median[0, 0] == pytest.approx(0, abs=2)


def test_kmedian_returns_few_distinct_points():
    points = SCALE * np.array([[0.0]] * 5 + [[0.9]] * 2)
    assert len(weighted_kmedian(points, np.ones(7), 3, 1, 0)) == 2
