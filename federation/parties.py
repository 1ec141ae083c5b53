"""The parties of a run: clients that run the same method on their own points, and a server that adds and adds noise.

The method's schedule is public, so every party knows how many messages there will be, of what size, and with what
noise; nothing but sums and counts travels. What the server holds: the schedule, its noise, and masked words.
"""

import hashlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pkm.compute import Points
from pkm.federation.curator import FederatedCurator, Membership
from pkm.federation.keys import agree, relay
from pkm.federation.links import ClientLink, ProtocolError, ServerLink, ThreadServerLink
from pkm.federation.masks import Masks
from pkm.federation.ring import Ring
from pkm.privacy import NoiseStreams, noisy_sums_and_counts


@dataclass(frozen=True)
class Setting:
    """What all parties of a run know.

    Parameters
    ----------
    n_clients : int
    word_bytes : {4, 8}, default=8
        Size of a ring element on the wire.
    latency : float, default=0
        Seconds that every send takes: simulated.
    time_limit : float, default=60
        Seconds that the server waits for the clients' messages.

    Raises
    ------
    ValueError
        Naming the parameter, its value and the rule.
    """

    n_clients: int
    word_bytes: int = 8
    latency: float = 0.0
    time_limit: float = 60.0

    def __post_init__(self):
        if (
            isinstance(self.n_clients, bool)
            or not isinstance(self.n_clients, int)
            or self.n_clients < 1
        ):
            raise ValueError(f"n_clients={self.n_clients!r} must be an integer of at least 1")
        if not 0 <= self.latency < 60:
            raise ValueError(f"latency={self.latency!r} must be a number of seconds from 0 to 60")
        if not 0 < self.time_limit < float("inf"):
            raise ValueError(f"time_limit={self.time_limit!r} must be a positive number of seconds")
        Ring(self.word_bytes)


@dataclass(frozen=True)
class ServerReport:
    """What the server measured.

    Seconds of adding up, for which all wait; CPU seconds of drawing noise, which falls into the clients' work; mean
    seconds that clients waited for the last one; bytes and exchanges.
    """

    work: float
    drawing: float
    waiting: float
    bytes: int
    exchanges: int


@dataclass(frozen=True)
class ClientReport:
    """What a client measured: seconds for the keys, for the run, and of the run for masks and for messages."""

    setup: float
    total: float
    masking: float
    exchange: float


@dataclass(frozen=True)
class Measured:
    """One run in numbers; milliseconds are per iteration and means over the clients.

    ``iteration_ms`` is the sum of ``client_ms`` (sums, counts, new centers, and the start shared out), ``masking_ms``,
    ``server_ms``, ``waiting_ms`` (for the slowest client) and ``wire_ms`` (the rest: transport and latency).
    ``noise_ms`` is what the server draws ahead, beside all that. ``setup_ms`` is the agreement on keys, once.
    ``bytes_per_iteration`` counts all clients in both directions.
    """

    iterations: float
    iteration_ms: float
    setup_ms: float
    bytes_per_iteration: float
    rounds_per_iteration: float
    client_ms: float
    masking_ms: float
    server_ms: float
    wire_ms: float
    waiting_ms: float
    noise_ms: float

    @classmethod
    def of(
        cls, iterations: int, server: ServerReport, clients: Sequence[ClientReport]
    ) -> "Measured":
        """Put the parties' reports together."""
        total, masking, exchange, setup = (
            1e3 * float(np.mean([getattr(client, name) for client in clients]))
            for name in ("total", "masking", "exchange", "setup")
        )
        work, waiting = 1e3 * server.work, 1e3 * server.waiting
        return cls(
            iterations=float(iterations),
            iteration_ms=total / iterations,
            setup_ms=setup,
            bytes_per_iteration=server.bytes / iterations,
            rounds_per_iteration=server.exchanges / iterations,
            client_ms=(total - masking - exchange) / iterations,
            masking_ms=masking / iterations,
            server_ms=work / iterations,
            wire_ms=(exchange - work - waiting) / iterations,
            waiting_ms=waiting / iterations,
            noise_ms=1e3 * server.drawing / iterations,
        )


