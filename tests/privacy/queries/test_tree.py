"""Cells over private points: kernels, sensitivities, selections, accounting, refusals.

Statistical tests use fixed seeds and fail by chance less than once in a million runs: thresholds
are five standard errors or a p-value of 1e-6."""

import itertools
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from curators import LARGE_BUDGET, SEEDS, curator_of, grid_points, released_percentile
from hypothesis import given, settings
from hypothesis import strategies as st

from pkm.compute import Points
from pkm.privacy import (
    SCALE,
    BoxGrid,
    Budget,
    BudgetExceeded,
    CellCounts,
    CellSums,
    Curator,
    Exponential,
    Gaussian,
    Laplace,
    Ledger,
    NoiseStreams,
    Splits,
    SplitScore,
    gaussian_mu,
)
from pkm.privacy.queries.tree import PartitionTree

GRID = BoxGrid.of_intervals(0.25)
SCORE = SplitScore(0.3, 0.1, 5.0, True)


def random_partition(points, seed, n_splits=6, grid=None):
    """A partition after random public splits, and its leaves."""
    partition = curator_of(points).partition(grid or BoxGrid.of_intervals(2 / 9))
    rng = np.random.default_rng(seed)
    leaves = [0]
    for _ in range(n_splits):
        cell = leaves.pop(rng.integers(len(leaves)))
        feature = int(rng.integers(points.shape[1]))
        boundary = int(rng.integers(1, 18))
        leaves += partition.split(cell, feature, boundary)
    return partition, leaves


def members(partition, cell):
    """Points of a cell."""
    rows = [points.rows[points.members(cell)] for points in partition._ordered]
    return np.concatenate(rows).astype(int)


def released_counts(tree, cells, noise):
    return tree.release(CellCounts(cells), counts=noise)["counts"]


def released_sums(tree, cells, scale, origins, radius=None):
    query = CellSums(cells, origins, radius)
    return tree.release(query, sums=Gaussian(scale))["sums"]


def released_splits(tree, cells, sizes, score, epsilon, **arguments):
    """Feature and boundary of each cell's split."""
    query = Splits(cells, sizes, score, **arguments)
    choices = tree.release(query, choices=Exponential(epsilon))["choices"]
    return [tree.candidate(choice) for choice in choices]


def sum_sensitivities(tree, cells, origins):
    """L2 sensitivity of each cell's sum, in grid steps."""
    sensitivity = CellSums(cells, origins).sensitivity(tree)["sums"]
    return sensitivity.l2 * sensitivity.unit[:, 0]


def test_intervals_cover_the_domain_from_its_lower_end():
    grid = BoxGrid.of_intervals(0.3)  # six whole intervals, a rest of 0.2
    assert grid.n_bins == 13
    assert list(grid.boundaries) == [1, 3, 5, 7, 9, 11]
    midpoints = [grid.thresholds[boundary - 1] / SCALE for boundary in grid.boundaries]
    expected = [-1 + 0.3 * (i + 0.5) for i in range(6)]
    assert midpoints == pytest.approx(expected, abs=2**-15)

    assert BoxGrid.of_intervals(2 / 127).n_bins == 255  # the codes of 127 intervals fit a byte
    # Wider than the domain: one interval, split in the middle.
    assert BoxGrid.of_intervals(9.0) == BoxGrid.of_intervals(2.0)
    assert BoxGrid.of_intervals(1e-12).n_bins == 2 * 4096 + 1
    with pytest.raises(ValueError, match="width=0 must be positive"):
        BoxGrid.of_intervals(0)


@given(SEEDS)
@settings(max_examples=25, deadline=None)
def test_cells_hold_the_points_of_their_box(seed):
    points = grid_points(seed, step=4096)
    partition, leaves = random_partition(points, seed)
    sizes = [len(members(partition, cell)) for cell in leaves]
    assert sum(sizes) == len(points)
    for cell in leaves:
        lower, upper = partition.box(cell)
        for point in (members(partition, cell), partition.midpoint(cell)):
            assert (point >= lower).all()
            assert (point <= upper).all()


def test_split_outside_a_cell_keeps_its_box():
    partition = curator_of(grid_points(0)).partition(BoxGrid.of_intervals(0.5))
    low, _ = partition.split(0, 0, 3)
    lowest, _ = partition.split(low, 1, 3)
    full, empty = partition.split(lowest, 0, 5)
    assert len(members(partition, empty)) == 0

    lower, upper = partition.box(empty)
    full_lower, full_upper = partition.box(full)
    assert (upper >= lower).all()
    assert (lower == full_lower).all()
    assert (upper == full_upper).all()


