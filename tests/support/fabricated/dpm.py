"""Synthetic rows in the schema of the cell store for every sweep of the DPM paper.

Values scatter around numbers that follow simple rules, near those the paper reports; no method is
run.
"""

import hashlib
import itertools
import json
import math
from functools import cache

import numpy as np

from fabricated.rows import as_rows, fabricate, former_name, join_cells, make_cell
from pkm.analysis.claims.claim import read_claims
from pkm.analysis.claims.reported import parse
from pkm.schema import higher_is_better

SIZES = {
    "mnist-embeddings": (60000, 40, 10),
    "fashion-embeddings": (60000, 40, 10),
    "synth-10d": (100000, 10, 64),
    "synth-100d": (100000, 100, 64),
    "letters-18720": (18720, 16, 26),
    "letters": (20000, 16, 26),
    "gas": (36733, 11, 2),
}
HALF_RANGE = {
    "mnist": 6.5,
    "fashion": 6.5,
    "synth": 100.0,
    "letters": 7.5,
    "gas": 553.565,
    "blobs": 100.0,
}
CLASSES = {
    "kmeans": "pkm.methods.KMeansPlusPlus",
    "dp_lloyd": "pkm.methods.DPLloyd",
    "em_mc": "pkm.methods.EMMC",
    "lsh_splits": "pkm.methods.LSHSplits",
    "dpm": "pkm.methods.DPM",
}
QUALITY = (
    "silhouette",
    "accuracy",
    "inertia",
    "norm_kmeans_distance",
    "kmeans_distance",
    "kmeans_distance_sum",
    "norm_reverse_kmeans_distance",
    "reverse_kmeans_distance",
    "n_centers",
    "nonempty_centers",
)
SECONDS = {"kmeans": 0.4, "dp_lloyd": 0.02, "em_mc": 90.0, "lsh_splits": 0.03, "dpm": 0.04}
FLAWS = {
    "dpm_published": "F-13 F-14 F-15 F-16",
    "dp_lloyd_published": "F-09 F-26",
    "lsh_splits_published": "F-09",
}
PAPER_SPLIT = (0.04, 0.18, 0.18, 0.6)


@cache
def reported_means():
    """Reported means by data set, method and metric, in raw units."""
    cells = read_claims("dpm")["reported"]["quality"]["cells"]
    return {
        (cell["dataset"], _base(cell["method"]), name): parse(text).mean
        for cell in cells
        for name, text in cell.items()
        if name not in ("table", "dataset", "method") and text != "N/A"
    }


def _base(method):
    return next(name for name in sorted(CLASSES, key=len, reverse=True) if method.startswith(name))


def _is_sound(method):
    return method != "kmeans" and not method.endswith("_published")


def _level(dataset, method, metric):
    """Mean of a metric in half-widths: the reported one if there is one.

    Sound variants are a little better.
    """
    base = _base(method)
    known = reported_means()
    key = dataset if dataset in SIZES and dataset != "letters" else "letters-18720"
    half = HALF_RANGE[dataset.split("-")[0]]
    sound = _is_sound(method)
    k = SIZES.get(dataset, (0, 0, 8))[2]
    if metric in ("n_centers", "nonempty_centers"):
        released = 1.4 * k if base == "dpm" and not method.endswith("merged") else k
        return released * (0.9 if metric == "nonempty_centers" and base == "dp_lloyd" else 1.0)
    if metric.startswith("norm_"):
        value = known[key, base, "norm_kmeans_distance"] or 0.02
        return value * (0.8 if sound else 1.0) * (1.7 if "reverse" in metric else 1.0)
    if metric.endswith(("kmeans_distance", "kmeans_distance_sum")):
        return 0.3
    value = known.get((key, base, metric), math.nan)
    if metric == "inertia":
        return value / half**2 * (0.8 if sound else 1.0)
    return value


