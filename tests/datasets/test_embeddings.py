"""Embeddings: bundled, made anew with torch alone."""

import gzip
import importlib
import importlib.util
import sys
from dataclasses import replace

import numpy as np
import pytest
from tiny_embeddings import PACKED, PAPER_SETS, RECIPE, tiny_entry

from pkm import datasets
from pkm.datasets import bundled, embeddings, registry
from pkm.datasets.__main__ import main
from pkm.datasets.sources import DataUnavailable


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
def test_bundled_embeddings_load_without_torch(name, torch_hidden):
    dataset = datasets.load(name)
    assert (*dataset.points.shape, dataset.n_clusters) == (60000, 40, 10)
    assert (dataset.origin, dataset.common_range) == ("bundled", (0, 13))
    assert not dataset.common_range_is_private
    assert dataset.fingerprint == datasets.fingerprint(name)
    assert datasets.scale(dataset, "range", clip=False).clipped == 0
    # A byte holds each value, and none is moved by more than half a step.
    rounded = bundled.read(registry.find(name)).points
    assert np.all(rounded * embeddings.STEPS % 1 == 0)
    assert rounded.max() * embeddings.STEPS <= 255
    assert abs(dataset.points - rounded).max() <= 0.5 / embeddings.STEPS
    np.testing.assert_array_equal(dataset.points == 0, rounded == 0)


def test_dithering_unties_the_values_of_a_column():
    """Between tied values there is no gap: DPM then stops at once, or splits too often."""
    rounded = np.repeat([[0.0, 2.5]], 1000, axis=0)
    points = embeddings.dither(rounded)
    assert len(np.unique(points[:, 1])) > 400
    assert points.max() == rounded.max()
    np.testing.assert_array_equal(points, embeddings.dither(rounded))


@pytest.mark.parametrize("name", PAPER_SETS)
def test_bundled_embeddings_are_those_of_the_recipe(name):
    written = (bundled.FOLDER / bundled.README).read_text(encoding="utf-8")
    (line,) = [line for line in written.splitlines() if line.startswith(f"- `{name}`")]
    entry = registry.find(name)
    assert f"seed {entry.trained.seed}, epochs {entry.trained.epochs}, torch " in line
    assert line.endswith(f"recipe {embeddings.make_key(entry)}")


@pytest.mark.parametrize("name", PAPER_SETS)
def test_sets_are_declared_as_in_the_paper(name):
    declared = registry.find(name)
    assert (declared.n, declared.d, declared.n_clusters) == (60000, 40, 10)
    expected = np.repeat([[0.0], [13.0]], 40, axis=1)
    np.testing.assert_array_equal(declared.domain(), expected)


def test_fingerprint_depends_on_the_declared_points():
    entry = registry.find(PAPER_SETS[0])
    changed = replace(entry, bundled_sha256="0" * 64)
    assert registry.fingerprint(changed) != registry.fingerprint(entry)


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


def test_training_without_torch_is_refused_before_reading_files(entry, torch_hidden, capsys):
    expected = "needs torch for its training, and only for that: run 'make embeddings'"
    with pytest.raises(DataUnavailable, match=expected):
        embeddings.train(entry)
    assert main(["bundle", entry.name]) == 2
    assert "needs torch for its training" in capsys.readouterr().err


def test_training_without_images_names_the_file(entry, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    expected = r"data set 'tiny-embeddings' needs the file tiny/images\.gz, published"
    with pytest.raises(DataUnavailable, match=expected):
        embeddings.train(entry)


def test_quality_counts_majorities():
    # Two clusters of three points: one label of three is in the minority in the second.
    points = np.array([[0.0], [0.0], [0.0], [9.0], [9.0], [9.0]])
    labels = np.array([1, 1, 1, 0, 0, 1])
    assert embeddings.measure(points, labels, 2) == (5 / 6, 0.0)
