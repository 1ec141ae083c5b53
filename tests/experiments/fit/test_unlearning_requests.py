"""Requests to remove points: which points they name."""

import math

import numpy as np
import pytest
from unlearning_cells import cell

from pkm.compute import Points
from pkm.experiments.fit.execute import execute
from pkm.experiments.fit.unlearning_requests import (
    choose_adversarial,
    choose_clients,
    choose_random,
    compute_seed_probability,
)
from pkm.methods import Unlearning as UnlearningMethod

pytestmark = pytest.mark.integration


def fitted_model(seed=0):
    generator = np.random.default_rng(seed)
    clients = [
        Points.from_grid(generator.integers(-60000, 60000, (n_points, 2)))
        for n_points in (30, 10, 20)
    ]
    return UnlearningMethod(3).fit(clients, seed)


def test_random_requests_select_points_of_one_client():
    model = fitted_model()
    generator = np.random.default_rng(0)
    selected_clients = set()
    for _ in range(60):
        ids = choose_random(model, 3, generator)
        (client,) = set(model.find_clients(ids).tolist())
        selected_clients.add(client)
        assert len(set(ids.tolist())) == 3
    # Clients are equally probable, whatever their sizes.
    assert selected_clients == {0, 1, 2}

    # A client with fewer points than the batch is not selected.
    model.remove(model.members(1)[:8])
    for _ in range(30):
        ids = choose_random(model, 2, generator)
        assert 1 not in model.find_clients(ids)
    with pytest.raises(ValueError, match="batch=30"):
        choose_random(model, 30, generator)


def test_requested_clients_lose_all_their_points():
    model = fitted_model()
    ids = choose_clients(model, 2, np.random.default_rng(0))
    clients = sorted(set(model.find_clients(ids).tolist()))
    assert len(clients) == 2
    assert len(ids) == sum(model.sizes[client] for client in clients)
    assert compute_seed_probability(model, ids) == 1
    model.remove(ids)
    remaining = choose_clients(model, 1, np.random.default_rng(1))
    assert not set(model.find_clients(remaining).tolist()) & set(clients)


@pytest.mark.parametrize("params", [{}, {"client": "quantized"}, {"gamma": None}], ids=str)
def test_rows_of_requested_clients(params):
    requests = {"requests": "clients", "removals": 2, "batch": 2}
    rows = execute(cell(params=params, timing=True, **requests))
    assert (rows["reseeded"] == 1).all()
    assert (rows["batch"] == 2).all()


def test_adversarial_requests_select_the_costliest_points():
    model = fitted_model()
    ids, squares = model.induced()
    first = choose_adversarial(model, 1, None)
    assert squares[ids == first[0]] == squares.max()
    three = choose_adversarial(model, 3, None)
    assert three[0] == first[0]
    assert len(set(model.find_clients(three).tolist())) == 1


@pytest.mark.slow
def test_seed_probability_equals_its_empirical_frequency():
    model = fitted_model(1)
    generator = np.random.default_rng(1)
    members = model.members(1)
    contains_seed = []
    for _ in range(20_000):
        ids = generator.choice(members, 2, replace=False)
        contains_seed.append(np.isin(ids, model.seeds).any())
    expected = compute_seed_probability(model, members[:2])
    assert expected == pytest.approx(1 - math.comb(7, 2) / math.comb(10, 2))
    standard_error = math.sqrt(expected * (1 - expected) / 20_000)
    assert abs(np.mean(contains_seed) - expected) < 5 * standard_error
