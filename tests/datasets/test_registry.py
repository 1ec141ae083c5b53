"""The registry: what is read from its file, what entries declare, what is refused."""

import csv
import hashlib
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from tiny_files import write_file

from pkm import datasets
from pkm.catalogue import CatalogueError, add_config_dirs
from pkm.datasets import parsers, registry
from pkm.datasets.registry import G2_ENTRIES
from pkm.files import sha256

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
    "gowalla-nyc": (138_957, 2, 10, 0, 0),
    "texture": (5500, 40, 11, 0, 11),
    "spambase": (4597, 57, 2, 2, 2),
    "birch1": (100_000, 2, 100, 0, 100),
    "a3": (7500, 2, 50, 0, 50),
    "unbalance": (6500, 2, 8, 0, 8),
    "worms-2": (105_600, 2, 35, 0, 35),
}


# Sizes of classes that the descriptions print.
COMPARISON_CLASS_SIZES = {
    "kddcup99-http": [565_287, 2211],
    "kddcup99-smtp": [95_126, 30],
    "cover": [283_301, 2747],
    "htru2": [16_259, 1639],
    "drybean": [1322, 522, 1630, 3546, 1928, 2027, 2636],
    "texture": [500] * 11,
}


@pytest.mark.parametrize("name", SETS)
def test_declared_shape_needs_no_file(name):
    n, d, k, _, _ = SETS[name]
    entry = registry.find(name)
    assert (entry.n, entry.d, entry.n_clusters) == (n, d, k)
    assert len(entry.columns) in (0, d)


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_loaded_set_has_the_declared_shape_and_domain(name, data_dir):
    n, d, k, n_outside, n_classes = SETS[name]
    dataset = datasets.load(name, data_dir=data_dir)
    assert (*dataset.points.shape, dataset.n_clusters) == (n, d, k)
    assert dataset.fingerprint == datasets.fingerprint(name)
    scaled = datasets.scale(dataset, "public")
    assert not scaled.uses_private_bounds
    outside = np.any((dataset.points < dataset.domain[0]) | (dataset.points > dataset.domain[1]), 1)
    assert outside.sum() == n_outside
    classes = 0 if dataset.labels is None else len(np.unique(dataset.labels))
    assert classes == n_classes
    if name in COMPARISON_CLASS_SIZES:
        assert np.bincount(dataset.labels).tolist() == COMPARISON_CLASS_SIZES[name]


DISTANCE_SHAPES = {
    "s2": (5000, 2, 15),
    "s3": (5000, 2, 15),
    "s4": (5000, 2, 15),
    "shuttle": (58000, 9, 7),
    "shuttle-class": (58000, 10, 7),
    "skin": (245057, 3, 2),
    "skin-class": (245057, 4, 2),
}


@pytest.mark.parametrize("name", DISTANCE_SHAPES)
def test_published_sets_have_the_declared_shape(name):
    dataset = datasets.load(name)
    assert (*dataset.points.shape, dataset.n_clusters) == DISTANCE_SHAPES[name]
    assert dataset.fingerprint == datasets.fingerprint(name)
    assert not dataset.prescaled
    assert registry.find(name).reason


def test_fingerprints_differ_between_sets():
    names = [
        "generated-cities",
        "planted-100-2-4-0",
        "planted-100-2-4-0.01",
        "planted-100-2-5-0",
        *DISTANCE_SHAPES,
    ]
    names += ["planted-small-100-2-4-0-5", "planted-small-100-2-4-0-6"]
    names += ["half-2-4-0.01", "half-2-5-0.01", "half-3-4-0.01", "half-2-4-0.02"]
    assert len({datasets.fingerprint(name) for name in names}) == len(names)


def test_every_declared_shape_fits_its_limit():
    """Points as float64, with a label and a client each, are within the limit of their file."""
    for entry in registry.ENTRIES:
        for file in entry.files:
            if file.path.endswith(".npz"):
                assert entry.n * (entry.d + 2) * 8 < file.max_bytes


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


def test_registry_declares_the_papers_tables():
    # The sets of the unlearning, the distance-based and the PE-means paper have separate tests.
    tested_elsewhere = {
        "shuttle", "shuttle-class", "skin", "skin-class",
        "s2", "s3", "s4", "brightkite", "gowalla", "gowalla-subset", "rangequeries", "gas-years",
    }  # fmt: skip
    shapes = {
        entry.name: (entry.n, entry.d, entry.n_clusters)
        for entry in registry.ENTRIES
        if not (entry.prescaled or entry.name in tested_elsewhere | SETS.keys())
    }
    embeddings = {"mnist-embeddings": (60000, 40, 10), "fashion-embeddings": (60000, 40, 10)}
    assert shapes == SHAPES | embeddings


