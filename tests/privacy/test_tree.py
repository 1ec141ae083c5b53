"""Cells over private points: kernels, sensitivities, selections, accounting, refusals.

Statistical tests use fixed seeds and fail by chance less than once in a million runs: thresholds
are five standard errors or a p-value of 1e-6.
"""

import math
from functools import partial
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
    CellCounts,
    CellSums,
    Charge,
    CountsAndBoundedSums,
    Curator,
    Exponential,
    GapPercentile,
    Gaussian,
    Laplace,
    Ledger,
    NoiseStreams,
    Percentile,
    Splits,
    SplitScore,
    gaussian_mu,
    gdp_epsilon,
    largest_multiple,
    mirrored,
)
from pkm.privacy import ledger as ledger_module
from pkm.privacy.mechanisms.additive import BoundedValues
from pkm.privacy.mechanisms.selection import ScoreRange
from pkm.privacy.queries.tree import PartitionTree

CLASSES = [load_method(name) for name in METHODS]
PRIVATE_CLASSES = [
    method for method in CLASSES if any(claim.private for claim in method.claims.values())
]

SEEDS = st.integers(0, 10**6)

LARGE_BUDGET = Budget(1e6, 0.5)
GRID = BoxGrid.of_intervals(0.25)
SCORE = SplitScore(0.3, 0.1, 5.0, True)


