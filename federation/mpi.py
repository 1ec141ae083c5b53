"""The links between processes, over MPI: rank 0 is the server, ranks from 1 on are the clients.

Messages are buffers of bytes whose sizes the receiver knows beforehand; nothing is pickled. Waiting
is polling with a deadline, for MPI itself would wait for ever. Imported only by processes that
mpirun has started.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, fields, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from pkm.compute import Points
from pkm.federation.keys import SERVER, Identity, fingerprint_of, party_name
from pkm.federation.links import (
    CLIENT_WAIT_FACTOR,
    ProtocolError,
    check_size,
    check_turn,
    flat_bytes,
    timeout_reason,
    wait,
)
from pkm.federation.parties import (
    ClientReport,
    FederationCosts,
    Network,
    ScheduledMethod,
    ServerReport,
    check_agreement,
    check_secure,
    digest,
    run_client,
    run_server,
)
from pkm.federation.splits import split_points

ABORT_TAG = 0  # that of a message is one more than the number of messages its sender has received
SPIN_SECONDS = 1e-4  # parties may outnumber cores: after this, a waiting party sleeps
SLEEP_SECONDS = 1e-5
ABORT_DELAY = 0.5  # seconds

T = TypeVar("T")


def _poll(ready: Callable[[], T | None], time_limit: float) -> T | None:
    """Call until the result is not None, yielding the core between calls; None after a limit."""
    started = time.perf_counter()
    while (result := ready()) is None:
        waited = time.perf_counter() - started
        if waited >= time_limit:
            return None
        if waited < SPIN_SECONDS:
            os.sched_yield()
        else:
            time.sleep(SLEEP_SECONDS)
    return result


class _Link:
    """Common parts of both ends of a link."""

    def __init__(self, comm: MPI.Comm, network: Network):
        # A separate communicator: messages left behind by a failed run never reach the next run.
        self._comm = comm.Dup()
        self._network = network
        self._pending: list[tuple[MPI.Request, np.ndarray]] = []
        self.n_clients = network.n_clients

    def _isend(self, buffer: np.ndarray, rank: int, tag: int) -> None:
        # A buffer must live until its send has completed.
        self._pending = [request for request in self._pending if not request[0].Test()]
        request = self._comm.Isend([buffer, MPI.BYTE], dest=rank, tag=tag)
        self._pending.append((request, buffer))

    def _send_reason(self, reason: str, ranks: Iterable[int]) -> None:
        """Send the reason of an abort, and wait up to a second for its delivery."""
        for rank in ranks:
            self._isend(np.frombuffer(reason.encode(), np.uint8), rank, ABORT_TAG)
        _poll(lambda: True if all(request.Test() for request, _ in self._pending) else None, 1.0)

    def _probe(self, rank: int) -> tuple[MPI.Message, MPI.Status] | None:
        status = MPI.Status()
        message = self._comm.Improbe(source=rank, tag=MPI.ANY_TAG, status=status)
        return None if message is None else (message, status)

    @staticmethod
    def _take(message: MPI.Message, status: MPI.Status) -> tuple[np.ndarray, int]:
        """Receive a probed message, with its tag."""
        buffer = np.empty(status.Get_count(MPI.BYTE), np.uint8)
        message.Recv([buffer, MPI.BYTE])
        return buffer, status.Get_tag()


class MpiServerLink(_Link):
    """The server's end; see :class:`pkm.federation.links.ServerLink`."""

    def __init__(self, comm: MPI.Comm, network: Network):
        super().__init__(comm, network)
        self.lost: dict[int, str] = {}
        self.bytes_received = 0
        self.bytes_sent = 0
        self._n_sent = [0] * network.n_clients

    def gather(
        self, n_bytes: int, clients: Sequence[int] | None = None, recover: bool = False
    ) -> tuple[list[np.ndarray], list[float]]:
        """See :class:`pkm.federation.links.ServerLink`."""
        clients = list(clients or range(1, self.n_clients + 1))
        received: dict[int, tuple[np.ndarray, float]] = {}

        def late_clients() -> list[int]:
            return [c for c in clients if c not in received and c not in self.lost]

        def receive_arrived() -> bool | None:
            for client in late_clients():
                if (probed := self._probe(client)) is None:
                    continue
                arrival = time.perf_counter()
                buffer, tag = self._take(*probed)
                if tag == ABORT_TAG:
                    reason = f"client {client} stopped: {buffer.tobytes().decode()}"
                    self._lose([client], reason, recover)
                    continue
                check_turn(client, tag - 1, self._n_sent[client - 1])
                check_size(f"client {client}", buffer.size, n_bytes)
                received[client] = buffer, arrival
            return None if late_clients() else True

        if _poll(receive_arrived, self._network.time_limit) is None:
            late = late_clients()
            self._lose(late, timeout_reason(late, self._network.time_limit), recover)
        arrived = [client for client in clients if client in received]
        self.bytes_received += n_bytes * len(arrived)
        messages = [received[client][0] for client in arrived]
        arrivals = [received[client][1] for client in arrived]
        return messages, arrivals

    def _lose(self, clients: Sequence[int], reason: str, recover: bool) -> None:
        """Go on without some clients, or end the run."""
        if not recover:
            raise ProtocolError(reason)
        for client in clients:
            self.lost[client] = reason
            self._isend(np.frombuffer(reason.encode(), np.uint8), client, ABORT_TAG)

    def deliver(self, messages: Sequence[np.ndarray], clients: Sequence[int] | None = None) -> None:
        """See :class:`pkm.federation.links.ServerLink`."""
        wait(self._network.latency)
        for client, message in zip(clients or range(1, self.n_clients + 1), messages, strict=True):
            buffer = flat_bytes(message)
            self.bytes_sent += buffer.size
            self._n_sent[client - 1] += 1
            self._isend(buffer, client, tag=1)

    def abort(self, reason: str) -> None:
        """See :class:`pkm.federation.links.ServerLink`."""
        clients = range(1, self.n_clients + 1)
        self._send_reason(reason, [client for client in clients if client not in self.lost])

    def send_report(self, report: ServerReport) -> None:
        """After the protocol: say which clients have finished, and report to the first of them."""
        clients = [client for client in range(1, self.n_clients + 1) if client not in self.lost]
        self.gather(0, clients, self._network.recover)
        clients = [client for client in clients if client not in self.lost]
        finished = np.zeros(self.n_clients, np.uint8)
        finished[np.array(clients) - 1] = 1
        self.deliver([finished] * len(clients), clients)
        self._isend(flat_bytes(np.array(astuple(report), np.float64)), clients[0], tag=1)


