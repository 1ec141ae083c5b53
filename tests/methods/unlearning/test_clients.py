"""Clients: seeding by a race against enumerated laws, rounded steps of Lloyd.

Statistical tests have fixed seeds and thresholds at a p-value of 1e-6.
"""

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from client_points import draw, split, state, without
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pkm.compute import SCALE, Points, exponential_race
from pkm.methods.unlearning.clients import QUANTIZED_STEPS
from pkm.methods.unlearning.unlearning import Unlearning

FIVE_POINTS = np.array([[0, 0], [3, 0], [0, 4], [9, 1], [10, 1]])


def run_race(points, arrival_times, ids=None):
    n, k = arrival_times.shape
    seeds = np.zeros(k, np.int64)
    sizes = np.zeros(k, np.int64)
    if ids is None:
        ids = np.arange(n)
    n_seeds = exponential_race(points.astype(np.float32), arrival_times, ids, seeds, 0, sizes)
    return seeds[:n_seeds], sizes


def seeding_law(points, k):
    """Return the exact probability of every sequence of seeds of k-means++."""
    n = len(points)
    squares = ((points[:, None] - points) ** 2).sum(axis=2).tolist()
    law = {}
    for sequence in itertools.permutations(range(n), k):
        probability = Fraction(1, n)
        for t in range(1, k):
            chosen = sequence[:t]
            nearest = [min(squares[i][seed] for seed in chosen) for i in range(n)]
            probability *= Fraction(nearest[sequence[t]], sum(nearest))
        law[sequence] = probability
    return law


def seeding_law_without(points, removed, k):
    """Return the law of the seeds that are drawn from the other points, by their row numbers."""
    kept = [i for i in range(len(points)) if i != removed]
    law = seeding_law(points[kept], k)
    return {tuple(kept[i] for i in sequence): p for sequence, p in law.items()}


def assert_follows(observed, law):
    """Compare counts of sequences with a law by a chi-square test."""
    n_draws = sum(observed.values())
    expected = np.array([float(p) * n_draws for p in law.values()])
    counts = np.array([observed[sequence] for sequence in law])
    assert counts.sum() == n_draws
    assert stats.chisquare(counts, expected).pvalue > 1e-6


@pytest.mark.statistical
def test_race_has_the_law_of_k_means_plus_plus():
    law = seeding_law(FIVE_POINTS, 3)
    assert sum(law.values()) == 1
    rng = np.random.default_rng(0)
    observed = Counter()
    for _ in range(40_000):
        seeds, _ = run_race(FIVE_POINTS, rng.standard_exponential((5, 3)))
        observed[tuple(seeds.tolist())] += 1
    assert_follows(observed, law)


@pytest.mark.parametrize("removed", [0, 3, 4])
def test_keeping_the_seed_prefix_is_exact(removed):
    """The paper's algorithm 3: law after a removal, over all draws, is the law without the point;
    to the last digit, by enumeration.
    """
    target = seeding_law_without(FIVE_POINTS, removed, 3)
    after = dict.fromkeys(target, Fraction(0))
    for sequence, p in seeding_law(FIVE_POINTS, 3).items():
        prefix = sequence
        if removed in sequence:
            prefix = sequence[: sequence.index(removed)]
        matching = {s: q for s, q in target.items() if s[: len(prefix)] == prefix}
        total = sum(matching.values())
        for s, q in matching.items():
            after[s] += p * q / total
    assert after == target


@pytest.mark.slow
@pytest.mark.statistical
def test_fresh_arrival_times_give_the_law_of_a_refit():
    """The paper's algorithm as it stands: seeds after a removal, over many models, against the
    enumerated law.
    """
    points = 1000 * FIVE_POINTS
    removed = 3
    parts = [Points.from_grid(points)]
    fresh = Unlearning(3, arrival_times="fresh")
    observed = Counter()
    for seed in range(4000):
        model = fresh.fit(parts, seed)
        model.remove([removed])
        client = model._clients[0]
        observed[tuple(client.ids[client.seeds].tolist())] += 1
    assert_follows(observed, seeding_law_without(points, removed, 3))

    # No difference until a removal.
    for seed in range(20):
        fresh_seeds = fresh.fit(parts, seed).seeds
        assert fresh_seeds.tolist() == Unlearning(3).fit(parts, seed).seeds.tolist()


