"""A cell as federated clustering with removals: fits, requests, and their cost."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans

from pkm.compute import SCALE, Points
from pkm.experiments import settings
from pkm.experiments.cell import Cell
from pkm.experiments.prepared import Prepared, build
from pkm.experiments.settings import require
from pkm.experiments.timing import Timing, timer
from pkm.federation.sparse import SparseCode, aggregate_sparse
from pkm.federation.splits import iid, noniid
from pkm.methods import Run
from pkm.methods.k_fed import KFed
from pkm.methods.unlearning import FederatedModel, Removal, Unlearning
from pkm.privacy import snap_centers

#: Starts of the k-means whose cost stands for the optimum.
OPTIMUM_STARTS = 20
#: Number of requests after which losses are measured, and after which retraining is timed.
N_CHECKPOINTS = 25
N_RETRAININGS = 5
#: Percentiles of the latencies.
QUANTILES = {"p50": 50, "p95": 95, "p99": 99, "max": 100}


def check_unlearning(cell: Cell, n: int | None) -> None:
    """Refuse a cell whose method cannot do what is requested.

    Raises
    ------
    ValueError
        Naming what is wrong.
    """
    setting = cell.unlearning
    assert setting is not None
    method = build(cell)
    known = isinstance(method, Unlearning | KFed)
    require(known, "method", cell.method, "one of methods.unlearning or methods.k_fed")

    removals = setting.removals
    forgets = isinstance(method, Unlearning)
    require(forgets or not removals, "removals", removals, f"0, for {cell.method} cannot forget")
    remain = n is None or removals * setting.batch < n
    require(remain, "removals", removals, f"fewer points in all than n={n}")

    divisible = setting.split != "noniid" or n is None or 2 * setting.clients <= n
    rule = f"at most half of n={n} for split=noniid"
    require(divisible, "clients", setting.clients, rule)

    binned = isinstance(method, Unlearning) and method.gamma is not None
    rule = f"false, for {cell.method} has no bins"
    require(binned or not setting.sparse, "sparse", setting.sparse, rule)


@dataclass(frozen=True, eq=False)
class ClientData:
    """Points as clients hold them, with the best known clustering of all.

    Parameters
    ----------
    grid : ndarray of shape (n, d), int64
        All points, in their published order.
    ids : list of ndarray
        Positions of each client's points in `grid`.
    parts : list of Points
        Those points.
    points : ndarray of shape (n, d), float64
        All points client by client, in half-widths.
    best : KMeans
        Fitted to all points in half-widths.
    """

    grid: np.ndarray
    ids: list[np.ndarray]
    parts: list[Points]
    points: np.ndarray
    best: KMeans

    @property
    def optimum(self) -> float:
        """Cost of the best known clustering, in squared half-widths."""
        return float(self.best.inertia_)


def client_data(cell: Cell, prepared: Prepared) -> ClientData:
    """Split a cell's points over its clients, and cluster them as well as possible."""
    clients = split_of(cell, prepared)
    ids = [np.flatnonzero(clients == client) for client in range(clients.max() + 1)]
    grid = prepared.points.rows.astype(np.int64)
    parts = [Points.prepare(grid[positions]) for positions in ids]
    return ClientData(
        grid,
        ids,
        parts,
        points=np.concatenate([part.rows for part in parts]) / SCALE,
        best=best_k_means(prepared.points, cell.k, OPTIMUM_STARTS),
    )


def fits_of(
    cell: Cell, prepared: Prepared, mirror: str | None
) -> tuple[list[tuple[Run, Timing]], dict[str, list]]:
    """Fit and serve removals for a cell's seeds one by one, after a fit that is discarded.

    Parameters
    ----------
    cell : Cell
        One with `unlearning`.
    prepared : Prepared
        Its data.
    mirror : str or None
        Not used: the data are loaded.

    Returns
    -------
    fits : list of (Run, Timing)
        One per seed: the centers after the last removal, and the time of the fit.
    columns : dict
        What was measured, one value per seed.

    Raises
    ------
    ValueError
        If the data set has no published split, or the requested split cannot be made.
    """
    method = build(cell)
    data = client_data(cell, prepared)
    shared = {
        "largest_client": max(len(positions) for positions in data.ids),
        "optimum": data.optimum,
        "exact": isinstance(method, Unlearning) and method.exact,
    }
    # The first fit compiles and touches memory for the first time.
    fit(method, data, cell.seeds[0])
    fits = []
    records = []
    for seed in cell.seeds:
        with timer() as elapsed:
            model = fit(method, data, seed)
        if isinstance(model, FederatedModel):
            columns = model_columns(model, data)
        else:
            columns = k_fed_columns(*model, data)
        columns["fit_all_ms"] = 1e3 * elapsed.wall
        if isinstance(model, FederatedModel):
            columns |= request_columns(cell, model, data, seed)
        centers = model.centers if isinstance(model, FederatedModel) else model[0]
        released = snap_centers(centers * SCALE)[None]
        fits.append((Run(released, 1, None, (seed,), np.array([len(centers)])), elapsed))
        records.append(shared | columns)
    return fits, {name: [record[name] for record in records] for name in records[0]}


