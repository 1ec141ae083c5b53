"""The parties of a run: clients, which hold the points, and a server, which sums up.

The method's schedule is public: a list of rounds. In a round every client sends its
masked sums and counts, and the server replies with their total plus noise, which is one
release. Every party therefore knows how many messages there will be, of what size, and
with what noise. After their agreement on keys runs that recover also send who remains,
and shares of secrets; processes of MPI send reports at the end. The server holds the
schedule, its noise and masked ring elements.
"""

import hashlib
import math
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import pkm
from pkm.compute import Points
from pkm.federation.agreement import agree_as_client, agree_as_server
from pkm.federation.curator import ClientSession, FederatedCurator
from pkm.federation.keys import Identity, Terms
from pkm.federation.links import (
    SERVER,
    ClientLink,
    ProtocolError,
    ServerLink,
    ThreadServerLink,
    describe,
    name_party,
)
from pkm.federation.recovery import MIN_CLIENTS
from pkm.federation.ring import Ring
from pkm.privacy import Ledger, NoiseStreams, SumsAndCounts, Unit


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
        Whether the other clients finish the run when one drops out after the agreement
        on keys, as long as more than half of them remain. This takes three clients, and
        a second exchange of messages (communication round) in every round. Without it,
        the run ends.
    fingerprints : tuple of str, optional
        Fingerprints of the identities of the server and of each client; all parties
        know them beforehand.
    unit : Unit, default=Unit.ROW
        What a record is. Each client weighs the rows of its own persons: a person is at
        one client only, which no party can check.

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
    unit: Unit = Unit.ROW

    def __post_init__(self):
        n_clients = self.n_clients
        if type(n_clients) is not int or n_clients < 1:
            raise ValueError(
                f"n_clients={n_clients!r} must be an integer of at least 1"
            )
        if not 0 <= self.latency < 60:
            raise ValueError(
                f"latency={self.latency!r} must be in seconds, from 0 to below 60"
            )
        if not 0 < self.time_limit < math.inf:
            raise ValueError(
                f"time_limit={self.time_limit!r} must be a positive number of seconds"
            )
        if self.recover and n_clients < MIN_CLIENTS:
            raise ValueError(
                f"n_clients={n_clients} must be at least {MIN_CLIENTS} with "
                "recover=True"
            )
        fingerprints = self.fingerprints
        if fingerprints is not None and len(fingerprints) != n_clients + 1:
            raise ValueError(
                f"fingerprints={fingerprints!r} must be n_clients + 1 = "
                f"{n_clients + 1}: of the server and of each client"
            )
        Ring(self.word_bytes)


class ServerReport(NamedTuple):
    """Measurements of the server.

    Attributes
    ----------
    aggregation : float
        Seconds in which the server adds messages and all clients wait.
    noise_sampling : float
        CPU seconds of sampling noise, while the clients work.
    waiting : float
        Mean seconds that clients waited for the last one, summed over the rounds.
    bytes, communication_rounds : float
        Totals of the run without the agreement on keys. The 16 bytes of a message's
        authentication tag are not counted, like the headers of a network's packets.
    """

    aggregation: float
    noise_sampling: float
    waiting: float
    bytes: float
    communication_rounds: float


class ClientReport(NamedTuple):
    """Measurements of a client, in seconds.

    Attributes
    ----------
    setup : float
        Time of the agreement on keys.
    total : float
        Time of the run after it.
    masking, communication : float
        Parts of the total: for masks, and for exchanging messages.
    """

    setup: float
    total: float
    masking: float
    communication: float


