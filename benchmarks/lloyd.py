"""Speed of the Lloyd methods: a sweep over small data and single fits of large ones."""

from collections.abc import Sequence

import numpy as np

from pkm.benchmarks.inputs import scaled_points
from pkm.benchmarks.measurement import Measurement, min_seconds
from pkm.benchmarks.reference import cluster, nicv
from pkm.compute import Points, labels
from pkm.methods import FastLloyd, GLloyd, Lloyd, SuLloyd
from pkm.metrics import evaluate
from pkm.privacy import snap

EPSILONS = (0.1, 0.25, 0.5, 0.75, 1.0)
#: Data set, its shape and number of clusters.
SETS = (
    ("adult", 48_842, 6, 3),
    ("birch2", 25_000, 2, 100),
    ("mnist", 10_000, 784, 10),
)
#: Number of columns from which computing distances is a matrix product.
GEMM_COLUMNS = 64


def sweep() -> list[Measurement]:
    """Four methods, five budgets, twenty seeds on s1, NICV only; preparing points excluded."""
    points, label = scaled_points("s1", 5000, 2)
    prepared = Points.prepare(snap(points))
    methods = [Lloyd(15, variant="published")]
    for method in (SuLloyd, GLloyd, FastLloyd):
        methods += [method(15, epsilon=epsilon, variant="published") for epsilon in EPSILONS]

    def batched(seeds: Sequence[int]) -> None:
        for method in methods:
            evaluate(prepared, method.fit_batch(prepared, seeds).centers, ["nicv"])

    def plain(seeds: Sequence[int]) -> None:
        for method in methods:
            for seed in seeds:
                nicv(points, cluster(method, points, seed))

    measured = min_seconds(lambda: batched(range(20)))
    reference = min_seconds(lambda: plain(range(2)), repetitions=1) * 10
    return [
        Measurement(f"{label} sweep, 320 fits", measured, "s CPU", at_most=0.1),
        Measurement(f"{label} sweep, against numpy", reference / measured, "x", at_least=20),
    ]


def single_fits() -> list[Measurement]:
    """One FastLloyd fit at epsilon 0.5, from grid points to centers, and its distance part."""
    sets = [(*scaled_points(name, n, d), k) for name, n, d, k in SETS]
    sets.append((np.random.default_rng(0).uniform(-1, 1, (10_000, 512)), "10,000 x 512", 32))
    gemm = gemm_rate()
    rows = []
    for points, label, k in sets:
        rows.append(against_numpy(points, f"{label}, k = {k}", k))
        if points.shape[1] >= GEMM_COLUMNS:
            rows.append(against_gemm(points, f"{label}, k = {k}", k, gemm))
    return rows


def against_numpy(points: np.ndarray, label: str, k: int) -> Measurement:
    """A fit against the same fit in plain numpy."""
    method = FastLloyd(k, epsilon=0.5, variant="published")
    grid = snap(points)
    measured = min_seconds(lambda: method.fit_batch(grid, [0]))
    reference = min_seconds(lambda: cluster(method, points, 0), repetitions=1)
    return Measurement(f"{label}: fit against numpy", reference / measured, "x", at_least=20)


def against_gemm(points: np.ndarray, label: str, k: int, gemm: float) -> Measurement:
    """The nearest centers of all points against a matrix product of as many operations."""
    grid = snap(points)
    prepared = Points.prepare(grid)
    centers = grid[None, :k]
    seconds = min_seconds(lambda: labels(prepared, centers))
    rate = 2 * points.size * k / seconds
    return Measurement(f"{label}: distances against GEMM", rate / gemm, "of its rate", at_least=0.5)


def gemm_rate(size: int = 1500) -> float:
    """Floating-point operations per second of this machine's float64 matrix product, one thread."""
    matrix = np.random.default_rng(0).random((size, size))
    return 2 * size**3 / min_seconds(lambda: matrix @ matrix)
