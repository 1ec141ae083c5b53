"""Federated clustering that forgets: seeding by a race, exact removals, refusals, traces.

Exactness is equality: a model from which points were removed is compared with a fit without them.
Laws are compared with enumerations; statistical tests have fixed seeds and thresholds at a p-value
of 1e-6.
"""

import itertools
import math
import pickle
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pkm.compute import SCALE, Points, exponential_race
from pkm.methods.unlearning import unlearning
from pkm.methods.unlearning.clients import QUANTIZED_STEPS
from pkm.methods.unlearning.k_fed import KFed, client_centers
from pkm.methods.unlearning.server import RepairedServer
from pkm.methods.unlearning.unlearning import Unlearning
from pkm.privacy.mechanisms.noise import INITIALIZATION, child

#: Parameters that make DC-KMeans of it.
DC_KMEANS = {"client": "full", "gamma": None, "weights": "unit"}

MODELS = [
    Unlearning(3),
    Unlearning(3, server_data="points"),
    Unlearning(3, client="full"),
    Unlearning(3, gamma=0.1),
    Unlearning(3, weights="unit"),
    Unlearning(3, server="repaired"),
    Unlearning(3, server="repaired", gamma=0.1, weights="unit"),
    Unlearning(3, server="repaired", client="full"),
    Unlearning(3, **DC_KMEANS),
    Unlearning(3, gamma=None),
    Unlearning(3, client="quantized", gamma=0.5),
    Unlearning(3, client="quantized", gamma=0.05, server="repaired"),
]


FIVE_POINTS = np.array([[0, 0], [3, 0], [0, 4], [9, 1], [10, 1]])


