"""Queries on hashed points: sensitivities, noise, thresholds, refusals.

Seeds are fixed; thresholds are five standard errors or a p-value of 1e-6.
"""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from curators import curator_of
from hashed import (
    ample_ledger,
    curator,
    grid_points,
    hashed,
    squared_distances,
    swaps_by_definition,
)
from scipy import stats
from scipy.special import expit, logit

from pkm.compute import DIRECTION_SCALE, inertia
from pkm.compute.kernels.hashing import Hash, euclidean_hash
from pkm.compute.kernels.nearest import swap_costs
from pkm.privacy import (
    SCALE,
    BucketCounts,
    BucketSums,
    BudgetExceeded,
    CandidateSets,
    Exponential,
    Gaussian,
    NearestCounts,
    NearestShells,
    NearestSumsAndCounts,
    NoiseStreams,
    StabilityHistogram,
    Swaps,
    snap,
)
from pkm.privacy.mechanisms.selection import ScoreSensitivity, selection_epsilon
from pkm.privacy.queries.clipped_queries import score_costs

KINDS = ("spread", "tied", "extreme")


def sensitivity_of(query, buckets, part):
    """Return the declared sensitivity of a part under zero-out adjacency."""
    return query.sensitivity(buckets)[part]


def choose(buckets, query, mu):
    """Return a choice that costs mu."""
    mechanism = Exponential(selection_epsilon(mu))
    (choice,) = buckets.release(query, choices=mechanism)["choices"]
    return choice


def neighbors(trial, is_filtered):
    """Return the hashed points of two neighbors, a hash and a generator."""
    rng = np.random.default_rng(trial)
    n = int(rng.integers(5, 40))
    d = int(rng.integers(1, 5))
    rows = grid_points(n, d, trial, KINDS[trial % 3])
    radius = float(rng.uniform(0.3, 1.2) * math.sqrt(d))
    buckets = hashed(rows, n, radius)
    neighbor = hashed(np.delete(rows, rng.integers(n), axis=0), n, radius)
    if is_filtered:
        restrict(buckets, neighbor, grid_points(2, d, trial + 1))
    hashing = euclidean_hash(rng, min(3, d), d, float(rng.uniform(0.2, 2.0)))
    return buckets, neighbor, hashing, rng


def restrict(buckets, neighbor, positions):
    centers = buckets.clip(positions)
    for side in (buckets, neighbor):
        side.filter_farthest(centers, 0.5)


def bucket_counts(buckets, hashing):
    found = BucketCounts(hashing).exact(buckets)["counts"]
    return Counter(dict(zip(found.cells.tolist(), found.counts.tolist(), strict=True)))


def swap_cost_changes(buckets, neighbor, centers, current):
    slots = np.arange(len(current))
    costs = swap_costs(buckets._shards[0], centers, current, slots)
    neighbor_costs = swap_costs(neighbor._shards[0], centers, current, slots)
    return (costs - neighbor_costs).astype(float)


class Largest(dict):
    """The largest value of each name."""

    def update_with(self, **values):
        for name, value in values.items():
            self[name] = max(self.get(name, 0.0), value)