def grid_points(seed, n=60, d=3, step=1):
    """Random grid points; a coarse step makes ties."""
    rng = np.random.default_rng(seed)
    return rng.integers(-SCALE // step, SCALE // step + 1, (n, d)) * step


def curator_of(points, seed=0, budget=LARGE_BUDGET, domain=None):
    return Curator(points, Ledger(budget), NoiseStreams([seed]), domain)


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
    rows = [shard.rows[shard.members(cell)] for shard in partition._shards]
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


def released_percentile(curator, percent, epsilon):
    """In half-widths."""
    answer = curator.release(GapPercentile(percent), gap=Percentile(epsilon))
    return answer["gap"][0] / SCALE


def sum_sensitivities(tree, cells, origins):
    """L2 sensitivity of each cell's sum, in grid steps."""
    sensitivity = CellSums(cells, origins).sensitivity(tree)["sums"]
    return sensitivity.l2 * sensitivity.unit[:, 0]


# Kernels


@pytest.mark.parametrize("n_thresholds", [1, 5, 255, 256, 4000])
def test_codes_count_the_thresholds_below(n_thresholds):
    points = grid_points(1, n=200, d=2)
    rng = np.random.default_rng(n_thresholds)
    grid_steps = np.arange(-SCALE, SCALE)
    thresholds = np.sort(rng.choice(grid_steps, n_thresholds, replace=False))
    points[:n_thresholds, 0] = thresholds[:200]  # points on a threshold belong below it
    codes = digitize(Points.prepare(points), tuple(thresholds.tolist()))
    expected = (points[:, :, None] > thresholds).sum(axis=2)
    assert (codes == expected).all()
    assert codes.dtype == (np.uint8 if n_thresholds <= 255 else np.uint16)


def test_partition_is_stable_and_aggregates_are_exact():
    points = Points.prepare(grid_points(2, n=500))
    codes = digitize(points, tuple(range(-60000, 60000, 7000)))
    order = np.random.default_rng(0).permutation(500).astype(np.int32)
    original_order = order.copy()
    n_left = stable_partition(codes, order, 1, 8, np.empty(500, np.int32))
    is_left = codes[original_order, 1] < 8
    expected_order = np.concatenate([original_order[is_left], original_order[~is_left]])
    assert n_left == is_left.sum()
    assert (order == expected_order).all()

    left = order[:n_left]
    counts = np.zeros((3, 19), np.uint32)
    histogram(codes, left, counts)
    for feature in range(3):
        expected_counts = np.bincount(codes[left, feature], minlength=19)
        assert (counts[feature] == expected_counts).all()
    expected_sums = points.rows[left].astype(int).sum(axis=0)
    assert (column_sums(points.rows, left) == expected_sums).all()


def test_hyperplane_sides_by_exact_integer_products():
    points = grid_points(3, n=3000, d=7)
    rng = np.random.default_rng(3)
    normals = np.rint(rng.standard_normal((9, 7)) * SCALE).astype(int)
    # A point on all hyperplanes: its products are zero and count as not negative.
    origin = points[5]
    exact_normals = normals.T.astype(object)
    products = points.astype(object) @ exact_normals
    offsets = origin.astype(object) @ exact_normals
    expected = (products >= offsets).astype(int)
    prepared = Points.prepare(points)
    assert (hyperplane_sides(prepared, normals, origin) == expected).all()
    with pytest.raises(ValueError, match=r"at most 2\*\*20"):
        hyperplane_sides(prepared, normals * 1000, origin)


def sorted_mean_gaps(points):
    """Gaps between consecutive values of each column, averaged over columns rank by rank."""
    gaps = np.diff(np.sort(points, axis=0), axis=0)
    return np.sort(gaps.mean(axis=1))


@given(
    SEEDS,
    st.integers(1, 3),
    st.sampled_from([1, 4096, 32768]),
)
@settings(max_examples=30, deadline=None)
def test_gaps_are_averaged_by_rank_across_shards(seed, d, step):
    points = grid_points(seed, n=12, d=d, step=step)
    expected = sorted_mean_gaps(points)
    for parts in ([points], [points[:5], points[5:6], points[6:]]):
        shards = tuple(Points.prepare(part) for part in parts)
        assert averaged_gaps(shards) == pytest.approx(expected, rel=1e-5, abs=1e-3)


def test_gaps_are_finer_than_the_grid():
    """Points in a thousandth of the range: their gaps are far below a grid step, and known to
    2**-16 of a step.
    """
    raw = np.random.default_rng(0).uniform(0, 0.002, (5000, 3))
    points, _ = Points.quantize(raw, np.full(3, -1.0), np.ones(3))
    expected = sorted_mean_gaps(raw) * SCALE
    assert expected[-1] < 0.3
    assert averaged_gaps((points,)) == pytest.approx(expected, abs=2 * 2.0**-16)

    # Points that were on the grid from the start have few different gaps.
    rounded = Points.prepare(points.rows.astype(int))
    assert np.unique(averaged_gaps((rounded,))).size < 10

    repeated = np.repeat([[0.1], [0.2]], 50, axis=0)
    ties, _ = Points.quantize(repeated, np.array([0.0]), np.array([1.0]))
    assert (averaged_gaps((ties,))[:-1] == 0).all()


# Grid and cells


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


# Sensitivities on random neighbors


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


def n_gaps_below(values, limit):
    """The number of averaged gaps up to a limit."""
    gaps = averaged_gaps((Points.prepare(values),))
    return int(np.searchsorted(gaps, limit, side="right"))


def test_rank_averaged_gaps_have_no_bounded_sensitivity():
    """The paper's Lemma 1 holds for one column only: in two columns one record moves the rank of a
    value by thousands.

    In the first column every second gap is 2, in the second column the gaps between them are, so
    that the averages are all 1. A record below all others in one column shifts that column's gaps
    by one rank, and the averages become 0 and 2.
    """
    n = 2000
    even_numbers = np.repeat(np.arange(n // 2) * 2, 2)
    first = even_numbers
    second = np.concatenate([[0], even_numbers + 2])[:n]
    points = np.column_stack([first, second]) - n
    neighbor = np.vstack([points, [-SCALE, SCALE]])
    change = n_gaps_below(neighbor, 0.5) - n_gaps_below(points, 0.5)
    assert change > 900  # the claim: at most 2

    # One column: at most two gaps change.
    for seed in range(50):
        column = grid_points(seed, n=40, d=1)
        shorter = np.delete(column, seed % 40, axis=0)
        for limit in (10, 1000, 5000):
            change = n_gaps_below(column, limit) - n_gaps_below(shorter, limit)
            assert abs(change) <= 2


# Mechanisms


class GivenUniforms(NoiseStreams):
    """A source whose uniforms are given."""

    def __init__(self, uniforms):
        super().__init__([0])
        self.uniforms = np.atleast_1d(uniforms)

    def uniform(self, key, shape):
        assert shape == self.uniforms.shape
        return self.uniforms[None]


def choose(exponents, uniforms):
    """Choices of the exponential mechanism, one for each uniform."""
    uniforms = np.atleast_1d(uniforms)
    scores = [np.asarray(exponents)] * len(uniforms)
    change = ScoreRange(np.ones(len(uniforms)))
    return GivenUniforms(uniforms).release(Exponential(1.0), scores, ("x", 0), change)[0]


@pytest.mark.statistical
def test_selection_follows_its_probabilities():
    exponents = np.array([0.0, 1.5, -2.0, 0.5, -np.inf, 1.0])
    change = ScoreRange(np.full(20_000, 2.0))
    scores = [exponents] * 20_000
    # Exponents are epsilon times the score over its sensitivity.
    choices = NoiseStreams([11]).release(Exponential(2.0), scores, ("x", 0), change)[0]
    observed = np.bincount(choices, minlength=6)
    assert observed[4] == 0

    weights = np.exp(exponents)
    expected = 20_000 * weights / weights.sum()
    possible = weights > 0
    assert stats.chisquare(observed[possible], expected[possible]).pvalue > 1e-6


def test_selection_is_stable_for_extreme_exponents():
    for uniform in (2.0**-54, 0.5, 1 - 2.0**-53):
        assert choose([-1e6, 1e6, 0.0], uniform) == 1
        assert choose([-np.inf, 1e6, -np.inf], uniform) == 1
        assert choose(np.full(3, -np.inf), uniform)[0] in range(3)
    with pytest.raises(ValueError, match="epsilon=0 of a selection"):
        Exponential(0)


@given(
    st.lists(st.floats(-60, 60), min_size=1, max_size=30),
    SEEDS,
)
def test_selection_inverts_the_distribution_function(values, seed):
    exponents = np.array(values)
    largest = exponents.max()
    uniform = np.random.default_rng(seed).uniform(2.0**-54, 1)
    (choice,) = choose(exponents, uniform)

    weights = [math.exp(exponent - largest) for exponent in exponents]
    below = math.fsum(weights[:choice])
    total = math.fsum(weights)
    lower = below / total
    upper = (below + weights[choice]) / total
    assert lower - 1e-14 <= uniform <= upper + 1e-14


@pytest.mark.statistical
@pytest.mark.parametrize("secure", [False, True])
def test_gumbel_and_uniform_streams_follow_their_distributions(secure):
    streams = NoiseStreams([5], secure=secure)
    # Fresh entropy cannot be seeded; a fresh sample fails a test at 1e-6 once in a million runs.
    gumbel = streams.gumbel(("a", 0), (40_000,))[0]
    assert stats.kstest(gumbel, stats.gumbel_r.cdf).pvalue > 1e-6
    uniform = streams.uniform(("b", 0), (40_000,))[0]
    assert stats.kstest(uniform, stats.uniform.cdf).pvalue > 1e-6
    assert uniform.min() > 0
    assert uniform.max() < 1


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 3.0])
@pytest.mark.parametrize("width", [1.0, 2.5, 40.0, 1000.0])
def test_bounded_laplace_is_private_by_its_density(epsilon, width):
    """Exact: the log ratio of the densities of neighboring values is largest at the ends, and at
    most epsilon.
    """
    mechanism = BoundedLaplace(epsilon, 1.0)
    b = float(mechanism.scale(np.array(width)))

    def log_density(value, output):
        below = -math.expm1(-value / b)
        above = -math.expm1(-(width - value) / b)
        return -abs(output - value) / b - math.log(below + above)

    log_ratios = []
    for value in np.linspace(0, width - 1, 41):
        for output in np.linspace(0, width, 41):
            log_ratio = log_density(value, output) - log_density(value + 1, output)
            log_ratios.append(abs(log_ratio))
    assert max(log_ratios) <= epsilon * (1 + 1e-6)
    assert max(log_ratios) > 0.5 * epsilon  # the scale is not wastefully wide


@pytest.mark.statistical
def test_bounded_laplace_has_its_moments():
    n = 60_000
    mechanism = BoundedLaplace(0.5, 1000.0)
    lower = -4000.0
    upper = 9000.0
    value = 500
    values = BoundedValues(np.full((1, n), value), np.array(lower), np.array(upper))
    sample = NoiseStreams([1]).release(mechanism, values, ("x", 0))[0]

    b = float(mechanism.scale(np.array(upper - lower)))

    def moment(power):
        """Moment of the density, not normalized."""

        def integrand(z):
            return z**power * math.exp(-abs(z - value) / b)

        integral, _ = integrate.quad(integrand, lower, upper, points=[value])
        return integral

    mass = moment(0)
    mean = moment(1) / mass
    sd = math.sqrt(moment(2) / mass - mean**2)
    assert sample.min() >= lower
    assert sample.max() <= upper
    assert sample.mean() == pytest.approx(mean, abs=5 * sd / math.sqrt(n))
    assert sample.std() == pytest.approx(sd, rel=0.02)


def test_bounded_sums_stay_inside_and_are_charged():
    points = grid_points(4, n=50, d=2)
    curator = Curator(points, Ledger(Budget(10.0)), NoiseStreams([1, 2]))
    centers = np.array([[[0, 0], [SCALE, SCALE]]] * 2)
    origin = np.array([-SCALE, -SCALE])
    query = CountsAndBoundedSums(centers, origin)
    sum_noise = BoundedLaplace(0.01, 2.0 * SCALE)
    answer = curator.release(query, counts=Laplace(20.0 * SCALE), sums=sum_noise)
    sums = answer["sums"]
    counts = mirrored(answer["counts"])
    upper = counts[:, :, None] * 2 + 1
    assert (counts >= SCALE // 2).all()
    assert (sums >= 0).all()
    assert (sums <= upper).all()
    # The sums are charged per coordinate.
    assert curator._ledger.spent() == pytest.approx(1 / 20 + 2 * 0.01)

    small_sensitivity = BoundedLaplace(0.01, SCALE)
    with pytest.raises(ValueError, match="sensitivity=65536"):
        curator.release(query, counts=Laplace(SCALE), sums=small_sensitivity)
    assert len(curator._ledger.charges) == 1


# What is charged


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


EQUALLY_SPACED = np.array([[0, 0], [SCALE // 4, SCALE // 2], [SCALE // 2, SCALE]])


def test_gap_percentile_charge_carries_its_flaw():
    curator = curator_of(EQUALLY_SPACED)
    released_percentile(curator, 65.0, 0.04)
    (charge,) = curator._ledger.charges
    assert charge.flaw == "F-13"
    assert charge.epsilon == 0.04
    assert charge.to_dict()["flaw"] == "F-13"

    # One column has no flaw.
    single_column = curator_of(EQUALLY_SPACED[:, :1])
    released_percentile(single_column, 65.0, 0.04)
    (charge,) = single_column._ledger.charges
    assert charge.flaw == ""


@pytest.mark.statistical
def test_gap_percentile_follows_its_distribution():
    n_draws = 4000
    curators = [curator_of(EQUALLY_SPACED, seed=seed) for seed in range(n_draws)]
    draws = [released_percentile(curator, 65.0, 4.0) for curator in curators]
    percentiles = np.array(draws)
    assert percentiles.min() >= 0
    assert percentiles.max() <= 2

    # Gaps: 3/8 twice, in half-widths. Intervals (0, 3/8), (3/8, 3/8), (3/8, 2); ranks 0, 1, 2;
    # target 0.65 * 2.
    gap = 3 / 8
    weights = np.exp([-1.3, -0.7]) * [gap, 2 - gap]
    p_below = weights[0] / weights.sum()
    standard_error = math.sqrt(p_below * (1 - p_below) / n_draws)
    assert (percentiles < gap).mean() == pytest.approx(p_below, abs=5 * standard_error)
    above = percentiles[percentiles > gap]
    uniform = stats.uniform(gap, 2 - gap)
    assert stats.kstest(above, uniform.cdf).pvalue > 1e-6


@pytest.mark.parametrize(
    "points",
    [
        np.zeros((1, 2), int),
        np.zeros((5, 2), int),
        np.array([[-SCALE], [SCALE]]),
    ],
)
def test_gap_percentile_of_ties_and_single_points(points):
    percentile = released_percentile(curator_of(points), 65.0, 0.04)
    assert 0 <= percentile <= 2


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


# Ledger: plain sums, mixtures, calibrated schedules


def gaussian_charge(round_index, mu):
    return Charge("g", round_index, "gaussian", mu=mu)


def exponential_charge(round_index, epsilon):
    return Charge("e", round_index, "exponential", epsilon=epsilon)


def test_largest_multiple_exhausts_the_budget():
    mus = [0.01, 0.02, 0.1]
    epsilons = [0.01, 0.02, 0.05]
    factor = largest_multiple(mus, epsilons, 1.0, 1e-6)
    ledger = Ledger(Budget(1.0, 1e-6))
    for i, mu in enumerate(mus):
        ledger.charge(gaussian_charge(i, factor * mu))
    for i, epsilon in enumerate(epsilons):
        ledger.charge(exponential_charge(i, factor * epsilon))
    assert ledger.spent() == pytest.approx(1.0, rel=1e-4)
    assert ledger.spent() <= 1.0 + 1e-9
    with pytest.raises(BudgetExceeded):
        ledger.charge(exponential_charge(9, 0.01))

    with pytest.raises(ValueError, match="must not all be zero"):
        largest_multiple([0.0], [], 1.0, 1e-6)
    pure_factor = largest_multiple([], [0.5, 0.5], 1.0, 1e-9)
    assert pure_factor == pytest.approx(1.0, rel=1e-3)


def test_plain_sum_bounds_the_composition():
    """Sums of epsilons bound the composition from above, so the quick check is the stricter one."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        epsilons = rng.uniform(0, 0.2, 4)
        mu = rng.uniform(0.01, 0.3)
        plain_sum = epsilons.sum() + gdp_epsilon(mu, 1e-6)
        ledger = Ledger(Budget(10.0, 1e-6))
        ledger.charge(gaussian_charge(0, mu))
        for i, epsilon in enumerate(epsilons):
            ledger.charge(exponential_charge(i, epsilon))
        assert ledger.delta_at(plain_sum) <= 1e-6 * (1 + 1e-6)


def clear_composition_caches():
    ledger_module._coin_losses.cache_clear()
    ledger_module._composed_delta.cache_clear()


def test_pure_mixtures_match_brute_force_and_round_up(monkeypatch):
    """Every outcome of 12 coins is listed; with a short list of sums, losses are rounded up, never
    down.
    """
    composed_delta = ledger_module._composed_delta
    epsilons = np.random.default_rng(0).uniform(0.01, 0.3, 12)
    sorted_epsilons = tuple(sorted(epsilons.tolist()))

    # All outcomes as signs, with their probabilities and privacy losses.
    outcomes = np.array(list(np.ndindex(*[2] * 12)))
    signs = outcomes * 2 - 1
    p_positive = np.exp(epsilons) / (1 + np.exp(epsilons))
    factors = np.where(signs == 1, p_positive, 1 - p_positive)
    probabilities = factors.prod(axis=1)
    losses = signs @ epsilons
    for epsilon in (0.0, 0.4, 1.0, 3.0):
        excess = np.maximum(-np.expm1(epsilon - losses), 0)
        delta = composed_delta(0.0, sorted_epsilons, epsilon)
        assert delta == pytest.approx(probabilities @ excess, abs=1e-14)

    clear_composition_caches()
    monkeypatch.setattr(ledger_module, "MAX_LOSSES", 500)
    rounded_delta = composed_delta(0.1, sorted_epsilons, 0.7)
    clear_composition_caches()
    monkeypatch.undo()
    exact_delta = composed_delta(0.1, sorted_epsilons, 0.7)
    assert exact_delta <= rounded_delta <= 1.1 * exact_delta


# What is released is what is charged: on neighbors, cell by cell, draw by draw


def recorded_exponents(tree, cells, sizes, score, epsilon, margin=0.0):
    """Exponents (cells, candidates) of a choice of splits."""
    query = Splits(cells, sizes, score, margin)
    exact = [scores.copy() for scores in query.exact(tree)["choices"]]
    changes = query.sensitivity(tree)["choices"].change
    return np.array(exact) * (epsilon / changes)[:, None]


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


@given(SEEDS, st.integers(0, 49))
@settings(max_examples=30, deadline=None)
def test_bounded_sums_change_within_their_sensitivity(seed, removed):
    points = grid_points(seed, n=50)
    neighbor = np.delete(points, removed, axis=0)
    rng = np.random.default_rng(seed)
    centers = grid_points(seed + 1, n=4)[None]
    origin = rng.integers(-SCALE, SCALE, 3)

    query = CountsAndBoundedSums(centers, origin)
    exact = query.exact(curator_of(points))
    neighbor_exact = query.exact(curator_of(neighbor))
    sensitivity = query.sensitivity(curator_of(points))["sums"]
    assert sensitivity.linf == SCALE + np.abs(origin).max()
    assert np.abs(exact["sums"] - neighbor_exact["sums"]).max() <= sensitivity.linf
    assert np.abs(exact["counts"] - neighbor_exact["counts"]).sum() == SCALE


# The analytic formula is not proved for large budgets.
ANALYTIC = {DistDP: {"calibration": "analytic"}, NoisedPoints: {"calibration": "analytic"}}


@pytest.mark.parametrize("method", PRIVATE_CLASSES)
def test_releases_never_share_a_stream(method, monkeypatch):
    """Every draw of a run, of every variant, has a unique key."""
    draws = []
    seeded = NoiseStreams._seeded

    def recording(self, key, shape, draw):
        # A rehearsal on public points releases nothing; its seed is 0.
        if self.seeds != (0,):
            draws.append((self.seeds, key))
        return seeded(self, key, shape, draw)

    monkeypatch.setattr(NoiseStreams, "_seeded", recording)
    rng = np.random.default_rng(0)
    points = rng.integers(-SCALE, SCALE, (4000, 3))
    has_variants = "variant" in signature(method).parameters
    for variant in method.claims:
        draws.clear()
        parameters = dict(ANALYTIC.get(method, {}))
        if has_variants:
            parameters["variant"] = variant
        model = method(n_clusters=3, epsilon=5.0, **parameters)
        run = model.fit_batch(points, [1, 2])
        assert len(draws) > len(run.ledger.charges) / 2
        assert len(set(draws)) == len(draws)


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
    with pytest.raises(ValueError, match="sizes must be 3 finite numbers"):
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