def dpm_cell(
    sweep,
    method,
    dataset,
    *,
    seeds=12,
    epsilon=1.0,
    params=None,
    metrics=QUALITY,
    size=None,
    factors=None,
    **facts,
):
    """One cell; `factors` multiply the level of a metric, other facts replace columns."""
    n, d, k = size or SIZES[dataset]
    params = params or {}
    factors = factors or {}
    base = _base(method)
    private = base != "kmeans"
    sound = _is_sound(method)
    text = json.dumps([sweep, former_name(method), dataset, epsilon, params, k], sort_keys=True)
    rng = np.random.default_rng(int(hashlib.sha256(text.encode()).hexdigest()[:12], 16))
    pure = base == "dp_lloyd"
    spent = epsilon * (
        1.5 if method == "dp_lloyd_published" else 0.78 if method == "dpm_published" else 1.0
    )
    charges = [{"mechanism": "laplace", "label": "counts", "round": 0, "epsilon": 0.4 * epsilon}]
    if method == "dpm_published":
        interval = {
            "mechanism": "exponential",
            "label": "interval",
            "round": 0,
            "epsilon": 0.04 * epsilon,
            "flaw": "F-13",
        }
        charges[0]["epsilon"] = 0.36 * epsilon
        charges.append(interval)
    row = {
        "target": CLASSES[base],
        "variant": "sound" if sound else "published" if private else "",
        "preprocessing": "range",
        "private_bounds": dataset == "gas",
        "flaws": FLAWS.get(method, ""),
        "epsilon_spent": spent if private else math.nan,
        "iterations": 7,
        "half_width": HALF_RANGE[dataset.split("-")[0]],
        "timing": sweep.startswith(("timing", "scaling")),
    }
    values = {}
    for metric in metrics:
        level = _level(dataset, method, metric) * factors.get(metric, 1.0)
        spread = rng.normal(0, 0.02 if metric != "n_centers" else 0.05, seeds)
        values[metric] = (
            level * (1 + spread) if metric != "n_centers" else np.rint(level * (1 + spread))
        )
    seconds = SECONDS[base] * (n / 20000) ** 1.05 * (d / 16) * factors.get("fit_cpu_seconds", 1.0)
    values["fit_cpu_seconds"] = seconds * rng.lognormal(0, 0.08, seeds)
    values["fit_seconds"] = 1.25 * values["fit_cpu_seconds"]
    return make_cell(
        sweep,
        hashlib.sha256(text.encode()).hexdigest(),
        method,
        dataset,
        size=(n, d, k),
        seeds=seeds,
        epsilon=epsilon if private else None,
        delta=0.0 if pure else 3e-8 if sound else n**-1.5,
        params=params,
        charges=charges if private else (),
        **row | facts | values,
    )


dpm_rows = as_rows(dpm_cell)


def splits(step=5):
    """A small grid of budget splits, with the paper's split."""
    grid = [PAPER_SPLIT]
    for interval, a, b in itertools.product(
        (0.04, 0.16, 0.4), range(1, step - 1), range(1, step - 1)
    ):
        if a + b < step:
            parts = (a, b, step - a - b)
            grid.append((interval, *(round((1 - interval) * part / step, 10) for part in parts)))
    return grid


def split_factors(split):
    """Quality by a rule.

    A large share of the interval increases the cost; the best has more for splits than for counts
    and enough for averages.
    """
    interval, counts, choice, averages = split
    harm = (
        1
        + 2 * interval
        + 0.4 * abs(counts - 0.2)
        + 0.4 * abs(choice - 0.3)
        + 0.5 * max(0.35 - averages, 0)
    )
    return {name: 1 / harm if higher_is_better(name) else harm for name in QUALITY[:4]}


def centreness_factors(t, q):
    """Quality by a rule: flat but for large t with small q."""
    harm = 1.3 + 0.5 * (t - 0.8) - 4 * q if t >= 0.8 and q <= 0.05 else 1.0 + 0.001 * t
    return {name: 1 / harm if higher_is_better(name) else harm for name in QUALITY[:4]}


