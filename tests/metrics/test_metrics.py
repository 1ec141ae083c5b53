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
    reference_silhouettes,
    references,
    silhouettes,
)
from pkm.metrics.matching import nearest_distances
from pkm.privacy import SCALE


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Give every test a cache of its own, on disk and in memory."""
    monkeypatch.setenv("PKM_CACHE", str(tmp_path / "cache"))
    reference_set.cache_clear()
    return tmp_path / "cache" / "references"


def draw(n=300, d=3, k=5, replicates=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(-SCALE, SCALE + 1, (n, d)), rng.integers(
        -SCALE, SCALE + 1, (replicates, k, d)
    )


def test_metrics_against_their_definitions():
    points, centers = draw()
    classes = np.random.default_rng(7).integers(0, 4, 300)
    found = evaluate(points, centers, METRICS, labels=classes)
    reference = KMeans(5, n_init=10, random_state=0).fit(points / SCALE).cluster_centers_
    for r, each in enumerate(centers):
        squares = ((points[:, None] - each) ** 2).sum(axis=2)
        own = squares.argmin(axis=1)
        assert found["nicv"][r] == float(Fraction(int(squares.min(axis=1).sum()), 300 * SCALE**2))
        assert found["silhouette"][r] == pytest.approx(silhouette_score(points, own), abs=1e-6)
        assert found["davies_bouldin"][r] == pytest.approx(
            davies_bouldin_score(points, own), rel=1e-12
        )
        assert found["inertia"][r] == float(Fraction(int(squares.min(axis=1).sum()), SCALE**2))
        assert found["empty_clusters"][r] == 5 - len(set(own))
        assert (found["n_centers"][r], found["nonempty_centers"][r]) == (5, len(set(own)))
        right = sum(max(np.bincount(classes[own == j])) for j in set(own))
        assert found["accuracy"][r] == right / 300
        apart = ((each[:, None] / SCALE - reference) ** 2).sum(axis=2)
        assert found["centroid_mse"][r] == pytest.approx(apart[linear_sum_assignment(apart)].mean())
        apart = np.sqrt(apart)
        assert found["centroid_distance"][r] == pytest.approx(
            apart[linear_sum_assignment(apart)].mean()
        )


def test_order_of_points_and_replicates_does_not_matter():
    points, centers = draw()
    found = evaluate(points, centers, ["nicv", "empty_clusters"])
    again = evaluate(
        np.random.default_rng(1).permutation(points), centers[::-1], ["nicv", "empty_clusters"]
    )
    for name in found:
        assert found[name].tolist() == again[name][::-1].tolist()


def test_single_cluster_convention():
    """One non-empty cluster counts as silhouette -1 and infinite Davies-Bouldin index."""
    points, centers = draw(k=3)
    centers[:, 1:] = 50 * SCALE
    centers[:, 0] = 0
    found = evaluate(points, centers, ["silhouette", "davies_bouldin", "empty_clusters"])
    assert (found["silhouette"] == -1).all()
    assert (found["davies_bouldin"] == np.inf).all()
    assert (found["empty_clusters"] == 2).all()


def test_silhouette_of_many_points_is_that_of_a_fixed_sample(monkeypatch):
    monkeypatch.setattr(silhouettes, "SILHOUETTE_POINTS", 120)
    points, centers = draw(seed=3)
    sample = np.sort(np.random.default_rng(0).choice(300, 120, replace=False))
    expected = [
        silhouette_score(points[sample], labels(Points.prepare(points[sample]), centers)[r])
        for r in range(4)
    ]
    np.testing.assert_allclose(
        evaluate(points, centers, ["silhouette"])["silhouette"], expected, atol=1e-6
    )
    assert (
        evaluate(points, centers, ["silhouette"])["silhouette"]
        == evaluate(points, centers, ["silhouette"])["silhouette"]
    ).all()


def test_scaling_data_and_centers_together():
    """Twice the coordinates: four times the NICV, the same silhouette and Davies-Bouldin index."""
    points, centers = draw()
    points = points // 4 * 2
    centers = centers // 4 * 2
    once, twice = (
        evaluate(points // f, centers // f, ["nicv", "silhouette", "davies_bouldin"])
        for f in (2, 1)
    )
    assert (twice["nicv"] == 4 * once["nicv"]).all()
    np.testing.assert_allclose(twice["silhouette"], once["silhouette"], atol=1e-6)
    np.testing.assert_allclose(twice["davies_bouldin"], once["davies_bouldin"], rtol=1e-12)


def test_reference_is_zero_away_from_itself():
    points, _ = draw()
    reference = reference_centers(Points.prepare(points), 4)
    centers = np.rint(reference * SCALE).astype(np.int64)[None, ::-1]
    found = evaluate(points, centers, ["centroid_mse", "centroid_distance"])
    assert found["centroid_mse"][0] < 1e-9 and found["centroid_distance"][0] < 1e-4


def test_fewer_centers_than_the_reference_are_matched_as_far_as_they_go():
    points, _ = draw()
    mean = np.rint(points.mean(axis=0)).astype(np.int64)[None, None]
    found = evaluate(points, mean, ["centroid_distance"], n_clusters=4)["centroid_distance"][0]
    apart = np.linalg.norm(reference_centers(Points.prepare(points), 4) - mean[0] / SCALE, axis=1)
    assert found == pytest.approx(apart.min())


def test_unknown_metrics_are_refused():
    points, centers = draw()
    with pytest.raises(
        ValueError, match="metric 'purity' is unknown, choose from nicv, silhouette"
    ):
        evaluate(points, centers, ["nicv", "purity"])


def padded(centers, n_centers):
    """Fill up each replicate's centers beyond its own number with copies of its first."""
    centers = centers.copy()
    for each, own in zip(centers, n_centers, strict=True):
        each[own:] = each[0]
    return centers


