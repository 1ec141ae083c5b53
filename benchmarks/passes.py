"""One exact pass over the points beside scikit-learn's in single precision and the machine's rates.

scikit-learn's pass is the difference of two fits of different length, divided by its passes.
"""

import time
from collections.abc import Callable

import numpy as np
from sklearn.cluster import KMeans

from pkm.benchmarks.measurement import Measurement, peak_bytes
from pkm.compute import Points, sums_and_counts
from pkm.experiments.timing import pinned
from pkm.methods import FastLloyd
from pkm.privacy import SCALE

#: Numbers of features and of centers.
SHAPES = ((2, 8), (10, 8), (10, 32), (40, 16), (100, 64))
VALUES = 1 << 22  # coordinates of all points
PASSES = 10  # of scikit-learn in the longer fit, besides those of the shorter one
REPLICATES = 20
REPETITIONS = 5
THREADED_POINTS = 1_000_000
MATRIX = 1024  # rows and columns of the matrices whose product gives the arithmetic rate


def passes() -> list[Measurement]:
    """Single passes on one and two threads, passes for many replicates, and the memory of a fit.

    Rates are millions of points a second. The floor is for the multiplications alone, at the rate
    of BLAS in float32, or for reading the points, whichever takes longer.
    """
    rows = []
    for n_threads in (1, 2):
        with pinned(n_threads):
            rows += [single_pass(d, k, n_threads) for d, k in SHAPES]
    with pinned(1):
        rows += [batch_pass(d, k) for d, k in SHAPES]
    rows.append(threads(10, 32))
    return [*rows, memory_of_fit(np.float64), memory_of_fit(np.float32)]


def single_pass(d: int, k: int, n_threads: int) -> Measurement:
    """A pass for one replicate; one thread by its CPU time, several by the wall clock."""
    clock = time.process_time if n_threads == 1 else time.perf_counter
    points, centers = inputs(d, k, 1)
    matrix = np.ones((MATRIX, MATRIX), np.float32)
    ours, longer, shorter, product, reading = min_seconds_in_turn(
        clock,
        lambda: sums_and_counts(points, centers),
        lambda: reference(points, centers, PASSES + 1),
        lambda: reference(points, centers, 1),
        lambda: matrix @ matrix,
        lambda: points.rows.max(),
    )
    theirs = (longer - shorter) / PASSES
    multiplying = product * points.shape[0] * d * k / MATRIX**3
    seconds = (ours, theirs, max(multiplying, reading))
    rates = "ours {:.3g}, scikit-learn {:.3g}, floor {:.3g} Mpoints/s".format(
        *(points.shape[0] / each / 1e6 for each in seconds)
    )
    threads = "1 thread" if n_threads == 1 else f"{n_threads} threads"
    what = f"pass, d = {d}, k = {k}, {threads}: {rates}"
    return Measurement(what, theirs / ours, "x scikit-learn", at_least=1.0)


def batch_pass(d: int, k: int) -> Measurement:
    """A pass for many replicates at once, by its CPU time for each of them."""
    points, centers = inputs(d, k, REPLICATES)
    ours, longer, shorter = min_seconds_in_turn(
        time.process_time,
        lambda: sums_and_counts(points, centers),
        lambda: reference(points, centers, PASSES + 1),
        lambda: reference(points, centers, 1),
    )
    ratio = (longer - shorter) / PASSES / (ours / REPLICATES)
    what = f"pass, d = {d}, k = {k}, each of {REPLICATES} replicates"
    return Measurement(what, ratio, "x scikit-learn", at_least=1.5)


def threads(d: int, k: int) -> Measurement:
    """A pass on one thread against two, by the wall clock, which needs two free cores."""
    points, centers = inputs(d, k, 1, THREADED_POINTS)

    seconds = []
    for n_threads in (1, 2):
        # Limiting the libraries' threads takes milliseconds, which are not the pass's.
        with pinned(n_threads):
            seconds += min_seconds_in_turn(
                time.perf_counter, lambda: sums_and_counts(points, centers), repetitions=20
            )
    one, two = seconds
    what = f"pass over {THREADED_POINTS:,} points, d = {d}, k = {k}: two threads"
    return Measurement(what, one / two, "x one", at_least=1.8)


def memory_of_fit(dtype: type) -> Measurement:
    """What a fit allocates, entering the points included, as a multiple of its input."""
    X = np.random.default_rng(0).uniform(-1, 1, (VALUES // 10, 10)).astype(dtype)
    model = FastLloyd(8, bounds=(-1, 1))
    what = f"fit of {X.dtype}, d = 10: memory allocated"
    peak = peak_bytes(lambda: model.fit(X))
    return Measurement(what, peak / X.nbytes, "x input", at_most=2.0)


def inputs(
    d: int, k: int, n_replicates: int, n_points: int | None = None
) -> tuple[Points, np.ndarray]:
    """Points of the uniform distribution, and centers for each replicate."""
    generator = np.random.default_rng(0)
    shape = (VALUES // d if n_points is None else n_points, d)
    points = Points.prepare(generator.integers(-SCALE, SCALE + 1, shape))
    return points, generator.integers(-SCALE, SCALE + 1, (n_replicates, k, d))


def reference(points: Points, centers: np.ndarray, max_iter: int) -> None:
    """A fit of scikit-learn in single precision, from the centers of the first replicate."""
    start = centers[0].astype(np.float32)
    fit = KMeans(len(start), init=start, n_init=1, max_iter=max_iter, tol=0, copy_x=False)
    fit.fit(points.rows.copy())


def min_seconds_in_turn(
    clock: Callable[[], float],
    *calls: Callable[[], object],
    repetitions: int = REPETITIONS,
) -> tuple[float, ...]:
    """Minimum time of each call, one after the other several times after a warm-up."""
    seconds = np.full((repetitions + 1, len(calls)), np.inf)
    for repetition in range(repetitions + 1):
        for number, call in enumerate(calls):
            start = clock()
            call()
            seconds[repetition, number] = clock() - start
    return tuple(seconds[1:].min(axis=0).tolist())
