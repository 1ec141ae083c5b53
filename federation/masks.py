"""Masks from stream ciphers: those of pairs cancel, that of the group hides the sum.

Each pair of clients has a stream of random words that only the two of them know. The
first of them adds it to its message, and the second subtracts it. One message alone
therefore tells nothing: the streams cancel only in the sum over all clients. The server
knows the noise that it adds, and could take it off the sum. So the group of all clients
has one more stream, which the server does not know. It hides the sum from the server.

All pairs have a stream: a client expands as many as there are clients. A sparse graph
of pairs would be cheaper for hundreds of clients, and fewer parties that collude could
break it.
"""

import math
from collections.abc import Iterable, Mapping

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from pkm.federation.links import ClientLink
from pkm.federation.ring import Ring

SECRET_BYTES = 32


def derive_key(
    secret: bytes,
    purpose: str,
    salt: bytes | None = None,
) -> bytes:
    """Derive a key for one purpose from a secret (HKDF with SHA-256)."""
    info = b"private k-means bench: " + purpose.encode()
    return HKDF(SHA256(), SECRET_BYTES, salt, info).derive(secret)


class KeyStream:
    """Uniform words from AES-256 in counter mode; none of them is returned twice.

    Parameters
    ----------
    key : bytes
        Key that no other stream has.
    """

    def __init__(self, key: bytes):
        # In counter mode the cipher turns zeros into uniform bytes.
        self._cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    def next(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype,
    ) -> np.ndarray:
        """Return the stream's next words."""
        zeros = bytes(math.prod(shape) * dtype.itemsize)
        return np.frombuffer(self._cipher.update(zeros), dtype).reshape(shape)


def add_pairwise(
    total: np.ndarray,
    client: int,
    words: Iterable[tuple[int, np.ndarray]],
    modulus: int = 0,
) -> None:
    """Add a client's pairwise mask to words, in place.

    Parameters
    ----------
    total : ndarray
        Unsigned words or field elements, to which the mask is added.
    client : int
    words : iterable of (int, ndarray)
        The other client of each pair, and the pair's words. The first of the two adds
        them, the second subtracts them.
    modulus : int, default=0
        Modulus of the field; 0 for the ring of the words themselves.
    """
    for peer, pair_words in words:
        total += pair_words if client < peer else modulus - pair_words
        if modulus:
            total %= modulus


class Masks:
    """The masks of one client, a new one for every message.

    All clients must mask equally many messages, of the same shapes.

    Parameters
    ----------
    client : int
        Clients count from 1.
    pair_keys : mapping of int to bytes
        Key that the client shares with each other client.
    group_key : bytes
        Key that all clients know, and the server does not.
    ring : Ring

    Examples
    --------
    >>> pair, group, ring = bytes(32), bytes(range(32)), Ring()
    >>> masks = [Masks(1, {2: pair}, group, ring), Masks(2, {1: pair}, group, ring)]
    >>> total = sum(mask.mask(np.array([5, -7])) for mask in masks)
    >>> masks[1].unmask(total).tolist()
    [10, -14]
    """

    def __init__(
        self, client: int, pair_keys: Mapping[int, bytes], group_key: bytes, ring: Ring
    ):
        self._client = client
        self._ring = ring
        self._pairs = {peer: KeyStream(key) for peer, key in pair_keys.items()}
        # The streams of the group, by the client that adds them: the first client.
        self._group = {1: KeyStream(group_key)}
        self._group_words: dict[int, np.ndarray] | None = None

    def mask(self, values: np.ndarray) -> np.ndarray:
        """Mask int64 values; the result is uniform over the ring whatever they are."""
        if self._group_words is not None:
            raise RuntimeError(
                "the sum of the last masks was not unmasked yet: masks must stay "
                "synchronized"
            )
        # Pairwise masks cancel in the sum over all clients.
        words = self._ring.encode(values)
        shape = words.shape
        dtype = words.dtype
        pair_words = (
            (peer, stream.next(shape, dtype)) for peer, stream in self._pairs.items()
        )
        add_pairwise(words, self._client, pair_words)

        # The group's streams do not cancel. Every client keeps them, and subtracts them
        # from the sum later.
        self._group_words = {
            client: stream.next(shape, dtype) for client, stream in self._group.items()
        }
        if self._client in self._group_words:
            words += self._group_words[self._client]
        return words

    def send_shares(self, link: ClientLink) -> None:
        """Send nothing: only a run that recovers has shares of masks."""

    def unmask(self, total: np.ndarray) -> np.ndarray:
        """Take the group's mask off the sum of all clients' messages; int64."""
        if self._group_words is None:
            raise RuntimeError("there is no masked message whose sum could be unmasked")
        elements = total.copy()
        for words in self._group_words.values():
            elements -= words
        self._group_words = None
        return self._ring.decode(elements)
