"""A cell as federated clustering with removals: fits, requests, and their cost."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from sklearn.cluster import KMeans

from pkm.compute import SCALE, Points
from pkm.experiments.cell.cell import Cell
from pkm.experiments.config.settings import require
from pkm.experiments.fit.inputs import Prepared, build
from pkm.experiments.fit.removal_requests import nearest_cost, removal_columns
from pkm.experiments.fit.timing import Timing, timer
from pkm.federation.sparse import SparseCode, aggregate_sparse
from pkm.federation.splits import iid, noniid
from pkm.methods import Run
from pkm.methods.unlearning.k_fed import KFed
from pkm.methods.unlearning.unlearning import FederatedModel, Unlearning
from pkm.privacy import snap_centers

#: Starts of the k-means whose cost stands for the optimum.
OPTIMUM_STARTS = 20


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
