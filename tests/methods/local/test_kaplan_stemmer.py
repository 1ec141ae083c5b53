"""Kaplan-Stemmer in the local model: what its coreset keeps."""

import numpy as np
import pytest
from local_users import planted

from pkm.compute import inertia
from pkm.methods.local.kaplan_stemmer import KaplanStemmerLocal
from pkm.privacy import SCALE, snap


def test_coreset_approximates_the_points(shared_noise):
    points, true_centers = planted(100_000, 2, 4)
    method = KaplanStemmerLocal(4, epsilon=4.0, radius=1.0)
    coreset = method.draw_coreset(points, 3)
    assert coreset.weights.sum() == pytest.approx(100_000)
    assert coreset.weights.min() >= 0
    assert len(coreset.points) == len(coreset.weights)
    assert len(coreset.points) <= 16
    assert [charge.group for charge in coreset.ledger.charges] == [0, 1, 2]
    for k in (1, 2):
        centers = true_centers[:k]
        exact = inertia(points, snap(centers)[None])[0] / SCALE**2
        assert coreset.cost_estimate(centers) == pytest.approx(exact, rel=0.1)

    X = (points.rows / SCALE + 1) * 5
    scaled = method.set_params(bounds=(0, 10), random_state=3).coreset(X)
    np.testing.assert_allclose(scaled.points, (coreset.points + 1) * 5, atol=1e-9)

    strict = method.set_params(bounds=(0, 1), clip=False)
    with pytest.raises(ValueError, match="points lie outside bounds"):
        strict.coreset(np.full((1000, 2), 3.0))


def test_candidates_lie_in_the_ball_with_positive_weights():
    points, _ = planted(50_000, 2, 3)
    method = KaplanStemmerLocal(3, epsilon=4.0, radius=1.0, passes=2, lloyd_steps=0)
    for seed in range(5):
        coreset = method.draw_coreset(points, seed)
        assert np.linalg.norm(coreset.points, axis=1).max() <= 1 + 1e-4
        assert (coreset.weights > 0).sum() >= 3
