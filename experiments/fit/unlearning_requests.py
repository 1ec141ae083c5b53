"""Requests to remove points: which points, and the cost of serving them."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans

from pkm.compute import SCALE, Points
from pkm.experiments.config.settings import require
from pkm.methods.unlearning.unlearning import FederatedModel, Removal

#: Number of requests after which losses are measured, and after which retraining is
#: timed.
N_CHECKPOINTS = 25
N_RETRAININGS = 5
#: Quantiles of the latencies.
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}


def compute_optimum(
    points: np.ndarray,
    centers: np.ndarray,
) -> float:
    """Compute the cost of k-means that starts from good centers."""
    model: Any = KMeans(len(centers)).set_params(init=centers, n_init=1)
    return float(model.fit(points).inertia_)


def compute_nearest_cost(
    points: np.ndarray,
    centers: np.ndarray,
) -> float:
    """Compute the sum of squared distances to the nearest center."""
    return float(cdist(points, centers, "sqeuclidean").min(axis=1).sum())


def choose_checkpoints(requests: int, count: int) -> list[int]:
    """Choose at most `count` of the requests evenly, with the first and the last."""
    positions = np.linspace(1, requests, min(requests, count)).round().astype(int)
    return sorted(set(positions.tolist()))


def measure_removals(
    model: FederatedModel,
    grid: np.ndarray,
    seed: int,
    kind: Any,
    best: np.ndarray,
) -> dict[str, Any]:
    """Serve requests one after the other and measure them.

    Parameters
    ----------
    model : FederatedModel
        Changed by the removals.
    grid : ndarray of shape (n, d), int64
        All points.
    seed : int
    kind : Unlearning
        The cell's kind.
    best : ndarray of shape (k, d)
        The best known centers of all points, from which those of the remaining points
        are found.

    Returns
    -------
    dict
        Latencies, rates, losses, and the time of retraining.
    """
    requests = kind.removals
    batch = kind.batch
    generator = np.random.default_rng([seed, requests, batch])
    measured = choose_checkpoints(requests, N_CHECKPOINTS)
    retrained = choose_checkpoints(requests, N_RETRAININGS)
    removals: list[Removal] = []
    probabilities = []
    retrainings = []
    series = []
    wall = accumulated = 0.0
    for request in range(1, requests + 1):
        # Choose the points to remove.
        removed_ids = CHOICES[kind.requests](model, batch, generator)
        probabilities.append(compute_seed_probability(model, removed_ids))

        # Remove them; only this is timed.
        start = time.perf_counter()
        removal = model.remove(removed_ids)
        wall += time.perf_counter() - start
        removals.append(removal)
        accumulated += removal.client_seconds + removal.server_seconds

        # Compare with retraining, by the method's own clients and by full ones.
        if request in retrained:
            clients = (model.method.client, "full")
            seconds = [time_retraining(model, grid, seed, client) for client in clients]
            retrainings.append(seconds)

        if request in measured:
            optimum = compute_optimum(grid[model.ids] / SCALE, best)
            retrain, retrain_full = np.mean(retrainings, axis=0).tolist()
            checkpoint = {
                "request": request,
                "accumulated_s": accumulated,
                "retrain_s": request * retrain,
                "loss_ratio": float(model.induced()[1].sum()) / optimum,
            }
            series.append(checkpoint)

    # The last request is a checkpoint.
    nearest_cost = compute_nearest_cost(grid[model.ids] / SCALE, model.centers)
    return {
        "retrain_ms": 1e3 * retrain,
        "retrain_full_ms": 1e3 * retrain_full,
        **summarize_removals(removals),
        "deletions_per_second": sum(removal.n_points for removal in removals) / wall,
        "reseeded_predicted": float(np.mean(probabilities)),
        "optimum_after": optimum,
        "loss_ratio_after": checkpoint["loss_ratio"],
        "loss_ratio_after_nearest": nearest_cost / optimum,
        "series": series,
    }


def summarize_removals(removals: Sequence[Removal]) -> dict[str, float]:
    """Return mean and percentiles of latencies in milliseconds, and the reseeded share.

    Seeds are the initial centers that a client chose among its points. The mean over
    requests that remove no seed is NaN where there are none.
    """
    table = pd.DataFrame(removals)
    milliseconds = 1e3 * table[["client_seconds", "server_seconds"]]
    latencies = milliseconds.sum(axis=1)
    is_reseeded = table["n_reseeded"] > 0
    columns = {
        "removal_mean_ms": latencies.mean(),
        "removal_client_ms": milliseconds["client_seconds"].mean(),
        "removal_server_ms": milliseconds["server_seconds"].mean(),
        "mean_untouched_ms": latencies[~is_reseeded].mean(),
        "reseeded": is_reseeded.mean(),
    }
    for name, quantile in QUANTILES.items():
        columns[f"removal_{name}_ms"] = latencies.quantile(quantile)
    return columns


def choose_random(
    model: FederatedModel,
    batch: int,
    generator: np.random.Generator,
) -> np.ndarray:
    """Choose a client with more than `batch` points, and `batch` of them, at random."""
    clients = [client for client, size in enumerate(model.sizes) if size > batch]
    rule = "fewer than the points that a client has left"
    require(bool(clients), "batch", batch, rule)
    client = clients[generator.integers(len(clients))]
    return generator.choice(model.members(client), batch, replace=False)


def choose_clients(
    model: FederatedModel,
    batch: int,
    generator: np.random.Generator,
) -> np.ndarray:
    """Choose random clients that have points, and all of their points."""
    clients = generator.choice(np.flatnonzero(model.sizes), batch, replace=False)
    return np.concatenate([model.members(client) for client in clients])


def choose_adversarial(
    model: FederatedModel,
    batch: int,
    _generator: np.random.Generator,
) -> np.ndarray:
    """Choose the points of highest cost of the client that has the highest."""
    ids, squares = model.induced()
    clients = model.find_clients(ids)
    members = np.flatnonzero(clients == clients[squares.argmax()])
    costliest = np.argsort(-squares[members], kind="stable")[:batch]
    return ids[members[costliest]]


CHOICES = {
    "random": choose_random,
    "adversarial": choose_adversarial,
    "clients": choose_clients,
}


def compute_seed_probability(
    model: FederatedModel,
    removed_ids: np.ndarray,
) -> float:
    """Compute the probability that as many random points contain an initial center.

    The points are of the same clients. The probability is NaN for Q-k-means, where
    other points cause refits, too.
    """
    if model.method.client != "seeding":
        return 1.0 if model.method.client == "full" else math.nan
    n_removed = np.bincount(model.find_clients(removed_ids)).tolist()
    miss = 1.0
    for client, count in enumerate(n_removed):
        n = model.sizes[client]
        n_others = n - model.n_seeds(client)
        miss *= math.comb(n_others, count) / math.comb(n, count)
    return 1 - miss


def time_retraining(
    model: FederatedModel,
    grid: np.ndarray,
    seed: int,
    client: str,
) -> float:
    """Measure a fit from scratch of the remaining points: slowest client, server."""
    ids = [model.members(number) for number in range(len(model.sizes))]
    method = replace(model.method, client=client, gamma=model.gamma)
    parts = [Points.from_grid(grid[positions]) for positions in ids]
    return sum(method.fit(parts, seed, ids=ids).fit_seconds)