def fit(
    method: Unlearning | KFed, data: ClientData, seed: int
) -> FederatedModel | tuple[np.ndarray, np.ndarray]:
    """Fit a method to the clients' points: a model that forgets, or `KFed`'s centers and labels."""
    if isinstance(method, KFed):
        return method.fit(data.parts, seed)
    return method.fit(data.parts, seed, ids=data.ids)


def k_fed_columns(centers: np.ndarray, labels: np.ndarray, data: ClientData) -> dict[str, float]:
    """Return the losses of centers and labels, over the optimum."""
    return {
        "loss_ratio": float(((data.points - centers[labels]) ** 2).sum()) / data.optimum,
        "loss_ratio_nearest": nearest_cost(data.points, centers) / data.optimum,
    }


def model_columns(model: FederatedModel, data: ClientData) -> dict[str, float]:
    """Return a model's losses over the optimum, and the times of its fit at clients and server."""
    return {
        "loss_ratio": float(model.induced()[1].sum()) / data.optimum,
        "loss_ratio_nearest": nearest_cost(data.points, model.centers) / data.optimum,
        "fit_client_ms": 1e3 * model.fit_seconds[0],
        "fit_server_ms": 1e3 * model.fit_seconds[1],
    }


def request_columns(
    cell: Cell, model: FederatedModel, data: ClientData, seed: int
) -> dict[str, Any]:
    """Return the cost of sparse aggregation and of removals, where the cell requests them."""
    setting = cell.unlearning
    assert setting is not None
    columns: dict[str, Any] = {}
    if setting.sparse:
        columns |= sparse_columns(model, cell.k)
    if setting.removals:
        columns |= removal_columns(model, data.grid, seed, setting, data.best.cluster_centers_)
    return columns


def split_of(cell: Cell, prepared: Prepared) -> np.ndarray:
    """Client of each point."""
    setting = cell.unlearning
    assert setting is not None
    if setting.split == "published":
        if prepared.clients is None:
            require(False, "split", "published", f"another: {cell.dataset_name} came without one")
        return prepared.clients
    labels = best_k_means(prepared.points, cell.k, OPTIMUM_STARTS).labels_
    if setting.split == "iid":
        return iid(labels, setting.clients)
    return noniid(labels, setting.clients, setting.clusters_per_client, setting.split_seed)


@lru_cache(maxsize=4)
def best_k_means(points: Points, k: int, starts: int) -> KMeans:
    """k-means in half-widths, the best of some starts."""
    return KMeans(k, n_init=starts, random_state=0).fit(points.rows.astype(np.float64) / SCALE)


def optimum_of(points: np.ndarray, centers: np.ndarray) -> float:
    """Cost of k-means started from good centers, near which those of the remaining points are."""
    return float(KMeans(len(centers), init=centers, n_init=1).fit(points).inertia_)


def nearest_cost(points: np.ndarray, centers: np.ndarray) -> float:
    """Sum of squared distances to the nearest center."""
    return float(cdist(points, centers, "sqeuclidean").min(axis=1).sum())


def sparse_columns(model: FederatedModel, k: int) -> dict[str, float]:
    """Cost of sending the clients' messages by sparse aggregation.

    Raises
    ------
    RuntimeError
        If the decoded sum differs from what the server received.
    """
    messages = model.messages()
    d = messages[0][0].shape[1]
    code = SparseCode(d, model.n_bins, k * len(messages))
    bins, counts, report = aggregate_sparse(code, messages)
    received_bins, received_counts = model.received
    if not (np.array_equal(bins, received_bins) and np.array_equal(counts, received_counts)):
        raise RuntimeError("sparse aggregation decoded another sum than the server received")
    return {
        "sparse_bytes": report.bytes_per_client,
        "sparse_encode_ms": 1e3 * report.encode_seconds,
        "sparse_mask_ms": 1e3 * report.mask_seconds,
        "sparse_decode_ms": 1e3 * report.decode_seconds,
        "sparse_attempts": report.attempts,
        "plain_bytes": 4 * k * (d + 1),
    }


def checkpoints(requests: int, count: int) -> list[int]:
    """Choose at most `count` of the requests 1, 2, ..., evenly, with the first and the last."""
    positions = np.linspace(1, requests, min(requests, count)).round().astype(int)
    return sorted(set(positions.tolist()))


