"""Links whose messages only their two ends can read and write.

Messages are encrypted and authenticated with ChaCha20-Poly1305, with one key per
direction. An eavesdropper sees their sizes and times. Messages that are altered,
repeated or swapped end the run.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from pkm.federation.keys import NONCE_BYTES, TAG_BYTES
from pkm.federation.links import (
    SERVER,
    ClientLink,
    Message,
    ProtocolError,
    ServerLink,
    name_party,
    view_bytes,
)
from pkm.federation.masks import derive_key


class _Direction:
    """Encrypts or decrypts the messages from one end to the other, in their order.

    Parameters
    ----------
    secret : bytes
        Secret that the two ends share.
    purpose : str
        Purpose of the direction's key; see :func:`pkm.federation.masks.derive_key`.
    salt : bytes
        Salt of all keys of the run.
    sender : int
        Party that errors name.
    """

    def __init__(self, secret: bytes, purpose: str, salt: bytes, sender: int):
        self._cipher = ChaCha20Poly1305(derive_key(secret, purpose, salt))
        self._sender = sender
        self._n_messages = 0

    def _next_nonce(self) -> bytes:
        # The message's number: a repeated or swapped message is not authentic.
        self._n_messages += 1
        return self._n_messages.to_bytes(NONCE_BYTES, "little")

    def encrypt(self, message: Message) -> bytes:
        """Encrypt the next message, and append its authentication tag."""
        return self._cipher.encrypt(self._next_nonce(), view_bytes(message), None)

    def decrypt(self, ciphertext: np.ndarray) -> np.ndarray:
        """Check the authentication tag of the next message, and decrypt it; uint8."""
        try:
            message = self._cipher.decrypt(self._next_nonce(), ciphertext, None)
        except InvalidTag:
            raise ProtocolError(
                f"a message of {name_party(self._sender)} was altered on its way"
            ) from None
        return np.frombuffer(bytearray(message), np.uint8)


def _start_directions(
    secret: bytes, salt: bytes, client: int
) -> tuple[_Direction, _Direction]:
    """Start the directions from a client to the server and from it to the client."""
    up = _Direction(secret, "messages to the server", salt, client)
    down = _Direction(secret, "messages to the client", salt, SERVER)
    return up, down


class EncryptedClientLink:
    """A client's end; see :class:`pkm.federation.links.ClientLink`.

    Parameters
    ----------
    link : ClientLink
    secret : bytes
        Secret that the client shares with the server.
    salt : bytes
        Salt of all keys of the run.
    """

    def __init__(self, link: ClientLink, secret: bytes, salt: bytes):
        self.client = link.client
        self.n_clients = link.n_clients
        self._link = link
        self._up, self._down = _start_directions(secret, salt, link.client)

    def send(self, message: Message) -> None:
        """Encrypt and send a buffer."""
        self._link.send(self._up.encrypt(message))

    def receive(self, n_bytes: int) -> np.ndarray:
        """Receive and decrypt a buffer of that size.

        Raises
        ------
        ProtocolError
            If it was altered, or is not the server's next message.
        """
        return self._down.decrypt(self._link.receive(n_bytes + TAG_BYTES))


class EncryptedServerLink:
    """The server's end; see :class:`pkm.federation.links.ServerLink`.

    Parameters
    ----------
    link : ServerLink
    secrets : mapping of int to bytes
        Secret that the server shares with each client.
    salt : bytes
        Salt of all keys of the run.

    Attributes
    ----------
    n_bytes : int
        Size of all messages in both directions, without their authentication tags.
    """

    def __init__(self, link: ServerLink, secrets: Mapping[int, bytes], salt: bytes):
        self.n_clients = link.n_clients
        self.dropped = link.dropped
        self.n_bytes = 0
        self._link = link
        self._directions = {
            client: _start_directions(secret, salt, client)
            for client, secret in secrets.items()
        }

    @property
    def remaining(self) -> list[int]:
        """Clients that have not dropped out."""
        return self._link.remaining

    def gather(
        self, n_bytes: int, recover: bool = False
    ) -> tuple[list[np.ndarray], list[float]]:
        """Gather and decrypt a buffer of that size from each remaining client.

        Raises
        ------
        ProtocolError
            If one was altered, or is not its client's next message.
        """
        ciphertexts, arrivals = self._link.gather(n_bytes + TAG_BYTES, recover)
        self.n_bytes += n_bytes * len(ciphertexts)
        messages = []
        for client, ciphertext in zip(self.remaining, ciphertexts, strict=True):
            up, _ = self._directions[client]
            messages.append(up.decrypt(ciphertext))
        return messages, arrivals

    def deliver(self, messages: Sequence[Message]) -> None:
        """Encrypt and send a buffer to each remaining client."""
        ciphertexts = []
        for client, message in zip(self.remaining, messages, strict=True):
            _, down = self._directions[client]
            ciphertexts.append(down.encrypt(message))
            self.n_bytes += len(view_bytes(message))
        self._link.deliver(ciphertexts)
