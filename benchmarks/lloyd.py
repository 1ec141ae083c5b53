"""Speed of the Lloyd methods: a sweep over small data, and single fits."""

import warnings
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from pkm.benchmarks.inputs import load_points
from pkm.benchmarks.measurement import Measurement, min_seconds
from pkm.benchmarks.reference import cluster, nicv
from pkm.compute import Points, labels
from pkm.methods import FastLloyd, GLloyd, Lloyd, SuLloyd
from pkm.methods.fitting import RepeatableNoiseWarning
from pkm.metrics import evaluate
from pkm.privacy import snap

EPSILONS = (0.1, 0.25, 0.5, 0.75, 1.0)
#: Data set, its shape, and the number of clusters.
SETS = (
    ("adult", (48_842, 6), 3),
    ("birch2", (25_000, 2), 100),
    ("mnist", (10_000, 784), 10),
    ("blobs-10000-512-32", (10_000, 512), 32),
)
GEMM_COLUMNS = 64  # from which computing distances is a matrix product
GEMM_SIZE = 1500
N_FITS = 100


def measure_sweep(scale: float) -> Iterator[Measurement]:
    """Measure four methods, five budgets and twenty seeds on s1, with their NICV."""
    points, label = load_points("s1", (5000, 2), scale)
    prepared = Points.from_grid(snap(points))
    methods = [Lloyd(15, variant="published")]
    for method in (SuLloyd, GLloyd, FastLloyd):
        for epsilon in EPSILONS:
            methods.append(method(15, epsilon=epsilon, variant="published"))

    def run_batches(seeds: Sequence[int]) -> None:
        for method in methods:
            centers = method.fit_batch(prepared, seeds, secure=False).centers
            evaluate(prepared, centers, ["nicv"])

    def run_numpy(seeds: Sequence[int]) -> None:
        for method in methods:
            for seed in seeds:
                nicv(points, cluster(method, points, seed))

    seconds = min_seconds(lambda: run_batches(range(20)))
    numpy_seconds = 10 * min_seconds(lambda: run_numpy(range(2)), repetitions=1)
    title = f"{label}: sweep of 320 fits"
    yield Measurement(
        title,
        seconds,
        "s CPU",
        at_most=0.1,
    )
    ratio = numpy_seconds / seconds
    yield Measurement(
        f"{title}, against numpy",
        ratio,
        "x",
        at_least=20,
    )


def measure_single_fits(scale: float) -> Iterator[Measurement]:
    """Measure fits of FastLloyd, their distances, and fits one by one."""
    matrix = np.ones((GEMM_SIZE, GEMM_SIZE))
    gemm_seconds = min_seconds(lambda: matrix @ matrix) / GEMM_SIZE**3
    for name, shape, k in SETS:
        points, label = load_points(name, shape, scale)
        title = f"{label}, k = {k}"
        yield compare_with_numpy(points, title, k)
        if shape[1] >= GEMM_COLUMNS:
            yield compare_with_gemm(points, title, k, gemm_seconds)
    yield compare_with_batch(round(5000 * scale))


def compare_with_numpy(points: np.ndarray, title: str, k: int) -> Measurement:
    """Measure a fit, from points on the grid to centers, against plain numpy."""
    method = FastLloyd(k, epsilon=0.5, variant="published")
    grid_points = snap(points)
    seconds = min_seconds(lambda: method.fit_batch(grid_points, [0], secure=False))
    numpy_seconds = min_seconds(lambda: cluster(method, points, 0), repetitions=1)
    ratio = numpy_seconds / seconds
    return Measurement(
        f"{title}: fit against numpy",
        ratio,
        "x",
        at_least=20,
    )


def compare_with_gemm(
    points: np.ndarray, title: str, k: int, gemm_seconds: float
) -> Measurement:
    """Measure a search for nearest centers against a product of as many operations."""
    grid_points = snap(points)
    prepared = Points.from_grid(grid_points)
    centers = grid_points[None, :k]
    seconds = min_seconds(lambda: labels(prepared, centers))
    rate = points.size * k * gemm_seconds / seconds
    return Measurement(
        f"{title}: distances",
        rate,
        "of GEMM's rate",
        at_least=0.5,
    )


def compare_with_batch(n: int) -> Measurement:
    """Measure a fit for each seed against one batch of all seeds."""
    points = np.random.default_rng(0).uniform(-1, 1, (n, 2))
    prepared = Points.from_grid(snap(points))
    bounds = (-1, 1)
    models = [FastLloyd(15, bounds=bounds, random_state=seed) for seed in range(N_FITS)]
    with warnings.catch_warnings():
        # Seeds make a benchmark repeatable. The points are generated.
        warnings.simplefilter("ignore", RepeatableNoiseWarning)
        single = min_seconds(lambda: [model.fit(points) for model in models])
    batch = min_seconds(
        partial(models[0].fit_batch, prepared, range(N_FITS), secure=False)
    )
    milliseconds = 1e3 * single / N_FITS
    title = f"{n:,} x 2, k = 15, {milliseconds:.2g} ms a fit: fits against a batch"
    return Measurement(
        title,
        single / batch,
        "x",
        at_most=5,
    )
