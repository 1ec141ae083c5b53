"""The first fit on a machine: what numba compiles, in a process with an empty cache."""

import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
from numba import njit
from numba.core.event import install_recorder

from pkm.benchmarks.measurement import Measurement
from pkm.methods import SynopsisKMeans

MAX_SECONDS = 4.0  # of CPU


def measure_first_calls(scale: float) -> list[Measurement]:
    """Measure the first fit of the default method, and what one kernel costs.

    The least kernel, a sum of two numbers, is compiled last in the same process: so
    many of them are a lower bound of any first fit with that many kernels.
    """
    with tempfile.TemporaryDirectory() as cache:
        printed = subprocess.run(
            [sys.executable, "-m", __name__],
            env=os.environ | {"NUMBA_CACHE_DIR": cache},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
    seconds, n_kernels, least = json.loads(printed)
    title = "first fit, nothing compiled before"
    return [
        Measurement(title, seconds, "s CPU", at_most=MAX_SECONDS),
        Measurement(f"{title}: compiled", n_kernels, "kernels"),
        Measurement("so many of the least kernels", n_kernels * least, "s CPU"),
    ]


def main() -> None:
    """Fit for the first time, and print seconds, kernels, seconds of the least one."""
    points = np.eye(2)[np.arange(2000) % 2]
    start = time.process_time()
    with install_recorder("numba:compile") as recorder:
        SynopsisKMeans(2, bounds=(0, 1)).fit(points)
    seconds = time.process_time() - start
    n_kernels = sum(event.is_start for _, event in recorder.buffer)

    start = time.process_time()
    njit(lambda one, other: one + other)(1.0, 2.0)
    least = time.process_time() - start
    print(json.dumps([seconds, n_kernels, least]))


if __name__ == "__main__":
    main()
