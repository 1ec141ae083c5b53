"""Which method for some data: a tree over public numbers, fitted on entries of a suite.

The tree divides cells by their costs over the best method's. A cell without a result of
a method counts as its worst. A leaf ranks the methods by the geometric mean, and has
their costs over those of k-means. `evaluate_advice` leaves each data set out once.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.tree import DecisionTreeRegressor

#: Where the fitted advice of this version lies.
ADVICE = Path(__file__).with_name("advice.json")
#: The method that others are compared with as a fixed choice.
ALWAYS = "synopsis"
#: Public numbers that the tree asks about: records a cluster times epsilon, columns,
#: and the width of the bounds over that of the domain.
FEATURES = ("n_epsilon_per_k", "d", "bounds_factor")
#: Depth of the tree, and least number of cells in a leaf, which are of several sets.
DEPTH = 3
LEAF_SIZE = 24
#: Quantiles of the interval.
QUANTILES = (0.1, 0.9)

#: Lower and upper bounds of features.
Bounds = dict[str, list[float]]


def make_features(cells: Mapping[str, Any]) -> dict[str, Any]:
    """Compute features of cells, or of one, with n, d, k, epsilon, bounds_factor."""
    return {
        "n_epsilon_per_k": cells["n"] * cells["epsilon"] / cells["k"],
        "d": cells["d"],
        "bounds_factor": cells["bounds_factor"],
    }


def fit_advice(scores: pd.DataFrame) -> dict[str, Any]:
    """Fit the tree.

    Parameters
    ----------
    scores : DataFrame
        One row per method (``entry``), data set, epsilon and bounds_factor, with the
        cost ``ratio`` and n, d, k.

    Returns
    -------
    dict
        ``methods``; ``leaves`` with bounds of the features and, for every method with a
        result there, the best first, the cost and its interval; ``regret`` of the
        advice and of `ALWAYS` on data sets that were left out.
    """
    table = make_matrix(scores)
    return {
        "methods": list(table.columns),
        "leaves": fit_leaves(table),
        "regret": evaluate_advice(table),
    }


def make_matrix(scores: pd.DataFrame) -> pd.DataFrame:
    """Return ratios: cells with their public numbers down, methods across.

    A method without a result in a cell has NaN there.
    """
    keys = ["dataset", "n", "d", "k", "epsilon", "bounds_factor"]
    return scores.pivot(index=keys, columns="entry", values="ratio")


def compute_excess(matrix: pd.DataFrame) -> pd.DataFrame:
    """Divide costs by the best of each cell; one that is missing is the worst."""
    excess = matrix.div(matrix.min(axis=1), axis=0)
    worst = excess.max(axis=1)
    return excess.where(excess.notna(), worst, axis=0)


def fit_leaves(matrix: pd.DataFrame) -> list[dict[str, Any]]:
    """Fit a tree, and summarize the costs in each leaf."""
    return [
        {
            "bounds": bounds,
            "cells": len(inside),
            "costs": summarize_costs(inside),
        }
        for bounds, inside in divide_cells(matrix)
    ]


def divide_cells(matrix: pd.DataFrame) -> Iterator[tuple[Bounds, pd.DataFrame]]:
    """Divide cells by a tree that is fitted to logarithms of costs over the best one's.

    Yields
    ------
    bounds : dict
        Of a leaf, see `list_leaves`.
    inside : DataFrame
        Costs in the leaf of the methods that have a result there, the best first.
    """
    features = pd.DataFrame(make_features(matrix.index.to_frame(index=False)))
    excess = np.log(compute_excess(matrix))
    tree = DecisionTreeRegressor(
        max_depth=DEPTH,
        min_samples_leaf=LEAF_SIZE,
        random_state=0,
    )
    leaf = tree.fit(features, excess).apply(features)
    for number, bounds in list_leaves(tree).items():
        is_inside = leaf == number
        means = excess[is_inside].mean()
        order = means.sort_values(kind="stable").index
        yield bounds, matrix.loc[is_inside, order].dropna(axis=1, how="all")


def summarize_costs(matrix: pd.DataFrame) -> dict[str, list[float]]:
    """Return the geometric mean and `QUANTILES` of each method."""
    means = np.exp(np.log(matrix).mean())
    low, high = (matrix.quantile(share) for share in QUANTILES)
    table = pd.DataFrame({"mean": means, "low": low, "high": high})
    return {
        method: [float(f"{value:.4g}") for value in values]
        for method, *values in table.itertuples()
    }


def list_leaves(tree: DecisionTreeRegressor) -> dict[int, Bounds]:
    """Return the bounds of every leaf: of each feature that decides, low and high."""
    nodes = tree.tree_
    leaves = {}

    def visit(node: int, bounds: Mapping[str, list[float]]) -> None:
        left, right = nodes.children_left[node], nodes.children_right[node]
        if left == right:
            leaves[node] = dict(bounds)
            return
        name = FEATURES[nodes.feature[node]]
        low, high = bounds.get(name, [0.0, 1e300])
        threshold = float(f"{nodes.threshold[node]:.6g}")
        visit(left, {**bounds, name: [low, threshold]})
        visit(right, {**bounds, name: [threshold, high]})

    visit(0, {})
    return leaves


def find_leaf(
    leaves: Sequence[Mapping[str, Any]], features: Mapping[str, float]
) -> Mapping[str, Any]:
    """Find the leaf of features: above its lower bounds, at most the upper ones."""
    for leaf in leaves:
        bounds = leaf["bounds"].items()
        if all(low < features[name] <= high for name, (low, high) in bounds):
            return leaf
    raise ValueError(f"no leaf has {dict(features)}: features must be positive")


def evaluate_advice(matrix: pd.DataFrame) -> dict[str, list[float]]:
    """Compare the advised method with the best one, each data set left out once.

    Returns
    -------
    dict of str to list of float
        Median and 90th percentile over all cells of the cost over the best one's, minus
        one: of the advice, and of `ALWAYS`.
    """
    regrets: dict[str, list[float]] = {"advice": [], ALWAYS: []}
    excess = compute_excess(matrix)
    datasets = matrix.index.get_level_values("dataset")
    for dataset in datasets.unique():
        leaves = [
            {"bounds": bounds, "advised": inside.columns[0]}
            for bounds, inside in divide_cells(matrix[datasets != dataset])
        ]
        left_out = excess[datasets == dataset]
        cells = left_out.index.to_frame().to_dict("records")
        for cell, (_, costs) in zip(cells, left_out.iterrows(), strict=True):
            advised = find_leaf(leaves, make_features(cell))["advised"]
            regrets["advice"].append(costs[advised] - 1)
            regrets[ALWAYS].append(costs[ALWAYS] - 1)
    return {
        name: np.quantile(values, [0.5, 0.9]).round(4).tolist()
        for name, values in regrets.items()
    }


def read_advice() -> dict[str, Any]:
    """Read the advice that comes with the code."""
    return json.loads(ADVICE.read_text(encoding="utf-8"))
