"""Mean distance, farthest class, points without a center and the best k of the centers, against
brute force.
"""

import itertools
import math

import numpy as np
import pytest

from pkm.compute import Points, inertia
from pkm.metrics import METRICS, evaluate, evaluation
from pkm.metrics.candidates import best_of
from pkm.privacy import SCALE

BOTH = ["mean_distance", "farthest_class"]
CLASSES = ["farthest_class", "unassigned_points"]


def draw(n=400, d=3, k=4, replicates=3, seed=0):
    rng = np.random.default_rng(seed)
    points = rng.integers(-SCALE, SCALE + 1, (n, d))
    centers = rng.integers(-SCALE, SCALE + 1, (replicates, k, d))
    return points, centers, rng.integers(-1, 6, n)


def brute(points, centers, classes):
    points = points / SCALE
    centers = centers / SCALE
    distances = np.sqrt(((points[:, None] - centers) ** 2).sum(axis=2)).min(axis=1)
    means = [points[classes == each].mean(axis=0) for each in range(6)]
    return distances.mean(), max(
        np.sqrt(((mean - centers) ** 2).sum(axis=1)).min() for mean in means
    )


@pytest.mark.parametrize("d", [1, 3, 12])
@pytest.mark.parametrize("rows", [1 << 14, 7])
def test_against_the_definitions(d, rows, monkeypatch):
    monkeypatch.setattr(evaluation, "DISTANCE_ROWS", rows)
    points, centers, classes = draw(d=d)
    found = evaluate(points, centers, BOTH, labels=classes)
    for r, each in enumerate(centers):
        expected = brute(points, each, classes)
        assert (found["mean_distance"][r], found["farthest_class"][r]) == pytest.approx(
            expected, rel=1e-12
        )


