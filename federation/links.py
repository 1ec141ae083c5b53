"""Links between the clients and the server: buffers of stated sizes, with time limits.

A link follows the protocol's rules, and a transport moves its bytes. The transport here
serves parties that are threads of one process; :mod:`pkm.federation.mpi` has the one
for processes. A link carries bytes and nothing else. Their meaning follows from the
protocol's public schedule.

Every message has a header, an integer. That of a client's message counts the messages
that the client has received. So the server does not mistake a duplicate for the message
of the next round.
"""

import queue
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

SERVER = 0  # the server's number among the parties; clients count from 1
# Headers. A client's message has MESSAGE plus the number of messages that the client
# has received.
ABORT = 0  # the sender stops, or goes on without the receiver, and says why
BREACH = 1  # a client ends the run, and says which party broke the protocol
MESSAGE = 2
Message = bytes | np.ndarray
#: Clients wait this many times longer than the server, so that the server names the
#: late client.
CLIENT_WAIT_FACTOR = 2.0
_SPIN_SECONDS = 2e-4  # before a deadline, in which sleeping is too coarse


class ProtocolError(RuntimeError):
    """A party stopped, sent nothing in time, broke the protocol or is an impostor."""


class Packet(NamedTuple):
    """What a transport delivers.

    Attributes
    ----------
    sender : int
    arrival : float
        Seconds, by ``time.perf_counter``.
    header : int
        ``ABORT``, ``BREACH``, or ``MESSAGE`` plus a count.
    message : ndarray of uint8
    """

    sender: int
    arrival: float
    header: int
    message: np.ndarray


class Transport(Protocol):
    """Moves the bytes of one party to and from the others."""

    def put(
        self,
        receiver: int,
        header: int,
        message: Message,
    ) -> None:
        """Send a contiguous buffer without waiting for its arrival."""

    def get(self, time_limit: float) -> Packet | None:
        """Wait for the next packet; return None if none arrives in time."""
        ...


@dataclass(eq=False)
class ClientLink:
    """A client's end of a link to the server.

    Parameters
    ----------
    transport : Transport
    client : int
    n_clients : int
    latency : float
        Seconds that every send takes.
    time_limit : float
        Seconds that the server waits; the client waits longer.
    """

    transport: Transport
    client: int
    n_clients: int
    latency: float
    time_limit: float
    _n_received: int = 0

    def send(self, message: Message) -> None:
        """Send a buffer."""
        wait(self.latency)
        self.transport.put(SERVER, MESSAGE + self._n_received, message)

    def receive(self, n_bytes: int) -> np.ndarray:
        """Wait for a buffer of that size, uint8.

        Raises
        ------
        ProtocolError
            If none arrives in time, or the server has ended the run.
        """
        time_limit = CLIENT_WAIT_FACTOR * self.time_limit
        packet = self.transport.get(time_limit)
        if packet is None:
            raise ProtocolError(f"the server sent nothing for {time_limit:g} s")
        if packet.header == ABORT:
            reason = packet.message.tobytes().decode()
            raise ProtocolError(f"the server ended the run: {reason}")
        check_size(packet, n_bytes)
        self._n_received += 1
        return packet.message

    def abort(self, error: Exception) -> None:
        """Send the server the reason why this client cannot go on.

        If a party broke the protocol, as by an altered message, the whole run ends.
        """
        header = BREACH if isinstance(error, ProtocolError) else ABORT
        self.transport.put(SERVER, header, describe(error).encode())


