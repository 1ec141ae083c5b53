"""Silhouettes of many points."""

import numpy as np
from random_points import draw
from sklearn.metrics import silhouette_score

from pkm.compute import Points, labels
from pkm.metrics import (
    evaluate,
    silhouettes,
)


def test_silhouette_of_many_points_is_sampled(monkeypatch):
    """The sample is fixed: the same call gives the same value again."""
    monkeypatch.setattr(silhouettes, "SILHOUETTE_POINTS", 120)
    points, centers = draw(seed=3)
    rows = np.random.default_rng(0).choice(300, 120, replace=False)
    sample = points[np.sort(rows)]
    assigned = labels(Points.from_grid(sample), centers)
    expected = [silhouette_score(sample, assigned[r]) for r in range(4)]

    first = evaluate(points, centers, ["silhouette"])["silhouette"]
    second = evaluate(points, centers, ["silhouette"])["silhouette"]
    np.testing.assert_allclose(first, expected, atol=1e-6)
    assert (first == second).all()