@pytest.mark.parametrize("name", SHAPES)
def test_loaded_data_have_the_published_shape(name):
    dataset = datasets.load(name)
    assert (*dataset.points.shape, dataset.n_clusters) == SHAPES[name]
    assert dataset.points.dtype == np.float64
    assert dataset.points.flags.c_contiguous
    assert dataset.fingerprint == datasets.fingerprint(name)
    assert dataset.origin == "bundled"
    if name in CLASS_SIZES:
        assert np.bincount(dataset.labels).tolist() == CLASS_SIZES[name]


@pytest.mark.parametrize("name", [*SHAPES, "g2-2-100", "g2-256-100"])
def test_public_domain_contains_every_published_point(name, data_dir):
    dataset = datasets.load(name, data_dir=data_dir)
    lower, upper = dataset.domain
    assert np.all((dataset.points >= lower) & (dataset.points <= upper))


@pytest.mark.parametrize("name", [*SHAPES, "g2-2-10"])
def test_public_domain_is_not_the_range_of_points(name):
    # Columns whose scale is used to its ends (scores, bytes, digits) may coincide, a whole set of
    # measurements not.
    dataset = datasets.load(name)
    lower, upper = dataset.domain
    tight = (lower == dataset.points.min(axis=0)) & (upper == dataset.points.max(axis=0))
    if name in ("gas", *TABLE_2) and name not in ("breast", "mnist"):
        assert not tight.all()
    assert registry.find(name).reason


def test_range_of_gas_is_private_and_flagged():
    dataset = datasets.load("gas")
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
def test_range_of_letters_is_the_public_domain(name):
    dataset = datasets.load(name)
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


def test_hashes_equal_those_of_the_manifest(data_dir):
    with (data_dir / "MANIFEST.csv").open() as stream:
        manifest = {row["file"]: row["sha256"] for row in csv.DictReader(stream)}
    entries = [*registry.ENTRIES, *G2_ENTRIES.values()]
    files = [file for entry in entries for file in entry.files]
    for file in files:
        if not file.sha256:
            continue
        if file.gz_sha256:
            assert manifest[f"{file.path}.gz"] == file.gz_sha256
        else:
            assert manifest[file.path] == file.sha256
    n_g2_files = sum(name.startswith("g2/") for name in manifest)
    assert len(G2_ENTRIES) == n_g2_files


def test_g2_names_with_known_hashes_refer_to_files():
    assert registry.find("g2-2-10")
    assert not registry.find("g2-1024-10")
    assert datasets.load("g2-1024-10").origin == "generated"
    with pytest.raises(datasets.DataUnavailable, match="g2-128-10-generated"):
        datasets.load("g2-128-10")


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
    monkeypatch.setattr("pkm.datasets.bundled.read", refuse)
    fingerprints = {datasets.fingerprint(name) for name in SHAPES}
    assert len(fingerprints) == len(SHAPES)


VALID = """
[tiny]
title = "three points"
n = 3
d = 2
k = 2
parser = "table"
license = "none"
citation = "nobody"
domain = [
  { columns = ["x"], lower = 0, upper = 9, reason = "digits" },
  { columns = ["y"], lower = -1, upper = 1, reason = "signs" },
]
[[tiny.files]]
path = "tiny/tiny.txt"
source = "http://example.org"
"""


def read(tmp_path, text):
    path = tmp_path / "registry.toml"
    path.write_text(text, encoding="utf-8")
    return registry.read_registry(path)


def test_entry_has_bounds_names_and_reasons_per_column(tmp_path):
    (entry,) = read(tmp_path, VALID)
    assert (entry.name, entry.n, entry.d, entry.n_clusters) == ("tiny", 3, 2, 2)
    assert entry.columns == ("x", "y")
    assert entry.domain().tolist() == [[0, -1], [9, 1]]
    assert entry.reasons == ("digits", "signs")
    assert entry.reason == "digits; signs"
    assert entry.parse is parsers.table
    assert entry.files == (registry.File("tiny/tiny.txt", None, source="http://example.org"),)
    assert not (entry.prescaled or entry.is_transform_fitted or entry.restricted)


def test_run_of_columns_may_be_counted(tmp_path):
    counted = VALID.replace('["x"]', "1").replace('["y"]', "1")
    (entry,) = read(tmp_path, counted)
    assert entry.columns == ()
    assert entry.upper == (9, 1)


