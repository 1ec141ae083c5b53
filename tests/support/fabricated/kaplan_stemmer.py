"""Fabricated rows of every sweep of the paper on constant multiplicative error."""

import json
import math
from functools import cache

import numpy as np
import pandas as pd

from fabricated.fastlloyd import SIZES as FASTLLOYD_SIZES
from fabricated.fastlloyd import cell_rows
from fabricated.rows import former_name, make_rows
from pkm.privacy import gaussian_mu
from pkm.privacy.mechanisms.selection import selection_epsilon

NS = (10000, 30000, 100000, 300000, 1000000)
RIVALS = ("sulloyd", "lsh_splits", "balcan", "dpm", "dpm_merged")
LOCAL = ("kaplan_stemmer_local", "ldp_lloyd", "ldp_noise", "ldp_mean")
FACTORS = {
    "kmeans": 1.0,
    "kaplan_stemmer": 1.05,
    "kaplan_stemmer_search": 1.3,
    "balcan": 3.0,
    "sulloyd": 8.0,
    "lsh_splits": 2.0,
    "dpm": 1.5,
    "dpm_merged": 1.6,
    "mean": 300.0,
    "packing": 400.0,
}
BASELINES = ("mean", "packing")
BALL = 0.002


def row_of(
    sweep, method, dataset, *, size, level, epsilon=1.0, seeds=12, spread=0.01, params=None, **facts
):
    """Rows of one cell, one per seed: NICV about `level`."""
    n, _, k = size
    private = method not in ("kmeans", *BASELINES)
    local = method in LOCAL
    text = json.dumps(params or {}, sort_keys=True)
    key = f"{sweep}|{former_name(method)}|{dataset}|{epsilon if private else None}|{text}"
    rng = np.random.default_rng(list(key.encode()))
    row = {
        "variant": "sound" if private else "",
        "adjacency": "local" if local else "zero_out",
        "iterations": 5 if local else 2,
        "nicv": level * rng.normal(1, spread, seeds),
        "n_centers": float(k),
        "fit_cpu_seconds": n * 1e-5 * rng.normal(1, 0.01, seeds),
    }
    if local:
        row["trust"] = "local"
    return make_rows(
        sweep,
        key,
        method,
        dataset,
        size=size,
        seeds=seeds,
        epsilon=epsilon if private else None,
        delta=0.0 if local or method == "sulloyd" else 1e-6,
        params=params,
        charges=charges_of(method, epsilon),
        **row | facts,
    )


def charges_of(method, epsilon):
    """Charges of a method with histograms of two passes and a choice, as its ledger writes them;
    none for others.
    """
    if not method.startswith("kaplan_stemmer") or method in LOCAL:
        return []
    mu = gaussian_mu(epsilon, 5e-7) / 2
    first = {
        "label": "bucket_counts",
        "mu": mu,
        "delta": 2.5e-7,
        "count_scale": 1 / mu,
        "count_sensitivity": 1.0,
    }
    second = first | {"count_scale": math.sqrt(2) / mu, "count_sensitivity": math.sqrt(2)}
    sums = {
        "label": "bucket_sums",
        "delta": 0.0,
        "sum_scale": 0.5 / mu,
        "sum_sensitivity": 0.5,
        "radius": 0.5,
    }
    if "search" in method:
        selection = {"label": "sets", "delta": 0.0, "choice_range": selection_epsilon(mu)}
    else:
        selection = {
            "label": "nearest_counts",
            "delta": 0.0,
            "count_scale": 1 / mu,
            "count_sensitivity": 1.0,
        }
    return [first, second, sums, selection]


def planted(n, d, k, ball="0.05"):
    """Name and shape of planted balls."""
    return f"planted-{n}-{d}-{k}-{ball}", (n, d, k)


def ball_params(method):
    """Parameters with the radius of the public ball, for methods that have one."""
    if method.startswith(("kaplan", "balcan", "ldp")):
        return {"radius": 1.0, "rounds": 2, "keep": 0.5}
    return {}


SLOW = ("kaplan_stemmer_search", "balcan")


def additive(method, n, d=8.0, k=8.0):
    """Cost per point if all points of a cluster coincide, where the optimum is 0.

    A constant for the baselines, otherwise a product of powers of log n, k and d.
    """
    if method in BASELINES:
        return 0.5
    return FACTORS[method] * math.log(n) ** 1.5 * (k / 8) ** 1.2 * (d / 8) ** 0.4 / n