PUBLISHED = ("kmeans", "dp_lloyd_published", "lsh_splits_published", "dpm_published")
SOUND = ("dp_lloyd", "lsh_splits", "dpm", "dpm_merged")
EMMC = ["em_mc_published"]


def rows(sweep, methods, names, **facts):
    """Cells of a sweep on data sets of the paper."""
    datasets = [(name, SIZES[name]) for name in names]
    return fabricate(dpm_cell, sweep, methods, datasets, **facts)


def _quality(datasets, seeds):
    yield from rows("table", PUBLISHED, datasets, seeds=seeds)
    few = [name for name in datasets if name in ("letters-18720", "gas", "letters")]
    yield from rows("em_mc", EMMC, few, seeds=seeds)
    for epsilon in (0.75, 1.0):
        yield from rows("sound", SOUND, datasets, seeds=seeds, epsilon=epsilon)


def _timing(datasets, seeds):
    facts = {"seeds": seeds, "metrics": ("n_centers",)}
    timed = [name for name in datasets if name != "letters"]
    yield from rows("timing", PUBLISHED, timed, **facts)
    few = [name for name in timed if name in ("letters-18720", "gas")]
    yield from rows("timing_em_mc", EMMC, few, **facts)
    sizes = [(n, 10, 64) for n in (12500, 25000, 50000, 100000, 200000)]
    sizes += [(25000, d, 64) for d in (5, 20, 40, 80)]
    blobs = [(f"blobs-{n}-{d}-{k}", (n, d, k)) for n, d, k in sizes]
    yield from fabricate(dpm_cell, "scaling", (*PUBLISHED, "dpm"), blobs, **facts)


def _grids(datasets, seeds):
    fixed = {"methods": ["dpm_published"], "seeds": seeds}
    names = [name for name in datasets if name in ("letters-18720", "mnist-embeddings")]
    for split in splits():
        facts = {"params": {"shares": list(split)}, "factors": split_factors(split)}
        yield from rows("budget", names=names, **fixed, **facts)
    names = [name for name in datasets if name in ("letters-18720", "synth-10d")]
    pairs = itertools.product((0.2, 0.3, 0.6, 0.8, 1.0), (0.025, 0.05, 1 / 12, 0.2, 0.4))
    for t, q in pairs:
        if q <= t / 2:
            facts = {"params": {"t": t, "q": q}, "factors": centreness_factors(t, q)}
            yield from rows("centreness", names=names, **fixed, **facts)


def _more_clusters(datasets, seeds):
    def cells(name, sweep, ks, factors):
        n, d, _ = SIZES[name]
        sizes = [(name, (n, d, clusters)) for clusters in ks]
        return fabricate(dpm_cell, sweep, ["kmeans"], sizes, seeds=seeds, factors=factors)

    kinds = {"letters-": (13, 52, 104), "embeddings": (5, 20, 40), "synth": (32, 128, 256)}
    for name, (kind, ks) in itertools.product(datasets, kinds.items()):
        if kind in name:

            def factors(_, size, k=SIZES[name][2]):
                accuracy = min((size[2] / k) ** 0.1, 1.02)
                return {"inertia": (k / size[2]) ** 0.3, "accuracy": accuracy}

            yield from cells(name, f"clusters_{kind.removesuffix('-')}", ks, factors)
    if "gas" in datasets:
        gas_factors = lambda _, size: {"silhouette": (2 / size[2]) ** 0.3}  # noqa: E731
        yield from cells("gas", "clusters_gas", range(3, 21), gas_factors)


@cache
def all_rows(seeds=12, datasets=tuple(SIZES)):
    """Rows of every sweep; copy before changing."""
    parts = [
        part
        for make in (_quality, _timing, _grids, _more_clusters)
        for part in make(datasets, seeds)
    ]
    return join_cells(parts)
