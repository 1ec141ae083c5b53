"""Links between the clients and the server: buffers of stated sizes, counted, with time limits.

With each message a client's link sends the number of messages that it has received, so that a
duplicate is not taken for the message of the next round.

This module has the interface and its implementation for parties that are threads of one process;
:mod:`pkm.federation.mpi` has the one for processes. Clients count from 1. A link carries bytes and
nothing else: their meaning follows from the protocol's public schedule.
"""

import queue
import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np

#: Clients wait this many times longer than the server, so that it is the server that names the late
#: client.
CLIENT_WAIT_FACTOR = 2.0
_SPIN_SECONDS = 2e-4  # before a deadline, in which sleeping is too coarse


class ProtocolError(RuntimeError):
    """A party died, stalled, misbehaved or is an impostor: it is named, and no result follows."""


class ClientLink(Protocol):
    """A client's end: to and from the server."""

    client: int
    n_clients: int

    def send(self, message: np.ndarray) -> None:
        """Send a buffer."""

    def receive(self, n_bytes: int) -> np.ndarray:
        """Wait for a buffer of that size, uint8; raise ProtocolError if there is none in time."""
        ...

    def abort(self, reason: str) -> None:
        """End the run: send the server the reason why this client cannot go on."""


class ServerLink(Protocol):
    """The server's end; it counts the bytes that pass.

    ``lost`` has the clients that stopped or sent nothing in time, and the reasons. They are sent
    that the run goes on without them, and what they send later is ignored.
    """

    n_clients: int
    lost: dict[int, str]

    @property
    def bytes_received(self) -> int:
        """Bytes that the clients have sent."""
        ...

    @property
    def bytes_sent(self) -> int:
        """Bytes sent to the clients."""
        ...

    def gather(
        self, n_bytes: int, clients: Sequence[int] | None = None, recover: bool = False
    ) -> tuple[list[np.ndarray], list[float]]:
        """Wait for a buffer of that size from each client; return them and their arrival times.

        With ``recover`` a client that stops or sends nothing in time is lost, and has no buffer;
        without, it ends the run.
        """
        ...

    def deliver(self, messages: Sequence[np.ndarray], clients: Sequence[int] | None = None) -> None:
        """Send a buffer to each client."""

    def abort(self, reason: str) -> None:
        """End the run: send the clients the reason."""


def flat_bytes(message: np.ndarray) -> np.ndarray:
    """A buffer's bytes, uint8."""
    return np.ascontiguousarray(message).reshape(-1).view(np.uint8)


def check_size(party: str, size: int, n_bytes: int) -> None:
    """Refuse a message that is not of the size that the schedule states."""
    if size != n_bytes:
        raise ProtocolError(
            f"{party} sent a malformed message: {size} bytes where {n_bytes} were due"
        )


def check_turn(client: int, n_received: int, n_sent: int) -> None:
    """Refuse a message that answers any but the last message sent to the client."""
    if n_received != n_sent:
        raise ProtocolError(f"client {client} sent a message where none was due")


def timeout_reason(clients: Sequence[int], time_limit: float) -> str:
    """What a server says of clients that stall."""
    names = " and ".join(f"client {client}" for client in clients)
    return f"{names} sent nothing for {time_limit:g} s (time_limit)"


def wait(seconds: float) -> None:
    """Wait, to within a few microseconds: sleep, then spin."""
    deadline = time.perf_counter() + seconds
    if seconds > _SPIN_SECONDS:
        time.sleep(seconds - _SPIN_SECONDS)
    while time.perf_counter() < deadline:
        pass


class _Abort(str):
    """A party's reason for ending the run, in place of a message."""