def _planted_sweeps():
    for n in NS:
        name, size = planted(n, 8, 8)
        coincident = planted(n, 8, 8, "0")[0]
        for method in FACTORS:
            ending = ("_rivals" if n <= 100000 else "_long") if method in SLOW else ""
            seeds = 6 if ending == "_long" else 12
            params = ball_params(method)
            yield row_of(
                f"n{ending}",
                method,
                name,
                size=size,
                level=BALL * FACTORS[method],
                params=params,
                seeds=seeds,
            )
            if method != "kmeans":
                level = additive(method, n)
                yield row_of(
                    f"n_points{ending}",
                    method,
                    coincident,
                    size=size,
                    level=level,
                    params=params,
                    seeds=seeds,
                )
        boxed = {"radius": "auto", "keep": 0.5}
        yield row_of("n", "kaplan_stemmer", name, size=size, level=BALL * 1.2, params=boxed)
        if n <= 100000:
            chosen = ball_params("kaplan_stemmer_search") | {"lloyd_steps": 0}
            yield row_of(
                "chosen", "kaplan_stemmer_search", name, size=size, level=BALL * 3, params=chosen
            )
            yield row_of("chosen", "kmeans", name, size=size, level=BALL)
            yield from _candidate_sweeps(n)
    for k in (2, 4, 8, 16, 32):
        name, size = planted(5000 * k, 8, k)
        coincident = planted(5000 * k, 8, k, "0")[0]
        for method in FACTORS:
            yield row_of(
                "k",
                method,
                name,
                size=size,
                level=BALL * FACTORS[method],
                params=ball_params(method),
            )
            if method != "kmeans" and not (method in SLOW and k == 32):
                sweep = "k_points_rivals" if method in SLOW else "k_points"
                level = additive(method, 1e5, k=k) * 1e5 / size[0]
                yield row_of(
                    sweep, method, coincident, size=size, level=level, params=ball_params(method)
                )
    for d in (2, 4, 8, 16, 32, 64):
        name, size = planted(60000, d, 8)
        coincident = planted(60000, d, 8, "0")[0]
        for method in FACTORS:
            yield row_of(
                "d",
                method,
                name,
                size=size,
                level=BALL * FACTORS[method],
                params=ball_params(method),
            )
            if method != "kmeans":
                level = additive(method, 60000, d=d)
                yield row_of(
                    "d_points",
                    method,
                    coincident,
                    size=size,
                    level=level,
                    params=ball_params(method),
                )


def _separated_sweeps():
    for d in (2, 4, 8, 16, 32, 64, 128):
        name, size = planted(100000, d, 16)
        box = f"blobs-100000-{d}-16"
        places = (("separated", name, 1.0), ("separated_box", box, "auto"))
        for sweep, dataset, radius in places:
            params = {"radius": radius, "rounds": 2, "keep": 0.5}
            level = BALL * 1.02
            yield row_of(sweep, "kaplan_stemmer", dataset, size=size, level=level, params=params)
            yield row_of(sweep, "kmeans", dataset, size=size, level=BALL)


def _candidate_sweeps(n):
    """Candidates, with what k of them cost and how many points they miss."""
    name, size = planted(n, 8, 8)
    best = {"nicv_best_k": BALL, "unassigned_points": 0.0}
    yield row_of("candidates", "kmeans", name, size=size, level=BALL, **best)
    for method, count in (
        ("kaplan_stemmer_candidates", 60),
        ("kaplan_stemmer_candidates_one_pass", 40),
    ):
        facts = best | {"n_centers": count, "nicv_best_k": 1.1 * BALL}
        params = ball_params(method) | {"rounds": 1 if "one_pass" in method else 2}
        yield row_of("candidates", method, name, size=size, level=BALL, params=params, **facts)
    method = "kaplan_stemmer_candidates"
    coincident = planted(n, 8, 8, "0")[0]
    level = {"nicv_best_k": additive("kaplan_stemmer", n)}
    yield row_of(
        "candidates_points",
        method,
        coincident,
        size=size,
        level=BALL,
        params=ball_params(method),
        **level,
    )


def _capture_sweeps():
    for n in (10000, 30000, 100000):
        for m in (100, 200, 400, 800, 1600):
            for method in PASSES:
                captured = m >= (200 if method == "kaplan_stemmer_candidates" else 400)
                distance = np.where(np.arange(20) < (20 if captured else 3), 0.05, 0.9)
                name = f"planted-small-{n}-8-8-0.02-{m}"
                params = ball_params(method) | {"rounds": 1 if "one_pass" in method else 2}
                rows = row_of(
                    "capture", method, name, size=(n + m, 8, 9), level=BALL, seeds=20, params=params
                )
                unassigned = np.where(distance > 0.5, m, 0.0)
                yield rows.assign(farthest_class=distance, unassigned_points=unassigned)
    for method in ("kaplan_stemmer", "kaplan_stemmer_search"):
        name = "planted-small-10000-8-3-0-1"
        yield row_of(
            "lower_bound",
            method,
            name,
            size=(10001, 8, 4),
            level=1.5 / 10001,
            params=ball_params(method),
        )


