"""Speed of secure noise: exact integer samplers against seeded, rounded float noise."""

from collections.abc import Iterator

import numpy as np

from pkm.benchmarks.measurement import Measurement, min_seconds
from pkm.privacy import SCALE, Gaussian, Laplace, NoiseStreams

#: Shape of an answer and number of releases: one large, many small.
SIZES = (((200_000,), 1), ((16, 16), 200))
MAX_RATIO = 20


def measure_secure_noise(scale: float) -> Iterator[Measurement]:
    """Measure a secure draw against a seeded one, for each mechanism and size."""
    for mechanism in (Gaussian(100.0 * SCALE), Laplace(100.0 * SCALE)):
        for shape, n_releases in SIZES:
            n = max(1, round(scale * n_releases))
            seeded = time_releases(mechanism, NoiseStreams([0]), shape, n)
            secure = time_releases(mechanism, NoiseStreams([0], secure=True), shape, n)
            title = f"{mechanism.name} noise of shape {shape}: secure against seeded"
            yield Measurement(
                title,
                secure / seeded,
                "x",
                at_most=MAX_RATIO,
            )


def time_releases(
    mechanism: Gaussian | Laplace,
    streams: NoiseStreams,
    shape: tuple[int, ...],
    n_releases: int,
) -> float:
    """Return the CPU seconds of all releases."""
    exact = np.zeros((1, *shape), np.int64)

    def release() -> None:
        for number in range(n_releases):
            streams.release(mechanism, exact, ("benchmark", number))

    return min_seconds(release)
