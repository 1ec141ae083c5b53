"""Which method for some data: a tree over public numbers, fitted on entries of a suite.

A leaf has, for each method, the geometric mean of its costs over those of k-means, and
an interval for 80 % of the cells. `evaluate_advice` leaves each data set out once.
"""

import json
from collections.abc import Mapping, Sequence
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
#: Of the tree. A leaf has cells of several sets.
DEPTH = 3
LEAF_SIZE = 24
#: Quantiles of the interval.
QUANTILES = (0.1, 0.9)


def make_features(cells: pd.DataFrame) -> pd.DataFrame:
    """Compute the features of cells with columns n, d, k, epsilon, bounds_factor."""
    return pd.DataFrame(
        {
            "n_epsilon_per_k": cells["n"] * cells["epsilon"] / cells["k"],
            "d": cells["d"],
            "bounds_factor": cells["bounds_factor"],
        }
    )


def fit_advice(scores: pd.DataFrame) -> dict[str, Any]:
    """Fit the tree.

    Parameters
    ----------
    scores : DataFrame
        One row per method (``entry``), data set, epsilon and bounds_factor, with the
        cost ``ratio`` and n, d, k. Methods that lack a cell are left out.

    Returns
    -------
    dict
        ``methods``; ``leaves`` with bounds of the features and, for every method, the
        cost and its interval; ``regret`` of the advice and of `ALWAYS` on data sets
        that were left out.
    """
    table = make_matrix(scores)
    return {
        "methods": list(table.columns),
        "leaves": fit_tree(table),
        "regret": evaluate_advice(table),
    }


def make_matrix(scores: pd.DataFrame) -> pd.DataFrame:
    """Return ratios: cells with their public numbers down, methods across."""
    keys = ["dataset", "n", "d", "k", "epsilon", "bounds_factor"]
    matrix = scores.pivot(index=keys, columns="entry", values="ratio")
    return matrix.dropna(axis=1)


def fit_tree(matrix: pd.DataFrame) -> list[dict[str, Any]]:
    """Fit a tree to the logarithms of ratios, and list its leaves."""
    features = make_features(matrix.index.to_frame(index=False))
    logs = np.log(matrix.to_numpy())
    tree = DecisionTreeRegressor(
        max_depth=DEPTH, min_samples_leaf=LEAF_SIZE, random_state=0
    )
    leaf = tree.fit(features, logs).apply(features)
    leaves = []
    for number, bounds in list_leaves(tree).items():
        inside = logs[leaf == number]
        low, high = np.exp(np.quantile(inside, QUANTILES, axis=0))
        means = np.exp(inside.mean(axis=0))
        costs = zip(means, low, high, strict=True)
        rounded = [[float(f"{value:.4g}") for value in cost] for cost in costs]
        leaves.append(
            {
                "bounds": bounds,
                "cells": int((leaf == number).sum()),
                "costs": dict(zip(matrix.columns, rounded, strict=True)),
            }
        )
    return leaves


def list_leaves(tree: DecisionTreeRegressor) -> dict[int, dict[str, list[float]]]:
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
    datasets = matrix.index.get_level_values("dataset")
    for dataset in datasets.unique():
        leaves = fit_tree(matrix[datasets != dataset])
        part = matrix[datasets == dataset]
        features = make_features(part.index.to_frame(index=False)).to_dict("records")
        for cell, (_, costs) in zip(features, part.iterrows(), strict=True):
            advised = rank_methods(find_leaf(leaves, cell))[0]
            for name, method in (("advice", advised), (ALWAYS, ALWAYS)):
                regrets[name].append(costs[method] / costs.min() - 1)
    return {
        name: np.quantile(values, [0.5, 0.9]).round(4).tolist()
        for name, values in regrets.items()
    }


def rank_methods(leaf: Mapping[str, Any]) -> list[str]:
    """Rank the methods by their expected cost in a leaf."""
    return sorted(leaf["costs"], key=lambda method: leaf["costs"][method][0])


def read_advice() -> dict[str, Any]:
    """Read the advice that comes with the code."""
    return json.loads(ADVICE.read_text(encoding="utf-8"))
