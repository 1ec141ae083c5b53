"""Cost of a first call in a fresh process, and of single calls against batches."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pkm.benchmarks import kills
from pkm.benchmarks.inputs import raw_points
from pkm.benchmarks.measurement import Measurement, min_seconds
from pkm.compute import Points
from pkm.experiments.store.store import Store
from pkm.methods import FastLloyd

#: Data set, its shape and number of clusters, its common range, and the CPU milliseconds that a
#: first fit of DPM may take beyond a second one: loading the compiled kernels.
FIRST_FITS = (
    ("letters-18720", 18_720, 16, 26, (0.0, 15.0), 200),
    ("gas", 36_733, 11, 2, (-6.23, 1100.9), 200),
    ("synth-10d", 100_000, 10, 64, (-100.0, 100.0), 200),
    ("synth-100d", 100_000, 100, 64, (-100.0, 100.0), 300),
)
#: Run in a fresh process: two fits of published DPM on raw points, CPU seconds of each.
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
#: Run in a fresh process with an empty compilation cache: CPU seconds of small fits.
FIT_TWO_METHODS = """
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
#: Name in the table, arguments of Python, and the CPU seconds that the process may take.
STARTS = (
    ("import pkm.methods", ("-c", "import pkm.methods"), 0.6),
    ("from pkm.methods import FastLloyd", ("-c", "from pkm.methods import FastLloyd"), 2.0),
    ("import pkm.datasets", ("-c", "import pkm.datasets"), 0.35),
    ("pkm run --help", ("-m", "pkm", "run", "--help"), 1.0),
    ("pkm reproduce plan", ("-m", "pkm", "reproduce", "plan", "profile=smoke"), 3.0),
)
#: Run of all papers whose first cell is waited for.
ALL_PAPERS = ("reproduce", "run", "paper=all", "profile=quick")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}


def first_calls() -> list[Measurement]:
    """All rows of this part."""
    return [
        *first_fits(),
        *empty_cache(),
        *starts(),
        *first_cell(),
        *single_against_batch(),
        *preparation(),
    ]


def first_fits() -> list[Measurement]:
    """First and second fit of DPM in a fresh process; the kernels are compiled before."""
    rows = []
    for name, n, d, k, bounds, limit_ms in FIRST_FITS:
        points, label = raw_points(name, n, d, bounds)
        with tempfile.NamedTemporaryFile(suffix=".npy") as file:
            np.save(file, points)
            file.flush()
            arguments = [str(k), *map(str, bounds), file.name]
            run_json("-c", FIT_TWICE, *arguments)
            first, second = run_json("-c", FIT_TWICE, *arguments)
        rows.append(Measurement(f"{label}: second fit of DPM published", 1e3 * second, "ms CPU"))
        excess = 1e3 * (first - second)
        what = f"{label}: first fit of DPM published, beyond the second"
        rows.append(Measurement(what, excess, "ms CPU", at_most=limit_ms))
    return rows


def empty_cache() -> list[Measurement]:
    """First fits where nothing is compiled yet."""
    with tempfile.TemporaryDirectory() as folder:
        lloyd, dpm = run_json("-c", FIT_TWO_METHODS, NUMBA_CACHE_DIR=folder)
    return [
        Measurement("FastLloyd, 2 columns: first fit, empty cache", lloyd, "s CPU", at_most=3),
        Measurement("DPM after it: first fit, empty cache", dpm, "s CPU", at_most=5),
    ]


def starts() -> list[Measurement]:
    """CPU time of imports and commands."""
    rows = []
    for name, arguments, limit in STARTS:
        cpu_seconds(*arguments)
        seconds = min(cpu_seconds(*arguments) for _ in range(3))
        rows.append(Measurement(f"{name}, fresh process", seconds, "s CPU", at_most=limit))
    return rows


def first_cell() -> list[Measurement]:
    """CPU time of a run of all papers until its first cell is stored; kernels compiled before."""
    seconds = min(seconds_to_first_cell(ALL_PAPERS) for _ in range(4))
    return [Measurement("pkm reproduce run paper=all, first cell", seconds, "s CPU", at_most=3)]


def seconds_to_first_cell(command: Sequence[str]) -> float:
    """CPU seconds of a command of ``pkm``, all its processes together, until it stores a cell."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "results")
        process = kills.start(command, store)
        while process.poll() is None and not store.present():
            time.sleep(0.02)
        if process.poll() is not None:
            raise RuntimeError(f"pkm {' '.join(command)} ended before it stored a cell")
        seconds = kills.cpu_seconds(process.pid)
        kills.kill(process)
    return seconds


def single_against_batch() -> list[Measurement]:
    """A fit per seed against a batch of seeds."""
    points = np.random.default_rng(0).uniform(-1, 1, (5000, 2))
    prepared = Points.from_box(points, np.full(2, -1.0), np.full(2, 1.0))[0]
    seeds = range(100)
    method = FastLloyd(15, epsilon=0.5)

    def fit_each() -> None:
        for seed in seeds:
            FastLloyd(15, epsilon=0.5, random_state=seed).fit(points)

    batch = min_seconds(lambda: method.fit_batch(prepared, seeds), 3)
    single = min_seconds(fit_each, 3)
    label = "5,000 x 2, k = 15"
    return [
        Measurement(f"{label}: 100 fits against a batch of 100", single / batch, "x", at_most=5),
        Measurement(f"{label}: fit", 1e3 * single / len(seeds), "ms CPU", at_most=0.5),
    ]


def preparation() -> list[Measurement]:
    """Mapping points of MNIST's shape to the grid, by itself and as a part of a fit."""
    points = np.random.default_rng(0).uniform(0, 255, (10_000, 784))
    lower = np.zeros(784)
    upper = np.full(784, 255.0)
    prepare = min_seconds(lambda: Points.from_box(points, lower, upper))
    method = FastLloyd(10, epsilon=1.0, bounds=(0, 255), random_state=0)
    fit = min_seconds(lambda: method.fit(points))
    return [
        Measurement("10,000 x 784: mapping to the grid", 1e3 * prepare, "ms CPU", at_most=14),
        Measurement("10,000 x 784, k = 10: fit, mapping included", 1e3 * fit, "ms CPU", at_most=25),
    ]


def run_json(*arguments: str, **environment: str) -> list[float]:
    """Run Python in a fresh process on one thread; return what it prints as JSON."""
    process = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | ONE_THREAD | environment,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return json.loads(process.stdout)


def cpu_seconds(*arguments: str) -> float:
    """CPU seconds, user and system, of Python in a fresh process."""
    before = os.times()
    subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | ONE_THREAD,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = os.times()
    user = after.children_user - before.children_user
    system = after.children_system - before.children_system
    return user + system