def removal_columns(
    model: FederatedModel,
    grid: np.ndarray,
    seed: int,
    setting: settings.Unlearning,
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
    setting : settings.Unlearning
        The cell's.
    best : ndarray of shape (k, d)
        The best known centers of all points, from which those of the remaining points are found.

    Returns
    -------
    dict
        Latencies, rates, losses, and the time of retraining.
    """
    requests = setting.removals
    batch = setting.batch
    generator = np.random.default_rng([seed, requests, batch])
    measured = checkpoints(requests, N_CHECKPOINTS)
    retrained = checkpoints(requests, N_RETRAININGS)
    removals = []
    latencies = []
    probabilities = []
    retrain_seconds = []
    retrain_full_seconds = []
    series = []
    wall = 0.0
    for request in range(1, requests + 1):
        # Choose what is to be removed.
        if setting.requests == "adversarial":
            victims = adversarial(model, batch)
        else:
            victims = random(model, batch, generator)
        probabilities.append(chance_of_a_seed(model, victims))

        # Remove it; only this is timed.
        began = time.perf_counter()
        removal = model.remove(victims)
        wall += time.perf_counter() - began
        removals.append(removal)
        latencies.append(removal.client_seconds + removal.server_seconds)

        # Compare with retraining, by the method's own clients and by full ones.
        if request in retrained:
            retrain_seconds.append(retraining(model, grid, seed, model.method.client))
            retrain_full_seconds.append(retraining(model, grid, seed, "full"))

        if request in measured:
            optimum = optimum_of(grid[model.ids] / SCALE, best)
            checkpoint = {
                "request": request,
                "accumulated_s": sum(latencies),
                "retrain_s": request * float(np.mean(retrain_seconds)),
                "loss_ratio": float(model.induced()[1].sum()) / optimum,
            }
            series.append(checkpoint)

    points = grid[model.ids] / SCALE
    optimum = optimum_of(points, best)
    return {
        "retrain_ms": 1e3 * float(np.mean(retrain_seconds)),
        "retrain_full_ms": 1e3 * float(np.mean(retrain_full_seconds)),
        **latency_columns(removals, latencies),
        "deletions_per_second": sum(removal.n_points for removal in removals) / wall,
        "reseeded": float(np.mean([removal.n_reseeded > 0 for removal in removals])),
        "reseeded_predicted": float(np.mean(probabilities)),
        "optimum_after": optimum,
        "loss_ratio_after": float(model.induced()[1].sum()) / optimum,
        "loss_ratio_after_nearest": nearest_cost(points, model.centers) / optimum,
        "series": series,
    }


def latency_columns(removals: Sequence[Removal], latencies: Sequence[float]) -> dict[str, float]:
    """Return mean and percentiles of latencies (seconds), in milliseconds."""
    columns = {"removal_mean_ms": 1e3 * float(np.mean(latencies))}
    for name, percentile in QUANTILES.items():
        columns[f"removal_{name}_ms"] = 1e3 * float(np.percentile(latencies, percentile))
    for party in ("client", "server"):
        seconds = [getattr(removal, f"{party}_seconds") for removal in removals]
        columns[f"removal_{party}_ms"] = 1e3 * float(np.mean(seconds))
    unseeded = [
        seconds
        for seconds, removal in zip(latencies, removals, strict=True)
        if not removal.n_reseeded
    ]
    columns["mean_untouched_ms"] = 1e3 * float(np.mean(unseeded)) if unseeded else math.nan
    return columns


def random(model: FederatedModel, batch: int, generator: np.random.Generator) -> np.ndarray:
    """Choose a client at random among those with more points, then its points at random."""
    clients = [client for client, size in enumerate(model.sizes) if size > batch]
    require(bool(clients), "batch", batch, "fewer than the points that a client has left")
    client = clients[generator.integers(len(clients))]
    return generator.choice(model.members(client), batch, replace=False)


def adversarial(model: FederatedModel, batch: int) -> np.ndarray:
    """Choose the point of highest induced cost, or the points of highest cost of its client."""
    ids, squares = model.induced()
    clients = model.clients_of(ids)
    members = np.flatnonzero(clients == clients[squares.argmax()])
    costliest = np.argsort(-squares[members], kind="stable")[:batch]
    return ids[members[costliest]]


def chance_of_a_seed(model: FederatedModel, victims: np.ndarray) -> float:
    """Probability that so many points of that client, at random, have a seed among them."""
    if model.method.client == "full":
        return 1.0
    client = int(model.clients_of(victims[:1])[0])
    n = model.sizes[client]
    n_removed = len(victims)
    n_others = n - model.n_seeds(client)
    return 1 - math.comb(n_others, n_removed) / math.comb(n, n_removed)


def retraining(model: FederatedModel, grid: np.ndarray, seed: int, client: str) -> float:
    """Seconds of a fit from scratch of the remaining points: slowest client and server."""
    ids = [model.members(number) for number in range(len(model.sizes))]
    method = Unlearning(**(vars(model.method) | {"client": client, "gamma": model.gamma}))
    parts = [Points.prepare(grid[positions]) for positions in ids]
    return sum(method.fit(parts, seed, ids=ids).fit_seconds)
