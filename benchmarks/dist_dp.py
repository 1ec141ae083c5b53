"""Speed of the methods under distance-based privacy, and their cost over non-private clustering."""

import numpy as np

from pkm import datasets
from pkm.benchmarks.measurement import Measurement, min_seconds, peak_bytes
from pkm.compute import Points, inertia
from pkm.methods.baselines.kmeans import KMeansPlusPlus
from pkm.methods.distance.dist_dp import DistDP, NoisedPoints
from pkm.privacy import snap

N_POINTS = 250_000
N_COLUMNS = 3
N_CLUSTERS = 8
RHOS = (1.0, 0.05, 0.0001)
SEEDS = range(3)
MAX_SECONDS = 20  # of a fit
#: Strategy and largest seconds of a fit to 10^6 x 10 points, by rho.
LARGE_FITS = {0.05: ("cells", 2.0), 0.0001: ("groups", 2.0)}
MAX_BYTES = 30  # a value beyond the input
#: Largest ratio of cost to that of k-means, by variant.
MAX_RATIO = {"published": 1.6, "sound": 1.1}


def mixture(n: int = N_POINTS, d: int = N_COLUMNS, k: int = N_CLUSTERS) -> np.ndarray:
    """Gaussian clusters in [-1, 1]^d."""
    generator = np.random.default_rng(7)
    centers = generator.uniform(-0.8, 0.8, (k, d))
    labels = generator.integers(k, size=n)
    return np.clip(centers[labels] + 0.05 * generator.standard_normal((n, d)), -1, 1)


def distance_based() -> list[Measurement]:
    """Fits at 250,000 x 3 points, quadtrees and final clustering included, and ratios of cost."""
    try:
        raw = datasets.scale(datasets.load("skin"), "minmax").points
        label = "skin"
    except datasets.DataUnavailable:
        raw = mixture()
        label = "250,000 x 3 mixture"
    points = Points.prepare(snap(raw))
    reference = np.mean(costs(KMeansPlusPlus(N_CLUSTERS), points))
    rows = []
    for variant, max_ratio in MAX_RATIO.items():
        for rho in RHOS:
            method = DistDP(N_CLUSTERS, variant=variant, rho=rho)
            what = f"{label}, dist-DP {variant}, rho {rho:g}"
            rows.append(fit_time(method, points, what))
            ratio = float(np.median(costs(method, points)) / reference)
            rows.append(Measurement(f"{what}: cost over k-means", ratio, "x", at_most=max_ratio))
    median = DistDP(N_CLUSTERS, variant="sound", rho=RHOS[-1], p=1)
    rows.append(fit_time(median, points, f"{label}, dist-DP k-median sound, rho {RHOS[-1]:g}"))
    rows.append(fit_time(NoisedPoints(N_CLUSTERS), points, f"{label}, noised points"))
    return rows + large_fits()


def large_fits() -> list[Measurement]:
    """Time and memory of the sound variant's two strategies on all of a million points."""
    raw = mixture(1_000_000, 10, 10)
    rows = []
    for rho, (strategy, max_seconds) in LARGE_FITS.items():
        method = DistDP(10, rho=rho, bounds=(-1, 1), random_state=1)
        what = f"1,000,000 x 10 mixture, dist-DP sound by {strategy}, rho {rho:g}"
        seconds = min_seconds(lambda method=method: method.fit(raw), repetitions=2)
        rows.append(Measurement(f"{what}: fit", seconds, "s CPU", at_most=max_seconds))
        per_value = peak_bytes(lambda method=method: method.fit(raw)) / raw.size
        rows.append(Measurement(f"{what}: memory", per_value, "B a value", at_most=MAX_BYTES))
    return rows


def costs(method: DistDP | KMeansPlusPlus, points: Points) -> list[float]:
    """Inertia of a fit per seed."""
    fits = [method.fit_batch(points, [seed]) for seed in SEEDS]
    return [float(inertia(points, fit.centers)[0]) for fit in fits]


def fit_time(method: DistDP | NoisedPoints, points: Points, what: str) -> Measurement:
    """CPU seconds of a fit."""
    seconds = min_seconds(lambda: method.fit_batch(points, [0]), repetitions=1)
    return Measurement(f"{what}: fit", seconds, "s CPU", at_most=MAX_SECONDS)
