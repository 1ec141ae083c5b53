"""Federated clustering of the seeds of a cell, and what it costs to remove points."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans

from pkm.compute import SCALE, Points
from pkm.experiments.cell.kind import FitResults
from pkm.experiments.config.settings import require
from pkm.experiments.fit.inputs import ResolvedCell
from pkm.experiments.fit.timing import timer
from pkm.experiments.fit.unlearning_requests import (
    compute_nearest_cost,
    measure_removals,
)
from pkm.federation.sparse import SparseCode, aggregate_sparse
from pkm.federation.splits import split_iid, split_noniid
from pkm.methods import Run
from pkm.methods.unlearning.k_fed import KFed
from pkm.methods.unlearning.unlearning import FederatedModel, Unlearning
from pkm.privacy import snap_centers

#: Starts of the k-means whose cost stands for the optimum.
OPTIMUM_STARTS = 20


def check_method(
    kind: Any,
    name: str,
    method: Any,
    n: int | None,
) -> None:
    """Refuse a method that cannot do what is requested.

    Raises
    ------
    ValueError
        Naming what is wrong.
    """
    known = isinstance(method, Unlearning | KFed)
    require(known, "method", name, "one of methods.unlearning or methods.k_fed")

    removals = kind.removals
    forgets = isinstance(method, Unlearning)
    rule = f"0, for {name} cannot forget"
    require(forgets or not removals, "removals", removals, rule)
    if kind.requests == "clients":
        rule = f"fewer clients in all than clients={kind.clients}"
        require(removals * kind.batch < kind.clients, "removals", removals, rule)
    remain = n is None or removals * kind.batch < n
    require(remain, "removals", removals, f"fewer points in all than n={n}")

    divisible = kind.split != "noniid" or n is None or 2 * kind.clients <= n
    rule = f"at most half of n={n} for split=noniid"
    require(divisible, "clients", kind.clients, rule)

    binned = isinstance(method, Unlearning) and method.gamma is not None
    rule = f"false, for {name} has no bins"
    require(binned or not kind.sparse, "sparse", kind.sparse, rule)


@dataclass(frozen=True, eq=False)
class ClientData:
    """Points as clients hold them, with the best known clustering of all.

    Parameters
    ----------
    grid : ndarray of shape (n, d), int64
        All points, in their published order.
    ids : list of ndarray
        Positions of each client's points in `grid`.
    client_points : list of Points
        Those points.
    points : ndarray of shape (n, d), float64
        All points client by client, in half-widths.
    best : KMeans
        Fitted to all points in half-widths.
    """

    grid: np.ndarray
    ids: list[np.ndarray]
    client_points: list[Points]
    points: np.ndarray
    best: Any

    @property
    def optimum(self) -> float:
        """Cost of the best known clustering, in squared half-widths."""
        return float(self.best.inertia_)


def split_data(resolved: ResolvedCell, kind: Any) -> ClientData:
    """Split a cell's points over its clients, and find their best known clustering."""
    clients = assign_clients(resolved, kind)
    ids = [np.flatnonzero(clients == client) for client in range(clients.max() + 1)]
    grid = resolved.data.points.rows.astype(np.int64)
    client_points = [Points.from_grid(grid[positions]) for positions in ids]
    points = np.concatenate([held.rows for held in client_points]) / SCALE
    best = fit_best_k_means(resolved.data.points, resolved.cell.k, OPTIMUM_STARTS)
    return ClientData(grid, ids, client_points, points, best)


