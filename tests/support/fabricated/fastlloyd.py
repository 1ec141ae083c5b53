"""Synthetic per-seed rows in the schema of the cell store.

Values imitate real results (noise grows as epsilon decreases, SuLloyd is heavy-tailed) without
running any method; charges obey the formulas of the paper.
"""

import hashlib
import itertools
import json
import math
from functools import cache

import numpy as np
import pandas as pd

from fabricated.rows import make_rows
from pkm.analysis.tables.accounting import noise_multiplier

EPSILONS = (0.1, 0.25, 0.5, 0.75, 1.0)
SIZES = {
    "iris": (150, 4, 3),
    "lsun": (400, 2, 3),
    "s1": (5000, 2, 15),
    "house": (1837, 3, 3),
    "adult": (48842, 6, 3),
    "wine": (178, 13, 3),
    "breast": (699, 9, 2),
    "yeast": (1484, 8, 10),
    "mnist": (10000, 784, 10),
    "birch2": (25000, 2, 100),
}
CLASSES = {
    "kmeans": "pkm.methods.KMeansPlusPlus",
    "lloyd": "pkm.methods.Lloyd",
    "sulloyd": "pkm.methods.SuLloyd",
    "glloyd": "pkm.methods.GLloyd",
    "fastlloyd": "pkm.methods.FastLloyd",
    "mean": "pkm.methods.DataMean",
    "packing": "pkm.methods.PackingCenters",
}
NOISE = {"sulloyd": 3.0, "glloyd": 1.0, "fastlloyd": 0.35}
METRICS = (
    "nicv",
    "silhouette",
    "davies_bouldin",
    "centroid_mse",
    "centroid_distance",
    "empty_clusters",
)


def _number(*parts):
    return int.from_bytes(hashlib.sha256("|".join(map(str, parts)).encode()).digest()[:8], "little")


def iteration_bound(n, d, k, epsilon, delta, alpha=0.8):
    """Number of iterations by the error bound of section 5.5, cut to [2, 7] and rounded down."""
    radius = alpha * math.sqrt(d) / k ** (1 / d)
    noise = noise_multiplier(epsilon, delta) * (1 + math.sqrt(4 * d))
    return int(min(max(4 * n**2 * 0.004 / (k**3 * radius**2 * noise**2), 2), 7))


def _charges(base, n, d, k, epsilon, delta, params):
    """Charges of a FastLloyd cell as in its ledger; other methods have a single charge."""
    if base != "fastlloyd":
        return [
            {"mechanism": "laplace", "label": "sums_and_counts", "round": 0, "epsilon": epsilon}
        ]
    alpha = params.get("alpha", 0.8)
    sigma = noise_multiplier(epsilon, delta)
    fixed = params.get("n_iterations", "auto")
    rounds = iteration_bound(n, d, k, epsilon, delta, alpha) if fixed == "auto" else fixed
    late = alpha * math.sqrt(d) / k ** (1 / d)
    charges = []
    for index in range(rounds):
        step = params.get("radius_schedule", "step") == "step"
        radius = math.sqrt(d) if step and index == 0 else late
        count_scale = sigma * math.sqrt(rounds) * math.sqrt(1 + math.sqrt(4 * d))
        charges.append(
            {
                "mechanism": "gaussian",
                "label": "sums_and_counts",
                "round": index,
                "mu": 1 / (sigma * math.sqrt(rounds)),
                "radius": radius,
                "sum_scale": radius * count_scale / (4 * d) ** 0.25,
                "count_scale": count_scale,
                "sum_sensitivity": radius,
                "count_sensitivity": 1.0,
            }
        )
    return charges


def cell_rows(
    sweep,
    method,
    dataset,
    epsilon,
    seeds,
    *,
    size,
    params=None,
    metrics=METRICS,
    variant="published",
):
    """Rows of one cell, one per seed."""
    params = params or {}
    n, d, k = size
    base = method.partition("_")[0]
    private = base in NOISE
    delta = 1e-6
    if base == "sulloyd":
        delta = 0.0
    elif variant == "published":
        delta = 1 / (n * math.log(n))
    charges = _charges(base, n, d, k, epsilon, delta, params) if private else []
    rng = np.random.default_rng([_number(dataset), *([int(1000 * epsilon)] if private else [])])
    start = np.random.default_rng(_number(dataset, "start")).lognormal(0, 0.03, seeds)
    level = 0.1 * d**0.9 / k ** (1 / d)
    strength = NOISE.get(base, 0.0) * (
        0.5
        if method == base or method.endswith("_fold") or params.get("postprocessing") == "fold"
        else 1.0
    )
    strength *= (
        1
        + 0.2 * abs(params.get("alpha", 0.8) - 0.8)
        + (0.1 if params.get("radius_schedule") == "constant" else 0)
    )
    harm = strength * k**0.8 * d**0.5 / math.sqrt(n) * (0.02 / epsilon if private else 0) * 10
    tail = rng.lognormal(0, 1.1 if method == "sulloyd_published" else 0.3, seeds)
    # The tail is truncated so that the sample looks like noised runs rather than like one outlier.
    nicv = (
        level
        * start
        * (1 + harm * np.minimum(tail, 12))
        * {"mean": 3.0, "packing": 2.2}.get(base, 1.0)
    )
    empty = (rng.random(seeds) < 0.3 * min(harm, 1)).astype(float) * (k - 1)
    values = {
        "nicv": nicv,
        "silhouette": np.where(empty == k - 1, -1.0, 0.6 / (1 + harm * tail)),
        "davies_bouldin": np.where(empty == k - 1, np.inf, 0.7 * (1 + 0.3 * harm * tail)),
        "centroid_mse": 0.02 * d * (0.2 + harm * tail**2),
        "centroid_distance": np.sqrt(0.02 * d * (0.2 + harm * tail**2)),
        "empty_clusters": empty,
    }
    if base == "mean":
        values |= {
            "silhouette": np.full(seeds, -1.0),
            "davies_bouldin": np.full(seeds, np.inf),
            "empty_clusters": np.zeros(seeds),
        }
    key = hashlib.sha256(
        json.dumps([method, dataset, epsilon, params, variant], sort_keys=True).encode()
    ).hexdigest()
    rounds = len(charges) if base == "fastlloyd" else 7 if not private else 2
    return make_rows(
        sweep,
        key,
        method,
        dataset,
        size=size,
        seeds=seeds,
        epsilon=epsilon if private else None,
        delta=delta,
        params=params,
        charges=charges,
        target=CLASSES[base],
        variant=variant,
        preprocessing="minmax" if variant == "published" else "public",
        private_bounds=variant == "published",
        flaws="F-09" if private and variant == "published" else "",
        iterations=rounds,
        **{name: values[name] for name in metrics},
    )


