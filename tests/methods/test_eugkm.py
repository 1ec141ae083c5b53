"""EUGkM: its grid and rules, the sensitivity, noise and accounting of its one release, and how good
it is.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkm import datasets
from pkm.audit.conformance import conformance
from pkm.methods.coreset import consistent
from pkm.methods.eugkm import MAX_CELLS, EUGkM, grid_intervals
from pkm.methods.kmeans import KMeansPlusPlus
from pkm.metrics import evaluate
from pkm.privacy import (
    SCALE,
    Budget,
    BudgetExceeded,
    Curator,
    Gaussian,
    Laplace,
    Ledger,
    NoiseStreams,
    gaussian_mu,
    snap,
)

MILLIONS = 2_000_000


class Silent(Laplace):
    """Laplace noise that is charged and not added: what leaves is the exact answer."""

    def add(self, values, streams, key, unit=1.0):
        return values


def curator(points, seeds=(0,), budget=1.0, delta=0.0):
    return Curator(points, Ledger(Budget(budget, delta)), NoiseStreams(seeds))


def draw(n, d, seed=0):
    return np.random.default_rng(seed).integers(-SCALE, SCALE + 1, (n, d))


def exact_counts(points, intervals):
    return curator(points).grid_counts(intervals, Silent(SCALE))[0]


@pytest.mark.parametrize(("d", "intervals"), [(1, 7), (2, 3), (3, 5), (4, 2)])
def test_cells_are_those_of_the_definition(d, intervals):
    edge = snap(np.linspace(-1, 1, 2 * intervals + 1))[:, None].repeat(d, axis=1)
    points = np.concatenate([draw(200, d), edge])
    expected = np.zeros((intervals,) * d, np.int64)
    for row in points:
        place = [math.floor(Fraction(int(x) + SCALE, 2 * SCALE) * intervals) for x in row]
        expected[tuple(min(i, intervals - 1) for i in place)] += (
            1  # the domain's upper end belongs to the last cell
        )
    np.testing.assert_array_equal(exact_counts(points, intervals), expected * SCALE)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_a_record_changes_one_count_by_one(d, intervals, seed):
    points = draw(20, d, seed)
    with_it = exact_counts(points, intervals)
    without = exact_counts(points[1:], intervals)
    assert np.abs(with_it - without).sum() == SCALE and (with_it >= without).all()


def test_counts_depend_neither_on_order_nor_on_shards_nor_on_the_batch():
    points = draw(300, 2)
    noise = Laplace(SCALE)
    whole = curator(points, (3, 1)).grid_counts(5, noise)
    shuffled = np.random.default_rng(1).permutation(points)
    np.testing.assert_array_equal(
        whole, curator([shuffled[:7], shuffled[7:]], (3, 1)).grid_counts(5, noise)
    )
    np.testing.assert_array_equal(whole[1:], curator(points, (1,)).grid_counts(5, noise))


@pytest.mark.statistical
@pytest.mark.parametrize("noise", [Laplace(3.0 * SCALE), Gaussian(3.0 * SCALE)])
def test_noise_has_the_scale_that_is_charged(noise):
    door = curator(np.zeros((1, 2), np.int64), budget=2.0, delta=1e-6)
    found = door.grid_counts(200, noise)[0].astype(np.float64)
    found[100, 100] -= SCALE
    found = found.ravel() / noise.scale
    fourth = 24 if noise.norm == 1 else 3
    variance = 2.0 if noise.norm == 1 else 1.0
    # Five standard errors each: fixed seed, odds of failure for another one below 1e-6.
    assert abs(found.mean()) < 5 * math.sqrt(variance / found.size)
    assert abs((found**2).mean() - variance) < 5 * math.sqrt((fourth - variance**2) / found.size)
    (charge,) = door._ledger.charges
    cost = charge.details["count_sensitivity"] / charge.details["count_scale"]
    assert (charge.mu, charge.epsilon) == ((cost, 0.0) if noise.norm == 2 else (0.0, cost))
    assert cost == pytest.approx(1 / 3) and charge.details["intervals"] == 200


def test_too_much_is_refused_before_anything_is_drawn():
    door = curator(draw(10, 2), budget=1.0)
    with pytest.raises(BudgetExceeded):
        door.grid_counts(3, Laplace(SCALE / 1.01))
    with pytest.raises(ValueError, match="intervals=3000 must be at least 1 and, in 2 features"):
        door.grid_counts(3000, Laplace(SCALE))
    with pytest.raises(ValueError, match="needs a ledger"):
        Curator(draw(10, 2), None, NoiseStreams([0])).grid_counts(3, Laplace(SCALE))
    assert not door._ledger.charges
    door.grid_counts(3, Laplace(SCALE))


def test_gaussian_counts_compose_with_the_rest():
    mu = gaussian_mu(1.0, 1e-6)
    door = curator(draw(10, 2), budget=1.0, delta=1e-6)
    for _ in range(2):
        door.grid_counts(3, Gaussian(math.sqrt(2) * SCALE / mu))
    assert door._ledger.spent() == pytest.approx(1.0, rel=1e-6)


# n epsilon = 100,000: the published rule gives 10,000 ^ (2 / (d + 2)).
@pytest.mark.parametrize(
    ("d", "intervals"), [(1, 464), (2, 100), (3, 40), (4, 22), (6, 10), (8, 6), (10, 4), (20, 2)]
)
def test_published_rule(d, intervals):
    assert grid_intervals(50_000, d, 9, 2.0, "published", MILLIONS) == intervals


@given(
    st.integers(1, 10**7),
    st.integers(1, 20),
    st.integers(1, 500),
    st.floats(1e-6, 1e6),
    st.sampled_from(["published", "balanced"]),
)
def test_grids_are_neither_too_coarse_nor_too_large(n, d, k, epsilon, rule):
    intervals = grid_intervals(n, d, k, epsilon, rule, MILLIONS)
    assert intervals >= 2 and intervals**d <= MILLIONS
    assert intervals <= grid_intervals(2 * n, d, k, epsilon, rule, MILLIONS)


def test_a_rule_that_wants_more_gets_the_largest_grid():
    # 1000 ^ 2 cells are allowed exactly, though the float root of a million may come out below
    # 1000.
    assert grid_intervals(10**9, 2, 8, 10.0, "published", 10**6) == 1000
    assert grid_intervals(10**9, 3, 8, 10.0, "published", 10**6 - 1) == 99


@pytest.mark.parametrize(
    ("n", "d", "k", "epsilon"), [(5000, 2, 15, 1.0), (40_000, 3, 8, 0.5), (250_000, 4, 4, 4.0)]
)
def test_balanced_rule_minimizes_the_sum_of_both_errors(n, d, k, epsilon):
    def error(m):
        return n * d / (3 * m**2) + 2 * k ** (1 - 2 / d) * m**d * d / (3 * epsilon**2 * n)

    found = grid_intervals(n, d, k, epsilon, "balanced", 10**9)
    # The best real number rounds to it: the error is convex in log m, so half a step to either side
    # is worse or equal.
    steps = np.linspace(found - 3, found + 3, 6001)
    assert abs(steps[np.argmin(error(steps))] - found) <= 0.501


@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=40), st.floats(1e-2, 1e6))
def test_consistent_counts_are_a_shift_cut_at_zero_with_the_right_sum(counts, total):
    counts = np.array(counts)
    found = consistent(counts, total)
    assert (found >= 0).all() and found.sum() == pytest.approx(total, rel=1e-6)
    kept = found > 0
    shift = (found - counts)[kept]
    assert np.ptp(shift) <= 1e-9 * (1 + np.abs(counts).max() + total)
    # What was cut would have come out below zero with the same shift.
    assert (counts[~kept] + shift.max() <= 1e-6 * (1 + np.abs(counts).max())).all()


@pytest.mark.parametrize("rule", ["published", "balanced"])
@pytest.mark.parametrize("consistent", [True, False])
def test_without_noise_only_the_rounding_to_cells_is_left(rule, consistent, monkeypatch):
    monkeypatch.setattr(Laplace, "add", Silent.add)
    points = snap(datasets.load("planted-2000-2-5-0.1").points)
    run = EUGkM(n_clusters=5, epsilon=50.0, grid_rule=rule, consistent=consistent).fit_batch(
        points, [0]
    )
    intervals = grid_intervals(2000, 2, 5, 50.0, rule, MILLIONS)
    best = evaluate(
        points, KMeansPlusPlus(n_clusters=5, n_init=10).fit_batch(points, [0]).centers, ["nicv"]
    )["nicv"]
    found = evaluate(points, run.centers, ["nicv"])["nicv"]
    # A mean of cell middles is off by at most half a cell's diagonal.
    assert found <= best + 2 / intervals**2


def test_one_pure_charge_pays_for_everything():
    for rule in ("published", "balanced"):
        run = EUGkM(n_clusters=3, epsilon=0.7, grid_rule=rule).fit_batch(draw(400, 3), [0, 5])
        (charge,) = run.ledger.charges
        assert charge.mechanism == "laplace" and charge.epsilon == pytest.approx(0.7, rel=1e-12)
        assert run.ledger.budget.delta == 0 and run.ledger.spent() == pytest.approx(0.7, rel=1e-12)


def test_it_stands_by_the_contract():
    failed = [f"{each.check}: {each.error}" for each in conformance(EUGkM) if each.error]
    assert not failed


def test_results_are_close_to_the_best_on_separated_clusters():
    points = snap(datasets.load("planted-20000-2-16-0.05").points)
    best = evaluate(
        points, KMeansPlusPlus(n_clusters=16, n_init=10).fit_batch(points, [0]).centers, ["nicv"]
    )["nicv"]
    run = EUGkM(n_clusters=16, epsilon=1.0).fit_batch(points, range(5))
    assert np.median(evaluate(points, run.centers, ["nicv"])["nicv"]) < 1.15 * best[0]


def test_fewer_cells_with_points_than_clusters_give_fewer_centers(monkeypatch):
    monkeypatch.setattr(Laplace, "add", Silent.add)
    run = EUGkM(n_clusters=4, epsilon=1.0).fit_batch(np.zeros((50, 2), np.int64), [0])
    assert run.n_centers.tolist() == [1]


def test_counts_that_are_all_negative_leave_the_middle_of_the_domain(monkeypatch):
    monkeypatch.setattr(
        Laplace,
        "add",
        lambda self, values, streams, key, unit=1.0: np.full_like(values, -3 * SCALE),
    )
    for add_up, n_centers in ((False, 1), (True, 2)):
        run = EUGkM(n_clusters=2, consistent=add_up).fit_batch(draw(30, 2), [0])
        assert run.n_centers.tolist() == [n_centers]
    run = EUGkM(n_clusters=2, consistent=False).fit_batch(draw(30, 2), [0])
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


def test_too_many_columns_are_refused_by_name():
    with pytest.raises(ValueError, match=r"max_cells=2000000 is too few for d=21 features"):
        EUGkM(n_clusters=2).fit_batch(draw(50, 21), [0])
    with pytest.raises(ValueError, match=r"max_cells=7 is too few for d=3 features"):
        EUGkM(n_clusters=2, max_cells=7).fit_batch(draw(50, 3), [0])
    assert EUGkM(n_clusters=2, max_cells=8).fit_batch(draw(50, 3), [0]).n_centers[0] <= 2
