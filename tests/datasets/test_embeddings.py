"""Embeddings: stored and checked without torch."""

import gzip
import importlib
import importlib.util
import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from tiny_embeddings import NAME, PACKED, PAPER_SETS, RECIPE, tiny_entry

from pkm import datasets
from pkm.datasets import embeddings, registry
from pkm.datasets.__main__ import find_status, main
from pkm.datasets.sources import ChecksumMismatch, DataUnavailable


@pytest.fixture
def stored(entry):
    points = np.random.default_rng(0).uniform(0, 13, (120, 4)).astype(np.float32)
    labels = np.random.default_rng(1).integers(0, 2, 120)
    embeddings.store(entry, points, labels)
    return points, labels


class TorchHidingFinder:
    """Import finder that fails for torch and defers to the other finders for the rest."""

    @staticmethod
    def find_spec(name, *_):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.fixture
def torch_hidden(monkeypatch):
    """Make torch look absent to every import."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.delitem(sys.modules, "pkm.datasets.embedding_training", raising=False)
    monkeypatch.setattr(sys, "meta_path", [TorchHidingFinder, *sys.meta_path])
    find_spec = importlib.util.find_spec

    def find_spec_except_torch(name):
        return None if name == "torch" else find_spec(name)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec_except_torch)


def test_fixture_hides_torch(torch_hidden):
    with pytest.raises(ModuleNotFoundError, match="torch"):
        importlib.import_module("pkm.datasets.embedding_training")


@pytest.mark.parametrize("name", PAPER_SETS)
def test_error_for_untrained_embeddings_explains_the_training(name, cache, torch_hidden):
    expected = (
        rf"data set '{name}' is trained once from images \(.*train-images-idx3-ubyte\.gz, .*\) "
        rf"and is not in .*embeddings yet: run 'make embeddings DATA=.*"
        rf"or 'pip install -r requirements-embeddings\.txt' and "
        rf"'pkm data embeddings {name}'.* torch is needed for the training only"
    )
    for function in (datasets.load, datasets.fingerprint):
        with pytest.raises(DataUnavailable, match=expected):
            function(name)
    assert "make embeddings" in datasets.why_unavailable(name)
    # Digests of code may be cached; nothing of the data is.
    assert {path.name for path in cache.glob("*")} <= {"sources"}


def test_images_alone_are_not_obtainable_embeddings(mirror_with_images, entry):
    assert "is trained once from images" in datasets.why_unavailable(
        NAME, mirror=mirror_with_images
    )


@pytest.mark.parametrize("name", PAPER_SETS)
def test_sets_are_declared_as_in_the_paper(name):
    declared = registry.find(name)
    assert (declared.n, declared.d, declared.n_clusters) == (60000, 40, 10)
    expected = np.repeat([[0.0], [13.0]], 40, axis=1)
    np.testing.assert_array_equal(declared.domain(), expected)


def test_stored_embeddings_load_without_torch(stored, entry, torch_hidden):
    dataset = datasets.load(NAME)
    points, labels = stored
    np.testing.assert_array_equal(dataset.points, points)
    np.testing.assert_array_equal(dataset.labels, labels)
    assert (dataset.points.dtype, dataset.labels.dtype) == (np.float64, np.int64)
    assert (dataset.origin, dataset.n_clusters, dataset.common_range) == ("cache", 2, (0, 13))
    assert not dataset.common_range_is_private
    assert datasets.why_unavailable(NAME) is None
    assert dataset.fingerprint == datasets.fingerprint(NAME)
    assert datasets.scale(dataset, "range", clip=False).clipped == 0


def damaged(path, damage):
    content = path.read_bytes()
    if damage == "cut":
        return content[:-1]
    if damage == "empty":
        return b""
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    return bytes(flipped)


@pytest.mark.parametrize("damage", ["cut", "empty", "one bit"])
def test_damaged_arrays_are_detected(stored, entry, damage, capsys):
    arrays = embeddings.locate(entry)[0]
    arrays.write_bytes(damaged(arrays, damage))
    expected = r"\.npz has SHA-256 .*, its manifest says .*: run 'make embeddings'"
    for function in (datasets.load, datasets.why_unavailable):
        with pytest.raises(ChecksumMismatch, match=expected):
            function(NAME)
    assert main(["verify"]) == 1
    assert "its manifest says" in capsys.readouterr().out


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b'{"recipe": "other", "sha256": "0"}', b"\xff"]
)
def test_damaged_manifest_is_detected(stored, entry, content):
    embeddings.locate(entry)[1].write_bytes(content)
    for function in (datasets.load, datasets.why_unavailable, datasets.fingerprint):
        with pytest.raises(ChecksumMismatch, match=r"\.json is damaged: run 'make embeddings'"):
            function(NAME)


def test_changed_checksum_in_the_manifest_is_detected(stored, entry):
    path = embeddings.locate(entry)[1]
    manifest = json.loads(path.read_text())
    changed = manifest | {"sha256": "0" * 64}
    path.write_text(json.dumps(changed))
    with pytest.raises(ChecksumMismatch, match="its manifest says 0000"):
        datasets.load(NAME)


@pytest.mark.parametrize("index", [0, 1])
def test_set_with_a_missing_file_is_unavailable(stored, entry, index):
    embeddings.locate(entry)[index].unlink()
    assert "is trained once" in datasets.why_unavailable(NAME)


def test_interrupted_store_leaves_no_set(stored, entry, monkeypatch):
    # The old manifest must be valid neither for the new arrays nor without arrays.
    write = embeddings.atomic_write

    def interrupted(target, content):
        if target.suffix == ".json":
            raise KeyboardInterrupt
        write(target, content)

    monkeypatch.setattr(embeddings, "atomic_write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        embeddings.store(entry, *stored)
    assert "is trained once" in datasets.why_unavailable(NAME)


def test_stored_arrays_of_another_shape_are_refused(entry):
    embeddings.store(entry, np.zeros((119, 4)), np.zeros(119, dtype=int))
    expected = r"tiny-embeddings: parsed to shape \(119, 4\), declared is \(120, 4\)"
    with pytest.raises(ValueError, match=expected):
        datasets.load(NAME)


def test_fingerprint_depends_on_arrays_without_reading_them(stored, entry, monkeypatch):
    before = datasets.fingerprint(NAME)
    points, labels = stored
    embeddings.store(entry, points, labels)
    assert datasets.fingerprint(NAME) == before
    embeddings.store(entry, points, 1 - labels)
    changed = datasets.fingerprint(NAME)
    assert changed != before
    embeddings.locate(entry)[0].write_bytes(b"not read")
    assert datasets.fingerprint(NAME) == changed


def test_key_depends_on_images_recipe_and_trainer(tmp_path, monkeypatch):
    before = tiny_entry()
    changed_labels = gzip.compress(bytes(128), mtime=0)
    entries = [
        before,
        tiny_entry(replace(RECIPE, seed=1)),
        tiny_entry(replace(RECIPE, penalty=0.002)),
        tiny_entry(packed=(PACKED[0], changed_labels)),
    ]
    keys = {embeddings.make_key(entry) for entry in entries}
    (tmp_path / "trainer.py").write_text("another = 'trainer'\n")
    monkeypatch.setattr(embeddings, "TRAINER", tmp_path / "trainer.py")
    keys.add(embeddings.make_key(before))
    assert len(keys) == 5


def test_arrays_of_another_recipe_are_not_used(stored, entry, monkeypatch):
    changed = tiny_entry(replace(RECIPE, epochs=9))
    monkeypatch.setitem(registry.BY_NAME, NAME, changed)
    assert "is trained once" in datasets.why_unavailable(NAME)


def test_training_without_torch_is_refused_before_reading_files(entry, torch_hidden, capsys):
    expected = "needs torch for its training, and only for that: run 'make embeddings'"
    with pytest.raises(DataUnavailable, match=expected):
        embeddings.train(entry)
    assert main(["embeddings"]) == 1
    assert "needs torch for its training" in capsys.readouterr().err


def test_training_without_images_names_the_file(entry, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    expected = r"data set 'tiny-embeddings' needs the file tiny/images\.gz, published"
    with pytest.raises(DataUnavailable, match=expected):
        embeddings.train(entry)


def test_unknown_embeddings_are_refused(entry, capsys):
    assert main(["embeddings", "mnist"]) == 1
    assert "unknown embeddings 'mnist'; known are tiny-embeddings" in capsys.readouterr().err


def test_command_line_shows_the_training_status(entry, mirror_with_images, capsys):
    def row():
        main(["list"])
        lines = capsys.readouterr().out.splitlines()
        return next(line for line in lines if NAME in line)

    assert find_status(entry).n_copies == 0
    assert find_status(entry, mirror_with_images).n_copies == 2
    assert "training, make embeddings" in row()
    embeddings.store(entry, np.zeros((120, 4)), np.zeros(120, dtype=int))
    assert "cache" in row()
    embeddings.locate(entry)[0].write_bytes(b"")
    assert "wrong" in row()
    assert find_status(entry).errors


def test_fetch_refers_to_the_training(entry, mirror_with_images, capsys):
    assert main(["--mirror", str(mirror_with_images), "fetch", NAME]) == 1
    assert "make embeddings" in capsys.readouterr().err
    embeddings.store(entry, np.zeros((120, 4)), np.zeros(120, dtype=int))
    assert main(["--mirror", str(mirror_with_images), "fetch", NAME]) == 0
    printed = capsys.readouterr()
    assert f"available: {NAME}" in printed.out
    assert "make embeddings" not in printed.err


def test_quality_counts_majorities():
    # Two clusters of three points: one label of three is in the minority in the second.
    points = np.array([[0.0], [0.0], [0.0], [9.0], [9.0], [9.0]])
    labels = np.array([1, 1, 1, 0, 0, 1])
    assert embeddings.measure(points, labels, 2) == (5 / 6, 0.0)
