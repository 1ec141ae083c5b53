"""What clients of a cell need: the optimum that their losses are over."""

import numpy as np
import pytest

from pkm.compute import Points
from pkm.experiments.fit.clients import fit_best_k_means
from pkm.experiments.fit.unlearning_requests import compute_optimum

pytestmark = pytest.mark.integration


def test_optimum_is_the_inertia_of_its_labels():
    generator = np.random.default_rng(0)
    points = Points.from_grid(generator.integers(-60000, 60000, (200, 3)))
    best = fit_best_k_means(points, 4, 5)
    rows = points.rows / 2**16
    means = np.array([rows[best.labels_ == label].mean(axis=0) for label in range(4)])
    inertia = ((rows - means[best.labels_]) ** 2).sum()
    assert best.inertia_ == pytest.approx(inertia, rel=1e-6)

    # Without some of the points a warm start from these centers has a lower inertia, about that
    # of a new start.
    remaining = rows[20:]
    warm_start = compute_optimum(remaining, best.cluster_centers_)
    assert warm_start < best.inertia_
    remaining_points = Points.from_grid((remaining * 2**16).astype(int))
    new_start = fit_best_k_means(remaining_points, 4, 1).inertia_
    assert warm_start <= new_start * 1.1