class MpiClientLink(_Link):
    """A client's end; see :class:`pkm.federation.links.ClientLink`."""

    def __init__(self, comm: MPI.Comm, network: Network):
        super().__init__(comm, network)
        self.client = comm.Get_rank()
        self._n_received = 0

    def send(self, message: np.ndarray) -> None:
        """See :class:`pkm.federation.links.ClientLink`."""
        wait(self._network.latency)
        self._isend(flat_bytes(message), SERVER, tag=1 + self._n_received)

    def receive(self, n_bytes: int) -> np.ndarray:
        """See :class:`pkm.federation.links.ClientLink`."""
        time_limit = CLIENT_WAIT_FACTOR * self._network.time_limit
        probed = _poll(lambda: self._probe(SERVER), time_limit)
        if probed is None:
            raise ProtocolError(f"the server sent nothing for {time_limit:g} s")
        buffer, tag = self._take(*probed)
        if tag == ABORT_TAG:
            raise ProtocolError(f"the server ended the run: {buffer.tobytes().decode()}")
        check_size("the server", buffer.size, n_bytes)
        self._n_received += 1
        return buffer

    def abort(self, reason: str) -> None:
        """See :class:`pkm.federation.links.ClientLink`."""
        self._send_reason(reason, [SERVER])

    def exchange_reports(
        self, run: Any, report: ClientReport
    ) -> tuple[Any | None, FederationCosts | None]:
        """After the protocol: compare and sum up, at the first of the clients that have finished.

        Digests of centers are sent to that client alone: the server gets none.
        """
        self.send(np.empty(0, np.uint8))
        finished = self.receive(self.n_clients)
        first, *others = (np.flatnonzero(finished) + 1).tolist()
        own_digest = digest(run)
        if self.client != first:
            own_report = np.array(astuple(report), np.float64).tobytes() + own_digest
            self._isend(np.frombuffer(own_report, np.uint8), first, tag=1)
            return None, None

        server_report = self._receive_from(SERVER)
        work, drawing, waiting, n_bytes, exchanges = np.frombuffer(server_report)
        reports = [report]
        digests = [own_digest]
        n_report = 8 * len(fields(ClientReport))
        for client in others:
            message = self._receive_from(client)
            reports.append(ClientReport(*np.frombuffer(message[:n_report]).tolist()))
            digests.append(message[n_report:])
        check_agreement(digests)
        measured = ServerReport(work, drawing, waiting, int(n_bytes), int(exchanges))
        return run, FederationCosts.of(run.n_iter, measured, reports)

    def _receive_from(self, rank: int) -> bytes:
        """Wait for a report."""
        probed = _poll(lambda: self._probe(rank), self._network.time_limit)
        if probed is None:
            raise ProtocolError(f"{party_name(rank)} did not finish")
        return self._take(*probed)[0].tobytes()