class ThreadServerLink:
    """The server's end of the links between threads.

    Parameters
    ----------
    n_clients : int
    latency : float
        Seconds that every send takes.
    time_limit : float
        Seconds to wait for the clients.
    """

    def __init__(self, n_clients: int, latency: float, time_limit: float):
        self.n_clients = n_clients
        self.lost: dict[int, str] = {}
        self.bytes_received = 0
        self.bytes_sent = 0
        self._latency = latency
        self._time_limit = time_limit
        self._uplink: queue.SimpleQueue = queue.SimpleQueue()
        self._downlinks: list[queue.SimpleQueue] = [queue.SimpleQueue() for _ in range(n_clients)]
        self._n_sent = [0] * n_clients

    def client(self, client: int) -> "ThreadClientLink":
        """The other end."""
        return ThreadClientLink(
            client,
            self.n_clients,
            self._uplink,
            self._downlinks[client - 1],
            self._latency,
            self._time_limit,
        )

    def gather(
        self, n_bytes: int, clients: Sequence[int] | None = None, recover: bool = False
    ) -> tuple[list[np.ndarray], list[float]]:
        """See :class:`ServerLink`."""
        clients = list(clients or range(1, self.n_clients + 1))
        received: dict[int, tuple[np.ndarray, float]] = {}
        deferred = []
        deadline = time.perf_counter() + self._time_limit
        while late := [c for c in clients if c not in received and c not in self.lost]:
            try:
                item = self._uplink.get(timeout=max(deadline - time.perf_counter(), 1e-3))
            except queue.Empty:
                self._lose(late, timeout_reason(late, self._time_limit), recover)
                break
            client, arrival, n_received, message = item
            if client in self.lost:
                continue
            if isinstance(message, _Abort) and recover and client in received:
                # It stopped after its message had arrived: that is for the next gathering.
                deferred.append(item)
                continue
            if isinstance(message, _Abort):
                self._lose([client], f"client {client} stopped: {message}", recover)
                continue
            check_turn(client, n_received if client in late else -1, self._n_sent[client - 1])
            check_size(f"client {client}", len(message), n_bytes)
            received[client] = message, arrival
        for item in deferred:
            self._uplink.put(item)
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
            self._downlinks[client - 1].put(_Abort(reason))

    def deliver(self, messages: Sequence[np.ndarray], clients: Sequence[int] | None = None) -> None:
        """See :class:`ServerLink`."""
        wait(self._latency)
        for client, message in zip(clients or range(1, self.n_clients + 1), messages, strict=True):
            buffer = flat_bytes(message).copy()
            self.bytes_sent += buffer.size
            self._n_sent[client - 1] += 1
            self._downlinks[client - 1].put(buffer)

    def abort(self, reason: str) -> None:
        """See :class:`ServerLink`."""
        for downlink in self._downlinks:
            downlink.put(_Abort(reason))


class ThreadClientLink:
    """A client's end of the links between threads; made by :meth:`ThreadServerLink.client`."""

    def __init__(
        self,
        client: int,
        n_clients: int,
        uplink: queue.SimpleQueue,
        downlink: queue.SimpleQueue,
        latency: float,
        time_limit: float,
    ):
        self.client = client
        self.n_clients = n_clients
        self._uplink = uplink
        self._downlink = downlink
        self._latency = latency
        self._time_limit = CLIENT_WAIT_FACTOR * time_limit
        self._n_received = 0

    def send(self, message: np.ndarray) -> None:
        """See :class:`ClientLink`."""
        wait(self._latency)
        self._put(flat_bytes(message).copy())

    def receive(self, n_bytes: int) -> np.ndarray:
        """See :class:`ClientLink`."""
        try:
            message = self._downlink.get(timeout=self._time_limit)
        except queue.Empty:
            raise ProtocolError(f"the server sent nothing for {self._time_limit:g} s") from None
        if isinstance(message, _Abort):
            raise ProtocolError(f"the server ended the run: {message}")
        check_size("the server", len(message), n_bytes)
        self._n_received += 1
        return message

    def abort(self, reason: str) -> None:
        """See :class:`ClientLink`."""
        self._put(_Abort(reason))

    def _put(self, message: np.ndarray | _Abort) -> None:
        self._uplink.put((self.client, time.perf_counter(), self._n_received, message))
