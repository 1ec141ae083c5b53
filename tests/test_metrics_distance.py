"""Mean distance and farthest class, against brute force."""

import numpy as np
import pytest

from metrics import METRICS, evaluate, evaluation
from privacy import SCALE

BOTH = ["mean_distance", "farthest_class"]


def draw(n=400, d=3, k=4, replicates=3, seed=0):
    rng = np.random.default_rng(seed)
    points, centres = rng.integers(-SCALE, SCALE + 1, (n, d)), rng.integers(-SCALE, SCALE + 1, (replicates, k, d))
    return points, centres, rng.integers(-1, 6, n)


def brute(points, centres, classes):
    points, centres = points / SCALE, centres / SCALE
    distances = np.sqrt(((points[:, None] - centres) ** 2).sum(axis=2)).min(axis=1)
    means = [points[classes == each].mean(axis=0) for each in range(6)]
    return distances.mean(), max(np.sqrt(((mean - centres) ** 2).sum(axis=1)).min() for mean in means)


@pytest.mark.parametrize("d", [1, 3, 12])
@pytest.mark.parametrize("rows", [1 << 14, 7])
def test_against_the_definitions(d, rows, monkeypatch):
    monkeypatch.setattr(evaluation, "DISTANCE_ROWS", rows)
    points, centres, classes = draw(d=d)
    found = evaluate(points, centres, BOTH, labels=classes)
    for r, each in enumerate(centres):
        expected = brute(points, each, classes)
        assert (found["mean_distance"][r], found["farthest_class"][r]) == pytest.approx(expected, rel=1e-12)


def test_known_answers():
    points = np.array([[0, 0], [3, 4], [0, 0], [0, SCALE]]) * np.array([[1], [SCALE // 5], [1], [1]])
    found = evaluate(points, np.zeros((1, 1, 2), np.int64), BOTH, labels=np.array([0, 0, 0, 1]))
    assert found["mean_distance"][0] == pytest.approx((1 + 1) / 4, rel=1e-4)
    assert found["farthest_class"][0] == 1.0


def test_a_missed_class_shows_only_in_its_distance():
    rng = np.random.default_rng(0)
    many, few = rng.integers(-100, 101, (5000, 2)), rng.integers(-100, 101, (5, 2)) + np.array([SCALE // 2, 0])
    points, classes = np.concatenate([many, few]), np.repeat([0, 1], [5000, 5])
    centres = np.array([[[0, 0], [0, 0]], [[0, 0], [SCALE // 2, 0]]])
    found = evaluate(points, centres, BOTH, labels=classes)
    assert found["farthest_class"] == pytest.approx([0.5, 0.0], abs=0.01)
    assert found["mean_distance"][0] < 0.01


def test_centres_that_only_fill_up_change_nothing():
    points, centres, classes = draw()
    padded = np.concatenate([centres, centres[:, :1], centres[:, :1]], axis=1)
    own = np.full(len(centres), centres.shape[1])
    alone = evaluate(points, centres, BOTH, labels=classes)
    found = evaluate(points, padded, BOTH, labels=classes, n_centres=own)
    for name in BOTH:
        np.testing.assert_array_equal(found[name], alone[name])


@pytest.mark.parametrize("classes", [None, np.full(400, -1)])
def test_no_classes_no_farthest_class(classes):
    points, centres, _ = draw()
    assert np.isnan(evaluate(points, centres, BOTH, labels=classes)["farthest_class"]).all()


def test_both_are_known_by_name():
    assert set(BOTH) <= set(METRICS)
