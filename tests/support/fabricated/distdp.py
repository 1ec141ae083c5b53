"""Fabricated rows of every sweep of the paper on distance-based privacy."""

import json
import math
from functools import cache

import numpy as np
import pandas as pd

from fabricated.rows import former_name, make_rows, with_charges

SIZES = {
    "shuttle": (58000, 9),
    "shuttle-class": (58000, 10),
    "skin-class": (245057, 4),
    "s1": (5000, 2),
}
SIZES |= {"generated-cities": (50000, 2)}
GEOGRAPHIC = ("generated-cities",)
KS = (4, 6, 8, 12, 16)
RHOS = (1.0, 0.08, 0.008, 0.0001)
DIST = ("dist_dp_published", "dist_dp_printed", "dist_dp")
MOVED = (*DIST, "dist_dp_random_points", "dist_dp_median_published", "dist_dp_median")
ANY = "dist_dp_any"
LEVELS = {
    "kmeans": 1.0,
    "dist_dp_published": 1.2,
    "dist_dp": 1.1,
    "lsh_splits": 2.5,
    "lsh_splits_published": 3.0,
}
LEVELS |= {"dist_dp_random_points": 6.0, "dist_dp_printed": 1.15, ANY: 1.13}
DP = ("lsh_splits_published", "lsh_splits")
LABELS = {
    "noised_points": "gaussian",
    "cell_counts": "gaussian_threshold",
    "region_counts": "laplace",
}
INTERPRETATIONS = {
    "default interpretation": {},
    "regions by noised places": {"regions": "noised"},
    "regions by noised places, printed radius": {"ball": "printed", "regions": "noised"},
    "exact Gaussian noise": {"calibration": "analytic"},
    "noisy sizes of all regions, printed radius": {"sizes": "noisy", "ball": "printed"},
    "fine counts split evenly": {"fine_counts": "split"},
    "trees for one cluster": {"coreset_clusters": 1},
    "coreset_clusters = 3, size_share = 0.2": {"coreset_clusters": 3, "size_share": 0.2},
    "one record charged (F-17)": {"replacement": "uncharged"},
}


def charges_of(method, epsilon, delta):
    """Charges as the ledger writes them, every part within its third."""
    if method == "dist_dp_random_points":
        scale = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
        return [
            {
                "mechanism": "gaussian",
                "label": "noised_points",
                "mu": 1 / scale,
                "point_scale": scale,
                "point_sensitivity": 1,
            }
        ]
    if method in ("dist_dp", ANY):
        # A grid of 8 intervals in two columns, with half of what a replacement needs unless any
        # move is protected.
        share = 1.0 if method == ANY else 0.5
        soft = {
            "mechanism": "gaussian",
            "label": "soft_counts",
            "round": 0,
            "mu": 0.2,
            "delta": 0.0,
        }
        return [
            soft
            | {
                "count_sensitivity": share * math.sqrt(2) + 2 / 2**16,
                "count_scale": 9.0,
                "intervals": 8,
            }
        ]
    if method not in ("dist_dp_published", "dist_dp_printed"):
        return []
    scale = math.sqrt(2 * math.log(1.25 / (delta / 3))) / (epsilon / 3)
    costs = {
        "noised_points": {"mu": 1 / scale},
        "cell_counts": {"mu": 0.8 / scale},
        "region_counts": {"epsilon": epsilon / 7},
    }
    return [
        {
            "mechanism": LABELS[label],
            "label": label,
            "round": 0,
            "delta": delta / 6 * (label == "cell_counts"),
        }
        | cost
        | (
            {"point_scale": 0.05 * scale, "point_sensitivity": 0.05}
            if label == "noised_points"
            else {}
        )
        for label, cost in costs.items()
    ]


def row_of(
    sweep,
    method,
    dataset,
    *,
    k=8,
    epsilon=1.0,
    rho=None,
    seeds=12,
    size=None,
    level=1.0,
    spread=0.01,
    **facts,
):
    """Rows of one cell, one per seed: NICV about `level`."""
    n, d = size or SIZES[dataset]
    private = method not in ("kmeans", "kmedian")
    params = {} if rho is None else {"rho": rho}
    params |= facts.pop("params", {})
    text = json.dumps(params, sort_keys=True)
    # The golden record of this sweep was made under its former name, which seeds the noise too.
    noise_key = {"interpretations": "readings"}.get(sweep, sweep)
    key = f"{noise_key}|{former_name(method)}|{dataset}|{k}|{epsilon if private else None}|{text}"
    rng = np.random.default_rng(list(key.encode()))
    variant = "published" if method in ("dist_dp_published", "dist_dp_printed") else "sound"
    row = {
        "variant": variant if private else "",
        "preprocessing": "minmax",
        "private_bounds": True,
        "adjacency": "rho_bounded" if method in (*MOVED, ANY) else "zero_out",
        "epsilon_spent": 0.9 * epsilon if private else math.nan,
        "epsilon_unspent": 0.1 * epsilon if private else math.nan,
        "nicv": level * rng.normal(1, spread, seeds),
        "fit_cpu_seconds": n * 1e-5,
    }
    return make_rows(
        sweep,
        key,
        method,
        dataset,
        size=(n, d, k),
        seeds=seeds,
        epsilon=epsilon if private else None,
        delta=1e-6,
        params=params,
        charges=charges_of(method, epsilon, 1e-6),
        **row | facts,
    )


