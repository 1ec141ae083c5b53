"""Speed and memory of the methods that grow trees: DPM and LSH-Splits."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from pkm.benchmarks.inputs import load_points
from pkm.benchmarks.measurement import (
    Measurement,
    measure_memory,
    measure_time,
    min_seconds,
)
from pkm.compute import Points
from pkm.methods import DPM, LSHSplits

#: Data set, its shape and number of clusters, its common range, and the CPU seconds
#: that a fit of DPM and one of LSH-Splits may take.
SETS = (
    ("letters-18720", (18_720, 16), 26, (0.0, 15.0), 0.01, 0.02),
    ("gas", (36_733, 11), 2, (-6.23, 1100.9), 0.015, 0.03),
    ("synth-10d", (100_000, 10), 64, (-100.0, 100.0), 0.04, 0.06),
    ("synth-100d", (100_000, 100), 64, (-100.0, 100.0), 0.4, 0.15),
)
N_FITS = 10  # replicates that share an encoding of the points
MAX_BYTES_PER_VALUE = 3


def measure_trees(scale: float) -> Iterator[Measurement]:
    """Measure the time of a replicate in a batch, and the memory of DPM."""
    for name, shape, k, bounds, dpm_seconds, lsh_seconds in SETS:
        raw, label = load_points(name, shape, scale, bounds)
        domain = np.repeat([bounds], raw.shape[1], axis=0).T
        points, _ = Points.quantize(raw, *domain)
        sort = min_seconds(partial(np.sort, raw, axis=0))
        for variant in ("published", "sound"):
            title = f"{label}: DPM {variant}"
            method = DPM(k, variant=variant)
            fit = partial(method.fit_batch, points, range(N_FITS), domain, secure=False)
            dpm = measure_time(title, fit, dpm_seconds, N_FITS)
            yield dpm
            # Plain DPM sorts all columns once for each of seven levels.
            ratio = sort / dpm.value
            what = "one sort of the columns over a fit"
            yield Measurement(
                f"{title}: {what}",
                ratio,
                "x",
                at_least=1,
            )
            # Encodings of the points count.
            points.cache.clear()
            fit = partial(method.fit_batch, points, [0], domain, secure=False)
            yield measure_memory(title, fit, raw.size, MAX_BYTES_PER_VALUE)

            method = LSHSplits(k, variant=variant)
            fit = partial(method.fit_batch, points, range(N_FITS), domain, secure=False)
            title = f"{label}: LSH-Splits {variant}"
            yield measure_time(title, fit, lsh_seconds, N_FITS)
