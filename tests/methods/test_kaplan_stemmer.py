"""Kaplan and Stemmer: hashing, restriction, queries on neighbors, accounting, quality.
Statistical tests use fixed seeds; their thresholds are five standard errors of the statistic
(fewer than one false alarm in a million) or a p-value of 1e-6.
"""

import itertools
import math
import re
from collections import Counter, defaultdict
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.special import expit, logit, ndtri

from pkm import datasets
from pkm.audit.pairs import draw_pairs
from pkm.audit.replay import replay
from pkm.compute import DIRECTION_SCALE, Points, cluster_means, inertia, labels
from pkm.compute.kernels import farthest as ranking
from pkm.compute.kernels.clipping import clip_norms, clipped_sums
from pkm.compute.kernels.farthest import MAX_GATHERED, farthest
from pkm.compute.kernels.hashing import Hash, euclidean_hash, orthonormal
from pkm.compute.kernels.nearest import swap_costs
from pkm.compute.storage.blocks import Shards
from pkm.methods import KMeansPlusPlus
from pkm.methods.coreset import Coreset, consistent
from pkm.methods.hashing.kaplan_stemmer import KaplanStemmer
from pkm.methods.hashing.local_search import private_local_search
from pkm.methods.weighted_kmeans import weighted_kmeans
from pkm.privacy import (
    SCALE,
    BucketCounts,
    BucketSums,
    Budget,
    BudgetExceeded,
    CandidateSets,
    Curator,
    Exponential,
    Gaussian,
    Ledger,
    NearestCounts,
    NearestShells,
    NearestSumsAndCounts,
    NoiseStreams,
    Swaps,
    gaussian_mu,
    gdp_delta,
    snap,
)
from pkm.privacy.mechanisms.noise import INITIALIZATION, child, public_seed
from pkm.privacy.mechanisms.selection import ScoreRange, selection_epsilon, selection_mu
from pkm.privacy.mechanisms.stability_histogram import quantile
from pkm.privacy.queries.hashed_queries import scores_of_costs

KINDS = ("spread", "tied", "extreme")


def grid_points(n, d, seed, kind="spread"):
    rng = np.random.default_rng(seed)
    if kind == "tied":  # few values: many equal distances and equal points
        return rng.integers(-1, 2, (n, d)) * SCALE // 2
    if kind == "extreme":
        return rng.choice([-SCALE, SCALE, 0, 77], (n, d))
    return rng.integers(-SCALE, SCALE + 1, (n, d))


def squared_distances(points, centers):
    return ((points[:, None] - centers) ** 2).sum(axis=2)


def norms(vectors):
    return np.linalg.norm(vectors, axis=1, keepdims=True)


def number_of_hashes(plan):
    return plan.rounds * len(plan.widths) * plan.repetitions


def ample_ledger():
    """Return a ledger with more budget than any test spends."""
    return Ledger(Budget(1e20, 0.999))


def hashed(rows, n_points=None, radius=1.0, seed=0, ledger=None):
    """Return HashedPoints of rows; the public number of records may be larger, the others
    contribute nothing.
    """
    if ledger is None:
        ledger = ample_ledger()
    owner = Curator(rows, ledger, NoiseStreams([seed]))
    if n_points is not None:
        owner.n_points = n_points
    return owner.hashed_points(radius)


def sensitivity_of(query, buckets, part):
    """Return the declared sensitivity of a part under zero-out adjacency."""
    return query.sensitivity(buckets)[part]


def choose(buckets, query, mu):
    """Return a choice that costs mu."""
    mechanism = Exponential(selection_epsilon(mu))
    (choice,) = buckets.release(query, choices=mechanism)["choices"]
    return choice


def kept_rows(buckets):
    return rows_of(buckets._all, buckets._restricted)


def rows_of(shards, found):
    """Coordinates of the points that are the farthest, each as often as it is among them."""
    rows = []
    for shard in shards:
        mask = np.ones(len(shard.rows), bool) if found is None else found.mask(shard)
        rows += shard.rows[mask].astype(int).tolist()
    if found is not None:
        rows += np.repeat(found.copies, found.n_copies, axis=0).astype(int).tolist()
    return [tuple(row) for row in rows]


# Hashing


def test_directions_are_orthonormal_and_reproducible():
    for m, d in ((1, 1), (4, 4), (4, 50)):
        directions = orthonormal(np.random.default_rng(d), m, d)
        unit = directions / DIRECTION_SCALE
        assert np.abs(unit @ unit.T - np.eye(m)).max() < d * 2.0**-15
        assert (directions == orthonormal(np.random.default_rng(d), m, d)).all()
    message = "projections=3 must be from 1 to the number of features, 2"
    with pytest.raises(ValueError, match=message):
        orthonormal(np.random.default_rng(0), 3, 2)


@pytest.mark.parametrize(
    ("m", "d", "width"),
    [(1, 1, 0.5), (2, 2, 0.01), (4, 9, 0.7), (3, 20, 5.0)],
)
def test_codes_are_the_cells_in_exact_arithmetic(m, d, width):
    rows = np.concatenate([grid_points(200, d, 1), grid_points(50, d, 2, "extreme")])
    hashing = euclidean_hash(np.random.default_rng(3), m, d, width)
    projections = list(zip(hashing.directions, hashing.shifts, strict=True))

    def interval(row, direction, shift):
        product = sum(int(a) * int(x) for a, x in zip(direction, row, strict=True))
        return (product + int(shift)) // hashing.width

    cells = [[interval(row, *projection) for projection in projections] for row in rows]
    codes = hashing.codes(Points.prepare(rows))
    assert codes.min() >= 0
    assert codes.max() < math.prod(hashing.sizes)
    order = sorted(range(len(rows)), key=lambda i: cells[i])
    for i, j in itertools.pairwise(order):
        assert (codes[i] == codes[j]) == (cells[i] == cells[j])
        assert codes[i] <= codes[j]

    projected = hashing.cell_centers(codes) @ hashing.directions.T + hashing.shifts
    offsets = projected / hashing.width - np.array(cells) - 0.5
    assert np.abs(offsets).max() < 0.01 * max(1, 0.1 / width)


