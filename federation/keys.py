"""A secret shared by the clients and unknown to the server: X25519 with the first client, relayed.

The server sees public keys and sealed boxes. It is trusted to pass them on unchanged (semi-honest);
keys are not authenticated.
"""

import os

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from pkm.federation.links import ClientLink, ProtocolError, ServerLink
from pkm.federation.masks import SECRET_BYTES, derive_key

PUBLIC_BYTES = 32
BOX_BYTES = SECRET_BYTES + 16  # with the authentication tag
_NO_NONCE = bytes(12)  # every key seals one box


def agree_on_secret(link: ClientLink) -> bytes:
    """Agree on a fresh secret, as a client: exchange public keys, then boxes of the first client.

    Raises
    ------
    ProtocolError
        If a public key is degenerate or a box was not sealed for this client.
    """
    if link.n_clients == 1:
        return os.urandom(SECRET_BYTES)

    # Exchange public keys with all clients, through the server.
    private = X25519PrivateKey.generate()
    link.send(np.frombuffer(private.public_key().public_bytes_raw(), np.uint8))
    public = link.receive(link.n_clients * PUBLIC_BYTES).reshape(-1, PUBLIC_BYTES)

    # The first client draws the secret and seals it for each of the others.
    if link.client == 1:
        secret = os.urandom(SECRET_BYTES)
        boxes = [
            ChaCha20Poly1305(_box_key(private, public, client)).encrypt(
                _NO_NONCE, secret, bytes([client % 256])
            )
            for client in range(2, link.n_clients + 1)
        ]
        link.send(np.frombuffer(b"".join(boxes), np.uint8))
        return secret

    # The others open their box.
    box = link.receive(BOX_BYTES).tobytes()
    cipher = ChaCha20Poly1305(_box_key(private, public, 1))
    try:
        return cipher.decrypt(_NO_NONCE, box, bytes([link.client % 256]))
    except InvalidTag:
        raise ProtocolError(
            "client 1 sent a malformed box: it was not sealed for this client"
        ) from None


def _box_key(private: X25519PrivateKey, public: np.ndarray, client: int) -> bytes:
    """Key of the box between this client and another one, bound to the public keys of all."""
    try:
        peer = X25519PublicKey.from_public_bytes(public[client - 1].tobytes())
        common = private.exchange(peer)
    except ValueError as error:
        raise ProtocolError(f"client {client} sent a malformed public key: {error}") from None
    return derive_key(common, "box", salt=public.tobytes())


def relay(link: ServerLink) -> None:
    """Pass on public keys and boxes, as the server."""
    if link.n_clients == 1:
        return
    public, _ = link.gather(PUBLIC_BYTES)
    link.deliver([np.concatenate(public)] * link.n_clients)
    (boxes,), _ = link.gather((link.n_clients - 1) * BOX_BYTES, clients=[1])
    link.deliver(list(boxes.reshape(-1, BOX_BYTES)), clients=range(2, link.n_clients + 1))
