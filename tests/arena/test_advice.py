"""Advice: leaves of a tree, their costs, and what they save."""

import math

import numpy as np
import pandas as pd
import pytest
from arena_entries import EPSILONS

from pkm.arena.advice import compute_excess, evaluate_advice, find_leaf, fit_leaves, make_matrix


@pytest.fixture
def matrix():
    """Costs of three methods on 40 sets: one is best for few columns, one for many."""
    rng = np.random.default_rng(0)
    lines = []
    for number in range(40):
        d = int(rng.integers(2, 50))
        for epsilon in EPSILONS:
            costs = {"narrow": 1 + d / 10, "synopsis": 3.0, "never": 9.0}
            lines += [
                {
                    "entry": name,
                    "dataset": f"set{number}",
                    "n": int(rng.integers(100, 10_000)) if name == "narrow" else None,
                    "d": d,
                    "k": 5,
                    "epsilon": epsilon,
                    "bounds_factor": 1.0,
                    "ratio": cost * math.exp(0.05 * rng.standard_normal()),
                }
                for name, cost in costs.items()
            ]
    scores = pd.DataFrame(lines)
    return make_matrix(scores.assign(n=scores["n"].ffill()))


def test_leaves_divide_all_features(matrix):
    leaves = fit_leaves(matrix)
    assert sum(leaf["cells"] for leaf in leaves) == len(matrix)
    rng = np.random.default_rng(1)
    for _ in range(200):
        features = {
            "n_epsilon_per_k": float(10 ** rng.uniform(-3, 8)),
            "d": float(rng.integers(1, 1000)),
            "bounds_factor": float(rng.choice([1.0, 10.0])),
        }
        holding = [
            leaf
            for leaf in leaves
            if all(low < features[name] <= high for name, (low, high) in leaf["bounds"].items())
        ]
        assert len(holding) == 1 and holding[0] is find_leaf(leaves, features)


def test_a_leaf_has_the_geometric_mean_of_its_cells(matrix):
    cells = matrix.index.to_frame(index=False)
    for leaf in fit_leaves(matrix):
        inside = np.full(len(cells), True)
        values = {"d": cells["d"], "n_epsilon_per_k": cells["n"] * cells["epsilon"] / cells["k"]}
        for name, (low, high) in leaf["bounds"].items():
            inside &= ((values[name] > low) & (values[name] <= high)).to_numpy()
        assert inside.sum() == leaf["cells"]
        means = np.exp(np.log(matrix[inside]).mean())
        for name, (cost, low, high) in leaf["costs"].items():
            assert cost == pytest.approx(means[name], rel=1e-3)
            assert low <= cost <= high


def test_advice_beats_a_fixed_choice_where_methods_differ(matrix):
    regret = evaluate_advice(matrix)
    assert regret["advice"][0] < 0.1 < regret["synopsis"][1]
    features = {"n_epsilon_per_k": 1000.0, "d": 3, "bounds_factor": 1.0}
    narrow = find_leaf(fit_leaves(matrix), features)
    ranked = list(narrow["costs"])
    assert ranked[0] == "narrow" and ranked[-1] == "never"


def test_a_method_is_not_advised_where_it_has_no_result(matrix):
    """A gap counts as the worst cost; costs and intervals are of the other cells."""
    lacking = matrix.copy()
    is_wide = lacking.index.get_level_values("d") > 25
    lacking.loc[is_wide, "synopsis"] = np.nan
    for leaf in fit_leaves(lacking):
        low, high = leaf["bounds"].get("d", [0.0, 1e300])
        ranked = list(leaf["costs"])
        if low >= 25:
            assert "synopsis" not in ranked
        elif high <= 25:
            assert ranked.index("synopsis") < ranked.index("never")
    excess = compute_excess(lacking)
    assert (excess.min(axis=1) == 1).all() and (excess >= 1).all(axis=None)
    assert (excess.loc[is_wide, "synopsis"] == excess.loc[is_wide, "never"]).all()


def test_a_method_that_is_always_best_leaves_no_regret(matrix):
    best = matrix.assign(synopsis=0.5)
    assert evaluate_advice(best) == {"advice": [0.0, 0.0], "synopsis": [0.0, 0.0]}
