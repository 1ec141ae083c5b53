"""Speed of the masked protocol's parties, communication excluded, and of the masking."""

import numpy as np

from pkm.benchmarks.measurement import Measurement, min_seconds
from pkm.compute import Points
from pkm.federation import FederatedCurator, Masks, Ring
from pkm.federation.curator import ClientSession
from pkm.federation.masks import SECRET_BYTES, KeyStream
from pkm.federation.parties import aggregate, encoded_noise
from pkm.methods import FastLloyd
from pkm.privacy import NoiseStreams, snap

N_POINTS = 100_000
N_COLUMNS = 2
N_CLUSTERS = 2
#: What the FastLloyd authors' code takes per iteration at two clients for these points: ms.
AUTHORS_CLIENT = 10.8
AUTHORS_SERVER = 1.9
REPETITIONS = 20  # of the schedule in a measurement
PAIR_KEYS = {1: bytes(SECRET_BYTES), 3: bytes(SECRET_BYTES)}  # of client 2 of three
GROUP_KEY = bytes(SECRET_BYTES)


class ZeroLink:
    """A link that answers every message at once, with zeros."""

    def send(self, message: np.ndarray) -> None:
        """Discard a message."""

    def receive(self, n_bytes: int) -> np.ndarray:
        """Return zeros."""
        return np.zeros(n_bytes, np.uint8)


def protocol() -> list[Measurement]:
    """Computation of a client and of the server per iteration, and of masking by itself."""
    label = "protocol, 100,000 x 2, k = 2"
    method = FastLloyd(N_CLUSTERS, epsilon=0.1, variant="published")
    ring = Ring(8)
    client = 1e3 * client_seconds(method, ring)
    server = 1e3 * server_seconds(method, ring)
    return [
        Measurement(
            f"{label}: a client, per iteration", client, "ms CPU", at_most=AUTHORS_CLIENT / 10
        ),
        Measurement(
            f"{label}: the server and its noise", server, "ms CPU", at_most=AUTHORS_SERVER / 10
        ),
        masking(ring),
    ]


def client_seconds(method: FastLloyd, ring: Ring) -> float:
    """CPU seconds of a client per iteration; it holds half of the points."""
    shape = (N_POINTS // 2, N_COLUMNS)
    points = Points.prepare(snap(np.random.default_rng(0).uniform(-1, 1, shape)))
    n_iter = len(method.schedule(N_POINTS, N_COLUMNS))

    def fit() -> None:
        masks = Masks(2, {1: PAIR_KEYS[1]}, GROUP_KEY, ring)
        rounds = method.schedule(N_POINTS, N_COLUMNS)
        session = ClientSession(ZeroLink(), masks, N_POINTS, rounds)
        method.fit_with(
            lambda ledger, streams: FederatedCurator(
                points, ledger, streams.public_seeds, None, session
            ),
            N_POINTS,
            N_COLUMNS,
            [0],
        )

    return min_seconds(lambda: [fit() for _ in range(REPETITIONS)]) / REPETITIONS / n_iter


def server_seconds(method: FastLloyd, ring: Ring) -> float:
    """CPU seconds of the server per iteration, its noise included."""
    schedule = method.schedule(N_POINTS, N_COLUMNS)
    shape = (1, N_CLUSTERS, N_COLUMNS + 1)
    messages = [np.ones(shape, ring.dtype)] * 2
    streams = NoiseStreams([0])

    def serve() -> None:
        for number, iteration in enumerate(schedule * REPETITIONS):
            aggregate(ring, messages, encoded_noise(ring, shape, iteration, streams, number))

    return min_seconds(serve) / REPETITIONS / len(schedule)


def masking(ring: Ring) -> Measurement:
    """Masking and unmasking of one of three clients against the cipher alone.

    A client expands as many streams as there are clients: those of its pairs, and the group's.
    """
    values = np.zeros(1 << 20, np.int64)
    masks = Masks(2, PAIR_KEYS, GROUP_KEY, ring)
    streams = [KeyStream(key) for key in (*PAIR_KEYS.values(), GROUP_KEY)]

    def encrypt() -> None:
        for stream in streams:
            stream.next(values.shape, ring.dtype)

    rate = min_seconds(encrypt) / min_seconds(lambda: masks.unmask(masks.mask(values)))
    what = "masking 1,048,576 words, 3 clients: against the cipher alone"
    return Measurement(what, rate, "of its rate", at_least=0.5)
