"""Names of generated sets, their members and fingerprints."""

import re

import numpy as np
import pytest

from pkm import datasets
from pkm.datasets.generated import families, samplers


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("half-1-16-0.05", "of 2 k=32 points in d=1 dimensions two would be 0.0435 radii apart"),
        ("half-2-1-0.05", "k=1 at least 2"),
        ("half-2-2000-0.05", "n_clusters=2000 should be at most 1024"),
        ("half-2-16-0.000", "unknown data set"),
        ("half-2-16-1", "unknown data set"),
        ("planted-1000-2-64-0.1", "radius=0.1 should be at most"),
        ("planted-small-1000-2-16-0.2-5", "radius=0.2 should be at most"),
        ("planted-1000-2-1-0", "k=1 at least 2"),
        ("planted-5-2-16-0", "k=16 is too large for n=5"),
        ("planted-1000-2-16-1.5", "unknown data set"),
        ("planted-small-1000-2-16-0.05-0", "unknown data set"),
        ("generated-cities-2", "unknown data set"),
    ],
)
def test_invalid_names_are_refused(name, message):
    with pytest.raises(ValueError, match=message):
        datasets.load(name)


def test_fingerprint_of_blobs_depends_on_make_blobs(monkeypatch):
    before = datasets.fingerprint("synth-10d")
    assert before != datasets.fingerprint("synth-100d")

    def make_blobs():
        """Another generator."""

    monkeypatch.setattr("sklearn.datasets.make_blobs", make_blobs)
    assert datasets.fingerprint("synth-10d") != before


def test_points_and_fingerprints_differ_between_names():
    names = [
        "synth-2-2-0",
        "synth-2-2-1",
        "synthk-2-0",
        "synthk-2-1",
        "ablation-2-2-0.25",
        "ablation-2-2-0.5",
    ]
    loaded = [datasets.load(name) for name in names]
    assert len({dataset.fingerprint for dataset in loaded}) == len(names)
    assert len({dataset.points[0].tobytes() for dataset in loaded}) == len(names)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("synth-1-2-0", "k=1 at least 2"),
        ("synth-2-1-0", "d=1 should be at least 2"),
        ("synth-141-2-0", "k=141 is too large for n=10000; at most 140"),
        ("synth-2-2-0-o101", "101 outliers should be at most 100"),
        ("synth-2-9999-0", "d=9999 should be at most 4096"),
        ("ablation-2-2-0.0", "separation=0.0 should be between 0 and 1"),
        ("timesynth-3-5-2", "k=5 is too large for n=3"),
        ("blobs-5-2-6", "k=6 is too large for n=5"),
        ("blobs-5-2-1", "k=1 at least 2"),
        ("blobs-10000000-4096-2", "n=10000000 times d=4096 should be at most 1000000000"),
        ("blobs-100-2", "unknown data set"),
        ("synth-20d", "unknown data set"),
        ("synth-02-2-0", "unknown data set"),
        ("synth-2-2", "unknown data set"),
        ("g2-2-10-made", "unknown data set"),
    ],
)
def test_names_with_invalid_numbers_are_refused(name, message):
    for function in (datasets.load, datasets.fingerprint, datasets.why_unavailable):
        with pytest.raises(ValueError, match=re.escape(message)):
            function(name)


def test_families_contain_the_sets_of_the_paper():
    counts = {family.name: len(family.members) for family in families.FAMILIES}
    assert counts == {
        "g2": 110,
        "synth": 135,
        "synthk": 21,
        "ablation": 48,
        "timesynth": 8,
        "blobs": 2,
        "sklearn": 12,
        "gaussians": 1,
        "cities": 1,
        "visits": 2,
        "planted": 1,
        "planted-small": 1,
        "half": 1,
    }
    for family in families.FAMILIES:
        for name in family.members:
            assert families.find(name)[0] is family


def test_gaussian_has_a_name_of_its_family():
    assert datasets.fingerprint("gaussian-10") == datasets.fingerprint("gaussians-30000-10-10")
    assert datasets.fingerprint("gaussian-10") != datasets.fingerprint("gaussians-30000-10-9")
    first = datasets.load("gaussians-100-3-7")
    second = datasets.load("gaussians-100-3-7")
    np.testing.assert_array_equal(first.points, second.points)
    sizes = np.bincount(first.labels)
    assert sizes.max() - sizes.min() == 1


def test_fingerprint_of_gaussian_depends_on_its_division(monkeypatch):
    before = datasets.fingerprint("gaussian-10")

    def divide_by_largest(points):
        """Another division."""

    monkeypatch.setattr(samplers, "divide_by_largest", divide_by_largest)
    assert datasets.fingerprint("gaussian-10") != before
