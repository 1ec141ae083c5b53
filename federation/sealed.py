"""Links whose messages only their two ends can read: a tap on the wire shows sizes.

Messages keep their size. They are encrypted with AES-256 in counter mode, one key per
direction, and not authenticated. Whoever alters bytes on the wire can spoil a result,
and can read nothing.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from pkm.federation.links import ClientLink, Message, ServerLink, view_bytes
from pkm.federation.masks import KeyStream, derive_key

UP = 0  # the direction of messages to the server
DOWN = 1


def _start_streams(
    secret: bytes,
    salt: bytes,
) -> tuple[KeyStream, KeyStream]:
    """Start the streams of the messages to the server and to the client."""
    up = KeyStream(derive_key(secret, "messages to the server", salt))
    down = KeyStream(derive_key(secret, "messages to the client", salt))
    return up, down


def _apply(
    stream: KeyStream,
    message: Message,
) -> np.ndarray:
    """Encrypt or decrypt a message with the next bytes of a stream; uint8."""
    words = view_bytes(message)
    return words ^ stream.next(words.shape, words.dtype)


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

    def __init__(
        self,
        link: ClientLink,
        secret: bytes,
        salt: bytes,
    ):
        self.client = link.client
        self.n_clients = link.n_clients
        self._link = link
        self._up, self._down = _start_streams(secret, salt)

    def send(self, message: Message) -> None:
        """Encrypt and send a buffer."""
        self._link.send(_apply(self._up, message))

    def receive(self, n_bytes: int) -> np.ndarray:
        """Receive and decrypt a buffer of that size."""
        return _apply(self._down, self._link.receive(n_bytes))


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

    def __init__(
        self,
        link: ServerLink,
        secrets: Mapping[int, bytes],
        salt: bytes,
    ):
        self.n_clients = link.n_clients
        self.lost = link.lost
        self._link = link
        self._streams = {
            client: _start_streams(secret, salt) for client, secret in secrets.items()
        }

    @property
    def remaining(self) -> list[int]:
        """Clients that are not lost."""
        return self._link.remaining

    def gather(
        self, n_bytes: int, recover: bool = False
    ) -> tuple[list[np.ndarray], list[float]]:
        """Gather and decrypt a buffer of that size from each remaining client."""
        sealed, arrivals = self._link.gather(n_bytes, recover)
        return self._apply_all(sealed, UP), arrivals

    def deliver(self, messages: Sequence[Message]) -> None:
        """Encrypt and send a buffer to each remaining client."""
        self._link.deliver(self._apply_all(messages, DOWN))

    def _apply_all(
        self, messages: Sequence[Message], direction: int
    ) -> list[np.ndarray]:
        """Encrypt or decrypt the messages of the remaining clients."""
        return [
            _apply(self._streams[client][direction], message)
            for client, message in zip(self.remaining, messages, strict=True)
        ]
