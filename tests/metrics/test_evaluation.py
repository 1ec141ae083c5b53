"""The metrics against scikit-learn and brute force, and their conventions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from random_points import blobs, draw, draw_with_classes
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.metrics import davies_bouldin_score, silhouette_score

from pkm.compute import Points
from pkm.metrics import (
    METRICS,
    evaluate,
    evaluation,
    reference_centers,
    reference_set,
)
from pkm.privacy import SCALE


def pairwise_distances(first, second):
    return np.sqrt(((first[:, None] - second) ** 2).sum(axis=2))


def test_metrics_against_their_definitions():
    points, centers = draw()
    classes = np.random.default_rng(7).integers(0, 4, 300)
    scores = evaluate(points, centers, METRICS, labels_true=classes)
    kmeans = KMeans(5, n_init=10, random_state=0).fit(points / SCALE)
    reference = kmeans.cluster_centers_
    for r, replicate in enumerate(centers):
        squares = ((points[:, None] - replicate) ** 2).sum(axis=2)
        nearest = squares.argmin(axis=1)
        total = int(squares.min(axis=1).sum())
        assert scores["nicv"][r] == float(Fraction(total, 300 * SCALE**2))
        assert scores["inertia"][r] == float(Fraction(total, SCALE**2))

        silhouette = silhouette_score(points, nearest)
        davies_bouldin = davies_bouldin_score(points, nearest)
        assert scores["silhouette"][r] == pytest.approx(silhouette, abs=1e-6)
        assert scores["davies_bouldin"][r] == pytest.approx(davies_bouldin, rel=1e-12)

        nonempty = set(nearest)
        assert scores["empty_clusters"][r] == 5 - len(nonempty)
        assert scores["n_centers"][r] == 5
        assert scores["nonempty_centers"][r] == len(nonempty)

        majorities = [max(np.bincount(classes[nearest == j])) for j in nonempty]
        assert scores["accuracy"][r] == sum(majorities) / 300

        squares = ((replicate[:, None] / SCALE - reference) ** 2).sum(axis=2)
        matched = squares[linear_sum_assignment(squares)]
        assert scores["centroid_mse"][r] == pytest.approx(matched.mean())
        distances = np.sqrt(squares)
        matched = distances[linear_sum_assignment(distances)]
        assert scores["centroid_distance"][r] == pytest.approx(matched.mean())


def test_order_of_points_and_replicates_does_not_matter():
    points, centers = draw()
    metrics = ["nicv", "empty_clusters"]
    scores = evaluate(points, centers, metrics)
    shuffled = np.random.default_rng(1).permutation(points)
    reordered = evaluate(shuffled, centers[::-1], metrics)
    for name in metrics:
        assert scores[name].tolist() == reordered[name][::-1].tolist()


def test_single_cluster_convention():
    """One non-empty cluster counts as silhouette -1 and infinite Davies-Bouldin index."""
    points, centers = draw(k=3)
    centers[:, 1:] = 50 * SCALE
    centers[:, 0] = 0
    scores = evaluate(points, centers, ["silhouette", "davies_bouldin", "empty_clusters"])
    assert (scores["silhouette"] == -1).all()
    assert (scores["davies_bouldin"] == np.inf).all()
    assert (scores["empty_clusters"] == 2).all()


def test_scaling_data_and_centers_together():
    """Twice the coordinates: four times the NICV, the same silhouette and Davies-Bouldin index."""
    points, centers = draw()
    points = points // 4 * 2
    centers = centers // 4 * 2
    metrics = ["nicv", "silhouette", "davies_bouldin"]
    single = evaluate(points // 2, centers // 2, metrics)
    double = evaluate(points, centers, metrics)
    assert (double["nicv"] == 4 * single["nicv"]).all()
    np.testing.assert_allclose(double["silhouette"], single["silhouette"], atol=1e-6)
    np.testing.assert_allclose(double["davies_bouldin"], single["davies_bouldin"], rtol=1e-12)


def test_reference_has_distance_zero_to_itself():
    points, _ = draw()
    reference = reference_centers(Points.from_grid(points), 4)
    centers = np.rint(reference * SCALE).astype(np.int64)[None, ::-1]
    scores = evaluate(points, centers, ["centroid_mse", "centroid_distance"])
    assert scores["centroid_mse"][0] < 1e-9
    assert scores["centroid_distance"][0] < 1e-4


def test_unknown_metrics_are_refused():
    points, centers = draw()
    with pytest.raises(
        ValueError,
        match="metric 'purity' is unknown, choose from nicv, silhouette",
    ):
        evaluate(points, centers, ["nicv", "purity"])


def padded(centers, n_centers):
    """Pad each replicate beyond its number of centers with copies of its first center."""
    centers = centers.copy()
    for replicate, number in zip(centers, n_centers, strict=True):
        replicate[number:] = replicate[0]
    return centers


def test_padding_changes_no_metric():
    points, centers = draw(k=6)
    n_centers = np.array([6, 1, 4, 2])
    centers = padded(centers, n_centers)
    classes = np.random.default_rng(2).integers(0, 3, 300)
    batch = evaluate(points, centers, METRICS, 4, labels_true=classes, n_centers=n_centers)
    for r, number in enumerate(n_centers):
        unpadded = centers[r : r + 1, :number]
        single = evaluate(points, unpadded, METRICS, 4, labels_true=classes)
        for name in METRICS:
            assert batch[name][r] == single[name][0]


def test_accuracy_counts_the_majority_of_each_cluster():
    points = np.array([[0], [1], [2], [100], [101], [200]])
    # Clusters {0, 1, 2}, {3, 4, 5} of the first replicate; {0, 1, 2}, {3, 4, 5} split at 55 and 65
    # of the second.
    centers = np.array(
        [
            [[1], [100], [5000]],
            [[50], [60], [70]],
        ]
    )

    def accuracy(classes):
        return evaluate(points, centers, ["accuracy"], labels_true=classes)["accuracy"]

    assert accuracy([7, 7, 2, 2, 5, 5]).tolist() == [4 / 6, 4 / 6]
    # An outlier has no class, so it is neither right nor wrong.
    assert accuracy([7, 7, 2, -1, 5, 5])[0] == 4 / 5
    for unknown in (None, np.full(6, -1)):
        assert np.isnan(accuracy(unknown)).all()


def test_accuracy_is_independent_of_class_names():
    points, centers = draw()
    classes = np.random.default_rng(3).integers(0, 5, 300)
    renamed = np.array([40, 3, 17, 2**40, 0])[classes]
    expected = evaluate(points, centers, ["accuracy"], labels_true=classes)
    scores = evaluate(points, centers, ["accuracy"], labels_true=renamed)
    assert scores["accuracy"].tolist() == expected["accuracy"].tolist()


def test_inertia_is_exact_where_floats_are_not():
    # Squares of odd coordinates near the limit; a float64 sum of 200,000 of them rounds.
    points = np.full((200_001, 2), SCALE - 1)
    centers = np.array([[[-SCALE, -SCALE]]])
    total = 200_001 * 2 * (2 * SCALE - 1) ** 2
    scores = evaluate(points, centers, ["inertia", "nicv"])
    assert scores["inertia"][0] == float(Fraction(total, SCALE**2))
    assert scores["nicv"][0] == float(Fraction(total, 200_001 * SCALE**2))


def test_kmeans_distances_against_their_definitions():
    points, centers = draw()
    metrics = [name for name in METRICS if "kmeans_distance" in name]
    scores = evaluate(points, centers, metrics)
    chosen = reference_set(Points.from_grid(points)).centers
    assert len(chosen) == 20
    diagonal = 2 * np.sqrt(3)  # of the domain [-1, 1]^3
    for r, replicate in enumerate(centers / SCALE):
        tables = [pairwise_distances(replicate, reference) for reference in chosen]
        to_references = np.mean([table.min(axis=1).sum() for table in tables])
        assert scores["kmeans_distance_sum"][r] == pytest.approx(to_references)
        assert scores["kmeans_distance"][r] == pytest.approx(to_references / 5)
        expected = to_references / 5 / diagonal
        assert scores["norm_kmeans_distance"][r] == pytest.approx(expected)

        from_references = np.mean([table.min(axis=0).mean() for table in tables])
        assert scores["reverse_kmeans_distance"][r] == pytest.approx(from_references)
        expected = from_references / diagonal
        assert scores["norm_reverse_kmeans_distance"][r] == pytest.approx(expected)


def test_single_good_center_has_large_reverse_distance():
    """The center is near each reference; the references' other centers are not near it."""
    points, _ = blobs()
    best = reference_set(Points.from_grid(points)).centers[0]
    centers = np.rint(best[None, :1] * SCALE).astype(np.int64)
    scores = evaluate(points, centers, ["kmeans_distance", "reverse_kmeans_distance"])
    assert scores["kmeans_distance"][0] < 1e-4
    assert scores["reverse_kmeans_distance"][0] > 0.1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"labels_true": np.zeros(299, int)},
            "labels_true must be 300 integers, one per point",
        ),
        ({"labels_true": np.zeros(300)}, "labels_true must be 300 integers"),
        (
            {"n_centers": [5, 5]},
            "n_centers must be 4 integers, one per replicate",
        ),
        ({"n_centers": [5.0] * 4}, "n_centers must be 4 integers"),
        ({"n_centers": [5, 5, 5, 6]}, "must lie between 1 and 5"),
        ({"n_centers": [5, 5, 5, 0]}, "must lie between 1 and 5"),
        (
            {"n_centers": [5, 5, 5, 4]},
            "centers beyond n_centers must be copies of the replicate's first center",
        ),
    ],
)
def test_mismatched_arguments_are_refused(arguments, message):
    points, centers = draw()
    with pytest.raises(ValueError, match=message):
        evaluate(points, centers, ["accuracy"], **arguments)


