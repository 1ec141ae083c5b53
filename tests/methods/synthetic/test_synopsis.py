"""k-means on a synopsis: the public rule, its parts, what they spend, quality."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from noiseless import add_nothing, draw, nicv
from tuned import AveragedKaplanStemmer

from pkm import datasets
from pkm.methods import QuadtreeKMeans, SynopsisKMeans
from pkm.methods.baselines.kmeans import KMeansPlusPlus
from pkm.methods.lloyd.noisy_steps import noisy_lloyd_step
from pkm.methods.synthetic.synopsis import (
    LLOYD_STEPS,
    MAX_ZOOM_SHARE,
)
from pkm.metrics import evaluate
from pkm.privacy import SCALE, Budget, Curator, Gaussian, Ledger, gaussian_mu, snap
from pkm.privacy.mechanisms.noise import NoiseStreams

# One shape for each part: points, columns, centers, epsilon.
SHAPES = {
    "quadtree": (700, 2, 20, 1.0),
    "quadtree and step": (2000, 2, 5, 1.0),
    "hashing": (4000, 6, 5, 2.0),
}


@pytest.mark.parametrize(("d", "first"), [(1, "grid"), (3, "grid"), (4, "bucket"), (300, "bucket")])
@given(st.integers(100, 10**7), st.integers(1, 50), st.floats(0.1, 100.0))
@settings(max_examples=20, deadline=None)
def test_rule(d, first, n, k, epsilon):
    """Columns alone decide whether grids or buckets are counted, whatever n, k and epsilon are."""
    releases = SynopsisKMeans(k, epsilon=epsilon).schedule(n, d).releases
    assert releases[0].label == f"{first}_counts"


@pytest.mark.parametrize(("epsilon", "rounds"), [(0.9, 1), (1.0, 2)])
def test_a_second_round_needs_records(epsilon, rounds):
    """n mu / k is 189 and 208 here; without a zoom it is of the whole budget."""
    method = SynopsisKMeans(5, epsilon=epsilon, zoom=None)
    assert method.schedule(4400, 10).rounds == rounds
    assert method.fit_batch(draw(4400, 10), [0]).n_iter == rounds


@pytest.mark.parametrize("synopsis", SHAPES)
def test_without_a_zoom_a_run_is_that_of_its_part(synopsis, monkeypatch):
    monkeypatch.setattr(Gaussian, "draw", add_nothing)
    monkeypatch.setattr(Gaussian, "draw_blocks", lambda *_: np.array)
    monkeypatch.setattr("pkm.privacy.mechanisms.additive.Laplace.draw", add_nothing)
    n, d, k, epsilon = SHAPES[synopsis]
    points = draw(n, d)
    if synopsis == "hashing":
        part = AveragedKaplanStemmer(k, epsilon=epsilon, lloyd_steps=LLOYD_STEPS)
    else:
        part = QuadtreeKMeans(k, epsilon=epsilon)
    run = SynopsisKMeans(k, epsilon=epsilon, zoom=None).fit_batch(points, [3])
    expected = part.fit_batch(points, [3])
    assert [charge.cost for charge in run.ledger.charges] == [
        charge.cost for charge in expected.ledger.charges
    ]
    np.testing.assert_array_equal(run.centers, expected.centers)


@settings(max_examples=20, deadline=None)
@given(st.integers(60, 400), st.integers(1, 8), st.integers(1, 6), st.sampled_from([0.1, 1.0, 8.0]))
def test_charges_stay_within_the_budget(n, d, k, epsilon):
    run = SynopsisKMeans(k, epsilon=epsilon).fit_batch(draw(n, d), [0])
    assert run.ledger.spent() <= epsilon * (1 + 1e-9)
    assert run.ledger.budget.delta == 1e-6


@pytest.mark.parametrize("synopsis", SHAPES)
def test_budget_is_spent(synopsis):
    n, d, k, epsilon = SHAPES[synopsis]
    run = SynopsisKMeans(k, epsilon=epsilon).fit_batch(draw(n, d), [0, 1])
    assert run.ledger.spent() == pytest.approx(epsilon, rel=0.02)


def test_zoom_takes_the_share_that_is_enough():
    method = SynopsisKMeans(8)
    shares = {}
    for n, d in ((200, 10), (300, 10), (400, 10), (20_000, 10), (800, 2), (20_000, 2)):
        plan = method.zoom_plan(n, d)
        shares[n, d] = None if plan is None else round(plan.share, 2)
    assert shares == {
        (200, 10): None,
        (300, 10): 0.45,
        (400, 10): 0.42,
        (20_000, 10): 0.1,
        (800, 2): 0.1,
        (20_000, 2): 0.1,
    }
    assert SynopsisKMeans(8, zoom=0.6).zoom_plan(300, 10).share == 0.6
    assert SynopsisKMeans(8, zoom=None).zoom_plan(20_000, 10) is None
    with pytest.raises(ValueError, match=r"zoom=0\.5 of epsilon=1 is too little to find a domain"):
        SynopsisKMeans(8, require_zoom=True).zoom_plan(200, 10)


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_deep_trees_stay_within_the_budget(epsilon):
    run = SynopsisKMeans(3, epsilon=epsilon).fit_batch(draw(3000, 2), [0, 1])
    assert run.ledger.spent() == pytest.approx(epsilon, rel=0.02)


@given(st.integers(50, 10**6), st.integers(1, 300), st.floats(0.05, 8.0))
def test_a_zoom_takes_at_most_half(n, d, epsilon):
    plan = SynopsisKMeans(8, epsilon=epsilon).zoom_plan(n, d)
    assert plan is None or 0.1 <= plan.share <= MAX_ZOOM_SHARE


@pytest.mark.parametrize("steps", [1, 2, 6])
def test_centers_are_the_average_after_the_last_three_steps(steps, monkeypatch):
    visited = []

    def recorded_step(*arguments):
        visited.append(noisy_lloyd_step(*arguments))
        return visited[-1]

    monkeypatch.setattr("pkm.methods.hashing.kaplan_stemmer.noisy_lloyd_step", recorded_step)
    method = AveragedKaplanStemmer(5, epsilon=2.0, lloyd_steps=steps)
    run = method.fit_batch(draw(4000, 6), [1])
    assert len(visited) == steps
    np.testing.assert_allclose(run.centers[0], np.mean(visited[-3:], axis=0), rtol=0, atol=1)


@pytest.mark.parametrize("radius", ["auto", 1.0])
def test_steps_are_shortened_to_a_fifth_of_the_ball(radius):
    method = SynopsisKMeans(2, epsilon=4.0, radius=radius, zoom=None)
    charges = method.fit_batch(draw(300, 9), [0]).ledger.charges
    radii = {
        charge.details["radius"] for charge in charges if charge.label == "nearest_sums_and_counts"
    }
    ball = 3.0 if radius == "auto" else radius
    assert list(radii) == pytest.approx([ball / 5])


@pytest.mark.parametrize(("n", "largest"), [(2000, 1 / 5), (10_000, 1 / 2)])
def test_a_radius_that_is_released_is_at_most_half_of_the_balls(n, largest):
    method = AveragedKaplanStemmer(8, epsilon=1.0, lloyd_steps=LLOYD_STEPS)
    plan = method.schedule(n, 10)
    assert plan.lloyd_radius == largest
    assert (plan.shells_mu > 0) == (largest == 1 / 2)
    assert plan.fine_radius == 1 / 5


@pytest.mark.parametrize("n", [2000, 10_000])
def test_half_of_the_budget_is_for_steps(n):
    method = AveragedKaplanStemmer(8, epsilon=1.0, lloyd_steps=LLOYD_STEPS)
    plan = method.schedule(n, 10)
    total = gaussian_mu(1.0, 5e-7) ** 2
    assert LLOYD_STEPS * plan.lloyd_mu**2 + plan.shells_mu**2 == pytest.approx(total / 2)
    assert plan.selection_mu**2 == pytest.approx(total / 6)


def test_a_step_divides_by_twice_the_noise_of_a_count(monkeypatch):
    monkeypatch.setattr(Gaussian, "draw", add_nothing)
    points = np.full((10, 2), SCALE // 2, np.int64)
    centers = np.zeros((1, 2), np.int64)
    moved = {}
    for min_count in (0.0, 2.0, 10.0):
        curator = Curator(points, Ledger(Budget(10.0, 1e-6)), NoiseStreams([0]))
        buckets = curator.clipped_points(2.0)
        moved[min_count] = noisy_lloyd_step(buckets, centers, 1.0, 0.5, min_count)[0, 0] / SCALE
    count_stddev = 1 / (0.5 * np.sqrt(0.5 / (np.sqrt(2) + 0.5)))
    assert moved[0.0] == 0.5
    for min_count in (2.0, 10.0):
        divisor = max(10, min_count * count_stddev)
        assert moved[min_count] == pytest.approx(5 / divisor, abs=1 / SCALE)


@pytest.mark.parametrize("wider", [1, 10])
def test_finds_separated_clusters_in_wide_bounds(wider):
    points = snap(datasets.load("planted-20000-8-16-0.05").points / wider)
    run = SynopsisKMeans(n_clusters=16, epsilon=2.0).fit_batch(points, range(3))
    best = nicv(points, KMeansPlusPlus(n_clusters=16, n_init=10).fit_batch(points, [0]))[0]
    positions = np.rint(run.positions * SCALE).astype(np.int64)
    costs = evaluate(points, positions, ["nicv"])["nicv"]
    assert np.median(costs) < 1.1 * best


def test_bad_radius_is_refused():
    with pytest.raises(ValueError, match=r"radius=-1.0 must be 'auto' or a positive"):
        SynopsisKMeans(2, radius=-1.0).fit_batch(draw(20, 2), [0])
