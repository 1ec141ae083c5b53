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
from pkm.datasets.registry import G2_HASHES

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
    # Those of the unlearning and of the distance-based paper have tests of their own.
    others = {f"{name}{ending}" for name in ("shuttle", "skin") for ending in ("", "-class")}
    others |= {"s2", "s3", "s4", "brightkite", "gowalla", "rangequeries"}
    entries = [
        entry for entry in registry.ENTRIES if not entry.prescaled and entry.name not in others
    ]
    shapes = {entry.name: (entry.n, entry.d, entry.n_clusters) for entry in entries}
    assert shapes == SHAPES | {
        f"{images}-embeddings": (60000, 40, 10) for images in ("mnist", "fashion")
    }


@pytest.mark.parametrize("name", SHAPES)
def test_loaded_data_have_the_shape_of_the_papers_tables(name, mirror):
    dataset = datasets.load(name, mirror=mirror)
    assert (*dataset.points.shape, dataset.n_clusters) == SHAPES[name]
    assert dataset.points.dtype == np.float64 and dataset.points.flags.c_contiguous
    assert dataset.fingerprint == datasets.fingerprint(name)
    assert dataset.origin == ("bundled" if name in ("iris", "wine") else "mirror")
    if name in CLASS_SIZES:
        assert np.bincount(dataset.labels).tolist() == CLASS_SIZES[name]


@pytest.mark.parametrize("name", [*SHAPES, "g2-2-100", "g2-256-100"])
def test_the_public_domain_holds_every_published_point(name, mirror):
    dataset = datasets.load(name, mirror=mirror)
    assert np.all((dataset.points >= dataset.domain[0]) & (dataset.points <= dataset.domain[1]))


@pytest.mark.parametrize("name", [*SHAPES, "g2-2-10"])
def test_the_public_domain_is_not_the_range_of_the_points(name, mirror):
    # Columns whose scale is used to its ends (scores, bytes, digits) may coincide, a whole set of
    # measurements not.
    dataset = datasets.load(name, mirror=mirror)
    tight = (dataset.domain[0] == dataset.points.min(axis=0)) & (
        dataset.domain[1] == dataset.points.max(axis=0)
    )
    if name in ("gas", *TABLE_2) and name not in ("breast", "mnist"):
        assert not tight.all()
    assert registry.find(name).reason


def test_bundled_iris_equals_the_published_file(mirror):
    content = (mirror / "iris" / "iris.data").read_bytes()
    points, labels = parsers.iris(content)
    np.testing.assert_array_equal(points, bundled.iris()[0])
    np.testing.assert_array_equal(labels, bundled.iris()[1])
    np.testing.assert_array_equal(points, np.loadtxt(mirror / "iris" / "iris.fastlloyd.txt"))


def test_only_the_two_known_rows_of_bundled_iris_are_corrected():
    changed = np.flatnonzero((bundled.iris()[0] != load_iris().data).any(axis=1))
    assert set(changed) <= set(bundled.UCI_IRIS_ROWS)


def test_bundled_wine_equals_the_published_file(mirror):
    points, labels = parsers.wine((mirror / "wine" / "wine.data").read_bytes())
    np.testing.assert_array_equal(points, bundled.wine()[0])
    np.testing.assert_array_equal(labels, bundled.wine()[1])


@pytest.mark.parametrize("name", ["iris", "wine"])
def test_a_changed_bundled_copy_is_refused(name, monkeypatch):
    entry = registry.find(name)
    points, labels = entry.bundled()
    points[3, 2] += 0.1
    changed = registry.Entry(**{**vars(entry), "bundled": lambda: (points, labels)})
    monkeypatch.setitem(registry.BY_NAME, name, changed)
    with pytest.raises(
        datasets.ChecksumMismatch, match=f"{name}: the copy bundled with scikit-learn"
    ):
        datasets.load(name)


def test_adult_equals_the_papers_input_row_for_row(mirror):
    theirs = np.loadtxt(mirror / "adult" / "adult.fastlloyd.txt.gz")
    np.testing.assert_array_equal(datasets.load("adult", mirror=mirror).points, theirs)


def test_lsun_equals_the_papers_input(mirror):
    theirs = np.loadtxt(mirror / "lsun" / "lsun.fastlloyd.txt")
    np.testing.assert_array_equal(datasets.load("lsun", mirror=mirror).points, theirs)


def test_s1_equals_the_published_file(mirror):
    np.testing.assert_array_equal(
        datasets.load("s1", mirror=mirror).points, np.loadtxt(mirror / "s-sets" / "s1.txt")
    )


