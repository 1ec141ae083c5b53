"""A cell as federated clustering from which points are removed: fits, requests, and what both cost."""

import json
import math
import time
from functools import lru_cache

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans

from pkm.compute import SCALE, Points
from pkm.experiments.cell import Cell, require
from pkm.experiments.prepared import Prepared, build
from pkm.experiments.timing import Timing
from pkm.federation.sparse import SparseCode, aggregate_sparse
from pkm.federation.splits import iid, noniid
from pkm.methods import Run
from pkm.methods.k_fed import KFed
from pkm.methods.unlearning import FederatedModel, Unlearning
from pkm.privacy import snap_centers

OPTIMUM_STARTS = 20
CHECKPOINTS, RETRAININGS = 25, 5
QUANTILES = {"p50": 50, "p95": 95, "p99": 99, "max": 100}


def check_unlearning(cell: Cell, n: int | None) -> None:
    """Refuse a cell whose method cannot do what is asked of it.

    Raises
    ------
    ValueError
        Naming what is wrong.
    """
    asked, method = dict(cell.unlearning), build(cell)
    require(
        isinstance(method, Unlearning | KFed),
        "method",
        cell.method,
        "one of methods.unlearning or methods.k_fed",
    )
    forgets = isinstance(method, Unlearning)
    require(
        forgets or not asked["removals"],
        "removals",
        asked["removals"],
        f"0, for {cell.method} cannot forget",
    )
    wanted = asked["removals"] * asked["batch"]
    require(
        n is None or wanted < n, "removals", asked["removals"], f"fewer points in all than n={n}"
    )
    split = asked["split"] != "noniid" or n is None or 2 * asked["clients"] <= n
    require(split, "clients", asked["clients"], f"at most half of n={n} for split=noniid")
    rounds = forgets and method.gamma is not None
    require(
        rounds or not asked["sparse"],
        "sparse",
        asked["sparse"],
        f"false, for {cell.method} has no bins",
    )


def fits_of(
    cell: Cell, prepared: Prepared, mirror: str | None
) -> tuple[list[tuple[Run, Timing]], dict[str, np.ndarray | list]]:
    """Fit and serve removals for a cell's seeds one by one, after a fit that is thrown away.

    Parameters
    ----------
    cell : Cell
        One with `unlearning`.
    prepared : Prepared
        Its data.
    mirror : str or None
        Not used: the data are at hand.

    Returns
    -------
    fits : list of (Run, Timing)
        One per seed: the centers after the last removal, and the time of the fit.
    columns : dict
        What was measured, one value per seed.

    Raises
    ------
    ValueError
        If the data set has no published split, or the split that is asked for cannot be made.
    """
    asked, method = dict(cell.unlearning), build(cell)
    clients = split_of(cell, prepared)
    ids = [np.flatnonzero(clients == client) for client in range(clients.max() + 1)]
    grid = prepared.points.rows.astype(np.int64)
    parts = [Points.prepare(grid[each]) for each in ids]
    best = best_k_means(prepared.points, cell.k, OPTIMUM_STARTS)
    optimum = float(best.inertia_)
    shared = {
        "largest_client": max(len(each) for each in ids),
        "optimum": optimum,
        "exact": isinstance(method, Unlearning) and method.exact,
    }
    points = np.concatenate([part.rows for part in parts]) / SCALE
    named = {} if isinstance(method, KFed) else {"ids": ids}
    method.fit(parts, cell.seeds[0], **named)
    fits, found = [], []
    for seed in cell.seeds:
        began, cpu = time.perf_counter(), time.process_time()
        model = method.fit(parts, seed, **named)
        elapsed = Timing(time.perf_counter() - began, time.process_time() - cpu)
        if isinstance(method, KFed):
            centers, labels = model
            own = {"loss_ratio": float(((points - centers[labels]) ** 2).sum()) / optimum}
        else:
            centers = model.centers
            own = {"loss_ratio": float(model.induced()[1].sum()) / optimum}
            own |= {
                "fit_client_ms": 1e3 * model.fit_seconds[0],
                "fit_server_ms": 1e3 * model.fit_seconds[1],
            }
        own |= {
            "fit_all_ms": 1e3 * elapsed.wall,
            "loss_ratio_nearest": nearest_cost(points, centers) / optimum,
        }
        if asked["sparse"]:
            own |= sparse_columns(model, cell.k)
        if asked["removals"]:
            own |= removal_columns(model, grid, seed, asked, best.cluster_centers_)
            centers = model.centers
        released = snap_centers(centers * SCALE)[None]
        fits.append((Run(released, 1, None, (seed,), np.array([len(centers)])), elapsed))
        found.append(shared | own)
    return fits, {name: [each[name] for each in found] for name in found[0]}


