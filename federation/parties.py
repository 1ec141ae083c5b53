"""The parties of a run: clients, which hold the points, and a server, which adds sums and noise.

The method's schedule is public, so every party knows how many messages there will be, of what size,
and with what noise; nothing but sums and counts is sent. The server holds the schedule, its noise
and masked ring elements.
"""

import hashlib
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pkm.compute import Points
from pkm.federation.agreement import agree_as_client, agree_as_server
from pkm.federation.curator import ClientSession, FederatedCurator
from pkm.federation.keys import Identity
from pkm.federation.links import ClientLink, ProtocolError, ServerLink, ThreadServerLink
from pkm.federation.recovery import MIN_CLIENTS
from pkm.federation.ring import Ring
from pkm.privacy import BaseCurator, Gaussian, Laplace, Ledger, NoiseStreams, SumsAndCounts


class PublicRound(Protocol):
    """One round of a method's schedule: the radius (None: no limit) and the two noises."""

    radius: float | None
    sum_noise: Gaussian | Laplace | None
    count_noise: Gaussian | Laplace | None


class ScheduledMethod(Protocol):
    """The part of a method that a protocol uses: its public schedule of sums and counts."""

    n_clusters: int
    relative: bool

    def check_parameters(self, n_points: int | None = None) -> None:
        """Refuse bad parameters."""

    def schedule(self, n_points: int, n_features: int) -> Any:
        """All releases, with the ``rounds`` of a protocol where the method has them."""
        ...

    def noise_streams(
        self,
        seeds: Sequence[int],
        n_points: int,
        n_features: int,
        *,
        domain: npt.ArrayLike | None = None,
    ) -> NoiseStreams:
        """Streams of a run's noise, for the server."""
        ...

    def fit_with(
        self,
        make_curator: Callable[[Ledger | None, NoiseStreams], BaseCurator],
        n_points: int,
        n_features: int,
        seeds: Sequence[int],
    ) -> Any:
        """Cluster through a curator; return a ``methods.Run``."""


@dataclass(frozen=True)
class Network:
    """Public parameters of a run, known to all parties.

    Parameters
    ----------
    n_clients : int
    word_bytes : {4, 8}, default=8
        Size of a ring element on the wire.
    latency : float, default=0
        Seconds that every send takes: simulated.
    time_limit : float, default=60
        Seconds that the server waits for the clients' messages.
    recover : bool, default=False
        Finish with the other clients when one disappears, as long as more than half of them remain;
        an exchange more per round. Needs three clients. Without it, the run ends.
    fingerprints : tuple of str, optional
        Of the identities of the server and of each client, as given to all parties beforehand.

    Raises
    ------
    ValueError
        Naming the parameter, its value and the rule.
    """

    n_clients: int
    word_bytes: int = 8
    latency: float = 0.0
    time_limit: float = 60.0
    recover: bool = False
    fingerprints: tuple[str, ...] | None = None

    def __post_init__(self):
        if (
            isinstance(self.n_clients, bool)
            or not isinstance(self.n_clients, int)
            or self.n_clients < 1
        ):
            raise ValueError(f"n_clients={self.n_clients!r} must be an integer of at least 1")
        if not 0 <= self.latency < 60:
            raise ValueError(f"latency={self.latency!r} must be a number of seconds from 0 to 60")
        if not 0 < self.time_limit < math.inf:
            raise ValueError(f"time_limit={self.time_limit!r} must be a positive number of seconds")
        if self.recover and self.n_clients < MIN_CLIENTS:
            raise ValueError(
                f"n_clients={self.n_clients} must be at least {MIN_CLIENTS} with recover=True"
            )
        if self.fingerprints is not None and len(self.fingerprints) != self.n_clients + 1:
            raise ValueError(
                f"fingerprints={self.fingerprints!r} must be n_clients + 1 = "
                f"{self.n_clients + 1}: of the server and of each client"
            )
        Ring(self.word_bytes)


@dataclass(frozen=True)
class ServerReport:
    """Measurements of the server.

    Attributes
    ----------
    work : float
        Seconds of adding messages, for which all clients wait.
    drawing : float
        CPU seconds of drawing noise, while the clients work.
    waiting : float
        Mean seconds that clients waited for the last one.
    bytes, exchanges : int
    """

    work: float
    drawing: float
    waiting: float
    bytes: int
    exchanges: int


