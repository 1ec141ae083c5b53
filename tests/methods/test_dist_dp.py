"""Distance-based privacy: cells and soft counts against plain code, sensitivities on random moves,
accounting, limits.

Statistical tests use fixed seeds; their p-values or standard errors leave odds below one in a
million.
"""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans

from pkm.compute.quadtree import (
    add_soft_counts,
    cell_centers,
    nearest_of_many,
    occupied_cells,
    row_keys,
)
from pkm.methods import dist_dp_published
from pkm.audit.conformance import CHECKS, conformance
from pkm.methods.dist_dp import DistDP, NoisedPoints
from pkm.methods.dist_dp_tree import RegionTrees, released_histograms
from pkm.methods.kmedian import KMedian, weighted_kmedian
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
from pkm.privacy.clipped_regions import (
    ClippedRegions,
    LargeRegions,
    RegionCounts,
    RegionSizes,
    RegionSums,
)
from pkm.privacy.rho_bounded import RhoBoundedCurator
from pkm.privacy.rho_bounded_queries import (
    AllPoints,
    GroupSums,
    QuadtreeCounts,
    SoftCounts,
    SortedGaussian,
    Total,
    soft_sensitivity,
)

SILENT = 1e-3  # grid steps: noise that is always rounded to zero


def blobs(n, d=2, k=4, spread=0.03, seed=0):
    rng = np.random.default_rng(seed)
    centers = np.array(list(itertools.product((-0.6, 0.0, 0.6), repeat=d)))
    centers = centers[rng.choice(len(centers), k, replace=False)]
    return np.clip(centers[np.arange(n) % k] + spread * rng.standard_normal((n, d)), -1, 1)


def curator(points, rho=0.05, epsilon=1.0, delta=1e-6, seed=0):
    return RhoBoundedCurator(
        points, Ledger(Budget(epsilon, delta, "rho_bounded", rho)), NoiseStreams([seed])
    )


def exact(points, rho=0.05):
    """A curator whose budget pays for noise that rounds to zero."""
    return curator(points, rho, epsilon=1e20, delta=0.5)


def moves(rng, d, rho, n=12):
    """Grid points, one of them, and where it can move: points of the domain within rho before both
    were rounded.
    """
    rows = rng.uniform(-1, 1, (n, d))
    i = rng.integers(n)
    step = rng.standard_normal(d)
    step *= rho * rng.choice([1.0, rng.random()]) / np.linalg.norm(step)
    moved = np.clip(rows[i] + step, -1, 1)
    return snap(rows), i, snap(moved)


def after_a_move(one, row, i, moved):
    """The neighbor's curator where all that was released so far is the same: record i lies
    elsewhere.
    """
    other = exact(one._rows, rho=one._ledger.budget.rho)
    other._rows = one._rows.copy()
    other._released = one._released
    (place,) = np.flatnonzero((one._rows == row).all(axis=1))[:1]
    other._rows[place] = moved
    return other


def points_of(one, scale):
    return one.release(AllPoints(), points=SortedGaussian(scale))["points"][0]


def counts_of(regions, cells, noise):
    """Noisy counts of cells, in records."""
    return regions.release(RegionCounts(np.asarray(cells)), counts=noise)["counts"] / SCALE


def sums_of(regions, groups, n_groups, multiplier):
    return regions.release(RegionSums(groups, n_groups), sums=Gaussian(multiplier))["sums"]


def cells_of(one, shifts, levels, noise):
    """Released cells of quadtrees: tree, level, cells and counts, in records, of each histogram."""
    (released,) = one.release(QuadtreeCounts(shifts, levels), counts=noise)["counts"]
    return released_histograms(released)


@pytest.fixture
def every_cell_is_released(monkeypatch):
    monkeypatch.setattr(StabilityHistogram, "threshold", 0.0)


# Cells


@pytest.mark.parametrize(
    ("d", "levels"), [(1, range(0, 4)), (2, range(5)), (3, range(6, 11)), (10, range(8, 11))]
)
def test_cells_agree_with_plain_counting(d, levels):
    rng = np.random.default_rng(d)
    points = rng.integers(-2 * SCALE, 2 * SCALE + 1, (300, d)) // (1 << 12) * (1 << 12)
    points[0] = 2 * SCALE
    points[1] = -2 * SCALE
    shift = rng.integers(0, 4 * SCALE + 1, d)
    for level, cells, counts in occupied_cells(points, shift, levels):
        side = 8 * SCALE / 2**level
        expected = Counter(
            tuple(
                min(math.floor((x + v + 2 * SCALE) / side), 2**level - 1)
                for x, v in zip(row, shift, strict=True)
            )
            for row in points.tolist()
        )
        assert [tuple(cell) for cell in cells.tolist()] == sorted(expected)
        assert counts.tolist() == [expected[cell] for cell in sorted(expected)]
        assert (
            np.abs(cell_centers(cells, shift, level)[:, None] - points).max(axis=2).min(axis=0)
            <= side / 2
        ).all()


def test_a_shift_to_the_end_stays_in_the_top_cell():
    points = np.full((1, 2), 2 * SCALE)
    shift = np.full(2, 4 * SCALE)
    assert [cells.tolist() for _, cells, _ in occupied_cells(points, shift, range(2))] == [
        [[1, 1]],
        [[0, 0]],
    ]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 31), st.integers(1, 12), st.integers(1, 40), st.integers(0, 10**6))
def test_keys_keep_order_and_never_collide(bits, d, m, seed):
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 1 << bits, (m, d))
    rows[rng.random((m, d)) < 0.7] = (1 << bits) - 1
    keys = row_keys(rows, bits)
    rows = rows.tolist()
    for (a, one), (b, other) in itertools.combinations(zip(keys, rows, strict=True), 2):
        assert (a < b) == (one < other) and (a == b) == (one == other)


