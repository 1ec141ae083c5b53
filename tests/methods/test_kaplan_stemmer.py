"""Kaplan and Stemmer's method: hashing, the narrowed set, every private question on neighbors,
accounting, quality.

Statistical tests use fixed seeds; their thresholds are five standard errors of the statistic
(fewer than one false alarm in a million) or a p-value of 1e-6.
"""

import itertools
import math
import re
from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.special import expit, logit, ndtri

from pkm import datasets
from pkm.compute import Points, cluster_means, inertia, labels
from pkm.compute.hashing import (
    DIRECTION_SCALE,
    Hash,
    clip_norms,
    clipped_sums,
    euclidean_hash,
    farthest_points,
    orthonormal,
    swap_costs,
)
from pkm.methods import KMeansPlusPlus
from pkm.audit.conformance import CHECKS, conformance
from pkm.methods.coreset import Coreset, consistent
from pkm.methods.kaplan_stemmer import KaplanStemmer
from pkm.methods.local_search import private_local_search
from pkm.methods.weighted_kmeans import weighted_kmeans
from pkm.privacy import (
    SCALE,
    Adjacency,
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
    NearestSumsAndCounts,
    NoiseStreams,
    Swaps,
    gaussian_mu,
    gdp_delta,
    snap,
)
from pkm.privacy.hashed_points import scores_of_costs
from pkm.privacy.noise import INITIALIZATION, child
from pkm.privacy.selection import ScoreRange, selection_epsilon, selection_mu
from pkm.privacy.stability_histogram import quantile


def grid_points(n, d, seed, kind="spread"):
    rng = np.random.default_rng(seed)
    if kind == "tied":  # few values: many equal distances and equal points
        return rng.integers(-1, 2, (n, d)) * SCALE // 2
    if kind == "extreme":
        return rng.choice([-SCALE, SCALE, 0, 77], (n, d))
    return rng.integers(-SCALE, SCALE + 1, (n, d))


def ample():
    """A ledger with more budget than any test spends."""
    return Ledger(Budget(1e20, 0.999))


def opened(rows, n_points=None, radius=1.0, seed=0, ledger=None):
    """HashedPoints of some rows; the public number of records may be larger, the others contribute
    nothing.
    """
    holder = Curator(rows, ample() if ledger is None else ledger, NoiseStreams([seed]))
    if n_points is not None:
        holder.n_points = n_points
    return holder.hashed_points(radius)


def declared(query, buckets, part):
    """Sensitivity of a part under zero-out adjacency."""
    return query.sensitivity(buckets, Adjacency.ZERO_OUT)[part]


def released(buckets, query, **noise):
    """The parts of an answer, in grid steps and records."""
    answer = buckets.release(query, **noise)
    return [answer[part] / (SCALE if part == "counts" else 1) for part in answer]


def chosen(buckets, query, mu):
    """A choice that costs mu."""
    (choice,) = buckets.release(query, choices=Exponential(selection_epsilon(mu)))["choices"]
    return choice


def kept_rows(buckets):
    return [tuple(row) for shard in buckets._restricted for row in shard.rows.astype(int).tolist()]


# Hashing


def test_directions_are_orthonormal_and_exactly_reproducible():
    for m, d in ((1, 1), (4, 4), (4, 50)):
        directions = orthonormal(np.random.default_rng(d), m, d)
        assert (
            np.abs(directions / DIRECTION_SCALE @ directions.T / DIRECTION_SCALE - np.eye(m)).max()
            < d * 2.0**-15
        )
        assert (directions == orthonormal(np.random.default_rng(d), m, d)).all()
    with pytest.raises(
        ValueError, match="projections=3 must be from 1 to the number of features, 2"
    ):
        orthonormal(np.random.default_rng(0), 3, 2)


@pytest.mark.parametrize(
    ("m", "d", "width"), [(1, 1, 0.5), (2, 2, 0.01), (4, 9, 0.7), (3, 20, 5.0)]
)
def test_codes_are_the_cells_in_exact_arithmetic(m, d, width):
    rows = np.concatenate([grid_points(200, d, 1), grid_points(50, d, 2, "extreme")])
    hashing = euclidean_hash(np.random.default_rng(3), m, d, width)

    def cell(row, direction, shift):
        product = sum(int(a) * int(x) for a, x in zip(direction, row, strict=True))
        return (product + int(shift)) // hashing.width

    lines = list(zip(hashing.directions, hashing.shifts, strict=True))
    cells = [[cell(row, *line) for line in lines] for row in rows]
    codes = hashing.codes(Points.prepare(rows))
    assert codes.min() >= 0 and codes.max() < math.prod(hashing.sizes)
    order = sorted(range(len(rows)), key=lambda i: cells[i])
    for i, j in itertools.pairwise(order):
        assert (codes[i] == codes[j]) == (cells[i] == cells[j]) and codes[i] <= codes[j]
    inside = (hashing.cell_centers(codes) @ hashing.directions.T + hashing.shifts) / hashing.width
    assert np.abs(inside - np.array(cells) - 0.5).max() < 0.01 * max(1, 0.1 / width)


def test_collisions_follow_the_closed_form():
    """One projection of a pair s apart: the mean of max(0, 1 - g / w) over the law of its gap g."""
    d = 6
    width = 0.8
    draws = 4000
    rng = np.random.default_rng(0)
    start = 0.2 * rng.standard_normal(d)
    unit = rng.standard_normal(d)
    unit /= np.linalg.norm(unit)
    gaps = np.array([0.1, 0.4, 0.8])
    points = Points.prepare(snap(np.concatenate([start[None], start + gaps[:, None] * unit])))
    generator = np.random.default_rng(1)
    codes = np.array([euclidean_hash(generator, 1, d, width).codes(points) for _ in range(draws)])
    for gap, rate in zip(gaps, (codes[:, 1:] == codes[:, :1]).mean(axis=0), strict=True):
        # A coordinate u of a uniform unit vector: (u + 1) / 2 is Beta((d - 1) / 2, (d - 1) / 2).
        law = stats.beta((d - 1) / 2, (d - 1) / 2, loc=-1, scale=2)
        expected = integrate.quad(
            lambda u, g=gap, law=law: law.pdf(u) * max(0.0, 1 - abs(u) * g / width), -1, 1
        )[0]
        assert abs(rate - expected) < 5 * math.sqrt(expected * (1 - expected) / draws)
    far = np.array(
        [
            euclidean_hash(generator, 1, 1, 0.3).codes(Points.prepare(snap([[0.1], [0.5]])))
            for _ in range(99)
        ]
    )
    assert (far[:, 0] != far[:, 1]).all()  # further apart than a bucket is wide


def test_ill_posed_hashes_are_refused():
    with pytest.raises(ValueError, match="is too small: take wider cells or fewer projections"):
        euclidean_hash(np.random.default_rng(0), 8, 8, 1e-3)
    with pytest.raises(ValueError, match="shifts between 0"):
        Hash(np.array([[DIRECTION_SCALE]]), np.array([5]), 5)
    with pytest.raises(ValueError, match="entries of at most 65536"):
        Hash(np.array([[DIRECTION_SCALE + 1]]), np.array([0]), 5)


