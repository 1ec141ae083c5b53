"""The best k of released candidates against brute force."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from random_points import draw_with_classes

from pkm.compute import Points, inertia
from pkm.metrics import evaluate
from pkm.metrics.candidates import choose_best
from pkm.privacy import SCALE


@pytest.mark.parametrize("seed", range(5))
def test_no_swap_improves_the_chosen_candidates(seed):
    rng = np.random.default_rng(seed)
    points = rng.integers(-SCALE, SCALE + 1, (300, 2))
    candidates = rng.integers(-SCALE, SCALE + 1, (9, 2))
    chosen, cost = choose_best(Points.from_grid(points), candidates, 3)

    def cost_of(subset):
        centers = candidates[list(subset)]
        squares = ((points[:, None] - centers) ** 2).sum(axis=2)
        return int(squares.min(axis=1).sum())

    assert sorted(set(chosen)) == chosen.tolist()
    assert len(chosen) == 3
    assert cost == cost_of(chosen)
    for removed, added in itertools.product(range(3), range(9)):
        swapped = [*np.delete(chosen, removed), added]
        assert cost <= cost_of(swapped)
    optimum = min(cost_of(subset) for subset in itertools.combinations(range(9), 3))
    assert cost < 1.2 * optimum


def test_best_k_covers_the_small_groups():
    """The most popular candidates lie in one large group: local search leaves them for the smaller
    groups.
    """
    rng = np.random.default_rng(0)
    group_centers = np.array([[-40_000, 0], [40_000, 0], [0, 50_000]])
    noise = rng.integers(-500, 501, (1100, 2))
    points = np.repeat(group_centers, [1000, 50, 50], axis=0) + noise
    in_large_group = group_centers[0] + np.array([[-300, 0], [300, 0], [0, 300]])
    candidates = np.concatenate([in_large_group, group_centers, [[0, 0]]])

    chosen, cost = choose_best(Points.from_grid(points), candidates, 3)
    assert chosen.tolist() == [3, 4, 5]
    assert cost == inertia(Points.from_grid(points), group_centers[None])[0]

    released = np.concatenate([candidates[None], candidates[None, ::-1]])
    scores = evaluate(points, released, ["nicv_best_k"], 3)
    expected = cost / 1100 / SCALE**2
    assert scores["nicv_best_k"] == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("k", [4, 7, None])
def test_best_k_of_at_most_k_centers_takes_all(k):
    points, centers, _ = draw_with_classes()
    scores = evaluate(points, centers, ["nicv", "nicv_best_k"], k)
    assert scores["nicv_best_k"].tolist() == scores["nicv"].tolist()


def weighted_by_persons(rng, n_rows):
    """Points whose rows have the weights of some persons."""
    points = Points.from_grid(rng.integers(-SCALE, SCALE + 1, (n_rows, 2)))
    weights = (SCALE // rng.integers(1, 5, n_rows)).astype(np.int32)
    return replace(points, weights=weights, n_persons=n_rows)


def test_best_k_weighs_the_rows_of_persons():
    """Of four candidates the best pair is found by trying all, and each row has its weight."""
    rng = np.random.default_rng(3)
    points = weighted_by_persons(rng, 200)
    candidates = rng.integers(-SCALE, SCALE + 1, (4, 2))
    pairs = np.array(list(itertools.combinations(candidates, 2)))
    scores = evaluate(points, candidates[None], ["nicv_best_k"], 2)
    assert scores["nicv_best_k"] == evaluate(points, pairs, ["nicv"])["nicv"].min()

    # Where all are taken it is the NICV.
    metrics = evaluate(points, candidates[None], ["nicv", "nicv_best_k"], 4)
    assert metrics["nicv_best_k"] == metrics["nicv"]


def test_best_k_ignores_padding():
    points, centers, _ = draw_with_classes()
    copies = np.repeat(centers[:, :1], 3, axis=1)
    padded = np.concatenate([centers, copies], axis=1)
    n_centers = np.full(len(centers), centers.shape[1])
    unpadded_scores = evaluate(points, centers, ["nicv_best_k"], 2)
    scores = evaluate(points, padded, ["nicv_best_k"], 2, n_centers=n_centers)
    assert scores["nicv_best_k"].tolist() == unpadded_scores["nicv_best_k"].tolist()