@pytest.mark.slow
@pytest.mark.parametrize("is_filtered", [False, True])
def test_sensitivities_of_histograms_and_sums(is_filtered):
    largest = Largest()
    for trial in range(300):
        buckets, neighbor, hashing, rng = neighbors(trial, is_filtered)
        counts = bucket_counts(buckets, hashing)
        neighbor_counts = bucket_counts(neighbor, hashing)
        codes = sorted(counts.keys() | neighbor_counts.keys())
        changes = np.array([counts[code] - neighbor_counts[code] for code in codes])
        n_unshared = sum(0 in (counts[code], neighbor_counts[code]) for code in codes)
        count_bound = sensitivity_of(BucketCounts(hashing), buckets, "counts")
        assert np.abs(changes).sum() * SCALE <= count_bound.l1
        assert np.abs(changes).max() * SCALE <= count_bound.linf
        assert np.count_nonzero(changes) <= count_bound.l0

        codes = np.array(codes, np.int64)
        radius = float(rng.uniform(0.1, 2.0))
        positions = grid_points(len(codes), buckets.n_features, trial + 2)
        origins = buckets.clip(positions)
        query = BucketSums(hashing, codes, origins, radius)
        sum_changes = query.exact(buckets)["sums"] - query.exact(neighbor)["sums"]
        sum_bound = sensitivity_of(query, buckets, "sums")
        assert sum_bound.l2 == (2 if is_filtered else 1) * radius * SCALE
        assert np.abs(sum_changes).sum() <= sum_bound.l1
        largest.update_with(
            counts=np.linalg.norm(changes) * SCALE / count_bound.l2,
            cells=n_unshared,
            sums=np.linalg.norm(sum_changes) / sum_bound.l2,
        )
    assert largest["counts"] <= 1 + 1e-12
    assert largest["cells"] <= (2 if is_filtered else 1)
    assert largest["sums"] <= 1
    assert largest["counts"] > 0.99
    assert largest["sums"] > 0.7


def test_sensitivities_of_queries_on_all_points():
    """Also after a restriction: these queries are evaluated on all points."""
    largest = Largest()
    for trial in range(200):
        buckets, neighbor, _, rng = neighbors(trial, is_filtered=trial % 2 == 1)
        k = int(rng.integers(1, 5))
        centers = buckets.clip(grid_points(k + 3, buckets.n_features, trial + 3))
        radius = float(rng.uniform(0.1, 2.0))
        sums_and_counts = NearestSumsAndCounts(centers, radius)
        for query in (sums_and_counts, NearestCounts(centers)):
            exact = query.exact(buckets)
            neighbor_exact = query.exact(neighbor)
            for part in query.mechanisms:
                changes = exact[part] - neighbor_exact[part]
                bound = sensitivity_of(query, buckets, part)
                assert np.abs(changes).sum() <= bound.l1
                largest.update_with(**{part: np.linalg.norm(changes) / bound.l2})
        assert sensitivity_of(sums_and_counts, buckets, "sums").l2 == radius * SCALE

        # A record only adds to costs.
        current = rng.permutation(k + 3)[:k]
        cost_range = buckets.cost_range(centers) * SCALE**2
        for query in (
            Swaps(centers, current, np.arange(k)),
            CandidateSets(centers, current[None]),
        ):
            bound = sensitivity_of(query, buckets, "choices")
            assert bound.monotonic
            assert bound.difference == cost_range
        cost_changes = swap_cost_changes(buckets, neighbor, centers, current)
        assert (cost_changes >= 0).all()
        chosen = centers[current][None]
        set_cost, neighbor_cost = (
            inertia(view._shards[0], chosen)[0] for view in (buckets, neighbor)
        )
        set_change = set_cost - neighbor_cost
        assert 0 <= set_change <= cost_range
        largest.update_with(costs=cost_changes.max() / cost_range)
    assert len(largest) == 3
    assert max(largest.values()) <= 1
    assert min(largest.values()) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("is_filtered", [False, True])
