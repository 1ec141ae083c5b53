"""Splits of points over clients."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_runs import random_points

from pkm import datasets
from pkm.federation import split_points, splits


@st.composite
def clusterings(draw):
    """Labels of clusters of different sizes, shuffled."""
    sizes = draw(st.lists(st.integers(24, 120), min_size=1, max_size=8))
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    labels = np.repeat(np.arange(len(sizes)), sizes)
    return generator.permutation(labels)


@settings(max_examples=50, deadline=None)
@given(clusterings(), st.integers(1, 12), st.data())
def test_noniid_split_has_its_properties(labels, n_clients, data):
    n_clusters = len(np.unique(labels))
    max_clusters_per_client = data.draw(st.integers(1, n_clusters))
    try:
        with mock.patch.object(splits, "MAX_ATTEMPTS", 100):
            clients = splits.split_noniid(labels, n_clients, max_clusters_per_client, seed=3)
    except ValueError as error:
        # The remainder for the last client is random: few clients cannot exhaust many clusters.
        assert "cannot be kept" in str(error)
        assert max_clusters_per_client < n_clusters
        return
    assert clients.shape == labels.shape
    sizes = np.bincount(clients, minlength=n_clients)
    assert len(sizes) == n_clients
    assert sizes.min() >= 1
    assert n_clients == 1 or sizes[:-1].max() <= len(labels) // n_clients
    for client in range(n_clients):
        assert len(np.unique(labels[clients == client])) <= max_clusters_per_client
    for label in np.unique(labels):
        # The points of a cluster are assigned in file order, by increasing client.
        assert np.all(np.diff(clients[labels == label]) >= 0)
    repeated = splits.split_noniid(labels, n_clients, max_clusters_per_client, seed=3)
    np.testing.assert_array_equal(clients, repeated)


@settings(max_examples=50, deadline=None)
@given(clusterings(), st.integers(1, 20))
def test_iid_split_divides_every_cluster_equally(labels, n_clients):
    clients = splits.split_iid(labels, n_clients)
    for label in np.unique(labels):
        cluster_clients = clients[labels == label]
        sizes = np.bincount(cluster_clients, minlength=n_clients)
        assert np.all(sizes[:-1] == len(cluster_clients) // n_clients)
        assert sizes[-1] - sizes[0] < n_clients
        assert np.all(np.diff(cluster_clients) >= 0)


def test_noniid_split_is_redrawn_until_valid(monkeypatch):
    labels = datasets.load("gaussian-10").labels
    first = splits.split_noniid(labels, 100, 2, seed=0)
    second = splits.split_noniid(labels, 100, 2, seed=1)
    assert not np.array_equal(first, second)
    default_rng = np.random.default_rng
    streams = []

    def recording_default_rng(stream):
        streams.append(tuple(stream))
        return default_rng(stream)

    monkeypatch.setattr(np.random, "default_rng", recording_default_rng)
    for seed in range(10):
        clients = splits.split_noniid(labels, 100, 2, seed)
        assert len(np.unique(labels[clients == 99])) <= 2
    # Every draw has a different stream, and some seeds needed several draws.
    assert len(set(streams)) == len(streams) > 10


def test_noniid_split_reaches_the_published_heterogeneity():
    # The cluster sizes of k-means on the Gaussian set. With ten clusters of equal size a split
    # with one cluster per client is never drawn.
    sizes = [3211, 3193, 3100, 3064, 3026, 2984, 2940, 2884, 2809, 2789]
    sorted_labels = np.repeat(np.arange(10), sizes)
    labels = np.random.default_rng(0).permutation(sorted_labels)
    for max_clusters_per_client in range(1, 11):
        clients = splits.split_noniid(labels, 100, max_clusters_per_client, seed=0)
        assert np.bincount(clients).min() >= 1
        for client in range(100):
            assert len(np.unique(labels[clients == client])) <= max_clusters_per_client


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1), "n_clients=0 must be at least 1 and at most half of n=10"),
        ((6, 1), "n_clients=6 must be at least 1 and at most half of n=10"),
        ((2, 0), "max_clusters_per_client=0 must be at least 1 and at most 2"),
        ((2, 3), "max_clusters_per_client=3 must be at least 1 and at most 2"),
        ((2, 1), "max_clusters_per_client=1 cannot be kept: in 2000 draws"),
    ],
)
def test_impossible_splits_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        splits.split_noniid(np.repeat([0, 1], 5), *arguments, seed=0)


@pytest.mark.parametrize("n_clients", [0, 6])
def test_iid_split_refuses_too_many_clients(n_clients):
    with pytest.raises(ValueError, match=f"n_clients={n_clients} must be at least 1 and at most 5"):
        splits.split_iid(np.repeat([0, 1], 5), n_clients)


@pytest.mark.parametrize(
    ("split", "sizes"),
    [
        ("balanced", [25, 25, 26, 25]),
        ("unbalanced", [10, 20, 31, 40]),
        ("sorted", [25, 25, 26, 25]),
    ],
)
def test_split_partitions_the_points(split, sizes):
    points = random_points(n=101)
    parts = split_points(points, 4, 3, split)
    rows = np.concatenate([part.rows for part in parts])
    assert sorted(rows.tolist()) == sorted(points.rows.tolist())
    part_sizes = [part.shape[0] for part in parts]
    assert np.abs(np.subtract(part_sizes, sizes)).max() <= 1

    repeated = split_points(points, 4, 3, split)
    for part, repeated_part in zip(parts, repeated, strict=True):
        assert (part.rows == repeated_part.rows).all()
    if split == "sorted":
        first_column = parts[0].rows[:, 0]
        next_column = parts[1].rows[:, 0]
        assert (first_column.max() <= next_column).all()


def test_split_depends_on_its_seed():
    points = random_points(n=101)
    first_parts = [split_points(points, 4, seed)[0] for seed in (3, 4)]
    assert not (first_parts[0].rows == first_parts[1].rows).all()

    parts = split_points(random_points(n=1), 3, 0)
    shapes = [part.shape for part in parts]
    assert shapes.count((0, 2)) == 2
    with pytest.raises(ValueError, match="split='even' is unknown"):
        split_points(points, 2, 0, "even")
