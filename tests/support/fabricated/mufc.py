"""Fabricated rows of every sweep of the MUFC paper."""

import hashlib
import json
import math
from functools import cache

import numpy as np
import pandas as pd

from fabricated.rows import as_rows, join_cells, make_cell
from pkm.analysis.claims import reported
from pkm.analysis.claims.claim import read_claims

CONTENT = read_claims("mufc")
SIZES = {"celltype": (12009, 10, 4), "gaussian-10": (30000, 10, 10), "covtype-52": (15120, 52, 7)}
PARAMS = {
    "mufc": {},
    "mufc_points": {"server_data": "points"},
    "mufc_full": {"client": "full"},
    "mufc_lazy": {"server": "lazy"},
    "mufc_repaired": {"server": "repaired"},
    "mufc_simplified": {"gamma": None},
    "q_kmeans": {"client": "quantized"},
    "dc_kmeans": {"client": "full", "gamma": None, "weights": "unit"},
}
MEANS = {
    (cell["dataset"], cell["method"]): reported.parse(cell["loss_ratio"]).mean
    for name in ("table1", "table2")
    for cell in CONTENT["reported"][name]["cells"]
}
# Milliseconds: a request with the server's fit, one that does next to nothing, a retraining, one
# with full clients.
FIT = 3.0
UNTOUCHED = 0.02
RETRAIN = 4.0
FULL = 30.0
#: A hundred random removals on the cell types.
RANDOM_CELLTYPE = "dataset == 'celltype' and requests == 'random' and removals == 100"


def stored_sweep(sweep, dataset):
    """Stored name of a sweep: data sets without a published split have a separate sweep."""
    alone = ("heterogeneity", "client_clusters", "central", "multiclient")
    if dataset == "celltype" or sweep in alone:
        return sweep
    return f"{sweep}_split"


def mufc_cell(
    sweep,
    method,
    dataset,
    *,
    seeds=12,
    params=None,
    removals=0,
    batch=1,
    requests="random",
    **facts,
):
    """One cell; other facts replace columns."""
    n, d, k = SIZES[dataset]
    base = {} if method == "k_fed" else {"client": "seeding", "gamma": "auto", "weights": "sizes"}
    base |= {} if method == "k_fed" else {"server_data": "centers", "server": "refit"}
    params = base | PARAMS.get(method, {}) | (params or {})
    text = json.dumps(params, sort_keys=True)
    identity = [sweep, method, dataset, text, removals, batch, requests, sorted(facts.items())]
    key = hashlib.sha256(json.dumps(identity, default=str).encode()).hexdigest()
    rng = np.random.default_rng(int(key[:12], 16))
    reported_method = method
    for suffix in ("_points", "_lazy", "_repaired"):
        reported_method = reported_method.replace(suffix, "")
    loss = MEANS.get((dataset, reported_method), 1.2) * rng.normal(1, 0.004, seeds)
    predicted = 1 - math.comb(116, batch) / math.comb(120, batch)
    touched = min(predicted + (0.3 if requests == "adversarial" else 0), 1.0)
    touched = 1.0 if "full" in text else touched
    lazy = method == "mufc_lazy"
    fit = {"dc_kmeans": 5.0, "mufc_repaired": 0.2}.get(method, FIT)
    noise = rng.lognormal(0, 0.03, seeds)
    request = noise * (UNTOUCHED + fit * (touched if lazy else 1) + 0.1 * touched)
    target = "KFed" if method == "k_fed" else "Unlearning"
    row = {
        "target": f"pkm.methods.{target}",
        "iterations": 0,
        "half_width": 1.0,
        "timing": removals > 0,
        "clients": 100,
        "split": "published" if dataset == "celltype" else "noniid",
        "clusters_per_client": 3,
        "split_seed": 0,
        "largest_client": 1134,
        "removals": removals,
        "batch": batch,
        "requests": requests,
        "exact": not lazy,
        "optimum": 188.08,
        "loss_ratio": loss,
        "loss_ratio_nearest": 1 + 0.2 * (loss - 1),
        "fit_client_ms": 1.0,
        "fit_server_ms": fit,
        "fit_all_ms": 20.0,
    }
    if removals:
        checkpoints = np.unique(np.linspace(1, removals, 25).astype(int))
        curves = [
            pd.DataFrame(
                {
                    "request": checkpoints,
                    "accumulated_s": checkpoints * request_ms / 1000,
                    "retrain_s": checkpoints * RETRAIN / 1000,
                    "loss_ratio": start * (1 + 0.01 * np.sin(checkpoints)),
                }
            ).to_dict("records")
            for request_ms, start in zip(request, loss, strict=True)
        ]
        row |= {
            "retrain_ms": RETRAIN * noise,
            "retrain_full_ms": FULL * noise,
            "removal_mean_ms": request,
            "removal_p50_ms": UNTOUCHED if lazy else fit,
            "removal_p95_ms": 1.3 * fit,
            "removal_p99_ms": 1.5 * fit,
            "removal_max_ms": 2 * fit * noise,
            "removal_client_ms": (0.01 + 0.1 * touched) * noise,
            "removal_server_ms": request - 0.1,
            "deletions_per_second": 1000 * batch / request,
            "reseeded": touched + rng.normal(0, 0.005, seeds) * ("full" not in text),
            "reseeded_predicted": predicted,
            "mean_untouched_ms": (math.nan if "full" in text else UNTOUCHED if lazy else fit)
            * noise,
            "loss_ratio_after": loss * 1.005,
            "loss_ratio_after_nearest": 1 + 0.2 * (loss - 1),
            "optimum_after": 185.0,
            "series": curves,
        }
    if sweep == "sparse":
        row |= {"sparse_bytes": 12205.0, "plain_bytes": 176.0, "sparse_encode_ms": 0.9 * noise}
        row |= {
            "sparse_mask_ms": 2.0 * noise,
            "sparse_decode_ms": 80 * noise,
            "sparse_attempts": 1.0,
        }
    return make_cell(
        stored_sweep(sweep, dataset),
        key,
        method,
        dataset,
        size=(n, d, k),
        seeds=seeds,
        params=params,
        **row | facts,
    )