def test_collisions_follow_the_closed_form():
    """One projection of a pair at a distance: the mean of max(0, 1 - g / w) over the law of its gap
    g.
    """
    d = 6
    width = 0.8
    n_draws = 4000
    rng = np.random.default_rng(0)
    start = 0.2 * rng.standard_normal(d)
    unit = rng.standard_normal(d)
    unit /= np.linalg.norm(unit)
    distances = np.array([0.1, 0.4, 0.8])
    rows = np.concatenate([start[None], start + distances[:, None] * unit])
    points = Points.prepare(snap(rows))
    generator = np.random.default_rng(1)
    codes = np.array([euclidean_hash(generator, 1, d, width).codes(points) for _ in range(n_draws)])
    rates = (codes[:, 1:] == codes[:, :1]).mean(axis=0)
    # A coordinate u of a uniform unit vector: (u + 1) / 2 is Beta((d - 1) / 2, (d - 1) / 2).
    law = stats.beta((d - 1) / 2, (d - 1) / 2, loc=-1, scale=2)
    for distance, rate in zip(distances, rates, strict=True):

        def integrand(u, distance=distance):
            return law.pdf(u) * max(0.0, 1 - abs(u) * distance / width)

        expected, _ = integrate.quad(integrand, -1, 1)
        assert abs(rate - expected) < 5 * math.sqrt(expected * (1 - expected) / n_draws)

    # Points at a distance of more than a cell's width never collide.
    pair = Points.prepare(snap([[0.1], [0.5]]))
    for _ in range(99):
        first, second = euclidean_hash(generator, 1, 1, 0.3).codes(pair)
        assert first != second


def test_bad_hashes_are_refused():
    with pytest.raises(
        ValueError,
        match="is too small: take wider cells or fewer projections",
    ):
        euclidean_hash(np.random.default_rng(0), 8, 8, 1e-3)
    with pytest.raises(ValueError, match="shifts between 0"):
        Hash(np.array([[DIRECTION_SCALE]]), np.array([5]), 5)
    with pytest.raises(ValueError, match="entries of at most 65536"):
        Hash(np.array([[DIRECTION_SCALE + 1]]), np.array([0]), 5)


def test_clipped_sums_agree_with_their_definition():
    rows = grid_points(300, 5, 0)
    origins = grid_points(4, 5, 1)
    labels = np.random.default_rng(2).integers(-1, 4, 300, dtype=np.int32)
    radius = 60_000.0
    sums = clipped_sums(Points.prepare(rows), labels, origins, radius)
    for label in range(4):
        expected = np.zeros(5, np.int64)
        for row in rows[labels == label]:
            step = row - origins[label]
            length = np.linalg.norm(step)
            if length > radius:
                shortened = step * (radius / length * (1 - 2.0**-48))
                step = np.trunc(shortened).astype(int)
            expected += step
        assert (sums[label] == expected).all()


def test_clipped_points_lie_in_the_ball():
    rows = grid_points(500, 3, 0)
    for radius in (0.3, 1.0, 1.5):
        limit = radius * SCALE
        clipped = clip_norms(rows, limit)
        assert ((clipped**2).sum(axis=1) <= limit**2).all()
        inside = (rows**2).sum(axis=1) <= limit**2
        assert 0 < inside.sum() < 500
        assert (clipped[inside] == rows[inside]).all()
        outside = rows[~inside]
        expected = outside * (limit / norms(outside))
        assert np.abs(clipped[~inside] - expected).max() <= 1


# The restricted set


