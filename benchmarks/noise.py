"""Speed of secure noise: exact integer samplers against seeded, rounded float noise."""

import numpy as np

from pkm.benchmarks.measurement import Measurement, min_seconds
from pkm.privacy import SCALE, Gaussian, Laplace, NoiseStreams

N_DRAWS = 200_000
SMALL_SHAPE = (16, 16)  # sums of a round of a small run
N_ROUNDS = 200
MAX_RATIO = 20


def secure_noise() -> list[Measurement]:
    """Time of a secure draw over that of a seeded one, per mechanism: large and small answers."""
    rows = []
    for mechanism in (Gaussian(100.0 * SCALE), Laplace(100.0 * SCALE)):
        for shape, n_rounds in (((N_DRAWS,), 1), (SMALL_SHAPE, N_ROUNDS)):
            seeded = draw_seconds(mechanism, NoiseStreams([0]), shape, n_rounds)
            secure = draw_seconds(mechanism, NoiseStreams([0], secure=True), shape, n_rounds)
            size = " x ".join(f"{length:,}" for length in shape)
            what = f"{size} draws of {mechanism.name} noise: secure against seeded"
            rows.append(Measurement(what, secure / seeded, "x", at_most=MAX_RATIO))
    return rows


def draw_seconds(
    mechanism: Gaussian | Laplace, streams: NoiseStreams, shape: tuple[int, ...], n_rounds: int
) -> float:
    """CPU time of all rounds."""
    exact = np.zeros((1, *shape), np.int64)

    def draw_rounds() -> None:
        for number in range(n_rounds):
            streams.release(mechanism, exact, ("benchmark", number))

    return min_seconds(draw_rounds)
