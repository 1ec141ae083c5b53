"""The beginning of a run: parties check one another's identity and agree on keys.

Every party sends a hello (:mod:`pkm.federation.keys`) and gets those of all, checked by their
fingerprints. Every client then sends each other client a sealed box with its part of the group's
secret, and with shares of its secrets where the run recovers from clients that disappear. All keys
are derived with the hash of all hellos as salt: parties who were shown different ones share none.
"""

import hashlib
import os
from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from pkm.federation.keys import (
    SERVER,
    TAG_BYTES,
    Identity,
    hello,
    hello_bytes,
    open_box,
    pair_secrets,
    read_hello,
    seal,
)
from pkm.federation.links import ClientLink, ServerLink
from pkm.federation.masks import SECRET_BYTES, Masks, derive_key
from pkm.federation.recovery import SHARE_BYTES, RecoverableMasks, RoundSecrets, SurvivorSums
from pkm.federation.ring import Ring
from pkm.federation.sealed import SealedClientLink, SealedServerLink


def agree_as_client(
    link: ClientLink, identity: Identity, fingerprints: Sequence[str], n_rounds: int, ring: Ring
) -> tuple[SealedClientLink, Masks]:
    """Agree on keys, as a client.

    Parameters
    ----------
    link : ClientLink
    identity : Identity
    fingerprints : sequence of str
        Expected ones, of the server and of all clients.
    n_rounds : int
        Rounds that shall survive the loss of clients; 0 for a run without recovery.
    ring : Ring

    Returns
    -------
    link : SealedClientLink
        That only the server can read.
    masks : Masks

    Raises
    ------
    ProtocolError
        If a party is not who it should be, or sent a malformed key or box.
    """
    client = link.client
    n_clients = link.n_clients
    peers = [peer for peer in range(1, n_clients + 1) if peer != client]

    # Exchange signed public keys, through the server.
    private = X25519PrivateKey.generate()
    own = RoundSecrets.draw(n_rounds)
    keys = [private, *own.private_keys()]
    link.send(np.frombuffer(hello(identity, client, n_clients, keys), np.uint8))
    n_bytes = hello_bytes(1) + n_clients * hello_bytes(len(keys))
    hellos = link.receive(n_bytes).tobytes()
    public = _read_hellos(hellos, n_clients, len(keys), fingerprints)
    salt = hashlib.sha256(hellos).digest()
    others = {party: public[party][0] for party in (SERVER, *peers)}
    secrets = pair_secrets(private, others)

    # Exchange sealed boxes with all clients: parts of the group's secret, and shares.
    part = os.urandom(SECRET_BYTES)
    shares = own.shares(n_clients)
    boxes = [seal(secrets[peer], salt, client, peer, part + shares[peer]) for peer in peers]
    opened = {client: part + shares[client]}
    if peers:
        link.send(np.frombuffer(b"".join(boxes), np.uint8))
        box_bytes = _box_bytes(n_rounds)
        received = link.receive(len(peers) * box_bytes).reshape(-1, box_bytes)
        for peer, box in zip(peers, received, strict=True):
            opened[peer] = open_box(secrets[peer], salt, peer, client, box.tobytes())
    parts = b"".join(opened[member][:SECRET_BYTES] for member in sorted(opened))
    group_key = derive_key(parts, "group stream", salt)

    sealed = SealedClientLink(link, secrets[SERVER], salt)
    if n_rounds:
        held = {member: opened[member][SECRET_BYTES:] for member in sorted(opened)}
        round_keys = {peer: public[peer][1:] for peer in peers}
        return sealed, RecoverableMasks(client, own, round_keys, held, group_key, salt, ring)
    pair_keys = {peer: derive_key(secrets[peer], "mask stream", salt) for peer in peers}
    return sealed, Masks(client, pair_keys, group_key, ring)


def agree_as_server(
    link: ServerLink, identity: Identity, fingerprints: Sequence[str], n_rounds: int
) -> tuple[SealedServerLink, SurvivorSums | None]:
    """Relay the clients' keys and boxes, and agree with each of them, as the server.

    See :func:`agree_as_client`. Returns the link that only the clients can read, and the unmasking
    of sums where the run recovers.
    """
    n_clients = link.n_clients
    clients = range(1, n_clients + 1)

    # Send the hellos of all parties to all clients.
    private = X25519PrivateKey.generate()
    messages, _ = link.gather(hello_bytes(1 + n_rounds))
    own_hello = hello(identity, SERVER, n_clients, [private])
    hellos = own_hello + b"".join(message.tobytes() for message in messages)
    public = _read_hellos(hellos, n_clients, 1 + n_rounds, fingerprints)
    link.deliver([np.frombuffer(hellos, np.uint8)] * n_clients)
    salt = hashlib.sha256(hellos).digest()
    secrets = pair_secrets(private, {client: public[client][0] for client in clients})

    # Pass on the boxes: those of a client are in the order of their receivers.
    if n_clients > 1:
        messages, _ = link.gather((n_clients - 1) * _box_bytes(n_rounds))
        boxes = [list(message.reshape(n_clients - 1, -1)) for message in messages]
        for client, own_boxes in enumerate(boxes):
            own_boxes.insert(client, np.empty(0, np.uint8))
        link.deliver([np.concatenate(received) for received in zip(*boxes, strict=True)])

    sealed = SealedServerLink(link, secrets, salt)
    if not n_rounds:
        return sealed, None
    return sealed, SurvivorSums({client: public[client][1:] for client in clients}, salt)


def _box_bytes(n_rounds: int) -> int:
    """Size of a box: a part of the group's secret, and two shares for every round."""
    return SECRET_BYTES + 2 * n_rounds * SHARE_BYTES + TAG_BYTES


def _read_hellos(
    hellos: bytes, n_clients: int, n_keys: int, fingerprints: Sequence[str]
) -> list[list[X25519PublicKey]]:
    """Keys of all parties, the server first; checked."""
    first = hello_bytes(1)
    size = hello_bytes(n_keys)
    messages = [hellos[:first]]
    messages += [hellos[i : i + size] for i in range(first, len(hellos), size)]
    return [
        read_hello(message, party, n_clients, fingerprint)
        for party, (message, fingerprint) in enumerate(zip(messages, fingerprints, strict=True))
    ]
