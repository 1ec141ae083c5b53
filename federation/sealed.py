"""Links whose messages only their two ends can read: somebody with a tap on the wire learns sizes.

Messages keep their size: they are encrypted with AES-256 in counter mode, one key per direction,
and not authenticated. Whoever alters bytes on the wire can spoil a result; he cannot read.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import CipherContext

from pkm.federation.links import ClientLink, ServerLink, flat_bytes
from pkm.federation.masks import derive_key, keystream


def _ciphers(secret: bytes, salt: bytes) -> tuple[CipherContext, CipherContext]:
    """Streams of the messages to the server and of those to the client."""
    up = keystream(derive_key(secret, "messages to the server", salt))
    down = keystream(derive_key(secret, "messages to the client", salt))
    return up, down


def _apply(cipher: CipherContext, message: np.ndarray) -> np.ndarray:
    """Encrypt or decrypt a message with the next bytes of a stream; uint8."""
    return np.frombuffer(cipher.update(flat_bytes(message).data), np.uint8)


class SealedClientLink:
    """A client's end; see :class:`pkm.federation.links.ClientLink`.

    Parameters
    ----------
    link : ClientLink
    secret : bytes
        Shared with the server.
    salt : bytes
        Of the run.
    """

    def __init__(self, link: ClientLink, secret: bytes, salt: bytes):
        self.client = link.client
        self.n_clients = link.n_clients
        self._link = link
        self._up, self._down = _ciphers(secret, salt)

    def send(self, message: np.ndarray) -> None:
        """See :class:`pkm.federation.links.ClientLink`."""
        self._link.send(_apply(self._up, message))

    def receive(self, n_bytes: int) -> np.ndarray:
        """See :class:`pkm.federation.links.ClientLink`."""
        return _apply(self._down, self._link.receive(n_bytes))

    def abort(self, reason: str) -> None:
        """See :class:`pkm.federation.links.ClientLink`."""
        self._link.abort(reason)


class SealedServerLink:
    """The server's end; see :class:`pkm.federation.links.ServerLink`.

    Parameters
    ----------
    link : ServerLink
    secrets : mapping of int to bytes
        Shared with each client.
    salt : bytes
        Of the run.
    """

    def __init__(self, link: ServerLink, secrets: Mapping[int, bytes], salt: bytes):
        self.n_clients = link.n_clients
        self.lost = link.lost
        self._link = link
        self._ciphers = {client: _ciphers(secret, salt) for client, secret in secrets.items()}

    @property
    def bytes_received(self) -> int:
        """See :class:`pkm.federation.links.ServerLink`."""
        return self._link.bytes_received

    @property
    def bytes_sent(self) -> int:
        """See :class:`pkm.federation.links.ServerLink`."""
        return self._link.bytes_sent

    def gather(
        self, n_bytes: int, clients: Sequence[int] | None = None, recover: bool = False
    ) -> tuple[list[np.ndarray], list[float]]:
        """See :class:`pkm.federation.links.ServerLink`."""
        clients = list(clients or range(1, self.n_clients + 1))
        sealed, arrivals = self._link.gather(n_bytes, clients, recover)
        arrived = [client for client in clients if client not in self.lost]
        messages = [
            _apply(self._ciphers[client][0], message)
            for client, message in zip(arrived, sealed, strict=True)
        ]
        return messages, arrivals

    def deliver(self, messages: Sequence[np.ndarray], clients: Sequence[int] | None = None) -> None:
        """See :class:`pkm.federation.links.ServerLink`."""
        clients = list(clients or range(1, self.n_clients + 1))
        sealed = [
            _apply(self._ciphers[client][1], message)
            for client, message in zip(clients, messages, strict=True)
        ]
        self._link.deliver(sealed, clients)

    def abort(self, reason: str) -> None:
        """See :class:`pkm.federation.links.ServerLink`."""
        self._link.abort(reason)