def test_sensitivities_where_a_record_is_replaced(is_filtered):
    """What the report's claims recompute for the paper's neighbors: n stays, one record becomes
    another one.
    """
    largest = Largest()
    for trial in range(400):
        rng = np.random.default_rng(trial)
        n = int(rng.integers(5, 40))
        d = int(rng.integers(1, 5))
        rows = grid_points(n, d, trial, KINDS[trial % 3])
        ball_radius = float(rng.uniform(0.3, 1.2) * math.sqrt(d))
        rows[0] = rng.choice([-SCALE, SCALE], d)
        neighbor_rows = rows.copy()
        neighbor_rows[0] = -rows[0] if trial % 2 else grid_points(1, d, trial + 5)[0]
        buckets = hashed(rows, n, ball_radius)
        neighbor = hashed(neighbor_rows, n, ball_radius)
        if is_filtered:
            restrict(buckets, neighbor, grid_points(2, d, trial + 1))
        hashing = euclidean_hash(rng, min(3, d), d, float(rng.uniform(0.2, 8.0)))

        # Counts and sums of buckets.
        counts = bucket_counts(buckets, hashing)
        neighbor_counts = bucket_counts(neighbor, hashing)
        codes = sorted(counts.keys() | neighbor_counts.keys())
        changes = [counts[code] - neighbor_counts[code] for code in codes]
        n_only = len(counts.keys() - neighbor_counts.keys())
        n_neighbor_only = len(neighbor_counts.keys() - counts.keys())
        codes = np.array(codes, np.int64)
        radius = float(rng.uniform(0.1, 2.0))
        origins = buckets.clip(grid_points(len(codes), d, trial + 2))
        query = BucketSums(hashing, codes, origins, radius)
        sums = query.exact(buckets)["sums"]
        neighbor_sums = query.exact(neighbor)["sums"]

        # Sums and sizes of the nearest centers, separately and together.
        k = int(rng.integers(1, 4))
        centers = buckets.clip(grid_points(k + 3, d, trial + 3))
        query = NearestSumsAndCounts(centers, radius)
        exact = query.exact(buckets)
        neighbor_exact = query.exact(neighbor)
        sum_change = np.linalg.norm(exact["sums"] - neighbor_exact["sums"])
        size_change = np.linalg.norm(exact["counts"] - neighbor_exact["counts"]) / SCALE
        sum_scale, count_scale = rng.uniform(0.1, 10, 2)
        same_center = 4 * (radius / sum_scale) ** 2
        two_centers = 2 * (radius / sum_scale) ** 2 + 2 / count_scale**2
        joint = (sum_change / SCALE / sum_scale) ** 2 + (size_change / count_scale) ** 2

        # Costs of swaps.
        current = rng.permutation(k + 3)[:k]
        cost_changes = swap_cost_changes(buckets, neighbor, centers, current)
        cost_range = buckets.cost_range(centers) * SCALE**2
        largest.update_with(
            counts=np.linalg.norm(changes) / math.sqrt(2),
            unshared_buckets=max(n_only, n_neighbor_only),
            sums=np.linalg.norm(sums - neighbor_sums) / (2 * radius * SCALE),
            sizes=size_change / math.sqrt(2),
            joint=joint / max(same_center, two_centers),
            costs=np.ptp(cost_changes) / (2 * cost_range),
        )
    assert len(largest) == 6
    assert max(largest.values()) <= 1 + 1e-12
    assert min(largest.values()) > 0.6, largest  # the pairs come near to the bounds


@pytest.mark.parametrize("is_filtered", [False, True])
def test_singletons_pass_the_threshold_with_probability_delta(is_filtered):
    n = 3000
    delta = 0.01
    rows = (np.arange(2 * n) - n)[:, None] * 20
    # No two points share a cell.
    hashing = Hash(np.array([[DIRECTION_SCALE]]), np.array([0]), 15 * DIRECTION_SCALE)
    n_released = 0
    for seed in range(10):
        buckets = hashed(rows, radius=2.0, seed=seed)
        if is_filtered:
            buckets.filter_farthest(np.array([[0]]), 0.5)
        noise = buckets.histogram_noise(0.5, delta)
        large = buckets.release(BucketCounts(hashing), counts=noise)["counts"]
        n_released += len(large.cells)
        assert (large.counts / SCALE >= noise.threshold).all()
    rate = delta
    n_cells = 20 * n
    if is_filtered:
        # Two cells that only one neighbor has fail together with probability delta.
        rate = 1 - math.sqrt(1 - delta)
        n_cells = 10 * n
    expected = rate * n_cells
    assert abs(n_released - expected) < 5 * math.sqrt(expected)


