"""Speed and memory of the local model: a million users."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from pkm.benchmarks.inputs import draw_mixture
from pkm.benchmarks.measurement import (
    Measurement,
    measure_memory,
    measure_time,
    min_seconds,
)
from pkm.compute import Points
from pkm.methods import KaplanStemmerLocal, LocalLloyd, NoisedReports
from pkm.privacy import NoiseStreams, snap
from pkm.privacy.mechanisms.randomizers import HadamardResponse, LocalHashing, UserCells

N_USERS = 1_000_000
N_CLUSTERS = 10
METHODS = {
    "Kaplan-Stemmer": KaplanStemmerLocal(N_CLUSTERS, radius=1.5),
    "Kaplan-Stemmer, secure": KaplanStemmerLocal(N_CLUSTERS, radius=1.5, secure=True),
    "Lloyd": LocalLloyd(N_CLUSTERS, radius=1.5),
    "noised reports": NoisedReports(N_CLUSTERS, radius=1.5),
}
MAX_SECONDS = 60  # of a fit
MAX_BYTES = 8  # a value
N_VALUES = 4096


def measure_local_model(scale: float) -> Iterator[Measurement]:
    """Measure fits of users in eight columns, and estimates of counts of values."""
    n = round(scale * N_USERS)
    X = draw_mixture(np.arange(n) % N_CLUSTERS, 8, max_mean=0.5)
    points = Points.from_grid(snap(X))
    for name, method in METHODS.items():
        fit = partial(method.fit_batch, points, [0], secure=False)
        yield measure_time(f"{n:,} users, local {name}", fit, MAX_SECONDS)
    fit = partial(METHODS["Kaplan-Stemmer"].fit_batch, points, [0], secure=False)
    yield measure_memory(f"{n:,} users, Kaplan-Stemmer", fit, X.size, MAX_BYTES)

    # Compare a fast Hadamard transform with counting for each user.
    users = np.arange(n // 10)
    hashing = min_seconds(lambda: estimate_counts(LocalHashing, users), 2)
    hadamard = min_seconds(lambda: estimate_counts(HadamardResponse, users), 2)
    title = f"{N_VALUES:,} values: Hadamard against hashing"
    yield Measurement(
        title,
        hashing / hadamard,
        "x",
        at_least=10,
    )


def estimate_counts(
    randomizer: type[LocalHashing] | type[HadamardResponse], users: np.ndarray
) -> np.ndarray:
    """Estimate how many users have each value from one report of each user."""
    oracle = randomizer(1.0, N_VALUES)
    values = UserCells(users, users % N_VALUES)
    reports = NoiseStreams([0]).release(oracle, values, ("benchmark",))
    return oracle.estimate([(users, reports[0])])
