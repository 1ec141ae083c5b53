"""Coresets: costs that they keep, weights, units.

Seeds are fixed; thresholds are five standard errors or a p-value of 1e-6.
"""

import math

import numpy as np
import pytest
from hashed import mixture
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from pkm import datasets
from pkm.compute import Points, cluster_means, inertia, labels
from pkm.methods.coreset import Coreset, project_onto_simplex
from pkm.methods.fitting import RepeatableNoiseWarning
from pkm.methods.hashing.kaplan_stemmer import KaplanStemmer
from pkm.privacy import SCALE, snap


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=8), st.floats(0.1, 100))
@settings(max_examples=100, deadline=None)
def test_consistent_counts_are_the_nearest_with_the_total(counts, total):
    """The conditions of optimality: one shift for all that stay positive, the others below it."""
    counts = np.array(counts)
    adjusted = project_onto_simplex(counts, total)
    assert (adjusted >= 0).all()
    assert adjusted.sum() == pytest.approx(total)
    positive = adjusted > 0
    shifts = (counts - adjusted)[positive]
    assert np.ptp(shifts) < 1e-9
    assert (counts[~positive] <= shifts.max() + 1e-9).all()


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 5), st.integers(1, 16), st.integers(0, 2**32 - 1))
def test_projection_is_the_nearest_point_of_the_simplex(m, c, seed):
    """Optimal by Karush, Kuhn and Tucker: one shift, and zero where that makes less than zero."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(m, c)) * 10
    totals = rng.uniform(0.1, 50.0, m)
    projected = project_onto_simplex(values, totals)
    assert (projected >= 0).all()
    np.testing.assert_allclose(projected.sum(axis=1), totals, rtol=1e-12)
    for row, source in zip(projected, values, strict=True):
        shifts = (source - row)[row > 0]
        np.testing.assert_allclose(shifts, shifts[0], atol=1e-9)
        assert (source[row == 0] <= shifts[0] + 1e-9).all()


def test_projection_agrees_with_a_general_solver():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(1, 4))
    solution = minimize(
        lambda row: ((row - values[0]) ** 2).sum(),
        np.full(4, 0.5),
        bounds=[(0, None)] * 4,
        constraints={"type": "eq", "fun": lambda row: row.sum() - 2.0},
    )
    projected = project_onto_simplex(values, np.array([2.0]))[0]
    np.testing.assert_allclose(projected, solution.x, atol=1e-6)


def test_coreset_estimates_costs():
    points, _ = mixture()
    method = KaplanStemmer(16, epsilon=1.0, radius=1.0)
    with pytest.warns(RepeatableNoiseWarning, match="seed=0 makes noise repeatable") as caught:
        coreset = method.draw_coreset(points, 0)
    assert caught[0].filename == __file__
    assert coreset.weights.sum() == pytest.approx(20_000)
    assert (coreset.weights >= 0).all()
    assert coreset.ledger.spent() == pytest.approx(1.0)
    assert coreset.ledger.charges[-1].label == "nearest_counts"

    # The stated bound, and for the noise 1 / mu records at the squared diameter, by the root of
    # their number.
    rng = np.random.default_rng(0)
    coreset_centers = np.rint(coreset.points * SCALE).astype(int)
    coreset_cost = inertia(points, coreset_centers[None])[0] / SCALE**2
    selection_scale = 1 / method.schedule(20_000, 10, result="coreset").selection_mu
    noise = 5 * math.sqrt(len(coreset.points)) * 4 * selection_scale
    for k in (1, 3, 8):
        centers = snap(rng.uniform(-0.5, 0.5, (k, 10)))
        exact = inertia(points, centers[None])[0] / SCALE**2
        estimate = coreset.cost_estimate(centers / SCALE)
        error = abs(math.sqrt(estimate) - math.sqrt(exact))
        assert error <= math.sqrt(coreset_cost) + noise / math.sqrt(exact)


@pytest.mark.slow
@pytest.mark.parametrize("ball", ["0.05", "0"])
def test_coreset_keeps_costs_of_many_center_sets(ball):
    """Within a factor of 10, up to (ln n)^2: random sets, sets that Lloyd steps improved, sets that
    miss a ball.
    """
    n = 20_000
    d = 8
    k = 8
    dataset = datasets.load(f"planted-{n}-{d}-{k}-{ball}")
    points = Points.from_grid(snap(dataset.points))
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((1000, k, d))
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    random = snap(directions * rng.random((1000, k, 1)) ** (1 / d))

    # A point of every ball, except for up to three balls; then four Lloyd steps.
    start = np.tile(np.arange(k) * (n // k), (100, 1))
    for number, row in enumerate(start):
        row[rng.permutation(k)[: number % 4]] = rng.integers(n, size=number % 4)
    improved = snap(dataset.points[start])
    for _ in range(4):
        means, counts = cluster_means(points, labels(points, improved), k)
        rounded = np.rint(means).astype(np.int64)
        improved = np.where(counts[:, :, None] > 0, rounded, improved)

    incomplete = np.tile(improved[:1], (k, 1, 1))
    incomplete[np.arange(k), np.arange(k)] = np.roll(improved[0], 1, axis=0)
    center_sets = np.concatenate([random, improved, incomplete])
    totals = [float(total) for total in inertia(points, center_sets)]
    costs = np.array(totals) / SCALE**2
    good_costs = costs[1000:]
    assert len(np.unique(good_costs.round(3))) > 10
    assert good_costs.min() < 50
    assert good_costs.max() > 3000

    def largest_log_ratio(coreset):
        offset = math.log(n) ** 2
        estimates = [coreset.cost_estimate(centers / SCALE) for centers in center_sets]
        ratios = (np.array(estimates) + offset) / (costs + offset)
        return np.abs(np.log(ratios)).max()

    method = KaplanStemmer(k, epsilon=1.0, radius=1.0)
    coresets = [method.draw_coreset(points, seed) for seed in range(4)]
    for coreset in coresets:
        assert largest_log_ratio(coreset) <= math.log(10)

    # A ball that is missing from the coreset, its weight on the others, is noticed.
    coreset = coresets[0]
    kept = np.linalg.norm(coreset.points - dataset.points[0], axis=1) > 0.3
    weights = coreset.weights[kept]
    incomplete_coreset = Coreset(coreset.points[kept], weights * (n / weights.sum()))
    assert largest_log_ratio(incomplete_coreset) > math.log(10)


def test_coreset_in_the_units_of_the_data(shared_noise):
    points = mixture()[0].rows / SCALE
    shift = np.arange(10.0)
    stretch = np.linspace(1, 5, 10)
    bounds = np.array([shift - stretch, shift + stretch])
    method = KaplanStemmer(16, epsilon=1.0, radius=1.0, bounds=(-1, 1), random_state=3)
    unit = method.coreset(points)
    moved = method.set_params(bounds=bounds).coreset(points * stretch + shift)
    assert moved.points == pytest.approx(unit.points * stretch + shift, abs=1e-3)
    assert moved.weights == pytest.approx(unit.weights, abs=1e-6)
    with pytest.raises(ValueError, match=r"centers must have shape \(k, 10\) with k >= 1"):
        unit.cost_estimate([[0.0]])
    with pytest.raises(ValueError, match="points lie outside bounds"):
        method.set_params(clip=False).coreset(points * 100)


def test_coreset_without_noise_moves_points_to_candidates():
    locations = snap([[-0.5, 0.2], [0.5, 0.5], [0.4, -0.6]])
    rows = np.repeat(locations, [300, 200, 500], axis=0)
    coreset = KaplanStemmer(3, epsilon=1e15).draw_coreset(rows, 0)
    assert isinstance(coreset, Coreset)
    positive = coreset.weights > 0.5
    weights = coreset.weights[positive]
    points = coreset.points[positive]
    order = np.argsort(points[:, 1])
    expected_points = np.array([[0.4, -0.6], [-0.5, 0.2], [0.5, 0.5]])
    assert weights[order] == pytest.approx([500, 300, 200], abs=1e-3)
    assert points[order] == pytest.approx(expected_points, abs=1e-4)


def test_a_coreset_with_infinite_bounds_is_in_the_units_of_the_data():
    rng = np.random.default_rng(0)
    X = rng.normal(1000.0, 5.0, (20_000, 4))
    method = KaplanStemmer(2, epsilon=20.0, bounds=(-np.inf, np.inf), random_state=1)
    coreset = method.coreset(X)
    mean = np.average(coreset.points, axis=0, weights=coreset.weights)
    np.testing.assert_allclose(mean, 1000.0, atol=20.0)
