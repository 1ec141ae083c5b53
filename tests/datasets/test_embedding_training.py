"""Embeddings are trained on small images where torch is installed."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.cluster import KMeans
from tiny_embeddings import NAME, PACKED, PAPER_SETS, RECIPE

from pkm import datasets
from pkm.datasets import bundled, embeddings, parsers, registry
from pkm.datasets.__main__ import main


@pytest.fixture
def torch():
    return pytest.importorskip(
        "torch", reason="needs torch: pip install -r requirements-embeddings.txt"
    )


def test_training_is_reproducible_and_separates_the_classes(
    entry, folder_with_images, torch, capsys, tmp_path, monkeypatch
):
    threads = torch.get_num_threads()
    state = torch.random.get_rng_state()

    def make(folder):
        out = ("--out", str(tmp_path / folder))
        assert main(["--data", str(folder_with_images), "bundle", NAME, *out]) == 0
        return capsys.readouterr().out

    printed = make("first")
    assert "epoch 8 of 8" in printed

    # The state of torch is restored.
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.equal(torch.random.get_rng_state(), state)

    # What was made loads once its digest is declared.
    declared = replace(entry, bundled_sha256=printed.split()[-3])
    monkeypatch.setitem(registry.BY_NAME, NAME, declared)
    monkeypatch.setattr(bundled, "FOLDER", tmp_path / "first")
    dataset = datasets.load(NAME)
    assert dataset.points.shape == (120, 4)
    assert dataset.points.min() >= 0
    assert dataset.points.max() <= RECIPE.upper
    assert dataset.points.std() > 0
    _, labels = parsers.mnist(*PACKED)
    np.testing.assert_array_equal(dataset.labels, labels)
    assert embeddings.measure(dataset.points, dataset.labels, 2)[0] == 1
    assert "accuracy 1.000" in bundled.describe([declared], bundled.FOLDER)

    # Trained again, it has the same points.
    torch.manual_seed(99)
    assert "as declared" in make("second")


def test_recipe_sets_seed_size_and_bounds(torch):
    from pkm.datasets.embedding_training import train_and_embed

    pixels, labels = parsers.mnist(*PACKED)

    def embed(**changes):
        return train_and_embed(pixels, labels, replace(RECIPE, **changes))

    plain = embed()
    assert not np.array_equal(plain, embed(seed=1))
    # The penalty pulls embeddings towards zero.
    penalized = embed(penalty=1.0)
    assert np.mean(penalized**2) < 0.5 * np.mean(plain**2)
    # The clipping layer bounds them, and the network reaches the bound.
    clipped = embed(upper=0.25)
    assert clipped.max() == 0.25
    assert clipped.min() >= 0
    assert embed(dimensions=3).shape == (120, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "accuracy", "inertia"), [(PAPER_SETS[0], 0.98, 1.4e6), (PAPER_SETS[1], 0.77, 1.2e6)]
)
def test_bundled_sets_cluster_as_in_the_paper(name, accuracy, inertia):
    dataset = datasets.load(name)
    assert dataset.points.shape == (60000, 40)
    assert np.bincount(dataset.labels).min() > 5000
    assert dataset.points.min() == 0
    assert dataset.points.max() <= 13
    # One start per run, as the paper's baseline. Its standard deviations over runs are 0.02 and
    # 0.04; another network is another draw, so the average of six runs may differ by about two
    # of the larger one.
    accuracies = []
    inertias = []
    for seed in range(6):
        model = KMeans(10, n_init=1, random_state=seed).fit(dataset.points)
        clusters = [dataset.labels[model.labels_ == cluster] for cluster in range(10)]
        majorities = [np.bincount(labels).max() for labels in clusters]
        accuracies.append(sum(majorities) / 60000)
        inertias.append(model.inertia_)
    assert np.mean(accuracies) == pytest.approx(accuracy, abs=0.05)
    assert np.mean(inertias) == pytest.approx(inertia, rel=0.3)