def run_rank(
    method: ScheduledMethod,
    points: Points,
    seeds: Sequence[int],
    domain: npt.ArrayLike | None = None,
    *,
    network: Network,
    split: str = "balanced",
    identity: Identity | None = None,
    simulated: bool = False,
) -> tuple[Any | None, FederationCosts | None]:
    """Run a method as a protocol, as one rank of a job of ``network.n_clients + 1``.

    All ranks call it with the same arguments.

    Parameters
    ----------
    method, seeds, domain, network, simulated
        As for :func:`pkm.federation.run_in_threads`.
    points : Points
        All points, for a measurement on one machine: each client uses its part alone.
    split : str
        See :func:`pkm.federation.split_points`.
    identity : Identity, optional
        This rank's, where ``network.fingerprints`` are given. Else each rank makes one, and the
        job's ranks believe one another.

    Returns
    -------
    run : methods.Run or None
        On the rank of the first client that has not disappeared; None elsewhere.
    costs : FederationCosts or None

    Raises
    ------
    ProtocolError
        On every rank, naming the party at fault.
    ValueError
        If the method or the network does not fit, before anything is sent.
    """
    comm = MPI.COMM_WORLD
    rank = comm.Get_rank()
    if comm.Get_size() != network.n_clients + 1:
        raise ValueError(
            f"n_clients={network.n_clients} must be one less than the job's {comm.Get_size()} "
            "processes"
        )
    check_secure(method, simulated)
    if network.fingerprints is None:
        identity = Identity.generate()
        network = replace(network, fingerprints=_fingerprints(comm, identity))
    if identity is None:
        raise ValueError("identity=None must be this rank's: network.fingerprints are given")
    n_points = points.n_records
    n_features = points.shape[1]
    if rank == SERVER:
        link = MpiServerLink(comm, network)
        noise = method.noise_streams(seeds, n_points, n_features, domain=domain)
        with _abort_on_error(link):
            report = run_server(
                link,
                method,
                n_points,
                n_features,
                noise,
                network,
                identity=identity,
                simulated=simulated,
            )
            link.send_report(report)
        return None, None
    link = MpiClientLink(comm, network)
    part = split_points(points, network.n_clients, seeds[0], split)[rank - 1]
    with _abort_on_error(link):
        run, report = run_client(
            link,
            method,
            part,
            n_points,
            seeds,
            domain,
            network,
            identity=identity,
            simulated=simulated,
        )
        return link.exchange_reports(run, report)


def _fingerprints(comm: MPI.Comm, identity: Identity) -> tuple[str, ...]:
    """Fingerprints of the identities of all ranks."""
    own = np.frombuffer(identity.public, np.uint8)
    public = np.empty((comm.Get_size(), len(own)), np.uint8)
    comm.Allgather(own, public)
    return tuple(fingerprint_of(row.tobytes()) for row in public)


@contextmanager
def _abort_on_error(link: MpiServerLink | MpiClientLink) -> Iterator[None]:
    """Send the reason of any failure over a link, and raise it."""
    try:
        yield
    except Exception as error:
        known = isinstance(error, ProtocolError)
        link.abort(str(error) if known else f"{type(error).__name__}: {error}")
        # An error ends the job under mpi4py's runner: the others have time to report the reason.
        time.sleep(ABORT_DELAY)
        raise