@pytest.mark.slow
@pytest.mark.parametrize("is_filtered", [False, True])
def test_noise_has_the_declared_scale(is_filtered):
    rows = np.concatenate([grid_points(400, 3, 0), np.zeros((400, 3), int)])
    # One bucket holds all points.
    hashing = Hash(
        np.array([[DIRECTION_SCALE, 0, 0]]),
        np.array([20 * DIRECTION_SCALE * SCALE]),
        40 * DIRECTION_SCALE * SCALE,
    )
    radius = 0.7
    mu = 0.05
    centers = snap([[0.1, 0.2, 0.3], [-0.5, 0.0, 0.4]])
    origin = centers[:1]
    noise = defaultdict(list)
    for seed in range(300):
        ledger = ample_ledger()
        buckets = hashed(rows, radius=2.0, seed=seed, ledger=ledger)
        if is_filtered:
            buckets.filter_farthest(centers, 0.5)
        query = BucketCounts(hashing)
        answer = buckets.release(query, counts=buckets.histogram_noise(mu, 0.4))
        codes, counts = answer["counts"]
        noise["counts"].append(counts / SCALE - buckets.n_remaining)

        query = BucketSums(hashing, codes, origin, radius)
        exact = query.exact(buckets)
        answer = buckets.release(query, sums=Gaussian(buckets.sum_sensitivity(radius) / mu))
        noise["sums"].append((answer["sums"] - exact["sums"]).ravel() / SCALE)

        query = NearestCounts(centers)
        exact = query.exact(buckets)
        answer = buckets.release(query, counts=Gaussian(SCALE / mu))
        noise["nearest"].append((answer["counts"] - exact["counts"]).ravel() / SCALE)

        query = NearestShells(centers, np.array([2.0, 1.0]))
        exact = query.exact(buckets)
        answer = buckets.release(query, counts=Gaussian(SCALE / mu))
        noise["shells"].append((answer["counts"] - exact["counts"]).ravel() / SCALE)

        query = NearestSumsAndCounts(centers, radius)
        exact = query.exact(buckets)
        answer = buckets.release(
            query,
            sums=Gaussian(radius * SCALE / mu),
            counts=Gaussian(SCALE / (2 * mu)),
        )
        noise["nearest_sums"].append((answer["sums"] - exact["sums"]).ravel() / SCALE)
        noise["nearest_sizes"].append((answer["counts"] - exact["counts"]).ravel() / SCALE)

        charged_mus = [charge.mu for charge in ledger.charges]
        assert charged_mus == pytest.approx([mu, mu, mu, mu, math.hypot(mu, 2 * mu)], rel=1e-14)
        assert [charge.delta for charge in ledger.charges] == [0.4, 0, 0, 0, 0]
    sensitivities = {
        "counts": math.sqrt(2) if is_filtered else 1.0,
        "sums": (2.0 if is_filtered else 1.0) * radius,
        "nearest": 1,
        "shells": 1,
        "nearest_sums": radius,
        "nearest_sizes": 0.5,
    }
    for name, sensitivity in sensitivities.items():
        law = stats.norm(0, sensitivity / mu)
        assert stats.kstest(np.concatenate(noise[name]), law.cdf).pvalue > 1e-6, name


