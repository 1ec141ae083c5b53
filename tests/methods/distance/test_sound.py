"""The sound variant of DistDP: its strategies, and what they find."""

import numpy as np
import pytest
from moves import blobs, kmeans_cost, median_cost

from pkm.methods import DistDP
from pkm.privacy import (
    snap,
)


@pytest.mark.parametrize(
    ("d", "rho", "strategy"),
    [
        (2, 0.0005, "groups"),
        (2, 0.002, "grid"),
        (2, 0.5, "cells"),
        (6, 0.2, "cells"),
        (12, 0.002, "groups"),
        (12, 1.0, "tree"),
    ],
)
def test_sound_chooses_its_strategy_by_public_values(d, rho, strategy):
    method = DistDP(4, rho=rho)
    points = snap(np.tile(blobs(20_000, d=2), d // 2))
    labels = {
        "groups": {"noised_points", "group_sums"},
        "grid": {"soft_counts"},
        "cells": {"cell_counts", "region_counts"},
        "tree": {"total", "region_counts", "region_sums"},
    }
    assert method.schedule(20_000, d).strategy == strategy
    charges = method.fit_batch(points, [0]).ledger.charges
    assert {charge.label for charge in charges} == labels[strategy]


@pytest.mark.parametrize("d", [1, 2, 3, 5, 8, 10])
@pytest.mark.parametrize("n", [2000, 20_000, 250_000])
def test_sound_keeps_the_cells_as_the_budget_grows(n, d):
    n_with_cells = 0
    for k in (2, 8, 64):
        plans = [
            DistDP(k, epsilon=epsilon, rho="diagonal").choose_schedule(n, d)
            for epsilon in 2.0 ** np.arange(-2, 5)
        ]
        strategies = [plan.strategy for plan in plans if n >= plan.n_sufficient]
        if "cells" in strategies:
            n_with_cells += 1
            assert set(strategies[strategies.index("cells") :]) == {"cells"}
    # Two clusters are large enough for cells at some budget, whatever n and d.
    assert n_with_cells >= 1


def test_sound_does_not_get_worse_with_more_budget():
    # Clusters that fill a small part of the domain, which a grid cannot resolve.
    points = 0.1 * blobs(20_000, d=3, k=4, spread=0.03, seed=1)
    costs = [
        median_cost(
            points,
            DistDP(4, epsilon=epsilon, rho="diagonal", n_init=5).fit_batch(snap(points), range(3)),
        )
        for epsilon in (1.0, 2.0, 4.0, 8.0)
    ]
    assert max(costs) < 1.2 * kmeans_cost(points, 4)


def test_sound_cells_find_clusters_of_different_sizes():
    points = np.tile(blobs(20_000, d=2, k=4, spread=0.01, seed=1), 3)
    noise = 0.2 * np.random.default_rng(0).standard_normal((5000, 6))
    points[::4] = np.clip(points[::4] + noise, -1, 1)
    method = DistDP(4, rho=1.0, n_init=5)
    assert method.schedule(*points.shape).strategy == "cells"
    run = method.fit_batch(snap(points), range(3))
    assert median_cost(points, run) < 1.3 * kmeans_cost(points, 4)


@pytest.mark.parametrize("rho", [0.001, 0.02, 0.05, 1.0])
def test_sound_is_close_to_kmeans_in_two_dimensions(rho):
    points = blobs(5000, d=2, k=6, spread=0.06, seed=1)
    run = DistDP(6, rho=rho, n_init=5).fit_batch(snap(points), range(5))
    assert median_cost(points, run) < 1.1 * kmeans_cost(points, 6, n_init=10)


def test_sound_tree_finds_separated_clusters():
    points = np.tile(blobs(50_000, d=2, k=4, spread=0.05, seed=1), 6)
    method = DistDP(4, rho=1.0, n_init=5)
    assert method.schedule(*points.shape).strategy == "tree"
    run = method.fit_batch(snap(points), range(3))
    assert median_cost(points, run) < 1.5 * kmeans_cost(points, 4)
