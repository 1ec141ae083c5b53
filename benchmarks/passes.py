"""A pass, one scan over all points, compared with scikit-learn, BLAS and memory.

The time of a pass is the difference of two fits with different numbers of passes,
divided by the difference of these numbers.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from numba import njit
from sklearn.cluster import KMeans

from pkm.benchmarks.measurement import Measurement, min_times, peak_bytes
from pkm.compute import Points, sums_and_counts
from pkm.experiments.fit.threads import limit_threads
from pkm.methods import FastLloyd
from pkm.privacy import SCALE

#: Numbers of features and of centers.
SHAPES = ((2, 8), (10, 8), (10, 32), (40, 16), (100, 64))
#: Threads, replicates, and the least speed relative to scikit-learn's.
RUNS = ((1, 1, 1.0), (2, 1, 1.0), (1, 20, 1.5))
N_VALUES = 1 << 22  # coordinates of all points
N_EXTRA = 10  # passes that a long fit has more than a short one
REPETITIONS = 3
THREADED_POINTS = 1_000_000
N_PRODUCTS = 12_000_000  # take as long as a pass over these points
MATRIX = 1024  # rows and columns of a matrix product


def measure_passes(scale: float) -> Iterator[Measurement]:
    """Measure passes on one and two threads, of many replicates, and a fit's memory."""
    n_values = round(scale * N_VALUES)
    for n_threads, n_replicates, at_least in RUNS:
        with limit_threads(n_threads):
            for d, k in SHAPES:
                inputs = draw_inputs(n_values // d, d, k, n_replicates)
                yield measure_pass(*inputs, n_threads, at_least)
    yield from measure_threads(round(scale * THREADED_POINTS))
    yield from map(measure_fit_memory, (np.float64, np.float32))


def draw_inputs(n: int, d: int, k: int, n_replicates: int) -> tuple[Points, np.ndarray]:
    """Draw uniform points, and centers for each replicate."""
    generator = np.random.default_rng(0)
    points = Points.from_grid(generator.integers(-SCALE, SCALE + 1, (n, d)))
    return points, generator.integers(-SCALE, SCALE + 1, (n_replicates, k, d))


def measure_pass(
    points: Points, centers: np.ndarray, n_threads: int, at_least: float
) -> Measurement:
    """Measure a pass; one thread by its CPU time, several by the wall clock.

    The roofline is a lower bound of the time: that of the multiplications alone, at the
    rate of BLAS in float32, or of reading the points, whichever is longer.
    """
    clock = time.process_time if n_threads == 1 else time.perf_counter
    n_replicates, k, d = centers.shape
    ours, theirs = time_repetition(
        clock,
        partial(repeat, partial(sums_and_counts, points, centers)),
        partial(fit_sklearn, points, centers[0]),
    )
    ours /= n_replicates

    # Measured apart: after a product the threads of BLAS keep a core busy for a while.
    matrix = np.ones((MATRIX, MATRIX), np.float32)
    product, reading = time_repetition(
        clock,
        partial(repeat, lambda: matrix @ matrix),
        partial(repeat, points.rows.max),
    )
    n = len(points.rows)
    roofline = max(product * n * d * k / MATRIX**3, reading)
    rates = "ours {:.3g}, scikit-learn {:.3g}, roofline {:.3g} Mpoints/s".format(
        *(n / seconds / 1e6 for seconds in (ours, theirs, roofline))
    )
    run = f"{n_threads} threads, {n_replicates} replicates"
    title = f"pass, d = {d}, k = {k}, {run}: {rates}"
    return Measurement(
        title,
        theirs / ours,
        "x scikit-learn",
        at_least=at_least,
    )


def fit_sklearn(points: Points, centers: np.ndarray, max_iter: int) -> None:
    """Fit scikit-learn's k-means in single precision from the same centers."""
    start = centers.astype(np.float32)
    model = KMeans(
        len(start),
        init=start,
        n_init=1,
        max_iter=max_iter,
        tol=0,
        copy_x=False,
    )
    model.fit(points.rows.copy())


def repeat(call: Callable[[], object], times: int) -> None:
    """Call a number of times."""
    for _ in range(times):
        call()


def time_repetition(
    clock: Callable[[], float], *calls: Callable[[int], object]
) -> np.ndarray:
    """Return the seconds per repetition; each call takes the number of repetitions.

    It is a difference, so the beginning and the end of a fit do not count.
    """
    variants = []
    for call in calls:
        variants += [partial(call, 1), partial(call, 1 + N_EXTRA)]
    times = min_times(clock, *variants)
    return (times[1::2] - times[::2]) / N_EXTRA


def measure_threads(n: int) -> Iterator[Measurement]:
    """Measure a pass on two threads by the wall clock, and what the machine allows.

    For reference, the second row is the speed-up of a compute-bound loop. Where other
    machines share the cores, two threads are not twice as fast as one even there.
    """
    points, centers = draw_inputs(n, 10, 32, 1)

    def time_on(n_threads: int) -> np.ndarray:
        with limit_threads(n_threads):
            return time_repetition(
                time.perf_counter,
                partial(repeat, partial(sums_and_counts, points, centers)),
                partial(repeat, partial(multiply_in_threads, n_threads)),
            )

    # Alternate, so that the load of the machine affects both.
    times = [[time_on(1), time_on(2)] for _ in range(REPETITIONS)]
    one, two = np.min(times, axis=0)
    ours, products = one / two
    title = f"pass over {n:,} points, d = 10, k = 32: two threads"
    yield Measurement(
        title,
        ours,
        "x one",
        at_least=1.8,
    )
    title = "multiplications in registers: two threads"
    yield Measurement(
        title,
        products,
        "x one",
    )


def multiply_in_threads(n_threads: int) -> None:
    """Divide the same number of multiplications among threads."""
    with ThreadPoolExecutor(n_threads) as threads:
        list(threads.map(multiply, [N_PRODUCTS // n_threads] * n_threads))


@njit(cache=True, nogil=True)
def multiply(times: int) -> float:
    """Multiply a number in a register by another, again and again."""
    product = 1.0
    for _ in range(times):
        product *= 1.0000001
    return product


def measure_fit_memory(dtype: type) -> Measurement:
    """Measure the memory that a fit allocates, as a multiple of its input."""
    X = np.random.default_rng(0).uniform(-1, 1, (N_VALUES // 10, 10)).astype(dtype)
    model = FastLloyd(8, bounds=(-1, 1))
    peak = peak_bytes(lambda: model.fit(X))
    title = f"fit of {X.dtype}, d = 10: memory allocated"
    return Measurement(
        title,
        peak / X.nbytes,
        "x input",
        at_most=2.0,
    )
