"""The metrics against scikit-learn and brute force, and their conventions."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.metrics import davies_bouldin_score, silhouette_score

from compute import Points, labels
from metrics import METRICS, evaluate, evaluation, reference_centres
from privacy import SCALE


def draw(n=300, d=3, k=5, replicates=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(-SCALE, SCALE + 1, (n, d)), rng.integers(-SCALE, SCALE + 1, (replicates, k, d))


def test_metrics_against_their_definitions():
    points, centres = draw()
    found = evaluate(points, centres, METRICS)
    reference = KMeans(5, n_init=10, random_state=0).fit(points / SCALE).cluster_centers_
    for r, each in enumerate(centres):
        squares = ((points[:, None] - each) ** 2).sum(axis=2)
        own = squares.argmin(axis=1)
        assert found["nicv"][r] == float(Fraction(int(squares.min(axis=1).sum()), 300 * SCALE**2))
        assert found["silhouette"][r] == pytest.approx(silhouette_score(points, own), abs=1e-6)
        assert found["davies_bouldin"][r] == pytest.approx(davies_bouldin_score(points, own), rel=1e-12)
        assert found["empty_clusters"][r] == 5 - len(set(own))
        apart = ((each[:, None] / SCALE - reference) ** 2).sum(axis=2)
        assert found["centroid_mse"][r] == pytest.approx(apart[linear_sum_assignment(apart)].mean())
        apart = np.sqrt(apart)
        assert found["centroid_distance"][r] == pytest.approx(apart[linear_sum_assignment(apart)].mean())


def test_order_of_points_and_replicates_does_not_matter():
    points, centres = draw()
    found = evaluate(points, centres, ["nicv", "empty_clusters"])
    again = evaluate(np.random.default_rng(1).permutation(points), centres[::-1], ["nicv", "empty_clusters"])
    for name in found:
        assert found[name].tolist() == again[name][::-1].tolist()


def test_single_cluster_convention():
    """One non-empty cluster counts as silhouette -1 and infinite Davies-Bouldin index."""
    points, centres = draw(k=3)
    centres[:, 1:] = 50 * SCALE
    centres[:, 0] = 0
    found = evaluate(points, centres, ["silhouette", "davies_bouldin", "empty_clusters"])
    assert (found["silhouette"] == -1).all()
    assert (found["davies_bouldin"] == np.inf).all()
    assert (found["empty_clusters"] == 2).all()


def test_silhouette_of_many_points_is_that_of_a_fixed_sample(monkeypatch):
    monkeypatch.setattr(evaluation, "SILHOUETTE_POINTS", 120)
    points, centres = draw(seed=3)
    sample = np.sort(np.random.default_rng(0).choice(300, 120, replace=False))
    expected = [silhouette_score(points[sample], labels(Points.prepare(points[sample]), centres)[r]) for r in range(4)]
    np.testing.assert_allclose(evaluate(points, centres, ["silhouette"])["silhouette"], expected, atol=1e-6)
    assert (
        evaluate(points, centres, ["silhouette"])["silhouette"]
        == evaluate(points, centres, ["silhouette"])["silhouette"]
    ).all()


def test_scaling_data_and_centres_together():
    """Twice the coordinates: four times the NICV, the same silhouette and Davies-Bouldin index."""
    points, centres = draw()
    points, centres = points // 4 * 2, centres // 4 * 2
    once, twice = (evaluate(points // f, centres // f, ["nicv", "silhouette", "davies_bouldin"]) for f in (2, 1))
    assert (twice["nicv"] == 4 * once["nicv"]).all()
    np.testing.assert_allclose(twice["silhouette"], once["silhouette"], atol=1e-6)
    np.testing.assert_allclose(twice["davies_bouldin"], once["davies_bouldin"], rtol=1e-12)


def test_reference_is_zero_away_from_itself():
    points, _ = draw()
    reference = reference_centres(Points.prepare(points), 4)
    centres = np.rint(reference * SCALE).astype(np.int64)[None, ::-1]
    found = evaluate(points, centres, ["centroid_mse", "centroid_distance"])
    assert found["centroid_mse"][0] < 1e-9 and found["centroid_distance"][0] < 1e-4


def test_fewer_centres_than_the_reference_are_matched_as_far_as_they_go():
    points, _ = draw()
    mean = np.rint(points.mean(axis=0)).astype(np.int64)[None, None]
    found = evaluate(points, mean, ["centroid_distance"], n_clusters=4)["centroid_distance"][0]
    apart = np.linalg.norm(reference_centres(Points.prepare(points), 4) - mean[0] / SCALE, axis=1)
    assert found == pytest.approx(apart.min())


def test_unknown_metrics_are_refused():
    points, centres = draw()
    with pytest.raises(ValueError, match="metric 'purity' is unknown, choose from nicv, silhouette"):
        evaluate(points, centres, ["nicv", "purity"])
