"""Metrics of distances to centers and the best k of the centers, against brute force."""

import itertools
import math

import numpy as np
import pytest

from pkm.compute import Points, inertia
from pkm.metrics import METRICS, evaluate, evaluation
from pkm.metrics.candidates import choose_best
from pkm.privacy import SCALE

DISTANCES = ["mean_distance", "farthest_class"]
OF_CLASSES = ["farthest_class", "unassigned_points"]


def draw(n=400, d=3, k=4, replicates=3, seed=0):
    rng = np.random.default_rng(seed)
    points = rng.integers(-SCALE, SCALE + 1, (n, d))
    centers = rng.integers(-SCALE, SCALE + 1, (replicates, k, d))
    classes = rng.integers(-1, 6, n)
    return points, centers, classes


def brute_force(points, centers, classes):
    """Return the mean distance and the distance of the farthest class, from the definitions."""
    points = points / SCALE
    centers = centers / SCALE
    distances = np.sqrt(((points[:, None] - centers) ** 2).sum(axis=2))
    mean_distance = distances.min(axis=1).mean()
    class_distances = []
    for label in range(6):
        mean = points[classes == label].mean(axis=0)
        squares = ((mean - centers) ** 2).sum(axis=1)
        class_distances.append(np.sqrt(squares).min())
    return mean_distance, max(class_distances)


@pytest.mark.parametrize("d", [1, 3, 12])
@pytest.mark.parametrize("rows", [1 << 14, 7])
def test_against_the_definitions(d, rows, monkeypatch):
    monkeypatch.setattr(evaluation, "DISTANCE_ROWS", rows)
    points, centers, classes = draw(d=d)
    scores = evaluate(points, centers, DISTANCES, labels=classes)
    for r, replicate in enumerate(centers):
        mean_distance, farthest_class = brute_force(points, replicate, classes)
        assert scores["mean_distance"][r] == pytest.approx(mean_distance, rel=1e-12)
        assert scores["farthest_class"][r] == pytest.approx(farthest_class, rel=1e-12)


def test_known_answers():
    fifth = SCALE // 5
    points = np.array(
        [
            [0, 0],
            [3 * fifth, 4 * fifth],
            [0, 0],
            [0, SCALE],
        ]
    )
    centers = np.zeros((1, 1, 2), np.int64)
    classes = np.array([0, 0, 0, 1])
    scores = evaluate(points, centers, DISTANCES, labels=classes)
    assert scores["mean_distance"][0] == pytest.approx((1 + 1) / 4, rel=1e-4)
    assert scores["farthest_class"][0] == 1.0


