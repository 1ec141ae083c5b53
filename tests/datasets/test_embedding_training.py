"""Embeddings are trained on small images where torch is installed."""

import os
from dataclasses import replace

import numpy as np
import pytest
from sklearn.cluster import KMeans
from tiny_embeddings import NAME, PACKED, PAPER_SETS, RECIPE

from pkm import datasets
from pkm.datasets import embeddings, parsers
from pkm.datasets.__main__ import main

# The cache with the user's trained sets, before the tests set another one.
USER_CACHE = os.environ.get("PKM_CACHE")


@pytest.fixture
def torch():
    return pytest.importorskip(
        "torch", reason="needs torch: pip install -r requirements-embeddings.txt"
    )


def test_training_is_reproducible_and_separates_the_classes(
    entry, mirror_with_images, torch, cache, capsys
):
    threads = torch.get_num_threads()
    state = torch.random.get_rng_state()
    assert main(["--mirror", str(mirror_with_images), "embeddings"]) == 0
    text = capsys.readouterr().out
    assert "tiny-embeddings: epoch 8 of 8" in text
    assert "k-means with ten starts: accuracy 1.000" in text

    # The state of torch is restored.
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.equal(torch.random.get_rng_state(), state)

    first = datasets.load(NAME)
    assert first.points.shape == (120, 4)
    assert first.points.min() >= 0
    assert first.points.max() <= RECIPE.upper
    assert first.points.std() > 0
    _, labels = parsers.mnist(*PACKED)
    np.testing.assert_array_equal(first.labels, labels)
    suffixes = [path.suffix for path in (cache / "embeddings").iterdir()]
    assert sorted(suffixes) == [".json", ".npz"]

    # The second call finds the stored set; a damaged one is trained again, to the same points.
    assert main(["--mirror", str(mirror_with_images), "embeddings", NAME]) == 0
    assert "available" in capsys.readouterr().out
    embeddings.locate(entry)[0].write_bytes(b"damaged")
    torch.manual_seed(99)
    assert main(["--mirror", str(mirror_with_images), "embeddings"]) == 0
    second = datasets.load(NAME)
    np.testing.assert_array_equal(first.points, second.points)
    assert first.fingerprint == second.fingerprint


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


@pytest.mark.parametrize(
    ("name", "accuracy", "inertia"), [(PAPER_SETS[0], 0.98, 1.4e6), (PAPER_SETS[1], 0.77, 1.2e6)]
)
def test_trained_sets_cluster_as_in_the_paper(name, accuracy, inertia, monkeypatch):
    monkeypatch.delenv("PKM_CACHE")
    if USER_CACHE:
        monkeypatch.setenv("PKM_CACHE", USER_CACHE)
    if datasets.why_unavailable(name):
        pytest.skip("not trained on this machine (make embeddings)")
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