def split_of(cell: Cell, prepared: Prepared) -> np.ndarray:
    """Client of each point."""
    asked = dict(cell.unlearning)
    if asked["split"] == "published":
        require(
            prepared.clients is not None,
            "split",
            "published",
            f"another: {cell.dataset_name} came without one",
        )
        return prepared.clients
    labels = best_k_means(prepared.points, cell.k, OPTIMUM_STARTS).labels_
    if asked["split"] == "iid":
        return iid(labels, asked["clients"])
    return noniid(labels, asked["clients"], asked["clusters_per_client"], asked["split_seed"])


@lru_cache(maxsize=4)
def best_k_means(points: Points, k: int, starts: int) -> KMeans:
    """k-means in half-widths, the best of some starts."""
    return KMeans(k, n_init=starts, random_state=0).fit(points.rows.astype(np.float64) / SCALE)


def optimum_of(points: np.ndarray, centers: np.ndarray) -> float:
    """Cost of k-means that goes on from good centers: what is left of the points has its optimum near."""
    return float(KMeans(len(centers), init=centers, n_init=1).fit(points).inertia_)


def nearest_cost(points: np.ndarray, centers: np.ndarray) -> float:
    """Sum of squared distances to the nearest center."""
    return float(cdist(points, centers, "sqeuclidean").min(axis=1).sum())


def sparse_columns(model: FederatedModel, k: int) -> dict[str, float]:
    """Cost of telling the server by sparse aggregation, which must tell it what it was told.

    Raises
    ------
    RuntimeError
        If the decoded sum is another.
    """
    messages = model.messages()
    d = messages[0][0].shape[1]
    bins, counts, report = aggregate_sparse(
        SparseCode(d, model.n_bins, k * len(messages)), messages
    )
    received_bins, received_counts = model.received
    if not (np.array_equal(bins, received_bins) and np.array_equal(counts, received_counts)):
        raise RuntimeError("sparse aggregation decoded another sum than the server was told")
    return {
        "sparse_bytes": report.bytes_per_client,
        "sparse_encode_ms": 1e3 * report.encode_seconds,
        "sparse_mask_ms": 1e3 * report.mask_seconds,
        "sparse_decode_ms": 1e3 * report.decode_seconds,
        "sparse_attempts": report.attempts,
        "plain_bytes": 4 * k * (d + 1),
    }


