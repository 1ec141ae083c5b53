"""Fabricated rows of every sweep of the paper on distance-based privacy."""

import json
import math
from functools import cache

import numpy as np

from fabricated.rows import fabricate, former_name, join_cells, make_cell

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


def cell_of(
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
    """One cell: NICV about `level`."""
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
    return make_cell(
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


def sized(n, d, k, fraction="0.05"):
    """Name and size of planted balls."""
    return f"planted-{n}-{d}-{k}-{fraction}", (n, d, k)


def rows(sweep, methods, datasets, level, rho=None, **facts):
    """Cells of a sweep; methods that protect a move get the length of it."""

    def cell(sweep, method, dataset, *, size, **values):
        n, d, k = size
        return cell_of(sweep, method, dataset, k=k, size=(n, d), **values)

    def own_rho(method, _):
        return "diagonal" if method == ANY else rho if method in MOVED else None

    return fabricate(cell, sweep, methods, datasets, level=level, rho=own_rho, **facts)


def uncharged(cells):
    """The same cells without charges."""
    return [cell | {"charges": ()} for cell in cells]


def of_medians(cells):
    """The same cells with the mean distance in place of NICV, without charges."""
    for cell in uncharged(cells):
        cell["mean_distance"] = cell.pop("nicv")
        yield cell


def _figures():
    others = [method for method in LEVELS if method not in MOVED]
    moved = [method for method in LEVELS if method in MOVED]
    for name, size in SIZES.items():
        geo = "_geo" if name in GEOGRAPHIC else ""
        at_k = [(name, (*size, k)) for k in KS]
        yield from rows(
            f"figure1{geo}", LEVELS, at_k, lambda method, size: 0.1 * LEVELS[method] / size[2], 0.05
        )
        at_8 = [(name, (*size, 8))]
        yield from rows(f"figure2{geo}", others, at_8, lambda method, _: 0.1 * LEVELS[method] / 8)
        for rho in RHOS:

            def level(method, _, rho=rho):
                return 0.1 / 8 * (1 + 1.4 * rho + (5 if "random" in method else 0))

            yield from rows(f"figure2{geo}", moved, at_8, level, rho)


def _interpretations():
    datasets = [(name, (*SIZES[name], 8)) for name in ("s1", "generated-cities")]
    for epsilon in (0.25, 1.0, 4.0):
        yield from rows("grid", ["lsh_splits"], datasets, 0.03, epsilon=epsilon)
        for rho in (0.01, 0.1):
            level = 0.01 * (1 + rho / epsilon)
            methods = ("dist_dp_published", "dist_dp")
            yield from rows("grid", methods, datasets, level, rho, epsilon=epsilon)
    for sweep in ("grid", "interpretations"):
        yield from rows(sweep, ["kmeans"], datasets, 0.01)
    yield from rows("interpretations", DP, datasets, lambda method, _: 0.01 * LEVELS[method])
    for params in INTERPRETATIONS.values():
        level = 0.02 + 0.01 * len(params)
        published = ["dist_dp_published"]
        yield from uncharged(
            rows("interpretations", published, datasets, level, 0.05, params=params)
        )
    medians = ("dist_dp_median_published", "dist_dp_median", "dist_dp_random_points")
    cells = [*rows("median", ["kmeans"], datasets, 0.1)]
    for rho in RHOS:
        cells += rows("median", medians, datasets, 0.1 * (1 + rho), rho)
    yield from of_medians(cells)


def _planted():
    balls = [sized(20000, 4, 8)]
    yield from rows("planted_rho", ["kmeans"], balls, 0.0016, params={"n_init": 10})
    for rho in (0.01, 0.02, 0.04, 0.08, 0.16):
        yield from rows("planted_rho", DIST, balls, 0.0016 + 5 * rho**2, rho, spread=0.001)
    coincident = [sized(20000, 4, 8, "0")]
    yield from rows("planted_radius", DP, coincident, 0.01)
    for rho in (0.04, 0.01, 0.0025, 0.000625):
        yield from rows("planted_radius", DIST, coincident, rho**1.9, rho)

    def excess(method, size):
        """An excess over n that grows like k^2 for dist-DP and like k for DP."""
        n, _, k = size
        return 0.0016 + (k**2 if method in DIST else k if method in DP else 0) / n

    balls = [sized(2500 * k, 4, k) for k in (4, 8, 16, 32)]
    yield from rows("planted_k", ("kmeans", *DP, *DIST), balls, excess, 0.01, spread=1e-4)
    sizes = ((10000, 4, 8), (100000, 4, 8), (100000, 4, 2), (100000, 16, 8), (300000, 4, 8))
    factors = {"kmeans": 1, "dist_dp_published": 1.5, "dist_dp_printed": 1.4, "dist_dp": 1.2}
    balls = [sized(*size) for size in sizes]
    yield from rows("planted_factor", factors, balls, lambda name, _: 0.0016 * factors[name], 0.01)
    factors = {"kmedian": 1, "dist_dp_median_published": 1.5, "dist_dp_median": 1.2}
    cells = rows("planted_median", factors, balls, lambda name, _: 0.04 * factors[name], 0.01)
    yield from of_medians(cells)
    halves = [(f"half-8-{k}-0.05", (k, 8, k)) for k in (32, 64)]
    methods = (*DIST, "dist_dp_random_points")
    yield from rows("lower_bound", methods, halves, 1e-3, 0.05, epsilon=0.1)
    balls = [sized(n, 4, 8) for n in (12500, 25000, 50000, 100000, 200000)]
    methods = ("kmeans", "lsh_splits", *methods)
    yield from rows("timing", methods, balls, 1.0, 0.01, timing=True)


@cache
def all_rows():
    """Rows of every sweep, under which every judged claim holds; copy before changing."""
    return join_cells([*_figures(), *_interpretations(), *_planted()])