def test_centers_of_wrong_shape_are_refused():
    points, centers = draw()
    with pytest.raises(ValueError, match=r"centers must have shape \(replicate, cluster, 3\)"):
        evaluate(points, centers[0], ["nicv"])


DISTANCES = ["mean_distance", "farthest_class"]


OF_CLASSES = ["farthest_class", "unassigned_points"]


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
    points, centers, classes = draw_with_classes(d=d)
    scores = evaluate(points, centers, DISTANCES, labels_true=classes)
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
    scores = evaluate(points, centers, DISTANCES, labels_true=classes)
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
    scores = evaluate(points, centers, DISTANCES, labels_true=classes)
    assert scores["farthest_class"] == pytest.approx([0.5, 0.0], abs=0.01)
    assert scores["mean_distance"][0] < 0.01


def test_padding_changes_no_distance():
    points, centers, classes = draw_with_classes()
    padded = np.concatenate([centers, centers[:, :1], centers[:, :1]], axis=1)
    n_centers = np.full(len(centers), centers.shape[1])
    unpadded_scores = evaluate(points, centers, DISTANCES, labels_true=classes)
    scores = evaluate(points, padded, DISTANCES, labels_true=classes, n_centers=n_centers)
    for name in DISTANCES:
        np.testing.assert_array_equal(scores[name], unpadded_scores[name])


@pytest.mark.parametrize("classes", [None, np.full(400, -1)])
def test_metrics_of_classes_are_nan_without_classes(classes):
    points, centers, _ = draw_with_classes()
    scores = evaluate(points, centers, OF_CLASSES, labels_true=classes)
    for name in OF_CLASSES:
        assert np.isnan(scores[name]).all()


def test_metrics_are_registered():
    assert {*DISTANCES, *OF_CLASSES, "nicv_best_k"} <= set(METRICS)


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

    scores = evaluate(points, centers, ["unassigned_points"], labels_true=classes)
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
    scores = evaluate(points, centers, ["unassigned_points"], labels_true=classes)
    assert scores["unassigned_points"].tolist() == [30, 70]


def test_outliers_are_not_unassigned():
    points = np.array([[0, 0]] * 9 + [[SCALE, SCALE]])
    classes = np.array([0] * 9 + [-1])
    centers = np.zeros((1, 1, 2), int)
    scores = evaluate(points, centers, ["unassigned_points"], labels_true=classes)
    assert scores["unassigned_points"] == [0]
