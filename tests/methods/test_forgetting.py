"""Forgetting: arrival times of removed points cannot be drawn again from what is left."""

import pickle

import numpy as np
import pytest

from pkm.compute import SCALE, Points
from pkm.methods.unlearning import unlearning
from pkm.methods.unlearning.unlearning import Unlearning
from pkm.privacy.mechanisms.noise import INITIALIZATION, child

#: Parameters that make DC-KMeans of it.
DC_KMEANS = {"client": "full", "gamma": None, "weights": "unit"}

REMOVED = [3, 17, 39]


def parts_of(n=40):
    rows = np.random.default_rng(5).integers(-SCALE, SCALE + 1, (n, 2))
    return [Points.prepare(rows[:15]), Points.prepare(rows[15:])]


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
    remaining = [Points.prepare(rows[part_ids]) for part_ids in ids]
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