def test_s1_labels_belong_to_its_rows(mirror):
    # Labels come from another collection than the points: in the right order they explain nearly
    # all the variance.
    dataset = datasets.load("s1", mirror=mirror)
    assert np.bincount(dataset.labels).min() >= 300
    means = np.stack([dataset.points[dataset.labels == i].mean(axis=0) for i in range(15)])
    within = np.mean((dataset.points - means[dataset.labels]) ** 2)
    assert within < 0.05 * dataset.points.var(axis=0).mean()


def test_birch2_is_a_subset_of_the_published_points(mirror):
    # Some points occur more than once in the 100,000, so the copies are counted: none is drawn
    # twice.
    whole = Counter(map(tuple, np.loadtxt(mirror / "birch2" / "birch2.txt.gz")))
    ours = Counter(map(tuple, datasets.load("birch2", mirror=mirror).points))
    assert ours.total() == 25000 and whole.total() == 100000
    assert ours <= whole


def test_breast_keeps_the_rows_with_a_missing_score(mirror):
    with (mirror / "breast" / "breast-cancer-wisconsin.data").open() as stream:
        rows = [row for row in csv.reader(stream) if row]
    missing = [i for i, row in enumerate(rows) if "?" in row]
    points = datasets.load("breast", mirror=mirror).points
    assert len(missing) == 16
    np.testing.assert_array_equal(points[missing, 5], 1.0)
    complete = [i for i in range(699) if i not in missing]
    np.testing.assert_array_equal(
        points[complete], [[float(x) for x in rows[i][1:10]] for i in complete]
    )


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
    ones = images[dataset.labels == 1].mean(axis=0)
    # A one is a vertical stroke: higher than wide.
    assert np.sum(ones.max(axis=1) > 50) > np.sum(ones.max(axis=0) > 50)


def test_letters_are_in_the_published_order(mirror):
    dataset = datasets.load("letters", mirror=mirror)
    assert dataset.points[0].tolist() == [2, 8, 3, 5, 1, 8, 13, 0, 6, 6, 10, 8, 0, 8, 0, 8]
    # T, I, D, N, G.
    assert dataset.labels[:5].tolist() == [19, 8, 3, 13, 6]
    assert len(np.unique(dataset.points, axis=0)) == 18668


def test_resampled_letters_are_rows_of_their_own_letter_and_repeat(mirror):
    whole, drawn = (datasets.load(name, mirror=mirror) for name in ("letters", "letters-18720"))
    published = {
        (*row, label)
        for row, label in zip(whole.points.tolist(), whole.labels.tolist(), strict=True)
    }
    rows = {
        (*row, label)
        for row, label in zip(drawn.points.tolist(), drawn.labels.tolist(), strict=True)
    }
    assert rows <= published
    assert len(np.unique(drawn.points, axis=0)) == 11_597
    # The rows are shuffled: among the first two hundred there are rows of nearly every letter.
    assert len(np.unique(drawn.labels[:200])) > 20


def test_resampling_follows_the_stated_draws(mirror):
    # The same draws, made one row at a time from the file.
    with (mirror / "letters" / "letter-recognition.data").open() as stream:
        rows = [line.strip().split(",") for line in stream]
    generator = np.random.default_rng(42)
    drawn = []
    for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ":
        own = [row for row in rows if row[0] == letter]
        drawn += [own[i] for i in generator.integers(0, len(own), size=720)]
    expected = [drawn[i] for i in generator.permutation(18_720)]
    dataset = datasets.load("letters-18720", mirror=mirror)
    np.testing.assert_array_equal(
        dataset.points, [[float(value) for value in row[1:]] for row in expected]
    )
    assert [chr(ord("A") + label) for label in dataset.labels] == [row[0] for row in expected]


def test_gas_has_the_years_in_order_and_no_labels(mirror):
    dataset = datasets.load("gas", mirror=mirror)
    assert dataset.labels is None
    first = [
        np.loadtxt(mirror / "gas" / f"gt_{year}.csv", delimiter=",", skiprows=1)
        for year in range(2011, 2016)
    ]
    assert [len(rows) for rows in first] == [7411, 7628, 7152, 7158, 7384]
    np.testing.assert_array_equal(dataset.points, np.concatenate(first))


def test_the_range_of_gas_is_its_own_extremes_and_flagged(mirror):
    dataset = datasets.load("gas", mirror=mirror)
    assert dataset.common_range == (-6.23, 1100.9) and dataset.common_range_is_private
    scaled = datasets.scale(dataset, "range")
    # One temperature lies below the rounded minimum.
    assert scaled.clipped == 1 and scaled.uses_private_bounds
    assert dataset.points.min() == -6.2348 and dataset.points.max() == 1100.9
    assert not datasets.scale(dataset, "public").uses_private_bounds


