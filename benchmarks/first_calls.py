"""What a first call costs: in fresh processes, beside the second call of the same process."""

import json
import os
import subprocess
import sys
import tempfile

import numpy as np

from pkm import datasets
from pkm.benchmarks.measurement import Measurement, least_seconds
from pkm.compute import Points
from pkm.methods import FastLloyd

#: Data set, shape, k, common range; CPU ms that a first fit of DPM may take beyond a second one.
FIRST_FITS = (
    ("letters-18720", 18_720, 16, 26, (0.0, 15.0), 30),
    ("gas", 36_733, 11, 2, (-6.23, 1100.9), 30),
    ("synth-10d", 100_000, 10, 64, (-100.0, 100.0), 30),
    ("synth-100d", 100_000, 100, 64, (-100.0, 100.0), 60),
)
#: Run in a process of its own: two fits of published DPM on raw points, CPU seconds of each.
FIT_TWICE = """
import json, sys, time
import numpy as np
from pkm.methods import DPM

k, lower, upper, path = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
points = np.load(path)
seconds = []
for seed in (0, 1):
    method = DPM(k, variant="published", bounds=(lower, upper), random_state=seed)
    start = time.process_time()
    method.fit(points)
    seconds.append(time.process_time() - start)
print(json.dumps(seconds))
"""
#: The same with one small fit of each of two methods, for an empty compilation cache.
COMPILE = """
import json, time
import numpy as np
from pkm.methods import DPM, FastLloyd

points = np.random.default_rng(0).uniform(-1, 1, (500, 2))
seconds = []
for method in (FastLloyd(3, random_state=0), DPM(3, random_state=0)):
    start = time.process_time()
    method.fit(points)
    seconds.append(time.process_time() - start)
print(json.dumps(seconds))
"""
#: Words for Python, the name in the table, and the CPU seconds that they may take.
STARTS = (
    (("-c", "import pkm.methods"), "import pkm.methods", 0.6),
    (("-c", "from pkm.methods import FastLloyd"), "from pkm.methods import FastLloyd", 2.0),
    (("-m", "pkm", "run", "--help"), "pkm run --help", 1.0),
    (("-m", "pkm", "reproduce", "plan", "profile=smoke"), "pkm reproduce plan", 3.0),
)


def first_calls() -> list[Measurement]:
    """All rows of this part."""
    return [*first_fits(), *empty_cache(), *starts(), *single_against_batch(), *entering_points()]


def first_fits() -> list[Measurement]:
    """First and second fit of DPM in a fresh process; kernels are compiled and stored before."""
    rows = []
    for name, n, d, k, ends, limit in FIRST_FITS:
        points, label = raw_points(name, n, d, ends)
        with tempfile.NamedTemporaryFile(suffix=".npy") as file:
            np.save(file, points)
            file.flush()
            words = [str(k), *map(str, ends), file.name]
            json_of("-c", FIT_TWICE, *words)
            first, second = json_of("-c", FIT_TWICE, *words)
        rows.append(
            Measurement(
                f"{label}: second fit of DPM published", 1e3 * second, "ms CPU", np.inf, True
            )
        )
        rows.append(
            Measurement(
                f"{label}: first fit beyond it", 1e3 * (first - second), "ms CPU", limit, True
            )
        )
    return rows


def raw_points(name: str, n: int, d: int, ends: tuple[float, float]) -> tuple[np.ndarray, str]:
    """A data set in raw units, clipped, or noise of its shape; with the name that says which."""
    try:
        return np.clip(datasets.load(name).points, *ends), name
    except datasets.DataUnavailable:
        noise = np.random.default_rng(0).uniform(*ends, (n, d))
        return noise, f"{name} (noise of its shape)"


def empty_cache() -> list[Measurement]:
    """First fits where nothing is compiled yet."""
    with tempfile.TemporaryDirectory() as folder:
        lloyd, dpm = json_of("-c", COMPILE, NUMBA_CACHE_DIR=folder)
    return [
        Measurement("FastLloyd, 2 columns: first fit, empty cache", lloyd, "s CPU", 3.0, True),
        Measurement("DPM after it: first fit, empty cache", dpm, "s CPU", 5.0, True),
    ]


def starts() -> list[Measurement]:
    """CPU time of commands and imports."""
    rows = []
    for words, name, limit in STARTS:
        cpu_of(*words)
        seconds = min(cpu_of(*words) for _ in range(3))
        rows.append(Measurement(f"{name}, fresh process", seconds, "s CPU", limit, at_most=True))
    return rows


def single_against_batch() -> list[Measurement]:
    """What a fit costs when seeds run one by one, against a seed's share of a batch."""
    points = np.random.default_rng(0).uniform(-1, 1, (5000, 2))
    prepared = Points.from_box(points, np.full(2, -1.0), np.full(2, 1.0))[0]
    seeds = range(100)
    method = FastLloyd(15, epsilon=0.5)

    def one_by_one():
        for seed in seeds:
            FastLloyd(15, epsilon=0.5, random_state=seed).fit(points)

    batch = least_seconds(lambda: method.fit_batch(prepared, seeds), 3)
    single = least_seconds(one_by_one, 3)
    return [
        Measurement(
            "5,000 x 2, k = 15: fit against its share of a batch", single / batch, "x", 3.0, True
        ),
        Measurement("5,000 x 2, k = 15: fit", 1e3 * single / len(seeds), "ms CPU", 0.5, True),
    ]


def entering_points() -> list[Measurement]:
    """Share of a fit on MNIST's shape that mapping the points to the grid takes."""
    points = np.random.default_rng(0).uniform(0, 255, (10_000, 784))
    lower, upper = np.zeros(784), np.full(784, 255.0)
    enter = least_seconds(lambda: Points.from_box(points, lower, upper))
    method = FastLloyd(10, epsilon=1.0, bounds=(0, 255), random_state=0)
    fit = least_seconds(lambda: method.fit(points))
    return [
        Measurement("10,000 x 784: entering points", 1e3 * enter, "ms CPU", 14.0, True),
        Measurement("10,000 x 784, k = 10: fit with them", 1e3 * fit, "ms CPU", 25.0, True),
    ]


def json_of(*words: str, **environment: str) -> list[float]:
    """Run Python in a fresh process, on one thread; return what it prints as JSON."""
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, *words],
        env=os.environ | threads | environment,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return json.loads(run.stdout)


def cpu_of(*words: str) -> float:
    """CPU seconds, user and system, of Python in a fresh process."""
    before = os.times()
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    return (
        after.children_user + after.children_system - before.children_user - before.children_system
    )
