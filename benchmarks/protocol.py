"""Computing time of clients, server and masks in secure aggregation."""

from collections.abc import Iterator

import numpy as np

from pkm.benchmarks.measurement import Measurement, min_seconds
from pkm.compute import Points
from pkm.federation import FederatedCurator, Masks, Ring
from pkm.federation.curator import ClientSession
from pkm.federation.masks import SECRET_BYTES, KeyStream
from pkm.federation.parties import aggregate, draw_noise
from pkm.methods import FastLloyd
from pkm.privacy import NoiseStreams, snap

N_POINTS = 100_000  # of both clients
N_COLUMNS = 2
N_CLUSTERS = 2
#: What the FastLloyd authors' code takes per iteration for these points.
AUTHORS_CLIENT_MS = 10.8
AUTHORS_SERVER_MS = 1.9
REPETITIONS = 20  # of the schedule in a measurement
KEY = bytes(SECRET_BYTES)
N_WORDS = 1 << 20  # integers that are masked
RING = Ring(8)
METHOD = FastLloyd(N_CLUSTERS, epsilon=0.1, variant="published")


class ZeroLink:
    """A link that answers every message at once, with zeros."""

    def send(self, message: np.ndarray) -> None:
        """Discard a message."""

    def receive(self, n_bytes: int) -> np.ndarray:
        """Return zeros."""
        return np.zeros(n_bytes, np.uint8)


def measure_protocol(scale: float) -> Iterator[Measurement]:
    """Measure the computation of an iteration, and masking against the cipher alone."""
    n = round(scale * N_POINTS)
    label = f"protocol, {n:,} x 2, k = 2, an iteration"
    client = 1e3 * time_client(n)
    yield Measurement(
        f"{label}: a client",
        client,
        "ms CPU",
        AUTHORS_CLIENT_MS / 10,
    )
    server = 1e3 * time_server(n)
    title = f"{label}: server and noise"
    yield Measurement(
        title,
        server,
        "ms CPU",
        AUTHORS_SERVER_MS / 10,
    )
    masking = compare_masking(round(scale * N_WORDS))
    title = "masking, three clients"
    yield Measurement(
        title,
        masking,
        "of the cipher's rate",
        at_least=0.5,
    )


def time_client(n: int) -> float:
    """Return the CPU seconds of an iteration at a client with half of the points."""
    X = np.random.default_rng(0).uniform(-1, 1, (n // 2, N_COLUMNS))
    points = Points.from_grid(snap(X))
    schedule = METHOD.schedule(n, N_COLUMNS).rounds

    def fit() -> None:
        masks = Masks(2, {1: KEY}, KEY, RING)
        session = ClientSession(ZeroLink(), masks, n, schedule)
        METHOD.fit_with(
            lambda ledger, streams: FederatedCurator(
                points, ledger, streams.public_seeds, None, session
            ),
            n,
            N_COLUMNS,
            [0],
        )

    n_iterations = REPETITIONS * len(schedule)
    return min_seconds(lambda: [fit() for _ in range(REPETITIONS)]) / n_iterations


def time_server(n: int) -> float:
    """Return the CPU seconds of the server in an iteration, its noise included."""
    iterations = METHOD.schedule(n, N_COLUMNS).rounds * REPETITIONS
    shape = (1, N_CLUSTERS, N_COLUMNS + 1)
    messages = [np.ones(shape, RING.dtype)] * 2
    streams = NoiseStreams([0])

    def serve() -> None:
        for number, iteration in enumerate(iterations):
            noise = draw_noise(RING, shape, iteration, streams, number)
            aggregate(RING, messages, noise)

    return min_seconds(serve) / len(iterations)


def compare_masking(n_words: int) -> float:
    """Return the time of the cipher alone over that of masking and unmasking.

    A client generates as many random streams as there are clients: one shared with each
    other client, and one shared by all.
    """
    values = np.zeros(n_words, np.int64)
    masks = Masks(2, {1: KEY, 3: KEY}, KEY, RING)
    streams = [KeyStream(KEY) for _ in range(3)]

    def encrypt() -> None:
        for stream in streams:
            stream.next(values.shape, RING.dtype)

    return min_seconds(encrypt) / min_seconds(lambda: masks.unmask(masks.mask(values)))
