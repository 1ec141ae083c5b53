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

from fabricated.rows import as_rows, fabricate, join_cells, make_cell
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


def lloyd_cell(
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
    """One cell of a method of the Lloyd family."""
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
    return make_cell(
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


cell_rows = as_rows(lloyd_cell)


PUBLISHED = (
    "kmeans", "lloyd_published", "sulloyd_published", "sulloyd_published_fold",
    "glloyd_published", "glloyd_published_fold", "fastlloyd_published", "mean", "packing_halving",
)  # fmt: skip
SOUND = ("lloyd", "sulloyd", "glloyd", "fastlloyd", "mean", "packing")
COMPARED = ("lloyd_published", "sulloyd_published", "glloyd_published", "fastlloyd_published")
FAST = ("fastlloyd_published",)


def _powers(first, last, small):
    return (2, 16, 128) if small else [2**i for i in range(first, last)]


def _plan(datasets, alphas, small):
    """Yield the sweeps of the paper: methods, data sets with their sizes, and facts."""
    real = [(name, SIZES[name]) for name in datasets]
    yield "real", PUBLISHED, real, {"metrics": METRICS}
    yield "sound", SOUND, real, {"metrics": ("nicv", "silhouette"), "variant": "sound"}
    for rounds in (1, 2, 3, 5, 7, 10):
        yield "iterations", FAST, real, {"params": {"n_iterations": rounds}}
    yield "initialization", FAST, real, {"params": {"initialization": "uniform"}}

    spreads = (20, 60) if small else range(10, 101, 10)
    pairs = itertools.product(_powers(1, 11, small), spreads)
    yield "g2", COMPARED, [(f"g2-{d}-{sd}", (2048, d, 2)) for d, sd in pairs], {}
    replicates = range(1 if small else 3)
    pairs = itertools.product(_powers(1, 8, small), replicates)
    yield "synthk", COMPARED, [(f"synthk-{k}-{i}", (10000, 2, k)) for k, i in pairs], {}
    ks = (2, 8, 32) if small else [2**i for i in range(1, 6)]
    triples = itertools.product(ks, _powers(1, 10, small), replicates)
    sets = [(f"synth-{k}-{d}-{i}", (10000, d, k)) for k, d, i in triples]
    yield "synth", COMPARED, sets, {}

    sides, separations = ((2, 8), (0.25, 0.75)) if small else ((2, 4, 8, 16), (0.25, 0.5, 0.75))
    triples = itertools.product(sides, sides, separations)
    sets = [(f"ablation-{k}-{d}-{s}", (2048, d, k)) for k, d, s in triples]
    yield "ablation", ["glloyd_published"], sets, {"params": {"postprocessing": "none"}}
    names = ("alpha", "radius_schedule", "radius_clipping", "postprocessing")
    posts = ("none", "truncate", "fold")
    for values in itertools.product(alphas, ("step", "constant"), (True, False), posts):
        yield "ablation", FAST, sets, {"params": dict(zip(names, values, strict=True))}


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
    for sweep, methods, sets, facts in _plan(datasets, alphas, small):
        budgets = {True: (0.1,) if sweep == "ablation" else epsilons, False: (math.nan,)}
        for method in methods:
            for epsilon in budgets[method.partition("_")[0] in NOISE]:
                values = {"epsilon": epsilon, "seeds": seeds, "metrics": ("nicv",)} | facts
                parts += fabricate(lloyd_cell, sweep, [method], sets, **values)
    return join_cells(parts)


@cache
def small_rows():
    """Rows that most tests share: three data sets, twelve seeds, thinned families. Copy before
    changing.
    """
    return synthetic_rows(12, datasets=("iris", "s1", "wine"), alphas=(0.4, 0.8))
