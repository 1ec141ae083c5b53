"""The links between processes, over MPI: rank 0 is the server, ranks from 1 on are the clients.

Messages are buffers of bytes whose sizes the receiver knows beforehand; nothing is pickled. Waiting
is polling with a deadline, for MPI itself would wait for ever. Imported only by processes that
mpirun has started.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, fields
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from pkm.compute import Points
from pkm.federation.links import (
    CLIENT_WAIT_FACTOR,
    ProtocolError,
    check_size,
    check_turn,
    flat_bytes,
    timeout_error,
    wait,
)
from pkm.federation.parties import (
    ClientReport,
    FederationCosts,
    Network,
    ScheduledMethod,
    ServerReport,
    check_agreement,
    digest,
    run_client,
    run_server,
)
from pkm.federation.splits import split_points
from pkm.privacy import NoiseStreams

SERVER = 0
FIRST_CLIENT = 1
ABORT_TAG = 0  # that of a message is one more than the number of messages its sender has received
SPIN_SECONDS = 1e-4  # parties may outnumber cores: after this, a waiting party sleeps
SLEEP_SECONDS = 1e-5

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
        self.bytes_received = 0
        self.bytes_sent = 0
        self._n_sent = [0] * network.n_clients

    def gather(
        self, n_bytes: int, clients: Sequence[int] | None = None
    ) -> tuple[list[np.ndarray], list[float]]:
        """See :class:`pkm.federation.links.ServerLink`."""
        clients = list(clients or range(1, self.n_clients + 1))
        received: dict[int, tuple[np.ndarray, float]] = {}

        def receive_arrived() -> bool | None:
            for client in clients:
                if client not in received and (probed := self._probe(client)) is not None:
                    arrival = time.perf_counter()
                    received[client] = self._receive_from(client, n_bytes, *probed), arrival
            return True if len(received) == len(clients) else None

        if _poll(receive_arrived, self._network.time_limit) is None:
            late = [client for client in clients if client not in received]
            raise timeout_error(late, self._network.time_limit)
        self.bytes_received += n_bytes * len(clients)
        messages = [received[client][0] for client in clients]
        arrivals = [received[client][1] for client in clients]
        return messages, arrivals

    def _receive_from(
        self, client: int, n_bytes: int, message: MPI.Message, status: MPI.Status
    ) -> np.ndarray:
        """Receive a probed message of a client, and check it."""
        buffer, tag = self._take(message, status)
        if tag == ABORT_TAG:
            raise ProtocolError(f"client {client} stopped: {buffer.tobytes().decode()}")
        check_turn(client, tag - 1, self._n_sent[client - 1])
        check_size(f"client {client}", buffer.size, n_bytes)
        return buffer

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
        self._send_reason(reason, range(1, self.n_clients + 1))


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


def run_rank(
    method: ScheduledMethod,
    points: Points,
    seeds: Sequence[int],
    domain: npt.ArrayLike | None = None,
    *,
    network: Network,
    split: str = "balanced",
) -> tuple[Any | None, FederationCosts | None]:
    """Run a method as a protocol, as one rank of a job of ``network.n_clients + 1``.

    All ranks call it with the same arguments.

    Parameters
    ----------
    method, seeds, domain, network
        As for :func:`pkm.federation.run_in_threads`.
    points : Points
        All points, for a measurement on one machine: each client uses its part alone.
    split : str
        See :func:`pkm.federation.split_points`.

    Returns
    -------
    run : methods.Run or None
        On rank 1, the first client; None elsewhere.
    costs : FederationCosts or None

    Raises
    ------
    ProtocolError
        On every rank, naming the party at fault.
    """
    comm = MPI.COMM_WORLD
    rank = comm.Get_rank()
    if comm.Get_size() != network.n_clients + 1:
        raise ValueError(
            f"n_clients={network.n_clients} must be one less than the job's {comm.Get_size()} "
            "processes"
        )
    if rank == SERVER:
        link = MpiServerLink(comm, network)
        noise = NoiseStreams(seeds, secure=getattr(method, "secure", False))
        run = None
        with _abort_on_error(link):
            report = run_server(link, method, *points.shape, noise, network)
    else:
        link = MpiClientLink(comm, network)
        part = split_points(points, network.n_clients, seeds[0], split)[rank - 1]
        n_points = points.shape[0]
        with _abort_on_error(link):
            run, report = run_client(link, method, part, n_points, seeds, domain, network)
    return _collect(comm, run, report)


@contextmanager
def _abort_on_error(link: MpiServerLink | MpiClientLink) -> Iterator[None]:
    """Send the reason of any failure over a link, and raise it."""
    try:
        yield
    except Exception as error:
        known = isinstance(error, ProtocolError)
        link.abort(str(error) if known else f"{type(error).__name__}: {error}")
        raise


def _collect(
    comm: MPI.Comm, run: Any | None, report: ServerReport | ClientReport
) -> tuple[Any | None, FederationCosts | None]:
    """Gather reports and digests at rank 1, the first client, after the protocol.

    Digests of centers are gathered among the clients alone: the server gets none.
    """
    rank = comm.Get_rank()
    numbers = np.zeros(len(fields(ServerReport)))
    values = astuple(report)
    numbers[: len(values)] = values
    all_numbers = np.empty((comm.Get_size(), len(numbers))) if rank == FIRST_CLIENT else None
    comm.Gather(numbers, all_numbers, root=FIRST_CLIENT)

    all_digests = None
    clients_only = comm.Split(int(rank != SERVER), rank)
    if rank != SERVER:
        run_digest = np.frombuffer(digest(run), np.uint8)
        if rank == FIRST_CLIENT:
            all_digests = np.empty((comm.Get_size() - 1, len(run_digest)), np.uint8)
        clients_only.Gather(run_digest, all_digests, root=0)
    clients_only.Free()
    if run is None or all_numbers is None or all_digests is None:
        return None, None

    check_agreement([client_digest.tobytes() for client_digest in all_digests])
    work, drawing, waiting, n_bytes, exchanges = all_numbers[SERVER].tolist()
    server_report = ServerReport(work, drawing, waiting, int(n_bytes), int(exchanges))
    n_fields = len(fields(ClientReport))
    client_reports = [ClientReport(*row[:n_fields]) for row in all_numbers[1:].tolist()]
    return run, FederationCosts.of(run.n_iter, server_report, client_reports)