def draw(seed, n=40, d=2, step=1):
    rng = np.random.default_rng(seed)
    return rng.integers(-SCALE // step, SCALE // step + 1, (n, d)) * step


def split(points, sizes):
    """Return parts of given sizes, and the ids of their points."""
    cuts = np.cumsum(sizes)[:-1]
    parts = [Points.from_grid(part) for part in np.split(points, cuts)]
    ids = np.split(np.arange(len(points)), cuts)
    return parts, ids


def without(parts, ids, removed):
    """Return the parts and the ids that are left after a removal."""
    kept_parts = []
    kept_ids = []
    for part, part_ids in zip(parts, ids, strict=True):
        kept = ~np.isin(part_ids, removed)
        kept_parts.append(Points.from_grid(part.rows[kept].astype(np.int64)))
        kept_ids.append(part_ids[kept])
    return kept_parts, kept_ids


def state(model):
    """Return all that a model releases or sends."""
    messages = model.messages() if model.gamma is not None else []
    return (
        model.centers.tolist(),
        model.seeds.tolist(),
        model.sizes,
        [(bins.tolist(), counts.tolist()) for bins, counts in messages],
    )


def run_race(points, arrival_times, ids=None):
    n, k = arrival_times.shape
    seeds = np.zeros(k, np.int64)
    sizes = np.zeros(k, np.int64)
    if ids is None:
        ids = np.arange(n)
    n_seeds = exponential_race(points.astype(np.float32), arrival_times, ids, seeds, 0, sizes)
    return seeds[:n_seeds], sizes


# The race


def seeding_law(points, k):
    """Return the exact probability of every sequence of seeds of k-means++."""
    n = len(points)
    squares = ((points[:, None] - points) ** 2).sum(axis=2).tolist()
    law = {}
    for sequence in itertools.permutations(range(n), k):
        probability = Fraction(1, n)
        for t in range(1, k):
            chosen = sequence[:t]
            nearest = [min(squares[i][seed] for seed in chosen) for i in range(n)]
            probability *= Fraction(nearest[sequence[t]], sum(nearest))
        law[sequence] = probability
    return law


def seeding_law_without(points, removed, k):
    """Return the law of the seeds that are drawn from the other points, by their row numbers."""
    kept = [i for i in range(len(points)) if i != removed]
    law = seeding_law(points[kept], k)
    return {tuple(kept[i] for i in sequence): p for sequence, p in law.items()}


def assert_follows(observed, law):
    """Compare counts of sequences with a law by a chi-square test."""
    n_draws = sum(observed.values())
    expected = np.array([float(p) * n_draws for p in law.values()])
    counts = np.array([observed[sequence] for sequence in law])
    assert counts.sum() == n_draws
    assert stats.chisquare(counts, expected).pvalue > 1e-6


@pytest.mark.statistical
def test_race_has_the_law_of_k_means_plus_plus():
    law = seeding_law(FIVE_POINTS, 3)
    assert sum(law.values()) == 1
    rng = np.random.default_rng(0)
    observed = Counter()
    for _ in range(40_000):
        seeds, _ = run_race(FIVE_POINTS, rng.standard_exponential((5, 3)))
        observed[tuple(seeds.tolist())] += 1
    assert_follows(observed, law)


@pytest.mark.parametrize("removed", [0, 3, 4])
def test_keeping_the_seed_prefix_is_exact(removed):
    """The paper's algorithm 3: law after a removal, over all draws, is the law without the point;
    to the last digit, by enumeration.
    """
    target = seeding_law_without(FIVE_POINTS, removed, 3)
    after = dict.fromkeys(target, Fraction(0))
    for sequence, p in seeding_law(FIVE_POINTS, 3).items():
        prefix = sequence
        if removed in sequence:
            prefix = sequence[: sequence.index(removed)]
        matching = {s: q for s, q in target.items() if s[: len(prefix)] == prefix}
        total = sum(matching.values())
        for s, q in matching.items():
            after[s] += p * q / total
    assert after == target


@pytest.mark.slow
@pytest.mark.statistical
def test_fresh_arrival_times_give_the_law_of_a_refit():
    """The paper's algorithm as it stands: seeds after a removal, over many models, against the
    enumerated law.
    """
    points = 1000 * FIVE_POINTS
    removed = 3
    parts = [Points.from_grid(points)]
    fresh = Unlearning(3, arrival_times="fresh")
    observed = Counter()
    for seed in range(4000):
        model = fresh.fit(parts, seed)
        model.remove([removed])
        client = model._clients[0]
        observed[tuple(client.ids[client.seeds].tolist())] += 1
    assert_follows(observed, seeding_law_without(points, removed, 3))

    # No difference until a removal.
    for seed in range(20):
        fresh_seeds = fresh.fit(parts, seed).seeds
        assert fresh_seeds.tolist() == Unlearning(3).fit(parts, seed).seeds.tolist()


def test_restarting_all_seeds_is_not_exact():
    """What the published code does instead, by the same enumeration: the law differs."""
    removed = 3
    target = seeding_law_without(FIVE_POINTS, removed, 3)
    after = dict.fromkeys(target, Fraction(0))
    for sequence, p in seeding_law(FIVE_POINTS, 3).items():
        if removed in sequence:
            for s, q in target.items():
                after[s] += p * q
        else:
            after[sequence] += p
    total_variation = sum(abs(after[s] - target[s]) for s in target) / 2
    assert total_variation > Fraction(1, 1000)


@given(st.integers(0, 10**6), st.sampled_from([1, 16384]))
@settings(max_examples=50, deadline=None)
def test_race_does_not_depend_on_the_order_of_points(seed, step):
    rng = np.random.default_rng(seed)
    points = draw(seed, step=step)
    arrival_times = rng.standard_exponential((40, 4))
    order = rng.permutation(40)
    seeds, sizes = run_race(points, arrival_times)
    shuffled_seeds, shuffled_sizes = run_race(points[order], arrival_times[order], order)
    # Of points that coincide, the arrival times decide which is the seed.
    assert order[shuffled_seeds].tolist() == seeds.tolist()
    assert sizes.tolist() == shuffled_sizes.tolist()
    squares = ((points[:, None] - points[seeds]) ** 2).sum(axis=2)
    expected_sizes = np.bincount(squares.argmin(axis=1), minlength=len(seeds))
    assert sizes[: len(seeds)].tolist() == expected_sizes.tolist()


def test_fewer_distinct_points_than_seeds():
    points = np.array([[1, 1]] * 5 + [[2, 2]] * 3)
    arrival_times = np.random.default_rng(0).standard_exponential((8, 4))
    seeds, sizes = run_race(points, arrival_times)
    assert len(seeds) == 2
    assert sorted(sizes.tolist()) == [0, 0, 3, 5]


# Exact removal


@pytest.mark.slow
@pytest.mark.parametrize("method", MODELS, ids=str)
@given(seed=st.integers(0, 10**6), data=st.data())
@settings(max_examples=12, deadline=None)
def test_removal_equals_a_fit_without_the_points(method, seed, data):
    """Any points, in any order, one by one or in batches, seeds included: bit for bit."""
    points = draw(seed, step=data.draw(st.sampled_from([1, 16384])))
    parts, ids = split(points, [15, 5, 20])
    model = method.fit(parts, seed)
    n_removed = data.draw(st.integers(1, 30))
    removed = data.draw(st.permutations(range(40)))[:n_removed]
    cuts = sorted(data.draw(st.lists(st.integers(1, n_removed), max_size=4)))
    for batch in np.split(np.array(removed), cuts):
        if len(batch):
            model.remove(batch)

    parts, ids = without(parts, ids, removed)
    parameters = vars(method) | {"gamma": model.gamma}
    refit = Unlearning(**parameters).fit(parts, seed, ids=ids)
    assert state(model) == state(refit)
    assert induced_losses(model) == induced_losses(refit)


def induced_losses(model):
    ids, squares = model.induced()
    return dict(zip(ids.tolist(), squares.tolist(), strict=True))


def lloyd_losses(points, centers, steps):
    """Return the losses of plain Lloyd's algorithm, step by step."""
    losses = []
    centers = np.array(centers, float)
    for _ in range(steps):
        squares = ((points[:, None] - centers) ** 2).sum(axis=2)
        losses.append(squares.min(axis=1).sum())
        labels = squares.argmin(axis=1)
        for j in range(len(centers)):
            if (labels == j).any():
                centers[j] = points[labels == j].mean(axis=0)
    return losses


def test_full_clients_train_until_the_loss_converges():
    """From the seeds on as plain Lloyd's algorithm goes, until a step changes the loss by less than
    a thousandth.
    """
    points = draw(9, n=400)
    parts = [Points.from_grid(points)]
    seeded = Unlearning(6).fit(parts, 0)._clients[0]
    full = Unlearning(6, client="full").fit(parts, 0)._clients[0]
    start = points[seeded.ids[seeded.seeds]].astype(float)
    losses = lloyd_losses(points, start, 300)
    steps = next(t for t in range(1, 300) if losses[t] >= (1 - 1e-3) * losses[t - 1])
    assert steps > 3  # the first step is not the last
    trained = lloyd_losses(points, full.centers, 1)[0]
    assert trained == pytest.approx(losses[steps + 1], rel=1e-9)
    assert trained < losses[1]


def test_k_fed_clients_train_until_the_loss_converges():
    points = draw(10, n=400) / SCALE
    centers, _ = client_centers(points, 6, np.random.default_rng(0))
    losses = lloyd_losses(points, centers, 2)
    assert losses[1] >= (1 - 2e-3) * losses[0]


def test_seeds_are_removed_too():
    parts, ids = split(draw(1), [15, 5, 20])
    model = Unlearning(3).fit(parts, 4)
    removed = []
    while sum(model.sizes) > 12:
        seed = int(model.seeds[len(removed) % len(model.seeds)])
        assert model.remove([seed]).n_reseeded == 1
        removed.append(seed)
    parts, ids = without(parts, ids, removed)
    refit = Unlearning(3, gamma=model.gamma).fit(parts, 4, ids=ids)
    assert state(model) == state(refit)


@pytest.mark.parametrize("size", [1, 3])
def test_quantized_clients_keep_or_refit_and_equal_a_fit(size):
    """Most points move no rounded center, some do: either way the model is that of a fit."""
    points = draw(2, n=600, step=4096)
    parts, ids = split(points, [600])
    model = Unlearning(4, client="quantized", gamma=0.1).fit(parts, 0)
    batches = np.random.default_rng(size).permutation(600)[:90].reshape(-1, size)
    refits = [model.remove(batch).n_reseeded for batch in batches]
    assert 0 < sum(refits) < len(refits)
    parts, ids = without(parts, ids, batches)
    refit = Unlearning(4, client="quantized", gamma=0.1).fit(parts, 0, ids=ids)
    assert state(model) == state(refit)


def test_quantized_clients_make_rounded_steps_of_lloyd():
    points = draw(3, n=200)
    method = Unlearning(3, client="quantized", gamma=0.25)
    model = method.fit([Points.from_grid(points)], 0)
    seeded = Unlearning(3).fit([Points.from_grid(points)], 0)._clients[0]
    centers = points[seeded.seed_ids].astype(float)
    for _ in range(QUANTIZED_STEPS):
        labels = ((points[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
        means = np.array([points[labels == j].mean(axis=0) for j in range(3)])
        centers = np.round(means / (0.25 * SCALE)) * 0.25 * SCALE
    (client,) = model._clients
    assert client.centers.tolist() == centers.tolist()
    assert client.sizes.sum() == 200


def test_removing_clients_leaves_the_others_unchanged():
    sizes = [15, 5, 20, 4]
    parts, ids = split(draw(2, n=44), sizes)
    model = Unlearning(3).fit(parts, 0)
    messages_before = model.messages()
    removal = model.remove_clients([1, 3])
    assert removal.n_points == 9
    assert model.sizes == [15, 0, 20, 0]
    messages = model.messages()
    assert len(messages[1][0]) == len(messages[3][0]) == 0
    for client in (0, 2):
        for before, after in zip(messages_before[client], messages[client], strict=True):
            assert (before == after).all()

    parts, ids = without(parts, ids, [*range(15, 20), *range(40, 44)])
    refit = Unlearning(3, gamma=model.gamma).fit(parts, 0, ids=ids)
    assert state(model) == state(refit)
    for bad in ([4], []):
        with pytest.raises(ValueError, match=r"clients=.* must be one or more of the 4"):
            model.remove_clients(bad)
    assert model.remove_clients([1]).n_points == 0  # it is empty already


def test_the_lazy_server_is_not_exact():
    """Algorithm 4, line 3: without a hit on a seed the server keeps its sizes and centers.

    The sizes then add up to n, those of a fit to n less the removed points. The seeds are exact.
    """
    parts, ids = split(draw(3), [15, 5, 20])
    lazy = Unlearning(3, server="lazy")
    exact = Unlearning(3)
    assert exact.exact
    assert not lazy.exact
    lazy_model = lazy.fit(parts, 0)
    exact_model = exact.fit(parts, 0)
    removed = next(i for i in range(40) if i not in lazy_model.seeds)
    centers_before = lazy_model.centers.tolist()
    lazy_model.remove([removed])
    exact_model.remove([removed])

    parts, ids = without(parts, ids, [removed])
    refit = Unlearning(3, gamma=lazy_model.gamma).fit(parts, 0, ids=ids)
    refit_centers = refit.centers.tolist()
    assert lazy_model.centers.tolist() == centers_before
    assert centers_before != refit_centers
    assert exact_model.centers.tolist() == refit_centers
    n_in_server = [model.received[1].sum() for model in (lazy_model, exact_model, refit)]
    assert n_in_server == [40, 39, 39]
    assert lazy_model.seeds.tolist() == refit.seeds.tolist()


@pytest.mark.parametrize(
    "method",
    [
        Unlearning(3, gamma=0.01),
        Unlearning(3, client="full", gamma=0.01),
        Unlearning(3, client="quantized", gamma=0.01),
        Unlearning(3, **DC_KMEANS),
    ],
    ids=str,
)
def test_state_keeps_no_trace_of_removed_points(method):
    parts, _ = split(draw(5), [15, 5, 20])
    model = method.fit(parts, 0)

    # The bytes of each point: its row, its arrival times, its bin.
    rows = {}
    arrival_times = {}
    bins = {}
    for client in model._clients:
        for index, i in enumerate(client.ids.tolist()):
            rows[i] = client.rows[index].tobytes()
            arrival_times[i] = client.arrival_times[index].tobytes()
            if model.gamma is not None:
                point = client.rows[index].astype(np.float32).astype(float)
                bins[i] = model._positions(point[None]).tobytes()

    # The search finds what is in the state.
    removed = list(dict.fromkeys([int(model.seeds[0]), 17, 39, 0]))
    dump = pickle.dumps(model)
    for i in removed:
        assert rows[i] in dump
        assert arrival_times[i] in dump

    model.remove(removed[:2])
    model.remove(removed[2:])
    model.remove_clients([1])
    removed += range(15, 20)
    dump = pickle.dumps(model)
    assert model._clients[1].centers.base is None
    assert not model._clients[1].seeds.any()
    # Nor does the generator of fresh arrival times lead back to the seed, from which the old ones
    # could be drawn again.
    sequence = model._generator.bit_generator.seed_seq
    secret = child(0, INITIALIZATION)
    assert (sequence.entropy, sequence.spawn_key[:1]) != (
        secret.entropy,
        secret.spawn_key,
    )
    for i in removed:
        assert rows[i] not in dump
        assert arrival_times[i] not in dump
        assert bins.get(i, b"?" * 40) not in dump
    for i in model.ids.tolist():
        assert rows[i] in dump


# The server


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


def test_induced_loss_is_at_least_the_nearest_distance():
    parts, _ = split(draw(6), [15, 5, 20])
    all_rows = np.concatenate([part.rows for part in parts])
    for method in MODELS:
        model = method.fit(parts, 1)
        ids, losses = model.induced()
        points = all_rows[ids] / SCALE
        squares = ((points[:, None] - model.centers) ** 2).sum(axis=2)
        assert sorted(ids.tolist()) == list(range(40))
        assert (losses >= squares.min(axis=1) - 1e-12).all()


def test_k_distinct_points_lose_only_the_rounding():
    """k distinct points, k clusters, fine bins: nothing is lost but the rounding to bins."""
    distinct = np.array([[-60000, 0], [0, 50000], [30000, -20000]])
    parts, _ = split(np.repeat(distinct, 10, axis=0), [30])
    model = Unlearning(3, gamma=2.0**-10).fit(parts, 0)
    _, losses = model.induced()
    assert losses.max() <= 2 * (2.0**-11) ** 2
    ((_, counts),) = model.messages()
    assert counts.tolist() == [10, 10, 10]


def test_bins_are_symmetric_and_inside_the_grid():
    points = np.array([[-SCALE, SCALE], [SCALE, -SCALE], [0, 0], [1, -1]])
    parts, _ = split(points, [4])
    for gamma in (1.0, 0.3, 2 / 3, 0.011):
        model = Unlearning(4, gamma=gamma).fit(parts, 0)
        ((bins, _),) = model.messages()
        assert bins.min() >= 0
        assert bins.max() < model.n_bins
        bin_centers = (bins - model.n_bins // 2) * gamma
        seeds = np.concatenate([client.centers for client in model._clients]) / SCALE
        assert np.abs(bin_centers - seeds).max() <= gamma / 2 * (1 + 1e-12)


# Refusals


def test_bad_requests_are_refused_and_change_nothing():
    parts, _ = split(draw(7), [15, 5, 20])
    model = Unlearning(3).fit(parts, 0)
    model.remove([7])
    state_before = state(model)
    requests = (
        (
            [40],
            r"ids=\[40\] are not in the model: unknown, or removed already",
        ),
        ([-1], r"ids=\[-1\] are not in the model"),
        ([3, 7], r"ids=\[7\] are not in the model"),
        ([3, 3], r"ids=\[3, 3\] must name each point once"),
        ([], r"ids=\[\] must be one or more integers"),
        ([0.5], r"ids=\[0.5\] must be one or more integers"),
        ([i for i in range(40) if i != 7], "there is no model of none"),
    )
    for ids, message in requests:
        with pytest.raises(ValueError, match=message):
            model.remove(ids)
        assert state(model) == state_before

    all_but_one = [i for i in range(39) if i != 7]
    model.remove(all_but_one)
    assert model.sizes == [0, 0, 1]
    assert len(model.centers) == 1


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_clusters": 0}, "n_clusters=0 must be"),
        ({"n_clusters": 3, "gamma": 0.0}, "gamma=0.0 must be"),
        ({"n_clusters": 3, "gamma": -0.1}, "gamma=-0.1 must be"),
        ({"n_clusters": 3, "gamma": math.nan}, "gamma=nan must be"),
        ({"n_clusters": 3, "gamma": "fine"}, "gamma='fine' must be"),
        ({"n_clusters": 3, "gamma": True}, "gamma=True must be"),
        ({"n_clusters": 3, "client": "half"}, "client='half' is unknown"),
        ({"n_clusters": 3, "server": "none"}, "server='none' is unknown"),
        (
            {"n_clusters": 3, "gamma": None, "server_data": "points"},
            "server_data='points' needs bins",
        ),
        (
            {"n_clusters": 3, "gamma": None, "server": "repaired"},
            "server='repaired' needs bins",
        ),
        (
            {"n_clusters": 3, "gamma": None, "client": "quantized"},
            "client='quantized' needs bins",
        ),
        (
            {"n_clusters": 3, "server_data": "points", "server": "repaired"},
            "server='repaired' needs bins",
        ),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        Unlearning(**parameters)


def test_bad_parts_are_refused():
    parts, (first, second) = split(draw(8), [15, 25])
    method = Unlearning(3)
    bad_ids = (
        [first, first[:15].repeat(2)[:25]],
        [first, second[:5]],
        [first.astype(float), second.astype(float)],
    )
    for ids in bad_ids:
        with pytest.raises(ValueError, match="ids must be different"):
            method.fit(parts, 0, ids=ids)
    too_large = np.append(second[:-1], 10**13)
    message = "ids=10000000000000 must be at least 0 and less than 1000 times"
    with pytest.raises(ValueError, match=message):
        method.fit(parts, 0, ids=[first, too_large])
    unbinned = Unlearning(3, **DC_KMEANS).fit(parts, 0)
    with pytest.raises(ValueError, match="gamma=None: centers are not rounded"):
        unbinned.n_bins  # noqa: B018
    empty = Points.from_grid(np.empty((0, 2), np.int64))
    with pytest.raises(ValueError, match="client_points must hold at least one point"):
        method.fit([empty], 0)
    with pytest.raises(ValueError, match="points must lie in the domain"):
        Points.from_grid(np.array([[SCALE + 1, 0]]))


# K-FED


def test_k_fed_by_hand():
    """Two far groups at each client: the centers are their means, and the server averages those of
    the clients.
    """
    groups = np.array([[-40000, 0], [-40000, 4000], [40000, 0], [40000, -4000]])
    centers, labels = client_centers(groups / SCALE, 2, np.random.default_rng(0))
    assert grid_steps(centers) == [[-40000, 2000], [40000, -2000]]
    assert labels.tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])

    shifted = groups + np.array([0, 8000])
    empty = np.empty((0, 2), np.int64)
    parts = [Points.from_grid(part) for part in (groups, empty, shifted)]
    centers, labels = KFed(2).fit(parts, 0)
    assert grid_steps(centers) == [[-40000, 6000], [40000, 2000]]
    assert len(labels) == 8
    assert (labels[:4] == labels[4:]).all()


def grid_steps(centers):
    """Return centers in grid steps, in the order of their first coordinate."""
    order = np.argsort(centers[:, 0])
    return (centers[order] * SCALE).round(6).tolist()


def test_k_fed_continues_with_the_farthest_centers():
    """Clients with one cluster each: the first one's center, then the farthest, then the next."""
    coordinates = (0, 1000, 60000, 30000)
    parts = [Points.from_grid(np.full((5, 1), coordinate)) for coordinate in coordinates]
    centers, labels = KFed(3, client_clusters=1).fit(parts, 0)
    assert (centers * SCALE).round(6).ravel().tolist() == [500, 60000, 30000]
    assert labels[::5].tolist() == [0, 0, 1, 2]


def test_k_fed_with_as_many_seeds_as_points():
    """Every point is a core."""
    points = np.array([[0.0], [0.5], [1.0]])
    centers, labels = client_centers(points, 3, np.random.default_rng(1))
    assert sorted(centers.ravel().round(12).tolist()) == [0.0, 0.5, 1.0]
    assert len(set(labels.tolist())) == 3


@pytest.mark.parametrize("parameters", [{"n_clusters": 0}, {"n_clusters": 2, "client_clusters": 0}])
def test_k_fed_refuses_bad_parameters(parameters):
    with pytest.raises(ValueError, match="clusters=0 must be an integer of at least 1"):
        KFed(**parameters)


REMOVED = [3, 17, 39]


def parts_of(n=40):
    rows = np.random.default_rng(5).integers(-SCALE, SCALE + 1, (n, 2))
    return [Points.from_grid(rows[:15]), Points.from_grid(rows[15:])]


def seeds_that_explain(model, candidates):
    """Return the seeds from which the number that the server keeps can have come."""
    explaining = []
    for seed in candidates:
        _, server_sequence, _ = child(seed, INITIALIZATION).spawn(3)
        if int(server_sequence.generate_state(1)[0]) == model._server_seed:
            explaining.append(seed)
    return explaining


def times_from(seed, n_ids, k):
    """Draw the arrival times of all points that a fit with this seed gives."""
    time_sequence = child(seed, INITIALIZATION).spawn(3)[0]
    return np.random.default_rng(time_sequence).standard_exponential((n_ids, k))


def times_of(model):
    """Return the arrival times of all points of a model, by id."""
    times = {}
    for client in model._clients:
        for index, point in enumerate(client.ids[: client.n].tolist()):
            times[point] = client.arrival_times[index].tolist()
    return times


def test_small_seed_is_tried_out_and_marked():
    """The attack: whoever has the state finds a small seed, and with it what was removed."""
    model = Unlearning(3).fit(parts_of(), 17)
    before = times_of(model)
    model.remove(REMOVED)
    assert seeds_that_explain(model, range(1000)) == [17]
    recovered = times_from(17, 40, 3)
    for point in REMOVED:
        assert recovered[point].tolist() == before[point]
    assert model.repeatable


def test_fit_without_a_seed_forgets():
    model = Unlearning(3).fit(parts_of())
    before = times_of(model)
    assert not model.repeatable
    model.remove(REMOVED)
    for seed in seeds_that_explain(model, range(1000)):
        assert times_from(seed, 40, 3)[REMOVED[0]].tolist() != before[REMOVED[0]]
    # No generator is left that could be run backwards.
    assert model._generator is None
    dump = pickle.dumps(model)
    for point in REMOVED:
        assert np.array(before[point]).tobytes() not in dump


def test_every_fit_without_a_seed_has_times_of_its_own():
    first = times_of(Unlearning(3).fit(parts_of()))
    second = times_of(Unlearning(3).fit(parts_of()))
    assert not set(map(tuple, first.values())) & set(map(tuple, second.values()))


@pytest.mark.parametrize(
    "method",
    [
        Unlearning(3),
        Unlearning(3, server_data="points"),
        Unlearning(3, client="full"),
        Unlearning(3, **DC_KMEANS),
    ],
)
def test_secret_times_make_exact_removals(method, monkeypatch):
    """With the same secret times the model after a removal is that of a fit without the points."""
    secret = unlearning.secret_exponentials((40, 3))
    monkeypatch.setattr(unlearning, "secret_exponentials", lambda shape: secret[: shape[0]])
    monkeypatch.setattr(unlearning.secrets, "randbits", lambda _: 7)
    parts = parts_of()
    model = method.fit(parts)
    removed = [int(model.seeds[0]), 21]
    model.remove(removed)

    ids = [np.setdiff1d(np.arange(15), removed), np.setdiff1d(np.arange(15, 40), removed)]
    rows = np.concatenate([part.rows for part in parts]).astype(np.int64)
    remaining = [Points.from_grid(rows[part_ids]) for part_ids in ids]
    refit = Unlearning(**vars(method) | {"gamma": model.gamma}).fit(remaining, ids=ids)
    assert model.centers.tolist() == refit.centers.tolist()
    assert model.seeds.tolist() == refit.seeds.tolist()


def test_fresh_times_of_a_fit_without_a_seed_are_secret_too(monkeypatch):
    draws = []
    draw = unlearning.secret_exponentials

    def recorded(shape):
        draws.append(shape)
        return draw(shape)

    monkeypatch.setattr(unlearning, "secret_exponentials", recorded)
    model = Unlearning(3, arrival_times="fresh").fit(parts_of())
    seed = int(model._clients[0].seed_ids[0])
    model.remove([seed])
    assert draws == [(40, 3), (14, 3)]
    assert model._generator is None


def test_secret_times_are_exponential():
    """Mean, variance and median of 200,000 draws, each within six standard errors."""
    times = unlearning.secret_exponentials((200_000,))
    assert (times > 0).all()
    assert np.isfinite(times).all()
    error = 6 / np.sqrt(len(times))
    assert abs(times.mean() - 1) < error
    assert abs(times.var() - 1) < np.sqrt(8) * error
    assert abs((times < np.log(2)).mean() - 0.5) < 0.5 * error
