"""The beginning of a run: parties check one another's identity and agree on keys.

Every party sends a hello (:mod:`pkm.federation.keys`) and receives those of all. It
checks them by their fingerprints. Every client then sends each other client an
encrypted message with random bytes, its contribution to the key of the group, that is,
of all clients. If the run recovers from clients that drop out, the message also holds
shares of the client's secrets.

The hash of all hellos is the salt of all keys. Parties that received different hellos
therefore share no key.
"""

import hashlib
import os
from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from pkm.federation.encrypted import EncryptedClientLink, EncryptedServerLink
from pkm.federation.keys import (
    TAG_BYTES,
    Identity,
    Terms,
    count_hello_bytes,
    decrypt_message,
    encrypt_message,
    exchange_secrets,
    read_hello,
    sign_hello,
)
from pkm.federation.links import SERVER, ClientLink, ServerLink, cut
from pkm.federation.masks import SECRET_BYTES, Masks, derive_key
from pkm.federation.recovery import (
    SHARE_BYTES,
    DropoutRecovery,
    RecoverableMasks,
    RoundKeys,
    RoundSecrets,
)
from pkm.federation.ring import Ring


def agree_as_client(
    link: ClientLink,
    identity: Identity,
    fingerprints: Sequence[str],
    terms: Terms,
    n_key_rounds: int,
    ring: Ring,
) -> tuple[EncryptedClientLink, Masks]:
    """Agree on keys, as a client.

    Parameters
    ----------
    link : ClientLink
    identity : Identity
    fingerprints : sequence of str
        Expected fingerprints of the server and of all clients.
    terms : mapping of str to object
        Public terms of the run, by name.
    n_key_rounds : int
        Number of rounds that have secret-shared keys of their own: all rounds if the
        run recovers, else 0.
    ring : Ring

    Returns
    -------
    link : EncryptedClientLink
        Link whose messages only the server can decrypt.
    masks : Masks

    Raises
    ------
    ProtocolError
        If a party is not who it should be, has other terms, or sent a malformed key or
        message.
    """
    client = link.client
    n_clients = link.n_clients
    peers = [peer for peer in range(1, n_clients + 1) if peer != client]

    # Exchange signed public keys, through the server.
    private = X25519PrivateKey.generate()
    own = RoundSecrets.draw(n_key_rounds)
    keys = [private, *own.derive_keys()]
    hello = sign_hello(identity, client, n_clients, terms, keys)
    link.send(hello)
    n_bytes = count_hello_bytes(1, len(terms)) + n_clients * len(hello)
    hellos = link.receive(n_bytes).tobytes()
    salt = hashlib.sha256(hellos).digest()
    secrets, round_keys = _read_hellos(
        hellos,
        client,
        private,
        n_key_rounds,
        fingerprints,
        terms,
    )

    # Exchange encrypted messages with all clients: contributions and shares.
    contribution = os.urandom(SECRET_BYTES)
    shares = own.share(n_clients)
    ciphertexts = b""
    for peer in peers:
        message = contribution + shares[peer]
        ciphertexts += encrypt_message(secrets[peer], salt, client, peer, message)
    messages = {client: contribution + shares[client]}
    if peers:
        link.send(ciphertexts)
        received = link.receive(len(ciphertexts)).tobytes()
        n_bytes = _count_message_bytes(n_key_rounds)
        for peer, ciphertext in zip(peers, cut(received, n_bytes), strict=True):
            messages[peer] = decrypt_message(
                secrets[peer], salt, peer, client, ciphertext
            )

    # The group's key depends on all contributions, in the order of the clients.
    contributions = b""
    for member in sorted(messages):
        contributions += messages[member][:SECRET_BYTES]
    group_key = derive_key(contributions, "group stream", salt)

    # Derive the masks.
    encrypted = EncryptedClientLink(link, secrets[SERVER], salt)
    if n_key_rounds:
        received_shares = {
            member: message[SECRET_BYTES:] for member, message in messages.items()
        }
        return encrypted, RecoverableMasks(
            client,
            own,
            round_keys,
            received_shares,
            group_key,
            salt,
            ring,
        )
    pair_keys = {}
    for peer in peers:
        pair_keys[peer] = derive_key(secrets[peer], "mask stream", salt)
    return encrypted, Masks(client, pair_keys, group_key, ring)


