"""Sums and counts of the points nearest to centers.

Seeds are fixed; thresholds are five standard errors (fewer than one false alarm in a
million) or a p-value of 1e-6.
"""

import math

import numpy as np
import pytest
from curators import EXACT, NOISE, SEEDS, curator_of, grid_points, released_percentile
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pkm.compute import Points, averaged_gaps
from pkm.privacy import (
    SCALE,
    BoundedLaplace,
    Budget,
    CountsAndBoundedSums,
    Curator,
    Gaussian,
    Laplace,
    Ledger,
    NoiseStreams,
    SumsAndCounts,
    mirrored,
)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 6),
    st.integers(1, 5),
    st.floats(0.05, 3.0),
)
def test_release_changes_within_its_sensitivity(seed, d, k, radius):
    """Random neighbors (one record zeroed out) and random centers: exact answers differ by at most
    what is charged.
    """
    rng = np.random.default_rng(seed)
    points = rng.integers(-SCALE, SCALE + 1, (30, d))
    if seed % 3 == 0:
        points = np.sign(points) * SCALE  # corners are the worst case of absolute sums
    centers = rng.integers(-SCALE, SCALE + 1, (1, k, d))
    neighbor = np.delete(points, rng.integers(30), axis=0)
    for query in (SumsAndCounts(centers, radius, relative=True), SumsAndCounts(centers)):
        curator = curator_of(points)
        exact = query.exact(curator)
        neighbor_exact = query.exact(curator_of(neighbor))
        sensitivity = query.sensitivity(curator)["sums"]

        # In half-widths: the radius, or the half-diagonal; in L1 sqrt(d) times as much.
        longest = radius if query.relative else math.sqrt(d)
        assert sensitivity.l2 == pytest.approx(longest * SCALE)
        assert sensitivity.l1 == pytest.approx(math.sqrt(d) * longest * SCALE)

        change = (exact["sums"] - neighbor_exact["sums"])[0].astype(float)
        assert np.linalg.norm(change) <= sensitivity.l2 * (1 + 1e-12)
        assert np.abs(change).sum() <= sensitivity.l1 * (1 + 1e-12)
        assert np.abs(exact["counts"] - neighbor_exact["counts"]).sum() <= SCALE


def test_points_beyond_the_radius_are_excluded():
    points = np.array([[100], [300]])
    centers = np.array([[[0]]])
    curator = Curator(points, None, NoiseStreams([0]))
    query = SumsAndCounts(centers, radius=200 / SCALE, relative=True)
    answer = curator.release(query, **EXACT)
    assert answer["sums"].tolist() == [[[100]]]
    assert answer["counts"].tolist() == [[SCALE]]


def test_each_center_has_its_own_radius():
    rng = np.random.default_rng(0)
    points = rng.integers(-SCALE, SCALE + 1, (400, 3))
    centers = rng.integers(-SCALE, SCALE + 1, (2, 5, 3))
    radii = rng.uniform(0.2, 1.5, (2, 5))
    curator = Curator(points, None, NoiseStreams([0, 1]))
    answer = curator.release(SumsAndCounts(centers, radii, relative=True), **EXACT)
    for r in range(2):
        for j in range(5):
            alone = SumsAndCounts(centers, float(radii[r, j]), relative=True)
            expected = curator.release(alone, **EXACT)
            assert (answer["sums"][r, j] == expected["sums"][r, j]).all()
            assert answer["counts"][r, j] == expected["counts"][r, j]


def test_noise_of_a_sum_is_in_multiples_of_its_radius():
    n_runs = 4096
    centers = np.repeat([[[0], [50_000]]], n_runs, axis=0)
    radii = np.repeat([[0.01, 1.0]], n_runs, axis=0)
    query = SumsAndCounts(centers, radii, relative=True)
    ledger = Ledger(Budget(10.0, 0.1))
    curator = Curator(np.zeros((1, 1), np.int64), ledger, NoiseStreams(range(n_runs)))
    sums = curator.release(query, sums=Gaussian(3.0), counts=Gaussian(SCALE))["sums"]
    deviations = np.sqrt((sums[:, :, 0] ** 2.0).mean(axis=0)) / SCALE
    # The standard error of a deviation is 1.1 %: seven of them.
    np.testing.assert_allclose(deviations, [0.03, 3.0], rtol=0.08)
    (charge,) = curator._ledger.charges
    assert charge.mu == pytest.approx(math.hypot(1 / 3, 1.0))


@pytest.mark.parametrize(
    ("radii", "message"),
    [
        (np.ones((1, 2)), "one for each center"),
        (np.ones((1, 1), np.int64), "finite float64 of shape .*, got int64"),
        (np.zeros((1, 1)), "positive and finite for each center"),
        (np.full((1, 1), math.nan), "finite float64"),
    ],
)
def test_radii_of_centers_are_checked(radii, message):
    curator = Curator(np.zeros((1, 1), np.int64), None, NoiseStreams([0]))
    with pytest.raises(ValueError, match=message):
        curator.release(SumsAndCounts(np.array([[[0]]]), radii, relative=True), **EXACT)


def test_answers_do_not_depend_on_shards():
    rng = np.random.default_rng(0)
    points = rng.integers(-SCALE, SCALE + 1, (50, 3))
    centers = rng.integers(-SCALE, SCALE + 1, (2, 4, 3))
    query = SumsAndCounts(centers, radius=1.0, relative=True)
    answers = []
    for shards in (points, [points[:7], points[7:8], points[8:]]):
        ledger = Ledger(Budget(1e6, 0.9))
        curator = Curator(shards, ledger, NoiseStreams([0, 1]))
        answers.append(curator.release(query, **NOISE))
    answer, sharded_answer = answers
    for part in ("sums", "counts"):
        assert (answer[part] == sharded_answer[part]).all()


def n_moved_ranks(values, neighbor):
    """The largest change of a rank among averaged gaps, and that at the 65th percentile."""
    gaps, others = (averaged_gaps((Points.from_grid(rows),)) for rows in (values, neighbor))
    limits = np.append(np.concatenate([gaps, others]), np.percentile(others, 65))
    ranks, other_ranks = (np.searchsorted(rows, limits, side="right") for rows in (gaps, others))
    changes = np.abs(ranks - other_ranks)
    return int(changes.max()), int(changes[-1])


def test_rank_averaged_gaps_have_no_bounded_sensitivity():
    """The paper's Lemma 1 holds for one column only: in two columns one of 2,000 records moves the
    rank of a value by 1,000.

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
    most, _ = n_moved_ranks(points, neighbor)
    assert most == 1000  # the claim: at most 2


@pytest.mark.statistical
def test_one_record_moves_ranks_of_averaged_gaps_by_tens():
    """Normal points, a random record left out: with ten columns the largest change of a rank is in
    the tens, also at the percentile that is released; with one column it is at most 2, as claimed.
    """
    changes = []
    for seed in range(30):
        normal = np.random.default_rng(seed).normal(0, 0.15, (5000, 10))
        points = np.rint(np.clip(normal, -1, 1) * SCALE).astype(int)
        changes.append(n_moved_ranks(points, points[1:]))
        assert n_moved_ranks(points[:, :1], points[1:, :1])[0] <= 2
    largest, at_percentile = np.array(changes).T
    assert 20 < np.median(largest) < 100
    assert np.median(at_percentile) > 4


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


@pytest.mark.slow
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