@dataclass(frozen=True)
class ClientReport:
    """Measurements of a client: seconds for the keys, the run, and in it for masks and messages."""

    setup: float
    total: float
    masking: float
    exchange: float


@dataclass(frozen=True)
class FederationCosts:
    """Costs of one run; milliseconds are per iteration and means over the clients.

    ``iteration_ms`` is the sum of ``client_ms`` (sums, counts, new centers, and the initialization
    in equal parts), ``masking_ms``, ``server_ms``, ``waiting_ms`` (for the slowest client) and
    ``wire_ms`` (the rest: transport with its encryption, and latency). ``noise_ms`` is what the
    server draws ahead, outside of that sum. ``setup_ms`` is the agreement on keys, once.
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
    ) -> "FederationCosts":
        """Combine the reports of the server and of all clients."""
        total = 1e3 * float(np.mean([client.total for client in clients]))
        masking = 1e3 * float(np.mean([client.masking for client in clients]))
        exchange = 1e3 * float(np.mean([client.exchange for client in clients]))
        setup = 1e3 * float(np.mean([client.setup for client in clients]))
        work = 1e3 * server.work
        waiting = 1e3 * server.waiting
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


def check_schedule(
    method: ScheduledMethod, n_points: int, n_features: int, network: Network
) -> list[PublicRound]:
    """Refuse a method that cannot run as a protocol, or whose answers might not fit the ring.

    Every party does this before anything is sent. Returns the rounds of the method's schedule.
    """
    method.check_parameters(n_points)
    rounds = list(getattr(method.schedule(n_points, n_features), "rounds", ()))
    if not rounds:
        raise ValueError(
            f"{type(method).__name__} cannot run as a protocol: it needs a public schedule of sums "
            "and counts, as the Lloyd family has"
        )
    ring = Ring(network.word_bytes)
    for public_round in rounds:
        radius = public_round.radius if method.relative else None
        ring.check_capacity(n_points, radius, public_round.sum_noise, public_round.count_noise)
    return rounds


def check_secure(method: ScheduledMethod, simulated: bool) -> None:
    """Refuse a run whose noise everybody can compute, unless it is a simulation."""
    if not (simulated or getattr(method, "secure", False)):
        raise ValueError(
            f"secure=False of {type(method).__name__}: whoever knows the public seeds can subtract "
            "the noise; set secure=True, or simulated=True for an experiment without private data"
        )


def check_fingerprints(network: Network) -> tuple[str, ...]:
    """Fingerprints of all parties; refuse a network without."""
    if network.fingerprints is None:
        raise ValueError(
            "fingerprints=None of the network must be those of the server and of each client: "
            "without them a server in the middle goes unnoticed"
        )
    return network.fingerprints


# The clients


def run_client(
    link: ClientLink,
    method: ScheduledMethod,
    points: Points,
    n_points: int,
    seeds: Sequence[int],
    domain: npt.ArrayLike | None,
    network: Network,
    *,
    identity: Identity,
    simulated: bool = False,
) -> tuple[Any, ClientReport]:
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
        Public: they determine the starting centers of the replicates.
    domain : array-like of shape (2, d) or None
    network : Network
        With the fingerprints of all parties.
    identity : Identity
        This client's.
    simulated : bool, default=False
        Allow a method without ``secure=True``: for experiments.

    Returns
    -------
    run : methods.Run
        The same for all clients.
    report : ClientReport

    Raises
    ------
    ProtocolError
        If the run ends early, or a party is not who it should be.
    ValueError
        If the method cannot run as a protocol.
    """
    rounds = check_schedule(method, n_points, points.shape[1], network)
    check_secure(method, simulated)
    fingerprints = check_fingerprints(network)
    if points.n_records > n_points:
        raise ValueError(
            f"n_points={n_points} must be at least this client's {points.n_records}: it bounds "
            "the sums"
        )

    # Agree on the keys of the link to the server and of the masks.
    started = time.perf_counter()
    n_recovered = len(rounds) if network.recover else 0
    ring = Ring(network.word_bytes)
    sealed, masks = agree_as_client(link, identity, fingerprints, n_recovered, ring)
    session = ClientSession(sealed, masks, n_points, rounds)
    agreed = time.perf_counter()

    # Run the method; its queries are answered by the server.
    run = method.fit_with(
        lambda ledger, streams: FederatedCurator(
            points, ledger, streams.public_seeds, domain, session
        ),
        n_points,
        points.shape[1],
        seeds,
    )
    finished = time.perf_counter()

    timings = session.timings
    report = ClientReport(agreed - started, finished - agreed, timings.masking, timings.exchange)
    return run, report