def test_answers_do_not_depend_on_shards_or_order():
    points = grid_points(7, n=300)
    score = SplitScore(0.3, 1 / 12, 5.0, True)

    def answers(shards):
        partition = curator_of(shards, seed=3).partition(BoxGrid.of_intervals(0.1))
        (split,) = released_splits(partition, [0], [300.0], score, 0.5)
        cells = partition.split(0, *split)
        origins = np.array([partition.midpoint(cell) for cell in cells])
        counts = released_counts(partition, cells, Laplace(3.0 * SCALE))
        sums = released_sums(partition, cells, 2.0, origins)
        return split, counts, sums

    expected_split, expected_counts, expected_sums = answers(points)
    for shards in (points[::-1], [points[:10], points[10:11], points[11:]]):
        split, counts, sums = answers(shards)
        assert split == expected_split
        assert (counts == expected_counts).all()
        assert (sums == expected_sums).all()


def exact_norm(vector):
    """L2 norm of a vector of integers."""
    return math.sqrt(int(vector @ vector))


@given(SEEDS, st.integers(0, 59))
@settings(max_examples=40, deadline=None)
def test_counts_and_sums_change_within_their_sensitivity(seed, removed):
    """A record changes the count of one cell by 1, and the cell's sum by at most the distance to
    the farthest corner.
    """
    points = grid_points(seed)
    neighbor = np.delete(points, removed, axis=0)
    partition, leaves = random_partition(points, seed)
    neighbor_partition, neighbor_leaves = random_partition(neighbor, seed)
    assert leaves == neighbor_leaves

    rng = np.random.default_rng(seed)
    origins = rng.integers(-2 * SCALE, 2 * SCALE, (len(leaves), 3))
    sensitivities = sum_sensitivities(partition, leaves, origins)
    n_changed = 0
    for i, cell in enumerate(leaves):
        cell_points = members(partition, cell)
        neighbor_points = members(neighbor_partition, cell)
        n_changed += len(cell_points) - len(neighbor_points)
        cell_sum = (cell_points - origins[i]).sum(axis=0)
        neighbor_sum = (neighbor_points - origins[i]).sum(axis=0)
        change = exact_norm(cell_sum - neighbor_sum)
        assert change <= sensitivities[i] * (1 + 1e-12)
    assert n_changed == 1


@given(
    SEEDS,
    st.booleans(),
    st.floats(0.05, 0.45),
    st.floats(0.0, 1.0),
    st.floats(0.1, 20.0),
    st.floats(1.0, 60.0),
)
@settings(max_examples=200, deadline=None)
def test_score_differences_change_within_their_sensitivity(
    seed, from_both_ends, q, fraction, weight, size
):
    """Exhaustive over the record's position; t anywhere between 2 q and 1."""
    t = 2 * q + fraction * (1 - 2 * q)
    score = SplitScore(t, q, weight, from_both_ends)
    counts = np.random.default_rng(seed).integers(0, 6, 12)

    def scores(bin_counts):
        below = np.concatenate([[0], bin_counts.cumsum()])
        left = below[1:-2:2]
        inside = below[2:-1:2] - below[0:-3:2]
        return score(left, inside, below[-1], size)

    original = scores(counts)
    for position in range(12):
        record = np.arange(12) == position
        change = scores(counts + record) - original
        spread = change.max() - change.min()
        assert spread <= score.sensitivity / size * (1 + 1e-9)