@pytest.mark.parametrize("d", [1, 3, 8, 9, 20])
def test_nearest_center_agrees_with_all_distances(d):
    rng = np.random.default_rng(d)
    points = rng.integers(-SCALE, SCALE, (200, d))
    centers = rng.integers(-6 * SCALE, 6 * SCALE, (70, d))
    index, distance = nearest_of_many(points, centers)
    all_distances = cdist(points, centers)
    assert (index == all_distances.argmin(axis=1)).all()
    assert np.allclose(distance, all_distances.min(axis=1), rtol=1e-12)


@pytest.mark.parametrize(("d", "intervals"), [(1, 1), (1, 7), (2, 5), (3, 4)])
def test_soft_counts_keep_every_point_as_a_mean(d, intervals):
    rng = np.random.default_rng(d)
    nodes = np.array(list(itertools.product(range(intervals + 1), repeat=d))) * 2 / intervals - 1
    for row in (np.full(d, SCALE), np.full(d, -SCALE), *rng.integers(-SCALE, SCALE + 1, (20, d))):
        counts = np.zeros(len(nodes), np.int64)
        add_soft_counts(row[None], intervals, counts)
        weights = counts / SCALE
        assert weights.min() >= 0 and (weights > 0).sum() <= 2**d
        assert weights.sum() == pytest.approx(1, abs=2**d / SCALE)
        assert weights @ nodes == pytest.approx(row / SCALE, abs=2**d / SCALE)
        # Only nodes around the point have a part in it.
        assert np.abs(nodes[weights > 0] - row / SCALE).max() <= 2 / intervals + 1e-9


# What a move changes


@pytest.mark.parametrize("rho", [1e-6, 0.003, 0.2, 1.5])
@pytest.mark.parametrize("d", [1, 2, 4])
def test_a_move_changes_points_and_sums_by_no_more_than_its_reach(d, rho):
    rng = np.random.default_rng(d)
    farthest = 0.0
    for _ in range(100):
        rows, i, moved = moves(rng, d, rho)
        one = exact(rows, rho)
        farthest = max(farthest, np.linalg.norm(moved - rows[i]))
        noised = points_of(one, SILENT)
        assert (noised == rows[np.lexsort(rows.T[::-1])]).all()
        other = after_a_move(one, rows[i], i, moved)
        groups = rng.integers(-1, 3, len(rows))
        query = GroupSums(groups, 3)
        noise = Gaussian(SILENT)
        sums = [each.release(query, sums=noise)["sums"][0] for each in (one, other)]
        assert (sums[0] == [one._rows[groups == g].sum(axis=0) for g in range(3)]).all()
        assert np.linalg.norm(sums[0] - sums[1]) <= one.max_shift * SCALE
        totals = [each.release(Total(), sums=noise)["sums"][0] for each in (one, other)]
        assert np.linalg.norm(totals[0] - totals[1]) <= one.max_shift * SCALE
    assert farthest > 0.9 * min(rho, 1.0) * SCALE  # moves of the full length were among them


def test_rounding_to_the_grid_can_lengthen_a_move():
    """Half a step before rounding is a whole one after it: the reach has to cover more than rho."""
    rho = 1e-6
    row = np.array([0.4999, 0.4999]) / SCALE
    moved = np.array([0.5001, 0.5001]) / SCALE
    assert np.linalg.norm(row - moved) < rho
    assert np.linalg.norm(snap(row) - snap(moved)) > 10 * rho * SCALE
    assert (
        np.linalg.norm(snap(row) - snap(moved))
        <= exact(np.zeros((1, 2), np.int64), rho).max_shift * SCALE
    )


@pytest.mark.parametrize(
    ("d", "trees", "levels"), [(1, 3, range(4, 9)), (3, 3, range(4, 9)), (2, 1, range(6, 7))]
)
def test_a_move_changes_two_cells_of_every_histogram(d, trees, levels, every_cell_is_released):
    rng = np.random.default_rng(d)
    noise = StabilityHistogram(1e-9, 1e-6, 2 * trees * len(levels))
    seen = 0
    for _ in range(50):
        rows, i, moved = moves(rng, d, 0.6)
        shifts = rng.integers(0, 4 * SCALE + 1, (trees, d))
        neighbor = np.concatenate([np.delete(rows, i, axis=0), moved[None]])
        tables = []
        for points in (rows, neighbor):
            found = cells_of(exact(points), shifts, levels, noise)
            assert [each[:2] for each in found] == [
                (t, level) for t in range(trees) for level in reversed(levels)
            ]
            tables.append(
                [Counter(dict(zip(map(tuple, c.tolist()), n, strict=True))) for *_, c, n in found]
            )
        assert all(sum(table.values()) == len(rows) for table in tables[0])
        change = 0
        for one, other in zip(*tables, strict=True):
            steps = [one[cell] - other[cell] for cell in one.keys() | other.keys()]
            assert sorted(filter(None, steps)) in ([], [-1, 1])
            change += sum(step * step for step in steps)
        assert change <= noise.cells
        seen = max(seen, change)
    assert seen == noise.cells


@pytest.mark.parametrize(
    ("d", "side", "rho"),
    [(1, 0.5, 0.05), (2, 0.25, 0.2), (3, 0.4, 0.1), (4, 1.0, 0.4), (2, 0.1, 0.5)],
)
def test_a_move_changes_soft_counts_by_no_more_than_declared(d, side, rho):
    rng = np.random.default_rng(d)
    intervals = round(2 / side)
    worst = 0.0
    declared = soft_sensitivity(d, 2 / intervals, exact(np.zeros((1, d), np.int64), rho).max_shift)
    for trial in range(300):
        rows, i, moved = moves(rng, d, rho, n=3)
        if trial % 3 == 0:  # moves at a node, along the diagonal: where weights change fastest
            node = 2 / intervals * rng.integers(0, intervals + 1, d) - 1
            rows[i] = snap(node)
            moved = snap(np.clip(node - np.sign(node + 1e-9) * rho / math.sqrt(d), -1, 1))
        one = exact(rows, rho)
        other = exact(np.concatenate([np.delete(rows, i, axis=0), moved[None]]), rho)
        counts = [
            each.release(SoftCounts(intervals), counts=Gaussian(SILENT))["counts"].ravel() / SCALE
            for each in (one, other)
        ]
        change = np.linalg.norm(counts[0] - counts[1])
        assert change <= declared
        worst = max(worst, change)
    assert worst > 0.5 * declared  # the bound is not idle