def _coreset_sweep():
    for n in NS[:4]:
        for ball in ("0.05", "0.01"):
            name, size = planted(n, 8, 8, ball)
            for method, ratio in (
                ("kaplan_stemmer_coreset", 2.0),
                ("kaplan_stemmer_local_coreset", 4.0),
            ):
                facts = {"n_centers": 80.0, "coreset_cost_ratio": ratio}
                params = ball_params(method)
                yield row_of(
                    "coreset", method, name, size=size, level=BALL, seeds=10, params=params, **facts
                )


PASSES = ("kaplan_stemmer_candidates", "kaplan_stemmer_candidates_one_pass")


def _selection_sweeps():
    for k in (2, 4, 8, 16):
        name, size = planted(5000 * k, 8, k, "0")
        for epsilon in (0.5, 1.0, 2.0, 4.0):
            params = ball_params("kaplan_stemmer_search") | {"lloyd_steps": 0}
            level = k**1.3 / epsilon**0.9 / size[0]
            yield row_of(
                "selection",
                "kaplan_stemmer_search",
                name,
                size=size,
                level=level,
                epsilon=epsilon,
                params=params,
            )


def _local_sweeps():
    levels = {
        "kmeans": 1.0,
        "kaplan_stemmer_local": 3.0,
        "ldp_lloyd": 20.0,
        "ldp_noise": 200.0,
        "ldp_mean": 150.0,
    }
    for n in NS[1:]:
        name, size = planted(n, 4, 4)
        for method, factor in levels.items():
            sweep = "local_n_noise" if method == "ldp_noise" else "local_n"
            yield row_of(
                sweep, method, name, size=size, level=BALL * factor, params=ball_params(method)
            )
        yield row_of(
            "local_central",
            "kaplan_stemmer",
            name,
            size=size,
            level=BALL * 1.01,
            params=ball_params("kaplan"),
        )
    for k in (2, 4, 8):
        name, size = planted(100000 * k, 4, k)
        for method in ("kmeans", "kaplan_stemmer_local"):
            yield row_of(
                "local_k",
                method,
                name,
                size=size,
                level=BALL * levels[method],
                params=ball_params(method),
            )
    name, size = planted(200000, 4, 4)
    for method, factor in levels.items():
        for epsilon in (0.5, 1.0, 2.0, 4.0) if method != "kmeans" else (1.0,):
            params = ball_params(method)
            level = BALL * (1 + (factor - 1) / epsilon)
            yield row_of(
                "local_epsilon",
                method,
                name,
                size=size,
                level=level,
                epsilon=epsilon,
                params=params,
            )


def _real_and_timing_sweeps():
    for name, size in (("s1", (5000, 2, 15)), ("letters", (20000, 16, 26))):
        private = ("kaplan_stemmer", "sulloyd", "lsh_splits", "balcan", "dpm_merged")
        for method in ("kmeans", *private, *BASELINES):
            for epsilon in (0.25, 1.0, 4.0) if method in private else (1.0,):
                level = 0.05 * (1 + (FACTORS[method] - 1) / epsilon)
                params = (
                    {"radius": "auto", "keep": 0.5}
                    if method in ("kaplan_stemmer", "balcan")
                    else {}
                )
                yield row_of(
                    "real", method, name, size=size, level=level, epsilon=epsilon, params=params
                )
    for n, d in [(n, 8) for n in (12500, 25000, 50000, 100000, 200000)] + [
        (25000, d) for d in (2, 4, 16, 32, 64)
    ]:
        name, size = planted(n, d, 8)
        for method in ("kmeans", "kaplan_stemmer", "kaplan_stemmer_search", "lsh_splits"):
            yield row_of(
                "timing",
                method,
                name,
                size=size,
                level=BALL,
                params=ball_params(method),
                timing=True,
            )
    for n in (25000, 50000, 100000, 200000):
        name, size = planted(n, 4, 4)
        for method in LOCAL:
            yield row_of(
                "timing_local",
                method,
                name,
                size=size,
                level=BALL,
                params=ball_params(method),
                timing=True,
            )


@cache
def all_rows():
    """Rows of every sweep, under which every judged claim holds; copy before changing."""
    parts = [
        *_planted_sweeps(),
        *_separated_sweeps(),
        *_capture_sweeps(),
        *_coreset_sweep(),
        *_selection_sweeps(),
        *_local_sweeps(),
        *_real_and_timing_sweeps(),
    ]
    return pd.concat(parts, ignore_index=True)


@cache
def foreign_rows():
    """Rows of another paper, as a store holds them as well."""
    return cell_rows(
        "real", "fastlloyd_published", "iris", 0.5, 3, size=FASTLLOYD_SIZES["iris"]
    ).assign(sweep="other")
