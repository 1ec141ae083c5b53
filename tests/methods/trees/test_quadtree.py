"""The quadtree: its schedule, the last step, releases, cost and quality."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from noiseless import add_nothing, draw, nicv

from pkm import datasets
from pkm.methods.baselines.kmeans import KMeansPlusPlus
from pkm.methods.lloyd.noisy_steps import cluster_radii, shrunken_lloyd_step, step_noise
from pkm.methods.trees.eugkm import EUGkM
from pkm.methods.trees.quadtree import QuadtreeKMeans
from pkm.privacy import (
    MAX_CELLS,
    SCALE,
    Budget,
    Curator,
    Laplace,
    Ledger,
    NoiseStreams,
    snap,
)

# The schedule


@given(
    st.integers(1, 10**7),
    st.integers(1, 4),
    st.integers(1, 500),
    st.floats(1e-4, 1e4),
    st.sampled_from([0.0, 0.25]),
)
def test_schedule_spends_epsilon_and_keeps_to_the_largest_grid(n, d, k, epsilon, step_share):
    schedule = QuadtreeKMeans(k, epsilon=epsilon, step_share=step_share).schedule(n, d)
    spent = math.fsum(schedule.epsilons) + schedule.step_epsilon
    assert spent == pytest.approx(epsilon, rel=1e-12)
    assert max(schedule.intervals) ** d <= MAX_CELLS
    assert len(schedule.intervals) == len(schedule.epsilons)
    assert schedule.intervals == tuple(2**j for j in range(1, len(schedule.intervals) + 1))


@pytest.mark.parametrize(
    ("n", "levels", "has_step"),
    [(100, 4, False), (1000, 6, False), (3999, 7, False), (4000, 7, True)],
)
def test_schedule_follows_the_records_of_a_center(n, levels, has_step):
    """At n epsilon = 1000 in two columns the balanced level is log2(1000) / 2 = 5."""
    schedule = QuadtreeKMeans(10).schedule(n, 2)
    assert len(schedule.intervals) == levels
    assert (schedule.step_epsilon > 0) == has_step


def test_shares_grow_up_to_the_balanced_level_and_are_even_then():
    # The balanced level of 4096 records in two columns is the sixth.
    schedule = QuadtreeKMeans(30, step_share=0.0).schedule(4096, 2)
    assert schedule.intervals == tuple(2**j for j in range(1, 8))
    weights = 1.4 ** np.array([-5.0, -4, -3, -2, -1, 0, 0])
    np.testing.assert_allclose(schedule.epsilons, weights / weights.sum(), rtol=1e-12)


# The last step


def test_step_without_noise_is_the_mean_within_the_radius(monkeypatch):
    monkeypatch.setattr(Laplace, "draw", add_nothing)
    points = np.array([[100], [300], [40_000]])
    curator = Curator(points, Ledger(Budget(1e9)), NoiseStreams([0]))
    noise = step_noise(1, 1e8)
    moved = shrunken_lloyd_step(curator, np.array([[0]]), np.array([500 / SCALE]), noise)
    assert moved.tolist() == [[200]]


def test_a_step_that_is_noise_is_not_made(monkeypatch):
    """A step stays where its square is below the expected square of its noise, d variances."""
    monkeypatch.setattr(Laplace, "draw", add_nothing)
    points = np.array([[300, 0]])
    centers = np.zeros((1, 2), np.int64)
    radii = np.array([1.0])

    def moved(scale):
        curator = Curator(points, Ledger(Budget(1e9)), NoiseStreams([0]))
        return shrunken_lloyd_step(curator, centers, radii, (Laplace(scale), Laplace(1.0)))[0, 0]

    assert moved(150.1 / SCALE) == 0
    # Half of the square is noise: half of the step is left.
    assert moved(150 / math.sqrt(2) / SCALE) == 150
    assert moved(1e-6) == 300


def test_the_center_of_an_empty_cluster_stays(monkeypatch):
    monkeypatch.setattr(Laplace, "draw", add_nothing)
    curator = Curator(np.array([[0]]), Ledger(Budget(1e9)), NoiseStreams([0]))
    centers = np.array([[0], [5000]])
    noise = step_noise(1, 1e8)
    assert (
        shrunken_lloyd_step(curator, centers, np.array([0.1, 0.1]), noise).tolist()
        == centers.tolist()
    )


def test_step_costs_what_it_is_given():
    curator = Curator(draw(50, 3), Ledger(Budget(2.0)), NoiseStreams([0]))
    shrunken_lloyd_step(curator, draw(4, 3), np.array([0.1, 0.5, 1.0, 3.0]), step_noise(3, 0.8))
    (charge,) = curator._ledger.charges
    assert charge.epsilon == pytest.approx(0.8)
    assert charge.mu == 0


def test_radii_are_twice_the_root_mean_square():
    points = np.array([[-1.0], [1.0], [9.0], [11.0]]) * SCALE / 16
    weights = np.array([1.0, 1.0, 2.0, 2.0])
    centers = np.array([[0.0], [10.0], [100.0]]) * SCALE / 16
    radii = cluster_radii(points, weights, centers, 0.0)
    np.testing.assert_allclose(radii, [2 / 16] * 3)


# The method


@pytest.mark.parametrize(("n", "n_charges"), [(100, 4), (3000, 7), (20_000, 9)])
def test_charges_spend_the_budget(n, n_charges):
    run = QuadtreeKMeans(n_clusters=10, epsilon=0.7).fit_batch(draw(n, 2), [0, 5])
    assert len(run.ledger.charges) == n_charges
    assert run.ledger.budget.delta == 0
    total = math.fsum(charge.epsilon for charge in run.ledger.charges)
    assert total == pytest.approx(0.7, rel=1e-12)
    assert run.ledger.spent() == pytest.approx(0.7, rel=1e-9)
    assert all(charge.mu == 0 for charge in run.ledger.charges)


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_without_noise_the_step_ends_near_k_means(d, monkeypatch):
    monkeypatch.setattr(Laplace, "draw", add_nothing)
    rng = np.random.default_rng(d)
    spots = rng.uniform(-0.8, 0.8, (4, d))
    points = snap(spots[rng.integers(4, size=4000)] + rng.uniform(-0.05, 0.05, (4000, d)))
    run = QuadtreeKMeans(n_clusters=4, epsilon=4.0).fit_batch(points, [0])
    best = nicv(points, KMeansPlusPlus(n_clusters=4, n_init=10).fit_batch(points, [0]))[0]
    assert nicv(points, run)[0] <= 1.05 * best


def test_dense_clusters_are_found_where_one_grid_is_too_coarse():
    """A hundred clusters in a tenth of the domain."""
    rng = np.random.default_rng(0)
    spots = rng.uniform(-0.1, 0.1, (20, 2))
    points = snap(spots[rng.integers(20, size=40_000)] + rng.normal(size=(40_000, 2)) * 0.002)
    tree = QuadtreeKMeans(n_clusters=20, epsilon=1.0).fit_batch(points, range(5))
    grid = EUGkM(n_clusters=20, epsilon=1.0, grid_rule="balanced").fit_batch(points, range(5))
    assert np.median(nicv(points, tree)) < 0.5 * np.median(nicv(points, grid))


def test_finds_separated_clusters():
    points = snap(datasets.load("planted-20000-2-16-0.05").points)
    run = QuadtreeKMeans(n_clusters=16, epsilon=1.0).fit_batch(points, range(5))
    best = nicv(points, KMeansPlusPlus(n_clusters=16, n_init=10).fit_batch(points, [0]))[0]
    assert np.median(nicv(points, run)) < 1.1 * best


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"step_share": 1.0}, "step_share=1.0 must be a number in"),
        ({"step_share": -0.1}, "step_share=-0.1 must be"),
        ({"n_init": 0}, "n_init=0 must be"),
        ({"epsilon": 0.0}, "epsilon=0.0"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        QuadtreeKMeans(n_clusters=2, **parameters).fit_batch(draw(20, 2), [0])


def test_too_many_features_are_refused():
    with pytest.raises(ValueError, match="d=23 features are too many"):
        QuadtreeKMeans(n_clusters=2).fit_batch(draw(50, 23), [0])