@pytest.mark.slow
@pytest.mark.statistical
def test_choices_follow_the_exponential_mechanism():
    rows = grid_points(30, 2, 0)
    candidates = grid_points(4, 2, 1)
    current = np.array([0, 2])
    sets = np.array([[0, 1], [2, 3], [0, 2]])
    n_draws = 4000
    mu = 0.5
    swaps_query = Swaps(candidates, current, [0, 1])
    sets_query = CandidateSets(candidates, sets)
    swap_choices = []
    set_choices = []
    for seed in range(n_draws):
        buckets = hashed(rows, radius=2.0, seed=seed)
        slot, candidate = swaps_query.swap(choose(buckets, swaps_query, mu))
        swap_choices.append(4 * slot + candidate)
        set_choices.append(choose(buckets, sets_query, mu))

    rate = selection_epsilon(mu) / (buckets.cost_range(candidates) * SCALE**2)
    swap_table = swaps_by_definition(rows, candidates, current, [0, 1])
    swap_totals = swap_table.ravel().astype(float)
    set_squares = [squared_distances(rows, candidates[chosen]) for chosen in sets]
    set_totals = np.array([squares.min(axis=1).sum() for squares in set_squares])
    for choices, costs in (
        (swap_choices, swap_totals),
        (set_choices, set_totals),
    ):
        weights = np.exp(-rate * (costs - costs.min()))
        expected = n_draws * weights / weights.sum()
        frequent = expected > 5
        assert frequent.sum() >= 3
        expected = expected[frequent]
        observed = np.bincount(choices, minlength=len(costs))[frequent]
        assert abs(observed.sum() - expected.sum()) < 5 * math.sqrt(n_draws)
        expected = expected * observed.sum() / expected.sum()
        assert stats.chisquare(observed, expected).pvalue > 1e-6


def test_nothing_is_drawn_beyond_the_budget(monkeypatch):
    points = np.zeros((10, 3), np.int64)
    center = np.zeros((1, 3), np.int64)
    hashing = euclidean_hash(np.random.default_rng(0), 1, 3, 1.0)
    code = np.array([0])
    histogram_noise = curator(points).clipped_points(1.0).histogram_noise
    gaussian = Gaussian(SCALE / 2)
    exponential = Exponential(selection_epsilon(2.0))
    queries = (
        (BucketCounts(hashing), {"counts": histogram_noise(2.0, 1e-7)}),
        (BucketCounts(hashing), {"counts": histogram_noise(0.01, 1e-5)}),
        (BucketSums(hashing, code, center, 1.0), {"sums": gaussian}),
        (NearestCounts(center), {"counts": gaussian}),
        (NearestShells(center, np.ones(1)), {"counts": gaussian}),
        (NearestSumsAndCounts(center, 1.0), {"sums": gaussian, "counts": gaussian}),
        (Swaps(center, code, [0]), {"choices": exponential}),
        (CandidateSets(center, np.array([[0]])), {"choices": exponential}),
    )
    for query, noise in queries:
        buckets = curator(points).clipped_points(1.0)
        for law in ("uniform", "normal"):
            monkeypatch.setattr(NoiseStreams, law, lambda *_: pytest.fail("noise was drawn"))
        with pytest.raises(BudgetExceeded):
            buckets.release(query, **noise)


def check_refusal(query, message, **noise):
    """Check that a query is refused before anything is charged."""
    ledger = ample_ledger()
    buckets = hashed(np.zeros((10, 3), np.int64), ledger=ledger)
    with pytest.raises(ValueError, match=message):
        buckets.release(query, **noise)
    assert not ledger.charges


@pytest.mark.parametrize(
    ("centers", "message"),
    [
        (np.zeros((1, 2), int), r"grid integers of shape \(k, 3\)"),
        (np.zeros((1, 3)), r"grid integers of shape \(k, 3\), got float64"),
    ],
)
def test_bad_centers_are_refused(centers, message):
    check_refusal(NearestCounts(centers), message, counts=Gaussian(SCALE))


def test_bad_radii_and_codes_are_refused():
    query = NearestSumsAndCounts(np.zeros((1, 3), int), 0.0)
    check_refusal(query, r"radius=0.0", sums=Gaussian(1.0), counts=Gaussian(SCALE))
    hashing = euclidean_hash(np.random.default_rng(0), 1, 3, 1.0)
    for codes in ([3, 3], [-1, 3]):
        query = BucketSums(hashing, np.array(codes), np.zeros((2, 3), int), 1.0)
        check_refusal(query, r"codes must be 2 increasing numbers", sums=Gaussian(1.0))


