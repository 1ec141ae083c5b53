"""Fabricated rows of every sweep of the paper on constant multiplicative error."""

import itertools
import json
import math
from functools import cache

import numpy as np

from fabricated.rows import fabricate, former_name, join_cells, make_cell
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


def cell_of(
    sweep, method, dataset, *, size, level, epsilon=1.0, seeds=12, spread=0.01, params=None, **facts
):
    """One cell: NICV about `level`."""
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
    return make_cell(
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


def ball_params(method, size=None):
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


PASSES = ("kaplan_stemmer_candidates", "kaplan_stemmer_candidates_one_pass")
PRIVATE = ("kaplan_stemmer", "sulloyd", "lsh_splits", "balcan", "dpm_merged")
LOCAL_LEVELS = {
    "kmeans": 1.0,
    "kaplan_stemmer_local": 3.0,
    "ldp_lloyd": 20.0,
    "ldp_noise": 200.0,
    "ldp_mean": 150.0,
}
RADIUS_ONE = {"radius": 1.0, "rounds": 2, "keep": 0.5}


def rows(
    sweep, methods, datasets, level=BALL, params=lambda method, size: ball_params(method), **facts
):
    """Cells of a sweep with the parameters of the public ball."""
    return fabricate(cell_of, sweep, methods, datasets, level=level, params=params, **facts)


def ball_level(method, size):
    """NICV on balls."""
    return BALL * FACTORS[method]


def points_level(method, size):
    """NICV where the points of a cluster coincide."""
    n, d, _ = size
    return additive(method, n, d=d)


def k_points_level(method, size):
    """The same with 5,000 points in a cluster: the bound at 100,000 points, scaled."""
    n, _, k = size
    return additive(method, 1e5, k=k) * 1e5 / n


def local_level(method, size):
    """NICV in the local model."""
    return BALL * LOCAL_LEVELS[method]


def passes_params(method, size=None):
    """Parameters of candidates of one pass or two."""
    return ball_params(method) | {"rounds": 1 if "one_pass" in method else 2}


def _planted_sweeps():
    others = [method for method in FACTORS if method not in SLOW]
    private = [method for method in FACTORS if method != "kmeans"]
    fast = [method for method in private if method not in SLOW]
    sizes = [(n, 8, 8) for n in NS]
    balls = [planted(*size) for size in sizes]
    coincident = [planted(*size, "0") for size in sizes]
    small = slice(0, 3)  # at most 100,000 points
    large = slice(3, None)
    yield from rows("n", others, balls, ball_level)
    yield from rows("n_rivals", SLOW, balls[small], ball_level)
    yield from rows("n_long", SLOW, balls[large], ball_level, seeds=6)
    yield from rows("n_points", fast, coincident, points_level)
    yield from rows("n_points_rivals", SLOW, coincident[small], points_level)
    yield from rows("n_points_long", SLOW, coincident[large], points_level, seeds=6)
    boxed = {"radius": "auto", "keep": 0.5}
    yield from rows("n", ["kaplan_stemmer"], balls, BALL * 1.2, boxed)
    ks = [(5000 * k, 8, k) for k in (2, 4, 8, 16, 32)]
    at_k = [planted(*size, "0") for size in ks]
    yield from rows("k", FACTORS, [planted(*size) for size in ks], ball_level)
    yield from rows("k_points", fast, at_k, k_points_level)
    yield from rows("k_points_rivals", SLOW, at_k[:-1], k_points_level)
    ds = [(60000, d, 8) for d in (2, 4, 8, 16, 32, 64)]
    yield from rows("d", FACTORS, [planted(*size) for size in ds], ball_level)
    at_d = [planted(*size, "0") for size in ds]
    yield from rows("d_points", private, at_d, points_level)

    # The paper's choice of centers.
    search = ["kaplan_stemmer_search"]
    chosen = RADIUS_ONE | {"lloyd_steps": 0}
    of_balls = {"chosen": sizes[small], "chosen_k": ks[:-1], "chosen_d": ds}
    for sweep, shapes in of_balls.items():
        datasets = [planted(*size) for size in shapes]
        yield from rows(sweep, search, datasets, BALL * 3, chosen)
        yield from rows(sweep, ["kmeans"], datasets, params=None)
    yield from rows("chosen_n_points", search, coincident[small], points_level, chosen)
    yield from rows("chosen_d_points", search, at_d, points_level, chosen)

    # Candidates, with what k of them cost and how many points they miss.
    missed = {"nicv_best_k": BALL, "unassigned_points": 0.0}
    yield from rows("candidates", ["kmeans"], balls[small], params=None, **missed)
    missed["nicv_best_k"] = 1.1 * BALL
    for method, count in zip(PASSES, (60, 40), strict=True):
        facts = {"params": passes_params, "n_centers": count} | missed
        yield from rows("candidates", [method], balls[small], **facts)
    yield from rows(
        "candidates_points", PASSES[:1], coincident[small],
        nicv_best_k=lambda method, size: additive("kaplan_stemmer", size[0]),
    )  # fmt: skip


def _separated_sweeps():
    sizes = [(100000, d, 16) for d in (2, 4, 8, 16, 32, 64, 128)]
    boxes = [(f"blobs-{n}-{d}-{k}", (n, d, k)) for n, d, k in sizes]
    balls = [planted(*size) for size in sizes]
    for sweep, datasets, radius in (("separated", balls, 1.0), ("separated_box", boxes, "auto")):
        params = RADIUS_ONE | {"radius": radius}
        yield from rows(sweep, ["kaplan_stemmer"], datasets, BALL * 1.02, params)
        yield from rows(sweep, ["kmeans"], datasets, params=None)


def _capture_sweeps():
    for n, m, method in itertools.product(
        (10000, 30000, 100000), (100, 200, 400, 800, 1600), PASSES
    ):
        captured = m >= (200 if method == PASSES[0] else 400)
        distance = np.where(np.arange(20) < (20 if captured else 3), 0.05, 0.9)
        yield from rows(
            "capture", [method], [(f"planted-small-{n}-8-8-0.02-{m}", (n + m, 8, 9))],
            seeds=20, params=passes_params, farthest_class=distance,
            unassigned_points=np.where(distance > 0.5, m, 0.0),
        )  # fmt: skip
    single = [("planted-small-10000-8-3-0-1", (10001, 8, 4))]
    yield from rows("lower_bound", ["kaplan_stemmer", "kaplan_stemmer_search"], single, 1.5 / 10001)


def _coreset_sweep():
    balls = [planted(n, 8, 8, ball) for n in NS[:4] for ball in ("0.05", "0.01")]
    for method, ratio in (("kaplan_stemmer_coreset", 2.0), ("kaplan_stemmer_local_coreset", 4.0)):
        facts = {"n_centers": 80.0, "coreset_cost_ratio": ratio}
        yield from rows("coreset", [method], balls, seeds=10, **facts)


def _selection_sweeps():
    coincident = [planted(5000 * k, 8, k, "0") for k in (2, 4, 8, 16)]
    for epsilon in (0.5, 1.0, 2.0, 4.0):
        yield from rows(
            "selection", ["kaplan_stemmer_search"], coincident,
            lambda _, size, epsilon=epsilon: size[2] ** 1.3 / epsilon**0.9 / size[0],
            RADIUS_ONE | {"lloyd_steps": 0}, epsilon=epsilon,
        )  # fmt: skip


def _local_sweeps():
    balls = [planted(n, 4, 4) for n in NS[1:]]
    most = [method for method in LOCAL_LEVELS if method != "ldp_noise"]
    yield from rows("local_n", most, balls, local_level)
    yield from rows("local_n_noise", ["ldp_noise"], balls, local_level)
    yield from rows("local_central", ["kaplan_stemmer"], balls, BALL * 1.01)
    at_k = [planted(100000 * k, 4, k) for k in (2, 4, 8)]
    yield from rows("local_k", ["kmeans", "kaplan_stemmer_local"], at_k, local_level)
    for epsilon in (0.5, 1.0, 2.0, 4.0):
        methods = [name for name in LOCAL_LEVELS if name != "kmeans" or epsilon == 1]

        def level(method, _, epsilon=epsilon):
            return BALL * (1 + (LOCAL_LEVELS[method] - 1) / epsilon)

        yield from rows("local_epsilon", methods, [planted(200000, 4, 4)], level, epsilon=epsilon)


def _real_and_timing_sweeps():
    real = (("s1", (5000, 2, 15)), ("letters", (20000, 16, 26)))
    for epsilon in (0.25, 1.0, 4.0):
        methods = ["kmeans", *PRIVATE, *BASELINES] if epsilon == 1 else PRIVATE

        def level(method, _, epsilon=epsilon):
            return 0.05 * (1 + (FACTORS[method] - 1) / epsilon)

        def params(method, _):
            boxed = method in ("kaplan_stemmer", "balcan")
            return {"radius": "auto", "keep": 0.5} if boxed else {}

        yield from rows("real", methods, real, level, params, epsilon=epsilon)
    sizes = [(n, 8) for n in (12500, 25000, 50000, 100000, 200000)]
    sizes += [(25000, d) for d in (2, 4, 16, 32, 64)]
    methods = ("kmeans", "kaplan_stemmer", "kaplan_stemmer_search", "lsh_splits")
    yield from rows("timing", methods, [planted(n, d, 8) for n, d in sizes], timing=True)
    sizes = (25000, 50000, 100000, 200000)
    yield from rows("timing_local", LOCAL, [planted(n, 4, 4) for n in sizes], timing=True)


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
    return join_cells(parts)