def test_clipped_sums_agree_with_their_definition():
    rows = grid_points(300, 5, 0)
    about = grid_points(4, 5, 1)
    labels = np.random.default_rng(2).integers(-1, 4, 300)
    radius = 60_000.0
    sums = clipped_sums(Points.prepare(rows), labels, about, radius)
    for b in range(4):
        expected = np.zeros(5, np.int64)
        for row in rows[labels == b]:
            step = row - about[b]
            length = np.linalg.norm(step)
            expected += (
                step
                if length <= radius
                else np.trunc(step * (radius / length * (1 - 2.0**-48))).astype(int)
            )
        assert (sums[b] == expected).all()


def test_pulled_points_lie_in_the_ball():
    rows = grid_points(500, 3, 0)
    for radius in (0.3, 1.0, 1.5):
        inside = clip_norms(rows, radius * SCALE)
        assert ((inside**2).sum(axis=1) <= (radius * SCALE) ** 2).all()
        near = (rows**2).sum(axis=1) <= (radius * SCALE) ** 2
        assert (inside[near] == rows[near]).all() and 0 < near.sum() < 500
        wanted = rows[~near] * (radius * SCALE / np.linalg.norm(rows[~near], axis=1, keepdims=True))
        assert np.abs(inside[~near] - wanted).max() <= 1


# The narrowed set