@dataclass(frozen=True)
class FederationCosts:
    """Costs of one run; milliseconds are per iteration, those of clients are means.

    Attributes
    ----------
    iterations : float
        Number of iterations; each is a round.
    iteration_ms : float
        Sum of ``client_ms``, ``masking_ms``, ``server_ms``, ``waiting_ms`` and
        ``wire_ms``.
    setup_ms : float
        Agreement on keys, which is made once: per run.
    bytes_per_iteration : float
        Bytes of the messages of all clients, in both directions.
    rounds_per_iteration : float
        Communication rounds: 1, or 2 with ``recover``.
    client_ms : float
        Sums, counts and new centers, and an equal share of the initialization.
    masking_ms : float
        Masking and unmasking by the client.
    server_ms : float
        Aggregation by the server, while all clients wait.
    wire_ms : float
        The rest: transport with its encryption, latency, waiting for the server's
        noise, and the exchange of shares.
    waiting_ms : float
        Waiting for the slowest client.
    noise_ms : float
        CPU time of the server's noise, which is drawn ahead. What clients wait for it
        is in ``wire_ms``.
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
    def combine(
        cls, iterations: int, server: ServerReport, clients: npt.ArrayLike
    ) -> "FederationCosts":
        """Combine the server's report and the clients', one in a row."""
        setup, total, masking, communication = np.mean(clients, axis=0).tolist()
        scale = 1e3 / iterations
        return cls(
            iterations=float(iterations),
            iteration_ms=scale * total,
            setup_ms=1e3 * setup,
            bytes_per_iteration=server.bytes / iterations,
            rounds_per_iteration=server.communication_rounds / iterations,
            client_ms=scale * (total - masking - communication),
            masking_ms=scale * masking,
            server_ms=scale * server.aggregation,
            wire_ms=scale * (communication - server.aggregation - server.waiting),
            waiting_ms=scale * server.waiting,
            noise_ms=scale * server.noise_sampling,
        )


def get_rounds(
    method: Any, n_points: int, n_features: int, network: Network
) -> list[Any]:
    """Return the rounds of a method; refuse one that cannot run as a protocol.

    Every party checks this, and that sums fit the ring, before it sends anything.

    Returns
    -------
    list
        Rounds of the method's schedule. A round has a radius, None for no limit, and
        the mechanisms of the noise for sums and for counts.
    """
    method.check_parameters(n_points)
    if method.hides_n:
        raise ValueError(
            f"adjacency={method.claim.adjacency} needs a curator that counts all "
            "records, and a protocol has none: leave adjacency out"
        )
    if method.missing:
        raise ValueError(
            f"missing={method.missing!r} needs rows with missing entries, and clients "
            "of a protocol have none: leave missing out"
        )
    if method.zoom_plan(n_points, n_features) is not None:
        raise ValueError(
            f"zoom={method.zoom:g} needs a curator that holds all points, and a "
            "protocol has none: leave zoom out"
        )
    if method.bounds is not None and np.isinf(method.bounds).any():
        raise ValueError(
            f"bounds={method.bounds!r} are infinite; to find them needs a curator that "
            "holds all points, and a protocol has none: declare finite bounds"
        )
    if method.report:
        raise ValueError(
            f"report={method.report:g} needs a curator that holds all points, and a "
            "protocol has none: leave report out"
        )
    rounds = getattr(method.schedule(n_points, n_features), "rounds", ())
    # Schedules of other families have a number of rounds.
    if not (isinstance(rounds, Sequence) and rounds):
        raise ValueError(
            f"{type(method).__name__} cannot run as a protocol: it needs a public "
            "schedule of sums and counts, as the Lloyd family has"
        )
    ring = Ring(network.word_bytes)
    for public_round in rounds:
        radius = public_round.radius if method.relative else None
        ring.check_capacity(
            n_points, radius, public_round.sum_noise, public_round.count_noise
        )
    return list(rounds)


def check_secure(method: Any, allow_seeded_noise: bool) -> None:
    """Refuse noise that follows from public seeds, unless that is allowed."""
    if not (allow_seeded_noise or getattr(method, "secure", False)):
        raise ValueError(
            f"secure=False of {type(method).__name__}: whoever knows the public seeds "
            "can subtract the noise; set secure=True, or allow_seeded_noise=True "
            "for an experiment without private data"
        )


def check_unit(points: Points, network: Network) -> None:
    """Refuse points of which a record is not what the parties agreed on."""
    unit = Unit.of(points.n_persons)
    if points.n_records and unit != network.unit:
        raise ValueError(
            f"unit={network.unit} of the network must be that of the points, of which "
            f"a record is a {unit}: weigh_rows(n_rows, groups) gives the weights of "
            "persons"
        )


def list_terms(
    method: Any,
    n_points: int,
    n_features: int,
    n_replicates: int,
    domain: npt.ArrayLike | None,
    network: Network,
) -> Terms:
    """List what all parties of a run must have in common; all of it is public.

    The method stands for its name, its parameters (epsilon, delta and n_clusters among
    them) and its schedule.
    """
    bounds = None if domain is None else np.asarray(domain, np.float64).tolist()
    method_class = type(method)
    parameters = {
        # As a list: the text of an array leaves out digits and entries.
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in method.get_params().items()
    }
    return {
        "method": f"{method_class.__module__}.{method_class.__qualname__}",
        "n_clusters": parameters.pop("n_clusters"),
        "epsilon": parameters.pop("epsilon", None),
        "delta": parameters.pop("delta", None),
        "parameters": parameters,
        "schedule": method.schedule(n_points, n_features),
        "n_points": n_points,
        "n_features": n_features,
        "number of seeds": n_replicates,
        "domain": bounds,
        "unit": str(network.unit),
        "word_bytes": network.word_bytes,
        "recover": network.recover,
        "version of pkm": pkm.__version__,
    }


def require_fingerprints(network: Network) -> tuple[str, ...]:
    """Return the fingerprints of all parties; refuse a network without them."""
    if network.fingerprints is None:
        raise ValueError(
            "fingerprints=None of the network must be those of the server and of each "
            "client: without them a server in the middle goes unnoticed"
        )
    return network.fingerprints


# The clients


def run_client(
    link: ClientLink,
    method: Any,
    points: Points,
    n_points: int,
    seeds: Sequence[int],
    domain: npt.ArrayLike | None,
    network: Network,
    *,
    identity: Identity,
    allow_seeded_noise: bool = False,
) -> tuple[Any, ClientReport]:
    """Run a method as one of the clients.

    Parameters
    ----------
    link : ClientLink
    method : methods.PrivateKMeans
        The same at every party.
    points : Points
        This client's points.
    n_points : int
        Number of records of all clients together: public under zero-out adjacency.
    seeds : sequence of int
        Public: they determine the starting centers of the replicates.
    domain : array-like of shape (2, d) or None
    network : Network
        With the fingerprints of all parties.
    identity : Identity
        This client's identity.
    allow_seeded_noise : bool, default=False
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
    n_features = points.shape[1]
    rounds = get_rounds(method, n_points, n_features, network)
    check_secure(method, allow_seeded_noise)
    fingerprints = require_fingerprints(network)
    check_unit(points, network)
    if points.n_records > n_points:
        raise ValueError(
            f"n_points={n_points} must be at least this client's {points.n_records}: "
            "it bounds the sums"
        )

    # Agree on the keys of the link to the server and of the masks.
    started = time.perf_counter()
    n_key_rounds = len(rounds) if network.recover else 0
    ring = Ring(network.word_bytes)
    terms = list_terms(method, n_points, n_features, len(seeds), domain, network)
    encrypted, masks = agree_as_client(
        link, identity, fingerprints, terms, n_key_rounds, ring
    )
    session = ClientSession(encrypted, masks, n_points, rounds)
    agreed = time.perf_counter()

    # Run the method. The server answers its queries.
    def make_curator(ledger: Ledger | None, streams: NoiseStreams) -> FederatedCurator:
        return FederatedCurator(points, ledger, streams.public_seeds, domain, session)

    run = method.fit_with(
        make_curator,
        n_points,
        n_features,
        seeds,
        unit=network.unit,
    )
    total = time.perf_counter() - agreed
    timings = session.timings
    report = ClientReport(
        agreed - started, total, timings.masking, timings.communication
    )
    return run, report


