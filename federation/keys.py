"""Keys: identities with fingerprints, signed keys, secrets of pairs, sealed boxes.

A party's hello has its Ed25519 identity, fresh X25519 keys, and the identity's
signature of them. Parties know one another's fingerprints beforehand. Whoever relays
the keys can therefore not replace them.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from pkm.federation.links import ProtocolError, cut, name_party
from pkm.federation.masks import derive_key

PUBLIC_BYTES = 32
SIGNATURE_BYTES = 64
TAG_BYTES = 16  # of a sealed box
_NO_NONCE = bytes(12)  # every key seals one box


class Identity:
    """A party's long-term Ed25519 key.

    Attributes
    ----------
    private : Ed25519PrivateKey
    public : bytes
        Public key.
    fingerprint : str
        SHA-256 of the public key, in hexadecimal. The other parties know it beforehand.

    Examples
    --------
    >>> identity = Identity.generate()
    >>> len(identity.fingerprint)
    64
    """

    def __init__(self, private: Ed25519PrivateKey):
        self.private = private
        self.public = private.public_key().public_bytes_raw()
        self.fingerprint = compute_fingerprint(self.public)

    @classmethod
    def generate(cls) -> "Identity":
        """Generate a new identity."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: str | Path) -> "Identity":
        """Read an identity from a file that nobody but its owner can read."""
        mode = os.stat(path).st_mode & 0o777
        if mode & 0o077:
            raise ValueError(
                f"path={str(path)!r} has mode {mode:o}, it must be 600: a private key"
            )
        try:
            private = load_pem_private_key(Path(path).read_bytes(), password=None)
        except (ValueError, TypeError):
            private = None
        if not isinstance(private, Ed25519PrivateKey):
            raise ValueError(f"path={str(path)!r} must hold an Ed25519 private key")
        return cls(private)

    def save(self, path: str | Path) -> None:
        """Write the identity to a new file of mode 600, unencrypted."""
        pem = self.private.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            file.write(pem)


def compute_fingerprint(public: bytes) -> str:
    """Compute the fingerprint of the public key of an identity."""
    return hashlib.sha256(public).hexdigest()


def count_hello_bytes(n_keys: int) -> int:
    """Count the bytes of a hello with that many keys."""
    return PUBLIC_BYTES * (1 + n_keys) + SIGNATURE_BYTES


def sign_hello(
    identity: Identity, party: int, n_clients: int, keys: Sequence[X25519PrivateKey]
) -> bytes:
    """Join a party's public identity, its public keys, and their signature."""
    public = b"".join(key.public_key().public_bytes_raw() for key in keys)
    signature = identity.private.sign(_state_keys(party, n_clients, public))
    return identity.public + public + signature


def read_hello(
    message: bytes, party: int, n_clients: int, fingerprint: str
) -> list[X25519PublicKey]:
    """Check a hello, and return its keys.

    Raises
    ------
    ProtocolError
        If the identity does not fit the fingerprint, or did not sign the keys.
    """
    identity = message[:PUBLIC_BYTES]
    public = message[PUBLIC_BYTES:-SIGNATURE_BYTES]
    name = name_party(party)
    actual = compute_fingerprint(identity)
    if actual != fingerprint:
        raise ProtocolError(
            f"{name} has the fingerprint {actual}, not {fingerprint} as expected"
        )
    statement = _state_keys(party, n_clients, public)
    try:
        verifier = Ed25519PublicKey.from_public_bytes(identity)
        verifier.verify(message[-SIGNATURE_BYTES:], statement)
    except (InvalidSignature, ValueError):
        message = f"{name} sent keys that its identity did not sign"
        raise ProtocolError(message) from None
    keys = cut(public, PUBLIC_BYTES)
    return [X25519PublicKey.from_public_bytes(key) for key in keys]


def _state_keys(party: int, n_clients: int, public: bytes) -> bytes:
    """State what a hello's signature is about."""
    purpose = f"private k-means bench: keys of party {party} of {n_clients}: "
    return purpose.encode() + public


def exchange_secrets(
    private: X25519PrivateKey, public: Mapping[int, X25519PublicKey]
) -> dict[int, bytes]:
    """Compute the secret that a party shares with each of some others, by X25519.

    Raises
    ------
    ProtocolError
        If a key is degenerate.
    """
    secrets = {}
    for party, key in public.items():
        try:
            secrets[party] = private.exchange(key)
        except ValueError as error:
            raise ProtocolError(
                f"{name_party(party)} sent a malformed public key: {error}"
            ) from None
    return secrets


def seal(
    secret: bytes, salt: bytes, sender: int, receiver: int, message: bytes
) -> bytes:
    """Seal the one box that a client sends to another one, under their secret."""
    cipher = _start_box_cipher(secret, salt, sender, receiver)
    return cipher.encrypt(_NO_NONCE, message, None)


def open_box(
    secret: bytes, salt: bytes, sender: int, receiver: int, box: bytes
) -> bytes:
    """Open a box.

    Raises
    ------
    ProtocolError
        If the box was not sealed for this client in this run.
    """
    cipher = _start_box_cipher(secret, salt, sender, receiver)
    try:
        return cipher.decrypt(_NO_NONCE, box, None)
    except InvalidTag:
        raise ProtocolError(
            f"client {sender} sent a malformed box: it was not sealed for this client"
        ) from None


def _start_box_cipher(
    secret: bytes, salt: bytes, sender: int, receiver: int
) -> ChaCha20Poly1305:
    purpose = f"box from {sender} to {receiver}"
    return ChaCha20Poly1305(derive_key(secret, purpose, salt))