@given(st.integers(0, 10**6), st.integers(1, 14), st.integers(0, 14), st.booleans())
@settings(max_examples=60, deadline=None)
def test_farthest_is_a_function_of_the_multiset(seed, n, many, tied):
    rows = grid_points(n, 2, seed, "tied" if tied else "spread")
    centers = grid_points(2, 2, seed + 1, "tied")
    square = ((rows[:, None] - centers) ** 2).sum(axis=2).min(axis=1)
    ranked = sorted(range(n), key=lambda i: (-square[i], tuple(rows[i])))
    expected = Counter(tuple(rows[i]) for i in ranked[:many])
    shuffled = np.random.default_rng(seed).permutation(rows)
    for shards in ([rows], [shuffled], [shuffled[: n // 2], shuffled[n // 2 :]]):
        parts = [Points.prepare(shard) for shard in shards]
        marks = farthest_points(parts, centers, many)
        found = Counter(tuple(r) for s, mark in zip(shards, marks, strict=True) for r in s[mark])
        assert found == expected


@given(st.integers(0, 10**6), st.integers(2, 12), st.sampled_from([0.3, 0.5, 0.9]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_one_record_changes_the_narrowed_set_by_one_replacement(seed, n, share, tied):
    """Also after it was narrowed again, and for every record of the set."""
    rows = grid_points(n, 2, seed, "tied" if tied else "spread")
    centers = [grid_points(2, 2, seed + i, "tied" if tied else "spread") for i in (1, 2)]
    for record in range(n):
        one = opened(rows, n, 2.0)
        other = opened(np.delete(rows, record, axis=0), n, 2.0)
        for some in centers:
            one.filter_farthest(some, share)
            other.filter_farthest(some, share)
            assert one.n_restricted == other.n_restricted
            these = Counter(kept_rows(one))
            those = Counter(kept_rows(other))
            assert (these - those).total() <= 1 and (those - these).total() <= 1


def test_narrowing_keeps_the_farthest_half():
    rows = np.array([[i * 1000] for i in range(10)])
    buckets = opened(rows, radius=2.0)
    buckets.filter_farthest(np.array([[0]]), 0.5)
    assert (
        sorted(kept_rows(buckets)) == [(i * 1000,) for i in range(5, 10)]
        and buckets.n_restricted == 5
    )
    with pytest.raises(
        ValueError, match=r"fraction=1.0 of the records to keep must be in \(0, 1\)"
    ):
        buckets.filter_farthest(np.array([[0]]), 1.0)


# What a record changes


def neighbors(trial, narrowed):
    """Two neighbors behind their doors, with a hash, references and a radius."""
    rng = np.random.default_rng(trial)
    n = int(rng.integers(5, 40))
    d = int(rng.integers(1, 5))
    rows = grid_points(n, d, trial, ["spread", "tied", "extreme"][trial % 3])
    radius = float(rng.uniform(0.3, 1.2) * math.sqrt(d))
    pair = [opened(each, n, radius) for each in (rows, np.delete(rows, rng.integers(n), axis=0))]
    if narrowed:
        centers = pair[0].into_ball(grid_points(2, d, trial + 1))
        for each in pair:
            each.filter_farthest(centers, 0.5)
    hashing = euclidean_hash(rng, min(3, d), d, float(rng.uniform(0.2, 2.0)))
    return *pair, hashing, rng


@pytest.mark.parametrize("narrowed", [False, True])
def test_sensitivities_of_histograms_and_sums(narrowed):
    largest = {"counts": 0.0, "cells": 0, "sums": 0.0}
    for trial in range(300):
        one, other, hashing, rng = neighbors(trial, narrowed)
        counts = [Counter(np.concatenate(each._codes(hashing)).tolist()) for each in (one, other)]
        codes = np.array(sorted(counts[0].keys() | counts[1].keys()), np.int64)
        change = np.array([counts[0][code] - counts[1][code] for code in codes.tolist()])
        count = declared(BucketCounts(hashing), one, "counts")
        assert (
            np.abs(change).sum() * SCALE <= count.l1 and np.abs(change).max() * SCALE <= count.linf
        )
        assert np.count_nonzero(change) <= count.l0
        largest["counts"] = max(largest["counts"], np.linalg.norm(change) * SCALE / count.l2)
        largest["cells"] = max(
            largest["cells"], sum(0 in (counts[0][c], counts[1][c]) for c in codes.tolist())
        )
        reach = float(rng.uniform(0.1, 2.0))
        about = one.into_ball(grid_points(len(codes), one.n_features, trial + 2))
        query = BucketSums(hashing, codes, about, reach)
        change = np.subtract(*(query.exact(each)["sums"] for each in (one, other)))
        sensitivity = declared(query, one, "sums")
        assert sensitivity.l2 == (2 if narrowed else 1) * reach * SCALE
        assert np.abs(change).sum() <= sensitivity.l1
        largest["sums"] = max(largest["sums"], np.linalg.norm(change) / sensitivity.l2)
    assert (
        largest["counts"] <= 1 + 1e-12
        and largest["cells"] <= (2 if narrowed else 1)
        and largest["sums"] <= 1
    )
    assert largest["counts"] > 0.99 and largest["sums"] > 0.7  # the pairs come near to the bounds


def test_sensitivities_of_questions_to_all_points():
    """Also after the set was narrowed: these are asked of all points."""
    largest = {"counts": 0.0, "sums": 0.0, "costs": 0.0}
    for trial in range(200):
        one, other, _, rng = neighbors(trial, narrowed=trial % 2 == 1)
        k = int(rng.integers(1, 5))
        d = one.n_features
        centers = one.into_ball(grid_points(k + 3, d, trial + 3))
        reach = float(rng.uniform(0.1, 2.0))
        query = NearestSumsAndCounts(centers, reach)
        for asked in (query, NearestCounts(centers)):
            answers = [asked.exact(each) for each in (one, other)]
            for part in asked.mechanisms:
                change = answers[0][part] - answers[1][part]
                sensitivity = declared(asked, one, part)
                assert np.abs(change).sum() <= sensitivity.l1
                largest[part] = max(largest[part], np.linalg.norm(change) / sensitivity.l2)
        assert declared(query, one, "sums").l2 == reach * SCALE
        current = rng.permutation(k + 3)[:k]
        slots = np.arange(k)
        costs = [swap_costs(each._all[0], centers, current, slots) for each in (one, other)]
        change = (costs[0] - costs[1]).astype(float)
        assert (change >= 0).all()  # a record only adds to costs
        for asked in (Swaps(centers, current, slots), CandidateSets(centers, current[None])):
            bound = declared(asked, one, "choices")
            assert bound.one_sided and bound.change == one.cost_range(centers) * SCALE**2
        largest["costs"] = max(largest["costs"], change.max() / bound.change)
        sets = [inertia(each._all[0], centers[current][None])[0] for each in (one, other)]
        assert 0 <= sets[0] - sets[1] <= one.cost_range(centers) * SCALE**2
    assert max(largest.values()) <= 1 and min(largest.values()) > 0.9


@pytest.mark.parametrize("narrowed", [False, True])
def test_sensitivities_where_a_record_is_replaced(narrowed):
    """What the report's claims recompute for the paper's neighbors: n stays, one record becomes
    another one.
    """
    largest = dict.fromkeys(
        ("buckets", "one side's buckets", "sums", "nearest", "both", "costs"), 0.0
    )
    for trial in range(400):
        rng = np.random.default_rng(trial)
        n = int(rng.integers(5, 40))
        d = int(rng.integers(1, 5))
        rows = grid_points(n, d, trial, ["spread", "tied", "extreme"][trial % 3])
        radius = float(rng.uniform(0.3, 1.2) * math.sqrt(d))
        rows[0] = rng.choice([-SCALE, SCALE], d)
        changed = rows.copy()
        changed[0] = -rows[0] if trial % 2 else grid_points(1, d, trial + 5)[0]
        one = opened(rows, n, radius)
        other = opened(changed, n, radius)
        if narrowed:
            centers = one.into_ball(grid_points(2, d, trial + 1))
            for each in (one, other):
                each.filter_farthest(centers, 0.5)
        hashing = euclidean_hash(rng, min(3, d), d, float(rng.uniform(0.2, 8.0)))
        counts = [Counter(np.concatenate(each._codes(hashing)).tolist()) for each in (one, other)]
        codes = np.array(sorted(counts[0].keys() | counts[1].keys()), np.int64)
        reach = float(rng.uniform(0.1, 2.0))
        about = one.into_ball(grid_points(len(codes), d, trial + 2))
        query = BucketSums(hashing, codes, about, reach)
        sums = [query.exact(each)["sums"] for each in (one, other)]
        k = int(rng.integers(1, 4))
        centers = one.into_ball(grid_points(k + 3, d, trial + 3))
        nearest = [NearestSumsAndCounts(centers, reach).exact(each) for each in (one, other)]
        moved = np.linalg.norm(nearest[0]["sums"] - nearest[1]["sums"])
        sizes = np.linalg.norm(nearest[0]["counts"] - nearest[1]["counts"]) / SCALE
        sum_scale, count_scale = rng.uniform(0.1, 10, 2)
        allowed = max(
            4 * (reach / sum_scale) ** 2, 2 * (reach / sum_scale) ** 2 + 2 / count_scale**2
        )
        current = rng.permutation(k + 3)[:k]
        costs = [swap_costs(each._all[0], centers, current, np.arange(k)) for each in (one, other)]
        ranging = float(np.ptp((costs[0] - costs[1]).astype(float)))
        change = np.array([counts[0][code] - counts[1][code] for code in codes.tolist()])
        only = [len(counts[i].keys() - counts[1 - i].keys()) for i in (0, 1)]
        found = {
            "buckets": np.linalg.norm(change) / math.sqrt(2),
            "one side's buckets": max(only),
            "sums": np.linalg.norm(sums[0] - sums[1]) / (2 * reach * SCALE),
            "nearest": sizes / math.sqrt(2),
            "both": ((moved / SCALE / sum_scale) ** 2 + (sizes / count_scale) ** 2) / allowed,
            "costs": ranging / (2 * one.cost_range(centers) * SCALE**2),
        }
        largest = {name: max(largest[name], value) for name, value in found.items()}
    assert max(largest.values()) <= 1 + 1e-12
    assert min(largest.values()) > 0.6, largest  # the pairs come near to the bounds


def test_cost_range_is_that_of_the_ball_and_of_the_box():
    ball = opened(np.zeros((1, 4), int), radius=0.5)
    box = opened(np.zeros((1, 4), int), radius=9.0)
    edge = np.array([[SCALE // 2, 0, 0, 0]])
    corner = np.full((1, 4), SCALE)
    assert ball.radius == 0.5 and ball.cost_range(edge) == 1.0  # the diameter of the ball, squared
    assert (
        box.radius == 2.0 and box.cost_range(corner) == 16.0 and box.cost_range(0 * corner) == 4.0
    )


# Noise and thresholds


@pytest.mark.statistical
@pytest.mark.parametrize("narrowed", [False, True])
def test_singletons_pass_the_threshold_as_rarely_as_charged(narrowed):
    n = 3000
    delta = 0.01
    rows = (np.arange(2 * n) - n)[:, None] * 20
    passed = 0
    for seed in range(10):
        buckets = opened(rows, radius=2.0, seed=seed)
        if narrowed:
            buckets.filter_farthest(np.array([[0]]), 0.5)
        hashing = Hash(
            np.array([[DIRECTION_SCALE]]), np.array([0]), 15 * DIRECTION_SCALE
        )  # no two points share a cell
        noise = buckets.histogram_noise(0.5, delta)
        large = buckets.release(BucketCounts(hashing), counts=noise)["counts"]
        passed += len(large.cells)
        assert (large.counts / SCALE >= noise.threshold).all()
    # Two cells that only one neighbor has fail together with probability delta.
    rate, asked = (1 - math.sqrt(1 - delta), 10 * n) if narrowed else (delta, 20 * n)
    assert abs(passed - rate * asked) < 5 * math.sqrt(rate * asked)


@pytest.mark.statistical
@pytest.mark.parametrize("narrowed", [False, True])
def test_noise_has_the_declared_scale(narrowed):
    rows = np.concatenate([grid_points(400, 3, 0), np.zeros((400, 3), int)])
    hashing = Hash(
        np.array([[DIRECTION_SCALE, 0, 0]]),
        np.array([20 * DIRECTION_SCALE * SCALE]),
        40 * DIRECTION_SCALE * SCALE,
    )
    reach = 0.7
    mu = 0.05
    places = snap([[0.1, 0.2, 0.3], [-0.5, 0.0, 0.4]])
    noise = {name: [] for name in ("counts", "sums", "nearest", "nearest_sums", "nearest_sizes")}
    for seed in range(300):
        ledger = ample()
        buckets = opened(rows, radius=2.0, seed=seed, ledger=ledger)
        if narrowed:
            buckets.filter_farthest(places, 0.5)
        answer = buckets.release(BucketCounts(hashing), counts=buckets.histogram_noise(mu, 0.4))
        codes, counts = answer["counts"]
        noise["counts"].append(counts / SCALE - buckets.n_restricted)  # one bucket holds all
        query = BucketSums(hashing, codes, places[:1], reach)
        answer = buckets.release(query, sums=Gaussian(buckets.sum_sensitivity(reach) / mu))
        noise["sums"].append((answer["sums"] - query.exact(buckets)["sums"]).ravel() / SCALE)
        query = NearestCounts(places)
        answer = buckets.release(query, counts=Gaussian(SCALE / mu))
        noise["nearest"].append((answer["counts"] - query.exact(buckets)["counts"]).ravel() / SCALE)
        query = NearestSumsAndCounts(places, reach)
        exact = query.exact(buckets)
        scales = {"sums": Gaussian(reach * SCALE / mu), "counts": Gaussian(SCALE / (2 * mu))}
        answer = buckets.release(query, **scales)
        noise["nearest_sums"].append((answer["sums"] - exact["sums"]).ravel() / SCALE)
        noise["nearest_sizes"].append((answer["counts"] - exact["counts"]).ravel() / SCALE)
        costs = [charge.mu for charge in ledger.charges]
        assert costs == pytest.approx([mu, mu, mu, math.hypot(mu, 2 * mu)], rel=1e-14)
        assert [charge.delta for charge in ledger.charges] == [0.4, 0, 0, 0]
    factors = (math.sqrt(2), 2.0) if narrowed else (1.0, 1.0)
    deviations = dict(zip(noise, (factors[0], factors[1] * reach, 1, reach, 0.5), strict=True))
    for name, values in noise.items():
        law = stats.norm(0, deviations[name] / mu)
        assert stats.kstest(np.concatenate(values), law.cdf).pvalue > 1e-6, name


# Choices


def test_cost_of_a_choice_covers_the_worst_pair():
    """No event of a bounded-range pair is likelier than Gaussians mu apart allow; the bound is
    attained at one half.
    """
    for epsilon in (1e-3, 0.1, 1.0, 4.0, 20.0):
        mu = selection_mu(epsilon)
        assert selection_epsilon(mu) == pytest.approx(epsilon, rel=1e-9)
        a = np.linspace(-12 - epsilon, 12, 4001)
        assert (-ndtri(expit(-a - epsilon)) - ndtri(expit(a)) <= mu * (1 + 1e-9)).all()
        assert -2 * ndtri(expit(-epsilon / 2)) == pytest.approx(mu)
    assert selection_mu(1e-6) == pytest.approx(math.sqrt(2 * math.pi) / 4 * 1e-6, rel=1e-6)
    assert math.isfinite(selection_epsilon(1e6))


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_exponential_mechanism_on_costs_is_as_private_as_charged(epsilon):
    rng = np.random.default_rng(0)
    closest = 0.0
    for trial in range(200):
        costs = rng.uniform(0, 5, 6)
        more = costs + (rng.integers(0, 2, 6) if trial % 2 else rng.uniform(0, 1, 6))
        p, q = (np.exp(-epsilon * each) / np.exp(-epsilon * each).sum() for each in (costs, more))
        for here in np.linspace(0, epsilon, 7):
            allowed = gdp_delta(selection_mu(epsilon), here)
            for one, other in ((p, q), (q, p)):
                needed = np.maximum(one - math.exp(here) * other, 0).sum()
                assert needed <= allowed * (1 + 1e-9) + 1e-15
                closest = max(closest, needed / allowed) if here == 0 else closest
    assert closest > 0.6


def swaps_by_definition(rows, candidates, current, slots):
    costs = np.empty((len(slots), len(candidates)), object)
    for (s, slot), j in itertools.product(enumerate(slots), range(len(candidates))):
        chosen = candidates[[*np.delete(current, slot), j]]
        costs[s, j] = int(((rows[:, None] - chosen) ** 2).sum(axis=2).min(axis=1).sum())
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
        found = swap_costs(Points.prepare(rows), candidates, current, slots)
        assert (found == swaps_by_definition(rows, candidates, current, slots)).all()


@pytest.mark.statistical
def test_choices_follow_the_exponential_mechanism():
    rows = grid_points(30, 2, 0)
    candidates = grid_points(4, 2, 1)
    current = np.array([0, 2])
    draws = 4000
    mu = 0.5
    swaps = []
    sets = []
    for seed in range(draws):
        buckets = opened(rows, radius=2.0, seed=seed)
        query = Swaps(candidates, current, [0, 1])
        slot, candidate = query.swap(chosen(buckets, query, mu))
        swaps.append(4 * slot + candidate)
        query = CandidateSets(candidates, np.array([[0, 1], [2, 3], [0, 2]]))
        sets.append(chosen(buckets, query, mu))
    rate = selection_epsilon(mu) / (buckets.cost_range(candidates) * SCALE**2)
    swap_law = swaps_by_definition(rows, candidates, current, [0, 1]).ravel().astype(float)
    set_law = np.array(
        [
            ((rows[:, None] - candidates[list(s)]) ** 2).sum(axis=2).min(axis=1).sum()
            for s in ([0, 1], [2, 3], [0, 2])
        ]
    )
    for drawn, costs in ((swaps, swap_law), (sets, set_law)):
        weights = np.exp(-rate * (costs - costs.min()))
        expected = draws * weights / weights.sum()
        keep = expected > 5
        seen = np.bincount(drawn, minlength=len(costs))[keep]
        assert keep.sum() >= 3 and abs(seen.sum() - expected[keep].sum()) < 5 * math.sqrt(draws)
        assert (
            stats.chisquare(seen, expected[keep] * seen.sum() / expected[keep].sum()).pvalue > 1e-6
        )


@pytest.mark.parametrize("moves", ["all", "round_robin"])
def test_local_search_without_noise_ends_where_no_swap_helps(moves):
    rows = grid_points(500, 2, 5)
    candidates = grid_points(12, 2, 6)
    ledger = ample()
    found = private_local_search(
        opened(rows, radius=2.0, ledger=ledger), candidates, 3, n_swaps=15, mu=1e9,
        generator=np.random.default_rng(0), moves=moves,
    )  # fmt: skip
    costs = [charge.mu for charge in ledger.charges]
    assert len(costs) == 16 and math.hypot(*costs) == pytest.approx(1e9)
    current = np.array([np.flatnonzero((candidates == center).all(axis=1))[0] for center in found])
    costs = swaps_by_definition(rows, candidates, current, range(3))
    assert inertia(Points.prepare(rows), found[None])[0] == costs.min()


# The door


def curator(points, epsilon=1.0, delta=1e-6, seeds=(0,)):
    return Curator(points, Ledger(Budget(epsilon, delta)), NoiseStreams(seeds))


def test_nothing_is_drawn_beyond_the_budget(monkeypatch):
    points = np.zeros((10, 3), np.int64)
    place = np.zeros((1, 3), np.int64)
    hashing = euclidean_hash(np.random.default_rng(0), 1, 3, 1.0)
    for ask in (
        lambda asked: asked.release(BucketCounts(hashing), counts=asked.histogram_noise(2.0, 1e-7)),
        lambda asked: asked.release(
            BucketCounts(hashing), counts=asked.histogram_noise(0.01, 1e-5)
        ),
        lambda asked: asked.release(
            BucketSums(hashing, np.array([0]), place, 1.0), sums=Gaussian(SCALE / 2)
        ),
        lambda asked: asked.release(NearestCounts(place), counts=Gaussian(SCALE / 2)),
        lambda asked: asked.release(
            NearestSumsAndCounts(place, 1.0), sums=Gaussian(SCALE / 2), counts=Gaussian(SCALE / 2)
        ),
        lambda asked: chosen(asked, Swaps(place, np.array([0]), [0]), 2.0),
        lambda asked: chosen(asked, CandidateSets(place, np.array([[0]])), 2.0),
    ):
        asked = curator(points).hashed_points(1.0)
        for law in ("uniform", "normal"):
            monkeypatch.setattr(NoiseStreams, law, lambda *_: pytest.fail("noise was drawn"))
        with pytest.raises(BudgetExceeded):
            ask(asked)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (NearestCounts(np.zeros((1, 2), int)), r"grid integers of shape \(m, 3\)"),
        (NearestCounts(np.zeros((1, 3))), r"grid integers of shape \(m, 3\), got float64"),
        (NearestCounts(np.full((1, 3), SCALE + 1)), r"positions must lie in the domain"),
        (NearestSumsAndCounts(np.zeros((1, 3), int), 0.0), r"radius=0.0"),
        (
            BucketSums(
                euclidean_hash(np.random.default_rng(0), 1, 3, 1.0),
                np.array([3, 3]),
                np.zeros((2, 3), int),
                1.0,
            ),
            r"codes must be 2 increasing numbers",
        ),
        (
            BucketCounts(euclidean_hash(np.random.default_rng(0), 1, 2, 1.0)),
            r"hashing of 2 features does not fit points of 3",
        ),
        (Swaps(np.zeros((2, 3), int), np.array([2]), [0]), r"current must be .* from 0 to 1"),
        (Swaps(np.zeros((2, 3), int), np.array([1]), [1]), r"slots must be .* from 0 to 0"),
        (CandidateSets(np.zeros((2, 3), int), np.array([[-1]])), r"sets must be .* from 0 to 1"),
    ],
)
def test_ill_posed_questions_are_refused(query, message):
    ledger = ample()
    noise = {part: kinds[0](1.0) for part, kinds in query.mechanisms.items() if part != "counts"}
    asked = opened(np.zeros((10, 3), np.int64), ledger=ledger)
    if "counts" in query.mechanisms:
        bucketed = isinstance(query, BucketCounts)
        noise["counts"] = asked.histogram_noise(0.1, 1e-7) if bucketed else Gaussian(SCALE)
    with pytest.raises(ValueError, match=message):
        asked.release(query, **noise)
    assert not ledger.charges


def test_the_door_serves_one_replicate_and_needs_a_radius():
    points = np.zeros((10, 3), np.int64)
    with pytest.raises(ValueError, match="HashedPoints serves one replicate at a time, not 2"):
        curator(points, seeds=(0, 1)).hashed_points(1.0)
    with pytest.raises(ValueError, match=r"radius=-1\.0 of the public ball must be positive"):
        curator(points).hashed_points(-1.0)


def test_answers_depend_neither_on_order_nor_on_shards():
    rows = np.concatenate([grid_points(300, 3, 0, "tied"), grid_points(200, 3, 1)])
    shuffled = np.random.default_rng(0).permutation(rows)
    hashing = euclidean_hash(np.random.default_rng(1), 2, 3, 0.8)
    places = snap([[0.1, 0.2, 0.3], [-0.5, 0.0, 0.4], [0.5, 0.5, 0.5]])

    def answers(shards):
        buckets = opened(shards, radius=1.2)
        for _ in range(3):
            noise = buckets.histogram_noise(0.5, 0.3)
            codes, counts = buckets.release(BucketCounts(hashing), counts=noise)["counts"]
            yield from (codes, counts)
            noise = Gaussian(10 * SCALE)
            about = buckets.into_ball(hashing.cell_centers(codes))
            yield from released(buckets, BucketSums(hashing, codes, about, 0.5), sums=noise)
            yield from released(buckets, NearestCounts(places), counts=noise)
            query = NearestSumsAndCounts(places, 0.5)
            yield from released(buckets, query, sums=noise, counts=noise)
            yield np.array([chosen(buckets, Swaps(places, np.array([0, 1]), [0, 1]), 0.1)])
            yield np.array([chosen(buckets, CandidateSets(places, np.array([[0], [2]])), 0.1)])
            buckets.filter_farthest(places, 0.7)

    for one, *others in zip(
        *(answers(s) for s in (rows, shuffled, [rows[:7], rows[7:400], rows[400:]])), strict=True
    ):
        assert len(one) and all((one == other).all() for other in others)


# The method


@cache
def mixture(n=20_000, d=10, k=16, seed=0, sd=0.05):
    """Separated Gaussian clusters in the unit ball, sizes in proportion to the roots of 1 .. k;
    points and centers.
    """
    rng = np.random.default_rng(seed)
    centers = []
    apart = 1.0
    while len(centers) < k:
        direction = rng.standard_normal(d)
        center = direction / np.linalg.norm(direction) * rng.random() ** (1 / d) * 0.8
        if all(np.linalg.norm(center - other) > apart for other in centers):
            centers.append(center)
        else:
            apart *= 0.999
    shares = np.sqrt(np.arange(1, k + 1))
    points = np.array(centers)[
        rng.choice(k, n, p=shares / shares.sum())
    ] + sd * rng.standard_normal((n, d))
    points = points / np.maximum(1, np.linalg.norm(points, axis=1, keepdims=True))
    return Points.prepare(snap(np.clip(points, -1, 1))), np.array(centers)


@cache
def best_cost(k=16, **kwargs):
    points = mixture(k=k, **kwargs)[0]
    return inertia(points, KMeansPlusPlus(k, n_init=5).fit_batch(points, [0]).centers)[0]


def test_kaplan_stemmer_conforms():
    results = conformance(KaplanStemmer)
    assert len(results) == len(CHECKS)
    assert [result for result in results if result.error] == []


@pytest.mark.parametrize(
    "parameters", [{"select": "local_search"}, {"release": "candidates"}, {"rounds": 3}]
)
def test_other_choices_conform_where_it_matters(parameters):
    points = mixture()[0]
    rows = points.rows[:4000].astype(np.int64)
    method = KaplanStemmer(3, epsilon=4.0, radius=1.0, **parameters)
    run = method.fit_batch(rows, [1, 2])
    assert run.ledger.spent() <= 4.0 * (1 + 1e-9)
    again = method.fit_batch(
        [np.random.default_rng(0).permutation(rows)[:1500], np.empty((0, 10), np.int64)], [1, 2]
    )
    assert again.centers.shape[2] == 10
    shuffled = np.random.default_rng(0).permutation(rows)
    other = method.fit_batch([shuffled[:1500], shuffled[1500:]], [1, 2])
    assert (run.centers == other.centers).all() and (run.n_centers == other.n_centers).all()
    lengths = np.sqrt((run.centers.astype(float) ** 2).sum(axis=2))
    assert lengths.max() <= SCALE  # in the ball


@pytest.mark.parametrize("select", ["counts", "local_search"])
@pytest.mark.parametrize("release", ["centers", "candidates"])
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_accounting_from_the_charges(epsilon, select, release):
    """Recomputed from scales and sensitivities alone."""
    points = mixture()[0]
    method = KaplanStemmer(16, epsilon=epsilon, radius=1.0, select=select, release=release)
    plan = method.plan(20_000, 10, only=release)
    ledger = method.fit_batch(points, [0]).ledger
    labels = [charge.label for charge in ledger.charges]
    hashes = plan.rounds * len(plan.widths) * plan.repetitions
    last = []
    if release == "centers":
        choice = ["nearest_counts"] if select == "counts" else ["swaps"] * 20 + ["sets"]
        last = [*choice, "nearest_sums_and_counts"]
    assert labels == ["bucket_counts", "bucket_sums", "bucket_sums"] * hashes + last
    squares = 0.0
    delta = 0.0
    for number, charge in enumerate(ledger.charges):
        details = charge.details
        narrowed = plan.rounds > 1 and hashes * 3 // 2 <= number < hashes * 3
        if charge.label == "bucket_counts":
            assert details["count_sensitivity"] == pytest.approx(math.sqrt(2) if narrowed else 1)
            delta += charge.delta
        if charge.label == "bucket_sums":
            assert details["sum_sensitivity"] == pytest.approx(
                (2 if narrowed else 1) * details["radius"]
            )
        for kind in ("count", "sum"):
            if f"{kind}_scale" in details:
                squares += (details[f"{kind}_sensitivity"] / details[f"{kind}_scale"]) ** 2
        if "choice_range" in details:
            squares += (2 * ndtri(expit(details["choice_range"] / 2))) ** 2
    assert delta == pytest.approx(5e-7) and sum(charge.delta for charge in ledger.charges) == delta
    assert gdp_delta(math.sqrt(squares), epsilon) + delta <= 1e-6 * (1 + 1e-6)
    assert math.sqrt(squares) == pytest.approx(gaussian_mu(epsilon, 5e-7))
    assert ledger.spent() == pytest.approx(epsilon)


def skeleton(points, k, radius, plan, seed):
    """The method without any noise, in plain numpy."""
    generator = np.random.default_rng(child(seed, INITIALIZATION))
    d = points.shape[1]
    kept = points
    found = np.empty((0, d), np.int64)
    into = lambda places: np.clip(clip_norms(places, radius * SCALE), -SCALE, SCALE)  # noqa: E731

    def shortened(steps, reach):
        length = np.linalg.norm(steps, axis=1, keepdims=True)
        factor = np.where(
            length <= reach * SCALE, 1.0, reach * SCALE / np.maximum(length, 1) * (1 - 2.0**-48)
        )
        return np.trunc(steps * factor).astype(np.int64)

    for number in range(plan.rounds):
        if number:
            square = ((kept[:, None] - found) ** 2).sum(axis=2).min(axis=1)
            order = np.lexsort((*kept.T[::-1], -square))
            kept = kept[order[: len(kept) // 2]]
        for width in plan.widths:
            for _ in range(plan.repetitions):
                hashing = euclidean_hash(generator, 4, d, width * radius)
                cells = (kept @ hashing.directions.T + hashing.shifts) // hashing.width
                _, which, sizes = np.unique(cells, axis=0, return_inverse=True, return_counts=True)
                codes = hashing.codes(Points.prepare(kept))
                for b in np.flatnonzero(sizes >= max(plan.threshold, len(kept) / (8 * k))):
                    members = kept[which.ravel() == b]
                    center = into(hashing.cell_centers(codes[which.ravel() == b][:1]))
                    for reach in (0.5 * radius, min(width, 0.5) * radius):
                        center = into(
                            center + shortened(members - center, reach).sum(axis=0) / len(members)
                        )
                    found = np.concatenate([found, center])
        found = np.unique(found, axis=0)
    sizes = np.bincount(
        ((points[:, None] - found) ** 2).sum(axis=2).argmin(axis=1), minlength=len(found)
    )
    some = sizes > 0
    centers = weighted_kmeans(
        found[some].astype(float), sizes[some].astype(float), k, 10, int(generator.integers(2**32))
    )
    centers = into(centers)
    nearest = ((points[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
    for j in range(k):
        steps = shortened(points[nearest == j] - centers[j], 2 * min(plan.widths) * radius)
        centers[j] = into((centers[j] + steps.sum(axis=0) / max(len(steps), 1))[None])[0]
    return centers


def test_without_noise_it_is_its_skeleton():
    rows = mixture()[0].rows[:3000].astype(np.int64)
    method = KaplanStemmer(16, epsilon=1e15, radius=1.0)
    plan = method.plan(3000, 10)
    assert plan.rounds == 2 and plan.repetitions == 2 and plan.threshold < 1.01
    for seed in (0, 1):
        assert (
            method.fit_batch(rows, [seed]).centers[0] == skeleton(rows, 16, 1.0, plan, seed)
        ).all()


@pytest.mark.parametrize(("epsilon", "limit"), [(1.0, 1.3), (4.0, 1.05)])
def test_close_to_k_means_on_separated_clusters(epsilon, limit):
    points = mixture()[0]
    costs = inertia(
        points, KaplanStemmer(16, epsilon=epsilon, radius=1.0).fit_batch(points, range(5)).centers
    )
    assert max(costs) < limit * best_cost()


def test_local_search_also_finds_clusters():
    points = mixture(k=4, d=3)[0]
    method = KaplanStemmer(4, epsilon=4.0, radius=1.0, select="local_search")
    costs = inertia(points, method.fit_batch(points, range(3)).centers)
    assert np.median(costs) < 1.3 * best_cost(k=4, d=3)


def test_candidates_capture_planted_clusters():
    """A candidate within the smallest width of every planted center, in 95 of 100 cases or more."""
    points, planted = mixture()
    method = KaplanStemmer(16, epsilon=1.0, radius=1.0, release="candidates")
    run = method.fit_batch(points, range(8))
    width = min(method.plan(20_000, 10, only="candidates").widths)
    near = [
        np.linalg.norm(run.centers[r, : run.n_centers[r], None] / SCALE - planted, axis=2).min(
            axis=0
        )
        < width
        for r in range(8)
    ]
    assert np.mean(near) >= 0.95 and run.n_centers.min() >= 16


def test_a_second_look_finds_what_the_first_missed():
    """A small cluster far off is less than 1 / (8 k) of all points, and more of the farthest half
    of them.
    """
    rng = np.random.default_rng(0)
    near = 0.1 * rng.standard_normal((19_700, 3))
    far = [0.8, 0.0, 0.0] + 0.01 * rng.standard_normal((300, 3))
    points = snap(np.concatenate([near, far]))
    found = {}
    for rounds in (1, 2):
        method = KaplanStemmer(8, epsilon=8.0, radius=1.0, rounds=rounds, release="candidates")
        run = method.fit_batch(points, range(5))
        gaps = np.linalg.norm(run.centers / SCALE - [0.8, 0.0, 0.0], axis=2).min(axis=1)
        found[rounds] = np.sum(gaps < 0.1)
    assert found == {1: 0, 2: 5}


# Schedules


def test_schedule_follows_the_public_rule():
    def of(n, d, k, epsilon, **parameters):
        plan = KaplanStemmer(k, epsilon=epsilon, **parameters).plan(n, d)
        return plan.rounds, plan.widths, plan.repetitions

    assert of(20_000, 10, 16, 1.0) == (2, (0.5, 0.25), 2)
    assert of(20_000, 10, 16, 0.1) == (1, (0.25,), 1)
    assert of(10**6, 10, 64, 1.0) == (2, (0.5, 0.25, 0.125), 2)
    assert of(10**6, 2, 4, 1.0) == (2, (0.25, 0.125), 2)
    assert of(5000, 2, 15, 0.25) == (1, (1 / 6,), 1)
    assert of(10**6, 10, 4, 1.0, rounds=3, widths=[0.3], repetitions=5) == (3, (0.3,), 5)
    for n, epsilon in itertools.product((1000, 10_000, 100_000), (0.1, 1.0)):
        method = KaplanStemmer(8, epsilon=epsilon)
        plan = method.plan(n, 10)
        hashes = plan.rounds * len(plan.widths) * plan.repetitions
        least = 1 + quantile(5e-7 / hashes) * math.sqrt(hashes / 0.25) / gaussian_mu(epsilon, 5e-7)
        assert plan.threshold == pytest.approx(least)
        assert plan.threshold <= n / 24 or hashes == 1
        candidates = hashes * (plan.histogram_mu**2 + plan.average_mu**2)
        total = candidates + plan.selection_mu**2 + plan.lloyd_mu**2
        assert (
            math.sqrt(total) == pytest.approx(gaussian_mu(epsilon, 5e-7))
            and hashes * plan.delta == 5e-7
        )


def test_unused_parts_of_the_budget_are_dealt_out():
    mu = gaussian_mu(1.0, 5e-7)
    for only, steps in (("centers", 0), ("centers", 3), ("coreset", 1), ("candidates", 1)):
        plan = KaplanStemmer(8, lloyd_steps=steps).plan(10_000, 10, only=only)
        hashes = plan.rounds * len(plan.widths) * plan.repetitions
        squares = (
            hashes * (plan.histogram_mu**2 + plan.average_mu**2)
            + plan.selection_mu**2
            + steps * plan.lloyd_mu**2
        )
        assert math.sqrt(squares) == pytest.approx(mu)
        assert (plan.selection_mu == 0) == (only == "candidates")


@pytest.mark.parametrize(
    ("release", "parameters"),
    [
        ("fit_batch", {"release": "candidates"}),
        ("fit_batch", {"widths": [0.5], "repetitions": 1}),
        ("coreset_of", {}),
    ],
)
def test_too_little_budget_says_what_would_do(release, parameters):
    def run(n, epsilon):
        method = KaplanStemmer(2, epsilon=epsilon, **parameters)
        return getattr(method, release)(
            np.zeros((n, 2), np.int64), [0] if release == "fit_batch" else 0
        )

    told = (
        r"epsilon=0.5 is too little for one release from n=50 records: "
        r".* about n=(\d+) or epsilon=([\d.]+) would suffice"
    )
    with pytest.raises(ValueError, match=told) as refusal:
        run(50, 0.5)
    n, epsilon = re.search(told, str(refusal.value)).groups()
    for found in (run(int(n), 0.5), run(50, float(epsilon))):
        assert found.ledger.spent() <= max(0.5, float(epsilon)) * (1 + 1e-9)


def test_a_coreset_of_one_record_is_refused():
    with pytest.raises(
        ValueError, match=r"n=1 records are too few for one release: n=\d+ would suffice"
    ):
        KaplanStemmer(1, epsilon=1.0).coreset(np.zeros((1, 2)))


@pytest.mark.parametrize("select", ["counts", "local_search"])
@pytest.mark.parametrize(("n", "epsilon"), [(50, 0.5), (50, 1e-3), (2000, 0.01)])
def test_centers_fall_back_to_packed_places_where_no_bucket_can_pass(n, epsilon, select):
    rows = snap(np.clip(0.3 + 0.05 * np.random.default_rng(0).standard_normal((n, 3)), -1, 1))
    method = KaplanStemmer(4, epsilon=epsilon, radius=1.0, select=select)
    assert method.plan(n, 3).threshold > n
    run = method.fit_batch(rows, range(5))
    assert run.centers.shape == (5, 4, 3) and run.n_centers.tolist() == [4] * 5
    assert np.sqrt((run.centers.astype(float) ** 2).sum(axis=2)).max() <= SCALE
    assert run.ledger.spent() <= epsilon * (1 + 1e-9)
    # What no bucket answers is paid all the same: who reads the ledger learns nothing from it.
    hashes = (
        method.plan(n, 3).rounds * len(method.plan(n, 3).widths) * method.plan(n, 3).repetitions
    )
    assert sum(charge.label == "bucket_counts" for charge in run.ledger.charges) == hashes
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
    assert run.centers.shape == (2, k, rows.shape[1]) and np.abs(run.centers).max() <= SCALE
    assert run.ledger.spent() <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"radius": 0.0}, "radius=0.0 must be 'auto' or a positive finite number"),
        ({"radius": "wide"}, "radius='wide'"),
        ({"rounds": 0}, "rounds=0 must be an integer of at least 1"),
        ({"search_rounds": 0}, "search_rounds=0"),
        ({"projections": 2.5}, "projections=2.5"),
        ({"keep": 1.0}, r"keep=1.0 must be a number in \(0, 1\)"),
        ({"lloyd_steps": -1}, "lloyd_steps=-1 must be an integer of at least 0"),
        ({"widths": []}, r"widths=\[\] must be 'auto' or one or more positive finite numbers"),
        ({"widths": [0.5, -1]}, "widths="),
        ({"widths": "fine"}, "widths='fine'"),
        ({"repetitions": 0}, "repetitions=0 must be 'auto' or an integer of at least 1"),
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
def test_consistent_counts_are_the_nearest_that_add_up(counts, total):
    """The conditions of optimality: one shift for all that stay positive, the others below it."""
    counts = np.array(counts)
    found = consistent(counts, total)
    assert (found >= 0).all() and found.sum() == pytest.approx(total)
    shifts = counts - found
    assert (
        np.ptp(shifts[found > 0]) < 1e-9
        and (counts[found == 0] <= shifts[found > 0].max() + 1e-9).all()
    )


def test_coreset_estimates_costs():
    points = mixture()[0]
    method = KaplanStemmer(16, epsilon=1.0, radius=1.0)
    coreset = method.coreset_of(points, 0)
    assert coreset.weights.sum() == pytest.approx(20_000) and (coreset.weights >= 0).all()
    assert coreset.ledger.spent() == pytest.approx(1.0)
    assert [c.label for c in coreset.ledger.charges][-1] == "nearest_counts"
    rng = np.random.default_rng(0)
    own = inertia(points, np.rint(coreset.points * SCALE).astype(int)[None])[0] / SCALE**2
    for k in (1, 3, 8):
        centers = snap(rng.uniform(-0.5, 0.5, (k, 10)))
        truth = inertia(points, centers[None])[0] / SCALE**2
        estimate = coreset.cost_estimate(centers / SCALE)
        # The stated bound, and for the noise 1 / mu records at the squared diameter, by the root of
        # their number.
        noise = (
            5
            * math.sqrt(len(coreset.points))
            * 4
            / method.plan(20_000, 10, only="coreset").selection_mu
        )
        assert abs(math.sqrt(estimate) - math.sqrt(truth)) <= math.sqrt(own) + noise / math.sqrt(
            truth
        )


@pytest.mark.parametrize("ball", ["0.05", "0"])
def test_coreset_keeps_the_costs_of_many_sets_of_centers(ball):
    """Within a factor of 10, up to (ln n)^2: random sets, sets that Lloyd steps improved, sets that
    miss a ball.
    """
    n = 20_000
    d = 8
    k = 8
    drawn = datasets.load(f"planted-{n}-{d}-{k}-{ball}")
    points = Points.prepare(snap(drawn.points))
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((1000, k, d))
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    random = snap(directions * rng.random((1000, k, 1)) ** (1 / d))
    start = np.tile(
        np.arange(k) * (n // k), (100, 1)
    )  # a point of every ball, but for up to three balls
    for number, row in enumerate(start):
        row[rng.permutation(k)[: number % 4]] = rng.integers(n, size=number % 4)
    better = snap(drawn.points[start])
    for _ in range(4):
        means, counts = cluster_means(points, labels(points, better), k)
        better = np.where(counts[:, :, None] > 0, np.rint(means).astype(np.int64), better)
    incomplete = np.tile(better[:1], (k, 1, 1))
    incomplete[np.arange(k), np.arange(k)] = np.roll(better[0], 1, axis=0)
    sets = np.concatenate([random, better, incomplete])
    some = math.log(n) ** 2
    costs = np.array([float(total) for total in inertia(points, sets)]) / SCALE**2
    assert (
        len(np.unique(costs[1000:].round(3))) > 10
        and costs[1000:].min() < 50 < 3000 < costs[1000:].max()
    )

    def apart(coreset):
        found = np.array([coreset.cost_estimate(centers / SCALE) for centers in sets])
        return np.abs(np.log((found + some) / (costs + some))).max()

    coresets = [
        KaplanStemmer(k, epsilon=1.0, radius=1.0).coreset_of(points, seed) for seed in range(4)
    ]
    assert max(map(apart, coresets)) <= math.log(10)
    # A ball that is missing from the coreset, its weight on the others, is noticed.
    left = np.linalg.norm(coresets[0].points - drawn.points[0], axis=1) > 0.3
    weights = coresets[0].weights[left] * (n / coresets[0].weights[left].sum())
    assert apart(Coreset(coresets[0].points[left], weights)) > math.log(10)


def test_coreset_in_the_units_of_the_data():
    points = mixture()[0].rows / SCALE
    shift = np.arange(10.0)
    stretch = np.linspace(1, 5, 10)
    bounds = np.array([shift - stretch, shift + stretch])
    method = KaplanStemmer(16, epsilon=1.0, radius=1.0, random_state=3)
    plain = method.coreset(points)
    moved = method.set_params(bounds=bounds).coreset(points * stretch + shift)
    assert moved.points == pytest.approx(plain.points * stretch + shift, abs=1e-3)
    assert moved.weights == pytest.approx(plain.weights, abs=1e-6)
    with pytest.raises(ValueError, match=r"centers must have shape \(k, 10\) with k >= 1"):
        plain.cost_estimate([[0.0]])
    with pytest.raises(ValueError, match="points lie outside bounds"):
        method.set_params(clip=False).coreset(points * 100)


def test_coreset_without_noise_moves_points_to_candidates():
    rows = np.repeat(snap([[-0.5, 0.2], [0.5, 0.5], [0.4, -0.6]]), [300, 200, 500], axis=0)
    coreset = KaplanStemmer(3, epsilon=1e15).coreset_of(rows, 0)
    assert isinstance(coreset, Coreset)
    positive = coreset.weights > 0.5
    order = np.argsort(coreset.points[positive][:, 1])
    assert coreset.weights[positive][order] == pytest.approx([500, 300, 200], abs=1e-3)
    assert coreset.points[positive][order] == pytest.approx(
        np.array([[0.4, -0.6], [-0.5, 0.2], [0.5, 0.5]]), abs=1e-4
    )


def test_exponents_are_exact_where_costs_are_huge():
    """Two sets whose costs differ in the last digits of integers beyond float64."""
    large = 1 << 62
    scores = scores_of_costs([large + 10, large])
    streams = NoiseStreams([0])
    change = ScoreRange(2.0, one_sided=True)
    drawn = [Exponential(1.0).draw([scores], streams, ("key", i), change) for i in range(2000)]
    share = np.mean(drawn)
    expected = expit(5.0)
    assert abs(share - expected) < 5 * math.sqrt(expected * (1 - expected) / 2000)
    assert logit(expected) == pytest.approx(5.0)
