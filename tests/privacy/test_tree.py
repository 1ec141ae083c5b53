"""Cells over private points: kernels, sensitivities, selections, accounting, refusals.

Statistical tests use fixed seeds and fail by luck less than once in a million runs: thresholds
are five standard errors or a p-value of 1e-6.
"""

import math
from inspect import signature

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from pkm.compute import (
    Points,
    averaged_gaps,
    column_sums,
    digitize,
    histogram,
    hyperplane_sides,
    stable_partition,
)
from pkm.methods import METHODS, DistDP, NoisedPoints, load_method
from pkm.privacy import (
    SCALE,
    BoundedLaplace,
    BoxGrid,
    Budget,
    BudgetExceeded,
    Charge,
    Curator,
    Exponential,
    Gaussian,
    Laplace,
    Ledger,
    NoiseStreams,
    SplitScore,
    gaussian_mu,
    gdp_epsilon,
    largest_multiple,
)
from pkm.privacy.tree import PartitionTree

CLASSES = [load_method(name) for name in METHODS]

ROOMY = Budget(1e6, 0.5)


def grid_points(seed, n=60, d=3, step=1):
    """Random grid points; a coarse step makes ties."""
    rng = np.random.default_rng(seed)
    return rng.integers(-SCALE // step, SCALE // step + 1, (n, d)) * step


def curator(points, seed=0, budget=ROOMY, domain=None):
    return Curator(points, Ledger(budget), NoiseStreams([seed]), domain)


def grown(points, seed, splits=6, grid=None):
    """A partition after some random public splits."""
    partition = curator(points).partition(grid or BoxGrid.of_intervals(2 / 9))
    rng = np.random.default_rng(seed)
    leaves = [0]
    for _ in range(splits):
        cell = leaves.pop(rng.integers(len(leaves)))
        leaves += partition.split(
            cell, int(rng.integers(points.shape[1])), int(rng.integers(1, 18))
        )
    return partition, leaves


def members(partition, cell):
    return np.concatenate([shard.rows[shard.members(cell)] for shard in partition._shards]).astype(
        int
    )


# Kernels


@pytest.mark.parametrize("n_thresholds", [1, 5, 255, 256, 4000])
def test_codes_count_the_thresholds_below(n_thresholds):
    points = grid_points(1, n=200, d=2)
    rng = np.random.default_rng(n_thresholds)
    thresholds = np.sort(rng.choice(np.arange(-SCALE, SCALE), n_thresholds, replace=False))
    points[:n_thresholds, 0] = thresholds[:200]  # points on a threshold belong below it
    codes = digitize(Points.prepare(points), tuple(thresholds.tolist()))
    assert (codes == (points[:, :, None] > thresholds).sum(axis=2)).all()
    assert codes.dtype == (np.uint8 if n_thresholds <= 255 else np.uint16)


def test_divide_is_stable_and_histogram_and_sums_are_exact():
    points = Points.prepare(grid_points(2, n=500))
    codes = digitize(points, tuple(range(-60000, 60000, 7000)))
    order = np.random.default_rng(0).permutation(500).astype(np.int32)
    kept = order.copy()
    left = stable_partition(codes, order, 1, 8, np.empty(500, np.int32))
    mask = codes[kept, 1] < 8
    assert left == mask.sum() and (order == np.concatenate([kept[mask], kept[~mask]])).all()
    counts = np.zeros((3, 19), np.uint32)
    histogram(codes, order[:left], counts)
    for h in range(3):
        assert (counts[h] == np.bincount(codes[order[:left], h], minlength=19)).all()
    assert (
        column_sums(points.rows, order[:left]) == points.rows[order[:left]].astype(int).sum(axis=0)
    ).all()


def test_signs_are_those_of_exact_integer_products():
    points = grid_points(3, n=3000, d=7)
    rng = np.random.default_rng(3)
    normals = np.rint(rng.standard_normal((9, 7)) * SCALE).astype(int)
    about = points[5]  # a point on all hyperplanes: its products are zero and count as not negative
    expected = (points.astype(object) @ normals.T.astype(object)) >= about.astype(
        object
    ) @ normals.T.astype(object)
    assert (hyperplane_sides(Points.prepare(points), normals, about) == expected.astype(int)).all()
    with pytest.raises(ValueError, match=r"at most 2\*\*20"):
        hyperplane_sides(Points.prepare(points), normals * 1000, about)


@given(st.integers(0, 10**6), st.integers(1, 3), st.sampled_from([1, 4096, 32768]))
@settings(max_examples=30, deadline=None)
def test_gaps_are_averaged_rank_by_rank_for_any_shards(seed, d, step):
    points = grid_points(seed, n=12, d=d, step=step)
    gaps = np.sort(np.diff(np.sort(points, axis=0), axis=0).mean(axis=1))
    for shards in ([points], [points[:5], points[5:6], points[6:]]):
        assert averaged_gaps(tuple(Points.prepare(shard) for shard in shards)) == pytest.approx(
            gaps, rel=1e-5, abs=1e-3
        )


def test_gaps_are_finer_than_the_grid_where_points_were():
    """Points crowded in a thousandth of the range: their gaps are far below a grid step, and known
    to 2**-16 of one.
    """
    raw = np.random.default_rng(0).uniform(0, 0.002, (5000, 3))
    points, _ = Points.from_box(raw, np.full(3, -1.0), np.ones(3))
    gaps = np.sort(np.diff(np.sort(raw, axis=0), axis=0).mean(axis=1)) * SCALE
    assert gaps[-1] < 0.3 and averaged_gaps((points,)) == pytest.approx(gaps, abs=2 * 2.0**-16)
    assert np.unique(averaged_gaps((Points.prepare(points.rows.astype(int)),))).size < 10
    ties, _ = Points.from_box(
        np.repeat([[0.1], [0.2]], 50, axis=0), np.array([0.0]), np.array([1.0])
    )
    assert (averaged_gaps((ties,))[:-1] == 0).all()


# Grid and cells


def test_intervals_cover_the_domain_from_its_lower_end():
    grid = BoxGrid.of_intervals(0.3)  # six whole intervals, a rest of 0.2
    assert grid.n_bins == 13 and list(grid.boundaries) == [1, 3, 5, 7, 9, 11]
    middles = [grid.thresholds[b - 1] / SCALE for b in grid.boundaries]
    assert middles == pytest.approx([-1 + 0.3 * (i + 0.5) for i in range(6)], abs=2**-15)
    assert BoxGrid.of_intervals(2 / 127).n_bins == 255  # the codes of 127 intervals fit a byte
    assert BoxGrid.of_intervals(9.0) == BoxGrid.of_intervals(
        2.0
    )  # wider than the domain: one interval, split in the middle
    assert BoxGrid.of_intervals(1e-12).n_bins == 2 * 4096 + 1
    with pytest.raises(ValueError, match="width=0 must be positive"):
        BoxGrid.of_intervals(0)


@given(st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_cells_hold_the_points_of_their_box(seed):
    points = grid_points(seed, step=4096)
    partition, leaves = grown(points, seed)
    assert sum(len(members(partition, cell)) for cell in leaves) == len(points)
    for cell in leaves:
        lower, upper = partition.box(cell)
        inside = members(partition, cell)
        assert ((inside >= lower) & (inside <= upper)).all()
        assert ((lower <= partition.midpoint(cell)) & (partition.midpoint(cell) <= upper)).all()


def test_a_split_outside_a_cell_leaves_its_box_alone():
    partition = curator(grid_points(0)).partition(BoxGrid.of_intervals(0.5))
    low, _ = partition.split(0, 0, 3)
    empty, full = partition.split(partition.split(0 + low, 1, 3)[0], 0, 5)[::-1]
    assert (
        len(members(partition, empty)) == 0
        and (partition.box(empty)[1] >= partition.box(empty)[0]).all()
    )
    assert all(
        (one == other).all()
        for one, other in zip(partition.box(empty), partition.box(full), strict=True)
    )


def test_answers_do_not_depend_on_shards_or_order():
    points = grid_points(7, n=300)
    score = SplitScore(0.3, 1 / 12, 5.0, True)

    def answers(given):
        partition = curator(given, seed=3).partition(BoxGrid.of_intervals(0.1))
        split = partition.choose_splits([0], [300.0], score, Exponential(0.5))[0]
        cells = partition.split(0, *split)
        about = np.array([partition.midpoint(cell) for cell in cells])
        return (
            split,
            partition.counts(cells, Laplace(3.0 * SCALE)),
            partition.sums(cells, 2.0, about),
        )

    one = answers(points)
    for other in (points[::-1], [points[:10], points[10:11], points[11:]]):
        split, counts, sums = answers(other)
        assert split == one[0] and (counts == one[1]).all() and (sums == one[2]).all()


# Sensitivities on random neighbors


@given(st.integers(0, 10**6), st.integers(0, 59))
@settings(max_examples=40, deadline=None)
def test_a_record_changes_one_cell_by_one_and_its_sum_by_no_more_than_the_reach(seed, gone):
    points = grid_points(seed)
    (one, leaves) = grown(points, seed)
    (other, same) = grown(np.delete(points, gone, axis=0), seed)
    assert leaves == same
    rng = np.random.default_rng(seed)
    about = rng.integers(-2 * SCALE, 2 * SCALE, (len(leaves), 3))
    reach = one._sum_sensitivities(leaves, about, None)
    changed = 0
    for i, cell in enumerate(leaves):
        mine = members(one, cell)
        theirs = members(other, cell)
        changed += len(mine) - len(theirs)
        step = (mine - about[i]).sum(axis=0) - (theirs - about[i]).sum(axis=0)
        assert math.sqrt(int(step @ step)) <= reach[i] * (1 + 1e-12)
    assert changed == 1


@given(
    st.integers(0, 10**6),
    st.booleans(),
    st.floats(0.05, 0.45),
    st.floats(0.0, 1.0),
    st.floats(0.1, 20.0),
    st.floats(1.0, 60.0),
)
@settings(max_examples=200, deadline=None)
def test_a_record_moves_no_two_scores_apart_by_more_than_the_spread(
    seed, both, q, more, weight, size
):
    """Exhaustive over the record's place; t anywhere between 2 q and 1."""
    score = SplitScore(2 * q + more * (1 - 2 * q), q, weight, both)
    counts = np.random.default_rng(seed).integers(0, 6, 12)

    def scores(c):
        below = np.concatenate([[0], c.cumsum()])
        return score(below[1:-2:2], below[2:-1:2] - below[0:-3:2], below[-1], size)

    before = scores(counts)
    for place in range(12):
        step = scores(counts + (np.arange(12) == place)) - before
        assert step.max() - step.min() <= score.sensitivity / size * (1 + 1e-9)


def test_the_spread_is_attained():
    """A record inside the emptiest interval and outside the outer ranks of another candidate: no
    slack is left.
    """
    score = SplitScore(0.3, 1 / 12, 5.0, True)
    size = 120.0
    counts = np.array(
        [2, 2, 0, 116]
    )  # candidate 1: five below, inside the outer ranks; the record lands beside both
    below = np.concatenate([[0], counts.cumsum()])

    def scores(left, inside):
        return score(np.array(left, float), np.array(inside, float), float(below[-1]), size)

    before = scores([4, 60], [4, 10])
    after = scores([5, 60], [4, 11])
    step = after - before
    assert step.max() - step.min() == pytest.approx(score.sensitivity / size, rel=1e-9)


def test_scores_follow_the_definitions():
    score = SplitScore(0.3, 1 / 12, 5.0, True)
    left = np.array([0.0, 10.0, 60.0, 110.0])
    assert score(left, np.zeros(4), 120.0, 120.0) == pytest.approx([5.0, 5.3, 6.0, 5.3])
    assert score(np.array([60.0]), np.array([30.0]), 120.0, 120.0) == pytest.approx([1 + 5 * 0.75])
    assert (score(left, np.zeros(4), 120.0, 0.5) == 0).all()
    published = SplitScore(0.3, 1 / 12, 5.0, False)
    assert published(np.array([130.0]), np.array([0.0]), 140.0, 120.0) == pytest.approx([5 - 0.3])


@pytest.mark.parametrize(
    ("t", "q", "weight"), [(0.1, 0.1, 5), (1.1, 0.1, 5), (0.3, 0, 5), (1, 0.5, 5), (0.3, 0.1, 0)]
)
def test_scores_without_a_bound_are_refused(t, q, weight):
    with pytest.raises(ValueError, match="must"):
        SplitScore(t, q, weight, True)


def test_rank_averaged_gaps_have_no_bounded_sensitivity():
    """The paper's Lemma 1 holds for one column only: here one record moves the rank of a value by
    thousands.

    In the first column every second gap is 2, in the second the others are, so that the averages
    are all 1. A record below all others in one column shifts that column's gaps by one rank, and
    the averages become 0 and 2.
    """
    n = 2000
    first = np.repeat(np.arange(n // 2) * 2, 2)
    second = np.concatenate([[0], np.repeat(np.arange(n // 2) * 2 + 2, 2)])[:n]
    points = np.column_stack([first, second]) - n
    one = np.vstack([points, [-SCALE, SCALE]])

    def share_below(values, limit):
        return int(np.searchsorted(averaged_gaps((Points.prepare(values),)), limit, side="right"))

    assert share_below(one, 0.5) - share_below(points, 0.5) > 900  # the claim: at most 2

    for seed in range(50):  # one column: at most two gaps change
        column = grid_points(seed, n=40, d=1)
        shorter = np.delete(column, seed % 40, axis=0)
        for limit in (10, 1000, 5000):
            assert abs(share_below(column, limit) - share_below(shorter, limit)) <= 2


# Mechanisms


@pytest.mark.statistical
def test_selection_has_the_laws_probabilities():
    exponents = np.array([0.0, 1.5, -2.0, 0.5, -np.inf, 1.0])
    uniforms = NoiseStreams([11]).uniform(("x", 0), (20_000,))[0]
    drawn = [Exponential(1.0).choose(exponents, uniform) for uniform in uniforms]
    drawn = np.bincount(drawn, minlength=6)
    weights = np.exp(exponents)
    assert drawn[4] == 0
    expected = 20_000 * weights / weights.sum()
    assert stats.chisquare(drawn[weights > 0], expected[weights > 0]).pvalue > 1e-6


def test_selection_survives_scores_that_cannot_be_exponentiated():
    for uniform in (2.0**-54, 0.5, 1 - 2.0**-53):
        assert Exponential(1.0).choose(np.array([-1e6, 1e6, 0.0]), uniform) == 1
        assert Exponential(1.0).choose(np.array([-np.inf, 1e6, -np.inf]), uniform) == 1
        assert Exponential(1.0).choose(np.full(3, -np.inf), uniform) in range(3)
    with pytest.raises(ValueError, match="epsilon=0 of a selection"):
        Exponential(0)


@given(st.lists(st.floats(-60, 60), min_size=1, max_size=30), st.integers(0, 10**6))
def test_selection_inverts_the_distribution_function(exponents, seed):
    exponents = np.array(exponents)
    uniform = np.random.default_rng(seed).uniform(2.0**-54, 1)
    weights = [math.exp(each - exponents.max()) for each in exponents]
    i = Exponential(1.0).choose(exponents, uniform)
    below = math.fsum(weights[:i])
    total = math.fsum(weights)
    assert below / total - 1e-14 <= uniform <= (below + weights[i]) / total + 1e-14


@pytest.mark.statistical
@pytest.mark.parametrize("secure", [False, True])
def test_gumbel_and_uniform_streams_have_their_laws(secure):
    streams = NoiseStreams([5], secure=secure)
    # Fresh entropy cannot be seeded; a fresh sample fails a test at 1e-6 once in a million runs.
    assert stats.kstest(streams.gumbel(("a", 0), (40_000,))[0], stats.gumbel_r.cdf).pvalue > 1e-6
    uniform = streams.uniform(("b", 0), (40_000,))[0]
    assert (
        stats.kstest(uniform, stats.uniform.cdf).pvalue > 1e-6
        and 0 < uniform.min()
        and uniform.max() < 1
    )


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 3.0])
@pytest.mark.parametrize("width", [1.0, 2.5, 40.0, 1000.0])
def test_bounded_laplace_is_private_by_its_density(epsilon, width):
    """Exact: the log ratio of the densities of neighboring values is largest at the ends, and at
    most epsilon.
    """
    mechanism = BoundedLaplace(epsilon, 1.0)
    b = float(mechanism.scale(np.array(width)))

    def log_normalizer(v):
        return math.log(-math.expm1(-v / b) - math.expm1(-(width - v) / b))

    ratios = [
        abs(-abs(z - v) / b - log_normalizer(v) + abs(z - v - 1) / b + log_normalizer(v + 1))
        for v in np.linspace(0, width - 1, 41)
        for z in np.linspace(0, width, 41)
    ]
    assert max(ratios) <= epsilon * (1 + 1e-6)
    assert max(ratios) > 0.5 * epsilon  # the scale is not wastefully wide


@pytest.mark.statistical
def test_bounded_laplace_has_the_moments_of_its_law():
    mechanism = BoundedLaplace(0.5, 1000.0)
    lower = -4000.0
    upper = 9000.0
    value = 500
    drawn = mechanism.add(
        np.full((1, 60_000), value), np.array(lower), np.array(upper), NoiseStreams([1]), ("x", 0)
    )[0]
    b = float(mechanism.scale(np.array(upper - lower)))
    mass, mean, square = (
        integrate.quad(
            lambda z, p=p: z**p * math.exp(-abs(z - value) / b), lower, upper, points=[value]
        )[0]
        for p in (0, 1, 2)
    )
    mean, sd = mean / mass, math.sqrt(square / mass - (mean / mass) ** 2)
    assert drawn.min() >= lower and drawn.max() <= upper
    assert drawn.mean() == pytest.approx(mean, abs=5 * sd / math.sqrt(60_000))
    assert drawn.std() == pytest.approx(sd, rel=0.02)


def test_bounded_sums_stay_inside_and_are_charged_per_coordinate():
    points = grid_points(4, n=50, d=2)
    door = Curator(points, Ledger(Budget(10.0)), NoiseStreams([1, 2]))
    centers = np.array([[[0, 0], [SCALE, SCALE]]] * 2)
    about = np.array([-SCALE, -SCALE])
    noise = BoundedLaplace(0.01, 2.0 * SCALE)
    counts, sums = door.counts_and_bounded_sums(
        centers, count_noise=Laplace(20.0 * SCALE), sum_noise=noise, origin=about
    )
    assert (counts >= SCALE // 2).all()
    assert (sums >= 0).all() and (sums <= counts[:, :, None] * 2 + 1).all()
    assert door._ledger.spent() == pytest.approx(1 / 20 + 2 * 0.01)
    with pytest.raises(ValueError, match="sensitivity=65536"):
        door.counts_and_bounded_sums(
            centers, count_noise=Laplace(SCALE), sum_noise=BoundedLaplace(0.01, SCALE), origin=about
        )


# What is charged


def test_every_release_of_a_partition_is_charged_before_it_is_drawn():
    door = curator(grid_points(0), budget=Budget(1.0, 1e-6))
    partition = door.partition(BoxGrid.of_intervals(0.25))
    partition.counts([0], Laplace(SCALE / 0.2))
    partition.choose_splits(
        [0], [60.0], SplitScore(0.3, 0.1, 5.0, True), Exponential(0.3), delta=1e-8
    )
    partition.counts([], Laplace(SCALE / 0.2))  # nothing asked, but the schedule is paid for
    mu = gaussian_mu(0.2, 5e-7)
    partition.sums([0], 1 / mu, np.zeros((1, 3), int))
    labels = [
        (charge.label, charge.round, charge.epsilon, charge.mu) for charge in door._ledger.charges
    ]
    assert labels == [
        ("cell_counts", 0, pytest.approx(0.2), 0),
        ("splits", 0, 0.3, 0),
        ("cell_counts", 1, pytest.approx(0.2), 0),
        ("cell_sums", 0, 0, pytest.approx(mu)),
    ]
    with pytest.raises(BudgetExceeded):
        partition.counts([0], Laplace(SCALE / 0.5))


@pytest.mark.statistical
@pytest.mark.parametrize("kind", [Gaussian, Laplace])
def test_noise_on_counts_and_sums_has_the_scale_that_is_charged(kind):
    points = grid_points(1, n=40, d=2)
    reps = 400
    counts = []
    sums = []
    for seed in range(reps):
        partition = curator(points, seed=seed).partition(BoxGrid.of_intervals(0.25))
        counts.append(partition.counts([0], kind(3.0 * SCALE))[0])
        sums.append(partition.sums([0], 2.0, np.zeros((1, 2), int))[0] - points.sum(axis=0))
    law = math.sqrt(2) if kind is Laplace else 1.0
    # Relative standard error of a standard deviation over N values: sqrt((kurtosis - 1) / 4 N),
    # kurtosis 6 or 3.
    kurtosis = 6 if kind is Laplace else 3
    assert np.std(counts) == pytest.approx(3 * law, rel=5 * math.sqrt((kurtosis - 1) / (4 * reps)))
    assert np.mean(counts) == pytest.approx(40, abs=5 * 3 * law / math.sqrt(reps))
    reach = math.sqrt(2) * SCALE
    assert np.std(sums) == pytest.approx(2 * reach, rel=5 / math.sqrt(4 * reps))
    assert np.mean(sums) == pytest.approx(0, abs=5 * 2 * reach / math.sqrt(2 * reps))


@pytest.mark.statistical
def test_gap_percentile_carries_its_flaw_and_has_the_laws_distribution():
    points = np.array([[0, 0], [SCALE // 4, SCALE // 2], [SCALE // 2, SCALE]])
    door = curator(points)
    door.gap_percentile(65.0, 0.04)
    (charge,) = door._ledger.charges
    assert charge.flaw == "F-13" and charge.epsilon == 0.04 and charge.to_dict()["flaw"] == "F-13"
    door = curator(points[:, :1])
    door.gap_percentile(65.0, 0.04)
    assert door._ledger.charges[0].flaw == ""
    # Gaps: 3/8 twice, in half-widths. Intervals (0, 3/8), (3/8, 3/8), (3/8, 2); ranks 0, 1, 2;
    # target 0.65 * 2.
    drawn = np.array([curator(points, seed=s).gap_percentile(65.0, 4.0) for s in range(4000)])
    weights = np.exp([-1.3, -0.7]) * [3 / 8, 2 - 3 / 8]
    below = weights[0] / weights.sum()
    assert (drawn < 3 / 8).mean() == pytest.approx(
        below, abs=5 * math.sqrt(below * (1 - below) / 4000)
    )
    assert drawn.min() >= 0 and drawn.max() <= 2
    assert stats.kstest(drawn[drawn > 3 / 8], stats.uniform(3 / 8, 2 - 3 / 8).cdf).pvalue > 1e-6


@pytest.mark.parametrize(
    "points", [np.zeros((1, 2), int), np.zeros((5, 2), int), np.array([[-SCALE], [SCALE]])]
)
def test_gap_percentile_is_defined_for_ties_and_single_points(points):
    assert 0 <= curator(points).gap_percentile(65.0, 0.04) <= 2


def test_overlapping_and_repeated_cells_are_refused():
    partition = curator(grid_points(0)).partition(BoxGrid.of_intervals(0.25))
    low, high = partition.split(0, 0, 7)
    lower, _ = partition.split(low, 1, 7)
    for cells, message in (
        ([0, high], "cells 0 and 2 overlap"),
        ([lower, 0], "overlap"),
        ([low, low], "named once"),
    ):
        with pytest.raises(ValueError, match=message):
            partition.counts(cells, Laplace(SCALE))
    with pytest.raises(ValueError, match="cell=0 is split already"):
        partition.split(0, 1, 3)
    with pytest.raises(ValueError, match="feature=3"):
        partition.split(high, 3, 3)
    assert partition._charge.__self__._ledger.charges == ()  # nothing was paid for


def test_ill_posed_questions_are_refused_before_they_are_charged():
    points = grid_points(0)
    door = curator(points)
    partition = door.partition(BoxGrid.of_intervals(0.25))
    with pytest.raises(ValueError, match=r"radius=1\.0 must cover"):
        partition.sums([0], 1.0, np.zeros((1, 3), int), radius=1.0)
    with pytest.raises(ValueError, match="grid integers of shape"):
        partition.sums([0], 1.0, np.zeros((1, 3)))
    with pytest.raises(ValueError, match="margin=-1 must not be negative"):
        partition.choose_splits(
            [0], [60.0], SplitScore(0.3, 0.1, 5.0, True), Exponential(0.3), margin=-1
        )
    with pytest.raises(ValueError, match="scale="):
        partition.sums([0], math.inf, np.zeros((1, 3), int))
    assert door._ledger.charges == ()
    for query in (
        lambda d: d.partition(BoxGrid.of_intervals(0.25)),
        lambda d: d.hyperplanes(np.ones((1, 3), int), np.zeros(3, int)),
        lambda d: d.gap_percentile(65.0, 0.1),
    ):
        with pytest.raises(ValueError, match="needs a ledger"):
            query(Curator(points, None, NoiseStreams([0])))
        with pytest.raises(ValueError, match="one replicate at a time"):
            query(Curator(points, Ledger(ROOMY), NoiseStreams([0, 1])))


def test_hyperplane_cells_need_the_whole_domains_radius():
    partition = curator(grid_points(0)).hyperplanes(np.ones((2, 3), int), np.zeros(3, int))
    cells = partition.split(0, 0)
    assert isinstance(partition, PartitionTree) and all(
        (partition.box(c)[1] == SCALE).all() for c in cells
    )
    assert (members(partition, cells[1]).sum(axis=1) >= 0).all()
    assert (members(partition, cells[0]).sum(axis=1) < 0).all()


# Ledger: plain sums, mixtures, calibrated schedules


def test_a_schedule_is_stretched_to_its_budget_and_no_further():
    mus = [0.01, 0.02, 0.1]
    epsilons = [0.01, 0.02, 0.05]
    factor = largest_multiple(mus, epsilons, 1.0, 1e-6)
    ledger = Ledger(Budget(1.0, 1e-6))
    for i, mu in enumerate(mus):
        ledger.charge(Charge("g", i, "gaussian", mu=factor * mu))
    for i, epsilon in enumerate(epsilons):
        ledger.charge(Charge("e", i, "exponential", epsilon=factor * epsilon))
    assert ledger.spent() == pytest.approx(1.0, rel=1e-4) and ledger.spent() <= 1.0 + 1e-9
    with pytest.raises(BudgetExceeded):
        ledger.charge(Charge("e", 9, "exponential", epsilon=0.01))
    with pytest.raises(ValueError, match="must not all be zero"):
        largest_multiple([0.0], [], 1.0, 1e-6)
    assert largest_multiple([], [0.5, 0.5], 1.0, 1e-9) == pytest.approx(1.0, rel=1e-3)


def test_the_plain_sum_lets_nothing_through_that_the_composition_would_refuse():
    """Sums of epsilons bound the composition from above, so the quick path is the stricter one."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        epsilons = rng.uniform(0, 0.2, 4)
        mu = rng.uniform(0.01, 0.3)
        plain = epsilons.sum() + gdp_epsilon(mu, 1e-6)
        ledger = Ledger(Budget(10.0, 1e-6))
        ledger.charge(Charge("g", 0, "gaussian", mu=mu))
        for i, epsilon in enumerate(epsilons):
            ledger.charge(Charge("e", i, "exponential", epsilon=epsilon))
        assert ledger.delta_at(plain) <= 1e-6 * (1 + 1e-6)


def test_mixtures_of_many_pure_releases_agree_with_brute_force_and_err_on_the_safe_side(
    monkeypatch,
):
    """Every outcome of 12 coins is listed; with a short list of sums, losses are rounded up, never
    down.
    """
    from pkm.privacy import ledger as room

    epsilons = tuple(np.random.default_rng(0).uniform(0.01, 0.3, 12).tolist())
    signs_ = np.array(list(np.ndindex(*[2] * 12))) * 2 - 1
    chances = np.prod(
        [
            np.exp((1 + s) / 2 * e) / (1 + np.exp(e))
            for s, e in zip(signs_.T, epsilons, strict=True)
        ],
        axis=0,
    )
    for epsilon in (0.0, 0.4, 1.0, 3.0):
        exact = chances @ np.maximum(-np.expm1(epsilon - signs_ @ epsilons), 0)
        assert room._composed_delta(0.0, tuple(sorted(epsilons)), epsilon) == pytest.approx(
            exact, abs=1e-14
        )
    room._coin_losses.cache_clear()
    room._composed_delta.cache_clear()
    monkeypatch.setattr(room, "MAX_LOSSES", 500)
    rough = room._composed_delta(0.1, tuple(sorted(epsilons)), 0.7)
    room._coin_losses.cache_clear()
    room._composed_delta.cache_clear()
    monkeypatch.undo()
    fine = room._composed_delta(0.1, tuple(sorted(epsilons)), 0.7)
    assert fine <= rough <= 1.1 * fine


# What is released is what is charged: on neighbors, cell by cell, draw by draw


class Recorded(Exponential):
    """The exponential mechanism, which also keeps the exponents it was given."""

    def choose(self, exponents, uniform):
        object.__setattr__(self, "seen", [*getattr(self, "seen", []), exponents.copy()[None]])
        return super().choose(exponents, uniform)


@given(st.integers(0, 10**6), st.booleans(), st.floats(0, 30), st.sampled_from([1, 16384]))
@settings(max_examples=60, deadline=None)
def test_a_record_moves_the_exponents_of_all_cells_by_no_more_than_is_charged(
    seed, both, margin, step
):
    """Same released sizes, same tree, one record less: summed over the cells, the exponents move
    apart by epsilon.
    """
    points = grid_points(seed, step=step)
    epsilon = 0.7
    score = SplitScore(0.3, 1 / 12, 5.0, both)
    grid = BoxGrid.of_intervals(2 / 9, inside_cell=both)
    sizes = np.random.default_rng(seed).uniform(-3, 40, 7)
    seen = []
    for given_points in (points, np.delete(points, seed % 60, axis=0)):
        partition, leaves = grown(given_points, seed, grid=grid)
        mechanism = Recorded(epsilon)
        partition.choose_splits(leaves, sizes[: len(leaves)], score, mechanism, margin=margin)
        seen.append(np.concatenate(mechanism.seen))
    finite = np.isfinite(seen[0])
    assert (finite == np.isfinite(seen[1])).all()  # which candidates are allowed is public
    step = np.where(finite, np.where(finite, seen[0], 0) - np.where(finite, seen[1], 0), np.nan)
    rows = step[finite.any(axis=1)]
    assert (np.nanmax(rows, axis=1) - np.nanmin(rows, axis=1)).sum() <= epsilon * (1 + 1e-9)


def test_the_charge_of_a_selection_is_attained():
    """Without a margin nothing of epsilon is wasted: a record in one candidate's interval and left
    of the next ones.
    """
    points = np.array([[-60000]] * 3 + [[60000]] * 57)
    seen = []
    for given_points in (points, np.vstack([points, [[-22000]]])):
        partition = curator(given_points).partition(BoxGrid.of_intervals(0.25))
        mechanism = Recorded(0.7)
        partition.choose_splits([0], [60.0], SplitScore(0.3, 1 / 12, 5.0, True), mechanism)
        seen.append(mechanism.seen[0])
    step = seen[1] - seen[0]
    assert step.max() - step.min() == pytest.approx(0.7, rel=1e-9)


def test_a_margin_lowers_the_exponents():
    points = grid_points(3)
    seen = []
    for margin in (0.0, 20.0, 1e9):
        mechanism = Recorded(0.7)
        score = SplitScore(0.3, 1 / 12, 5.0, False)
        curator(points).partition(BoxGrid.of_intervals(0.25)).choose_splits(
            [0], [60.0], score, mechanism, margin=margin
        )
        seen.append(mechanism.seen[0])
    assert seen[1] == pytest.approx(seen[0] * 40 / 60) and seen[2] == pytest.approx(seen[0] / 60)


def test_candidates_outside_a_cell_are_left_out_where_the_grid_says_so():
    for inside in (True, False):
        partition = curator(grid_points(0)).partition(
            BoxGrid.of_intervals(0.25, inside_cell=inside)
        )
        low, _ = partition.split(0, 1, 5)
        mechanism = Recorded(1.0)
        partition.choose_splits([low], [30.0], SplitScore(0.3, 1 / 12, 5.0, inside), mechanism)
        allowed = np.isfinite(mechanism.seen[0][0]).reshape(3, 8)
        assert allowed[[0, 2]].all() and allowed[1].tolist() == (
            [True] * 2 + [False] * 6 if inside else [True] * 8
        )


@given(st.integers(0, 10**6), st.booleans())
@settings(max_examples=40, deadline=None)
def test_the_exponents_of_a_cell_are_its_candidates_scores(seed, both):
    """Against counting the points around each candidate one by one."""
    points = grid_points(seed)
    score = SplitScore(0.3, 1 / 12, 5.0, both)
    grid = BoxGrid.of_intervals(2 / 9, inside_cell=both)
    partition, leaves = grown(points, seed, grid=grid)
    sizes = np.random.default_rng(seed).uniform(-3, 40, len(leaves))
    mechanism = Recorded(0.7)
    partition.choose_splits(leaves, sizes, score, mechanism)
    for cell, size, seen in zip(leaves, sizes, np.concatenate(mechanism.seen), strict=True):
        inside = members(partition, cell)
        (lower, upper) = partition.box(cell)
        for h, row in enumerate(seen.reshape(points.shape[1], -1)):
            for c, exponent in enumerate(row):
                # An interval's ends: the boundaries half an interval to either side of the
                # candidate's.
                ends = [(grid.thresholds[b - 1] if b else -SCALE - 1) for b in (2 * c, 2 * c + 2)]
                if both and not (ends[0] + 1 >= lower[h] and ends[1] <= upper[h]):
                    assert exponent == -np.inf
                    continue
                left = (inside[:, h] <= grid.thresholds[2 * c]).sum()
                near = ((inside[:, h] > ends[0]) & (inside[:, h] <= ends[1])).sum()
                expected = (
                    score(left, near, len(inside), size) * 0.7 * max(1.0, size) / score.sensitivity
                )
                assert exponent == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_each_cell_gets_noise_for_its_own_reach():
    points = grid_points(1, d=2)
    reps = 400
    noise = []
    for seed in range(reps):
        partition = curator(points, seed=seed).partition(BoxGrid.of_intervals(0.25))
        small = partition.split(partition.split(0, 0, 1)[0], 1, 1)[0]
        large = 2
        about = np.array([partition.midpoint(small), partition.midpoint(large)])
        exact = [
            (members(partition, c) - a).sum(axis=0)
            for c, a in zip((small, large), about, strict=True)
        ]
        noise.append(partition.sums([small, large], 3.0, about) - exact)
    sd = np.std(noise, axis=(0, 2))
    # Half-diagonals: an eighth of a half-width by an eighth, and seven eighths (and a bit) by a
    # whole one.
    expected = 3.0 * SCALE * np.array([math.hypot(1 / 16, 1 / 16), math.hypot(15 / 16, 1)])
    assert sd == pytest.approx(expected, rel=5 / math.sqrt(4 * reps) + 1e-3)


@given(st.integers(0, 10**6), st.integers(0, 59))
@settings(max_examples=30, deadline=None)
def test_hyperplane_cells_and_the_whole_change_by_one_record(seed, gone):
    points = grid_points(seed)
    rng = np.random.default_rng(seed)
    normals = np.rint(rng.standard_normal((3, 3)) * SCALE).astype(int)
    about = points[rng.integers(60)]
    changed = np.zeros(8, int)
    for sign, given_points in ((1, points), (-1, np.delete(points, gone, axis=0))):
        partition = curator(given_points).hyperplanes(normals, about)
        leaves = [0]
        for level in range(3):
            leaves = [child for cell in leaves for child in partition.split(cell, level)]
        changed += sign * np.array([len(members(partition, cell)) for cell in leaves])
        reach = partition._sum_sensitivities(leaves, np.tile(about, (8, 1)), None)
    assert sorted(changed.tolist()) == [0] * 7 + [1]
    step = points[gone] - about
    assert math.sqrt(int(step @ step)) <= reach.min()
    whole = curator(points).whole()
    assert math.sqrt(int(step @ step)) <= whole._sum_sensitivities([0], about[None], None)[0]
    with pytest.raises(ValueError, match="one of the 0 that cells can be split by"):
        whole.split(0, 0)


@given(st.integers(0, 10**6), st.integers(0, 49))
@settings(max_examples=30, deadline=None)
def test_bounded_sums_change_by_no_more_than_their_sensitivity(seed, gone):
    points = grid_points(seed, n=50)
    rng = np.random.default_rng(seed)
    centers = grid_points(seed + 1, n=4)[None]
    about = rng.integers(-SCALE, SCALE, 3)
    one, other = (
        Curator(given_points, Ledger(ROOMY), NoiseStreams([0]))._exact_sums_and_counts(
            centers, None, False
        )
        for given_points in (points, np.delete(points, gone, axis=0))
    )
    relative = [sums - counts[:, :, None] * about for sums, counts in (one, other)]
    assert np.abs(relative[0] - relative[1]).max() <= SCALE + np.abs(about).max()
    assert np.abs(one[1] - other[1]).sum() == 1


# Their formula is not proved for large budgets.
ANALYTIC = {DistDP: {"calibration": "analytic"}, NoisedPoints: {"calibration": "analytic"}}


@pytest.mark.parametrize(
    "method", [m for m in CLASSES if any(c.private for c in m.claims.values())]
)
def test_no_release_shares_a_stream_with_another(method, monkeypatch):
    """Every draw of a run, of every variant, has a key of its own."""
    drawn = []
    original = NoiseStreams._seeded

    def recording(self, key, shape, draw):
        drawn.append((self.seeds, key))
        return original(self, key, shape, draw)

    monkeypatch.setattr(NoiseStreams, "_seeded", recording)
    points = np.random.default_rng(0).integers(-SCALE, SCALE, (4000, 3))
    for variant in method.claims:
        drawn.clear()
        chosen = {"variant": variant} if "variant" in signature(method).parameters else {}
        run = method(n_clusters=3, epsilon=5.0, **chosen, **ANALYTIC.get(method, {})).fit_batch(
            points, [0, 1]
        )
        assert len(drawn) > len(run.ledger.charges) / 2 and len(set(drawn)) == len(drawn)


@pytest.mark.parametrize(
    "sizes", [[300.0], [1.0, 2.0, 3.0, 4.0], [1.0, np.nan, 2.0], [1.0, np.inf, 2.0]]
)
def test_sizes_that_do_not_fit_the_cells_are_refused(sizes):
    door = curator(grid_points(0))
    partition = door.partition(BoxGrid.of_intervals(0.25))
    low, high = partition.split(0, 0, 7)
    cells = [*partition.split(low, 1, 7), high]
    with pytest.raises(ValueError, match="sizes must be 3 finite numbers"):
        partition.choose_splits(cells, sizes, SplitScore(0.3, 0.1, 5.0, True), Exponential(0.3))
    assert door._ledger.charges == ()


def test_doors_are_checked_before_anything_is_charged():
    door = curator(grid_points(0))
    whole = door.whole()
    with pytest.raises(ValueError, match="on a grid only"):
        whole.choose_splits([0], [60.0], SplitScore(0.3, 0.1, 5.0, True), Exponential(0.3))
    partition = door.partition(BoxGrid.of_intervals(0.25))
    for call, message in (
        (lambda: partition.split(0, 0, 0), r"boundary=0 must be in 1 \.\. 16"),
        (lambda: partition.split(0, 0, 17), "boundary=17"),
        (lambda: partition.split(5, 0, 1), r"cells=\[5\] must be among the 1"),
        (lambda: partition.counts([-1], Laplace(SCALE)), r"cells=\[-1\]"),
        (lambda: partition.sums([0], 1.0, np.full((1, 3), 1 << 58)), "too far away"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert door._ledger.charges == ()
    assert (
        partition.sums([], 1.0, np.zeros((0, 3), int)).shape == (0, 3)
        and len(door._ledger.charges) == 1
    )