def hash_centers(run: Any) -> bytes:
    """Hash the released centers, by which clients compare their runs."""
    return hashlib.blake2b(run.centers.tobytes(), digest_size=16).digest()


def check_equal_centers(digests: Mapping[int, bytes]) -> None:
    """Refuse the result if a client released other centers than the first one."""
    first, first_digest = next(iter(digests.items()))
    for client, client_digest in digests.items():
        if client_digest != first_digest:
            raise ProtocolError(
                f"client {client} computed other centers than client {first}"
            )


# The server


def run_server(
    link: ServerLink,
    method: Any,
    n_points: int,
    n_features: int,
    noise: NoiseStreams,
    domain: npt.ArrayLike | None,
    network: Network,
    *,
    identity: Identity,
    allow_seeded_noise: bool = False,
) -> ServerReport:
    """Run a method as the server: send the clients the noisy sum of every round.

    Parameters
    ----------
    link : ServerLink
    method : methods.PrivateKMeans
        Only its public schedule is used.
    n_points, n_features : int
        Number of records of all clients together, and of features.
    noise : NoiseStreams
        The server's noise streams, of all replicates. They are secret unless results
        are to be repeatable.
    domain : array-like of shape (2, d) or None
        The same as the clients'.
    network : Network
        With the fingerprints of all parties.
    identity : Identity
        The server's identity.
    allow_seeded_noise : bool, default=False
        Allow a method or noise without ``secure=True``: for experiments.

    Returns
    -------
    ServerReport

    Raises
    ------
    ProtocolError
        Naming the client that stopped, was late, sent a malformed message or is not who
        it should be.
    """
    rounds = get_rounds(method, n_points, n_features, network)
    check_secure(method, allow_seeded_noise)
    if not (allow_seeded_noise or noise.secure):
        raise ValueError(
            "secure=False of the noise must be True, or allow_seeded_noise=True"
        )
    fingerprints = require_fingerprints(network)
    ring = Ring(network.word_bytes)
    shape = (len(noise.seeds), method.n_clusters, n_features + 1)
    n_bytes = math.prod(shape) * ring.word_bytes

    # Agree with the clients on keys, and relay those that they agree on among them.
    n_key_rounds = len(rounds) if network.recover else 0
    n_replicates = len(noise.seeds)
    terms = list_terms(method, n_points, n_features, n_replicates, domain, network)
    encrypted, recovery = agree_as_server(
        link, identity, fingerprints, terms, n_key_rounds
    )

    # Draw the noise of all rounds while the clients work on their first message: it
    # depends on nothing that is sent.
    started = time.thread_time()
    noises = [
        draw_noise(ring, shape, public_round, noise, number)
        for number, public_round in enumerate(rounds)
    ]
    noise_sampling = time.thread_time() - started

    # In each round, add the clients' messages and the noise, and send the sum to all.
    aggregation = 0.0
    waiting = 0.0
    for round_noise in noises:
        messages, arrivals = encrypted.gather(n_bytes, network.recover)
        if recovery is not None:
            recovery.collect_shares(encrypted)
        started = time.perf_counter()
        elements = [message.view(ring.dtype).reshape(shape) for message in messages]
        total = aggregate(ring, elements, round_noise)
        if recovery is not None:
            recovery.unmask(total)
        aggregation += time.perf_counter() - started
        waiting += max(arrivals) - sum(arrivals) / len(arrivals)
        encrypted.deliver([total] * len(link.remaining))

    communication_rounds = len(rounds) + n_key_rounds
    return ServerReport(
        aggregation, noise_sampling, waiting, encrypted.n_bytes, communication_rounds
    )


