"""The private local search."""

import math

import numpy as np
import pytest
from hashed import ample_ledger, grid_points, hashed, swaps_by_definition

from pkm.compute import Points, inertia
from pkm.methods.hashing.local_search import private_local_search


@pytest.mark.parametrize("moves", ["all", "round_robin"])
def test_local_search_without_noise_ends_at_a_local_optimum(moves):
    rows = grid_points(500, 2, 5)
    candidates = grid_points(12, 2, 6)
    ledger = ample_ledger()
    centers = private_local_search(
        hashed(rows, radius=2.0, ledger=ledger),
        candidates,
        3,
        n_swaps=15,
        mu=1e9 / 4,
        generator=np.random.default_rng(0),
        moves=moves,
    )
    mus = [charge.mu for charge in ledger.charges]
    assert len(mus) == 16
    assert math.hypot(*mus) == pytest.approx(1e9)
    matches = (candidates[:, None] == centers).all(axis=2)
    current = matches.argmax(axis=0)
    costs = swaps_by_definition(rows, candidates, current, range(3))
    assert inertia(Points.from_grid(rows), centers[None])[0] == costs.min()
