"""Speed and memory of the methods that grow trees: DPM and LSH-Splits."""

import numpy as np

from pkm.benchmarks.inputs import raw_points
from pkm.benchmarks.measurement import Measurement, min_seconds, peak_bytes
from pkm.benchmarks.reference import separate
from pkm.compute import Points
from pkm.methods import DPM, LSHSplits

#: Data set, its shape and number of clusters, its common range, and the CPU milliseconds that a fit
#: of DPM and of LSH-Splits may take.
TREES = (
    ("letters-18720", 18_720, 16, 26, (0.0, 15.0), 10, 20),
    ("gas", 36_733, 11, 2, (-6.23, 1100.9), 15, 30),
    ("synth-10d", 100_000, 10, 64, (-100.0, 100.0), 40, 60),
    ("synth-100d", 100_000, 100, 64, (-100.0, 100.0), 400, 150),
)
FITS = 10  # replicates that share an encoding of the points


def trees() -> list[Measurement]:
    """Fits per replicate of a batch; DPM's extra memory, encoding included."""
    rows = []
    for name, n, d, k, bounds, dpm_ms, lsh_ms in TREES:
        lower, upper = bounds
        raw, label = raw_points(name, n, d, bounds)
        points, _ = Points.from_box(raw, np.full(d, lower), np.full(d, upper))
        domain = [[lower] * d, [upper] * d]
        for variant in ("published", "sound"):
            method = DPM(k, variant=variant)
            what = f"{label}: DPM {variant}"
            seconds = fit_seconds(method, points, domain)
            rows.append(Measurement(what, 1e3 * seconds, "ms CPU", at_most=dpm_ms))
            rows.append(extra_memory(method, points, domain, what, raw.size))
            if variant == "published":
                reference = min_seconds(lambda r=raw, b=bounds: separate(r, *b, seed=0), 1)
                ratio = reference / seconds
                rows.append(Measurement(f"{what}, against numpy", ratio, "x", at_least=5))
        for variant in ("published", "sound"):
            seconds = fit_seconds(LSHSplits(k, variant=variant), points, domain)
            what = f"{label}: LSHSplits {variant}"
            rows.append(Measurement(what, 1e3 * seconds, "ms CPU", at_most=lsh_ms))
    return rows


def fit_seconds(method: DPM | LSHSplits, points: Points, domain: list[list[float]]) -> float:
    """CPU seconds of a fit, per replicate of a batch."""
    return min_seconds(lambda: method.fit_batch(points, range(FITS), domain), 3) / FITS


def extra_memory(
    method: DPM, points: Points, domain: list[list[float]], what: str, n_values: int
) -> Measurement:
    """Peak memory of a fit, the encodings that it derives from the points included."""
    points.derived.clear()
    extra = peak_bytes(lambda: method.fit_batch(points, [0], domain)) / n_values
    return Measurement(f"{what}, extra memory", extra, "bytes a value", at_most=3)
