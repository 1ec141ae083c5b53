"""Speed and memory of the local model: a million users."""

import numpy as np

from pkm.benchmarks.measurement import Measurement, min_seconds, peak_bytes
from pkm.compute import SCALE, Points
from pkm.methods.local.kaplan_stemmer import KaplanStemmerLocal
from pkm.methods.local.local_dp import LocalLloyd, NoisedReports
from pkm.privacy import NoiseStreams
from pkm.privacy.randomizers import HadamardResponse, LocalHashing, UserCells

N_USERS = 1_000_000
N_COLUMNS = 8
N_CLUSTERS = 10
RADIUS = 1.5
MAX_SECONDS = 60  # of a fit, on two cores
MAX_BYTES = 64  # per user
N_ORACLE_USERS = 100_000
N_VALUES = 4096


def local_model() -> list[Measurement]:
    """Fits at a million users, their memory, and a fast transform against counting per user."""
    points = mixture()
    label = "1,000,000 users x 8, k = 10"
    methods = {
        method.__name__: method(N_CLUSTERS, radius=RADIUS)
        for method in (KaplanStemmerLocal, LocalLloyd, NoisedReports)
    }
    methods["KaplanStemmerLocal, secure"] = KaplanStemmerLocal(
        N_CLUSTERS, radius=RADIUS, secure=True
    )
    rows = []
    for name, method in methods.items():
        seconds = min_seconds(lambda m=method: m.fit_batch(points, [0]), repetitions=1)
        rows.append(Measurement(f"{label}: {name}", seconds, "s CPU", at_most=MAX_SECONDS))
    method = KaplanStemmerLocal(N_CLUSTERS, radius=RADIUS)
    extra = peak_bytes(lambda: method.fit_batch(points, [0])) / N_USERS
    what = f"{label}: memory beyond the points"
    rows.append(Measurement(what, extra, "bytes a user", at_most=MAX_BYTES))
    rows.append(transform())
    return rows


def mixture() -> Points:
    """Gaussian clusters of equal sizes, a point per user."""
    generator = np.random.default_rng(0)
    centers = generator.uniform(-0.5, 0.5, (N_CLUSTERS, N_COLUMNS))
    labels = np.arange(N_USERS) % N_CLUSTERS
    points = centers[labels] + 0.05 * generator.standard_normal((N_USERS, N_COLUMNS))
    return Points.prepare(np.rint(np.clip(points, -1, 1) * SCALE).astype(np.int64))


def transform() -> Measurement:
    """Estimating all counts by the fast Hadamard transform against hashing every value."""
    hashing = min_seconds(lambda: estimate(LocalHashing), repetitions=2)
    hadamard = min_seconds(lambda: estimate(HadamardResponse), repetitions=2)
    what = "100,000 users, 4,096 values: Hadamard against hashing"
    return Measurement(what, hashing / hadamard, "x", at_least=10)


def estimate(randomizer: type[LocalHashing] | type[HadamardResponse]) -> np.ndarray:
    """Estimated counts from the reports of all users."""
    oracle = randomizer(1.0, N_VALUES)
    users = np.arange(N_ORACLE_USERS)
    values = UserCells(users, users % N_VALUES)
    reports = NoiseStreams([0]).release(oracle, values, ("benchmark",))
    tally = oracle.tally()
    tally.add(users, reports[0])
    return tally.estimate()