@given(
    st.integers(0, 10**6),
    st.integers(1, 14),
    st.integers(0, 14),
    st.booleans(),
    st.sampled_from([0, 1, 3, MAX_GATHERED]),
)
@settings(max_examples=150, deadline=None)
def test_farthest_is_a_function_of_the_multiset(seed, n, n_farthest, tied, n_gathered):
    """Also among the farthest from other centers, and however few points are compared one by one.

    Of few different points some have copies that are kept and copies that are not.
    """
    kind = "tied" if tied else "spread"
    drawn = grid_points(n, 2, seed, kind)
    rows = drawn[np.random.default_rng(seed).integers(0, n, n)] if tied else drawn
    center_sets = [grid_points(2, 2, seed + i, "tied") for i in (1, 2)]
    expected = [tuple(row) for row in rows.tolist()]
    shuffled = np.random.default_rng(seed).permutation(rows)
    halves = [shuffled[: n // 2], shuffled[n // 2 :]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "MAX_GATHERED", n_gathered)
        found = [None] * 3
        for centers, n_kept in zip(center_sets, (max(1, n - 2), n_farthest), strict=True):
            squares = {row: squared_distances(np.array([row]), centers).min() for row in expected}
            expected = sorted(expected, key=lambda row: (-squares[row], row))[:n_kept]
            for i, shards in enumerate(([rows], [shuffled], halves)):
                parts = Shards(Points.prepare(shard) for shard in shards)
                found[i] = farthest(parts, found[i], centers, n_kept)
                assert Counter(rows_of(parts, found[i])) == Counter(expected)


@given(
    st.integers(0, 10**6),
    st.integers(2, 12),
    st.sampled_from([0.3, 0.5, 0.9]),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_a_record_changes_the_restricted_set_by_one(seed, n, share, tied):
    """It replaces one record at most: also after a second restriction, and for every record."""
    kind = "tied" if tied else "spread"
    rows = grid_points(n, 2, seed, kind)
    center_sets = [grid_points(2, 2, seed + i, kind) for i in (1, 2)]
    for record in range(n):
        buckets = hashed(rows, n, 2.0)
        neighbor = hashed(np.delete(rows, record, axis=0), n, 2.0)
        for centers in center_sets:
            buckets.filter_farthest(centers, share)
            neighbor.filter_farthest(centers, share)
            assert buckets.n_restricted == neighbor.n_restricted
            kept = Counter(kept_rows(buckets))
            neighbor_kept = Counter(kept_rows(neighbor))
            assert (kept - neighbor_kept).total() <= 1
            assert (neighbor_kept - kept).total() <= 1


def test_restriction_keeps_the_farthest_half():
    rows = np.array([[i * 1000] for i in range(10)])
    center = np.array([[0]])
    buckets = hashed(rows, radius=2.0)
    buckets.filter_farthest(center, 0.5)
    assert sorted(kept_rows(buckets)) == [(i * 1000,) for i in range(5, 10)]
    assert buckets.n_restricted == 5
    message = r"fraction=1.0 of the records to keep must be in \(0, 1\)"
    with pytest.raises(ValueError, match=message):
        buckets.filter_farthest(center, 1.0)


# What a record changes


def neighbors(trial, restricted):
    """Return the hashed points of two neighbors, a hash and a generator."""
    rng = np.random.default_rng(trial)
    n = int(rng.integers(5, 40))
    d = int(rng.integers(1, 5))
    rows = grid_points(n, d, trial, KINDS[trial % 3])
    radius = float(rng.uniform(0.3, 1.2) * math.sqrt(d))
    buckets = hashed(rows, n, radius)
    neighbor = hashed(np.delete(rows, rng.integers(n), axis=0), n, radius)
    if restricted:
        restrict(buckets, neighbor, grid_points(2, d, trial + 1))
    hashing = euclidean_hash(rng, min(3, d), d, float(rng.uniform(0.2, 2.0)))
    return buckets, neighbor, hashing, rng


def restrict(buckets, neighbor, positions):
    centers = buckets.into_ball(positions)
    for side in (buckets, neighbor):
        side.filter_farthest(centers, 0.5)


def bucket_counts(buckets, hashing):
    found = BucketCounts(hashing).exact(buckets)["counts"]
    return Counter(dict(zip(found.cells.tolist(), found.counts.tolist(), strict=True)))


def swap_cost_changes(buckets, neighbor, centers, current):
    slots = np.arange(len(current))
    costs = swap_costs(buckets._all[0], centers, current, slots)
    neighbor_costs = swap_costs(neighbor._all[0], centers, current, slots)
    return (costs - neighbor_costs).astype(float)


class Largest(dict):
    """The largest value of each name."""

    def update_with(self, **values):
        for name, value in values.items():
            self[name] = max(self.get(name, 0.0), value)


@pytest.mark.parametrize("restricted", [False, True])
def test_sensitivities_of_histograms_and_sums(restricted):
    largest = Largest()
    for trial in range(300):
        buckets, neighbor, hashing, rng = neighbors(trial, restricted)
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
        origins = buckets.into_ball(positions)
        query = BucketSums(hashing, codes, origins, radius)
        sum_changes = query.exact(buckets)["sums"] - query.exact(neighbor)["sums"]
        sum_bound = sensitivity_of(query, buckets, "sums")
        assert sum_bound.l2 == (2 if restricted else 1) * radius * SCALE
        assert np.abs(sum_changes).sum() <= sum_bound.l1
        largest.update_with(
            counts=np.linalg.norm(changes) * SCALE / count_bound.l2,
            cells=n_unshared,
            sums=np.linalg.norm(sum_changes) / sum_bound.l2,
        )
    assert largest["counts"] <= 1 + 1e-12
    assert largest["cells"] <= (2 if restricted else 1)
    assert largest["sums"] <= 1
    assert largest["counts"] > 0.99
    assert largest["sums"] > 0.7


def test_sensitivities_of_queries_on_all_points():
    """Also after a restriction: these queries are evaluated on all points."""
    largest = Largest()
    for trial in range(200):
        buckets, neighbor, _, rng = neighbors(trial, restricted=trial % 2 == 1)
        k = int(rng.integers(1, 5))
        centers = buckets.into_ball(grid_points(k + 3, buckets.n_features, trial + 3))
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
            assert bound.one_sided
            assert bound.change == cost_range
        cost_changes = swap_cost_changes(buckets, neighbor, centers, current)
        assert (cost_changes >= 0).all()
        chosen = centers[current][None]
        set_change = inertia(buckets._all[0], chosen)[0] - inertia(neighbor._all[0], chosen)[0]
        assert 0 <= set_change <= cost_range
        largest.update_with(costs=cost_changes.max() / cost_range)
    assert len(largest) == 3
    assert max(largest.values()) <= 1
    assert min(largest.values()) > 0.9


@pytest.mark.parametrize("restricted", [False, True])
def test_sensitivities_where_a_record_is_replaced(restricted):
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
        if restricted:
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
        origins = buckets.into_ball(grid_points(len(codes), d, trial + 2))
        query = BucketSums(hashing, codes, origins, radius)
        sums = query.exact(buckets)["sums"]
        neighbor_sums = query.exact(neighbor)["sums"]

        # Sums and sizes of the nearest centers, separately and together.
        k = int(rng.integers(1, 4))
        centers = buckets.into_ball(grid_points(k + 3, d, trial + 3))
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


def test_cost_range_is_limited_by_ball_and_box():
    ball = hashed(np.zeros((1, 4), int), radius=0.5)
    box = hashed(np.zeros((1, 4), int), radius=9.0)
    edge = np.array([[SCALE // 2, 0, 0, 0]])
    corner = np.full((1, 4), SCALE)
    assert ball.radius == 0.5
    assert ball.cost_range(edge) == 1.0
    assert box.radius == 2.0
    assert box.cost_range(corner) == 16.0
    assert box.cost_range(0 * corner) == 4.0


# Noise and thresholds


@pytest.mark.parametrize("restricted", [False, True])
def test_singletons_pass_the_threshold_with_probability_delta(restricted):
    n = 3000
    delta = 0.01
    rows = (np.arange(2 * n) - n)[:, None] * 20
    # No two points share a cell.
    hashing = Hash(np.array([[DIRECTION_SCALE]]), np.array([0]), 15 * DIRECTION_SCALE)
    n_released = 0
    for seed in range(10):
        buckets = hashed(rows, radius=2.0, seed=seed)
        if restricted:
            buckets.filter_farthest(np.array([[0]]), 0.5)
        noise = buckets.histogram_noise(0.5, delta)
        large = buckets.release(BucketCounts(hashing), counts=noise)["counts"]
        n_released += len(large.cells)
        assert (large.counts / SCALE >= noise.threshold).all()
    rate = delta
    n_cells = 20 * n
    if restricted:
        # Two cells that only one neighbor has fail together with probability delta.
        rate = 1 - math.sqrt(1 - delta)
        n_cells = 10 * n
    expected = rate * n_cells
    assert abs(n_released - expected) < 5 * math.sqrt(expected)


@pytest.mark.parametrize("restricted", [False, True])
def test_noise_has_the_declared_scale(restricted):
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
        if restricted:
            buckets.filter_farthest(centers, 0.5)
        query = BucketCounts(hashing)
        answer = buckets.release(query, counts=buckets.histogram_noise(mu, 0.4))
        codes, counts = answer["counts"]
        noise["counts"].append(counts / SCALE - buckets.n_restricted)

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
        "counts": math.sqrt(2) if restricted else 1.0,
        "sums": (2.0 if restricted else 1.0) * radius,
        "nearest": 1,
        "shells": 1,
        "nearest_sums": radius,
        "nearest_sizes": 0.5,
    }
    for name, sensitivity in sensitivities.items():
        law = stats.norm(0, sensitivity / mu)
        assert stats.kstest(np.concatenate(noise[name]), law.cdf).pvalue > 1e-6, name


# Selection


def test_selection_mu_covers_the_worst_pair():
    """No event of a bounded-range pair is likelier than Gaussians at the distance mu allow; the
    bound is attained at one half.
    """
    for epsilon in (1e-3, 0.1, 1.0, 4.0, 20.0):
        mu = selection_mu(epsilon)
        assert selection_epsilon(mu) == pytest.approx(epsilon, rel=1e-9)
        log_odds = np.linspace(-12 - epsilon, 12, 4001)
        distances = -ndtri(expit(-log_odds - epsilon)) - ndtri(expit(log_odds))
        assert (distances <= mu * (1 + 1e-9)).all()
        assert -2 * ndtri(expit(-epsilon / 2)) == pytest.approx(mu)
    assert selection_mu(1e-6) == pytest.approx(math.sqrt(2 * math.pi) / 4 * 1e-6, rel=1e-6)
    assert math.isfinite(selection_epsilon(1e6))


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_exponential_mechanism_is_as_private_as_charged(epsilon):
    rng = np.random.default_rng(0)
    largest_ratio = 0.0

    def exponential_law(costs):
        weights = np.exp(-epsilon * costs)
        return weights / weights.sum()

    for trial in range(200):
        costs = rng.uniform(0, 5, 6)
        increases = rng.integers(0, 2, 6) if trial % 2 else rng.uniform(0, 1, 6)
        law = exponential_law(costs)
        neighbor_law = exponential_law(costs + increases)
        for tested_epsilon in np.linspace(0, epsilon, 7):
            allowed = gdp_delta(selection_mu(epsilon), tested_epsilon)
            for p, q in ((law, neighbor_law), (neighbor_law, law)):
                needed = np.maximum(p - math.exp(tested_epsilon) * q, 0).sum()
                assert needed <= allowed * (1 + 1e-9) + 1e-15
                if tested_epsilon == 0:
                    largest_ratio = max(largest_ratio, needed / allowed)
    assert largest_ratio > 0.6


def swaps_by_definition(rows, candidates, current, slots):
    costs = np.empty((len(slots), len(candidates)), object)
    for row, slot in enumerate(slots):
        remaining = np.delete(current, slot)
        for j in range(len(candidates)):
            chosen = candidates[[*remaining, j]]
            costs[row, j] = int(squared_distances(rows, chosen).min(axis=1).sum())
    return costs


@given(st.integers(0, 10**6), st.integers(1, 5), st.booleans())
@settings(max_examples=40, deadline=None)
def test_swap_costs_are_exact(seed, k, tied):
    rng = np.random.default_rng(seed)
    kind = "tied" if tied else "spread"
    rows = grid_points(int(rng.integers(1, 700)), 3, seed, kind)
    candidates = grid_points(6, 3, seed + 1, kind)
    current = rng.permutation(6)[:k]
    for slots in (np.arange(k), np.array([k - 1])):
        costs = swap_costs(Points.prepare(rows), candidates, current, slots)
        assert (costs == swaps_by_definition(rows, candidates, current, slots)).all()


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


@pytest.mark.parametrize("moves", ["all", "round_robin"])
def test_local_search_without_noise_ends_at_a_local_optimum(moves):
    rows = grid_points(500, 2, 5)
    candidates = grid_points(12, 2, 6)
    ledger = ample_ledger()
    centers = private_local_search(
        hashed(rows, radius=2.0, ledger=ledger),
        candidates,
        3,
        n_swaps=15,
        mu=1e9 / 4,
        generator=np.random.default_rng(0),
        moves=moves,
    )
    mus = [charge.mu for charge in ledger.charges]
    assert len(mus) == 16
    assert math.hypot(*mus) == pytest.approx(1e9)
    matches = (candidates[:, None] == centers).all(axis=2)
    current = matches.argmax(axis=0)
    costs = swaps_by_definition(rows, candidates, current, range(3))
    assert inertia(Points.prepare(rows), centers[None])[0] == costs.min()


# The curator's queries


def curator(points, epsilon=1.0, delta=1e-6, seeds=(0,)):
    return Curator(points, Ledger(Budget(epsilon, delta)), NoiseStreams(seeds))


def test_nothing_is_drawn_beyond_the_budget(monkeypatch):
    points = np.zeros((10, 3), np.int64)
    center = np.zeros((1, 3), np.int64)
    hashing = euclidean_hash(np.random.default_rng(0), 1, 3, 1.0)
    code = np.array([0])
    histogram_noise = curator(points).hashed_points(1.0).histogram_noise
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
        buckets = curator(points).hashed_points(1.0)
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
        (np.zeros((1, 2), int), r"grid integers of shape \(m, 3\)"),
        (np.zeros((1, 3)), r"grid integers of shape \(m, 3\), got float64"),
        (np.full((1, 3), SCALE + 1), r"positions must lie in the domain"),
    ],
)
def test_bad_centers_are_refused(centers, message):
    check_refusal(NearestCounts(centers), message, counts=Gaussian(SCALE))


def test_bad_radii_and_codes_are_refused():
    query = NearestSumsAndCounts(np.zeros((1, 3), int), 0.0)
    check_refusal(query, r"radius=0.0", sums=Gaussian(1.0), counts=Gaussian(SCALE))
    hashing = euclidean_hash(np.random.default_rng(0), 1, 3, 1.0)
    equal_codes = np.array([3, 3])
    query = BucketSums(hashing, equal_codes, np.zeros((2, 3), int), 1.0)
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


def test_hashed_points_need_one_replicate_and_a_radius():
    points = np.zeros((10, 3), np.int64)
    with pytest.raises(
        ValueError,
        match="HashedPoints serves one replicate at a time, not 2",
    ):
        curator(points, seeds=(0, 1)).hashed_points(1.0)
    with pytest.raises(ValueError, match=r"radius=-1\.0 must be positive"):
        curator(points).hashed_points(-1.0)


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

            origins = buckets.into_ball(hashing.cell_centers(codes))
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


# The method


@cache
def mixture(n=20_000, d=10, k=16, seed=0, sd=0.05):
    """Return points and centers of separated Gaussian clusters in the unit ball.

    Sizes are in proportion to the roots of 1 .. k.
    """
    rng = np.random.default_rng(seed)
    centers = []
    separation = 1.0
    while len(centers) < k:
        direction = rng.standard_normal(d)
        candidate = direction / np.linalg.norm(direction) * rng.random() ** (1 / d) * 0.8
        if all(np.linalg.norm(candidate - center) > separation for center in centers):
            centers.append(candidate)
        else:
            separation *= 0.999
    centers = np.array(centers)
    shares = np.sqrt(np.arange(1, k + 1))
    classes = rng.choice(k, n, p=shares / shares.sum())
    points = centers[classes] + sd * rng.standard_normal((n, d))
    points = points / np.maximum(1, norms(points))
    return Points.prepare(snap(np.clip(points, -1, 1))), centers


@cache
def best_cost(k=16, **kwargs):
    points, _ = mixture(k=k, **kwargs)
    exact = KMeansPlusPlus(k, n_init=5).fit_batch(points, [0])
    return inertia(points, exact.centers)[0]


@pytest.mark.parametrize(
    "parameters",
    [
        {"select": "local_search"},
        {"release": "candidates"},
        {"rounds": 3},
        {"step_radius": "released"},
    ],
)
def test_variants_keep_budget_ball_and_independence_of_shards(parameters):
    points, _ = mixture()
    rows = points.rows[:4000].astype(np.int64)
    method = KaplanStemmer(3, epsilon=4.0, radius=1.0, **parameters)
    run = method.fit_batch(rows, [1, 2])
    assert run.ledger.spent() <= 4.0 * (1 + 1e-9)
    shuffled = np.random.default_rng(0).permutation(rows)
    with_empty_shard = method.fit_batch([shuffled[:1500], np.empty((0, 10), np.int64)], [1, 2])
    assert with_empty_shard.centers.shape[2] == 10
    sharded = method.fit_batch([shuffled[:1500], shuffled[1500:]], [1, 2])
    assert (run.centers == sharded.centers).all()
    assert (run.n_centers == sharded.n_centers).all()
    lengths = np.sqrt((run.centers.astype(float) ** 2).sum(axis=2))
    assert lengths.max() <= SCALE  # in the ball


@pytest.mark.parametrize("select", ["counts", "local_search"])
@pytest.mark.parametrize("release", ["centers", "candidates"])
@pytest.mark.parametrize(("epsilon", "step_radius"), [(0.5, "planned"), (4.0, "released")])
def test_accounting_from_the_charges(epsilon, step_radius, select, release):
    """Recomputed from scales and sensitivities alone."""
    points, _ = mixture()
    method = KaplanStemmer(16, epsilon=epsilon, radius=1.0, select=select, release=release)
    method.set_params(step_radius=step_radius)
    plan = method.schedule(20_000, 10)
    ledger = method.fit_batch(points, [0]).ledger
    n_hashes = number_of_hashes(plan)
    expected_labels = [
        "bucket_counts",
        "bucket_sums",
        "bucket_sums",
    ] * n_hashes
    if release == "centers":
        expected_labels += ["nearest_counts"] if select == "counts" else ["swaps"] * 20 + ["sets"]
        expected_labels += ["nearest_shells"] if step_radius == "released" else []
        expected_labels.append("nearest_sums_and_counts")
    assert [charge.label for charge in ledger.charges] == expected_labels

    squared_mu = 0.0
    delta = 0.0
    for number, charge in enumerate(ledger.charges):
        details = charge.details
        restricted = plan.rounds > 1 and n_hashes * 3 // 2 <= number < n_hashes * 3
        if charge.label == "bucket_counts":
            expected = math.sqrt(2) if restricted else 1
            assert details["count_sensitivity"] == pytest.approx(expected)
            delta += charge.delta
        if charge.label == "bucket_sums":
            expected = (2 if restricted else 1) * details["radius"]
            assert details["sum_sensitivity"] == pytest.approx(expected)
        for kind in ("count", "sum"):
            if f"{kind}_scale" in details:
                ratio = details[f"{kind}_sensitivity"] / details[f"{kind}_scale"]
                squared_mu += ratio**2
        if "choice_range" in details:
            squared_mu += (2 * ndtri(expit(details["choice_range"] / 2))) ** 2
    mu = math.sqrt(squared_mu)
    assert delta == pytest.approx(5e-7)
    assert sum(charge.delta for charge in ledger.charges) == delta
    assert gdp_delta(mu, epsilon) + delta <= 1e-6 * (1 + 1e-6)
    assert mu == pytest.approx(gaussian_mu(epsilon, 5e-7))
    assert ledger.spent() == pytest.approx(epsilon)


def radius_charged(rows, radius, **parameters):
    """Return the radius of the Lloyd step of a run, in radii of the ball."""
    method = KaplanStemmer(1, radius=radius, step_radius="released", **parameters)
    charges = method.fit_batch(rows, [0]).ledger.charges
    (radius_of_step,) = [
        charge.details["radius"] for charge in charges if "sums_and" in charge.label
    ]
    return radius_of_step / radius


@pytest.mark.parametrize("spread", [0.1, 0.01])
def test_released_radius_is_the_smallest_that_holds_nearly_all(spread):
    """Points on a sphere, with noise of a count far below theirs: their distance to the center,
    which is next to its middle, is below the radius and above the next smaller one.
    """
    directions = np.random.default_rng(0).standard_normal((20_000, 20))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    radius = radius_charged(snap(spread * directions), 1.0, epsilon=50.0)
    assert spread < radius < 1.5 * spread


def test_released_radius_is_never_above_the_planned_one():
    rows = np.random.default_rng(1).choice([-SCALE, SCALE], (2000, 20))
    planned = KaplanStemmer(1, epsilon=50.0).schedule(2000, 20).lloyd_radius
    assert radius_charged(rows, math.sqrt(20), epsilon=50.0) == pytest.approx(planned)


@pytest.mark.parametrize("d", [16, 17])
@pytest.mark.parametrize("radius", [1.0, "auto"])
def test_a_given_ball_counts_as_filled_beyond_sixteen_features(d, radius):
    rows = np.random.default_rng(1).choice([-SCALE, SCALE], (2000, d))
    size = math.sqrt(d) if radius == "auto" else radius
    filled = d > 16 and radius != "auto"
    plan = KaplanStemmer(1, epsilon=50.0).schedule(2000, d, in_ball=filled)
    method = KaplanStemmer(1, epsilon=50.0, radius=radius, step_radius="planned")
    radii = [charge.details.get("radius") for charge in method.fit_batch(rows, [0]).ledger.charges]
    assert radii[-1] == pytest.approx(plan.lloyd_radius * size)
    assert min(filter(None, radii[:-1])) == pytest.approx(
        max(min(plan.widths), plan.fine_radius) * size
    )


@pytest.mark.statistical
def test_released_radius_pays_on_small_clusters():
    """16 clusters of standard deviation 0.01 in 32 columns: what noise of the step adds falls."""
    rng = np.random.default_rng(2)
    centers = rng.uniform(-0.9, 0.9, (16, 32))
    labels = rng.integers(16, size=50_000)
    rows = snap(np.clip(centers[labels] + 0.01 * rng.standard_normal((50_000, 32)), -1, 1))
    points = Points.prepare(rows)
    best = inertia(points, KMeansPlusPlus(16, n_init=5).fit_batch(points, [0]).centers)[0]
    excess = {}
    for step_radius in ("planned", "released"):
        run = KaplanStemmer(16, epsilon=1.0, step_radius=step_radius).fit_batch(points, range(3))
        excess[step_radius] = np.array(inertia(points, run.centers)) / best - 1
    assert excess["released"].max() < 0.01
    assert excess["released"].max() < 0.2 * excess["planned"].min()


def test_replay_with_a_released_radius():
    """Queries, charges and centers depend on released values alone, and cost what is charged."""
    method = KaplanStemmer(2, epsilon=400.0, step_radius="released")
    for number, pair in enumerate(draw_pairs("zero_out", 16, 6, n_points=(40, 60))):
        outcome = replay(method, pair, number)
        assert not outcome.divergence
        assert outcome.refusal is None
        assert all(each.ratio <= 1 + 1e-9 for each in outcome.realized)


def shortened(steps, radius):
    """Return steps cut to a length of the radius."""
    lengths = norms(steps)
    factors = radius * SCALE / np.maximum(lengths, 1) * (1 - 2.0**-48)
    factors = np.where(lengths <= radius * SCALE, 1.0, factors)
    return np.trunc(steps * factors).astype(np.int64)


def noiseless_version(points, k, radius, plan, seed):
    """Run the method without any noise, in plain numpy."""
    generator = np.random.default_rng(child(public_seed(seed), INITIALIZATION))
    d = points.shape[1]
    kept = points
    candidates = np.empty((0, d), np.int64)

    def into_ball(positions):
        return np.clip(clip_norms(positions, radius * SCALE), -SCALE, SCALE)

    for number in range(plan.rounds):
        # Restrict to the half that is farthest from the candidates.
        if number:
            squares = squared_distances(kept, candidates).min(axis=1)
            order = np.lexsort((*kept.T[::-1], -squares))
            kept = kept[order[: len(kept) // 2]]

        # The average of every large bucket, in two steps from its center, is a candidate.
        least_size = max(plan.threshold, len(kept) / (8 * k))
        for width in plan.widths:
            for _ in range(plan.repetitions):
                hashing = euclidean_hash(generator, 4, d, width * radius)
                cells = (kept @ hashing.directions.T + hashing.shifts) // hashing.width
                _, bucket, sizes = np.unique(cells, axis=0, return_inverse=True, return_counts=True)
                bucket = bucket.ravel()
                codes = hashing.codes(Points.prepare(kept))
                for b in np.flatnonzero(sizes >= least_size):
                    members = kept[bucket == b]
                    center = into_ball(hashing.cell_centers(codes[bucket == b][:1]))
                    for step_radius in (
                        0.5 * radius,
                        min(max(width, plan.fine_radius), 0.5) * radius,
                    ):
                        steps = shortened(members - center, step_radius)
                        center = into_ball(center + steps.sum(axis=0) / len(members))
                    candidates = np.concatenate([candidates, center])
        candidates = np.unique(candidates, axis=0)

    # Cluster the candidates, weighted by the points nearest to them.
    nearest = squared_distances(points, candidates).argmin(axis=1)
    sizes = np.bincount(nearest, minlength=len(candidates))
    used = sizes > 0
    kmeans_seed = int(generator.integers(2**32))
    centers = weighted_kmeans(
        candidates[used].astype(float),
        sizes[used].astype(float),
        k,
        10,
        kmeans_seed,
    )
    centers = into_ball(centers)

    # One Lloyd step.
    nearest = squared_distances(points, centers).argmin(axis=1)
    for j in range(k):
        steps = shortened(points[nearest == j] - centers[j], plan.lloyd_radius * radius)
        mean = centers[j] + steps.sum(axis=0) / max(len(steps), 1)
        centers[j] = into_ball(mean[None])[0]
    return centers


def test_without_noise_equals_a_plain_version():
    points, _ = mixture()
    rows = points.rows[:3000].astype(np.int64)
    method = KaplanStemmer(16, epsilon=1e15, radius=1.0)
    plan = method.schedule(3000, 10)
    assert plan.rounds == 2
    assert plan.repetitions == 2
    assert plan.threshold < 1.01
    for seed in (0, 1):
        run = method.fit_batch(rows, [seed])
        assert (run.centers[0] == noiseless_version(rows, 16, 1.0, plan, seed)).all()


@pytest.mark.parametrize(("epsilon", "limit"), [(1.0, 1.3), (4.0, 1.05)])
def test_close_to_k_means_on_separated_clusters(epsilon, limit):
    points, _ = mixture()
    run = KaplanStemmer(16, epsilon=epsilon, radius=1.0).fit_batch(points, range(5))
    assert max(inertia(points, run.centers)) < limit * best_cost()


@pytest.mark.parametrize("d", [2, 4, 8, 16, 32, 64, 128])
def test_close_to_k_means_in_any_number_of_features(d):
    """Widths of buckets follow the projections of the domain, which get shorter with d.

    Separated clusters in the unit cube, whose ball has the radius sqrt(d): medians of three seeds
    over the cost of the planted centers.
    """
    rng = np.random.default_rng(d)
    centers = rng.uniform(-0.7, 0.7, (16, d))
    distances = np.linalg.norm(centers[:, None] - centers, axis=2) + 9 * np.eye(16)
    spread = min(0.05, distances.min() / 8)
    rows = centers[np.arange(30_000) % 16] + spread * rng.standard_normal((30_000, d))
    points = Points.prepare(snap(np.clip(rows, -1, 1)))
    run = KaplanStemmer(16, epsilon=3.3).fit_batch(points, range(3))
    planted = inertia(points, snap(centers)[None])[0]
    assert np.median(inertia(points, run.centers)) <= 1.05 * planted


def test_local_search_also_finds_clusters():
    points, _ = mixture(k=4, d=3)
    method = KaplanStemmer(4, epsilon=4.0, radius=1.0, select="local_search")
    run = method.fit_batch(points, range(3))
    assert np.median(inertia(points, run.centers)) < 1.3 * best_cost(k=4, d=3)


def test_candidates_capture_planted_clusters():
    """A candidate within the smallest width of every planted center, in 95 of 100 cases or more."""
    points, planted = mixture()
    method = KaplanStemmer(16, epsilon=1.0, radius=1.0, release="candidates")
    run = method.fit_batch(points, range(8))
    width = min(method.schedule(20_000, 10, only="candidates").widths)
    captured = []
    for centers, n_centers in zip(run.centers, run.n_centers, strict=True):
        candidates = centers[:n_centers] / SCALE
        distances = np.linalg.norm(candidates[:, None] - planted, axis=2)
        captured.append(distances.min(axis=0) < width)
    assert np.mean(captured) >= 0.95
    assert run.n_centers.min() >= 16


def test_second_round_finds_clusters_missed_by_the_first():
    """A small cluster far off is less than 1 / (8 k) of all points, and more of the farthest half
    of them.
    """
    rng = np.random.default_rng(0)
    far_center = [0.8, 0.0, 0.0]
    near = 0.1 * rng.standard_normal((19_700, 3))
    far = far_center + 0.01 * rng.standard_normal((300, 3))
    points = snap(np.concatenate([near, far]))
    n_finding = {}
    for rounds in (1, 2):
        method = KaplanStemmer(8, epsilon=8.0, radius=1.0, rounds=rounds, release="candidates")
        run = method.fit_batch(points, range(5))
        distances = np.linalg.norm(run.centers / SCALE - far_center, axis=2)
        n_finding[rounds] = np.sum(distances.min(axis=1) < 0.1)
    assert n_finding == {1: 0, 2: 5}


# Schedules


@pytest.mark.parametrize(
    ("n", "d", "k", "epsilon", "schedule"),
    [
        (20_000, 16, 16, 1.0, (2, (0.25, 0.125), 2)),
        (20_000, 16, 16, 0.1, (1, (0.125,), 1)),
        (10**6, 16, 64, 1.0, (2, (0.25, 0.125, 0.0625), 2)),
        (10**6, 2, 4, 1.0, (2, (0.25, 0.125), 2)),
        (5000, 2, 15, 0.25, (1, (1 / 6,), 1)),
    ],
)
def test_schedule_follows_the_public_rule(n, d, k, epsilon, schedule):
    plan = KaplanStemmer(k, epsilon=epsilon).schedule(n, d)
    assert (plan.rounds, plan.widths, plan.repetitions) == schedule


def test_schedule_follows_the_parameters():
    method = KaplanStemmer(4, epsilon=1.0, rounds=3, widths=[0.3], repetitions=5)
    plan = method.schedule(10**6, 10)
    assert plan.rounds == 3
    assert plan.widths == (0.3,)
    assert plan.repetitions == 5
    assert (plan.fine_radius, plan.lloyd_radius) == (0.0, 0.6)


def test_released_radius_is_a_twentieth_of_the_steps():
    planned = KaplanStemmer(8, lloyd_steps=3, step_radius="planned").schedule(10_000, 10)
    released = KaplanStemmer(8, lloyd_steps=3, step_radius="released").schedule(10_000, 10)
    steps = 3 * planned.lloyd_mu**2
    assert planned.shells_mu == 0
    assert released.shells_mu**2 == pytest.approx(steps / 20)
    assert 3 * released.lloyd_mu**2 == pytest.approx(steps * 19 / 20)
    assert (released.histogram_mu, released.delta) == (planned.histogram_mu, planned.delta)
    without_steps = KaplanStemmer(8, lloyd_steps=0, step_radius="released").schedule(10_000, 10)
    assert without_steps.shells_mu == without_steps.lloyd_mu == 0
    coreset = KaplanStemmer(8, step_radius="released").schedule(10_000, 10, only="coreset")
    assert coreset.shells_mu == 0


@pytest.mark.parametrize(
    ("n", "d", "chosen"),
    [(6500, 10, "planned"), (7000, 10, "released"), (7000, 4, "released"), (7000, 3, "planned")],
)
def test_radius_is_released_with_200_records_for_each_of_many_features(n, d, chosen):
    k = 8
    records = n * gaussian_mu(1.0, 1e-6) / k
    assert (records >= 200 and d > 3) == (chosen == "released")
    assert KaplanStemmer(k).schedule(n, d) == KaplanStemmer(k, step_radius=chosen).schedule(n, d)


@pytest.mark.parametrize("n", [1000, 10_000, 100_000])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_schedule_spends_the_budget(n, epsilon):
    plan = KaplanStemmer(8, epsilon=epsilon).schedule(n, 10)
    n_hashes = number_of_hashes(plan)
    mu = gaussian_mu(epsilon, 5e-7)
    threshold = 1 + quantile(5e-7 / n_hashes) * math.sqrt(n_hashes / 0.25) / mu
    # Exact noise has a scale of whole grid steps, up to three more.
    rounding = 4 * quantile(5e-7 / n_hashes) / SCALE
    assert threshold <= plan.threshold <= threshold + rounding
    assert plan.threshold <= n / 24 or n_hashes == 1
    candidates = n_hashes * (plan.histogram_mu**2 + plan.average_mu**2)
    total = candidates + plan.selection_mu**2 + plan.lloyd_mu**2 + plan.shells_mu**2
    assert math.sqrt(total) == pytest.approx(mu)
    assert n_hashes * plan.delta == 5e-7


@pytest.mark.parametrize(
    ("only", "steps"),
    [
        ("centers", 0),
        ("centers", 3),
        ("coreset", 1),
        ("candidates", 1),
    ],
)
def test_unused_parts_of_the_budget_are_redistributed(only, steps):
    plan = KaplanStemmer(8, lloyd_steps=steps).schedule(10_000, 10, only=only)
    candidates = number_of_hashes(plan) * (plan.histogram_mu**2 + plan.average_mu**2)
    total = candidates + plan.selection_mu**2 + plan.shells_mu**2 + steps * plan.lloyd_mu**2
    assert math.sqrt(total) == pytest.approx(gaussian_mu(1.0, 5e-7))
    assert (plan.selection_mu == 0) == (only == "candidates")


@pytest.mark.parametrize(
    ("release", "parameters"),
    [
        ("fit_batch", {"release": "candidates"}),
        ("fit_batch", {"widths": [0.5], "repetitions": 1}),
        ("coreset_of", {}),
    ],
)
def test_refusal_names_a_sufficient_budget(release, parameters):
    """Too few records or too little epsilon: the message names n and epsilon that suffice."""

    def spent(n, epsilon):
        points = np.zeros((n, 2), np.int64)
        seeds = [0] if release == "fit_batch" else 0
        method = KaplanStemmer(2, epsilon=epsilon, **parameters)
        return getattr(method, release)(points, seeds).ledger.spent()

    message = (
        r"epsilon=0.5 is too little for one release from n=50 records: "
        r".* about n=(\d+) or epsilon=([\d.]+) would suffice"
    )
    with pytest.raises(ValueError, match=message) as refusal:
        spent(50, 0.5)
    n, epsilon = re.search(message, str(refusal.value)).groups()
    largest = max(0.5, float(epsilon)) * (1 + 1e-9)
    assert spent(int(n), 0.5) <= largest
    assert spent(50, float(epsilon)) <= largest


def test_a_coreset_of_one_record_is_refused():
    method = KaplanStemmer(1, epsilon=1.0, bounds=(-1, 1))
    message = r"n=1 records are too few for one release: n=\d+ would suffice"
    with pytest.raises(ValueError, match=message):
        method.coreset(np.zeros((1, 2)))


@pytest.mark.parametrize("select", ["counts", "local_search"])
@pytest.mark.parametrize(("n", "epsilon"), [(50, 0.5), (50, 1e-3), (2000, 0.01)])
def test_falls_back_to_packed_centers(n, epsilon, select):
    """Where no bucket can pass the threshold."""
    noise = 0.05 * np.random.default_rng(0).standard_normal((n, 3))
    rows = snap(np.clip(0.3 + noise, -1, 1))
    method = KaplanStemmer(4, epsilon=epsilon, radius=1.0, select=select)
    plan = method.schedule(n, 3)
    assert plan.threshold > n
    run = method.fit_batch(rows, range(5))
    assert run.centers.shape == (5, 4, 3)
    assert run.n_centers.tolist() == [4] * 5
    lengths = np.sqrt((run.centers.astype(float) ** 2).sum(axis=2))
    assert lengths.max() <= SCALE
    assert run.ledger.spent() <= epsilon * (1 + 1e-9)
    # Empty histograms are charged all the same: the ledger does not depend on the data.
    n_histograms = sum(charge.label == "bucket_counts" for charge in run.ledger.charges)
    assert n_histograms == number_of_hashes(plan)
    with pytest.raises(ValueError, match="is too little for one release"):
        method.coreset_of(rows, 0)
    with pytest.raises(ValueError, match="is too little for one release"):
        method.set_params(release="candidates").fit_batch(rows, [0])


@pytest.mark.parametrize("epsilon", [1e-3, 1.0])
@pytest.mark.parametrize("select", ["counts", "local_search"])
@pytest.mark.parametrize(
    ("rows", "k"),
    [
        (np.full((50, 3), SCALE), 4),
        (np.full((50, 3), -SCALE), 1),
        (np.zeros((7, 1), int), 7),
        (np.eye(12, dtype=int) * SCALE, 12),
        (np.array([[SCALE, 0]]), 1),
    ],
)
def test_degenerate_data_have_defined_results(rows, k, select, epsilon):
    run = KaplanStemmer(k, epsilon=epsilon, select=select).fit_batch(rows, [0, 1])
    assert run.centers.shape == (2, k, rows.shape[1])
    assert np.abs(run.centers).max() <= SCALE
    assert run.ledger.spent() <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"radius": 0.0},
            "radius=0.0 must be 'auto' or a positive finite number",
        ),
        ({"radius": "wide"}, "radius='wide'"),
        ({"step_radius": "wide"}, "step_radius='wide' is unknown"),
        ({"rounds": 0}, "rounds=0 must be an integer of at least 1"),
        ({"search_rounds": 0}, "search_rounds=0"),
        ({"projections": 2.5}, "projections=2.5"),
        ({"keep": 1.0}, r"keep=1.0 must be a number in \(0, 1\)"),
        (
            {"lloyd_steps": -1},
            "lloyd_steps=-1 must be an integer of at least 0",
        ),
        (
            {"widths": []},
            r"widths=\[\] must be 'auto' or one or more positive finite numbers",
        ),
        ({"widths": [0.5, -1]}, "widths="),
        ({"widths": "fine"}, "widths='fine'"),
        (
            {"repetitions": 0},
            "repetitions=0 must be 'auto' or an integer of at least 1",
        ),
        ({"select": "best"}, "select='best'"),
        ({"release": "all"}, "release='all'"),
        ({"moves": "none"}, "moves='none'"),
        ({"epsilon": 0.0}, "epsilon=0.0"),
        ({"delta": 1.0}, "delta=1.0"),
        ({"n_clusters": 101}, "n_clusters=101"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        KaplanStemmer(**parameters).fit_batch(np.zeros((100, 2), np.int64), [0])


# The coreset


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=8), st.floats(0.1, 100))
@settings(max_examples=100, deadline=None)
def test_consistent_counts_are_the_nearest_with_the_total(counts, total):
    """The conditions of optimality: one shift for all that stay positive, the others below it."""
    counts = np.array(counts)
    adjusted = consistent(counts, total)
    assert (adjusted >= 0).all()
    assert adjusted.sum() == pytest.approx(total)
    positive = adjusted > 0
    shifts = (counts - adjusted)[positive]
    assert np.ptp(shifts) < 1e-9
    assert (counts[~positive] <= shifts.max() + 1e-9).all()


def test_coreset_estimates_costs():
    points, _ = mixture()
    method = KaplanStemmer(16, epsilon=1.0, radius=1.0)
    coreset = method.coreset_of(points, 0)
    assert coreset.weights.sum() == pytest.approx(20_000)
    assert (coreset.weights >= 0).all()
    assert coreset.ledger.spent() == pytest.approx(1.0)
    assert coreset.ledger.charges[-1].label == "nearest_counts"

    # The stated bound, and for the noise 1 / mu records at the squared diameter, by the root of
    # their number.
    rng = np.random.default_rng(0)
    coreset_centers = np.rint(coreset.points * SCALE).astype(int)
    coreset_cost = inertia(points, coreset_centers[None])[0] / SCALE**2
    selection_scale = 1 / method.schedule(20_000, 10, only="coreset").selection_mu
    noise = 5 * math.sqrt(len(coreset.points)) * 4 * selection_scale
    for k in (1, 3, 8):
        centers = snap(rng.uniform(-0.5, 0.5, (k, 10)))
        exact = inertia(points, centers[None])[0] / SCALE**2
        estimate = coreset.cost_estimate(centers / SCALE)
        error = abs(math.sqrt(estimate) - math.sqrt(exact))
        assert error <= math.sqrt(coreset_cost) + noise / math.sqrt(exact)


@pytest.mark.parametrize("ball", ["0.05", "0"])
def test_coreset_keeps_costs_of_many_center_sets(ball):
    """Within a factor of 10, up to (ln n)^2: random sets, sets that Lloyd steps improved, sets that
    miss a ball.
    """
    n = 20_000
    d = 8
    k = 8
    dataset = datasets.load(f"planted-{n}-{d}-{k}-{ball}")
    points = Points.prepare(snap(dataset.points))
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
    coresets = [method.coreset_of(points, seed) for seed in range(4)]
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
    coreset = KaplanStemmer(3, epsilon=1e15).coreset_of(rows, 0)
    assert isinstance(coreset, Coreset)
    positive = coreset.weights > 0.5
    weights = coreset.weights[positive]
    points = coreset.points[positive]
    order = np.argsort(points[:, 1])
    expected_points = np.array([[0.4, -0.6], [-0.5, 0.2], [0.5, 0.5]])
    assert weights[order] == pytest.approx([500, 300, 200], abs=1e-3)
    assert points[order] == pytest.approx(expected_points, abs=1e-4)


def test_exponents_of_huge_costs_are_exact():
    """Two sets whose costs differ in the last digits of integers beyond float64."""
    mechanism = Exponential(1.0)
    streams = NoiseStreams([0])
    change = ScoreRange(2.0, one_sided=True)
    smaller = 1 << 62
    scores = scores_of_costs([smaller + 10, smaller])
    choices = [mechanism.draw([scores], streams, ("key", i), change) for i in range(2000)]
    expected = expit(5.0)
    standard_error = math.sqrt(expected * (1 - expected) / 2000)
    assert abs(np.mean(choices) - expected) < 5 * standard_error
    assert logit(expected) == pytest.approx(5.0)