def tree_of(regions, rng, depth=5):
    """Exact counts of all levels and exact sums of what is left, for random splits."""
    cells = np.arange(regions.n_cells)
    counts = []
    counts.append(counts_of(regions, cells, Gaussian(SILENT)))
    for _ in range(depth):
        chosen = cells[rng.random(len(cells)) < 0.7]
        normal = rng.integers(-SCALE, SCALE + 1, regions._points.shape[1])
        parts = regions.split(chosen, normal).ravel()
        counts.append(counts_of(regions, parts, Gaussian(SILENT)))
        cells = np.concatenate([np.setdiff1d(cells, chosen), parts])
    owner = np.full(regions.n_cells, -1)
    # Unions of two cells of a region.
    region = regions._region[cells]
    place = np.array([np.count_nonzero(region[:i] == each) for i, each in enumerate(region)])
    owner[cells] = np.unique(np.stack([region, place // 2]), axis=1, return_inverse=True)[1].ravel()
    return counts, sums_of(regions, owner, len(cells), SILENT / SCALE / 10)


@pytest.mark.parametrize("by_noised", [False, True])
@pytest.mark.parametrize(("radius", "rho"), [(0.3, 0.1), (0.05, 0.4), (1.4, 2.8), (0.2, 1e-6)])
def test_a_move_is_a_record_less_and_another_more_in_regions(
    radius, rho, by_noised, every_cell_is_released
):
    """Sizes, counts of every level and sums, with what was released before held fixed."""
    moved_between = 0
    for trial in range(60):
        rng = np.random.default_rng(trial)
        rows, i, moved = moves(rng, 2, rho, n=30)
        one = exact(rows, rho)
        points_of(one, SILENT)
        other = after_a_move(one, rows[i], i, moved)
        centers = rng.integers(-SCALE, SCALE, (6, 2))
        groups = rng.integers(-1, 6, len(rows))
        members = rng.random(len(rows)) < 0.8
        named = {"groups": groups} if by_noised else {"members": members}
        both = [each.regions(centers, radius, **named) for each in (one, other)]
        for each in both:
            assert np.linalg.norm(each._points, axis=1).max(initial=0) <= radius * SCALE
        noise = StabilityHistogram(1e-9, 1e-6, 2)
        large = [each.release(LargeRegions(), counts=noise)["counts"] for each in both]
        sizes = [np.bincount(each.cells, each.counts / SCALE, minlength=6) for each in large]
        assert sorted(filter(None, sizes[0] - sizes[1])) in ([], [-1, 1])
        # Without a threshold the sizes of all regions leave, in public order and empty ones too,
        # and change as much.
        noise = Gaussian(SILENT)
        plain = [each.release(RegionSizes(), counts=noise)["counts"] / SCALE for each in both]
        assert (plain[0] - plain[1] == sizes[0] - sizes[1]).all()
        assert plain[0].sum() == plain[1].sum() and len(plain[0]) == 6
        moved_between += np.abs(sizes[0] - sizes[1]).sum() > 0
        (counts, sums), (others, their_sums) = (
            tree_of(each, np.random.default_rng(trial)) for each in both
        )
        for level, other_level in zip(counts, others, strict=True):
            assert sorted(filter(None, level - other_level)) in ([], [-1], [1], [-1, 1])
        assert np.linalg.norm(sums - their_sums) <= both[0].sum_sensitivity * SCALE
    assert by_noised or rho < 0.1 or moved_between > 0


def test_region_sums_reach_their_sensitivity():
    """From one end of a ball to the other, in two cells and in one."""
    rows = snap(np.array([[-0.5, 0.0], [0.5, 0.0]]))
    for moved, cells in ((rows[1], 2), (rows[1], 1)):
        one = exact(rows[:1], 1.0)
        other = exact(moved[None], 1.0)
        answers = []
        for each in (one, other):
            regions = each.regions(np.zeros((1, 2), np.int64), 0.5)
            parts = regions.split([0], np.array([1, 0]))[0] if cells == 2 else [0]
            owner = np.full(regions.n_cells, -1)
            owner[parts] = np.arange(cells)
            answers.append(sums_of(regions, owner, cells, SILENT / SCALE / 10))
        change = np.linalg.norm(answers[0] - answers[1]) / SCALE
        assert change == pytest.approx(math.sqrt(2) / 2 if cells == 2 else 1.0)
        assert change <= regions.sum_sensitivity


# Names, order, noise


@pytest.mark.statistical
def test_released_order_says_nothing_about_private_order(monkeypatch):
    """Where noised values are equal, which true point comes first is a fair coin."""
    monkeypatch.setattr(Gaussian, "draw", lambda self, values, *_: values * 0)
    rows = snap(np.array([[-0.5], [0.5]]))
    first = []
    for seed in range(400):
        asked = curator(rows, seed=seed)
        points_of(asked, 10.0 * SCALE)
        first.append(asked._rows[0, 0] < 0)
    assert stats.binomtest(sum(first), 400).pvalue > 1e-6


def test_records_cannot_be_named_before_they_are_released():
    asked = curator(np.zeros((4, 2), np.int64))
    with pytest.raises(ValueError, match="query noised_points first"):
        asked.release(GroupSums(np.zeros(4, int), 1), sums=Gaussian(10.0 * SCALE))
    with pytest.raises(ValueError, match="query noised_points first"):
        asked.regions(np.zeros((1, 2), int), 0.5, members=np.ones(4, bool))
    points_of(asked, 10.0 * SCALE)
    with pytest.raises(ValueError, match="released once"):
        points_of(asked, 10.0 * SCALE)


@pytest.mark.statistical
def test_noise_has_the_declared_scale():
    rows = snap(blobs(60, d=2))
    noise = {
        "points": [],
        "sums": [],
        "total": [],
        "soft": [],
        "sizes": [],
        "counts": [],
        "region sums": [],
    }
    for seed in range(200):
        asked = curator(rows, epsilon=50.0, seed=seed)
        before = asked._rows.sum(axis=0)
        noised = points_of(asked, 0.4 * SCALE)
        noise["points"].append((noised - asked._rows).ravel() / (0.4 * SCALE))
        groups = np.arange(60) % 3
        sums = asked.release(GroupSums(groups, 3), sums=Gaussian(0.2 * SCALE))["sums"][0]
        noise["sums"].append(
            (sums - [asked._rows[groups == g].sum(axis=0) for g in range(3)]).ravel()
            / (0.2 * SCALE)
        )
        total = asked.release(Total(), sums=Gaussian(0.3 * SCALE))["sums"][0]
        noise["total"].append((total - before) / (0.3 * SCALE))
        plain = np.zeros(25, np.int64)
        add_soft_counts(asked._rows, 4, plain)
        soft = asked.release(SoftCounts(4), counts=Gaussian(3.0 * SCALE))["counts"]
        noise["soft"].append((soft.ravel() - plain) / (3.0 * SCALE))
        regions = asked.regions(np.zeros((1, 2), np.int64), 1.5)
        sizes = regions.release(RegionSizes(), counts=Gaussian(15.0 * SCALE))["counts"] / SCALE
        noise["sizes"].append((sizes - 60) / 15.0)
        noise["counts"].append((counts_of(regions, [0], Laplace(20.0 * SCALE)) - 60) / 20.0)
        noise["region sums"].append(
            (sums_of(regions, np.zeros(1, int), 1, 20.0)[0] - before)
            / (20.0 * 1.5 * math.sqrt(2) * SCALE)
        )
    for name, values in noise.items():
        law = stats.laplace if name == "counts" else stats.norm
        assert stats.kstest(np.concatenate(values), law.cdf).pvalue > 1e-6, name


@pytest.mark.statistical
def test_small_cells_leave_as_rarely_as_their_delta_says():
    """A lone record shows in none of its histograms except with probability delta."""
    noise = StabilityHistogram(5.0, 0.2, 6)
    passed = 0
    for seed in range(400):
        asked = curator(np.zeros((1, 1), np.int64), epsilon=50.0, delta=0.5, seed=seed)
        found = cells_of(asked, np.zeros((1, 1), np.int64), range(3, 6), noise)
        passed += any(len(counts) for *_, counts in found)
    # Three of the six cells that could differ are this neighbor's.
    assert stats.binomtest(passed, 400, 1 - 0.8 ** (3 / 6)).pvalue > 1e-6


# The door


def test_other_adjacencies_are_refused():
    rows = np.zeros((3, 2), np.int64)
    with pytest.raises(ValueError, match="adjacency=zero_out is not supported"):
        RhoBoundedCurator(rows, Ledger(Budget(1.0, 1e-6)), NoiseStreams([0]))
    with pytest.raises(ValueError, match="adjacency=None"):
        RhoBoundedCurator(rows, None, NoiseStreams([0]))
    with pytest.raises(ValueError, match="one replicate at a time"):
        RhoBoundedCurator(rows, Ledger(Budget(1.0, 1e-6, "rho_bounded", 0.1)), NoiseStreams([0, 1]))


def test_nothing_is_drawn_beyond_the_budget(monkeypatch):
    def ready():
        asked = curator(np.zeros((5, 2), np.int64), epsilon=0.5)
        asked._released = True
        return asked

    zero = np.zeros((1, 2), np.int64)
    quiet = Gaussian(0.01 * SCALE)
    for ask in (
        lambda asked: points_of(curator(zero), 0.1 * SCALE),
        lambda asked: asked.release(Total(), sums=quiet),
        lambda asked: asked.release(GroupSums(np.zeros(5, int), 1), sums=quiet),
        lambda asked: cells_of(asked, zero, range(3), StabilityHistogram(1.0, 1e-7, 6)),
        lambda asked: cells_of(asked, zero, range(3), StabilityHistogram(1e4, 1e-5, 6)),
        lambda asked: asked.release(SoftCounts(2), counts=quiet),
        lambda asked: counts_of(asked.regions(zero, 0.5), [0], Laplace(SCALE)),
        lambda asked: asked.regions(zero, 0.5).release(
            LargeRegions(), counts=StabilityHistogram(1.0, 1e-7, 2)
        ),
        lambda asked: asked.regions(zero, 0.5).release(RegionSizes(), counts=Gaussian(1.0 * SCALE)),
        lambda asked: sums_of(asked.regions(zero, 0.5), np.zeros(1, int), 1, 0.1),
    ):
        asked = ready()
        with monkeypatch.context() as patch:
            for law in ("normal", "laplace", "uniform"):
                patch.setattr(NoiseStreams, law, lambda *_: pytest.fail("noise was drawn"))
            with pytest.raises(BudgetExceeded):
                ask(asked)


def test_ill_posed_questions_are_refused():
    asked = curator(np.zeros((5, 2), np.int64))
    points_of(asked, 10.0 * SCALE)
    zero = np.zeros((1, 2), np.int64)
    charged = asked._ledger.charges
    for ask, message in (
        (
            lambda: asked.release(GroupSums(np.zeros(4, int), 1), sums=Gaussian(SCALE)),
            "groups must be 5 integers",
        ),
        (
            lambda: asked.release(GroupSums(np.zeros(5), 1), sums=Gaussian(SCALE)),
            "groups must be 5 integers",
        ),
        (
            lambda: asked.release(GroupSums(np.full(5, 2), 1), sums=Gaussian(SCALE)),
            "groups must be from -1 to 0",
        ),
        (lambda: asked.regions(zero, 0.5, members=np.ones(5)), "members must be 5 bools"),
        (lambda: asked.regions(zero + 0.5, 0.5), "centers must be grid integers"),
        (lambda: asked.regions(zero, math.inf), "radius=inf must be positive and finite"),
        (
            lambda: cells_of(asked, zero, range(3), StabilityHistogram(10.0, 1e-7, 5)),
            "cells=5 of the noise must be at least 6",
        ),
        (
            lambda: asked.regions(zero, 0.5).release(
                LargeRegions(), counts=StabilityHistogram(10.0, 1e-7)
            ),
            "cells=1 of the noise must be at least 2",
        ),
        (
            lambda: counts_of(asked.regions(zero, 0.5), [0, 0], Gaussian(SCALE)),
            "must be different",
        ),
        (
            lambda: counts_of(asked.regions(zero, 0.5), [1], Gaussian(SCALE)),
            "must be different and below 1",
        ),
        (
            lambda: asked.regions(zero, 0.5).split([0], np.array([1 << 21, 0])),
            "normal must have entries of at most",
        ),
        (
            lambda: sums_of(asked.regions(zero, 0.5), np.ones(1, int), 1, 10.0),
            "groups must have 1 entries",
        ),
        (
            lambda: sums_of(
                asked.regions(np.array([[-9, 0], [9, 0]]), 0.5), np.zeros(2, int), 1, 10.0
            ),
            "must not unite cells of different regions",
        ),
        (lambda: list(occupied_cells(zero, zero[0], range(2, 7, 2))), "must be consecutive"),
        (
            lambda: cells_of(asked, zero, range(2, 7, 2), StabilityHistogram(1e9, 1e-9, 6)),
            "must be consecutive",
        ),
        (
            lambda: cells_of(asked, zero + 0.5, range(3), StabilityHistogram(1e9, 1e-9, 6)),
            "shifts must be grid integers",
        ),
        (
            lambda: asked.release(SoftCounts(0), counts=Gaussian(SCALE)),
            "intervals=0 in 2 features must be at least 1",
        ),
        (
            lambda: asked.release(SoftCounts(10_000), counts=Gaussian(SCALE)),
            "at most 262144 nodes",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            ask()
    assert asked._ledger.charges == charged


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


def delta_of(charges, epsilon):
    """Delta of logged releases from their logged scales and sensitivities alone.

    A Laplace release is at worst a coin that is right with odds exp(1 / scale) : 1, and the rest
    one Gaussian.
    """
    mu = 0.0
    coins = Counter()
    delta = 0.0
    for charge in charges:
        details = charge.details
        (scale,) = [details[name] for name in details if name.endswith("_scale")]
        (sensitivity,) = [details[name] for name in details if name.endswith("_sensitivity")]
        if charge.mechanism == "laplace":
            coins[sensitivity / scale] += 1
        else:
            mu = math.hypot(mu, sensitivity / scale)
        if charge.mechanism == "gaussian_threshold":
            cells = round(sensitivity**2)  # every cell that can differ is a chance to be seen
            delta += -math.expm1(
                cells * stats.norm.logcdf((details["count_threshold"] - 1) / scale)
            )
    losses = {0.0: 1.0}
    for loss, times in coins.items():
        right = stats.binom(times, 1 / (1 + math.exp(-loss)))
        losses = {
            before + loss * (2 * h - times): p * right.pmf(h)
            for before, p in losses.items()
            for h in range(times + 1)
        }
    for loss, probability in losses.items():
        rest = epsilon - loss
        gaussian = stats.norm.cdf(mu / 2 - rest / mu) - math.exp(rest) * stats.norm.cdf(
            -mu / 2 - rest / mu
        )
        delta += probability * max(gaussian, 0.0)
    return delta


def test_recomputed_delta_agrees_with_an_accountant():
    """Of the Gaussian part, with dp-accounting; and of Laplace noise it is a bound."""
    charges = [
        Charge("a", i, "gaussian", mu=0.1, details={"sum_scale": 10.0, "sum_sensitivity": 1.0})
        for i in range(3)
    ]
    loss = privacy_loss_distribution.from_gaussian_mechanism(10 / math.sqrt(3))
    assert delta_of(charges, 0.7) == pytest.approx(loss.get_delta_for_epsilon(0.7), rel=1e-3)
    charges += [
        Charge(
            "b", i, "laplace", epsilon=0.2, details={"count_scale": 5.0, "count_sensitivity": 1.0}
        )
        for i in range(2)
    ]
    loss = loss.compose(privacy_loss_distribution.from_laplace_mechanism(5.0).self_compose(2))
    assert (
        loss.get_delta_for_epsilon(0.7)
        < delta_of(charges, 0.7)
        < 1.5 * loss.get_delta_for_epsilon(0.7)
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_logged_scales_stay_within_the_budget(case):
    method = DistDP(4, **case)
    points = np.tile(
        blobs(3000, d=2), 3 if method.quadtrees == 2 else 1
    )  # six columns: adaptive cells
    run = method.fit_batch(snap(points), [0, 1])
    delta = 1e-6 if method.delta == "auto" else method.delta
    rho = 2 * math.sqrt(points.shape[1]) if method.rho == "diagonal" else method.rho
    assert run.ledger.budget == Budget(method.epsilon, delta, "rho_bounded", rho)
    assert delta_of(run.ledger.charges, method.epsilon) <= delta * (1 + 1e-3)
    assert run.ledger.spent() <= method.epsilon * (1 + 1e-9)
    assert method.quadtrees != 2 or run.ledger.charges[0].label == "cell_counts"
    if method.variant == "sound":
        assert run.ledger.spent() == pytest.approx(method.epsilon, rel=1e-5)  # all of it is used


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
    together = method.fine_counts == "joint"
    assert [len(parts[kind]) for kind in parts] == [
        1,
        1 if together else 25,
        43 + (method.regions == "true"),
    ]
    for kind, part in parts.items():
        assert delta_of(part, 1 / 3) <= 1e-6 / 3 * (1 + 1e-3), kind
    # Classical noise leaves some of its part, and summaries are calibrated as worst-case coins.
    for part in [parts["cells"]] if together else [[each] for each in parts["cells"]]:
        share = len(parts["cells"])
        assert delta_of(part, 1 / 3 / share) == pytest.approx(1e-6 / 3 / share, rel=1e-3)
    if method.regions == "true":
        # Sizes use up their share of the third part, and summaries stay within the rest.
        share = method.size_share
        (sizes, *rest) = parts["regions"]
        assert sizes.label == "region_sizes" and (sizes.delta == 0) == (method.sizes == "noisy")
        assert delta_of([sizes], share / 3) == pytest.approx(share * 1e-6 / 3, rel=1e-3)
        assert delta_of(rest, (1 - share) / 3) <= (1 - share) * 1e-6 / 3 * (1 + 1e-3)


def test_published_scales_are_the_papers():
    rows = snap(blobs(3000, d=2))
    ledger = DistDP(4, variant="published", rho=0.1).fit_batch(rows, [0]).ledger
    points, cells, sizes = ledger.charges[:3]
    assert points.details["point_scale"] == pytest.approx(
        0.1 * math.sqrt(2 * math.log(1.25 / (1e-6 / 3))) * 3, rel=1e-3
    )
    deviation = math.sqrt(50) / gaussian_mu(1 / 3, 1e-6 / 6)
    assert cells.details["count_scale"] == pytest.approx(deviation)
    assert cells.details["count_threshold"] == pytest.approx(
        1 + deviation * stats.norm.ppf((1 - 1e-6 / 6) ** (1 / 50)), rel=1e-6
    )
    assert cells.mu == pytest.approx(gaussian_mu(1 / 3, 1e-6 / 6)) and cells.delta == pytest.approx(
        1e-6 / 6
    )
    assert sizes.label == "region_sizes" and sizes.details["count_sensitivity"] == pytest.approx(
        math.sqrt(2)
    )
    assert DistDP(4, variant="published").far_factor(3000, 2) == pytest.approx(
        33.8 * math.sqrt(2), rel=2e-3
    )


def test_noisy_sizes_have_no_threshold_and_drop_what_is_not_above_zero(monkeypatch):
    rows = snap(blobs(3000, d=2))
    seen = []
    release = ClippedRegions.release
    summaries = dist_dp_published._summarize

    def told(self, query, **noise):
        answer = release(self, query, **noise)
        if isinstance(query, RegionSizes):
            seen.append((noise["counts"], answer["counts"]))
        return answer

    def summarize(method, assigned, *others):
        seen.append(assigned.roots)
        return summaries(method, assigned, *others)

    monkeypatch.setattr(ClippedRegions, "release", told)
    monkeypatch.setattr(dist_dp_published, "_summarize", summarize)
    run = DistDP(4, variant="published", sizes="noisy", size_share=0.25).fit_batch(rows, [0])
    (noise, noisy), kept = seen
    # Noise for the whole delta of the share, on two sizes that change by one.
    (charge,) = (charge for charge in run.ledger.charges if charge.label == "region_sizes")
    assert charge.mu == pytest.approx(gaussian_mu(0.25 / 3, 0.25e-6 / 3)) and charge.delta == 0
    assert noise.scale / SCALE == pytest.approx(math.sqrt(2) / charge.mu)
    assert (noisy <= 0).any()
    assert kept.tolist() == np.flatnonzero(noisy > 0).tolist()


@pytest.mark.parametrize(("given", "k"), [("auto", 4), (1, 1), (7, 7)])
def test_trees_are_given_a_number_of_clusters(given, k, monkeypatch):
    seen = []

    def noting(self, *args, **options):
        seen.append(options["n_clusters"])
        original(self, *args, **options)

    original = RegionTrees.__init__
    monkeypatch.setattr(RegionTrees, "__init__", noting)
    run = DistDP(4, variant="published", coreset_clusters=given).fit_batch(
        snap(blobs(3000, d=2)), [0]
    )
    assert seen == [k] and run.centers.shape == (1, 4, 2)


@pytest.mark.parametrize("method", [DistDP(4, rho="diagonal"), NoisedPoints(4, rho="diagonal")])
@pytest.mark.parametrize("d", [2, 12])
def test_the_diagonal_protects_any_move(method, d):
    """No point moves farther, and every release has the noise that the largest possible change
    needs.
    """
    points = snap(np.tile(blobs(20_000, d=2), d // 2))
    charges = method.fit_batch(points, [0]).ledger.charges
    most = {
        "noised_points": 2 * math.sqrt(d),
        "total": 2 * math.sqrt(d),
        "region_counts": math.sqrt(2),
    }
    most |= {"soft_counts": math.sqrt(2) + math.sqrt(2.0**d) / SCALE}
    for charge in charges:
        details = charge.details
        if charge.label != "region_sums":  # of twice the radius, as the curator's tests say
            (found,) = [details[name] for name in details if name.endswith("_sensitivity")]
            assert found == pytest.approx(most[charge.label], rel=1e-12), charge.label
    assert method.budget(len(points), d).rho == 2 * math.sqrt(d)
    if isinstance(method, DistDP):
        plain = DistDP(4, rho=2 * math.sqrt(d)).fit_batch(points, [0])
        assert plain.ledger.charges == charges


def test_projected_points_lie_in_their_box():
    rows = snap(blobs(2000))
    narrow, wide, none = (
        NoisedPoints(4, rho=1.0, project=project).fit_batch(rows, [0])
        for project in (0.25, 1e6, None)
    )
    assert np.abs(narrow.centers).max() <= 0.25 * SCALE
    assert (wide.centers == none.centers).all()
    # Noise of sixteen times the half-width: without a projection centers lie far out, and are moved
    # into the domain.
    assert (
        np.abs(none.centers).max() == SCALE
        and np.abs(NoisedPoints(4, rho=1.0).fit_batch(rows, [0]).centers).max() <= SCALE
    )
    assert narrow.ledger.charges == none.ledger.charges


def test_one_record_for_two_is_a_named_flaw():
    rows = snap(blobs(3000, d=2))
    honest, flawed = (
        DistDP(4, variant="published", replacement=which) for which in ("charged", "uncharged")
    )
    assert honest.claim.flaws == () and flawed.claim.flaws == ("F-17",)
    assert DistDP(4, variant="sound", replacement="uncharged").claim.flaws == ()
    charges = {
        which.replacement: which.fit_batch(rows, [0]).ledger.charges for which in (honest, flawed)
    }
    assert {charge.flaw for charge in charges["charged"]} == {""}
    named = {charge.label for charge in charges["uncharged"] if charge.flaw == "F-17"}
    assert named == {"region_counts", "region_sums"}
    scales = {
        which: next(c.details["count_scale"] for c in some if c.label == "region_counts")
        for which, some in charges.items()
    }
    assert scales["charged"] > 1.3 * scales["uncharged"]
    # Two records at the scales that cover one: over the part's budget by far.
    second = [
        type(c)(c.label + "'", c.round, c.mechanism, c.mu, c.epsilon, 0.0, c.details)
        for c in charges["uncharged"][3:]
    ]
    assert delta_of([*charges["uncharged"][3:], *second], 1 / 6) > 5 * 1e-6 / 6


def test_noised_points_spend_the_budget_on_one_release():
    rows = snap(blobs(500))
    for calibration, epsilon in (("classical", 1.0), ("analytic", 1.0), ("analytic", 8.0)):
        run = NoisedPoints(4, calibration=calibration, epsilon=epsilon).fit_batch(rows, [0])
        (charge,) = run.ledger.charges
        assert charge.label == "noised_points"
        if calibration == "classical":
            assert charge.details["point_scale"] == pytest.approx(
                0.05 * math.sqrt(2 * math.log(1.25e6)), rel=1e-3
            )
            assert gdp_delta(charge.mu, 1.0) < 1e-6
        else:
            assert run.ledger.spent() == pytest.approx(epsilon, rel=1e-6)


# What comes out


def cost(points, centers, p=2):
    return float((cdist(points, centers).min(axis=1) ** p).sum())


@pytest.mark.parametrize("variant", ["published", "sound"])
def test_without_distance_to_protect_it_is_plain_clustering(variant):
    """As rho goes to 0 nearly all points stay as they are, and the cost is scikit-learn's, or that
    of k-median.
    """
    points = to_unit(snap(blobs(2000, d=2, k=6, spread=0.05, seed=3)))
    plain = KMeans(6, n_init=5, random_state=0).fit(points)
    fitted = DistDP(6, variant=variant, rho=1e-6, n_init=5).fit_batch(snap(points), [0])
    assert cost(points, to_unit(fitted.centers[0])) == pytest.approx(plain.inertia_, rel=1e-4)
    median = KMedian(6, n_init=5).fit_batch(snap(points), [0])
    fitted = DistDP(6, variant=variant, p=1, rho=1e-6, n_init=5).fit_batch(snap(points), [0])
    assert cost(points, to_unit(fitted.centers[0]), 1) == pytest.approx(
        cost(points, to_unit(median.centers[0]), 1), rel=1e-3
    )


@pytest.mark.parametrize(
    ("d", "rho", "strategy"),
    [
        (2, 0.0005, "groups"),
        (2, 0.5, "grid"),
        (6, 0.2, "cells"),
        (12, 0.002, "groups"),
        (12, 1.0, "tree"),
    ],
)
def test_sound_chooses_its_strategy_by_public_values(d, rho, strategy):
    method = DistDP(4, rho=rho)
    points = snap(blobs(20_000, d=2) if d == 2 else np.tile(blobs(20_000, d=2), d // 2))
    labels = {
        "groups": {"noised_points", "group_sums"},
        "grid": {"soft_counts"},
        "cells": {"cell_counts", "region_counts"},
        "tree": {"total", "region_counts", "region_sums"},
    }
    assert method.plan(20_000, d, rho).strategy == strategy
    assert {charge.label for charge in method.fit_batch(points, [0]).ledger.charges} == labels[
        strategy
    ]


def test_sound_cells_find_clusters_of_different_sizes():
    points = np.tile(blobs(20_000, d=2, k=4, spread=0.01, seed=1), 3)
    points[::4] = np.clip(
        points[::4] + 0.2 * np.random.default_rng(0).standard_normal((5000, 6)), -1, 1
    )
    plain = KMeans(4, n_init=5, random_state=0).fit(points).inertia_
    method = DistDP(4, rho=1.0, n_init=5)
    assert method.plan(*points.shape, 1.0).strategy == "cells"
    run = method.fit_batch(snap(points), range(3))
    assert np.median([cost(points, to_unit(centers)) for centers in run.centers]) < 1.3 * plain


@pytest.mark.parametrize("rho", [0.001, 0.02, 0.05, 1.0])
def test_sound_is_close_to_non_private_clustering_in_few_columns(rho):
    points = blobs(5000, d=2, k=6, spread=0.06, seed=1)
    plain = KMeans(6, n_init=10, random_state=0).fit(points).inertia_
    run = DistDP(6, rho=rho, n_init=5).fit_batch(snap(points), range(5))
    assert np.median([cost(points, to_unit(centers)) for centers in run.centers]) < 1.1 * plain


def test_sound_tree_finds_separated_clusters():
    points = np.tile(blobs(50_000, d=2, k=4, spread=0.05, seed=1), 6)
    plain = KMeans(4, n_init=5, random_state=0).fit(points).inertia_
    method = DistDP(4, rho=1.0, n_init=5)
    assert method.plan(*points.shape, 1.0).strategy == "tree"
    run = method.fit_batch(snap(points), range(3))
    assert np.median([cost(points, to_unit(centers)) for centers in run.centers]) < 1.5 * plain


def test_published_serves_points_that_are_near_and_far():
    """A cluster large enough for regions, and far points that stay as they were released."""
    rng = np.random.default_rng(0)
    points = np.concatenate([0.002 * rng.standard_normal((20_000, 2)), [[0.8, 0.8]] * 40])
    run = DistDP(2, variant="published", rho=1e-4, n_init=3).fit_batch(snap(points), [0])
    centers = to_unit(run.centers[0])
    assert np.abs(centers - [[0, 0], [0.8, 0.8]]).max() < 0.05


@pytest.mark.parametrize("case", [*CASES[:3], {"variant": "published", "p": 1, "rho": 0.001}])
def test_order_and_shards_do_not_matter(case):
    points = snap(blobs(1500, d=3))
    method = DistDP(4, **case)
    whole = method.fit_batch(points, [5]).centers
    shuffled = np.random.default_rng(0).permutation(points)
    assert (method.fit_batch(shuffled, [5]).centers == whole).all()
    assert (
        method.fit_batch([shuffled[:7], shuffled[7:8], shuffled[8:]], [5]).centers == whole
    ).all()


@pytest.mark.parametrize("method", [DistDP, NoisedPoints, KMedian])
def test_conformance(method):
    outcomes = conformance(method)
    assert [outcome for outcome in outcomes if outcome.error] == []
    assert len(outcomes) == len(CHECKS) * len(method.claims)


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
        ({"ball": 0}, "ball=0 must be a positive number or one of 'capped', 'printed'"),
        ({"ball": "big"}, "ball='big' must be"),
        ({"least_region": -1}, "least_region=-1 must be"),
        ({"sizes": "exact"}, "sizes='exact' is unknown, choose one of 'thresholded', 'noisy'"),
        ({"fine_counts": "even"}, "fine_counts='even' is unknown, choose one of 'joint', 'split'"),
        ({"coreset_clusters": 0}, "coreset_clusters=0 must be 'auto' or an integer of at least 1"),
        ({"coreset_clusters": 1.5}, "coreset_clusters=1.5 must be 'auto' or an integer"),
        ({"coreset_clusters": True}, "coreset_clusters=True must be 'auto' or an integer"),
        ({"size_share": 0}, r"size_share=0 must be a number in \(0, 1\)"),
        ({"size_share": 1.0}, r"size_share=1.0 must be a number in \(0, 1\)"),
        ({"size_share": "half"}, r"size_share='half' must be a number in \(0, 1\)"),
        ({"quadtrees": 0}, "quadtrees=0 must be an integer from 1 to 64"),
        ({"finest": 5}, "finest=5 must be above coarse=5"),
        ({"finest": 19}, "finest=19 must be an integer from 1 to 18"),
        ({"cells": 0}, "cells=0 must be 'auto' or an integer"),
        ({"points_share": 1.0}, r"points_share=1.0 must be a number in \(0, 1\)"),
        ({"n_init": 0}, "n_init=0 must be an integer of at least 1"),
        ({"n_clusters": 51}, "n_clusters=51 must be at most the number of points n=50"),
        (
            {"variant": "published", "epsilon": 60.0},
            "calibration='classical' gives too little noise",
        ),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        DistDP(**{"n_clusters": 3, **parameters}).fit_batch(snap(blobs(50)), [0])


@pytest.mark.parametrize("project", [0, -1.0, math.nan, math.inf, "far", True])
def test_a_bad_projection_is_refused(project):
    with pytest.raises(
        ValueError, match=r"project=.* must be None or a positive finite number, in half-widths"
    ):
        NoisedPoints(3, project=project).fit_batch(snap(blobs(50)), [0])


def test_values_that_are_not_finite_are_moved_into_the_domain():
    for value, place in ((math.nan, 0.0), (math.inf, 1.0), (-math.inf, -1.0)):
        points = blobs(50)
        points[3, 1] = value
        fitted = DistDP(3, random_state=0).fit(points)
        points[3, 1] = place
        expected = DistDP(3, random_state=0).fit(points)
        assert (fitted.cluster_centers_ == expected.cluster_centers_).all()


def test_too_little_noise_is_refused():
    with pytest.raises(
        ValueError, match="calibration='classical' gives too little noise for epsilon=60"
    ):
        NoisedPoints(3, epsilon=60.0).fit(blobs(50))


@pytest.mark.parametrize(
    "case", [{"variant": "published"}, {"variant": "published", "sizes": "noisy"}, {}], ids=str
)
def test_too_small_a_budget_is_refused_with_what_would_do(case):
    rows = snap(blobs(50))
    method = DistDP(3, epsilon=0.01, rho=1.0, **case)
    with pytest.raises(
        ValueError, match=r"epsilon=0.01 with n=50 points and rho=1.0 is too little"
    ) as caught:
        method.fit_batch(rows, [0])
    words = str(caught.value).split()
    n, epsilon = (float(words[words.index(name) + 2].rstrip(",")) for name in ("n", "epsilon"))
    method.set_params(epsilon=epsilon).fit_batch(rows, [0])
    method.set_params(epsilon=epsilon / 1.1)
    with pytest.raises(ValueError, match="is too little"):
        method.fit_batch(rows, [0])
    method.set_params(epsilon=0.01).fit_batch(np.resize(rows, (int(n), 2)), [0])
    with pytest.raises(ValueError, match="is too little"):
        method.fit_batch(np.resize(rows, (int(n) - 1, 2)), [0])


# k-median


@pytest.mark.parametrize("seed", range(5))
def test_one_median_is_the_geometric_median(seed):
    rng = np.random.default_rng(seed)
    points = SCALE * rng.standard_normal((40, 3))
    weights = rng.integers(1, 9, 40).astype(float)

    def total(center):
        return float(weights @ np.linalg.norm(points - center, axis=1))

    found = weighted_kmedian(points, weights, 1, 1, 0)[0]
    best = optimize.minimize(
        total, points.mean(axis=0), method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-6}
    )
    assert total(found) <= best.fun * (1 + 1e-5)


def test_a_weight_is_that_many_copies():
    rng = np.random.default_rng(0)
    points = SCALE * np.concatenate([rng.normal(c, 0.02, (30, 2)) for c in (-0.5, 0.0, 0.6)])
    weights = rng.integers(1, 5, len(points))
    weighted = weighted_kmedian(points, weights, 3, 5, 0)
    copied = weighted_kmedian(np.repeat(points, weights, axis=0), np.ones(weights.sum()), 3, 5, 0)
    assert np.abs(weighted - copied).max() < 2e-3 * SCALE


def test_medians_stand_where_means_are_dragged_off():
    points = SCALE * np.array([[0.0]] * 5 + [[0.9]] * 2)
    assert weighted_kmedian(points, np.ones(7), 1, 1, 0)[0, 0] == pytest.approx(0, abs=2)
    assert len(weighted_kmedian(points, np.ones(7), 3, 1, 0)) == 2  # no more than there are points
