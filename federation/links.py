"""Links between the clients and the server: buffers of stated sizes, counted, with time limits.

Beside each of its messages a client's link says how many it has received so far, so that one that came too often is not
taken for the next round's.

This is the contract and its in-process form, with parties that are threads; :mod:`pkm.federation.mpi` has the same between
processes. Clients count from 1. A link carries bytes and nothing else: what they mean follows from the protocol's
public schedule.
"""

import queue
import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np

PATIENCE = 2.0  # clients wait this many times longer than the server, so that it is the server who names who is late
_WAKE_UP = 2e-4  # seconds before a deadline at which sleeping is too coarse


class ProtocolError(RuntimeError):
    """A party died, stalled or sent what it must not; the message names it. No center is released."""


class ClientLink(Protocol):
    """A client's end: to and from the server."""

    client: int
    n_clients: int

    def send(self, message: np.ndarray) -> None:
        """Send a buffer."""

    def receive(self, n_bytes: int) -> np.ndarray:
        """Wait for a buffer of that size, uint8; raise ProtocolError if there is none in time."""

    def give_up(self, reason: str) -> None:
        """Tell the server that this client cannot go on."""


class ServerLink(Protocol):
    """The server's end; it counts the bytes that pass."""

    n_clients: int
    bytes_received: int
    bytes_sent: int

    def gather(
        self, n_bytes: int, clients: Sequence[int] | None = None
    ) -> tuple[list[np.ndarray], list[float]]:
        """Wait for a buffer of that size from each client, in their order, with the times of arrival."""

    def deliver(self, messages: Sequence[np.ndarray], clients: Sequence[int] | None = None) -> None:
        """Send a buffer to each client."""

    def give_up(self, reason: str) -> None:
        """Tell the clients that the run is over."""


def flat_bytes(message: np.ndarray) -> np.ndarray:
    """A buffer's bytes, uint8."""
    return np.ascontiguousarray(message).reshape(-1).view(np.uint8)


def check_size(party: str, size: int, n_bytes: int) -> None:
    """Refuse a message that is not of the size that the schedule says."""
    if size != n_bytes:
        raise ProtocolError(
            f"{party} sent a malformed message: {size} bytes where {n_bytes} were due"
        )


def check_turn(client: int, received: int, sent: int) -> None:
    """Refuse a message that answers another one than the last."""
    if received != sent:
        raise ProtocolError(f"client {client} sent a message where none was due")


def too_late(clients: Sequence[int], time_limit: float) -> ProtocolError:
    """What the server says when clients stall."""
    named = " and ".join(f"client {client}" for client in clients)
    return ProtocolError(f"{named} sent nothing for {time_limit:g} s (time_limit)")


def wait(seconds: float) -> None:
    """Wait, to within a few microseconds: sleep, then spin."""
    deadline = time.perf_counter() + seconds
    if seconds > _WAKE_UP:
        time.sleep(seconds - _WAKE_UP)
    while time.perf_counter() < deadline:
        pass


class _Farewell(str):
    """A party's last words, in place of a message."""


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
        self.n_clients, self._latency, self._time_limit = n_clients, latency, time_limit
        self._up, self._down = queue.SimpleQueue(), [queue.SimpleQueue() for _ in range(n_clients)]
        self._sent = [0] * n_clients
        self.bytes_received = self.bytes_sent = 0

    def client(self, client: int) -> "ThreadClientLink":
        """The other end."""
        return ThreadClientLink(
            client,
            self.n_clients,
            self._up,
            self._down[client - 1],
            self._latency,
            self._time_limit,
        )

    def gather(self, n_bytes, clients=None):
        """See :class:`ServerLink`."""
        clients = list(clients or range(1, self.n_clients + 1))
        found, deadline = {}, time.perf_counter() + self._time_limit
        while len(found) < len(clients):
            late = [client for client in clients if client not in found]
            try:
                client, arrival, received, message = self._up.get(
                    timeout=max(deadline - time.perf_counter(), 1e-3)
                )
            except queue.Empty:
                raise too_late(late, self._time_limit) from None
            if isinstance(message, _Farewell):
                raise ProtocolError(f"client {client} gave up: {message}")
            check_turn(client, received if client in late else -1, self._sent[client - 1])
            check_size(f"client {client}", len(message), n_bytes)
            found[client] = message, arrival
        self.bytes_received += n_bytes * len(clients)
        return [found[client][0] for client in clients], [found[client][1] for client in clients]

    def deliver(self, messages, clients=None):
        """See :class:`ServerLink`."""
        wait(self._latency)
        for client, message in zip(clients or range(1, self.n_clients + 1), messages, strict=True):
            buffer = flat_bytes(message).copy()
            self.bytes_sent += buffer.size
            self._sent[client - 1] += 1
            self._down[client - 1].put(buffer)

    def give_up(self, reason):
        """See :class:`ServerLink`."""
        for down in self._down:
            down.put(_Farewell(reason))


class ThreadClientLink:
    """A client's end of the links between threads; made by :meth:`ThreadServerLink.client`."""

    def __init__(self, client: int, n_clients: int, up, down, latency: float, time_limit: float):
        self.client, self.n_clients = client, n_clients
        self._up, self._down, self._latency, self._time_limit = up, down, latency, time_limit
        self._received = 0

    def send(self, message):
        """See :class:`ClientLink`."""
        wait(self._latency)
        self._up.put((self.client, time.perf_counter(), self._received, flat_bytes(message).copy()))

    def receive(self, n_bytes):
        """See :class:`ClientLink`."""
        try:
            message = self._down.get(timeout=PATIENCE * self._time_limit)
        except queue.Empty:
            raise ProtocolError(
                f"the server sent nothing for {PATIENCE * self._time_limit:g} s"
            ) from None
        if isinstance(message, _Farewell):
            raise ProtocolError(f"the server ended the run: {message}")
        check_size("the server", len(message), n_bytes)
        self._received += 1
        return message

    def give_up(self, reason):
        """See :class:`ClientLink`."""
        self._up.put((self.client, time.perf_counter(), self._received, _Farewell(reason)))
