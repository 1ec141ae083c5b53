"""The metrics against scikit-learn and brute force, and their conventions."""

import warnings
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.metrics import davies_bouldin_score, silhouette_score

from pkm.compute import Points, labels
from pkm.metrics import (
    METRICS,
    evaluate,
    reference_centers,
    reference_set,
    references,
    silhouettes,
)
from pkm.metrics.matching import nearest_distances
from pkm.privacy import SCALE


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Give every test a separate cache, on disk and in memory."""
    monkeypatch.setenv("PKM_CACHE", str(tmp_path / "cache"))
    reference_set.cache_clear()
    return tmp_path / "cache" / "references"


def draw(n=300, d=3, k=5, replicates=4, seed=0):
    rng = np.random.default_rng(seed)
    points = rng.integers(-SCALE, SCALE + 1, (n, d))
    centers = rng.integers(-SCALE, SCALE + 1, (replicates, k, d))
    return points, centers


def pairwise_distances(first, second):
    return np.sqrt(((first[:, None] - second) ** 2).sum(axis=2))


def test_metrics_against_their_definitions():
    points, centers = draw()
    classes = np.random.default_rng(7).integers(0, 4, 300)
    scores = evaluate(points, centers, METRICS, labels=classes)
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


def test_silhouette_of_many_points_is_sampled(monkeypatch):
    """The sample is fixed: the same call gives the same value again."""
    monkeypatch.setattr(silhouettes, "SILHOUETTE_POINTS", 120)
    points, centers = draw(seed=3)
    rows = np.random.default_rng(0).choice(300, 120, replace=False)
    sample = points[np.sort(rows)]
    assigned = labels(Points.prepare(sample), centers)
    expected = [silhouette_score(sample, assigned[r]) for r in range(4)]

    first = evaluate(points, centers, ["silhouette"])["silhouette"]
    second = evaluate(points, centers, ["silhouette"])["silhouette"]
    np.testing.assert_allclose(first, expected, atol=1e-6)
    assert (first == second).all()


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
    reference = reference_centers(Points.prepare(points), 4)
    centers = np.rint(reference * SCALE).astype(np.int64)[None, ::-1]
    scores = evaluate(points, centers, ["centroid_mse", "centroid_distance"])
    assert scores["centroid_mse"][0] < 1e-9
    assert scores["centroid_distance"][0] < 1e-4


def test_matching_fewer_centers_than_the_reference():
    """Reference centers that are left without a partner do not count."""
    points, _ = draw()
    mean = np.rint(points.mean(axis=0)).astype(np.int64)[None, None]
    scores = evaluate(points, mean, ["centroid_distance"], n_clusters=4)
    reference = reference_centers(Points.prepare(points), 4)
    distances = np.linalg.norm(reference - mean[0] / SCALE, axis=1)
    assert scores["centroid_distance"][0] == pytest.approx(distances.min())


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
    batch = evaluate(points, centers, METRICS, 4, labels=classes, n_centers=n_centers)
    for r, number in enumerate(n_centers):
        unpadded = centers[r : r + 1, :number]
        single = evaluate(points, unpadded, METRICS, 4, labels=classes)
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
        return evaluate(points, centers, ["accuracy"], labels=classes)["accuracy"]

    assert accuracy([7, 7, 2, 2, 5, 5]).tolist() == [4 / 6, 4 / 6]
    # An outlier has no class, so it is neither right nor wrong.
    assert accuracy([7, 7, 2, -1, 5, 5])[0] == 4 / 5
    for unknown in (None, np.full(6, -1)):
        assert np.isnan(accuracy(unknown)).all()


def test_accuracy_is_independent_of_class_names():
    points, centers = draw()
    classes = np.random.default_rng(3).integers(0, 5, 300)
    renamed = np.array([40, 3, 17, 2**40, 0])[classes]
    expected = evaluate(points, centers, ["accuracy"], labels=classes)
    scores = evaluate(points, centers, ["accuracy"], labels=renamed)
    assert scores["accuracy"].tolist() == expected["accuracy"].tolist()


def test_inertia_is_exact_where_floats_are_not():
    # Squares of odd coordinates near the limit; a float64 sum of 200,000 of them rounds.
    points = np.full((200_001, 2), SCALE - 1)
    centers = np.array([[[-SCALE, -SCALE]]])
    total = 200_001 * 2 * (2 * SCALE - 1) ** 2
    scores = evaluate(points, centers, ["inertia", "nicv"])
    assert scores["inertia"][0] == float(Fraction(total, SCALE**2))
    assert scores["nicv"][0] == float(Fraction(total, 200_001 * SCALE**2))


def blobs(n=400, d=3, k=4, seed=0):
    """Draw clearly separated clusters on the grid."""
    points, classes = make_blobs(
        n,
        d,
        centers=k,
        center_box=(-0.9, 0.9),
        cluster_std=0.02,
        random_state=seed,
    )
    return np.rint(np.clip(points, -1, 1) * SCALE).astype(np.int64), classes


def test_kmeans_distances_against_their_definitions():
    points, centers = draw()
    metrics = [name for name in METRICS if "kmeans_distance" in name]
    scores = evaluate(points, centers, metrics)
    chosen = reference_set(Points.prepare(points)).centers
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
    best = reference_set(Points.prepare(points)).centers[0]
    centers = np.rint(best[None, :1] * SCALE).astype(np.int64)
    scores = evaluate(points, centers, ["kmeans_distance", "reverse_kmeans_distance"])
    assert scores["kmeans_distance"][0] < 1e-4
    assert scores["reverse_kmeans_distance"][0] > 0.1


def test_nearest_distances_swap_with_their_arguments():
    rng = np.random.default_rng(4)
    first = [rng.random((5, 2))]
    second = [rng.random((3, 2))]
    forward, backward = nearest_distances(first, second)
    swapped = nearest_distances(second, first)
    assert swapped == (pytest.approx(backward), pytest.approx(forward))
    assert nearest_distances(first, first) == (0.0, 0.0)


def test_reference_search_finds_the_true_clusters():
    points, classes = blobs()
    prepared = Points.prepare(points)
    references_found = reference_set(prepared)
    # One run for each k of the grid (from 2 to 128, below 400 points), and twenty for the best two.
    runs = references_found.runs
    grid_runs = runs[: len(references.GRID)]
    assert [k for k, _ in grid_runs] == list(references.GRID)
    assert len(runs) == len(references.GRID) + 40
    assert 4 in {k for k, _ in runs[-40:]}

    # Exactly the means of the true clusters, except for starts that missed one.
    means = [points[classes == j].mean(axis=0) for j in range(4)]
    true_centers = np.array(means) / SCALE
    complete = [centers for centers in references_found.centers if centers.shape == (4, 3)]
    assert len(complete) >= 15
    for centers in complete[:15]:
        distances, _ = nearest_distances([centers], [true_centers])
        assert distances[0] < 1e-12

    best_k, best_silhouette = max(runs, key=lambda run: run[1])
    assert best_k == 4
    true_labels = labels(prepared, np.rint(true_centers * SCALE).astype(np.int64)[None])[0]
    expected = silhouette_score(points, true_labels)
    assert best_silhouette == pytest.approx(expected, abs=1e-6)


def test_references_are_the_best_of_all_runs(monkeypatch):
    points, _ = draw(n=120)
    references_found = reference_set(Points.prepare(points))
    scores = sorted((score for _, score in references_found.runs), reverse=True)
    for centers, score in zip(references_found.centers, scores[:20], strict=True):
        nearest = pairwise_distances(points / SCALE, centers).argmin(axis=1)
        # The iteration stops when the centers hardly move: single points may still change sides.
        assert silhouette_score(points, nearest) == pytest.approx(score, abs=0.02)


def test_reference_search_is_cached_on_disk(cache, monkeypatch):
    points = Points.prepare(draw()[0])
    first = reference_set(points)
    (file,) = cache.glob("*.bin")
    assert reference_set(Points.prepare(draw()[0])) is first
    reference_set.cache_clear()
    monkeypatch.setattr(references, "search", lambda *arguments: pytest.fail("searched again"))
    stored = reference_set(points)
    assert stored.runs == first.runs
    for stored_centers, centers in zip(stored.centers, first.centers, strict=True):
        np.testing.assert_array_equal(stored_centers, centers)
    assert sorted(path.suffix for path in cache.iterdir()) == [
        ".bin",
        ".lock",
    ]
    assert file.stem == references.search_key(points)


@pytest.mark.parametrize("damage", ["empty", "cut", "flip", "foreign"])
def test_damaged_cache_is_replaced(cache, damage):
    points = Points.prepare(draw(n=40)[0])
    first = reference_set(points)
    (file,) = cache.glob("*.bin")
    content = file.read_bytes()
    middle = len(content) // 2
    flipped = bytes([content[middle] ^ 1])
    damaged = {
        "empty": b"",
        "cut": content[:middle],
        "flip": content[:middle] + flipped + content[middle + 1 :],
        "foreign": b"not a result of the bench" * 10,
    }
    file.write_bytes(damaged[damage])
    reference_set.cache_clear()
    assert reference_set(points).runs == first.runs
    assert file.read_bytes() == content


def test_search_that_is_cut_short_goes_on(cache, monkeypatch):
    monkeypatch.setattr(references, "KEPT_SECONDS", 0.0)
    points = Points.prepare(draw()[0])
    expected = references.search(points)
    fits = []

    class Interrupted(KMeans):
        def fit(self, *arguments):
            fits.append(self.n_clusters)
            if len(fits) == 40:
                raise KeyboardInterrupt
            return super().fit(*arguments)

    monkeypatch.setattr(references, "KMeans", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        reference_set(points)
    found = reference_set(points)
    # All 72 runs, and the one that was interrupted once more.
    assert len(fits) == len(expected.runs) + 1
    assert found.runs == expected.runs
    for centers, other in zip(found.centers, expected.centers, strict=True):
        np.testing.assert_array_equal(centers, other)
    assert sorted(path.suffix for path in cache.iterdir()) == [".bin", ".lock"]


def test_cache_key_covers_points_and_search(tmp_path, monkeypatch):
    points = Points.prepare(draw()[0])
    different_points = Points.prepare(draw(seed=1)[0])
    keys = {
        references.search_key(points),
        references.search_key(different_points),
    }
    assert len(keys) == 2
    source = references.SOURCES[0]
    assert source.name == "references.py"
    changed = tmp_path / "references.py"
    changed.write_text(source.read_text().replace("N_REPEATS = 20", "N_REPEATS = 21"))
    monkeypatch.setattr(references, "SOURCES", (changed, *references.SOURCES[1:]))
    keys.add(references.search_key(points))
    assert len(keys) == 3


def test_reference_seeds_are_not_replicate_seeds():
    """Seeds of replicates are small numbers; a baseline with the seed of a reference would be
    compared with itself.
    """
    assert references.FIRST_SEED > 100_000


def test_unwritable_cache_only_warns(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PKM_CACHE", str(tmp_path / "file"))
    points = Points.prepare(draw()[0])
    with pytest.warns(UserWarning, match="set PKM_CACHE to a folder that can be written"):
        references_found = reference_set(points)
    assert len(references_found.centers) == 20


@pytest.mark.parametrize(
    "points",
    [
        [[5, 7]],
        [[5, 7], [6, 8]],
        [[5, 7]] * 10,
        [[0, 0]] * 5 + [[1, 0]] * 5,
        [[0, 0], [1, 0], [SCALE, 0]],
    ],
)
def test_reference_search_handles_few_or_equal_points(points):
    points = np.array(points)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = evaluate(points, points[:1][None], METRICS)
    n_distinct = len(np.unique(points, axis=0))
    expected = 2 if n_distinct > 1 and len(points) > 2 else 1
    reference_sets = reference_set(Points.prepare(points)).centers
    assert {len(centers) for centers in reference_sets} == {expected}
    for name in METRICS:
        if "kmeans_distance" in name:
            assert np.isfinite(scores[name]).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"labels": np.zeros(299, int)},
            "labels must be 300 integers, one per point",
        ),
        ({"labels": np.zeros(300)}, "labels must be 300 integers"),
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