def fit_seeds(resolved: ResolvedCell, kind: Any) -> FitResults:
    """Fit and serve removals seed by seed, after a fit that is discarded.

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
    cell, method = resolved.cell, resolved.method
    data = split_data(resolved, kind)
    shared = {
        "largest_client": max(len(positions) for positions in data.ids),
        "optimum": data.optimum,
        "exact": isinstance(method, Unlearning) and method.exact,
    }
    # The first fit and the first removal compile and touch memory for the first time.
    warm_up = fit(method, data, cell.seeds[0])
    best = data.best.cluster_centers_
    if kind.removals and isinstance(warm_up, FederatedModel):
        once = replace(kind, removals=1)
        measure_removals(warm_up, data.grid, cell.seeds[0], once, best)
    fits = []
    records = []
    for seed in cell.seeds:
        with timer() as elapsed:
            model = fit(method, data, seed)
        columns = shared | {"fit_all_ms": 1e3 * elapsed.wall}
        if isinstance(model, FederatedModel):
            columns |= compute_losses(model.induced()[1].sum(), model.centers, data)
            columns["fit_client_ms"] = 1e3 * model.fit_seconds[0]
            columns["fit_server_ms"] = 1e3 * model.fit_seconds[1]
            if kind.sparse:
                columns |= measure_sparse_aggregation(model, cell.k)
            if kind.removals:
                columns |= measure_removals(model, data.grid, seed, kind, best)
            centers = model.centers
        else:
            centers, labels = model
            cost = ((data.points - centers[labels]) ** 2).sum()
            columns |= compute_losses(cost, centers, data)
        records.append(columns)
        released = snap_centers(centers * SCALE)[None]
        run = Run(released, 1, None, (seed,), np.array([len(centers)]))
        fits.append((run, elapsed))
    return fits, pd.DataFrame(records).to_dict("list")


def fit(
    method: Unlearning | KFed,
    data: ClientData,
    seed: int,
) -> FederatedModel | tuple[np.ndarray, np.ndarray]:
    """Fit a method to the clients' points: a model, or `KFed`'s centers and labels."""
    if isinstance(method, KFed):
        return method.fit(data.client_points, seed)
    return method.fit(data.client_points, seed, ids=data.ids)


def compute_losses(
    cost: float,
    centers: np.ndarray,
    data: ClientData,
) -> dict[str, float]:
    """Compute the losses of an assignment and of nearest centers, over the optimum."""
    return {
        "loss_ratio": float(cost) / data.optimum,
        "loss_ratio_nearest": compute_nearest_cost(data.points, centers) / data.optimum,
    }


def assign_clients(resolved: ResolvedCell, kind: Any) -> np.ndarray:
    """Return the client of each point."""
    cell, data = resolved.cell, resolved.data
    if kind.split == "published":
        rule = f"another: {cell.dataset_name} came without one"
        require(data.clients is not None, "split", kind.split, rule)
        return np.asarray(data.clients)
    labels = fit_best_k_means(data.points, cell.k, OPTIMUM_STARTS).labels_
    if kind.split == "iid":
        return split_iid(labels, kind.clients)
    return split_noniid(labels, kind.clients, kind.clusters_per_client, kind.split_seed)


def fit_best_k_means(points: Points, k: int, starts: int) -> Any:
    """Fit k-means in half-widths, the best of some starts, cached with the points."""
    model = KMeans(k, random_state=0).set_params(n_init=starts)
    rows = points.rows.astype(np.float64) / SCALE
    return points.cached(f"best {k}-means of {starts}", (), partial(model.fit, rows))


def measure_sparse_aggregation(
    model: FederatedModel,
    k: int,
) -> dict[str, float]:
    """Measure the cost of sending the clients' messages by sparse aggregation.

    Raises
    ------
    RuntimeError
        If the decoded sum differs from what the server received.
    """
    messages = model.messages()
    d = messages[0][0].shape[1]
    code = SparseCode(d, model.n_bins, k * len(messages))
    bins, counts, report = aggregate_sparse(code, messages)
    if not all(map(np.array_equal, (bins, counts), model.received)):
        raise RuntimeError(
            "sparse aggregation decoded another sum than the server received"
        )
    return {
        "sparse_bytes": report.bytes_per_client,
        "sparse_encode_ms": 1e3 * report.encode_seconds,
        "sparse_mask_ms": 1e3 * report.mask_seconds,
        "sparse_decode_ms": 1e3 * report.decode_seconds,
        "sparse_attempts": report.attempts,
        "plain_bytes": 4 * k * (d + 1),
    }