@cache
def all_rows():
    """Rows of every sweep, under which every judged claim holds; copy before changing."""
    parts = []
    for dataset in SIZES:
        geo = "_geo" if dataset in GEOGRAPHIC else ""
        for method, factor in LEVELS.items():
            for k in KS:
                rho = "diagonal" if method == ANY else 0.05 if method in MOVED else None
                parts.append(
                    row_of(f"figure1{geo}", method, dataset, k=k, rho=rho, level=0.1 * factor / k)
                )
            if method not in MOVED:
                rho = "diagonal" if method == ANY else None
                parts.append(
                    row_of(f"figure2{geo}", method, dataset, rho=rho, level=0.1 * factor / 8)
                )
                continue
            for rho in RHOS:
                level = 0.1 / 8 * (1 + 1.4 * rho + (5 if "random" in method else 0))
                parts.append(row_of(f"figure2{geo}", method, dataset, rho=rho, level=level))
    for dataset in ("s1", "generated-cities"):
        for epsilon in (0.25, 1.0, 4.0):
            parts.append(row_of("grid", "lsh_splits", dataset, epsilon=epsilon, level=0.03))
            for method, rho in (
                (method, rho) for method in ("dist_dp_published", "dist_dp") for rho in (0.01, 0.1)
            ):
                level = 0.01 * (1 + rho / epsilon)
                parts.append(row_of("grid", method, dataset, epsilon=epsilon, rho=rho, level=level))
        parts += [
            row_of(sweep, "kmeans", dataset, level=0.01) for sweep in ("grid", "interpretations")
        ]
        parts += [
            row_of("interpretations", method, dataset, level=0.01 * LEVELS[method]) for method in DP
        ]
        for params in INTERPRETATIONS.values():
            level = 0.02 + 0.01 * len(params)
            rows = row_of(
                "interpretations",
                "dist_dp_published",
                dataset,
                rho=0.05,
                level=level,
                params=params,
            )
            parts.append(with_charges(rows, []))
        for method in (
            "kmeans",
            "dist_dp_median_published",
            "dist_dp_median",
            "dist_dp_random_points",
        ):
            for rho in RHOS if method in MOVED else (None,):
                rows = row_of("median", method, dataset, rho=rho, level=0.1 * (1 + (rho or 0)))
                rows = rows.rename(columns={"nicv": "mean_distance"})
                parts.append(with_charges(rows, []))
    planted = "planted-20000-4-8-0.05"
    parts.append(
        row_of(
            "planted_rho", "kmeans", planted, size=(20000, 4), level=0.0016, params={"n_init": 10}
        )
    )
    for method, rho in ((method, rho) for method in DIST for rho in (0.01, 0.02, 0.04, 0.08, 0.16)):
        level = 0.0016 + 5 * rho**2
        parts.append(
            row_of(
                "planted_rho", method, planted, size=(20000, 4), rho=rho, level=level, spread=0.001
            )
        )
    parts += [
        row_of("planted_radius", method, "planted-20000-4-8-0", size=(20000, 4), level=0.01)
        for method in DP
    ]
    for method, rho in ((method, rho) for method in DIST for rho in (0.04, 0.01, 0.0025, 0.000625)):
        rows = row_of(
            "planted_radius",
            method,
            "planted-20000-4-8-0",
            size=(20000, 4),
            rho=rho,
            level=rho**1.9,
        )
        parts.append(rows)
    for k in (4, 8, 16, 32):
        name = f"planted-{2500 * k}-4-{k}-0.05"
        size = (2500 * k, 4)
        # An excess over n that grows like k^2 for dist-DP and like k for DP.
        for method in ("kmeans", *DP, *DIST):
            cost = k**2 if method in DIST else k if method in DP else 0
            rho = 0.01 if method in MOVED else None
            level = 0.0016 + cost / size[0]
            parts.append(
                row_of("planted_k", method, name, k=k, size=size, rho=rho, level=level, spread=1e-4)
            )
    for n, d, k in ((10000, 4, 8), (100000, 4, 8), (100000, 4, 2), (100000, 16, 8), (300000, 4, 8)):
        name = f"planted-{n}-{d}-{k}-0.05"
        for method, factor in (
            ("kmeans", 1),
            ("dist_dp_published", 1.5),
            ("dist_dp_printed", 1.4),
            ("dist_dp", 1.2),
        ):
            rho = 0.01 if method in MOVED else None
            parts.append(
                row_of(
                    "planted_factor", method, name, k=k, size=(n, d), rho=rho, level=0.0016 * factor
                )
            )
    for k in (32, 64):
        for method in (*DIST, "dist_dp_random_points"):
            setting = {"k": k, "size": (k, 8), "epsilon": 0.1, "rho": 0.05}
            parts.append(row_of("lower_bound", method, f"half-8-{k}-0.05", level=1e-3, **setting))
    for n in (12500, 25000, 50000, 100000, 200000):
        for method in ("kmeans", "lsh_splits", *DIST, "dist_dp_random_points"):
            rows = row_of(
                "timing",
                method,
                f"planted-{n}-4-8-0.05",
                size=(n, 4),
                rho=0.01 if method in MOVED else None,
            )
            parts.append(rows.assign(timing=True))
    return pd.concat(parts, ignore_index=True)
