"""The repaired server: equal to one from scratch, and as good as a refit."""

import pickle

import numpy as np
import pytest
from client_points import draw, split
from hypothesis import given, settings
from hypothesis import strategies as st

from pkm.methods.unlearning.server import RepairedServer
from pkm.methods.unlearning.unlearning import Unlearning


def server_state(server):
    """Return all that a server keeps but its margins, rows in lexicographic order."""
    m = server.m
    order = np.lexsort(server._bins[:m].T[::-1])
    rows = [array[:m][order].tolist() for array in (server._bins, server._weights, server._times)]
    steps = [server._seeds, server._arrivals, server._n_seeds, server._n_steps]
    steps += [server._centers, server._sums, server._counts]
    labels = [
        server._labels[r, : server._n_steps[r], :m][:, order].tolist()
        for r in range(len(server._n_steps))
    ]
    return rows, [array.tolist() for array in steps], labels, server.centers.tolist()


@pytest.mark.slow
@given(
    seed=st.integers(0, 10**6),
    extent=st.sampled_from([2, 20, 1000]),
    d=st.integers(1, 3),
    k=st.integers(1, 5),
)
@settings(max_examples=30, deadline=None)
def test_repaired_server_equals_one_from_scratch(seed, extent, d, k):
    """Bins that appear, gain, lose and disappear: seeds, every step and all sums are equal."""
    rng = np.random.default_rng(seed)
    weights = {}

    def draw_changes(n):
        changes = {}
        for bin_ in map(tuple, rng.integers(-extent, extent + 1, (n, d)).tolist()):
            changes[bin_] = int(rng.integers(1, 20))
        for bin_ in list(weights)[::3]:
            changes[bin_] = -weights[bin_] if rng.random() < 0.3 else int(rng.integers(1, 3))
        for bin_, change in changes.items():
            weights[bin_] = weights.get(bin_, 0) + change
            if not weights[bin_]:
                del weights[bin_]
        return np.array(list(changes)), np.array(list(changes.values()))

    server = RepairedServer(k, *draw_changes(25), seed, capacity=200)
    for _ in range(8):
        bins, changes = draw_changes(int(rng.integers(1, 6)))
        server.change(bins, changes)
        rebuilt = RepairedServer(k, *server.received, seed, capacity=200)
        assert server_state(server) == server_state(rebuilt)
    bins, received = server.received
    assert dict(zip(map(tuple, bins.tolist()), received.tolist(), strict=True)) == weights
    # Centers are means of their bins, or a seed of an empty cluster.
    squares = ((bins[:, None] - server.centers) ** 2).sum(axis=2)
    if server._n_steps.max() < 30:
        labels = squares.argmin(axis=1)
        for j, center in enumerate(server.centers):
            members = labels == j
            if members.any():
                mean = np.average(bins[members], axis=0, weights=received[members])
                assert center == pytest.approx(mean, abs=1e-9 * extent)


def test_repaired_server_is_as_good_as_a_refit():
    """Loss within 2 % of that of scikit-learn's algorithm, over ten models."""
    ratios = []
    for seed in range(10):
        parts, _ = split(draw(seed, n=600), [200, 250, 150])
        losses = [
            Unlearning(6, server=server).fit(parts, seed).induced()[1].sum()
            for server in ("repaired", "refit")
        ]
        ratios.append(losses[0] / losses[1])
    assert np.mean(ratios) < 1.02


def test_repaired_server_refuses_weights_below_zero():
    server = RepairedServer(2, np.array([[0], [5]]), np.array([1, 2]), 0, capacity=2)
    with pytest.raises(ValueError, match=r"changes=\[-2\] must leave weights of at least 0"):
        server.change(np.array([[0]]), np.array([-2]))
    with pytest.raises(ValueError, match=r"changes=\[-1\] must leave"):
        server.change(np.array([[1]]), np.array([-1]))


def test_repaired_server_keeps_no_bin_without_weight():
    bins = np.array([[1234567], [7654321], [5]])
    server = RepairedServer(2, bins, np.array([1, 2, 3]), 0, capacity=3)
    removed = np.array([1234567]).tobytes()
    assert removed in pickle.dumps(server)
    server.change(bins[:1], np.array([-1]))
    assert removed not in pickle.dumps(server)
    assert np.array([7654321]).tobytes() in pickle.dumps(server)
