"""Maximum cover and projected queries: draws against enumeration, cost, noise, refusals.

Statistical tests use fixed seeds; their thresholds are five standard errors of the statistic
(fewer than one false alarm in a million) or a p-value of 1e-6.
"""

import itertools
import math

import numpy as np
import pytest
from lattices import ball_points, covered_counts, enumerated
from scipy import stats

from pkm.compute.kernels.cover import Cover
from pkm.privacy import (
    SCALE,
    Budget,
    BudgetExceeded,
    CoverPicks,
    Curator,
    Gaussian,
    Laplace,
    Ledger,
    MaximumCover,
    NoiseStreams,
    ProjectedCounts,
    ProjectedSumsAndCounts,
)
from pkm.privacy.mechanisms.selection import ScoreSensitivity
from pkm.privacy.queries.projection import cover_epsilon, cover_weight, draw_cover

# Draws of the cover


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize(
    ("n", "weight", "kinds"),
    [(60, 0.005, "bounded"), (60, 0.05, "both"), (2, 2.2, "counted")],
)
def test_draws_follow_the_exponential_mechanism(n, weight, kinds):
    """Frequencies of all grid points against probabilities computed by plain enumeration."""
    dense = ball_points(n, 2, seed=1, spread=0.1)
    sparse = ball_points(n // 2, 2, seed=2)
    points = np.concatenate([dense, sparse])
    side = 0.18
    radius = 0.5
    cover = Cover(points, side, radius, weight)
    has_counted = len(cover.positive_counts()[0]) > 0
    has_bounded = len(cover.bounds) > 0
    assert has_counted == (kinds in ("counted", "both"))
    assert has_bounded == (kinds in ("bounded", "both"))

    grid_points = enumerated(cover.lattice)
    weights = np.exp(weight * covered_counts(grid_points, points, side, radius))
    streams = NoiseStreams([7])
    n_draws = 8_000
    draws = [tuple(draw_cover(cover, weight, streams, ("test", i))) for i in range(n_draws)]
    observed = np.array([draws.count(tuple(v)) for v in grid_points])
    assert observed.sum() == n_draws  # nothing outside the ball

    # Rare grid points are pooled, so that the chi-square law holds.
    expected = n_draws * weights / weights.sum()
    order = np.argsort(expected)
    rare = np.cumsum(expected[order]) < 20

    def pooled(values):
        ordered = values[order]
        return np.append(ordered[~rare], ordered[rare].sum())

    kept = pooled(expected) > 0
    p_value = stats.chisquare(pooled(observed)[kept], pooled(expected)[kept]).pvalue
    assert p_value > 1e-6


def test_draws_accept_weights_beyond_float64():
    points = np.repeat([[0.3, 0.1]], 50_000, axis=0)
    cover = Cover(points, 0.1, 0.3, 1.0)
    chosen = draw_cover(cover, 1.0, NoiseStreams([0]), ("test",)) * 0.1
    assert np.linalg.norm(chosen - points[0]) <= 0.3


# Privacy of the cover


def outcome_probabilities(points, grids, picks, weight):
    """Return the probabilities of all sequences of picks, by the definition and by enumeration."""
    states = {(): (1.0, frozenset(range(len(points))))}
    for grid_points, radius in grids:
        for _ in range(picks):
            extended = {}
            for picked, (probability, uncovered) in states.items():
                covers = []
                for grid_point in grid_points:
                    covers.append({i for i in uncovered if abs(points[i] - grid_point) <= radius})
                sizes = np.array([len(cover) for cover in covers])
                weights = np.exp(weight * sizes)
                for j, pick_probability in enumerate(weights / weights.sum()):
                    joint = probability * pick_probability
                    extended[*picked, j] = joint, uncovered - covers[j]
            states = extended
    return {outcome: probability for outcome, (probability, _) in states.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("weight", "delta"), [(0.1, 0.3), (0.5, 0.05), (1.5, 1e-3)])
def test_cover_costs_what_is_charged(weight, delta):
    """In both directions: delta at the charged epsilon is no more than charged."""
    grids = [(np.linspace(-1, 1, 5), 0.3), (np.linspace(-1, 1, 3), 0.6)]
    epsilon = cover_epsilon(weight, delta)
    rng = np.random.default_rng(0)
    largest_loss = 0.0
    for trial in range(8):
        rest = rng.uniform(-1, 1, 6) if trial else np.empty(0)
        record = rng.uniform(-1, 1, 1) if trial % 2 else np.array([1.0])
        with_record = outcome_probabilities(np.append(rest, record), grids, 3, weight)
        without_record = outcome_probabilities(rest, grids, 3, weight)
        for p, q in (
            (with_record, without_record),
            (without_record, with_record),
        ):
            excesses = [p[outcome] - math.exp(epsilon) * q[outcome] for outcome in p]
            assert sum(max(0.0, excess) for excess in excesses) <= delta
            losses = [math.log(p[outcome] / q[outcome]) for outcome in p]
            largest_loss = max(largest_loss, *losses)
    # The outcomes do distinguish the neighbors.
    assert largest_loss > 0.5 * weight


def test_cover_weight_inverts_its_cost():
    """And it is at least the paper's weight."""
    epsilons = (0.01, 0.2, 1.0, 5.0)
    deltas = (1e-3, 1e-6, 1e-12)
    for epsilon, delta in itertools.product(epsilons, deltas):
        weight = cover_weight(epsilon, delta)
        assert cover_epsilon(weight, delta) == pytest.approx(epsilon)
        assert weight >= epsilon / (2 * math.log(math.e / delta))


# The curator's queries


def curator(points, epsilon=1.0, delta=1e-6, seed=0):
    return Curator(points, Ledger(Budget(epsilon, delta)), NoiseStreams([seed]))


def projection(points, *args, **kwargs):
    draws = np.random.default_rng(9).standard_normal((2, points.shape[1]))
    matrix = np.rint(draws * SCALE).astype(np.int64)
    return curator(points, *args, **kwargs).projection(matrix, 3.0 * SCALE**2)


@pytest.mark.statistical
def test_noise_has_the_declared_scale():
    points = np.random.default_rng(2).integers(-SCALE, SCALE, (500, 3))
    centers = np.array([[0.2, 0.0], [-0.2, 0.1]])
    query = ProjectedSumsAndCounts(centers)
    exact = query.exact(projection(points))
    exact_sums = exact["sums"][0]
    exact_counts = exact["counts"][0]
    assert exact_counts.sum() == 500 * SCALE
    assert (exact_sums.sum(axis=0) == points.sum(axis=0)).all()

    gaussian = Gaussian(30.0 * SCALE)
    laplace = Laplace(9.0 * SCALE)
    noise = {"sums": [], "sizes": [], "counts": []}
    for seed in range(300):
        projected = projection(points, epsilon=5.0, seed=seed)
        answer = projected.release(query, sums=gaussian, counts=gaussian)
        noise["sums"].append((answer["sums"] - exact_sums).ravel())
        noise["sizes"].append(answer["counts"] - exact_counts)
        answer = projected.release(ProjectedCounts(centers), counts=laplace)
        noise["counts"].append(answer["counts"] - exact_counts)
    laws = {
        "sums": stats.norm(0, 30),
        "sizes": stats.norm(0, 30),
        "counts": stats.laplace(0, 9),
    }
    for name, law in laws.items():
        values = np.concatenate(noise[name]) / SCALE
        assert stats.kstest(values, law.cdf).pvalue > 1e-6, name


def test_nothing_is_drawn_beyond_the_budget(monkeypatch):
    points = np.zeros((10, 3), np.int64)
    origin = np.zeros((1, 2))
    cover = CoverPicks([(0.5, 1.0)], 1)
    tiny = Gaussian(1.0)
    queries = (
        (cover, {"picks": MaximumCover(1.0, 1e-7)}),
        (cover, {"picks": MaximumCover(1e-3, 1e-3)}),
        (ProjectedCounts(origin), {"counts": Laplace(SCALE / 2)}),
        (ProjectedSumsAndCounts(origin), {"sums": tiny, "counts": tiny}),
    )
    for query, noise in queries:
        projected = projection(points)
        for law in ("gumbel", "normal", "laplace"):
            monkeypatch.setattr(NoiseStreams, law, lambda *_: pytest.fail("noise was drawn"))
        with pytest.raises(BudgetExceeded):
            projected.release(query, **noise)


@pytest.mark.parametrize(
    ("grids", "n_picks", "weight", "delta", "message"),
    [
        ([], 1, 1.0, 0.1, r"number of grids, 0, must be at least 1"),
        ([(0.5, 1.0)], 0, 1.0, 0.1, r"n_picks=0"),
        ([(0.5, 1.0)], 1, 0.0, 0.1, r"weight=0.0 must be positive"),
        ([(0.5, 1.0)], 1, 1.0, 0.0, r"delta=0.0 must be in \(0, 1\)"),
    ],
)
def test_bad_covers_are_refused(grids, n_picks, weight, delta, message):
    projected = projection(np.zeros((10, 3), np.int64))
    query = CoverPicks(grids, n_picks)
    with pytest.raises(ValueError, match=message):
        projected.release(query, picks=MaximumCover(weight, delta))


@pytest.mark.parametrize(
    ("centers", "message"),
    [
        (np.zeros((1, 3)), r"centers must be finite float64 of shape \(k, 2\)"),
        (np.full((1, 2), np.nan), r"centers must be finite"),
    ],
)
def test_bad_centers_are_refused(centers, message):
    projected = projection(np.zeros((10, 3), np.int64))
    with pytest.raises(ValueError, match=message):
        projected.release(ProjectedCounts(centers), counts=Laplace(1.0))


@pytest.mark.parametrize("change", [ScoreSensitivity(1.0), ScoreSensitivity(2.0, monotonic=True)])
def test_a_cover_refuses_scores_that_its_cost_is_not_derived_for(change):
    with pytest.raises(ValueError, match="numbers of covered points"):
        MaximumCover(1.0, 0.1).check(change)
