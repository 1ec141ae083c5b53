"""The search for reference clusterings, and what is kept of it."""

import warnings

import numpy as np
import pytest
from random_points import blobs, draw
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score

from pkm.compute import Points, labels
from pkm.metrics import (
    METRICS,
    evaluate,
    reference_set,
    references,
)
from pkm.metrics.matching import nearest_distances
from pkm.privacy import SCALE


def pairwise_distances(first, second):
    return np.sqrt(((first[:, None] - second) ** 2).sum(axis=2))


def test_reference_search_finds_the_true_clusters():
    points, classes = blobs()
    prepared = Points.from_grid(points)
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
    references_found = reference_set(Points.from_grid(points))
    scores = sorted((score for _, score in references_found.runs), reverse=True)
    for centers, score in zip(references_found.centers, scores[:20], strict=True):
        nearest = pairwise_distances(points / SCALE, centers).argmin(axis=1)
        # The iteration stops when the centers hardly move: single points may still change sides.
        assert silhouette_score(points, nearest) == pytest.approx(score, abs=0.02)


def test_reference_search_is_cached_on_disk(cache, monkeypatch):
    points = Points.from_grid(draw()[0])
    first = reference_set(points)
    (file,) = cache.glob("*.bin")
    assert reference_set(Points.from_grid(draw()[0])) is first
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


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["empty", "cut", "flip", "foreign"])
def test_damaged_cache_is_replaced(cache, damage):
    points = Points.from_grid(draw(n=40)[0])
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
    points = Points.from_grid(draw()[0])
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
    points = Points.from_grid(draw()[0])
    different_points = Points.from_grid(draw(seed=1)[0])
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
    points = Points.from_grid(draw()[0])
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
    reference_sets = reference_set(Points.from_grid(points)).centers
    assert {len(centers) for centers in reference_sets} == {expected}
    for name in METRICS:
        if "kmeans_distance" in name:
            assert np.isfinite(scores[name]).all()