@dataclass(eq=False)
class ServerLink:
    """The server's end of its links to all clients.

    Parameters
    ----------
    transport : Transport
    n_clients : int
    latency : float
        Seconds that every send takes.
    time_limit : float
        Seconds to wait for the clients.

    Attributes
    ----------
    dropped : dict of int to str
        Clients that dropped out (they stopped or sent nothing in time), with the
        reasons. The server has told them the reason, and ignores what they send later.
    """

    transport: Transport
    n_clients: int
    latency: float
    time_limit: float
    dropped: dict[int, str] = field(default_factory=dict)
    _n_delivered: int = 0
    _stopped: dict[int, str] = field(default_factory=dict)

    @property
    def remaining(self) -> list[int]:
        """Clients that have not dropped out."""
        clients = range(1, self.n_clients + 1)
        return [client for client in clients if client not in self.dropped]

    def gather(
        self, n_bytes: int, recover: bool = False
    ) -> tuple[list[np.ndarray], list[float]]:
        """Wait for a buffer of that size from each remaining client.

        Parameters
        ----------
        n_bytes : int
        recover : bool, default=False
            Go on without clients that stop or send nothing in time, instead of ending
            the run.

        Returns
        -------
        messages : list of ndarray of uint8
            Messages of the clients that remain.
        arrivals : list of float
            When the messages arrived.
        """
        deadline = time.perf_counter() + self.time_limit
        received: dict[int, Packet] = {}
        for client, reason in self._stopped.items():
            self._drop(client, reason, recover)
        self._stopped.clear()

        # Until the deadline, or until no remaining client is late.
        while late := [client for client in self.remaining if client not in received]:
            packet = self.transport.get(max(deadline - time.perf_counter(), 0.0))
            if packet is None:
                names = " and ".join(map(name_party, late))
                reason = f"{names} sent nothing for {self.time_limit:g} s (time_limit)"
                for client in late:
                    self._drop(client, reason, recover)
                break

            client = packet.sender
            name = name_party(client)
            if client in self.dropped:
                continue
            if packet.header in (ABORT, BREACH):
                reason = f"{name} stopped: {packet.message.tobytes().decode()}"
                if packet.header == BREACH:
                    raise ProtocolError(reason)
                if recover and client in received:
                    # Its message has arrived and counts: the next call drops it.
                    self._stopped[client] = reason
                else:
                    self._drop(client, reason, recover)
                continue
            if client in received or packet.header != MESSAGE + self._n_delivered:
                raise ProtocolError(f"{name} sent a message where none was due")
            check_size(packet, n_bytes)
            received[client] = packet

        packets = [received[client] for client in self.remaining]
        messages = [packet.message for packet in packets]
        return messages, [packet.arrival for packet in packets]

    def _drop(
        self,
        client: int,
        reason: str,
        recover: bool,
    ) -> None:
        """Go on without a client, or end the run."""
        if not recover:
            raise ProtocolError(reason)
        self.dropped[client] = reason
        self.transport.put(client, ABORT, reason.encode())

    def deliver(self, messages: Sequence[Message]) -> None:
        """Send a buffer to each remaining client."""
        wait(self.latency)
        self._n_delivered += 1
        for client, message in zip(self.remaining, messages, strict=True):
            self.transport.put(client, MESSAGE, message)

    def abort(self, error: Exception) -> None:
        """Send the remaining clients the reason why the run ends."""
        for client in self.remaining:
            self.transport.put(client, ABORT, describe(error).encode())


def announce_remaining(link: ServerLink) -> None:
    """Tell the remaining clients which clients remain."""
    flags = [client not in link.dropped for client in range(1, link.n_clients + 1)]
    link.deliver([bytes(flags)] * sum(flags))


def receive_remaining(link: ClientLink) -> list[int]:
    """Receive which clients remain."""
    flags = link.receive(link.n_clients)
    return (np.flatnonzero(flags) + 1).tolist()


def name_party(party: int) -> str:
    """Name a party in a message."""
    return "the server" if party == SERVER else f"client {party}"


def describe(error: Exception) -> str:
    """Say in a message to other parties why a party stops."""
    is_known = isinstance(error, ProtocolError)
    return str(error) if is_known else f"{type(error).__name__}: {error}"


def view_bytes(message: Message) -> np.ndarray:
    """View a contiguous buffer as bytes, uint8."""
    return np.frombuffer(message, np.uint8)


def cut(sequence: Any, size: int) -> list[Any]:
    """Cut bytes or a list into consecutive pieces of a size; the last may be shorter.

    Examples
    --------
    >>> cut(b"abcde", 2)
    [b'ab', b'cd', b'e']
    """
    return [sequence[i : i + size] for i in range(0, len(sequence), size)]


def check_size(packet: Packet, n_bytes: int) -> None:
    """Refuse a message that is not of the size that the schedule states."""
    size = len(packet.message)
    if size != n_bytes:
        raise ProtocolError(
            f"{name_party(packet.sender)} sent a malformed message: {size} bytes where "
            f"{n_bytes} were due"
        )


def wait(seconds: float) -> None:
    """Wait, to within a few microseconds: sleep, then poll the clock."""
    deadline = time.perf_counter() + seconds
    if seconds > _SPIN_SECONDS:
        time.sleep(seconds - _SPIN_SECONDS)
    while time.perf_counter() < deadline:
        pass


@dataclass
class ThreadTransport:
    """Moves bytes between threads; see :class:`Transport`.

    Parameters
    ----------
    party : int
        The party that it belongs to.
    mailboxes : sequence of SimpleQueue
        One per party, for the packets that are sent to it.
    """

    party: int
    mailboxes: Sequence[queue.SimpleQueue]

    def put(
        self,
        receiver: int,
        header: int,
        message: Message,
    ) -> None:
        """See :class:`Transport`."""
        arrival = time.perf_counter()
        packet = Packet(self.party, arrival, header, view_bytes(message).copy())
        self.mailboxes[receiver].put(packet)

    def get(self, time_limit: float) -> Packet | None:
        """See :class:`Transport`."""
        try:
            return self.mailboxes[self.party].get(timeout=time_limit)
        except queue.Empty:
            return None


class ThreadServerLink(ServerLink):
    """The server's end of its links to clients that are threads.

    Parameters
    ----------
    n_clients, latency, time_limit
        See :class:`ServerLink`.
    """

    def __init__(
        self,
        n_clients: int,
        latency: float,
        time_limit: float,
    ):
        mailboxes = [queue.SimpleQueue() for _ in range(n_clients + 1)]
        transport = ThreadTransport(SERVER, mailboxes)
        super().__init__(transport, n_clients, latency, time_limit)

    def client(self, client: int) -> ClientLink:
        """Open a client's end."""
        transport = replace(self.transport, party=client)
        return ClientLink(
            transport, client, self.n_clients, self.latency, self.time_limit
        )
