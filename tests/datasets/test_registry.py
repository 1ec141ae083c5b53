"""Published data sets: shapes of the papers, agreement of independent copies, domains,
fingerprints.
"""

import csv
import re
from collections import Counter

import numpy as np
import pytest
from sklearn.datasets import load_iris

from pkm import datasets
from pkm.datasets import bundled, parsers, registry
from pkm.datasets.registry import G2_FILES

# Table 2 of the FastLloyd paper: N, d, k.
TABLE_2 = {
    "iris": (150, 4, 3),
    "lsun": (400, 2, 3),
    "s1": (5000, 2, 15),
    "house": (1837, 3, 3),
    "adult": (48842, 6, 3),
    "wine": (178, 13, 3),
    "breast": (699, 9, 2),
    "yeast": (1484, 8, 10),
    "mnist": (10000, 784, 10),
    "birch2": (25000, 2, 100),
}
# Table 1 of the DPM paper, and all the rows of the letters.
TABLE_1 = {"letters": (20000, 16, 26), "letters-18720": (18720, 16, 26), "gas": (36733, 11, 2)}
SHAPES = TABLE_2 | TABLE_1
CLASS_SIZES = {
    "letters-18720": [720] * 26,
    "iris": [50, 50, 50],
    "lsun": [200, 100, 100],
    "adult": [37155, 11687],
    "wine": [59, 71, 48],
    "breast": [458, 241],
    "mnist": [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
}


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PKM_CACHE", str(tmp_path / "cache"))
    for name in ("PKM_DATA", "PKM_DOWNLOAD"):
        monkeypatch.delenv(name, raising=False)


def test_registry_declares_the_papers_tables():
    # The sets of the unlearning, the distance-based and the PE-means paper have separate tests.
    tested_elsewhere = {
        "shuttle", "shuttle-class", "skin", "skin-class",
        "s2", "s3", "s4", "brightkite", "gowalla", "gowalla-subset", "rangequeries", "gas-years",
    }  # fmt: skip
    shapes = {
        entry.name: (entry.n, entry.d, entry.n_clusters)
        for entry in registry.ENTRIES
        if not (entry.prescaled or entry.comparison or entry.name in tested_elsewhere)
    }
    embeddings = {"mnist-embeddings": (60000, 40, 10), "fashion-embeddings": (60000, 40, 10)}
    assert shapes == SHAPES | embeddings


@pytest.mark.parametrize("name", SHAPES)
def test_loaded_data_have_the_published_shape(name, mirror):
    dataset = datasets.load(name, mirror=mirror)
    assert (*dataset.points.shape, dataset.n_clusters) == SHAPES[name]
    assert dataset.points.dtype == np.float64
    assert dataset.points.flags.c_contiguous
    assert dataset.fingerprint == datasets.fingerprint(name)
    assert dataset.origin == ("bundled" if name in ("iris", "wine") else "mirror")
    if name in CLASS_SIZES:
        assert np.bincount(dataset.labels).tolist() == CLASS_SIZES[name]


@pytest.mark.parametrize("name", [*SHAPES, "g2-2-100", "g2-256-100"])
def test_public_domain_contains_every_published_point(name, mirror):
    dataset = datasets.load(name, mirror=mirror)
    lower, upper = dataset.domain
    assert np.all((dataset.points >= lower) & (dataset.points <= upper))


@pytest.mark.parametrize("name", [*SHAPES, "g2-2-10"])
def test_public_domain_is_not_the_range_of_points(name, mirror):
    # Columns whose scale is used to its ends (scores, bytes, digits) may coincide, a whole set of
    # measurements not.
    dataset = datasets.load(name, mirror=mirror)
    lower, upper = dataset.domain
    tight = (lower == dataset.points.min(axis=0)) & (upper == dataset.points.max(axis=0))
    if name in ("gas", *TABLE_2) and name not in ("breast", "mnist"):
        assert not tight.all()
    assert registry.find(name).reason


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


def test_adult_equals_the_published_input(mirror):
    published_input = np.loadtxt(mirror / "adult" / "adult.fastlloyd.txt.gz")
    points = datasets.load("adult", mirror=mirror).points
    np.testing.assert_array_equal(points, published_input)


def test_lsun_equals_the_published_input(mirror):
    published_input = np.loadtxt(mirror / "lsun" / "lsun.fastlloyd.txt")
    points = datasets.load("lsun", mirror=mirror).points
    np.testing.assert_array_equal(points, published_input)


def test_s1_equals_the_published_file(mirror):
    published = np.loadtxt(mirror / "s-sets" / "s1.txt")
    points = datasets.load("s1", mirror=mirror).points
    np.testing.assert_array_equal(points, published)


def test_s1_labels_match_its_rows(mirror):
    # Labels come from another collection than the points: in the right order they explain nearly
    # all the variance.
    dataset = datasets.load("s1", mirror=mirror)
    assert np.bincount(dataset.labels).min() >= 300
    means = [dataset.points[dataset.labels == label].mean(axis=0) for label in range(15)]
    residuals = dataset.points - np.stack(means)[dataset.labels]
    within = np.mean(residuals**2)
    assert within < 0.05 * dataset.points.var(axis=0).mean()


def test_birch2_is_a_subset_of_the_published_points(mirror):
    # Some points occur more than once in the 100,000, so the copies are counted: the sample is
    # drawn without replacement.
    published_points = np.loadtxt(mirror / "birch2" / "birch2.txt.gz")
    sampled_points = datasets.load("birch2", mirror=mirror).points
    published = Counter(map(tuple, published_points))
    sampled = Counter(map(tuple, sampled_points))
    assert sampled.total() == 25000
    assert published.total() == 100000
    assert sampled <= published


def test_breast_keeps_the_rows_with_a_missing_score(mirror):
    with (mirror / "breast" / "breast-cancer-wisconsin.data").open() as stream:
        rows = [row for row in csv.reader(stream) if row]
    missing = [i for i, row in enumerate(rows) if "?" in row]
    points = datasets.load("breast", mirror=mirror).points
    assert len(missing) == 16
    np.testing.assert_array_equal(points[missing, 5], 1.0)
    complete = [i for i in range(699) if i not in missing]
    scores = np.array([rows[i][1:10] for i in complete], dtype=float)
    np.testing.assert_array_equal(points[complete], scores)


def test_house_colors_have_five_bits(mirror):
    points = datasets.load("house", mirror=mirror).points
    assert np.all(points % 8 == 0)
    assert len(np.unique(points, axis=0)) == 1837


def test_mnist_pixels_are_in_reading_order(mirror):
    # Digits are centered in a frame of four pixels' width that is always empty in the corners.
    dataset = datasets.load("mnist", mirror=mirror)
    images = dataset.points.reshape(-1, 28, 28)
    assert images[:, 0, 0].max() == images[:, -1, -1].max() == 0
    assert dataset.labels[:5].tolist() == [7, 2, 1, 0, 4]
    # The digit 1 is a vertical stroke: its height exceeds its width.
    mean_image = images[dataset.labels == 1].mean(axis=0)
    height = np.sum(mean_image.max(axis=1) > 50)
    width = np.sum(mean_image.max(axis=0) > 50)
    assert height > width


def test_letters_are_in_the_published_order(mirror):
    dataset = datasets.load("letters", mirror=mirror)
    assert dataset.points[0].tolist() == [2, 8, 3, 5, 1, 8, 13, 0, 6, 6, 10, 8, 0, 8, 0, 8]
    # T, I, D, N, G.
    assert dataset.labels[:5].tolist() == [19, 8, 3, 13, 6]
    assert len(np.unique(dataset.points, axis=0)) == 18668


def labeled_rows(dataset):
    """Set of the distinct points with their labels."""
    rows = np.column_stack([dataset.points, dataset.labels])
    return set(map(tuple, rows.tolist()))


def test_resampled_letters_repeat_published_rows(mirror):
    published = datasets.load("letters", mirror=mirror)
    resampled = datasets.load("letters-18720", mirror=mirror)
    assert labeled_rows(resampled) <= labeled_rows(published)
    assert len(np.unique(resampled.points, axis=0)) == 11_597
    # The rows are shuffled: among the first two hundred there are rows of nearly every letter.
    assert len(np.unique(resampled.labels[:200])) > 20


def test_resampling_follows_the_stated_draws(mirror):
    # The same draws, made one row at a time from the file.
    with (mirror / "letters" / "letter-recognition.data").open() as stream:
        rows = [line.strip().split(",") for line in stream]
    generator = np.random.default_rng(42)
    drawn = []
    for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ":
        candidates = [row for row in rows if row[0] == letter]
        indices = generator.integers(0, len(candidates), size=720)
        drawn += [candidates[i] for i in indices]
    expected = [drawn[i] for i in generator.permutation(18_720)]
    expected_points = np.array([row[1:] for row in expected], dtype=float)
    expected_letters = [row[0] for row in expected]
    dataset = datasets.load("letters-18720", mirror=mirror)
    np.testing.assert_array_equal(dataset.points, expected_points)
    letters = [chr(ord("A") + label) for label in dataset.labels]
    assert letters == expected_letters


def test_gas_has_ordered_years_and_no_labels(mirror):
    dataset = datasets.load("gas", mirror=mirror)
    assert dataset.labels is None
    paths = [mirror / "gas" / f"gt_{year}.csv" for year in range(2011, 2016)]
    tables = [np.loadtxt(path, delimiter=",", skiprows=1) for path in paths]
    assert [len(table) for table in tables] == [7411, 7628, 7152, 7158, 7384]
    np.testing.assert_array_equal(dataset.points, np.concatenate(tables))


def test_gas_with_years_has_them_before_the_sensors(mirror):
    dataset = datasets.load("gas-years", mirror=mirror)
    np.testing.assert_array_equal(dataset.points[:, 1:], datasets.load("gas", mirror=mirror).points)
    years, counts = np.unique(dataset.points[:, 0], return_counts=True)
    assert years.tolist() == [2011, 2012, 2013, 2014, 2015]
    assert (np.diff(dataset.points[:, 0]) >= 0).all()
    assert counts.sum() == 36_733
    assert dataset.n_clusters == 6


def test_range_of_gas_is_private_and_flagged(mirror):
    dataset = datasets.load("gas", mirror=mirror)
    assert dataset.common_range == (-6.23, 1100.9)
    assert dataset.common_range_is_private
    scaled = datasets.scale(dataset, "range")
    # One temperature lies below the rounded minimum.
    assert scaled.clipped == 1
    assert scaled.uses_private_bounds
    assert dataset.points.min() == -6.2348
    assert dataset.points.max() == 1100.9
    assert not datasets.scale(dataset, "public").uses_private_bounds


@pytest.mark.parametrize("name", ["letters", "letters-18720"])
def test_range_of_letters_is_the_public_domain(name, mirror):
    dataset = datasets.load(name, mirror=mirror)
    assert dataset.common_range == (0, 15)
    assert not dataset.common_range_is_private
    scaled = datasets.scale(dataset, "range", clip=False)
    assert not scaled.uses_private_bounds
    expected = datasets.scale(dataset, "public").points
    np.testing.assert_array_equal(scaled.points, expected)


def test_parsers_of_one_file_have_separate_fingerprints(monkeypatch):
    assert datasets.fingerprint("letters") != datasets.fingerprint("letters-18720")
    before = datasets.fingerprint("letters-18720")
    monkeypatch.setattr(parsers, "LETTERS_SEED", 43)
    assert datasets.fingerprint("letters-18720") != before


def test_hashes_equal_those_of_the_mirror_manifest(mirror):
    with (mirror / "MANIFEST.csv").open() as stream:
        manifest = {row["file"]: row["sha256"] for row in csv.DictReader(stream)}
    entries = [*registry.ENTRIES, *(registry.find_g2(name) for name in G2_FILES)]
    files = [file for entry in entries for file in entry.files]
    for file in files:
        if not file.sha256:
            continue
        if file.gz_sha256:
            assert manifest[f"{file.path}.gz"] == file.gz_sha256
        else:
            assert manifest[file.path] == file.sha256
    n_g2_files = sum(name.startswith("g2/") for name in manifest)
    assert len(G2_FILES) == n_g2_files


def test_g2_names_with_known_hashes_refer_to_files():
    assert registry.find("g2-2-10")
    assert not registry.find("g2-1024-10")
    assert datasets.load("g2-1024-10").origin == "generated"
    with pytest.raises(datasets.DataUnavailable, match="g2-2-10-generated"):
        datasets.load("g2-2-10")


def test_every_entry_states_its_license_and_origin():
    for entry in registry.ENTRIES:
        assert entry.license
        assert entry.citation
        assert entry.reason
        for file in entry.files:
            assert all(url.startswith("http") for url in file.urls)
            assert bool(file.urls) != ("http" in file.source)
            if file.sha256 is None:
                # Such a file is downloaded over HTTPS alone, and kept if its points fit.
                assert all(url.startswith("https://") for url in file.urls)
            else:
                assert file.size
                assert re.fullmatch("[0-9a-f]{64}", file.sha256)


def test_fingerprint_depends_on_hash_parser_and_domain():
    entry = registry.find("yeast")
    changed_file = registry.File(**{**vars(entry.files[0]), "sha256": "0" * 64})

    def changed(**fields):
        return registry.Entry(**{**vars(entry), **fields})

    variants = [
        entry,
        changed(files=(changed_file,)),
        changed(parse=parsers.numbers),
        changed(upper=(2.0,) * 8),
        changed(common_range=(0.0, 1.0)),
        changed(common_range=(0.0, 1.0), common_range_is_private=True),
    ]
    fingerprints = {registry.fingerprint(variant) for variant in variants}
    assert len(fingerprints) == 6
    # The citation changes no result.
    without_citation = changed(citation="")
    assert registry.fingerprint(without_citation) == registry.fingerprint(entry)


def test_fingerprint_reads_no_file(monkeypatch):
    def refuse(*_):
        raise AssertionError("a fingerprint must not read the data")

    monkeypatch.setattr("pkm.datasets.sources.read_checked", refuse)
    monkeypatch.setattr("pkm.datasets.bundled.digest", refuse)
    fingerprints = {datasets.fingerprint(name) for name in SHAPES}
    assert len(fingerprints) == len(SHAPES)


def test_entry_refuses_bounds_of_another_width():
    entry = registry.find("iris")
    with pytest.raises(ValueError, match="iris: bounds of 3 and 4 columns with 4 reasons, d=4"):
        registry.Entry(**{**vars(entry), "lower": (0.0,) * 3})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("irsi", r"unknown data set 'irsi'; did you mean 'iris'\?$"),
        ("Iris", r"unknown data set 'Iris'; did you mean 'iris'\?$"),
        ("polygons", r"unknown data set 'polygons'; known are iris, lsun, .*synth-<k>.*, file$"),
    ],
)
def test_error_for_unknown_name_suggests_or_lists_known_names(name, expected):
    for function in (datasets.load, datasets.fingerprint, datasets.obtainable):
        with pytest.raises(ValueError, match=expected):
            function(name)


@pytest.mark.parametrize("n_clusters", [0, -1, 151, 2.5, True, "3"])
def test_wrong_number_of_clusters_is_refused(n_clusters):
    expected = re.escape(f"iris: n_clusters={n_clusters!r} should be")
    with pytest.raises(ValueError, match=expected):
        datasets.load("iris", n_clusters=n_clusters)


def test_number_of_clusters_can_be_given():
    dataset = datasets.load("iris", n_clusters=150)
    assert dataset.n_clusters == 150


@pytest.mark.parametrize("argument", ["path", "bounds"])
def test_path_and_bounds_are_for_files_only(argument):
    with pytest.raises(ValueError, match=f"{argument}='x' goes with the data set 'file' only"):
        datasets.load("iris", **{argument: "x"})