def test_hash_of_other_features_is_refused():
    query = BucketCounts(euclidean_hash(np.random.default_rng(0), 1, 2, 1.0))
    noise = hashed(np.zeros((10, 3), np.int64)).histogram_noise(0.1, 1e-7)
    check_refusal(query, r"hashing of 2 features does not fit points of 3", counts=noise)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (Swaps(np.zeros((2, 3), int), np.array([2]), [0]), r"current must be .* from 0 to 1"),
        (Swaps(np.zeros((2, 3), int), np.array([1]), [1]), r"slots must be .* from 0 to 0"),
        (CandidateSets(np.zeros((2, 3), int), np.array([[-1]])), r"sets must be .* from 0 to 1"),
    ],
)
def test_bad_indices_are_refused(query, message):
    check_refusal(query, message, choices=Exponential(1.0))


def test_answers_are_independent_of_order_and_shards():
    rows = np.concatenate([grid_points(300, 3, 0, "tied"), grid_points(200, 3, 1)])
    shuffled = np.random.default_rng(0).permutation(rows)
    hashing = euclidean_hash(np.random.default_rng(1), 2, 3, 0.8)
    centers = snap([[0.1, 0.2, 0.3], [-0.5, 0.0, 0.4], [0.5, 0.5, 0.5]])

    def answers(shards):
        buckets = hashed(shards, radius=1.2)
        results = []
        for _ in range(3):
            noise = buckets.histogram_noise(0.5, 0.3)
            codes, counts = buckets.release(BucketCounts(hashing), counts=noise)["counts"]
            results += [codes, counts]

            origins = buckets.clip(hashing.cell_centers(codes))
            noise = Gaussian(10 * SCALE)
            query = BucketSums(hashing, codes, origins, 0.5)
            results += buckets.release(query, sums=noise).values()
            results += buckets.release(NearestCounts(centers), counts=noise).values()
            query = NearestSumsAndCounts(centers, 0.5)
            results += buckets.release(query, sums=noise, counts=noise).values()

            noise = Exponential(selection_epsilon(0.1))
            query = Swaps(centers, np.array([0, 1]), [0, 1])
            results += buckets.release(query, choices=noise).values()
            query = CandidateSets(centers, np.array([[0], [2]]))
            results += buckets.release(query, choices=noise).values()
            buckets.filter_farthest(centers, 0.7)
        return results

    expected = answers(rows)
    assert all(len(result) for result in expected)
    for shards in (shuffled, [rows[:7], rows[7:400], rows[400:]]):
        for result, expected_result in zip(answers(shards), expected, strict=True):
            assert (result == expected_result).all()


def test_exponents_of_huge_costs_are_exact():
    """Two sets whose costs differ in the last digits of integers beyond float64."""
    mechanism = Exponential(1.0)
    streams = NoiseStreams([0])
    change = ScoreSensitivity(2.0, monotonic=True)
    smaller = 1 << 62
    scores = score_costs([smaller + 10, smaller])
    choices = [mechanism.draw([scores], streams, ("key", i), change) for i in range(2000)]
    expected = expit(5.0)
    standard_error = math.sqrt(expected * (1 - expected) / 2000)
    assert abs(np.mean(choices) - expected) < 5 * standard_error
    assert logit(expected) == pytest.approx(5.0)


class CuriousHash(Hash):
    """A hash that looks at the points."""

    def codes(self, points):
        raise AssertionError("code of a method met private points")


def test_hashes_of_other_types_are_refused():
    curator = curator_of(np.zeros((5, 2), np.int64))
    view = curator.clipped_points(1.0)
    directions = np.array([[1, 0]])
    hashing = CuriousHash(directions, np.zeros(1, np.int64), 4)
    with pytest.raises(TypeError, match=r"hashing=.* must be a Hash, and no subclass"):
        view.release(BucketCounts(hashing), counts=StabilityHistogram(1.0, 1e-9))
    assert curator._ledger.charges == ()
