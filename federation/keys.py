"""Keys: identities with fingerprints, signed keys, secrets of two parties, messages.

A party's first message, its hello, has its Ed25519 identity, digests of the run's
public terms, fresh X25519 keys, and the identity's signature of all that. Parties know
one another's fingerprints beforehand. So the server, which relays the hellos, cannot
alter them, and parties that were configured differently stop before they send anything
else.
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
DIGEST_BYTES = 16  # of a public term of the run
TAG_BYTES = 16  # of the authentication tag at the end of an encrypted message
NONCE_BYTES = 12
# A constant nonce is safe: every key encrypts one message.
_NO_NONCE = bytes(NONCE_BYTES)

#: Public terms of a run: values by name, such as the number of points, that must be the
#: same at all parties.
Terms = Mapping[str, object]


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


def digest_terms(terms: Terms) -> bytes:
    """Hash each term of a run, in the order of their names.

    Examples
    --------
    >>> same = digest_terms({"n_points": 100}) == digest_terms({"n_points": 100})
    >>> same, digest_terms({"n_points": 100}) == digest_terms({"n_points": 101})
    (True, False)
    """
    digests = b""
    for name in sorted(terms):
        statement = f"{name}={terms[name]!r}".encode()
        digests += hashlib.blake2b(statement, digest_size=DIGEST_BYTES).digest()
    return digests


def count_hello_bytes(n_keys: int, n_terms: int) -> int:
    """Count the bytes of a hello with that many keys and terms."""
    return PUBLIC_BYTES * (1 + n_keys) + DIGEST_BYTES * n_terms + SIGNATURE_BYTES


def sign_hello(
    identity: Identity,
    party: int,
    n_clients: int,
    terms: Terms,
    keys: Sequence[X25519PrivateKey],
) -> bytes:
    """Return a party's hello: its public identity, terms and keys, and a signature."""
    content = digest_terms(terms)
    content += b"".join(key.public_key().public_bytes_raw() for key in keys)
    signature = identity.private.sign(_make_statement(party, n_clients, content))
    return identity.public + content + signature


def read_hello(
    message: bytes, party: int, n_clients: int, terms: Terms, fingerprint: str
) -> list[X25519PublicKey]:
    """Check a hello, and return its keys.

    Parameters
    ----------
    message : bytes
    party, n_clients : int
        The party that should have sent it, and the number of clients.
    terms : mapping of str to object
        Terms of the party that reads the hello.
    fingerprint : str
        Expected fingerprint of the sender.

    Raises
    ------
    ProtocolError
        If the identity does not fit the fingerprint or did not sign the hello, or if
        the other party has other terms: their names are in the message.
    """
    identity = message[:PUBLIC_BYTES]
    content = message[PUBLIC_BYTES:-SIGNATURE_BYTES]
    name = name_party(party)
    actual = compute_fingerprint(identity)
    if actual != fingerprint:
        raise ProtocolError(
            f"{name} has the fingerprint {actual}, not {fingerprint} as expected"
        )
    try:
        verifier = Ed25519PublicKey.from_public_bytes(identity)
        statement = _make_statement(party, n_clients, content)
        verifier.verify(message[-SIGNATURE_BYTES:], statement)
    except (InvalidSignature, ValueError):
        raise ProtocolError(
            f"{name} sent a hello that its identity did not sign"
        ) from None

    # Compare the terms one by one, so that the error names those that differ.
    own_digests = digest_terms(terms)
    digests = cut(content[: len(own_digests)], DIGEST_BYTES)
    pairs = zip(sorted(terms), digests, cut(own_digests, DIGEST_BYTES), strict=True)
    differing = [term for term, other, own in pairs if other != own]
    if differing:
        raise ProtocolError(
            f"{name} was started with another {', another '.join(differing)}: give all "
            "parties the same configuration"
        )
    keys = cut(content[len(own_digests) :], PUBLIC_BYTES)
    return [X25519PublicKey.from_public_bytes(key) for key in keys]


def _make_statement(party: int, n_clients: int, content: bytes) -> bytes:
    """Return what a hello's signature covers: its purpose, the party, the content."""
    purpose = f"private k-means bench: hello of party {party} of {n_clients}: "
    return purpose.encode() + content


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


def encrypt_message(
    secret: bytes, salt: bytes, sender: int, receiver: int, message: bytes
) -> bytes:
    """Encrypt the only message from a client to another, under their common secret."""
    cipher = _make_cipher(secret, salt, sender, receiver)
    return cipher.encrypt(_NO_NONCE, message, None)


def decrypt_message(
    secret: bytes, salt: bytes, sender: int, receiver: int, ciphertext: bytes
) -> bytes:
    """Decrypt what :func:`encrypt_message` returned, and check that it is unaltered.

    Raises
    ------
    ProtocolError
        If it was not encrypted for this client in this run.
    """
    cipher = _make_cipher(secret, salt, sender, receiver)
    try:
        return cipher.decrypt(_NO_NONCE, ciphertext, None)
    except InvalidTag:
        raise ProtocolError(
            f"client {sender} sent a malformed message: not encrypted for this client"
        ) from None


def _make_cipher(
    secret: bytes, salt: bytes, sender: int, receiver: int
) -> ChaCha20Poly1305:
    purpose = f"message from {sender} to {receiver}"
    return ChaCha20Poly1305(derive_key(secret, purpose, salt))