def removal_columns(
    model: FederatedModel, grid: np.ndarray, seed: int, asked: dict, best: np.ndarray
) -> dict[str, float | str]:
    """Serve requests one after the other; latencies, rates, losses, and what retraining would have cost.

    ``best`` are the best known centers of all points, from which those of what is left are found.
    """
    requests, batch = asked["removals"], asked["batch"]
    generator = np.random.default_rng([seed, requests, batch])
    seen = sorted(
        set(np.linspace(1, requests, min(requests, CHECKPOINTS)).round().astype(int).tolist())
    )
    retrained = set(
        np.linspace(1, requests, min(requests, RETRAININGS)).round().astype(int).tolist()
    )
    removals, latencies, predicted, wall = [], [], [], 0.0
    honest, full, series = (
        [],
        [],
        {"request": [], "accumulated_s": [], "retrain_s": [], "loss_ratio": []},
    )
    for request in range(1, requests + 1):
        victims = (
            adversarial(model, batch)
            if asked["requests"] == "adversarial"
            else random(model, batch, generator)
        )
        predicted.append(chance_of_a_seed(model, victims))
        began = time.perf_counter()
        removal = model.remove(victims)
        wall += time.perf_counter() - began
        removals.append(removal)
        latencies.append(removal.client_seconds + removal.server_seconds)
        if request in retrained:
            honest.append(retraining(model, grid, seed, model.method.client))
            full.append(retraining(model, grid, seed, "full"))
        if request in seen:
            series["request"].append(request)
            series["accumulated_s"].append(sum(latencies))
            series["retrain_s"].append(request * float(np.mean(honest)))
            series["loss_ratio"].append(
                float(model.induced()[1].sum()) / optimum_of(grid[model.ids] / SCALE, best)
            )
    points = grid[model.ids] / SCALE
    after = optimum_of(points, best)
    untouched = [
        seconds
        for seconds, removal in zip(latencies, removals, strict=True)
        if not removal.n_reseeded
    ]
    return {
        "retrain_ms": 1e3 * float(np.mean(honest)),
        "retrain_full_ms": 1e3 * float(np.mean(full)),
        "removal_mean_ms": 1e3 * float(np.mean(latencies)),
        **{
            f"removal_{name}_ms": 1e3 * float(np.percentile(latencies, q))
            for name, q in QUANTILES.items()
        },
        "removal_client_ms": 1e3 * float(np.mean([removal.client_seconds for removal in removals])),
        "removal_server_ms": 1e3 * float(np.mean([removal.server_seconds for removal in removals])),
        "deletions_per_second": sum(removal.n_points for removal in removals) / wall,
        "reseeded": float(np.mean([removal.n_reseeded > 0 for removal in removals])),
        "reseeded_predicted": float(np.mean(predicted)),
        "mean_untouched_ms": 1e3 * float(np.mean(untouched)) if untouched else math.nan,
        "optimum_after": after,
        "loss_ratio_after": float(model.induced()[1].sum()) / after,
        "loss_ratio_after_nearest": nearest_cost(points, model.centers) / after,
        "series": json.dumps(series),
    }


def random(model: FederatedModel, batch: int, generator: np.random.Generator) -> np.ndarray:
    """A client at random among those with more points than asked for, then its points at random."""
    able = [client for client, size in enumerate(model.sizes) if size > batch]
    require(bool(able), "batch", batch, "fewer than the points that a client has left")
    return generator.choice(
        model.members(able[generator.integers(len(able))]), batch, replace=False
    )


def adversarial(model: FederatedModel, batch: int) -> np.ndarray:
    """The point that costs most by way of its client's center, or the costliest ones of its client."""
    ids, squares = model.induced()
    clients = model.clients_of(ids)
    own = np.flatnonzero(clients == clients[squares.argmax()])
    return ids[own[np.argsort(-squares[own], kind="stable")[:batch]]]


def chance_of_a_seed(model: FederatedModel, victims: np.ndarray) -> float:
    """Probability that so many points of that client, at random, have a seed among them."""
    if model.method.client == "full":
        return 1.0
    client = int(model.clients_of(victims[:1])[0])
    n, seeds, r = model.sizes[client], model.n_seeds(client), len(victims)
    return 1 - math.comb(n - seeds, r) / math.comb(n, r)


def retraining(model: FederatedModel, grid: np.ndarray, seed: int, client: str) -> float:
    """Seconds of a fit of what is left from scratch: slowest client and server."""
    left = [model.members(number) for number in range(len(model.sizes))]
    kind = Unlearning(**(vars(model.method) | {"client": client, "gamma": model.gamma}))
    return sum(kind.fit([Points.prepare(grid[each]) for each in left], seed, ids=left).fit_seconds)
