"""Points that benchmarks run on."""

import numpy as np

from pkm import datasets
from pkm.benchmarks import inputs


def test_a_data_set_that_is_missing_is_noise_of_its_shape(monkeypatch):
    def load(name):
        raise datasets.DataUnavailable(name)

    monkeypatch.setattr(datasets, "load", load)
    points, label = inputs.load_points("gas", (200, 3), 0.5, (2.0, 5.0))
    assert label == "gas (noise of its shape)"
    assert points.shape == (100, 3)
    assert points.min() >= 2
    assert points.max() <= 5


def test_a_data_set_that_is_there_is_scaled_or_clipped():
    points, label = inputs.load_points("synth-10d", (100_000, 10), 0.001)
    assert (label, points.shape) == ("synth-10d", (100, 10))
    assert abs(points).max() <= 1
    raw, _ = inputs.load_points("synth-10d", (100_000, 10), 0.001, (-1.0, 1.0))
    assert set(np.unique(raw)) >= {-1.0, 1.0}


def test_points_of_a_label_are_near_its_mean():
    labels = np.array([[0, 1, 1], [2, 0, 2]])
    points = inputs.draw_mixture(labels, 4, spread=1e-3)
    assert points.shape == (2, 3, 4)
    assert abs(points[0, 0] - points[1, 1]).max() < 0.01
    assert abs(points[0, 1] - points[0, 2]).max() < 0.01
    assert abs(points[0, 0] - points[0, 1]).max() > 0.1