def digest(run: Any) -> bytes:
    """Hash of released centers, by which clients can be compared."""
    return hashlib.blake2b(run.centers.tobytes(), digest_size=16).digest()


def check_agreement(digests: Sequence[bytes]) -> None:
    """Refuse a result on which the clients do not agree."""
    for client, client_digest in enumerate(digests, 1):
        if client_digest != digests[0]:
            raise ProtocolError(f"client {client} computed other centers than client 1")


# The server


def run_server(
    link: ServerLink,
    method: ScheduledMethod,
    n_points: int,
    n_features: int,
    noise: NoiseStreams,
    network: Network,
    *,
    identity: Identity,
    simulated: bool = False,
) -> ServerReport:
    """Run a method as the server: in every round, send the sum of the clients' messages and noise.

    Parameters
    ----------
    link : ServerLink
    method : methods.PrivateKMeans
        For its public schedule alone.
    n_points, n_features : int
        Of all clients together.
    noise : NoiseStreams
        The server's; one stream family per replicate. Secret unless results are to be repeatable.
    network : Network
        With the fingerprints of all parties.
    identity : Identity
        The server's.
    simulated : bool, default=False
        Allow a method or noise without ``secure=True``: for experiments.

    Returns
    -------
    ServerReport

    Raises
    ------
    ProtocolError
        Naming the client that died, stalled, sent a malformed message or is not who it should be.
    """
    rounds = check_schedule(method, n_points, n_features, network)
    check_secure(method, simulated)
    if not (simulated or noise.secure):
        raise ValueError("secure=False of the noise must be True, or simulated=True")
    fingerprints = check_fingerprints(network)
    ring = Ring(network.word_bytes)
    shape = (len(noise.seeds), method.n_clusters, n_features + 1)
    n_bytes = int(np.prod(shape)) * ring.word_bytes

    # Agree with the clients on keys, and relay those that they have among them.
    n_recovered = len(rounds) if network.recover else 0
    sealed, survivors = agree_as_server(link, identity, fingerprints, n_recovered)
    setup_bytes = link.bytes_received + link.bytes_sent

    # Draw the noise of all rounds while the clients work on their first message: it depends on
    # nothing that is sent.
    started = time.thread_time()
    noises = [
        encoded_noise(ring, shape, public_round, noise, number)
        for number, public_round in enumerate(rounds)
    ]
    drawing = time.thread_time() - started

    # Add the clients' messages and the noise of each round, and send the sum to all clients.
    work = 0.0
    waiting = 0.0
    clients = list(range(1, link.n_clients + 1))
    for round_noise in noises:
        messages, arrivals = sealed.gather(n_bytes, clients, network.recover)
        if survivors is not None:
            survivors.collect_shares(sealed)
            clients = [client for client in clients if client not in link.lost]
        started = time.perf_counter()
        elements = [message.view(ring.dtype).reshape(shape) for message in messages]
        total = aggregate(ring, elements, round_noise)
        if survivors is not None:
            survivors.unmask(total)
        work += time.perf_counter() - started
        waiting += max(arrivals) - sum(arrivals) / len(arrivals)
        sealed.deliver([total] * len(clients), clients)

    round_bytes = link.bytes_received + link.bytes_sent - setup_bytes
    n_exchanges = len(rounds) + n_recovered
    return ServerReport(work, drawing, waiting, round_bytes, n_exchanges)


def encoded_noise(
    ring: Ring,
    shape: tuple[int, ...],
    public_round: PublicRound,
    noise: NoiseStreams,
    number: int,
) -> np.ndarray | None:
    """Noise of one round as ring elements of shape (R, k, d + 1); None for a round without."""
    if public_round.sum_noise is None or public_round.count_noise is None:
        return None
    zeros = np.zeros(shape, np.int64)
    key = (SumsAndCounts.label, number)
    sums = noise.release(public_round.sum_noise, zeros[:, :, :-1], (*key, "sums"))
    counts = noise.release(public_round.count_noise, zeros[:, :, -1], (*key, "counts"))
    return ring.encode(np.concatenate([sums, counts[:, :, None]], axis=2))