def test_entry_may_be_based_on_another(tmp_path):
    text = VALID + '[other]\nbased_on = "tiny"\nn = 4\narguments = { label = 2 }\n'
    tiny, other = read(tmp_path, text)
    assert replace(other, name="tiny", n=3, parse=tiny.parse) == tiny
    assert other.parse.keywords == {"label": 2}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("license", "licence", "[tiny] key: unknown 'licence'; did you mean 'license'?"),
        ('title = "three points"', "", "[tiny]: title missing"),
        ("n = 3", 'n = "3"', "[tiny]: n='3' should be of type int"),
        ("n = 3", "n = true", "[tiny]: n=True should be of type int"),
        ('"table"', '"tabel"', "[tiny] parser: unknown 'tabel'; did you mean 'table'?"),
        (
            'parser = "table"',
            'parser = "table"\narguments = { lable = 2 }',
            "[tiny] arguments: unknown 'lable'; did you mean 'label'?",
        ),
        ("lower = 0, ", "", "[tiny] domain: lower missing"),
        ("reason =", "reasons =", "[tiny] domain key: unknown 'reasons'; did you mean 'reason'?"),
        ('["x"]', '["x", "z"]', "tiny: bounds of 3 and 3 columns with 3 reasons, d=2"),
        (
            'source = "http://example.org"',
            "",
            "[tiny] files: 'tiny/tiny.txt' should have urls or a source",
        ),
        ("source", "url", "[tiny] files key: unknown 'url'; did you mean 'urls'?"),
        ("[[tiny.files]]", "[tiny.files]", "[tiny]: files="),
        ("[tiny]", "[tiny", "Expected ']'"),
        ('"tiny/tiny.txt"', '"../tiny.txt"', "path='../tiny.txt' should stay in its folder"),
        ('"tiny/tiny.txt"', '"/tiny.txt"', "path='/tiny.txt' should stay in its folder"),
        ("lower = 0", "lower = 9", "tiny: bounds of column 0 are lower=9, upper=9"),
        ("upper = 9", "upper = inf", "tiny: bounds should be finite"),
        ("k = 2", "k = 2\ntraining = { epoch = 3 }", "unexpected keyword argument 'epoch'"),
        ('title = "three', 'based_on = "tinny"\ntitle = "three', "did you mean 'tiny'?"),
    ],
)
def test_wrong_file_is_refused(tmp_path, old, new, message):
    text = VALID.replace(old, new, 1)
    assert text != VALID
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        read(tmp_path, text)
    assert str(refused.value).startswith(str(tmp_path / "registry.toml"))


def test_domain_of_embeddings_is_the_clipping_of_their_network():
    trained = [entry for entry in registry.ENTRIES if entry.trained]
    assert len(trained) == 2
    for entry in trained:
        assert entry.bundled_sha256
        assert entry.d == entry.trained.dimensions
        assert set(entry.lower) == {0.0}
        assert set(entry.upper) == {entry.trained.upper}


def test_every_entry_says_what_it_is():
    titles = [entry.title for entry in registry.ENTRIES]
    assert all(titles)
    assert len(set(titles)) == len(titles)
    assert max(map(len, titles)) <= 70


# Appendix M.1: n, d, K.
UNLEARNING_SHAPES = {
    "celltype": (12009, 10, 4),
    "covtype-52": (15120, 52, 7),
    "gaussian-10": (30000, 10, 10),
    "postures-full": (74975, 15, 5),
    "femnist": (36725, 784, 62),
    "tcga": (1904, 57, 4),
    "tmi": (1126, 984, 4),
}


@pytest.mark.parametrize("name", UNLEARNING_SHAPES)
def test_sizes_are_declared_as_published(name):
    known = datasets.loading.resolve(name)
    declared = known.entry or known.recipe
    assert (declared.n, declared.d, declared.n_clusters) == UNLEARNING_SHAPES[name]
    assert name in datasets.names()


def test_older_fingerprints_omit_newer_fields():
    # Cells that were stored before clients and prescaled sets existed keep their keys.
    for name in ("iris", "yeast", "g2-2-10"):
        entry = registry.find(name)
        declared = {
            "files": [file.sha256 for file in entry.files],
            "shape": [entry.n, entry.d],
            "domain": [entry.lower, entry.upper],
            "parser": parsers.describe(entry.parse),
        }
        text = json.dumps(declared, sort_keys=True)
        expected = hashlib.sha256(text.encode()).hexdigest()
        assert datasets.fingerprint(name) == expected
    entry = registry.find("yeast")
    prescaled = registry.Entry(**{**vars(entry), "prescaled": True})
    assert registry.fingerprint(prescaled) != datasets.fingerprint("yeast")


