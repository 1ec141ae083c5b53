"""The links between processes, over MPI: rank 0 is the server, ranks from 1 on are the clients.

Messages are buffers of bytes whose sizes the receiver knows beforehand; nothing is pickled. Waiting is polling with a
deadline, for MPI itself would wait for ever. Imported only by processes that mpirun has started.
"""

import os
import time

import numpy as np
from mpi4py import MPI

from pkm.compute import Points
from pkm.federation.links import (
    PATIENCE,
    ProtocolError,
    check_size,
    check_turn,
    flat_bytes,
    too_late,
    wait,
)
from pkm.federation.parties import (
    ClientReport,
    Measured,
    ServerReport,
    Setting,
    check_equal,
    digest,
    serve,
    take_part,
)
from pkm.federation.splits import parts_of
from pkm.privacy import NoiseStreams

SERVER = 0
FAREWELL = (
    0  # a tag; that of a message is one more than the number of messages its sender has received
)
SPINNING, NAP = (
    1e-4,
    1e-5,
)  # seconds: parties may outnumber cores, and who waits should not keep others from working


def _poll(ready, time_limit: float):
    """Ask until the answer is not None, giving the core away in between; None when the time is up."""
    began = time.perf_counter()
    while (found := ready()) is None and (waited := time.perf_counter() - began) < time_limit:
        if waited < SPINNING:
            os.sched_yield()
        else:
            time.sleep(NAP)
    return found


class _Ends:
    """What both ends of a link do."""

    def __init__(self, comm: MPI.Comm, setting: Setting):
        # A communicator of one's own: messages that a failed run left behind are never taken for the next run's.
        self._comm, self._setting, self._pending = comm.Dup(), setting, []
        self.n_clients = setting.n_clients

    def _isend(self, buffer: np.ndarray, rank: int, tag: int) -> None:
        self._pending = [request for request in self._pending if not request[0].Test()]
        self._pending.append((self._comm.Isend([buffer, MPI.BYTE], dest=rank, tag=tag), buffer))

    def _say(self, reason: str, ranks) -> None:
        for rank in ranks:
            self._isend(np.frombuffer(reason.encode(), np.uint8), rank, FAREWELL)
        _poll(lambda: True if all(request.Test() for request, _ in self._pending) else None, 1.0)

    def _probe(self, rank: int):
        status = MPI.Status()
        message = self._comm.Improbe(source=rank, tag=MPI.ANY_TAG, status=status)
        return None if message is None else (message, status)

    @staticmethod
    def _take(message, status) -> tuple[np.ndarray, int]:
        """Receive a probed message, with its tag."""
        buffer = np.empty(status.Get_count(MPI.BYTE), np.uint8)
        message.Recv([buffer, MPI.BYTE])
        return buffer, status.Get_tag()


class MpiServerLink(_Ends):
    """The server's end; see :class:`pkm.federation.links.ServerLink`."""

    def __init__(self, comm: MPI.Comm, setting: Setting):
        super().__init__(comm, setting)
        self._sent = [0] * setting.n_clients
        self.bytes_received = self.bytes_sent = 0

    def gather(self, n_bytes, clients=None):
        """See :class:`pkm.federation.links.ServerLink`."""
        clients = list(clients or range(1, self.n_clients + 1))
        found, limit = {}, self._setting.time_limit

        def all_here():
            for client in clients:
                if client not in found and (probed := self._probe(client)) is not None:
                    arrival = time.perf_counter()
                    buffer, tag = self._take(*probed)
                    if tag == FAREWELL:
                        raise ProtocolError(f"client {client} gave up: {buffer.tobytes().decode()}")
                    check_turn(client, tag - 1, self._sent[client - 1])
                    check_size(f"client {client}", buffer.size, n_bytes)
                    found[client] = buffer, arrival
            return True if len(found) == len(clients) else None

        if _poll(all_here, limit) is None:
            raise too_late([client for client in clients if client not in found], limit)
        self.bytes_received += n_bytes * len(clients)
        return [found[client][0] for client in clients], [found[client][1] for client in clients]

    def deliver(self, messages, clients=None):
        """See :class:`pkm.federation.links.ServerLink`."""
        wait(self._setting.latency)
        for client, message in zip(clients or range(1, self.n_clients + 1), messages, strict=True):
            buffer = flat_bytes(message)
            self.bytes_sent += buffer.size
            self._sent[client - 1] += 1
            self._isend(buffer, client, tag=1)

    def give_up(self, reason):
        """See :class:`pkm.federation.links.ServerLink`."""
        self._say(reason, range(1, self.n_clients + 1))


