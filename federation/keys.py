"""A secret that the clients share and the server does not: X25519 between each client and the first, relayed.

The server sees public keys and sealed boxes. It is trusted to pass them on unchanged (semi-honest); keys are not
authenticated.
"""

import os

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from pkm.federation.links import ClientLink, ProtocolError, ServerLink
from pkm.federation.masks import SECRET_BYTES, derived

PUBLIC_BYTES = 32
BOX_BYTES = SECRET_BYTES + 16  # with the seal
_NO_NONCE = bytes(12)  # every key seals one box


def agree(link: ClientLink) -> bytes:
    """Agree on a fresh secret, as one of the clients: public keys all round, then boxes from the first client.

    Raises
    ------
    ProtocolError
        If a public key is degenerate or a box was not sealed for this client.
    """
    if link.n_clients == 1:
        return os.urandom(SECRET_BYTES)
    private = X25519PrivateKey.generate()
    own = private.public_key().public_bytes_raw()
    link.send(np.frombuffer(own, np.uint8))
    public = link.receive(link.n_clients * PUBLIC_BYTES).reshape(-1, PUBLIC_BYTES)

    def box_key(client: int) -> bytes:
        try:
            common = private.exchange(
                X25519PublicKey.from_public_bytes(public[client - 1].tobytes())
            )
        except ValueError as error:
            raise ProtocolError(f"client {client} sent a malformed public key: {error}") from None
        return derived(common, "box", salt=public.tobytes())

    if link.client == 1:
        secret = os.urandom(SECRET_BYTES)
        sealed = [
            ChaCha20Poly1305(box_key(client)).encrypt(_NO_NONCE, secret, bytes([client % 256]))
            for client in range(2, link.n_clients + 1)
        ]
        link.send(np.frombuffer(b"".join(sealed), np.uint8))
        return secret
    box = link.receive(BOX_BYTES).tobytes()
    try:
        return ChaCha20Poly1305(box_key(1)).decrypt(_NO_NONCE, box, bytes([link.client % 256]))
    except InvalidTag:
        raise ProtocolError(
            "client 1 sent a malformed box: it was not sealed for this client"
        ) from None


def relay(link: ServerLink) -> None:
    """Pass on public keys and boxes, as the server."""
    if link.n_clients == 1:
        return
    public, _ = link.gather(PUBLIC_BYTES)
    link.deliver([np.concatenate(public)] * link.n_clients)
    (boxes,), _ = link.gather((link.n_clients - 1) * BOX_BYTES, clients=[1])
    link.deliver(list(boxes.reshape(-1, BOX_BYTES)), clients=range(2, link.n_clients + 1))
