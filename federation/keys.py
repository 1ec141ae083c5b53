"""Keys: long-term identities with fingerprints, signed X25519 keys, secrets of pairs, sealed boxes.

A party's hello is its Ed25519 identity, fresh X25519 keys, and the identity's signature of them.
Parties know one another's fingerprints beforehand, so that whoever relays the keys cannot replace
them.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from pkm.federation.links import ProtocolError
from pkm.federation.masks import derive_key

PUBLIC_BYTES = 32
SIGNATURE_BYTES = 64
TAG_BYTES = 16  # of a sealed box
SERVER = 0  # the server's number among the parties; clients count from 1
_NO_NONCE = bytes(12)  # every key seals one box


class Identity:
    """A party's long-term Ed25519 key.

    Attributes
    ----------
    fingerprint : str
        SHA-256 of the public key, in hexadecimal: the other parties are given it beforehand.

    Examples
    --------
    >>> identity = Identity.generate()
    >>> len(identity.fingerprint)
    64
    """

    def __init__(self, private: Ed25519PrivateKey):
        self._private = private
        self.public = private.public_key().public_bytes_raw()
        self.fingerprint = fingerprint_of(self.public)

    @classmethod
    def generate(cls) -> "Identity":
        """A new identity."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: str | Path) -> "Identity":
        """Read an identity from a file that nobody but its owner can read."""
        mode = os.stat(path).st_mode & 0o777
        if mode & 0o077:
            raise ValueError(f"path={str(path)!r} has mode {mode:o}, it must be 600: a private key")
        try:
            private = load_pem_private_key(Path(path).read_bytes(), password=None)
        except (ValueError, TypeError):
            private = None
        if not isinstance(private, Ed25519PrivateKey):
            raise ValueError(f"path={str(path)!r} must hold an Ed25519 private key")
        return cls(private)

    def save(self, path: str | Path) -> None:
        """Write the identity to a new file of mode 600, unencrypted."""
        pem = self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(pem)

    def sign(self, message: bytes) -> bytes:
        """Sign a message."""
        return self._private.sign(message)


def fingerprint_of(public: bytes) -> str:
    """Fingerprint of the public key of an identity."""
    return hashlib.sha256(public).hexdigest()


def party_name(party: int) -> str:
    """Name of a party in messages."""
    return "the server" if party == SERVER else f"client {party}"


def hello_bytes(n_keys: int) -> int:
    """Size of a hello with that many keys."""
    return PUBLIC_BYTES * (1 + n_keys) + SIGNATURE_BYTES


def hello(
    identity: Identity, party: int, n_clients: int, keys: Sequence[X25519PrivateKey]
) -> bytes:
    """A party's public identity, its public keys, and their signature."""
    public = b"".join(key.public_key().public_bytes_raw() for key in keys)
    return identity.public + public + identity.sign(_statement(party, n_clients, public))


def read_hello(
    message: bytes, party: int, n_clients: int, fingerprint: str
) -> list[X25519PublicKey]:
    """Check a hello, and return its keys.

    Raises
    ------
    ProtocolError
        If the identity is another than the fingerprint says, or did not sign the keys.
    """
    identity = message[:PUBLIC_BYTES]
    public = message[PUBLIC_BYTES:-SIGNATURE_BYTES]
    name = party_name(party)
    if fingerprint_of(identity) != fingerprint:
        raise ProtocolError(
            f"{name} has the fingerprint {fingerprint_of(identity)}, not {fingerprint} as expected"
        )
    try:
        statement = _statement(party, n_clients, public)
        Ed25519PublicKey.from_public_bytes(identity).verify(message[-SIGNATURE_BYTES:], statement)
    except (InvalidSignature, ValueError):
        raise ProtocolError(f"{name} sent keys that its identity did not sign") from None
    starts = range(0, len(public), PUBLIC_BYTES)
    return [X25519PublicKey.from_public_bytes(public[i : i + PUBLIC_BYTES]) for i in starts]


def _statement(party: int, n_clients: int, public: bytes) -> bytes:
    """What a hello's signature is about."""
    return f"private k-means bench: keys of party {party} of {n_clients}: ".encode() + public


def pair_secrets(
    private: X25519PrivateKey, public: Mapping[int, X25519PublicKey]
) -> dict[int, bytes]:
    """Secret that a party shares with each of some others (X25519), by their number."""
    secrets = {}
    for party, key in public.items():
        try:
            secrets[party] = private.exchange(key)
        except ValueError as error:
            name = party_name(party)
            raise ProtocolError(f"{name} sent a malformed public key: {error}") from None
    return secrets


def seal(secret: bytes, salt: bytes, sender: int, receiver: int, message: bytes) -> bytes:
    """Seal the one box that a client sends to another one, under their secret."""
    return _box_cipher(secret, salt, sender, receiver).encrypt(_NO_NONCE, message, None)


def open_box(secret: bytes, salt: bytes, sender: int, receiver: int, box: bytes) -> bytes:
    """Open a box; raise ProtocolError if it was not sealed for this client in this run."""
    try:
        return _box_cipher(secret, salt, sender, receiver).decrypt(_NO_NONCE, box, None)
    except InvalidTag:
        raise ProtocolError(
            f"client {sender} sent a malformed box: it was not sealed for this client"
        ) from None


def _box_cipher(secret: bytes, salt: bytes, sender: int, receiver: int) -> ChaCha20Poly1305:
    return ChaCha20Poly1305(derive_key(secret, f"box from {sender} to {receiver}", salt))
