"""What a round of Lloyd's algorithm costs on W workers, predicted from one shard and measured.

The prediction for S shards on W workers is

    t(S, W) = S / W * work + serial,

where the work is the mean over the shards, one after the other, and the serial part is what one
place does in each round however many points there are: charges, noise, new centers. It is compared
with one and two workers that have a part of the points each. Times are CPU time, of two workers
that of the slower one, so that they hold for a machine with free cores whatever else runs on this
one. Moving the bytes is not in them.
"""

import time
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np

from pkm.benchmarks.measurement import Measurement, min_seconds
from pkm.benchmarks.passes import inputs
from pkm.compute import Points, sums_and_counts
from pkm.methods import FastLloyd

SHAPES = ((2, 8), (10, 8), (40, 16))  # numbers of features and of centers
POINTS = 1_000_000
SHARDS = 8
REPETITIONS = 20
ROUNDS = (2, 7)  # of two fits, whose difference is that of their rounds
INTEGER_BYTES = 8


def scaling() -> list[Measurement]:
    """Work of a shard, the serial part, bytes, and the error of what they predict."""
    return [row for d, k in SHAPES for row in measured_against_predicted(d, k)]


def measured_against_predicted(d: int, k: int) -> list[Measurement]:
    """The parts of the prediction for one shape, and its errors at one and two workers."""
    points, centers = inputs(d, k, 1, POINTS)
    shards = shards_of(points, SHARDS)
    work = sum(shortest_pass(shards, centers, 1)) / SHARDS
    serial = serial_part(d, k)
    label = f"round, d = {d}, k = {k}"
    rows = [
        Measurement(f"{label}: work of {POINTS // SHARDS:,} points", 1e3 * work, "ms CPU"),
        Measurement(f"{label}: serial part", 1e3 * serial, "ms CPU"),
        Measurement(f"{label}: bytes of a worker", bytes_of_worker(d, k), "bytes"),
    ]
    for n_workers in (1, 2):
        predicted = work * SHARDS / n_workers + serial
        parts = shards_of(points, n_workers)
        measured = max(shortest_pass(parts, centers, n_workers)) + serial
        error = abs(predicted / measured - 1)
        workers = "1 worker" if n_workers == 1 else f"{n_workers} workers"
        what = f"{label}, {POINTS:,} points, {workers}: {1e3 * measured:.3g} ms, error"
        rows.append(Measurement(what, 100 * error, "%", at_most=10))
    return rows


def shortest_pass(shards: list[Points], centers: np.ndarray, n_workers: int) -> list[float]:
    """CPU seconds of each shard in the pass of several whose longest shard is the shortest."""

    def cpu_seconds(shard: Points) -> float:
        start = time.thread_time()
        sums_and_counts(shard, centers)
        return time.thread_time() - start

    # The number of numba's threads is one for each thread that calls it.
    with ThreadPoolExecutor(n_workers, initializer=numba.set_num_threads, initargs=(1,)) as workers:
        passes = [list(workers.map(cpu_seconds, shards)) for _ in range(REPETITIONS)]
    return min(passes, key=max)


def serial_part(d: int, k: int) -> float:
    """CPU seconds of a round of FastLloyd on as many points as centers."""
    points = Points.prepare(np.zeros((k, d), np.int64))
    fewer, more = (FastLloyd(k, n_iterations=n_rounds) for n_rounds in ROUNDS)
    seconds = [min_seconds(lambda m=m: m.fit_batch(points, [0]), 50) for m in (fewer, more)]
    return (seconds[1] - seconds[0]) / (ROUNDS[1] - ROUNDS[0])


def bytes_of_worker(d: int, k: int) -> int:
    """Bytes to and from a worker in a round: centers there, sums and counts back."""
    return INTEGER_BYTES * (k * d + k * (d + 1))


def shards_of(points: Points, n_shards: int) -> list[Points]:
    """Equal shards of points, which share their memory."""
    rows = np.array_split(points.rows, n_shards)
    squared_norms = np.array_split(points.squared_norms, n_shards)
    return [Points(*shard) for shard in zip(rows, squared_norms, strict=True)]
