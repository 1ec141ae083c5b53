"""Speed and memory of the methods under distance-based privacy."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from pkm.benchmarks.inputs import draw_mixture, load_points
from pkm.benchmarks.measurement import Measurement, measure_memory, measure_time
from pkm.compute import Points
from pkm.methods import DistDP, NoisedPoints
from pkm.privacy import snap

K = 8
RHOS = (1.0, 0.05, 0.0001)
MAX_SECONDS = 20  # of a fit
N_LARGE = 1_000_000
#: Strategy that the sound variant takes on many points, by rho.
STRATEGIES = {0.05: "cells", 0.0001: "groups"}
MAX_LARGE_SECONDS = 2.0
MAX_BYTES_PER_VALUE = 30  # beyond the input


def measure_distance_based(scale: float) -> Iterator[Measurement]:
    """Measure fits of the data set skin, and of a million points."""
    X, label = load_points("skin", (245_057, 3), scale)
    points = Points.from_grid(snap(X))
    methods = {"noised points": NoisedPoints(K)}
    for rho in RHOS:
        for variant in ("published", "sound"):
            name = f"dist-DP {variant}, rho {rho:g}"
            methods[name] = DistDP(K, variant=variant, rho=rho)
    methods["dist-DP k-median"] = DistDP(K, variant="sound", rho=RHOS[-1], p=1)
    for name, method in methods.items():
        fit = partial(method.fit_batch, points, [0], secure=False)
        yield measure_time(f"{label}, {name}", fit, MAX_SECONDS)
    yield from measure_large_fits(round(scale * N_LARGE))


def measure_large_fits(n: int) -> Iterator[Measurement]:
    """Measure the sound variant's two strategies, conversion of the points included."""
    X = draw_mixture(np.arange(n) % 10, 10)
    for rho, strategy in STRATEGIES.items():
        model = DistDP(10, rho=rho, bounds=(-1, 1), random_state=1)
        fit = partial(model.fit, X)
        title = f"{n:,} x 10, dist-DP sound by {strategy}"
        yield measure_time(title, fit, MAX_LARGE_SECONDS)
        yield measure_memory(title, fit, X.size, MAX_BYTES_PER_VALUE)