class MpiClientLink(_Ends):
    """A client's end; see :class:`pkm.federation.links.ClientLink`."""

    def __init__(self, comm: MPI.Comm, setting: Setting):
        super().__init__(comm, setting)
        self.client, self._received = comm.Get_rank(), 0

    def send(self, message):
        """See :class:`pkm.federation.links.ClientLink`."""
        wait(self._setting.latency)
        self._isend(flat_bytes(message), SERVER, tag=1 + self._received)

    def receive(self, n_bytes):
        """See :class:`pkm.federation.links.ClientLink`."""
        limit = PATIENCE * self._setting.time_limit
        probed = _poll(lambda: self._probe(SERVER), limit)
        if probed is None:
            raise ProtocolError(f"the server sent nothing for {limit:g} s")
        buffer, tag = self._take(*probed)
        if tag == FAREWELL:
            raise ProtocolError(f"the server ended the run: {buffer.tobytes().decode()}")
        check_size("the server", buffer.size, n_bytes)
        self._received += 1
        return buffer

    def give_up(self, reason):
        """See :class:`pkm.federation.links.ClientLink`."""
        self._say(reason, [SERVER])


def run_rank(
    method, points: Points, seeds, domain=None, *, setting: Setting, split: str = "balanced"
):
    """Run a method as a protocol, as one rank of a job of ``setting.n_clients + 1``; all ranks call it alike.

    Parameters
    ----------
    method, seeds, domain, setting
        As for :func:`federation.run_in_threads`.
    points : Points
        All points, for a measurement on one machine: each client takes its own part and looks at no other.
    split : str
        See :func:`federation.parts_of`.

    Returns
    -------
    run : methods.Run or None
        On rank 1, the first client; None elsewhere.
    measured : Measured or None

    Raises
    ------
    ProtocolError
        On every rank, naming the party at fault.
    """
    comm, n_points = MPI.COMM_WORLD, points.shape[0]
    if comm.Get_size() != setting.n_clients + 1:
        raise ValueError(
            f"n_clients={setting.n_clients} must be one less than the job's {comm.Get_size()} processes"
        )
    rank, run = comm.Get_rank(), None
    report, tag = np.zeros(5), np.zeros(16, np.uint8)
    part = (
        None if rank == SERVER else parts_of(points, setting.n_clients, seeds[0], split)[rank - 1]
    )
    link = (MpiServerLink if rank == SERVER else MpiClientLink)(comm, setting)
    try:
        if rank == SERVER:
            noise = NoiseStreams(seeds, secure=getattr(method, "secure", False))
            report[:] = _numbers(serve(link, method, n_points, points.shape[1], noise, setting))
        else:
            run, found = take_part(link, method, part, n_points, seeds, domain, setting)
            report[:4], tag[:] = _numbers(found), np.frombuffer(digest(run), np.uint8)
    except Exception as error:
        link.give_up(
            str(error) if isinstance(error, ProtocolError) else f"{type(error).__name__}: {error}"
        )
        raise
    # After the protocol: how long it took, and among the clients whether they agree, to the first of them.
    reports = np.empty((comm.Get_size(), len(report))) if rank == 1 else None
    comm.Gather(report, reports, root=1)
    clients_only = comm.Split(int(rank != SERVER), rank)
    if rank != SERVER:
        tags = np.empty((setting.n_clients, len(tag)), np.uint8) if rank == 1 else None
        clients_only.Gather(tag, tags, root=0)
    clients_only.Free()
    if rank != 1:
        return None, None
    check_equal([each.tobytes() for each in tags])
    clients = [ClientReport(*each[:4]) for each in reports[1:].tolist()]
    *seconds, moved, exchanges = reports[0].tolist()
    return run, Measured.of(run.n_iter, ServerReport(*seconds, int(moved), int(exchanges)), clients)


def _numbers(report: ServerReport | ClientReport) -> tuple[float, ...]:
    return tuple(vars(report).values())