@pytest.mark.parametrize("name", ["letters", "letters-18720"])
def test_the_range_of_letters_is_the_public_domain(name, mirror):
    dataset = datasets.load(name, mirror=mirror)
    assert dataset.common_range == (0, 15) and not dataset.common_range_is_private
    scaled = datasets.scale(dataset, "range", clip=False)
    assert not scaled.uses_private_bounds
    np.testing.assert_array_equal(scaled.points, datasets.scale(dataset, "public").points)


def test_parsers_of_one_file_have_separate_fingerprints(monkeypatch):
    assert datasets.fingerprint("letters") != datasets.fingerprint("letters-18720")
    before = datasets.fingerprint("letters-18720")
    monkeypatch.setattr(parsers, "LETTERS_SEED", 43)
    assert datasets.fingerprint("letters-18720") != before


def test_every_hash_is_the_one_of_the_mirrors_manifest(mirror):
    with (mirror / "MANIFEST.csv").open() as stream:
        manifest = {row["file"]: row["sha256"] for row in csv.DictReader(stream)}
    entries = [*registry.ENTRIES, *(registry.g2_entry(name) for name in G2_HASHES)]
    for file in (file for entry in entries for file in entry.files if file.sha256):
        if file.gz_sha256:
            assert manifest[f"{file.path}.gz"] == file.gz_sha256
        else:
            assert manifest[file.path] == file.sha256
    assert len(G2_HASHES) == sum(name.startswith("g2/") for name in manifest)


def test_a_g2_name_stands_for_a_file_exactly_where_its_hash_is_known():
    assert registry.find("g2-2-10") and not registry.find("g2-1024-10")
    assert datasets.load("g2-1024-10").origin == "generated"
    with pytest.raises(datasets.DataUnavailable, match="g2-2-10-generated"):
        datasets.load("g2-2-10")


def test_every_entry_says_who_made_it_and_where_it_is_published():
    for entry in registry.ENTRIES:
        assert entry.license and entry.citation and entry.reason
        assert all(url.startswith("http") for file in entry.files for url in file.urls)
        assert all(bool(file.urls) != bool("http" in file.source) for file in entry.files)
        assert all(
            file.sha256 is None or re.fullmatch("[0-9a-f]{64}", file.sha256) for file in entry.files
        )
        # What nobody has seen is not downloaded: its hash could not be checked.
        assert not any(file.urls for file in entry.files if file.sha256 is None)


def test_fingerprints_change_with_hash_parser_and_domain():
    entry = registry.find("yeast")
    changed_file = registry.File(**{**vars(entry.files[0]), "sha256": "0" * 64})
    variants = [
        entry,
        registry.Entry(**{**vars(entry), "files": (changed_file,)}),
        registry.Entry(**{**vars(entry), "parse": parsers.numbers}),
        registry.Entry(**{**vars(entry), "upper": (2.0,) * 8}),
        registry.Entry(**{**vars(entry), "common_range": (0.0, 1.0)}),
        registry.Entry(
            **{**vars(entry), "common_range": (0.0, 1.0), "common_range_is_private": True}
        ),
    ]
    assert len({registry.fingerprint(variant) for variant in variants}) == 6
    # Citing better changes no result.
    assert registry.fingerprint(
        registry.Entry(**{**vars(entry), "citation": ""})
    ) == registry.fingerprint(entry)


def test_fingerprint_reads_no_file(monkeypatch):
    def refuse(*_):
        raise AssertionError("a fingerprint must not read the data")

    monkeypatch.setattr("pkm.datasets.sources.read_checked", refuse)
    monkeypatch.setattr("pkm.datasets.bundled.digest", refuse)
    assert len({datasets.fingerprint(name) for name in SHAPES}) == len(SHAPES)


def test_entry_refuses_bounds_of_another_width():
    entry = registry.find("iris")
    with pytest.raises(ValueError, match="iris: bounds of 3 and 4 columns, d=4"):
        registry.Entry(**{**vars(entry), "lower": (0.0,) * 3})


def test_unknown_name_lists_the_known_ones():
    for function in (datasets.load, datasets.fingerprint, datasets.obtainable):
        with pytest.raises(
            ValueError, match=r"unknown data set 'irsi'; known are iris, lsun, .*synth-<k>.*, file"
        ):
            function("irsi")


@pytest.mark.parametrize("n_clusters", [0, -1, 151, 2.5, True, "3"])
def test_wrong_number_of_clusters_is_refused(n_clusters):
    with pytest.raises(ValueError, match=re.escape(f"iris: n_clusters={n_clusters!r} should be")):
        datasets.load("iris", n_clusters=n_clusters)


def test_number_of_clusters_can_be_given():
    assert datasets.load("iris", n_clusters=150).n_clusters == 150


@pytest.mark.parametrize("argument", ["path", "bounds"])
def test_path_and_bounds_go_with_files_only(argument):
    with pytest.raises(ValueError, match=f"{argument}='x' goes with the data set 'file' only"):
        datasets.load("iris", **{argument: "x"})
