"""Kaplan and Stemmer's method and that of Balcan et al. in the central model: time and memory."""

import numpy as np

from pkm.benchmarks.measurement import Measurement, min_seconds, peak_bytes
from pkm.compute import Points
from pkm.methods.hashing.balcan import Balcan
from pkm.methods.hashing.kaplan_stemmer import KaplanStemmer
from pkm.privacy import snap

N_POINTS = 100_000
N_CLUSTERS = 16
MAX_BYTES = 32  # of extra memory per value
#: Columns of the points, and the CPU seconds that a fit with the default choice may take.
DEFAULT_FITS = ((10, 2), (100, 5))


def kaplan_stemmer() -> list[Measurement]:
    """Fits at a hundred thousand points, and the memory that a fit takes besides the points."""
    rows = []
    method = KaplanStemmer(N_CLUSTERS, radius=1.0)
    for d, max_seconds in DEFAULT_FITS:
        points = mixture(d)
        rows.append(fit_time(method, points, f"Kaplan-Stemmer, 100,000 x {d}, k = 16", max_seconds))
        extra = peak_bytes(lambda p=points: method.fit_batch(p, [0])) / (N_POINTS * d)
        what = f"Kaplan-Stemmer, 100,000 x {d}: extra memory"
        rows.append(Measurement(what, extra, "bytes a value", at_most=MAX_BYTES))
    points = mixture(10)
    search = KaplanStemmer(N_CLUSTERS, radius=1.0, select="local_search")
    what = "Kaplan-Stemmer, local search, 100,000 x 10, k = 16"
    rows.append(fit_time(search, points, what, 10))
    balcan = Balcan(N_CLUSTERS, radius=1.0)
    rows.append(fit_time(balcan, points, "Balcan et al., 100,000 x 10, k = 16", 10))
    return rows


def fit_time(
    method: KaplanStemmer | Balcan, points: Points, what: str, max_seconds: float
) -> Measurement:
    """CPU seconds of a fit."""
    seconds = min_seconds(lambda: method.fit_batch(points, [0]), repetitions=1)
    return Measurement(what, seconds, "s CPU", at_most=max_seconds)


def mixture(d: int) -> Points:
    """Sixteen Gaussian clusters in the unit ball."""
    generator = np.random.default_rng(0)
    centers = generator.standard_normal((N_CLUSTERS, d))
    centers *= 0.8 / np.linalg.norm(centers, axis=1, keepdims=True)
    labels = generator.integers(N_CLUSTERS, size=N_POINTS)
    noise = 0.15 / np.sqrt(d) * generator.standard_normal((N_POINTS, d))
    points = centers[labels] + noise
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    return Points.prepare(snap(points / np.maximum(1, norms)))
