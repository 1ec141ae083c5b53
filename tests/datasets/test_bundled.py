"""Bundled sets equal the published files; their folder is complete, small and described."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from tiny_files import CONTENT, tiny_entry, write_file

from pkm import datasets
from pkm.datasets import bundled, loading, registry
from pkm.datasets.__main__ import find_status, main
from pkm.datasets.bundled import Content

ENTRIES = {entry.name: entry for entry in registry.list_bundled()}
PUBLISHED = [name for name, entry in ENTRIES.items() if not entry.trained]


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTRIES)
def test_bundled_set_has_the_declared_digest_and_shape(name):
    dataset = datasets.load(name)
    entry = ENTRIES[name]
    assert dataset.origin == "bundled"
    assert dataset.points.shape == (entry.n, entry.d)
    # Loading dithers embeddings alone.
    points = bundled.read(entry).points if entry.trained else dataset.points
    content = Content(points, dataset.labels, dataset.clients)
    assert bundled.digest(content) == entry.bundled_sha256


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_bundled_set_equals_the_published_files(name, data_dir):
    published, origin = loading.read_files(ENTRIES[name], data_dir)
    assert origin == "data folder"
    for ours, theirs in zip(bundled.read(ENTRIES[name]), published, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            assert ours.dtype == theirs.dtype
            if name == "spambase" and ours.dtype == np.float64:
                # It has logarithms, which processors round differently.
                np.testing.assert_array_max_ulp(ours, theirs, 1)
            else:
                assert ours.tobytes() == theirs.tobytes()


def test_iris_is_the_input_of_the_fastlloyd_paper(data_dir):
    paper_input = np.loadtxt(data_dir / "iris" / "iris.fastlloyd.txt")
    np.testing.assert_array_equal(datasets.load("iris").points, paper_input)


def test_folder_holds_the_declared_sets_and_is_small():
    files = {path.name: path.stat().st_size for path in bundled.FOLDER.iterdir()}
    assert set(files) == {f"{name}.parquet" for name in ENTRIES} | {bundled.README}
    assert max(files.values()) <= 4_000_000
    assert sum(files.values()) <= 25_000_000


def test_list_of_the_folder_is_that_of_the_registry():
    written = (bundled.FOLDER / bundled.README).read_text(encoding="utf-8")
    assert written == bundled.describe(ENTRIES.values())


def test_sets_without_a_free_license_are_not_bundled():
    for entry in ENTRIES.values():
        terms = entry.license.lower()
        assert any(word in terms for word in ("cc by", "mit", "public domain", "sipu", "fcps"))
        assert not entry.restricted
    assert not {"brightkite", "gowalla", "gowalla-subset", "texture"} & set(ENTRIES)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder of bundled sets that holds iris alone."""
    shutil.copy(bundled.locate("iris"), tmp_path)
    monkeypatch.setattr(bundled, "FOLDER", tmp_path)
    return tmp_path


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "text"])
def test_damaged_file_is_one_line_of_error(folder, damage, capsys):
    path = folder / "iris.parquet"
    content = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes({"empty": b"", "cut": content[:-9], "text": b"1,2\n"}[damage])
    message = r"iris\.parquet is missing or damaged: restore it from the repository.*$"
    with pytest.raises(datasets.ChecksumMismatch, match=message) as refused:
        datasets.load("iris")
    assert "\n" not in str(refused.value)
    assert find_status(ENTRIES["iris"]).errors == [str(refused.value)]
    assert main(["verify"]) == 1
    assert "missing or damaged" in capsys.readouterr().out


@pytest.mark.parametrize("part", ["points", "labels"])
def test_changed_value_is_refused(folder, part):
    entry = ENTRIES["iris"]
    content = bundled.read(entry)
    getattr(content, part)[3] += 1
    (folder / "iris.parquet").write_bytes(bundled.pack(entry, content, {}))
    with pytest.raises(datasets.ChecksumMismatch, match=r"holds points with SHA-256 .* declares"):
        datasets.load("iris")


def test_bundled_file_comes_before_cache_and_data_folder(cache, tmp_path):
    write_file(cache, "iris/iris.data", b"damaged")
    write_file(tmp_path, "iris/iris.data", b"damaged")
    assert datasets.load("iris", data_dir=tmp_path).origin == "bundled"


COLUMNS = {
    "bytes": [0.0, 255.0, 3.0],
    "signed": [-128.0, 0.0, 7.0],
    "large": [0.0, 2.0**53, 1.0],
    "beyond integers": [1e300, -1.0, 0.0],
    "negative zero": [-0.0, 0.0, 1.0],
    "single": [0.5, 0.25, 1.5],
    "double": [0.1, 1 / 3, 2.0**-1074],
    "repeated": [0.1, 0.1, 0.1],
}


@pytest.mark.parametrize("codes", [None, np.array([-1, 0, 70_000])], ids=["none", "codes"])
def test_packed_values_are_read_bit_for_bit(tmp_path, monkeypatch, codes):
    d = len(COLUMNS)
    bounds = {"lower": (0.0,) * d, "upper": (1.0,) * d, "reasons": ("",) * d}
    entry = replace(tiny_entry(), d=d, columns=tuple(COLUMNS), **bounds)
    content = Content(np.array(list(COLUMNS.values())).T, codes, codes)
    (tmp_path / "tiny.parquet").write_bytes(bundled.pack(entry, content, {}))
    monkeypatch.setattr(bundled, "FOLDER", tmp_path)
    read = bundled.read(replace(entry, bundled_sha256=bundled.digest(content)))
    assert read.points.tobytes() == np.ascontiguousarray(content.points).tobytes()
    for ours in (read.labels, read.clients):
        np.testing.assert_equal(ours, codes)


def test_command_makes_a_bundled_file(register_file, tmp_path, capsys, monkeypatch):
    write_file(tmp_path, register_file().path, CONTENT)
    out = tmp_path / "out"
    assert main(["--data", str(tmp_path), "bundle", "tiny", "--out", str(out)]) == 0
    printed = capsys.readouterr().out.split()
    assert printed[-2:] == ["not", "declared"]
    declared = replace(registry.find("tiny"), bundled_sha256=printed[-3])
    monkeypatch.setattr(bundled, "FOLDER", out)
    assert bundled.read(declared).points.tolist() == [[1, 2], [3, 4], [5, 7]]
    assert main(["bundle", "tinny"]) == 2
    assert "did you mean 'tiny'?" in capsys.readouterr().err