mufc_rows = as_rows(mufc_cell)


@cache
def all_rows():
    """Rows of every sweep; copy before changing."""
    parts = []
    for dataset in SIZES:
        parts += [
            mufc_cell("table1", method, dataset)
            for method in ("mufc", "mufc_points", "k_fed", "dc_kmeans")
        ]
        parts.append(mufc_cell("simplified", "mufc_simplified", dataset))
        parts += [mufc_cell("table2", "mufc_full", dataset), mufc_cell("sparse", "mufc", dataset)]
        cell = mufc_cell("client_clusters", "k_fed", dataset, params={"client_clusters": 3})
        parts.append(cell | {"loss_ratio": 0.8 * cell["loss_ratio"] + 0.2})
        for method in ("mufc", "mufc_repaired", "mufc_lazy", "mufc_full", "dc_kmeans"):
            for kind in ("random", "adversarial"):
                parts.append(mufc_cell("removals", method, dataset, removals=100, requests=kind))
            if dataset != "covtype-52" and method != "mufc_full":
                parts += [
                    mufc_cell("batch", method, dataset, removals=50, batch=size)
                    for size in (10, 30)
                ]
        if dataset != "covtype-52":
            effect = 0.004 if dataset == "gaussian-10" else 0.05
            for power in (-4, -2, -1, 1, 2, 4):  # the default is in Table 1
                gamma = 2.0**power / SIZES[dataset][0] ** 0.5
                cell = mufc_cell("gamma", "mufc", dataset, params={"gamma": gamma})
                factor = 1 + effect * max(power, 0)
                parts.append(cell | {"loss_ratio": factor * cell["loss_ratio"]})
    for kind in ("random", "adversarial"):
        requests = {"removals": 50, "requests": kind, "clients": 1, "split": "iid"}
        cell = mufc_cell("central", "mufc", "gaussian-10", **requests)
        refits = mufc_cell("central", "q_kmeans", "gaussian-10", **requests)
        parts += [cell, refits | {"removal_client_ms": refits["retrain_ms"]}]
    for method in ("mufc", "mufc_repaired", "dc_kmeans"):
        for size in (1, 10):
            requests = {"removals": 5, "requests": "clients", "batch": size}
            cell = mufc_cell("multiclient", method, "gaussian-10", **requests)
            parts.append(cell | {"reseeded": 1.0, "reseeded_predicted": 1.0})
    for n_clusters in range(1, 11):
        split = {"clusters_per_client": n_clusters}
        if n_clusters == 10:
            split = {"split": "iid", "clusters_per_client": 3}
        cell = mufc_cell("heterogeneity", "mufc", "gaussian-10", **split)
        factor = 1 + 0.02 * n_clusters
        parts.append(cell | {"loss_ratio": factor * cell["loss_ratio"]})
    return join_cells(parts)