@pytest.mark.parametrize("from_both_ends", [True, False])
def test_every_spread_of_a_record_changes_as_much_as_a_record_at_most(from_both_ends):
    """Brute force: four rows of a person in any of the bins of two cells, in one or in both.

    The bound of the scores is that of both selections together.
    """
    others = grid_points(0, n=9, d=1)
    places = np.array([-0.9, -0.6, -0.1, 0.1, 0.4, 0.9]) * SCALE
    weights = np.repeat([SCALE, SCALE // 4], [9, 4]).astype(np.int32)
    score = SplitScore(0.3, 1 / 12, 5.0, from_both_ends)
    origins = np.array([[SCALE], [-SCALE // 2]])

    def ask(rows):
        points = replace(Points.from_grid(rows), weights=weights[: len(rows)])
        curator = Curator([points], None, NoiseStreams([0]))
        tree = curator.partition(BoxGrid.of_intervals(0.5))
        cells = tree.split(0, 0, 4)
        queries = [Splits(cells, [5.0, 4.0], score), CellCounts(cells), CellSums(cells, origins)]
        (choices, _, sums) = (query.sensitivity(tree) for query in queries)
        bounds = [choices["choices"].difference, SCALE, sums["sums"].unit[:, 0]]
        scores = [scores.copy() for scores in queries[0].exact(tree)["choices"]]
        counted = queries[1].exact(tree)["counts"][0]
        return scores, counted, queries[2].exact(tree)["sums"][0][:, 0], bounds

    scores, counts, sums, bounds = ask(others)
    largest = np.zeros(3)
    for spread in itertools.combinations_with_replacement(places, 4):
        rows = np.append(others, np.array(spread, np.int64)[:, None], axis=0)
        new_scores, new_counts, new_sums, _ = ask(rows)
        change = [np.ptp(np.subtract(*pair)) for pair in zip(new_scores, scores, strict=True)]
        changes = [change, new_counts - counts, np.abs(new_sums - sums)]
        ratios = [np.sum(change / bound) for change, bound in zip(changes, bounds, strict=True)]
        largest = np.maximum(largest, ratios)
    assert (largest <= 1 + 1e-9).all()
    assert (largest > [0.25, 0.99, 0.9]).all()


def test_score_sensitivity_is_attained():
    """A record inside the emptiest interval and outside the outer ranks of another candidate: the
    bound has no slack.
    """
    score = SplitScore(0.3, 1 / 12, 5.0, True)
    size = 120.0
    # Candidate 1: five below, inside the outer ranks; the record is added next to both.
    counts = np.array([2, 2, 0, 116])
    total = float(counts.sum())

    def scores(left, inside):
        return score(np.array(left, float), np.array(inside, float), total, size)

    original = scores([4, 60], [4, 10])
    change = scores([5, 60], [4, 11]) - original
    spread = change.max() - change.min()
    assert spread == pytest.approx(score.sensitivity / size, rel=1e-9)


def test_scores_follow_the_definitions():
    score = SplitScore(0.3, 1 / 12, 5.0, True)
    left = np.array([0.0, 10.0, 60.0, 110.0])
    empty = np.zeros(4)
    assert score(left, empty, 120.0, 120.0) == pytest.approx([5.0, 5.3, 6.0, 5.3])
    assert (score(left, empty, 120.0, 0.5) == 0).all()
    median = score(np.array([60.0]), np.array([30.0]), 120.0, 120.0)
    assert median == pytest.approx([1 + 5 * 0.75])

    published = SplitScore(0.3, 1 / 12, 5.0, False)
    beyond_size = published(np.array([130.0]), np.array([0.0]), 140.0, 120.0)
    assert beyond_size == pytest.approx([5 - 0.3])


@pytest.mark.parametrize(
    ("t", "q", "weight"),
    [
        (0.1, 0.1, 5),
        (1.1, 0.1, 5),
        (0.3, 0, 5),
        (1, 0.5, 5),
        (0.3, 0.1, 0),
    ],
)
def test_scores_without_a_bound_are_refused(t, q, weight):
    with pytest.raises(ValueError, match="must"):
        SplitScore(t, q, weight, True)


def test_every_release_of_a_partition_is_charged():
    curator = curator_of(grid_points(0), budget=Budget(1.0, 1e-6))
    partition = curator.partition(GRID)
    count_noise = Laplace(SCALE / 0.2)
    mu = gaussian_mu(0.2, 5e-7)
    released_counts(partition, [0], count_noise)
    released_splits(partition, [0], [60.0], SCORE, 0.3, failure=1e-8)
    released_counts(partition, [], count_noise)  # without a cell, but part of the schedule
    released_sums(partition, [0], 1 / mu, np.zeros((1, 3), int))

    charges = [
        (charge.label, charge.round, charge.epsilon, charge.mu)
        for charge in curator._ledger.charges
    ]
    assert charges == [
        ("cell_counts", 0, pytest.approx(0.2), 0),
        ("splits", 0, 0.3, 0),
        ("cell_counts", 1, pytest.approx(0.2), 0),
        ("cell_sums", 0, 0, pytest.approx(mu)),
    ]
    assert [charge.delta for charge in curator._ledger.charges] == [0, 1e-8, 0, 0]
    with pytest.raises(BudgetExceeded):
        released_counts(partition, [0], Laplace(SCALE / 0.5))


@pytest.mark.statistical
@pytest.mark.parametrize("kind", [Gaussian, Laplace])
def test_cell_noise_has_the_charged_scale(kind):
    points = grid_points(1, n=40, d=2)
    exact_sum = points.sum(axis=0)
    origins = np.zeros((1, 2), int)
    n_replicates = 400
    counts = []
    sum_errors = []
    for seed in range(n_replicates):
        partition = curator_of(points, seed=seed).partition(GRID)
        counts.append(released_counts(partition, [0], kind(3.0 * SCALE))[0] / SCALE)
        sum_errors.append(released_sums(partition, [0], 2.0, origins)[0] - exact_sum)

    # Relative standard error of a standard deviation over N values: sqrt((kurtosis - 1) / 4 N),
    # kurtosis 6 or 3.
    kurtosis = 6 if kind is Laplace else 3
    count_sd = 3 * (math.sqrt(2) if kind is Laplace else 1.0)
    relative_error = math.sqrt((kurtosis - 1) / (4 * n_replicates))
    assert np.std(counts) == pytest.approx(count_sd, rel=5 * relative_error)
    standard_error = count_sd / math.sqrt(n_replicates)
    assert np.mean(counts) == pytest.approx(40, abs=5 * standard_error)

    sum_sd = 2 * math.sqrt(2) * SCALE
    relative_error = 1 / math.sqrt(4 * n_replicates)
    standard_error = sum_sd / math.sqrt(2 * n_replicates)
    assert np.std(sum_errors) == pytest.approx(sum_sd, rel=5 * relative_error)
    assert np.mean(sum_errors) == pytest.approx(0, abs=5 * standard_error)


def test_overlapping_and_repeated_cells_are_refused():
    curator = curator_of(grid_points(0))
    partition = curator.partition(GRID)
    low, high = partition.split(0, 0, 7)
    lower, _ = partition.split(low, 1, 7)
    for cells, message in (
        ([0, high], "cells 0 and 2 overlap"),
        ([lower, 0], "overlap"),
        ([low, low], "named once"),
    ):
        with pytest.raises(ValueError, match=message):
            released_counts(partition, cells, Laplace(SCALE))
    with pytest.raises(ValueError, match="cell=0 is split already"):
        partition.split(0, 1, 3)
    with pytest.raises(ValueError, match="feature=3"):
        partition.split(high, 3, 3)
    assert curator._ledger.charges == ()


def test_ill_posed_queries_are_refused_without_a_charge():
    points = grid_points(0)
    curator = curator_of(points)
    partition = curator.partition(GRID)
    origins = np.zeros((1, 3), int)
    with pytest.raises(ValueError, match=r"radius=1\.0 must cover"):
        released_sums(partition, [0], 1.0, origins, radius=1.0)
    with pytest.raises(ValueError, match="grid integers of shape"):
        released_sums(partition, [0], 1.0, np.zeros((1, 3)))
    with pytest.raises(ValueError, match="margin=-1 must not be negative"):
        released_splits(partition, [0], [60.0], SCORE, 0.3, margin=-1)
    with pytest.raises(ValueError, match="scale="):
        released_sums(partition, [0], math.inf, origins)
    assert curator._ledger.charges == ()

    normals = np.ones((1, 3), int)
    for query in (
        lambda curator: released_counts(curator.partition(GRID), [0], Laplace(SCALE)),
        lambda curator: released_counts(
            curator.hyperplanes(normals, np.zeros(3, int)), [0], Laplace(SCALE)
        ),
        lambda curator: released_percentile(curator, 65.0, 0.1),
    ):
        without_ledger = Curator(points, None, NoiseStreams([0]))
        with pytest.raises(ValueError, match="needs a ledger"):
            query(without_ledger)
        two_replicates = Curator(points, Ledger(LARGE_BUDGET), NoiseStreams([0, 1]))
        with pytest.raises(ValueError, match="one replicate at a time"):
            query(two_replicates)


def test_hyperplane_cells_keep_the_domain_as_box():
    curator = curator_of(grid_points(0))
    normals = np.ones((2, 3), int)
    partition = curator.hyperplanes(normals, np.zeros(3, int))
    assert isinstance(partition, PartitionTree)
    negative, positive = partition.split(0, 0)
    for cell in (negative, positive):
        _, upper = partition.box(cell)
        assert (upper == SCALE).all()
    assert (members(partition, positive).sum(axis=1) >= 0).all()
    assert (members(partition, negative).sum(axis=1) < 0).all()


def recorded_exponents(tree, cells, sizes, score, epsilon, margin=0.0):
    """Exponents (cells, candidates) of a choice of splits."""
    query = Splits(cells, sizes, score, margin)
    exact = [scores.copy() for scores in query.exact(tree)["choices"]]
    changes = query.sensitivity(tree)["choices"].difference
    return np.array(exact) * (epsilon / changes)[:, None]


def test_a_low_released_number_of_records_wraps_no_counts():
    """Bins of more than 2**16 records, whose released number says that 16 bits are enough."""
    points = np.repeat(grid_points(0)[:2], 70_000, axis=0)
    curator = curator_of(points)
    exponents = []
    for n in (len(points), 1):
        curator.n_points = n
        partition = curator.partition(GRID)
        exponents.append(recorded_exponents(partition, [0], [1.4e5], SCORE, 1.0))
    np.testing.assert_array_equal(*exponents)


@given(
    SEEDS,
    st.booleans(),
    st.floats(0, 30),
    st.sampled_from([1, 16384]),
)
@settings(max_examples=60, deadline=None)
def test_exponents_change_within_the_charge(seed, from_both_ends, margin, step):
    """Equal released sizes, equal trees, one record less: summed over the cells, the differences of
    exponents change by at most epsilon.
    """
    points = grid_points(seed, step=step)
    neighbor = np.delete(points, seed % 60, axis=0)
    epsilon = 0.7
    score = SplitScore(0.3, 1 / 12, 5.0, from_both_ends)
    grid = BoxGrid.of_intervals(2 / 9, inside_cell=from_both_ends)
    sizes = np.random.default_rng(seed).uniform(-3, 40, 7)
    exponents = []
    for variant in (points, neighbor):
        partition, leaves = random_partition(variant, seed, grid=grid)
        recorded = recorded_exponents(
            partition, leaves, sizes[: len(leaves)], score, epsilon, margin
        )
        exponents.append(recorded)

    # Which candidates are allowed is public.
    first, second = exponents
    allowed = np.isfinite(first)
    assert (allowed == np.isfinite(second)).all()

    change = np.full(first.shape, np.nan)
    change[allowed] = first[allowed] - second[allowed]
    cells = change[allowed.any(axis=1)]
    spreads = np.nanmax(cells, axis=1) - np.nanmin(cells, axis=1)
    assert spreads.sum() <= epsilon * (1 + 1e-9)


def first_exponents(points, score, margin=0.0):
    """Exponents of the first split of a partition."""
    partition = curator_of(points).partition(GRID)
    return recorded_exponents(partition, [0], [60.0], score, 0.7, margin)


def test_charge_of_a_selection_is_attained():
    """Without a margin nothing of epsilon is wasted: a record in one candidate's interval and left
    of the next candidates.
    """
    points = np.array([[-60000]] * 3 + [[60000]] * 57)
    neighbor = np.vstack([points, [[-22000]]])
    score = SplitScore(0.3, 1 / 12, 5.0, True)
    change = first_exponents(neighbor, score) - first_exponents(points, score)
    assert change.max() - change.min() == pytest.approx(0.7, rel=1e-9)


def test_margin_lowers_the_exponents():
    points = grid_points(3)
    score = SplitScore(0.3, 1 / 12, 5.0, False)
    exponents, exponents_20, exponents_large = (
        first_exponents(points, score, margin) for margin in (0.0, 20.0, 1e9)
    )
    assert exponents_20 == pytest.approx(exponents * 40 / 60)
    assert exponents_large == pytest.approx(exponents / 60)


@pytest.mark.parametrize("inside_cell", [True, False])
def test_grid_option_excludes_candidates_outside_a_cell(inside_cell):
    grid = BoxGrid.of_intervals(0.25, inside_cell=inside_cell)
    partition = curator_of(grid_points(0)).partition(grid)
    low, _ = partition.split(0, 1, 5)
    score = SplitScore(0.3, 1 / 12, 5.0, inside_cell)
    exponents = recorded_exponents(partition, [low], [30.0], score, 1.0).reshape(3, 8)
    allowed = np.isfinite(exponents)
    assert allowed[[0, 2]].all()
    expected = [True] * 2 + [False] * 6 if inside_cell else [True] * 8
    assert allowed[1].tolist() == expected


@given(SEEDS, st.booleans())
@settings(max_examples=40, deadline=None)
def test_exponents_of_a_cell_by_brute_force(seed, from_both_ends):
    """Against the score of each candidate from the exact counts around it."""
    points = grid_points(seed)
    score = SplitScore(0.3, 1 / 12, 5.0, from_both_ends)
    grid = BoxGrid.of_intervals(2 / 9, inside_cell=from_both_ends)
    partition, leaves = random_partition(points, seed, grid=grid)
    sizes = np.random.default_rng(seed).uniform(-3, 40, len(leaves))
    recorded = recorded_exponents(partition, leaves, sizes, score, 0.7)

    edges = [-SCALE - 1, *grid.thresholds]
    for cell, size, cell_exponents in zip(leaves, sizes, recorded, strict=True):
        cell_points = members(partition, cell)
        lower, upper = partition.box(cell)
        factor = 0.7 * max(1.0, size) / score.sensitivity
        for feature, exponents in enumerate(cell_exponents.reshape(points.shape[1], -1)):
            values = cell_points[:, feature]
            for candidate, exponent in enumerate(exponents):
                # An interval's ends: the boundaries half an interval to either side of the
                # candidate's.
                start = edges[2 * candidate]
                end = edges[2 * candidate + 2]
                is_inside = start + 1 >= lower[feature] and end <= upper[feature]
                if from_both_ends and not is_inside:
                    assert exponent == -np.inf
                    continue
                n_left = (values <= grid.thresholds[2 * candidate]).sum()
                n_near = ((values > start) & (values <= end)).sum()
                expected = score(n_left, n_near, len(values), size) * factor
                assert exponent == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_sum_noise_follows_the_cells_sensitivity():
    points = grid_points(1, d=2)
    n_replicates = 400
    noise = []
    for seed in range(n_replicates):
        partition = curator_of(points, seed=seed).partition(GRID)
        low, large = partition.split(0, 0, 1)
        small, _ = partition.split(low, 1, 1)
        cells = [small, large]
        origins = np.array([partition.midpoint(cell) for cell in cells])
        exact = [
            (members(partition, cell) - origin).sum(axis=0)
            for cell, origin in zip(cells, origins, strict=True)
        ]
        noise.append(released_sums(partition, cells, 3.0, origins) - exact)
    sd = np.std(noise, axis=(0, 2))

    # Half-diagonals: an eighth of a half-width by an eighth, and seven eighths (and a bit) by a
    # whole one.
    small_half_diagonal = math.hypot(1 / 16, 1 / 16)
    large_half_diagonal = math.hypot(15 / 16, 1)
    expected = 3.0 * SCALE * np.array([small_half_diagonal, large_half_diagonal])
    tolerance = 5 / math.sqrt(4 * n_replicates) + 1e-3
    assert sd == pytest.approx(expected, rel=tolerance)


def hyperplane_leaves(points, normals, origin):
    """A partition split by all hyperplanes, and its leaves."""
    partition = curator_of(points).hyperplanes(normals, origin)
    leaves = [0]
    for level in range(len(normals)):
        children = [partition.split(cell, level) for cell in leaves]
        leaves = [child for pair in children for child in pair]
    return partition, leaves


@given(SEEDS, st.integers(0, 59))
@settings(max_examples=30, deadline=None)
def test_hyperplane_cells_change_by_one_record(seed, removed):
    points = grid_points(seed)
    neighbor = np.delete(points, removed, axis=0)
    rng = np.random.default_rng(seed)
    normals = np.rint(rng.standard_normal((3, 3)) * SCALE).astype(int)
    origin = points[rng.integers(60)]

    sizes = []
    for variant in (points, neighbor):
        partition, leaves = hyperplane_leaves(variant, normals, origin)
        sizes.append([len(members(partition, cell)) for cell in leaves])
    changes = np.subtract(*sizes)
    assert sorted(changes.tolist()) == [0] * 7 + [1]

    # The record's distance from the origin is within the sensitivity of every cell's sum.
    distance = exact_norm(points[removed] - origin)
    sensitivities = sum_sensitivities(partition, leaves, np.tile(origin, (8, 1)))
    assert distance <= sensitivities.min()

    whole = curator_of(points).whole()
    assert distance <= sum_sensitivities(whole, [0], origin[None])[0]
    with pytest.raises(ValueError, match="one of the 0 that cells can be split by"):
        whole.split(0, 0)


@pytest.mark.parametrize(
    "sizes",
    [
        [300.0],
        [1.0, 2.0, 3.0, 4.0],
        [1.0, np.nan, 2.0],
        [1.0, np.inf, 2.0],
    ],
)
def test_sizes_that_do_not_fit_the_cells_are_refused(sizes):
    curator = curator_of(grid_points(0))
    partition = curator.partition(GRID)
    low, high = partition.split(0, 0, 7)
    cells = [*partition.split(low, 1, 7), high]
    with pytest.raises(ValueError, match=r"sizes must be finite float64 of shape \(3,\)"):
        released_splits(partition, cells, sizes, SCORE, 0.3)
    assert curator._ledger.charges == ()


def test_bad_cells_are_refused_without_a_charge():
    curator = curator_of(grid_points(0))
    whole = curator.whole()
    with pytest.raises(ValueError, match="on a grid only"):
        released_splits(whole, [0], [60.0], SCORE, 0.3)

    partition = curator.partition(GRID)
    distant = np.full((1, 3), 1 << 58)
    for query, message in (
        (partial(partition.split, 0, 0, 0), r"boundary=0 must be in 1 \.\. 16"),
        (partial(partition.split, 0, 0, 17), "boundary=17"),
        (partial(partition.split, 5, 0, 1), r"cells=\[5\] must be among the 1"),
        (partial(released_counts, partition, [-1], Laplace(SCALE)), r"cells=\[-1\]"),
        (partial(released_sums, partition, [0], 1.0, distant), "too far away"),
    ):
        with pytest.raises(ValueError, match=message):
            query()
    assert curator._ledger.charges == ()

    # A query of no cells is charged.
    sums = released_sums(partition, [], 1.0, np.zeros((0, 3), int))
    assert sums.shape == (0, 3)
    assert len(curator._ledger.charges) == 1


class CheapScore(SplitScore):
    """A score that claims to change by almost nothing."""

    sensitivity = 1e-9


def test_scores_of_other_types_are_refused():
    curator = curator_of(np.zeros((5, 2), np.int64))
    tree = curator.partition(BoxGrid.of_intervals(0.5))
    query = Splits([0], [5.0], CheapScore(0.3, 1 / 12, 5.0, True))
    with pytest.raises(TypeError, match=r"score=.* must be a SplitScore, and no subclass"):
        tree.release(query, choices=Exponential(1e-6))
    assert curator._ledger.charges == ()


@pytest.mark.parametrize("thresholds", [(0, -60000, 50000), (0, 0), (0, SCALE + 1), (-SCALE - 1,)])
def test_grids_out_of_order_or_domain_are_refused(thresholds):
    """Boxes of cells would be too small, and with them the noise."""
    with pytest.raises(ValueError, match="must increase and lie in the domain"):
        BoxGrid(thresholds, False)


def test_grids_of_other_types_are_refused():
    class Grid(BoxGrid):
        def __post_init__(self):
            pass

    with pytest.raises(TypeError, match=r"grid=.* must be a BoxGrid"):
        curator_of(np.zeros((5, 2), np.int64)).partition(Grid((0, -60000), False))


def test_sums_about_far_origins_are_refused_by_the_public_number_of_records():
    """A bound by the rows that are present would be a count for nothing."""
    outcomes = []
    for n_null in (0, 1):
        points = Points.from_grid(np.zeros((500 - n_null, 1), np.int64), n_null)
        tree = curator_of(points).whole()
        limit = 2**60 // 500
        for origin in (limit - 1000, limit + 1000):
            query = CellSums([0], np.array([[origin]]))
            try:
                query.check(tree)
            except ValueError as error:
                outcomes.append((n_null, origin, str(error)))
    refused = [(origin, message) for _, origin, message in outcomes]
    assert len(refused) == 2
    assert refused[0] == refused[1]