def test_filled_up_centers_are_judged_as_if_alone():
    points, centers = draw(k=6)
    own = np.array([6, 1, 4, 2])
    centers = padded(centers, own)
    classes = np.random.default_rng(2).integers(0, 3, 300)
    together = evaluate(points, centers, METRICS, 4, labels=classes, n_centers=own)
    for r, number in enumerate(own):
        alone = evaluate(points, centers[r : r + 1, :number], METRICS, 4, labels=classes)
        assert {name: together[name][r] for name in METRICS} == {
            name: alone[name][0] for name in METRICS
        }


def test_accuracy_counts_the_majority_of_each_cluster():
    points = np.array([[0], [1], [2], [100], [101], [200]])
    centers = np.array([[[1], [100], [5000]], [[50], [60], [70]]])
    # Clusters {0, 1, 2}, {3, 4, 5} of the first replicate; {0, 1, 2}, {3, 4, 5} split at 55 and 65
    # of the second.
    assert evaluate(points, centers, ["accuracy"], labels=[7, 7, 2, 2, 5, 5])[
        "accuracy"
    ].tolist() == [4 / 6, 4 / 6]
    # An outlier has no class, so it is neither right nor wrong.
    assert (
        evaluate(points, centers, ["accuracy"], labels=[7, 7, 2, -1, 5, 5])["accuracy"][0] == 4 / 5
    )
    for unknown in (None, np.full(6, -1)):
        assert np.isnan(evaluate(points, centers, ["accuracy"], labels=unknown)["accuracy"]).all()


def test_accuracy_does_not_depend_on_the_names_of_the_classes():
    points, centers = draw()
    classes = np.random.default_rng(3).integers(0, 5, 300)
    renamed = np.array([40, 3, 17, 2**40, 0])[classes]
    first, second = (
        evaluate(points, centers, ["accuracy"], labels=each)["accuracy"]
        for each in (classes, renamed)
    )
    assert first.tolist() == second.tolist()


def test_inertia_is_exact_where_floats_are_not():
    # Squares of odd coordinates near the limit; a float64 sum of 200,000 of them rounds.
    points = np.full((200_001, 2), SCALE - 1)
    centers = np.array([[[-SCALE, -SCALE]]])
    total = 200_001 * 2 * (2 * SCALE - 1) ** 2
    found = evaluate(points, centers, ["inertia", "nicv"])
    assert found["inertia"][0] == float(Fraction(total, SCALE**2))
    assert found["nicv"][0] == float(Fraction(total, 200_001 * SCALE**2))


