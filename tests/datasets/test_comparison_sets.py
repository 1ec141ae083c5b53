"""Data sets for comparisons of methods, which no paper here uses."""

import numpy as np
import pytest

from pkm import datasets
from pkm.datasets import parsers, registry

# Points, columns, default k, rows outside the public domain, number of classes (0: no labels).
SETS = {
    "radius-queries": (50_000, 3, 5, 4, 0),
    "radius-queries-count": (10_000, 3, 5, 0, 0),
    "kddcup99-http": (567_498, 3, 4, 0, 2),
    "kddcup99-smtp": (95_156, 3, 4, 0, 2),
    "cover": (286_048, 10, 7, 0, 2),
    "htru2": (17_898, 8, 2, 0, 2),
    "avila": (20_867, 10, 12, 448, 12),
    "drybean": (13_611, 16, 7, 0, 7),
    "credit": (30_000, 23, 4, 6, 2),
    "quakes": (9366, 4, 8, 0, 0),
    "texture": (5500, 40, 11, 0, 11),
    "spambase": (4597, 57, 2, 2, 2),
    "birch1": (100_000, 2, 100, 0, 100),
    "a3": (7500, 2, 50, 0, 50),
    "unbalance": (6500, 2, 8, 0, 8),
    "worms-2": (105_600, 2, 35, 0, 35),
}
# As the files' first lines print them.
FIRST_VALUES = {
    "radius-queries": [0.09002791574273482, -0.01617105315855302, 0.351215565177678],
    "radius-queries-count": [0.17044554302258635, 0.2517648519239861, 0.10456346342484697],
    "htru2": [140.5625, 55.68378214, -0.234571412, -0.699648398],
    "avila": [0.266074, -0.16562, 0.32098, 0.483299],
    "drybean": [28395, 610.291, 208.1781167, 173.888747],
    "credit": [20000, 2, 2, 1, 24, 2, 2, -1, -1, -2, -2, 3913],
    "quakes": [36.731, -116.3014, 10.8, 0],
    "texture": [-1.223, -0.798, -0.867, -0.639],
    "spambase": [0.0, 0.64, 0.64, 0.0, 0.32],
}
# Sizes of classes that the descriptions print.
CLASS_SIZES = {
    "kddcup99-http": [565_287, 2211],
    "kddcup99-smtp": [95_126, 30],
    "cover": [283_301, 2747],
    "htru2": [16_259, 1639],
    "drybean": [1322, 522, 1630, 3546, 1928, 2027, 2636],
    "texture": [500] * 11,
}

pytestmark = pytest.mark.usefixtures("cache")


def test_no_paper_uses_these_sets():
    marked = {entry.name for entry in registry.ENTRIES if entry.comparison}
    assert marked == set(SETS)


@pytest.mark.parametrize("name", SETS)
def test_declared_shape_needs_no_file(name):
    n, d, k, _, _ = SETS[name]
    entry = registry.find(name)
    assert (entry.n, entry.d, entry.n_clusters) == (n, d, k)
    assert len(entry.columns) in (0, d)
    assert f"data set '{name}' needs the file" in datasets.obtainable(name)


@pytest.mark.parametrize("name", SETS)
def test_loaded_set_has_the_declared_shape_and_domain(name, mirror):
    n, d, k, n_outside, n_classes = SETS[name]
    dataset = datasets.load(name, mirror=mirror)
    assert (*dataset.points.shape, dataset.n_clusters) == (n, d, k)
    assert dataset.fingerprint == datasets.fingerprint(name)
    scaled = datasets.scale(dataset, "public")
    assert not scaled.uses_private_bounds
    outside = np.any((dataset.points < dataset.domain[0]) | (dataset.points > dataset.domain[1]), 1)
    assert outside.sum() == n_outside
    classes = 0 if dataset.labels is None else len(np.unique(dataset.labels))
    assert classes == n_classes
    if name in CLASS_SIZES:
        assert np.bincount(dataset.labels).tolist() == CLASS_SIZES[name]


@pytest.mark.parametrize("name", FIRST_VALUES)
def test_rows_are_in_the_published_order(name, mirror):
    points = datasets.load(name, mirror=mirror).points
    values = FIRST_VALUES[name]
    assert points[0, : len(values)].tolist() == values


def test_table_reads_every_digit(mirror):
    published = np.loadtxt(mirror / "htru2" / "HTRU_2.csv.gz", delimiter=",")
    points = datasets.load("htru2", mirror=mirror).points
    np.testing.assert_array_equal(points, published[:, :8])


@pytest.mark.parametrize("name", ["birch1", "a3", "unbalance"])
def test_labels_belong_to_the_rows(name, mirror):
    dataset = datasets.load(name, mirror=mirror)
    sizes = np.bincount(dataset.labels)[:, None]
    sums = np.zeros((len(sizes), 2))
    np.add.at(sums, dataset.labels, dataset.points)
    residuals = dataset.points - (sums / sizes)[dataset.labels]
    # The clusters explain nearly all the variance: labels come in a file of their own.
    assert np.mean(residuals**2) < 0.02 * dataset.points.var(axis=0).mean()


def test_table_drops_reorders_and_takes_logarithms():
    content = b"id,b,kind,a\n7,1,y,2.5\n8,2,x,0.1\n"
    points, labels = parsers.table(
        content, header=True, columns=["a", "b"], label="kind", logarithms=[1]
    )
    np.testing.assert_array_equal(points, [[2.5, 0.0], [0.1, np.log(2.0)]])
    assert labels.tolist() == [1, 0]
    points, labels = parsers.table(content, header=True, drop=["id", "kind"])
    np.testing.assert_array_equal(points, [[1, 2.5], [2, 0.1]])
    assert labels is None


def test_table_joins_files_without_header():
    points, labels = parsers.table(b"1, 2, B\n", b"3, 4, A\n", label=2)
    assert points.tolist() == [[1, 2], [3, 4]]
    assert labels.tolist() == [1, 0]