def aggregate(ring: Ring, messages: Sequence[np.ndarray], noise: np.ndarray | None) -> np.ndarray:
    """Sum of masked messages of shape (R, k, d + 1) and of the noise of one round, in the ring."""
    total = np.sum(messages, axis=0, dtype=ring.dtype)
    return total if noise is None else total + noise


# All parties in one process


def run_in_threads(
    method: ScheduledMethod,
    parts: Sequence[Points],
    seeds: Sequence[int],
    domain: npt.ArrayLike | None = None,
    *,
    network: Network,
    simulated: bool = False,
) -> tuple[Any, FederationCosts]:
    """Run a method as a protocol whose parties are threads of this process.

    Every party gets a new identity.

    Parameters
    ----------
    method : methods.PrivateKMeans
        One of the Lloyd family. With ``secure=True`` the server's noise comes from the operating
        system; else from the seeds, as in a central run, to which the result is then equal bit for
        bit.
    parts : sequence of Points
        One per client.
    seeds : sequence of int
    domain : array-like of shape (2, d), optional
    network : Network
    simulated : bool, default=False
        Allow a method without ``secure=True``: for experiments, not for real data.

    Returns
    -------
    run : methods.Run
        As the clients have it that have not disappeared.
    costs : FederationCosts

    Raises
    ------
    ProtocolError
        Naming the party at fault.
    ValueError
        If the method or the network does not fit, before anything is sent.
    """
    if len(parts) != network.n_clients:
        raise ValueError(
            f"n_clients={network.n_clients} must be the number of parts, which is {len(parts)}"
        )
    n_points = sum(part.n_records for part in parts)
    n_features = parts[0].shape[1]
    check_schedule(method, n_points, n_features, network)
    check_secure(method, simulated)
    server_identity, *identities = [Identity.generate() for _ in range(network.n_clients + 1)]
    fingerprints = [identity.fingerprint for identity in (server_identity, *identities)]
    network = replace(network, fingerprints=tuple(fingerprints))
    noise = method.noise_streams(seeds, n_points, n_features, domain=domain)
    link = ThreadServerLink(network.n_clients, network.latency, network.time_limit)

    run = partial(
        run_client,
        method=method,
        n_points=n_points,
        seeds=seeds,
        domain=domain,
        network=network,
        simulated=simulated,
    )
    threads = []
    for client, (points, identity) in enumerate(zip(parts, identities, strict=True), 1):
        client_run = partial(run, points=points, identity=identity)
        threads.append(_ClientThread(link.client(client), client_run))
    for thread in threads:
        thread.start()
    try:
        server_report = run_server(
            link,
            method,
            n_points,
            n_features,
            noise,
            network,
            identity=server_identity,
            simulated=simulated,
        )
    except Exception as error:
        link.abort(str(error))
        raise
    remaining = [thread for thread in threads if thread.client not in link.lost]
    runs, client_reports = _collect(remaining, network)
    check_agreement([digest(run) for run in runs])
    return runs[0], FederationCosts.of(runs[0].n_iter, server_report, client_reports)


class _ClientThread(threading.Thread):
    """A client as a thread of this process; ``outcome`` is None until its run has succeeded."""

    def __init__(self, link: ClientLink, run: Callable[[ClientLink], tuple[Any, ClientReport]]):
        super().__init__(name=f"client {link.client}", daemon=True)
        self.client = link.client
        self.outcome: tuple[Any, ClientReport] | None = None
        self._link = link
        self._run_client = run

    def run(self) -> None:
        """Run the client; report any failure to the server, which ends the run."""
        try:
            self.outcome = self._run_client(self._link)
        except Exception as error:
            self._link.abort(f"{type(error).__name__}: {error}")


def _collect(
    threads: Sequence[_ClientThread], network: Network
) -> tuple[list[Any], list[ClientReport]]:
    """Wait for the clients; return their runs and reports, or name one that did not finish."""
    for thread in threads:
        thread.join(network.time_limit)
    finished = [thread for thread in threads if thread.outcome is not None]
    for thread in threads:
        if thread not in finished and not (network.recover and finished):
            raise ProtocolError(f"client {thread.client} did not finish")
    runs = []
    reports = []
    for thread in finished:
        assert thread.outcome is not None
        run, report = thread.outcome
        runs.append(run)
        reports.append(report)
    return runs, reports
