"""Copies of data sets in installed packages equal the published files."""

import numpy as np
import pytest
from sklearn.datasets import load_iris

from pkm import datasets
from pkm.datasets import bundled, registry


def test_bundled_iris_equals_the_published_file(mirror):
    content = (mirror / "iris" / "iris.data").read_bytes()
    points, labels = registry.find("iris").parse(content)
    bundled_points, bundled_labels = bundled.iris()
    np.testing.assert_array_equal(points, bundled_points)
    np.testing.assert_array_equal(labels, bundled_labels)
    published_input = np.loadtxt(mirror / "iris" / "iris.fastlloyd.txt")
    np.testing.assert_array_equal(points, published_input)


def test_only_two_rows_of_bundled_iris_are_corrected():
    points, _ = bundled.iris()
    is_changed = (points != load_iris().data).any(axis=1)
    changed = np.flatnonzero(is_changed)
    assert set(changed) <= set(bundled.UCI_IRIS_ROWS)


def test_bundled_wine_equals_the_published_file(mirror):
    content = (mirror / "wine" / "wine.data").read_bytes()
    points, labels = registry.find("wine").parse(content)
    bundled_points, bundled_labels = bundled.wine()
    np.testing.assert_array_equal(points, bundled_points)
    np.testing.assert_array_equal(labels, bundled_labels)


@pytest.mark.parametrize("name", ["iris", "wine"])
def test_changed_bundled_copy_is_refused(name, monkeypatch):
    entry = registry.find(name)
    points, labels = entry.bundled()
    points[3, 2] += 0.1
    changed = registry.Entry(**{**vars(entry), "bundled": lambda: (points, labels)})
    monkeypatch.setitem(registry.BY_NAME, name, changed)
    expected = f"{name}: the copy bundled with scikit-learn"
    with pytest.raises(datasets.ChecksumMismatch, match=expected):
        datasets.load(name)