def blobs(n=400, d=3, k=4, seed=0):
    """Draw clearly separated clusters on the grid."""
    points, classes = make_blobs(
        n, d, centers=k, center_box=(-0.9, 0.9), cluster_std=0.02, random_state=seed
    )
    return np.rint(np.clip(points, -1, 1) * SCALE).astype(np.int64), classes


def test_kmeans_distances_against_their_definitions():
    points, centers = draw()
    found = evaluate(points, centers, [name for name in METRICS if "kmeans_distance" in name])
    chosen = reference_set(Points.prepare(points)).centers
    assert len(chosen) == 20
    for r, each in enumerate(centers / SCALE):
        apart = [np.sqrt(((each[:, None] - reference) ** 2).sum(axis=2)) for reference in chosen]
        sums = np.mean([table.min(axis=1).sum() for table in apart])
        assert found["kmeans_distance_sum"][r] == pytest.approx(sums)
        assert found["kmeans_distance"][r] == pytest.approx(sums / 5)
        # The domain [-1, 1]^3 has width 2.
        assert found["norm_kmeans_distance"][r] == pytest.approx(sums / 5 / (2 * np.sqrt(3)))
        back = np.mean([table.min(axis=0).mean() for table in apart])
        assert found["reverse_kmeans_distance"][r] == pytest.approx(back)
        assert found["norm_reverse_kmeans_distance"][r] == pytest.approx(back / (2 * np.sqrt(3)))


def test_one_good_center_is_near_the_references_and_they_are_not_near_it():
    points, _ = blobs()
    best = reference_set(Points.prepare(points)).centers[0]
    centers = np.rint(best[None, :1] * SCALE).astype(np.int64)
    found = evaluate(points, centers, ["kmeans_distance", "reverse_kmeans_distance"])
    assert found["kmeans_distance"][0] < 1e-4 < 0.1 < found["reverse_kmeans_distance"][0]


def test_distances_from_one_clustering_to_another_and_back_swap():
    rng = np.random.default_rng(4)
    some = [rng.random((5, 2))]
    others = [rng.random((3, 2))]
    there, back = nearest_distances(some, others)
    assert nearest_distances(others, some) == (pytest.approx(back), pytest.approx(there))
    assert nearest_distances(some, some) == (0.0, 0.0)


def test_search_finds_the_clusters_that_are_there():
    points, classes = blobs()
    prepared = Points.prepare(points)
    found = reference_set(prepared)
    # One run for each k of the grid (from 2 to 128, below 400 points), and twenty for the best two.
    assert [k for k, _ in found.runs[: len(references.GRID)]] == list(references.GRID)
    assert len(found.runs) == len(references.GRID) + 40
    assert 4 in {k for k, _ in found.runs[-40:]}
    # Exactly the means of the true clusters, apart from starts that missed one.
    truth = np.array([points[classes == j].mean(axis=0) for j in range(4)]) / SCALE
    same = [each for each in found.centers if each.shape == (4, 3)]
    assert len(same) >= 15
    for each in same[:15]:
        assert nearest_distances([each], [truth])[0][0] < 1e-12
    table = dict(reference_silhouettes(prepared))
    assert list(table) == sorted(table) and max(table, key=table.get) == 4
    own = labels(prepared, np.rint(truth * SCALE).astype(np.int64)[None])[0]
    assert table[4] == pytest.approx(silhouette_score(points, own), abs=1e-6)


def test_references_are_the_best_of_all_runs(monkeypatch):
    points, _ = draw(n=120)
    found = reference_set(Points.prepare(points))
    scores = sorted((score for _, score in found.runs), reverse=True)
    for each, score in zip(found.centers, scores[:20], strict=True):
        own = np.sqrt(((points[:, None] / SCALE - each) ** 2).sum(axis=2)).argmin(axis=1)
        # The iteration stops when the centers hardly move: single points may still change sides.
        assert silhouette_score(points, own) == pytest.approx(score, abs=0.02)