def test_farthest_class_reveals_a_missed_class():
    """A small class without a center hardly moves the mean distance."""
    rng = np.random.default_rng(0)
    large = rng.integers(-100, 101, (5000, 2))
    small = rng.integers(-100, 101, (5, 2)) + np.array([SCALE // 2, 0])
    points = np.concatenate([large, small])
    classes = np.repeat([0, 1], [5000, 5])
    centers = np.array(
        [
            [[0, 0], [0, 0]],
            [[0, 0], [SCALE // 2, 0]],
        ]
    )
    scores = evaluate(points, centers, DISTANCES, labels=classes)
    assert scores["farthest_class"] == pytest.approx([0.5, 0.0], abs=0.01)
    assert scores["mean_distance"][0] < 0.01


def test_padding_changes_no_distance():
    points, centers, classes = draw()
    padded = np.concatenate([centers, centers[:, :1], centers[:, :1]], axis=1)
    n_centers = np.full(len(centers), centers.shape[1])
    unpadded_scores = evaluate(points, centers, DISTANCES, labels=classes)
    scores = evaluate(points, padded, DISTANCES, labels=classes, n_centers=n_centers)
    for name in DISTANCES:
        np.testing.assert_array_equal(scores[name], unpadded_scores[name])


@pytest.mark.parametrize("classes", [None, np.full(400, -1)])
def test_metrics_of_classes_are_nan_without_classes(classes):
    points, centers, _ = draw()
    scores = evaluate(points, centers, OF_CLASSES, labels=classes)
    for name in OF_CLASSES:
        assert np.isnan(scores[name]).all()


def test_metrics_are_registered():
    assert {*DISTANCES, *OF_CLASSES, "nicv_best_k"} <= set(METRICS)


# Points without a center


@pytest.mark.parametrize("rows", [1 << 14, 7])
@pytest.mark.parametrize("d", [1, 3])
def test_unassigned_points_against_the_definition(d, rows, monkeypatch):
    monkeypatch.setattr(evaluation, "DISTANCE_ROWS", rows)
    rng = np.random.default_rng(d)
    class_centers = rng.integers(-SCALE // 2, SCALE // 2, (6, d))
    classes = rng.integers(-1, 6, 500)
    points = class_centers[classes] + rng.integers(-2000, 2001, (500, d))
    # Centers at 2 to 8 radii from the means: a part of them near enough, a part not.
    steps = rng.standard_normal((40, 6, d))
    lengths = rng.uniform(2, 8, (40, 6, 1)) * 2000
    steps *= lengths / np.linalg.norm(steps, axis=2, keepdims=True)
    centers = np.clip(np.rint(class_centers + steps), -SCALE, SCALE).astype(np.int64)

    scores = evaluate(points, centers, ["unassigned_points"], labels=classes)
    unassigned = scores["unassigned_points"]
    for count, replicate in zip(unassigned, centers, strict=True):
        expected = 0
        for label in range(6):
            members = points[classes == label] / SCALE
            mean = members.mean(axis=0)
            squares = ((members - mean) ** 2).sum()
            radius = math.sqrt(2 * squares / len(members))
            distances = np.sqrt(((replicate / SCALE - mean) ** 2).sum(axis=1))
            if distances.min() > 5 * (radius + 1 / 500):
                expected += len(members)
        assert count == expected
    assert len(set(unassigned)) > 5


def test_coincident_points_need_a_center_within_five_over_n():
    """A class of radius zero is assigned up to the distance 5 / n."""
    points = np.repeat([[0, 0], [SCALE // 2, 0]], [70, 30], axis=0)
    classes = np.repeat([0, 1], [70, 30])
    limit = int(5 / 100 * SCALE)  # n = 100 points
    centers = np.array(
        [
            [[0, limit], [SCALE // 2, limit + 1]],
            [[0, limit + 1], [SCALE // 2, limit]],
        ]
    )
    scores = evaluate(points, centers, ["unassigned_points"], labels=classes)
    assert scores["unassigned_points"].tolist() == [30, 70]


def test_outliers_are_not_unassigned():
    points = np.array([[0, 0]] * 9 + [[SCALE, SCALE]])
    classes = np.array([0] * 9 + [-1])
    centers = np.zeros((1, 1, 2), int)
    scores = evaluate(points, centers, ["unassigned_points"], labels=classes)
    assert scores["unassigned_points"] == [0]


# The best k of the centers


@pytest.mark.parametrize("seed", range(5))
def test_no_swap_improves_the_chosen_candidates(seed):
    rng = np.random.default_rng(seed)
    points = rng.integers(-SCALE, SCALE + 1, (300, 2))
    candidates = rng.integers(-SCALE, SCALE + 1, (9, 2))
    chosen, cost = choose_best(Points.prepare(points), candidates, 3)

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

    chosen, cost = choose_best(Points.prepare(points), candidates, 3)
    assert chosen.tolist() == [3, 4, 5]
    assert cost == inertia(Points.prepare(points), group_centers[None])[0]

    released = np.concatenate([candidates[None], candidates[None, ::-1]])
    scores = evaluate(points, released, ["nicv_best_k"], 3)
    expected = cost / 1100 / SCALE**2
    assert scores["nicv_best_k"] == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("k", [4, 7, None])
def test_best_k_of_at_most_k_centers_takes_all(k):
    points, centers, _ = draw()
    scores = evaluate(points, centers, ["nicv", "nicv_best_k"], k)
    assert scores["nicv_best_k"].tolist() == scores["nicv"].tolist()


def test_best_k_ignores_padding():
    points, centers, _ = draw()
    copies = np.repeat(centers[:, :1], 3, axis=1)
    padded = np.concatenate([centers, copies], axis=1)
    n_centers = np.full(len(centers), centers.shape[1])
    unpadded_scores = evaluate(points, centers, ["nicv_best_k"], 2)
    scores = evaluate(points, padded, ["nicv_best_k"], 2, n_centers=n_centers)
    assert scores["nicv_best_k"].tolist() == unpadded_scores["nicv_best_k"].tolist()