CONTENT = b"1,0.5\n3,-1\n5,1\n"


@pytest.fixture
def own_folder(tmp_path):
    """Return a folder of the search path with a set `tiny`, whose file lies there."""
    with add_config_dirs([str(tmp_path)]):
        (tmp_path / "datasets.toml").write_text(VALID)
        write_file(tmp_path, "tiny/tiny.txt", CONTENT)
        yield tmp_path


def test_own_sets_are_loaded_by_name(own_folder):
    assert datasets.names()[len(registry.ENTRIES)] == "tiny"
    loaded = datasets.load("tiny")
    assert loaded.points.tolist() == [[1, 0.5], [3, -1], [5, 1]]
    assert loaded.origin == "own folder"
    assert datasets.why_unavailable("tiny") is None
    with pytest.raises(ValueError, match="did you mean 'tiny'"):
        datasets.load("tiyn")


def test_own_sets_are_known_with_their_folder_alone(tmp_path):
    (tmp_path / "datasets.toml").write_text(VALID)
    with add_config_dirs([str(tmp_path)]):
        assert "tiny" in datasets.names()
    assert "tiny" not in datasets.names()
    with pytest.raises(ValueError, match="unknown data set 'tiny'"):
        datasets.load("tiny")


@pytest.mark.parametrize(("said", "expected"), [("", True), ("true", True), ("false", False)])
def test_own_sets_are_somebodys_unless_the_table_says_otherwise(own_folder, said, expected):
    key = f"restricted = {said}\n" if said else ""
    (own_folder / "datasets.toml").write_text(VALID.replace("k = 2\n", f"k = 2\n{key}"))
    assert datasets.is_restricted("tiny") is expected
    unkeyed = replace(registry.find("tiny"), restricted=False)
    is_keyed = datasets.fingerprint("tiny") != registry.fingerprint(unkeyed)
    assert is_keyed is expected


def test_file_of_an_own_set_is_checked(own_folder):
    declared = VALID.replace("source", f'sha256 = "{sha256(CONTENT)}"\nsource')
    (own_folder / "datasets.toml").write_text(declared)
    assert len(datasets.load("tiny").points) == 3
    write_file(own_folder, "tiny/tiny.txt", CONTENT.replace(b"5", b"6"))
    with pytest.raises(datasets.ChecksumMismatch, match="the registry declares"):
        datasets.load("tiny")


def test_missing_file_of_an_own_set_is_wanted_beside_its_table(own_folder):
    (own_folder / "tiny" / "tiny.txt").unlink()
    assert f"Put it into {own_folder}, " in datasets.why_unavailable("tiny")


def test_folders_with_equal_paths_have_hashes_of_their_own(own_folder, tmp_path_factory):
    first = datasets.fingerprint("tiny")
    other = tmp_path_factory.mktemp("other")
    (other / "datasets.toml").write_text(
        VALID.replace("tiny]", "small]").replace("tiny.f", "small.f")
    )
    write_file(other, "tiny/tiny.txt", CONTENT + b"7,0\n")
    with add_config_dirs([str(other)]):
        assert datasets.fingerprint("small") != first == datasets.fingerprint("tiny")


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("iris", "datasets/registry.toml"),
        ("g2-2-10", "datasets/registry.toml"),
        ("synth-4-2-0", "pkm.datasets.generated.families"),
        ("gaussian-10", "pkm.datasets.generated.families"),
        ("file", "conf/dataset/file.yaml"),
        ("tiny", "own/datasets.toml"),
    ],
)
def test_a_name_with_two_meanings_is_refused(own_folder, name, place):
    text = VALID.replace("[tiny]", f"[{name}]").replace("[tiny.", f"[{name}.")
    (own_folder / "own").mkdir()
    (own_folder / "own" / "datasets.toml").write_text(VALID)
    (own_folder / "datasets.toml").write_text(text)
    folders = [str(own_folder / "own")] if name == "tiny" else []
    with (
        add_config_dirs(folders),
        pytest.raises(CatalogueError, match=f"dataset={name} is declared twice: ") as refused,
    ):
        # Whatever is asked for.
        datasets.load("wine")
    assert place in str(refused.value)
    assert str(own_folder / "datasets.toml") in str(refused.value)


def test_a_wrong_table_is_refused_with_its_file(own_folder):
    (own_folder / "datasets.toml").write_text(VALID.replace("license", "licence"))
    with pytest.raises(CatalogueError, match="unknown 'licence'; did you mean") as refused:
        datasets.load("wine")
    assert str(refused.value).startswith(str(own_folder / "datasets.toml"))
