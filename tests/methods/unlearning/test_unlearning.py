"""Federated clustering that forgets: exact removals, refusals, traces.

Exactness is equality: a model from which points were removed is compared with a fit without them.
"""

import math
import pickle

import numpy as np
import pytest
from client_points import draw, split, state, without
from hypothesis import given, settings
from hypothesis import strategies as st

from pkm.compute import SCALE, Points
from pkm.methods.unlearning import unlearning
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


def test_the_lazy_server_has_another_law_than_a_fit():
    """One cluster, x and y at one client, z at another, x removed.

    Where y is the first client's seed, Algorithm 4 keeps (2 y + z) / 3. A fit without x always
    has (y + z) / 2.
    """
    x, y, z = -30000, 0, 30000
    parts = [Points.from_grid(np.array(rows)) for rows in ([[x], [y]], [[z]])]
    centers = set()
    for seed in range(40):
        model = Unlearning(1, gamma=None, server="lazy").fit(parts, seed)
        is_hit = 0 in model.seeds
        model.remove([0])
        centers.add((is_hit, round(model.centers.item() * SCALE)))
    assert centers == {(True, 15000), (False, 10000)}


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
    message = "ids from 0 to 10000000000000 must be at least 0 and less than 1000 times"
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