def check_schedule(method, n_points: int, n_features: int, setting: Setting) -> list:
    """Refuse a method that cannot run as a protocol, or whose answers might not fit the ring; return its rounds.

    Every party does this before anything is sent.
    """
    if not hasattr(method, "schedule"):
        raise ValueError(
            f"{type(method).__name__} cannot run as a protocol: it needs a public schedule of sums and counts, as the "
            "Lloyd family has"
        )
    method.check_parameters(n_points)
    rounds, ring = list(method.schedule(n_points, n_features)), Ring(setting.word_bytes)
    for this in rounds:
        ring.check_room(
            n_points, this.radius if method.relative else None, this.sum_noise, this.count_noise
        )
    return rounds


def take_part(
    link: ClientLink, method, points: Points, n_points: int, seeds, domain, setting: Setting
):
    """Run a method as one of the clients.

    Parameters
    ----------
    link : ClientLink
    method : methods.PrivateKMeans
        The same at every party.
    points : Points
        This client's.
    n_points : int
        Of all clients together: public under zero-out adjacency.
    seeds : sequence of int
        Public: where the replicates start.
    domain : array-like of shape (2, d) or None
    setting : Setting

    Returns
    -------
    run : methods.Run
        The same for all clients.
    report : ClientReport

    Raises
    ------
    ProtocolError
        If the run ends early.
    ValueError
        If the method cannot run as a protocol.
    """
    check_schedule(method, n_points, points.shape[1], setting)
    if points.shape[0] > n_points:
        raise ValueError(
            f"n_points={n_points} must be at least this client's own {points.shape[0]}: it bounds the sums"
        )
    began = time.perf_counter()
    masks = Masks(agree(link), link.client, link.n_clients, Ring(setting.word_bytes))
    member, keyed = Membership(link, masks, n_points), time.perf_counter()
    run = method.fit_with(
        lambda ledger, streams: FederatedCurator(points, ledger, streams.seeds, domain, member),
        n_points,
        points.shape[1],
        seeds,
    )
    clock = member.clock
    total = time.perf_counter() - keyed
    return run, ClientReport(keyed - began, total, clock.masking, clock.exchange)


def serve(
    link: ServerLink, method, n_points: int, n_features: int, noise: NoiseStreams, setting: Setting
) -> ServerReport:
    """Run a method as the server: add the clients' words, add noise, send the sum back, for every round.

    Parameters
    ----------
    link : ServerLink
    method : methods.PrivateKMeans
        For its public schedule alone.
    n_points, n_features : int
        Of all clients together.
    noise : NoiseStreams
        The server's own; one stream family per replicate. Secret unless results are to be repeatable.
    setting : Setting

    Returns
    -------
    ServerReport

    Raises
    ------
    ProtocolError
        Naming the client that died, stalled or sent a malformed message.
    """
    rounds, ring = check_schedule(method, n_points, n_features, setting), Ring(setting.word_bytes)
    relay(link)
    setup_bytes = link.bytes_received + link.bytes_sent
    shape = len(noise.seeds), method.n_clusters, n_features + 1
    n_bytes, work, waiting = int(np.prod(shape)) * ring.word_bytes, 0.0, 0.0
    began = time.thread_time()
    # Noise depends on nothing that is sent: it is drawn while the clients work on their first message.
    added = [noise_words(ring, shape, this, noise, number) for number, this in enumerate(rounds)]
    drawing = time.thread_time() - began
    for words in added:
        messages, arrivals = link.gather(n_bytes)
        began = time.perf_counter()
        reply = aggregate(
            ring, [message.view(ring.dtype).reshape(shape) for message in messages], words
        )
        work += time.perf_counter() - began
        waiting += max(arrivals) - sum(arrivals) / len(arrivals)
        link.deliver([reply] * link.n_clients)
    moved = link.bytes_received + link.bytes_sent - setup_bytes
    return ServerReport(work, drawing, waiting, moved, len(rounds))


