"""Transport between processes over MPI: rank 0 is the server, other ranks the clients.

Messages are buffers of bytes whose sizes the receiver knows beforehand; nothing is
pickled. MPI itself would wait for ever, so a party polls until a deadline. Only
processes that mpirun has started import this module.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from pkm.compute import Points
from pkm.federation.keys import Identity, compute_fingerprint
from pkm.federation.links import (
    MESSAGE,
    SERVER,
    ClientLink,
    Message,
    Packet,
    ProtocolError,
    ServerLink,
    announce_remaining,
    name_party,
    receive_remaining,
    view_bytes,
)
from pkm.federation.parties import (
    ClientReport,
    FederationCosts,
    Network,
    ServerReport,
    check_equal_centers,
    check_secure,
    hash_centers,
    run_client,
    run_server,
)
from pkm.federation.splits import split_points

SPIN_SECONDS = 1e-4  # parties may outnumber cores: a party that waits longer sleeps
SLEEP_SHARE = 0.01  # of what it has waited, so that sleeping adds 1 % to a wait
MAX_SLEEP = 1e-3  # seconds
FLUSH_LIMIT = 1.0  # seconds to wait until pending messages are delivered
ABORT_DELAY = 0.5  # seconds in which the other ranks can report a failure's reason


def _poll(call: Callable[[], Any], time_limit: float) -> Any:
    """Call until the result is not None, for some seconds; let others use the core."""
    started = time.perf_counter()
    while (result := call()) is None:
        waited = time.perf_counter() - started
        if waited >= time_limit:
            return None
        if waited < SPIN_SECONDS:
            os.sched_yield()
        else:
            time.sleep(min(SLEEP_SHARE * waited, MAX_SLEEP))
    return result


class MpiTransport:
    """Moves bytes between ranks; see :class:`pkm.federation.links.Transport`.

    Parameters
    ----------
    comm : MPI.Comm
    source : int
        Rank that it listens to, or ``MPI.ANY_SOURCE``.
    """

    def __init__(self, comm: MPI.Comm, source: int):
        # A separate communicator: messages left behind by a failed run never reach the
        # next run.
        self._comm = comm.Dup()
        self.source = source
        self._pending: list[tuple[MPI.Request, np.ndarray]] = []

    def put(self, receiver: int, header: int, message: Message) -> None:
        """See :class:`pkm.federation.links.Transport`."""
        # MPI calls the header a tag. A buffer must live until its send has completed.
        self._pending = [send for send in self._pending if not send[0].Test()]
        buffer = view_bytes(message)
        request = self._comm.Isend([buffer, MPI.BYTE], dest=receiver, tag=header)
        self._pending.append((request, buffer))

    def get(self, time_limit: float) -> Packet | None:
        """See :class:`pkm.federation.links.Transport`."""
        status = MPI.Status()
        message = _poll(
            lambda: self._comm.Improbe(self.source, MPI.ANY_TAG, status), time_limit
        )
        if message is None:
            return None
        arrival = time.perf_counter()
        buffer = np.empty(status.Get_count(MPI.BYTE), np.uint8)
        message.Recv([buffer, MPI.BYTE])
        return Packet(status.Get_source(), arrival, status.Get_tag(), buffer)

    def flush(self) -> None:
        """Wait until the messages are delivered, for at most :data:`FLUSH_LIMIT`."""
        _poll(
            lambda: all(request.Test() for request, _ in self._pending) or None,
            FLUSH_LIMIT,
        )


def run_rank(
    method: Any,
    points: Points,
    seeds: Sequence[int],
    domain: npt.ArrayLike | None = None,
    *,
    network: Network,
    split: str = "balanced",
    identity: Identity | None = None,
    allow_seeded_noise: bool = False,
) -> tuple[Any | None, FederationCosts | None]:
    """Run a method as a protocol, as one rank of a job of ``network.n_clients + 1``.

    All ranks call it with the same arguments.

    Parameters
    ----------
    method, seeds, domain, network, allow_seeded_noise
        As for :func:`pkm.federation.run_in_threads`.
    points : Points
        All points, for a measurement on one machine: each client uses its part alone.
    split : str
        See :func:`pkm.federation.split_points`.
    identity : Identity, optional
        This rank's; needed if the network has fingerprints. Else each rank makes one,
        and the ranks trust one another's fingerprints.

    Returns
    -------
    run : methods.Run or None
        On the rank of the first client that has not dropped out; None elsewhere.
    costs : FederationCosts or None

    Raises
    ------
    ProtocolError
        On every rank, naming the party at fault.
    ValueError
        If the method or the network does not fit, before any record is read.
    """
    comm = MPI.COMM_WORLD
    rank = comm.Get_rank()
    if comm.Get_size() != network.n_clients + 1:
        raise ValueError(
            f"n_clients={network.n_clients} must be one less than the job's "
            f"{comm.Get_size()} processes"
        )
    check_secure(method, allow_seeded_noise)
    if network.fingerprints is None:
        identity = Identity.generate()
        network = replace(network, fingerprints=_exchange_fingerprints(comm, identity))
    if identity is None:
        raise ValueError(
            "identity=None must be this rank's: network.fingerprints are known"
        )
    n_points = points.n_records
    n_features = points.shape[1]
    limits = (network.n_clients, network.latency, network.time_limit)

    if rank == SERVER:
        link = ServerLink(MpiTransport(comm, MPI.ANY_SOURCE), *limits)
        with _abort_on_error(link):
            noise = method.noise_streams(seeds, n_points, n_features, domain=domain)
            report = run_server(
                link,
                method,
                n_points,
                n_features,
                noise,
                domain,
                network,
                identity=identity,
                allow_seeded_noise=allow_seeded_noise,
            )
            _send_report(link, report, network.recover)
        return None, None

    link = ClientLink(MpiTransport(comm, SERVER), rank, *limits)
    with _abort_on_error(link):
        own_points = split_points(points, network.n_clients, seeds[0], split)[rank - 1]
        run, report = run_client(
            link,
            method,
            own_points,
            n_points,
            seeds,
            domain,
            network,
            identity=identity,
            allow_seeded_noise=allow_seeded_noise,
        )
        return _exchange_reports(link, run, report, network.time_limit)


def _exchange_fingerprints(comm: MPI.Comm, identity: Identity) -> tuple[str, ...]:
    """Exchange the fingerprints of the identities of all ranks."""
    own = view_bytes(identity.public)
    public = np.empty((comm.Get_size(), len(own)), np.uint8)
    comm.Allgather(own, public)
    return tuple(compute_fingerprint(row.tobytes()) for row in public)


@contextmanager
def _abort_on_error(link: ServerLink | ClientLink) -> Iterator[None]:
    """Send the reason of any failure over a link, and raise the failure."""
    try:
        yield
    except Exception as error:
        link.abort(error)
        link.transport.flush()
        # An error ends the job under mpi4py's runner: the others have time to report
        # the reason.
        time.sleep(ABORT_DELAY)
        raise


def _send_report(link: ServerLink, report: ServerReport, recover: bool) -> None:
    """Say which clients have finished, and report to the first of them."""
    link.gather(0, recover)
    announce_remaining(link)
    message = np.array(report, np.float64)
    link.transport.put(link.remaining[0], MESSAGE, message)


def _exchange_reports(
    link: ClientLink, run: Any, report: ClientReport, time_limit: float
) -> tuple[Any | None, FederationCosts | None]:
    """Compare the runs and combine the reports, at the first client that has finished.

    Digests of centers go to that client alone: the server gets none.
    """
    link.send(b"")
    first, *others = receive_remaining(link)
    own_report = np.array(report, np.float64).tobytes() + hash_centers(run)
    if link.client != first:
        link.transport.put(first, MESSAGE, own_report)
        return None, None

    messages = {first: own_report}
    for party in (SERVER, *others):
        link.transport.source = party
        packet = link.transport.get(time_limit)
        if packet is None:
            raise ProtocolError(f"{name_party(party)} did not finish")
        messages[party] = packet.message.tobytes()
    server_report = ServerReport(*np.frombuffer(messages.pop(SERVER)).tolist())

    # A client's report comes before the digest of its centers.
    size = 8 * len(report)
    digests = {client: message[size:] for client, message in messages.items()}
    check_equal_centers(digests)
    reports = [np.frombuffer(message[:size]) for message in messages.values()]
    return run, FederationCosts.combine(run.n_iter, server_report, reports)
