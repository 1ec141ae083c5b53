"""Speed of the methods under distance-based privacy, and the cost that they reach beside non-private clustering."""

import numpy as np

from pkm import datasets
from pkm.benchmarks.measurement import Measurement, least_seconds
from pkm.compute import Points, inertia
from pkm.methods.dist_dp import DistDP, NoisedPoints
from pkm.methods.kmeans import KMeansPlusPlus
from pkm.privacy import snap

POINTS, COLUMNS, CLUSTERS = 250_000, 3, 8
RHOS = (1.0, 0.05, 0.0001)


def mixture(n: int = POINTS, d: int = COLUMNS, k: int = CLUSTERS) -> np.ndarray:
    """Gaussian clusters in [-1, 1]^d."""
    rng = np.random.default_rng(7)
    centers = rng.uniform(-0.8, 0.8, (k, d))
    return np.clip(centers[rng.integers(k, size=n)] + 0.05 * rng.standard_normal((n, d)), -1, 1)


def distance_based() -> list[Measurement]:
    """One fit at 250,000 x 3 points, quadtrees and final clustering included, and ratios of cost."""
    try:
        name, raw = "skin", datasets.scale(datasets.load("skin"), "minmax").points
    except datasets.DataUnavailable:
        name, raw = "250,000 x 3 mixture", mixture()
    points = Points.prepare(snap(raw))
    seeds = range(3)
    plain = np.mean(
        [
            inertia(points, KMeansPlusPlus(CLUSTERS).fit_batch(points, [seed]).centers)[0]
            for seed in seeds
        ]
    )
    rows = []
    for variant, most in (("published", 1.6), ("sound", 1.1)):
        for rho in RHOS:
            method = DistDP(CLUSTERS, variant=variant, rho=rho)
            what = f"{name}, dist-DP {variant}, rho {rho:g}"
            fit = least_seconds(lambda m=method: m.fit_batch(points, [0]), 1)
            rows.append(Measurement(f"{what}: fit", fit, "s CPU", 20, at_most=True))
            costs = [inertia(points, method.fit_batch(points, [seed]).centers)[0] for seed in seeds]
            rows.append(
                Measurement(
                    f"{what}: cost over k-means", np.median(costs) / plain, "x", most, at_most=True
                )
            )
    median = DistDP(CLUSTERS, variant="sound", rho=RHOS[-1], p=1)
    fit = least_seconds(lambda: median.fit_batch(points, [0]), 1)
    rows.append(
        Measurement(
            f"{name}, dist-DP k-median sound, rho {RHOS[-1]:g}: fit", fit, "s CPU", 20, at_most=True
        )
    )
    noised = NoisedPoints(CLUSTERS)
    fit = least_seconds(lambda: noised.fit_batch(points, [0]), 1)
    rows.append(Measurement(f"{name}, noised points: fit", fit, "s CPU", 20, at_most=True))
    return rows