def noise_words(
    ring: Ring, shape: tuple[int, ...], this, noise: NoiseStreams, number: int
) -> np.ndarray | None:
    """Noise of one round as words of shape (R, k, d + 1); None for a round without."""
    if this.sum_noise is None:
        return None
    nothing = np.zeros(shape, np.int64)
    sums, counts = noisy_sums_and_counts(
        nothing[:, :, :-1],
        nothing[:, :, -1],
        this.sum_noise,
        this.count_noise,
        noise,
        ("sums_and_counts", number),
    )
    return ring.words(np.concatenate([sums, counts[:, :, None]], axis=2))


def aggregate(ring: Ring, messages: Sequence[np.ndarray], noise: np.ndarray | None) -> np.ndarray:
    """Sum of masked messages of shape (R, k, d + 1) and of the noise of one round, in the ring."""
    total = np.sum(messages, axis=0, dtype=ring.dtype)
    return total if noise is None else total + noise


def digest(run) -> bytes:
    """Hash of released centers, by which clients can be compared."""
    return hashlib.blake2b(run.centers.tobytes(), digest_size=16).digest()


def run_in_threads(
    method, parts: Sequence[Points], seeds: Sequence[int], domain=None, *, setting: Setting
):
    """Run a method as a protocol whose parties are threads of this process.

    Parameters
    ----------
    method : methods.PrivateKMeans
        One of the Lloyd family. With ``secure=True`` the server's noise comes from the operating system; else from the
        seeds, as in a central run, to which the result is then equal bit for bit.
    parts : sequence of Points
        One per client.
    seeds : sequence of int
    domain : array-like of shape (2, d), optional
    setting : Setting

    Returns
    -------
    run : methods.Run
    measured : Measured

    Raises
    ------
    ProtocolError
        Naming the party at fault.
    ValueError
        If the method or the setting does not fit, before anything is sent.
    """
    if len(parts) != setting.n_clients:
        raise ValueError(
            f"n_clients={setting.n_clients} must be the number of parts, which is {len(parts)}"
        )
    n_points, n_features = sum(part.shape[0] for part in parts), parts[0].shape[1]
    check_schedule(method, n_points, n_features, setting)
    noise = NoiseStreams(seeds, secure=getattr(method, "secure", False))
    link = ThreadServerLink(setting.n_clients, setting.latency, setting.time_limit)
    outcomes: dict[int, tuple] = {}

    def client(number: int, points: Points) -> None:
        own = link.client(number)
        try:
            outcomes[number] = take_part(own, method, points, n_points, seeds, domain, setting)
        except Exception as error:  # whatever it is, the server must hear of it
            own.give_up(f"{type(error).__name__}: {error}")

    threads = [
        threading.Thread(target=client, args=(number, points), name=f"client {number}", daemon=True)
        for number, points in enumerate(parts, 1)
    ]
    for thread in threads:
        thread.start()
    try:
        report = serve(link, method, n_points, n_features, noise, setting)
    except Exception as error:
        link.give_up(str(error))
        raise
    for thread in threads:
        thread.join(setting.time_limit)
    missing = [number for number in range(1, setting.n_clients + 1) if number not in outcomes]
    if missing:
        raise ProtocolError(f"client {missing[0]} did not come to its end")
    runs, reports = zip(*(outcomes[number] for number in sorted(outcomes)), strict=True)
    check_equal([digest(run) for run in runs])
    return runs[0], Measured.of(runs[0].n_iter, report, reports)


def check_equal(digests: Sequence[bytes]) -> None:
    """Refuse a result on which the clients do not agree."""
    odd = [number for number, each in enumerate(digests, 1) if each != digests[0]]
    if odd:
        raise ProtocolError(f"client {odd[0]} came to other centers than client 1")
