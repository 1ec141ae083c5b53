"""EUGkM: its grid and rules, the sensitivity, noise and cost of its one release, its quality."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from noiseless import add_nothing, draw, nicv

from pkm import datasets
from pkm.methods.baselines.kmeans import KMeansPlusPlus
from pkm.methods.coreset import project_onto_simplex
from pkm.methods.trees.eugkm import (
    MAX_CELLS,
    EUGkM,
    GaussianEUGkM,
    GaussianHybridKMeans,
    HybridKMeans,
    grid_intervals,
)
from pkm.privacy import (
    SCALE,
    Budget,
    BudgetExceeded,
    Curator,
    Gaussian,
    GridCounts,
    Laplace,
    Ledger,
    NoiseStreams,
    gaussian_mu,
    snap,
)

N_CELLS = 2_000_000


def curator(points, seeds=(0,), budget=1.0, delta=0.0):
    return Curator(points, Ledger(Budget(budget, delta)), NoiseStreams(seeds))


def exact_counts(points, intervals):
    return GridCounts(intervals).exact(curator(points))["counts"][0]


def released_counts(holder, intervals, noise):
    return holder.release(GridCounts(intervals), counts=noise)["counts"]


def best_nicv(points, k):
    return nicv(points, KMeansPlusPlus(n_clusters=k, n_init=10).fit_batch(points, [0]))[0]


@pytest.mark.parametrize(("d", "intervals"), [(1, 7), (2, 3), (3, 5), (4, 2)])
def test_cells_are_those_of_the_definition(d, intervals):
    edges = snap(np.linspace(-1, 1, 2 * intervals + 1))[:, None].repeat(d, axis=1)
    points = np.concatenate([draw(200, d), edges])
    expected = np.zeros((intervals,) * d, np.int64)
    for point in points:
        cell = []
        for x in point:
            index = math.floor(Fraction(int(x) + SCALE, 2 * SCALE) * intervals)
            # The domain's upper end belongs to the last cell.
            cell.append(min(index, intervals - 1))
        expected[tuple(cell)] += 1
    np.testing.assert_array_equal(exact_counts(points, intervals), expected * SCALE)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_a_record_changes_one_count_by_one(d, intervals, seed):
    points = draw(20, d, seed)
    counts = exact_counts(points, intervals)
    neighbor_counts = exact_counts(points[1:], intervals)
    assert np.abs(counts - neighbor_counts).sum() == SCALE
    assert (counts >= neighbor_counts).all()


def test_counts_are_independent_of_order_shards_and_batch():
    points = draw(300, 2)
    noise = Laplace(SCALE)
    counts = released_counts(curator(points, (3, 1)), 5, noise)
    shuffled = np.random.default_rng(1).permutation(points)
    shards = [shuffled[:7], shuffled[7:]]
    sharded_counts = released_counts(curator(shards, (3, 1)), 5, noise)
    np.testing.assert_array_equal(counts, sharded_counts)
    single_counts = released_counts(curator(points, (1,)), 5, noise)
    np.testing.assert_array_equal(counts[1:], single_counts)


@pytest.mark.statistical
@pytest.mark.parametrize("noise", [Laplace(3.0 * SCALE), Gaussian(3.0 * SCALE)])
def test_noise_has_the_scale_that_is_charged(noise):
    holder = curator(np.zeros((1, 2), np.int64), budget=2.0, delta=1e-6)
    counts = released_counts(holder, 200, noise)[0].astype(np.float64)
    counts[100, 100] -= SCALE
    draws = counts.ravel() / noise.scale
    is_laplace = isinstance(noise, Laplace)
    fourth_moment = 24 if is_laplace else 3
    variance = 2.0 if is_laplace else 1.0
    # Five standard errors each: fixed seed, odds of failure for another one below 1e-6.
    mean_error = math.sqrt(variance / draws.size)
    variance_error = math.sqrt((fourth_moment - variance**2) / draws.size)
    assert abs(draws.mean()) < 5 * mean_error
    assert abs((draws**2).mean() - variance) < 5 * variance_error

    (charge,) = holder._ledger.charges
    cost = charge.details["count_sensitivity"] / charge.details["count_scale"]
    assert charge.mu == (0.0 if is_laplace else cost)
    assert charge.epsilon == (cost if is_laplace else 0.0)
    assert cost == pytest.approx(1 / 3)
    assert charge.details["intervals"] == 200


def test_overspending_is_refused_before_any_draw():
    holder = curator(draw(10, 2), budget=1.0)
    with pytest.raises(BudgetExceeded):
        released_counts(holder, 3, Laplace(SCALE / 1.01))
    with pytest.raises(
        ValueError,
        match="intervals=3000 must be at least 1 and, in 2 features",
    ):
        released_counts(holder, 3000, Laplace(SCALE))
    without_ledger = Curator(draw(10, 2), None, NoiseStreams([0]))
    with pytest.raises(ValueError, match="needs a ledger"):
        released_counts(without_ledger, 3, Laplace(SCALE))
    assert not holder._ledger.charges
    released_counts(holder, 3, Laplace(SCALE))


def test_gaussian_counts_compose():
    mu = gaussian_mu(1.0, 1e-6)
    noise = Gaussian(math.sqrt(2) * SCALE / mu)
    holder = curator(draw(10, 2), budget=1.0, delta=1e-6)
    for _ in range(2):
        released_counts(holder, 3, noise)
    assert holder._ledger.spent() == pytest.approx(1.0, rel=1e-6)


# n epsilon = 100,000: the published rule gives 10,000 ^ (2 / (d + 2)).
@pytest.mark.parametrize(
    ("d", "intervals"),
    [
        (1, 464),
        (2, 100),
        (3, 40),
        (4, 22),
        (6, 10),
        (8, 6),
        (10, 4),
        (20, 2),
    ],
)
def test_published_rule(d, intervals):
    assert grid_intervals(50_000, d, 9, 2.0, "published", N_CELLS) == intervals


@given(
    st.integers(1, 10**7),
    st.integers(1, 20),
    st.integers(1, 500),
    st.floats(1e-6, 1e6),
    st.sampled_from(["published", "balanced"]),
)
def test_grids_are_neither_too_coarse_nor_too_large(n, d, k, epsilon, rule):
    intervals = grid_intervals(n, d, k, epsilon, rule, N_CELLS)
    assert intervals >= 2
    assert intervals**d <= N_CELLS
    assert intervals <= grid_intervals(2 * n, d, k, epsilon, rule, N_CELLS)


def test_max_cells_limits_the_grid():
    # 1000 ^ 2 cells are allowed exactly, though the float root of a million may come out below
    # 1000.
    assert grid_intervals(10**9, 2, 8, 10.0, "published", 10**6) == 1000
    assert grid_intervals(10**9, 3, 8, 10.0, "published", 10**6 - 1) == 99


@pytest.mark.parametrize(
    ("n", "d", "k", "epsilon"),
    [(5000, 2, 15, 1.0), (40_000, 3, 8, 0.5), (250_000, 4, 4, 4.0)],
)
def test_balanced_rule_minimizes_the_total_error(n, d, k, epsilon):
    def error(m):
        discretization = n * d / (3 * m**2)
        noise = 2 * k ** (1 - 2 / d) * m**d * d / (3 * epsilon**2 * n)
        return discretization + noise

    intervals = grid_intervals(n, d, k, epsilon, "balanced", 10**9)
    # The best real number rounds to it: the error is convex in log m, so half a step to either side
    # is worse or equal.
    candidates = np.linspace(intervals - 3, intervals + 3, 6001)
    best = candidates[np.argmin(error(candidates))]
    assert abs(best - intervals) <= 0.501


@given(
    st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=40),
    st.floats(1e-2, 1e6),
)
def test_consistent_counts_are_shifted_and_cut_at_zero(counts, total):
    """And they have the right sum."""
    counts = np.array(counts)
    adjusted = project_onto_simplex(counts, total)
    assert (adjusted >= 0).all()
    assert adjusted.sum() == pytest.approx(total, rel=1e-6)
    kept = adjusted > 0
    shifts = (adjusted - counts)[kept]
    largest = np.abs(counts).max()
    assert np.ptp(shifts) <= 1e-9 * (1 + largest + total)
    # What was cut would have come out below zero with the same shift.
    cut = counts[~kept] + shifts.max()
    assert (cut <= 1e-6 * (1 + largest)).all()


@pytest.mark.parametrize("rule", ["published", "balanced"])
@pytest.mark.parametrize("consistent", [True, False])
def test_without_noise_only_discretization_error_remains(rule, consistent, monkeypatch):
    monkeypatch.setattr(Laplace, "draw", add_nothing)
    points = snap(datasets.load("planted-2000-2-5-0.1").points)
    method = EUGkM(n_clusters=5, epsilon=50.0, grid_rule=rule, consistent=consistent)
    run = method.fit_batch(points, [0])
    intervals = grid_intervals(2000, 2, 5, 50.0, rule, N_CELLS)
    # A mean of cell midpoints is off by at most half a cell's diagonal.
    assert nicv(points, run) <= best_nicv(points, 5) + 2 / intervals**2


@pytest.mark.parametrize("rule", ["published", "balanced"])
def test_single_pure_charge_spends_the_budget(rule):
    run = EUGkM(n_clusters=3, epsilon=0.7, grid_rule=rule).fit_batch(draw(400, 3), [0, 5])
    (charge,) = run.ledger.charges
    assert charge.mechanism == "laplace"
    assert charge.epsilon == pytest.approx(0.7, rel=1e-12)
    assert run.ledger.budget.delta == 0
    assert run.ledger.spent() == pytest.approx(0.7, rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
def test_gaussian_counts_have_the_grid_of_laplace_counts_of_equal_variance(epsilon):
    run = GaussianEUGkM(n_clusters=3, epsilon=epsilon).fit_batch(draw(4000, 3), [0])
    (charge,) = run.ledger.charges
    mu = gaussian_mu(epsilon, 1e-6)
    assert charge.mechanism == "gaussian"
    assert charge.mu == pytest.approx(mu, rel=1e-9)
    assert run.ledger.spent() == pytest.approx(epsilon, rel=1e-6)
    # Variances 2 / epsilon^2 and 1 / mu^2.
    expected = grid_intervals(4000, 3, 3, math.sqrt(2) * mu, "published", N_CELLS)
    assert charge.details["intervals"] == expected


# The hybrid

HYBRIDS = (HybridKMeans, GaussianHybridKMeans)
PAIRS = ((HybridKMeans, EUGkM), (GaussianHybridKMeans, GaussianEUGkM))


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0, 8.0])
@pytest.mark.parametrize(("n", "d", "k"), [(1000, 2, 15), (100_000, 2, 15), (20_000, 8, 8)])
def test_hybrid_makes_a_step_where_cells_are_wider_than_its_error(n, d, k, epsilon):
    # Error of a DP-Lloyd round (Su et al.) against that of a uniform point of a cell.
    weight = (4 * d * 0.225**2) ** (1 / 3)
    step_error = 2 * k**3 / n**2 * (d + weight) ** 3 / (epsilon / 2) ** 2
    intervals = grid_intervals(n, d, k, epsilon / 2, "published", N_CELLS)
    cell_error = d * (2 / intervals) ** 2 / 12
    method = HybridKMeans(n_clusters=k, epsilon=epsilon)
    assert method.has_step(n, d) == (step_error < cell_error)


def test_error_of_a_gaussian_step_follows_from_its_noise():
    # Over k centers of n / k records each, which a step moves by eta / 2: noise of the sums, and
    # that of the counts times the step (FastLloyd paper, Sec. 5.5).
    n, d, k = 20_000, 4, 8
    method = GaussianHybridKMeans(n_clusters=k, epsilon=1.0)
    lloyd = method._lloyd()
    this_round = lloyd.schedule(n, d).rounds[0]
    sums = d * (this_round.sum_noise.scale / SCALE * k / n) ** 2
    counts = (lloyd.radius(d) / 2 * this_round.count_noise.scale / SCALE * k / n) ** 2
    error = lloyd.round_error(n, d, 2)
    assert error == pytest.approx(k * (sums + counts), rel=1e-9)


@pytest.mark.parametrize("method", HYBRIDS)
@pytest.mark.parametrize("epsilon", [0.3, 1.7])
def test_halves_of_the_hybrid_add_up_to_its_budget(method, epsilon):
    """Recomputed from the noise scales of the charges."""
    d = 3
    run = method(n_clusters=2, epsilon=epsilon).fit_batch(draw(20_000, d), [0, 5])
    grid, step = run.ledger.charges
    grid_cost = 1 / grid.details["count_scale"]
    sum_cost = step.details["sum_sensitivity"] / step.details["sum_scale"]
    count_cost = 1 / step.details["count_scale"]
    if method is HybridKMeans:
        assert grid_cost == pytest.approx(epsilon / 2, rel=1e-12)
        assert sum_cost + count_cost == pytest.approx(epsilon / 2, rel=1e-12)
    else:
        half = gaussian_mu(epsilon, 1e-6) ** 2 / 2
        assert grid_cost**2 == pytest.approx(half, rel=1e-9)
        assert sum_cost**2 + count_cost**2 == pytest.approx(half, rel=1e-9)
    assert run.ledger.spent() == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize(("method", "grid"), PAIRS)
def test_without_a_step_the_hybrid_spends_what_eugkm_does(method, grid):
    points = draw(500, 2)
    assert not method(n_clusters=15, epsilon=0.1).has_step(500, 2)
    charges = method(n_clusters=15, epsilon=0.1).fit_batch(points, [0]).ledger.charges
    assert charges == grid(n_clusters=15, epsilon=0.1).fit_batch(points, [0]).ledger.charges


def test_hybrid_without_noise_is_a_lloyd_step_from_the_grid(monkeypatch):
    monkeypatch.setattr(Laplace, "draw", add_nothing)
    points = snap(datasets.load("planted-2000-3-4-0.1").points)
    # The same grid: half of the epsilon of the hybrid.
    start = EUGkM(n_clusters=4, epsilon=25.0).fit_batch(points, [0]).centers[0]
    run = HybridKMeans(n_clusters=4, epsilon=50.0).fit_batch(points, [0])
    assert run.n_iter == 2
    nearest = ((points[:, None] - start[None]) ** 2).sum(axis=2).argmin(axis=1)
    means = np.stack([points[nearest == i].mean(axis=0) for i in range(4)])
    np.testing.assert_allclose(run.centers[0], means, atol=0.5 + 1e-9)


@pytest.mark.statistical
@pytest.mark.parametrize(("method", "grid"), PAIRS)
def test_a_step_repairs_coarse_cells(method, grid):
    # Eight columns: three intervals in each at most. Fixed seeds; ratios are below 0.05.
    points = snap(datasets.load("planted-20000-8-8-0.05").points)
    hybrid = nicv(points, method(n_clusters=8, epsilon=1.0).fit_batch(points, range(5)))
    alone = nicv(points, grid(n_clusters=8, epsilon=1.0).fit_batch(points, range(5)))
    assert np.median(hybrid) < np.median(alone) / 5


def test_finds_separated_clusters():
    points = snap(datasets.load("planted-20000-2-16-0.05").points)
    run = EUGkM(n_clusters=16, epsilon=1.0).fit_batch(points, range(5))
    assert np.median(nicv(points, run)) < 1.15 * best_nicv(points, 16)


def test_few_occupied_cells_give_few_centers(monkeypatch):
    monkeypatch.setattr(Laplace, "draw", add_nothing)
    run = EUGkM(n_clusters=4, epsilon=1.0).fit_batch(np.zeros((50, 2), np.int64), [0])
    assert run.n_centers.tolist() == [1]


def test_negative_counts_give_the_middle_of_the_domain(monkeypatch):
    def subtract(self, values, streams, key, sensitivity=None):
        return np.full_like(values, -3 * SCALE)

    monkeypatch.setattr(Laplace, "draw", subtract)
    points = draw(30, 2)
    run = EUGkM(n_clusters=2, consistent=True).fit_batch(points, [0])
    assert run.n_centers.tolist() == [2]
    run = EUGkM(n_clusters=2, consistent=False).fit_batch(points, [0])
    assert run.n_centers.tolist() == [1]
    assert (run.centers == 0).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"grid_rule": "fine"}, "grid_rule='fine' is unknown"),
        ({"max_cells": 1}, "max_cells=1 must be an integer from 2"),
        ({"max_cells": MAX_CELLS + 1}, f"to {MAX_CELLS}"),
        ({"max_cells": 1e4}, "max_cells=10000.0"),
        ({"n_init": 0}, "n_init=0 must be"),
        ({"consistent": "yes"}, "consistent='yes' is unknown"),
        ({"epsilon": 0.0}, "epsilon=0.0"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        EUGkM(n_clusters=2, **parameters).fit_batch(draw(20, 2), [0])


def test_too_many_features_are_refused():
    with pytest.raises(ValueError, match=r"max_cells=2000000 is too few for d=21 features"):
        EUGkM(n_clusters=2).fit_batch(draw(50, 21), [0])
    points = draw(50, 3)
    with pytest.raises(ValueError, match=r"max_cells=7 is too few for d=3 features"):
        EUGkM(n_clusters=2, max_cells=7).fit_batch(points, [0])
    run = EUGkM(n_clusters=2, max_cells=8).fit_batch(points, [0])
    assert run.n_centers[0] <= 2