def agree_as_server(
    link: ServerLink,
    identity: Identity,
    fingerprints: Sequence[str],
    terms: Terms,
    n_key_rounds: int,
) -> tuple[EncryptedServerLink, DropoutRecovery | None]:
    """Relay the clients' hellos and messages; agree on keys with each, as the server.

    Parameters
    ----------
    link : ServerLink
    identity, fingerprints, terms, n_key_rounds
        See :func:`agree_as_client`.

    Returns
    -------
    link : EncryptedServerLink
        Link whose messages only the clients can decrypt.
    recovery : DropoutRecovery or None
        Takes masks off the sums, if the run recovers.
    """
    n_clients = link.n_clients

    # Collect the hellos of all clients, and send all parties' to all of them.
    private = X25519PrivateKey.generate()
    messages, _ = link.gather(count_hello_bytes(1 + n_key_rounds, len(terms)))
    hellos = sign_hello(identity, SERVER, n_clients, terms, [private])
    for message in messages:
        hellos += message.tobytes()
    secrets, round_keys = _read_hellos(
        hellos,
        SERVER,
        private,
        n_key_rounds,
        fingerprints,
        terms,
    )
    link.deliver([hellos] * n_clients)
    salt = hashlib.sha256(hellos).digest()

    # Pass on the clients' messages: those of a sender are in the order of receivers.
    if n_clients > 1:
        messages, _ = link.gather((n_clients - 1) * _count_message_bytes(n_key_rounds))
        received = [b""] * n_clients
        for sender, message in enumerate(messages):
            ciphertexts = cut(message.tobytes(), _count_message_bytes(n_key_rounds))
            # Nobody sends a message to itself.
            ciphertexts.insert(sender, b"")
            for receiver, ciphertext in enumerate(ciphertexts):
                received[receiver] += ciphertext
        link.deliver(received)

    encrypted = EncryptedServerLink(link, secrets, salt)
    if not n_key_rounds:
        return encrypted, None
    return encrypted, DropoutRecovery(round_keys, salt)


def _count_message_bytes(n_key_rounds: int) -> int:
    """Count a message's bytes: contribution, two shares per round, authentication."""
    return SECRET_BYTES + 2 * n_key_rounds * SHARE_BYTES + TAG_BYTES


def _read_hellos(
    hellos: bytes,
    party: int,
    private: X25519PrivateKey,
    n_key_rounds: int,
    fingerprints: Sequence[str],
    terms: Terms,
) -> tuple[dict[int, bytes], RoundKeys]:
    """Check the hellos of all parties, which are joined, the server's first.

    Returns
    -------
    secrets : dict of int to bytes
        Secret that this party shares with each other one.
    round_keys : dict of int to list of X25519PublicKey
        Public keys of each other party, one per round.
    """
    n_clients = len(fingerprints) - 1
    # The server's hello has one key, the clients' have one more per recovered round.
    n_first = count_hello_bytes(1, len(terms))
    n_other = count_hello_bytes(1 + n_key_rounds, len(terms))
    messages = [hellos[:n_first], *cut(hellos[n_first:], n_other)]
    public = {
        other: read_hello(message, other, n_clients, terms, fingerprints[other])
        for other, message in enumerate(messages)
    }
    del public[party]
    own_keys = {other: keys[0] for other, keys in public.items()}
    round_keys = {other: keys[1:] for other, keys in public.items()}
    return exchange_secrets(private, own_keys), round_keys