def draw_noise(
    ring: Ring,
    shape: tuple[int, ...],
    public_round: Any,
    noise: NoiseStreams,
    number: int,
) -> np.ndarray | None:
    """Draw the noise of one round as ring elements of shape (R, k, d + 1), or None."""
    if public_round.sum_noise is None or public_round.count_noise is None:
        return None
    zeros = np.zeros(shape, np.int64)
    key = (SumsAndCounts.label, number)
    sums = noise.release(public_round.sum_noise, zeros[:, :, :-1], (*key, "sums"))
    counts = noise.release(public_round.count_noise, zeros[:, :, -1], (*key, "counts"))
    return ring.encode(np.concatenate([sums, counts[:, :, None]], axis=2))


def aggregate(
    ring: Ring, messages: Sequence[np.ndarray], noise: np.ndarray | None
) -> np.ndarray:
    """Add masked messages of shape (R, k, d + 1) and the noise of one round."""
    total = np.sum(messages, axis=0, dtype=ring.dtype)
    return total if noise is None else total + noise


# All parties in one process


def run_in_threads(
    method: Any,
    parts: Sequence[Points],
    seeds: Sequence[int],
    domain: npt.ArrayLike | None = None,
    *,
    network: Network,
    allow_seeded_noise: bool = False,
) -> tuple[Any, FederationCosts]:
    """Run a method as a protocol whose parties are threads of this process.

    Every party gets a new identity.

    Parameters
    ----------
    method : methods.PrivateKMeans
        One of the Lloyd family. With ``secure=True`` the server's noise comes from the
        operating system. Else it comes from the seeds, and the result is equal to that
        of a central run bit for bit.
    parts : sequence of Points
        The points of each client. All rows of a person are one client's.
    seeds : sequence of int
    domain : array-like of shape (2, d), optional
    network : Network
    allow_seeded_noise : bool, default=False
        Allow a method without ``secure=True``: for experiments, not for real data.

    Returns
    -------
    run : methods.Run
        The run that the clients which have not dropped out agree on.
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
            f"n_clients={network.n_clients} must be the number of parts, which is "
            f"{len(parts)}"
        )
    n_points = sum(points.n_records for points in parts)
    n_features = parts[0].shape[1]
    get_rounds(method, n_points, n_features, network)
    check_secure(method, allow_seeded_noise)
    identities = [Identity.generate() for _ in range(network.n_clients + 1)]
    fingerprints = tuple(identity.fingerprint for identity in identities)
    unit = Unit.of(sum(points.n_persons for points in parts))
    network = replace(network, fingerprints=fingerprints, unit=unit)
    for points in parts:
        check_unit(points, network)
    noise = method.noise_streams(seeds, n_points, n_features, domain=domain)
    link = ThreadServerLink(network.n_clients, network.latency, network.time_limit)

    # Start the clients.
    outcomes: dict[int, tuple[Any, ClientReport]] = {}
    failures: dict[int, Exception] = {}

    def run_party(client: int) -> None:
        """Run a client; report any failure to the server, which ends the run."""
        client_link = link.client(client)
        try:
            outcomes[client] = run_client(
                client_link,
                method,
                parts[client - 1],
                n_points,
                seeds,
                domain,
                network,
                identity=identities[client],
                allow_seeded_noise=allow_seeded_noise,
            )
        except Exception as error:
            failures[client] = error
            client_link.abort(error)

    threads = {
        client: threading.Thread(
            target=run_party, args=(client,), name=f"client {client}", daemon=True
        )
        for client in link.remaining
    }
    for thread in threads.values():
        thread.start()

    # Run the server, and wait for the clients.
    try:
        server_report = run_server(
            link,
            method,
            n_points,
            n_features,
            noise,
            domain,
            network,
            identity=identities[SERVER],
            allow_seeded_noise=allow_seeded_noise,
        )
    except Exception as error:
        link.abort(error)
        raise
    for client in link.remaining:
        threads[client].join(network.time_limit)

    # With recovery some clients may be missing; all others must agree. But a breach
    # that a client has seen ends the run, even if the others have their centers.
    late = ProtocolError("it did not finish")
    for client in link.remaining:
        if client in outcomes:
            continue
        error = failures.get(client, late)
        is_breach = client in failures and isinstance(error, ProtocolError)
        if is_breach or not (network.recover and outcomes):
            raise ProtocolError(f"{name_party(client)} stopped: {describe(error)}")
    clients = sorted(outcomes)
    runs, reports = zip(*(outcomes[client] for client in clients), strict=True)
    check_equal_centers(dict(zip(clients, map(hash_centers, runs), strict=True)))
    return runs[0], FederationCosts.combine(runs[0].n_iter, server_report, reports)