def _plan(datasets, alphas, small):
    """Yield the arguments of every cell, in the sweeps of the paper."""
    published = (
        "kmeans",
        "lloyd_published",
        "sulloyd_published",
        "sulloyd_published_fold",
        "glloyd_published",
        "glloyd_published_fold",
        "fastlloyd_published",
        "mean",
        "packing_halving",
    )
    compared = ("lloyd_published", "sulloyd_published", "glloyd_published", "fastlloyd_published")
    for name in datasets:
        for method in published:
            yield "real", method, name, SIZES[name], {}, METRICS, "published"
        for method in (
            "lloyd",
            "sulloyd",
            "glloyd",
            "fastlloyd",
            "mean",
            "packing",
        ):
            yield "sound", method, name, SIZES[name], {}, ("nicv", "silhouette"), "sound"
        for rounds in (1, 2, 3, 5, 7, 10):
            yield (
                "iterations",
                "fastlloyd_published",
                name,
                SIZES[name],
                {"n_iterations": rounds},
                ("nicv",),
                "published",
            )
        yield (
            "initialization",
            "fastlloyd_published",
            name,
            SIZES[name],
            {"initialization": "uniform"},
            ("nicv",),
            "published",
        )
    for d, sd in itertools.product(
        (2, 16, 128) if small else [2**i for i in range(1, 11)],
        (20, 60) if small else range(10, 101, 10),
    ):
        for method in compared:
            yield "g2", method, f"g2-{d}-{sd}", (2048, d, 2), {}, ("nicv",), "published"
    for k, replicate in itertools.product(
        (2, 16, 128) if small else [2**i for i in range(1, 8)], range(1 if small else 3)
    ):
        for method in compared:
            yield (
                "synthk",
                method,
                f"synthk-{k}-{replicate}",
                (10000, 2, k),
                {},
                ("nicv",),
                "published",
            )
    ks, ds = (
        ((2, 8, 32), (2, 16, 128))
        if small
        else ([2**i for i in range(1, 6)], [2**i for i in range(1, 10)])
    )
    for k, d, replicate in itertools.product(ks, ds, range(1 if small else 3)):
        for method in compared:
            yield (
                "synth",
                method,
                f"synth-{k}-{d}-{replicate}",
                (10000, d, k),
                {},
                ("nicv",),
                "published",
            )
    sides, separations = ((2, 8), (0.25, 0.75)) if small else ((2, 4, 8, 16), (0.25, 0.5, 0.75))
    for k, d, separation in itertools.product(sides, sides, separations):
        name = f"ablation-{k}-{d}-{separation}"
        size = (2048, d, k)
        yield (
            "ablation",
            "glloyd_published",
            name,
            size,
            {"postprocessing": "none"},
            ("nicv",),
            "published",
        )
        for alpha, schedule, clipping, post in itertools.product(
            alphas, ("step", "constant"), (True, False), ("none", "truncate", "fold")
        ):
            params = {
                "alpha": alpha,
                "radius_schedule": schedule,
                "radius_clipping": clipping,
                "postprocessing": post,
            }
            yield "ablation", "fastlloyd_published", name, size, params, ("nicv",), "published"


def synthetic_rows(
    seeds=20,
    *,
    datasets=tuple(SIZES),
    epsilons=EPSILONS,
    alphas=(0.4, 0.8, 1.2, 1.6, 2.0),
    small=True,
):
    """Rows of every sweep; `small` thins the families as the quick profile does."""
    parts = []
    for sweep, method, name, size, params, metrics, variant in _plan(datasets, alphas, small):
        private = method.partition("_")[0] in NOISE
        for epsilon in ((0.1,) if sweep == "ablation" else epsilons) if private else (math.nan,):
            parts.append(
                cell_rows(
                    sweep,
                    method,
                    name,
                    epsilon,
                    seeds,
                    size=size,
                    params=params,
                    metrics=metrics,
                    variant=variant,
                )
            )
    return pd.concat(parts, ignore_index=True)


@cache
def small_rows():
    """Rows that most tests share: three data sets, twelve seeds, thinned families. Copy before
    changing.
    """
    return synthetic_rows(12, datasets=("iris", "s1", "wine"), alphas=(0.4, 0.8))