def test_search_is_made_once_and_kept_on_disk(cache, monkeypatch):
    points = Points.prepare(draw()[0])
    first = reference_set(points)
    (file,) = cache.glob("*.bin")
    assert reference_set(Points.prepare(draw()[0])) is first
    reference_set.cache_clear()
    monkeypatch.setattr(references, "search", lambda points: pytest.fail("searched again"))
    again = reference_set(points)
    assert again.runs == first.runs
    for one, other in zip(again.centers, first.centers, strict=True):
        np.testing.assert_array_equal(one, other)
    assert sorted(path.suffix for path in cache.iterdir()) == [".bin", ".lock"]
    assert file.stem == references.search_key(points)


@pytest.mark.parametrize("damage", ["empty", "cut", "flip", "foreign"])
def test_damaged_cache_is_replaced(cache, damage):
    points = Points.prepare(draw(n=40)[0])
    first = reference_set(points)
    (file,) = cache.glob("*.bin")
    content = file.read_bytes()
    middle = len(content) // 2
    file.write_bytes(
        {
            "empty": b"",
            "cut": content[:middle],
            "flip": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
            "foreign": b"not a result of ours" * 10,
        }[damage]
    )
    reference_set.cache_clear()
    assert reference_set(points).runs == first.runs
    assert file.read_bytes() == content


def test_cache_knows_points_and_search_apart(tmp_path, monkeypatch):
    points = Points.prepare(draw()[0])
    others = Points.prepare(draw(seed=1)[0])
    keys = {references.search_key(points), references.search_key(others)}
    assert references.SOURCES[0].name == "references.py" and len(keys) == 2
    changed = tmp_path / "references.py"
    changed.write_text(
        references.SOURCES[0].read_text().replace("N_REPEATS = 20", "N_REPEATS = 21")
    )
    monkeypatch.setattr(references, "SOURCES", (changed, *references.SOURCES[1:]))
    keys.add(references.search_key(points))
    assert len(keys) == 3


def test_references_share_no_start_with_a_baseline():
    """Seeds of replicates are small numbers; a baseline with the seed of a reference would be its
    own yardstick.
    """
    assert references.FIRST_SEED > 100_000


def test_cache_that_cannot_be_written_costs_time_only(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PKM_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="set PKM_CACHE to a folder that can be written"):
        found = reference_set(Points.prepare(draw()[0]))
    assert len(found.centers) == 20


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
def test_search_on_few_or_equal_points_has_a_result(points):
    points = np.array(points)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = evaluate(points, points[:1][None], METRICS)
    distinct = len(np.unique(points, axis=0))
    centers = reference_set(Points.prepare(points)).centers
    assert {len(each) for each in centers} == {2 if distinct > 1 and len(points) > 2 else 1}
    assert np.isfinite([found[name] for name in METRICS if "kmeans_distance" in name]).all()


@pytest.mark.parametrize(
    "given, message",
    [
        ({"labels": np.zeros(299, int)}, "labels must be 300 integers, one per point"),
        ({"labels": np.zeros(300)}, "labels must be 300 integers"),
        ({"n_centers": [5, 5]}, "n_centers must be 4 integers, one per replicate"),
        ({"n_centers": [5.0] * 4}, "n_centers must be 4 integers"),
        ({"n_centers": [5, 5, 5, 6]}, "must lie between 1 and 5"),
        ({"n_centers": [5, 5, 5, 0]}, "must lie between 1 and 5"),
        (
            {"n_centers": [5, 5, 5, 4]},
            "centers beyond n_centers must be copies of the replicate's first center",
        ),
    ],
)
def test_what_does_not_fit_is_refused(given, message):
    points, centers = draw()
    with pytest.raises(ValueError, match=message):
        evaluate(points, centers, ["accuracy"], **given)


def test_centers_of_another_shape_are_refused():
    points, centers = draw()
    with pytest.raises(ValueError, match=r"centers must have shape \(replicate, cluster, 3\)"):
        evaluate(points, centers[0], ["nicv"])
