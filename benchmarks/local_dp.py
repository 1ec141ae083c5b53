"""Speed and memory of the local model: a million users."""

import tracemalloc

import numpy as np

from pkm.benchmarks.measurement import Measurement, least_seconds
from pkm.compute import SCALE, Points
from pkm.methods.kaplan_stemmer_local import KaplanStemmerLocal
from pkm.methods.local_dp import LocalLloyd, NoisedReports
from pkm.privacy import NoiseStreams
from pkm.privacy.randomizers import HadamardResponse, LocalHashing

USERS, COLUMNS, CLUSTERS = 1_000_000, 8, 10
MAX_SECONDS = 60  # of a fit, on two cores
ORACLE_USERS, VALUES = 100_000, 4096


def local_model() -> list[Measurement]:
    """Fits at a million users, their memory beyond the points, and the transform against asking user by user."""
    generator = np.random.default_rng(0)
    middles = generator.uniform(-0.5, 0.5, (CLUSTERS, COLUMNS))
    points = middles[np.arange(USERS) % CLUSTERS] + 0.05 * generator.standard_normal(
        (USERS, COLUMNS)
    )
    points = Points.prepare(np.rint(np.clip(points, -1, 1) * SCALE).astype(np.int64))
    name, rows = "1,000,000 users x 8, k = 10", []
    for method in (KaplanStemmerLocal, LocalLloyd, NoisedReports):
        seconds = least_seconds(
            lambda m=method: m(CLUSTERS, radius=1.5).fit_batch(points, [0]), repetitions=1
        )
        rows.append(
            Measurement(f"{name}: {method.__name__}", seconds, "s CPU", MAX_SECONDS, at_most=True)
        )
    secure = KaplanStemmerLocal(CLUSTERS, radius=1.5, secure=True)
    seconds = least_seconds(lambda: secure.fit_batch(points, [0]), repetitions=1)
    rows.append(
        Measurement(
            f"{name}: KaplanStemmerLocal, secure", seconds, "s CPU", MAX_SECONDS, at_most=True
        )
    )
    tracemalloc.start()
    KaplanStemmerLocal(CLUSTERS, radius=1.5).fit_batch(points, [0])
    extra = tracemalloc.get_traced_memory()[1] / USERS
    tracemalloc.stop()
    rows.append(
        Measurement(f"{name}: memory beyond the points", extra, "bytes a user", 64, at_most=True)
    )
    hashing, transform = (
        least_seconds(lambda kind=kind: _count(kind), repetitions=2)
        for kind in (LocalHashing, HadamardResponse)
    )
    rows.append(
        Measurement(
            "100,000 users, 4,096 values: Hadamard against hashing", hashing / transform, "x", 10
        )
    )
    return rows


def _count(kind) -> np.ndarray:
    oracle = kind(1.0, VALUES)
    users = np.arange(ORACLE_USERS)
    tally = oracle.tally()
    tally.add(users, oracle.report(users, users % VALUES, NoiseStreams([0]), ("benchmark",)))
    return tally.estimate()
