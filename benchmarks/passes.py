"""One exact pass over the points beside scikit-learn's in single precision and the machine's rates.

A pass is the difference of two fits of different length, divided by the number of their passes.
"""

import threading
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from numba import njit
from sklearn.cluster import KMeans

from pkm.benchmarks.measurement import Measurement, peak_bytes
from pkm.compute import Points, sums_and_counts
from pkm.experiments.fit.threads import limit_threads
from pkm.methods import FastLloyd
from pkm.privacy import SCALE

#: Numbers of features and of centers.
SHAPES = ((2, 8), (10, 8), (10, 32), (40, 16), (100, 64))
VALUES = 1 << 22  # coordinates of all points
PASSES = 10  # of the longer fits, besides that of the shorter ones
REPLICATES = 20
REPETITIONS = 5
TURNS = 3
THREADED_POINTS = 1_000_000
MULTIPLICATIONS = 12_000_000  # as long as a pass over so many points
MATRIX = 1024  # rows and columns of the matrices whose product gives the arithmetic rate


def passes() -> list[Measurement]:
    """Single passes on one and two threads, passes for many replicates, and the memory of a fit.

    Rates are millions of points a second. The floor is for the multiplications alone, at the rate
    of BLAS in float32, or for reading the points, whichever takes longer.
    """
    rows = []
    for n_threads in (1, 2):
        with limit_threads(n_threads):
            rows += [single_pass(d, k, n_threads) for d, k in SHAPES]
    with limit_threads(1):
        rows += [batch_pass(d, k) for d, k in SHAPES]
    return [*rows, *threads(10, 32), memory_of_fit(np.float64), memory_of_fit(np.float32)]


def single_pass(d: int, k: int, n_threads: int) -> Measurement:
    """A pass for one replicate; one thread by its CPU time, several by the wall clock."""
    clock = time.process_time if n_threads == 1 else time.perf_counter
    points, centers = inputs(d, k, 1)
    matrix = np.ones((MATRIX, MATRIX), np.float32)
    ours, theirs = seconds_of_another(
        clock,
        again(lambda: sums_and_counts(points, centers)),
        lambda times: reference(points, centers, times),
    )
    # By itself: after a product the threads of BLAS keep a core busy for tens of milliseconds.
    product, reading = seconds_of_another(
        clock, again(lambda: matrix @ matrix), again(points.rows.max)
    )
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
    ours, theirs = seconds_of_another(
        time.process_time,
        again(lambda: sums_and_counts(points, centers)),
        lambda times: reference(points, centers, times),
    )
    what = f"pass, d = {d}, k = {k}, each of {REPLICATES} replicates"
    return Measurement(what, theirs / (ours / REPLICATES), "x scikit-learn", at_least=1.5)


def threads(d: int, k: int) -> list[Measurement]:
    """A pass on one thread against two, by the wall clock, and what the machine allows.

    The second row is of multiplications in registers, which take as long: where other machines
    share the cores, two threads are not twice as fast as one even there.
    """
    points, centers = inputs(d, k, 1, THREADED_POINTS)

    def turn(n_threads: int) -> tuple[float, ...]:
        with limit_threads(n_threads):
            return seconds_of_another(
                time.perf_counter,
                again(lambda: sums_and_counts(points, centers)),
                again(lambda: multiply_in_threads(n_threads)),
            )

    # In turns, so that what slows the machine down slows both down.
    seconds = np.array([[turn(1), turn(2)] for _ in range(TURNS)])
    one, two = seconds.min(axis=0)
    ours, multiplications = one / two
    what = f"pass over {THREADED_POINTS:,} points, d = {d}, k = {k}: two threads"
    return [
        Measurement(what, ours, "x one", at_least=1.8),
        Measurement("multiplications in registers: two threads", multiplications, "x one"),
    ]


def multiply_in_threads(n_threads: int) -> None:
    """Multiply as often for any number of threads."""
    others = [
        threading.Thread(target=multiply, args=(MULTIPLICATIONS // n_threads,))
        for _ in range(n_threads - 1)
    ]
    for thread in others:
        thread.start()
    multiply(MULTIPLICATIONS // n_threads)
    for thread in others:
        thread.join()


@njit(cache=True, nogil=True)
def multiply(times: int) -> float:
    """Multiply a number in a register by another, again and again."""
    product = 1.0
    for _ in range(times):
        product *= 1.0000001
    return product


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


def again(call: Callable[[], object]) -> Callable[[int], None]:
    """Function that calls as many times as it is told."""

    def calls(times: int) -> None:
        for _ in range(times):
            call()

    return calls


def seconds_of_another(
    clock: Callable[[], float], *calls: Callable[[int], object]
) -> tuple[float, ...]:
    """Seconds that one time more takes, for calls that do their work a number of times.

    Of `PASSES` and one times, less that of one: so all of them are measured as they are in the
    middle of a fit, without its beginning and its end.
    """
    variants = [partial(call, times) for call in calls for times in (PASSES + 1, 1)]
    seconds = min_seconds_in_turn(clock, *variants)
    return tuple(
        (longer - shorter) / PASSES
        for longer, shorter in zip(seconds[::2], seconds[1::2], strict=True)
    )


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