def test_restarting_all_seeds_is_not_exact():
    """What the published code does instead, by the same enumeration: the law differs."""
    removed = 3
    target = seeding_law_without(FIVE_POINTS, removed, 3)
    after = dict.fromkeys(target, Fraction(0))
    for sequence, p in seeding_law(FIVE_POINTS, 3).items():
        if removed in sequence:
            for s, q in target.items():
                after[s] += p * q
        else:
            after[sequence] += p
    total_variation = sum(abs(after[s] - target[s]) for s in target) / 2
    assert total_variation > Fraction(1, 1000)


@given(st.integers(0, 10**6), st.sampled_from([1, 16384]))
@settings(max_examples=50, deadline=None)
def test_race_does_not_depend_on_the_order_of_points(seed, step):
    rng = np.random.default_rng(seed)
    points = draw(seed, step=step)
    arrival_times = rng.standard_exponential((40, 4))
    order = rng.permutation(40)
    seeds, sizes = run_race(points, arrival_times)
    shuffled_seeds, shuffled_sizes = run_race(points[order], arrival_times[order], order)
    # Of points that coincide, the arrival times decide which is the seed.
    assert order[shuffled_seeds].tolist() == seeds.tolist()
    assert sizes.tolist() == shuffled_sizes.tolist()
    squares = ((points[:, None] - points[seeds]) ** 2).sum(axis=2)
    expected_sizes = np.bincount(squares.argmin(axis=1), minlength=len(seeds))
    assert sizes[: len(seeds)].tolist() == expected_sizes.tolist()


def test_fewer_distinct_points_than_seeds():
    points = np.array([[1, 1]] * 5 + [[2, 2]] * 3)
    arrival_times = np.random.default_rng(0).standard_exponential((8, 4))
    seeds, sizes = run_race(points, arrival_times)
    assert len(seeds) == 2
    assert sorted(sizes.tolist()) == [0, 0, 3, 5]


@pytest.mark.parametrize("size", [1, 3])
def test_quantized_clients_keep_or_refit_and_equal_a_fit(size):
    """Most points move no rounded center, some do: either way the model is that of a fit."""
    points = draw(2, n=600, step=4096)
    parts, ids = split(points, [600])
    model = Unlearning(4, client="quantized", gamma=0.1).fit(parts, 0)
    batches = np.random.default_rng(size).permutation(600)[:90].reshape(-1, size)
    refits = [model.remove(batch).n_reseeded for batch in batches]
    assert 0 < sum(refits) < len(refits)
    parts, ids = without(parts, ids, batches)
    refit = Unlearning(4, client="quantized", gamma=0.1).fit(parts, 0, ids=ids)
    assert state(model) == state(refit)


def test_quantized_clients_make_rounded_steps_of_lloyd():
    points = draw(3, n=200)
    method = Unlearning(3, client="quantized", gamma=0.25)
    model = method.fit([Points.from_grid(points)], 0)
    seeded = Unlearning(3).fit([Points.from_grid(points)], 0)._clients[0]
    centers = points[seeded.seed_ids].astype(float)
    for _ in range(QUANTIZED_STEPS):
        labels = ((points[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
        means = np.array([points[labels == j].mean(axis=0) for j in range(3)])
        centers = np.round(means / (0.25 * SCALE)) * 0.25 * SCALE
    (client,) = model._clients
    assert client.centers.tolist() == centers.tolist()
    assert client.sizes.sum() == 200