def test_known_answers():
    points = np.array([[0, 0], [3, 4], [0, 0], [0, SCALE]]) * np.array(
        [[1], [SCALE // 5], [1], [1]]
    )
    found = evaluate(points, np.zeros((1, 1, 2), np.int64), BOTH, labels=np.array([0, 0, 0, 1]))
    assert found["mean_distance"][0] == pytest.approx((1 + 1) / 4, rel=1e-4)
    assert found["farthest_class"][0] == 1.0


def test_a_missed_class_shows_only_in_its_distance():
    rng = np.random.default_rng(0)
    many = rng.integers(-100, 101, (5000, 2))
    few = rng.integers(-100, 101, (5, 2)) + np.array([SCALE // 2, 0])
    points = np.concatenate([many, few])
    classes = np.repeat([0, 1], [5000, 5])
    centers = np.array([[[0, 0], [0, 0]], [[0, 0], [SCALE // 2, 0]]])
    found = evaluate(points, centers, BOTH, labels=classes)
    assert found["farthest_class"] == pytest.approx([0.5, 0.0], abs=0.01)
    assert found["mean_distance"][0] < 0.01


def test_centers_that_only_fill_up_change_nothing():
    points, centers, classes = draw()
    padded = np.concatenate([centers, centers[:, :1], centers[:, :1]], axis=1)
    own = np.full(len(centers), centers.shape[1])
    alone = evaluate(points, centers, BOTH, labels=classes)
    found = evaluate(points, padded, BOTH, labels=classes, n_centers=own)
    for name in BOTH:
        np.testing.assert_array_equal(found[name], alone[name])


@pytest.mark.parametrize("classes", [None, np.full(400, -1)])
def test_no_classes_no_farthest_class(classes):
    points, centers, _ = draw()
    found = evaluate(points, centers, CLASSES, labels=classes)
    assert all(np.isnan(found[name]).all() for name in CLASSES)


def test_all_are_known_by_name():
    assert {*BOTH, *CLASSES, "nicv_best_k"} <= set(METRICS)


# Points without a center


@pytest.mark.parametrize("rows", [1 << 14, 7])
@pytest.mark.parametrize("d", [1, 3])
def test_unassigned_points_against_the_definition(d, rows, monkeypatch):
    monkeypatch.setattr(evaluation, "DISTANCE_ROWS", rows)
    rng = np.random.default_rng(d)
    middles = rng.integers(-SCALE // 2, SCALE // 2, (6, d))
    classes = rng.integers(-1, 6, 500)
    points = middles[classes] + rng.integers(-2000, 2001, (500, d))
    # Centers at 2 to 8 radii from the means: some near enough, some not.
    steps = rng.standard_normal((40, 6, d))
    steps *= rng.uniform(2, 8, (40, 6, 1)) * 2000 / np.linalg.norm(steps, axis=2, keepdims=True)
    centers = np.clip(np.rint(middles + steps), -SCALE, SCALE).astype(np.int64)
    found = evaluate(points, centers, ["unassigned_points"], labels=classes)["unassigned_points"]
    for count, each in zip(found, centers, strict=True):
        expected = 0
        for label in range(6):
            mine = points[classes == label] / SCALE
            radius = math.sqrt(2 * ((mine - mine.mean(axis=0)) ** 2).sum() / len(mine))
            nearest = np.sqrt(((each / SCALE - mine.mean(axis=0)) ** 2).sum(axis=1)).min()
            expected += len(mine) * (nearest > 5 * (radius + 1 / 500))
        assert count == expected
    assert len(set(found)) > 5


def test_points_on_one_place_need_a_center_within_a_few_steps_of_one_over_n():
    points = np.repeat([[0, 0], [SCALE // 2, 0]], [70, 30], axis=0)
    classes = np.repeat([0, 1], [70, 30])
    away = 5 / 100 * SCALE  # of n = 100 points
    centers = np.array(
        [
            [[0, int(away)], [SCALE // 2, int(away) + 1]],
            [[0, int(away) + 1], [SCALE // 2, int(away)]],
        ]
    )
    found = evaluate(points, centers, ["unassigned_points"], labels=classes)["unassigned_points"]
    assert found.tolist() == [30, 70]


def test_outliers_are_not_unassigned():
    points = np.array([[0, 0]] * 9 + [[SCALE, SCALE]])
    classes = np.array([0] * 9 + [-1])
    assert evaluate(points, np.zeros((1, 1, 2), int), ["unassigned_points"], labels=classes)[
        "unassigned_points"
    ] == [0]


# The best k of the centers


@pytest.mark.parametrize("seed", range(5))
def test_no_swap_helps_the_chosen_candidates(seed):
    rng = np.random.default_rng(seed)
    points = rng.integers(-SCALE, SCALE + 1, (300, 2))
    candidates = rng.integers(-SCALE, SCALE + 1, (9, 2))
    chosen, cost = best_of(Points.prepare(points), candidates, 3)

    def cost_of(some):
        return int(((points[:, None] - candidates[list(some)]) ** 2).sum(axis=2).min(axis=1).sum())

    assert sorted(set(chosen)) == chosen.tolist() and len(chosen) == 3 and cost == cost_of(chosen)
    for slot, other in itertools.product(range(3), range(9)):
        assert cost <= cost_of([*np.delete(chosen, slot), other])
    assert cost < 1.2 * min(cost_of(some) for some in itertools.combinations(range(9), 3))


def test_best_k_of_well_placed_candidates_are_those_in_the_groups():
    """The most popular candidates lie in one large group: local search leaves them for the smaller
    groups.
    """
    rng = np.random.default_rng(0)
    middles = np.array([[-40_000, 0], [40_000, 0], [0, 50_000]])
    points = np.repeat(middles, [1000, 50, 50], axis=0) + rng.integers(-500, 501, (1100, 2))
    crowded = middles[0] + np.array([[-300, 0], [300, 0], [0, 300]])
    candidates = np.concatenate([crowded, middles, [[0, 0]]])
    chosen, cost = best_of(Points.prepare(points), candidates, 3)
    assert (
        chosen.tolist() == [3, 4, 5] and cost == inertia(Points.prepare(points), middles[None])[0]
    )
    released = np.concatenate([candidates[None], candidates[None, ::-1]])
    found = evaluate(points, released, ["nicv_best_k"], 3)["nicv_best_k"]
    assert found == pytest.approx(cost / 1100 / SCALE**2, rel=1e-15)


@pytest.mark.parametrize("k", [4, 7, None])
def test_where_no_more_are_released_all_are_taken(k):
    points, centers, _ = draw()
    found = evaluate(points, centers, ["nicv", "nicv_best_k"], k)
    assert found["nicv_best_k"].tolist() == found["nicv"].tolist()


def test_best_k_leaves_out_what_only_fills_up():
    points, centers, _ = draw()
    padded = np.concatenate([centers, np.repeat(centers[:, :1], 3, axis=1)], axis=1)
    own = np.full(len(centers), centers.shape[1])
    alone = evaluate(points, centers, ["nicv_best_k"], 2)["nicv_best_k"]
    assert (
        evaluate(points, padded, ["nicv_best_k"], 2, n_centers=own)["nicv_best_k"].tolist()
        == alone.tolist()
    )
