"""One-time pads from a stream cipher, which cancel in nobody's sum but can be taken off it by every client.

With M streams F_0, ..., F_(M-1) from the clients' common secret, client i adds F_i - F_(i+1), the last one F_(M-1)
alone. That is a bijection between streams and masks, so the masks together are as uniform as the streams, and their sum
is F_0: a client expands three streams, however many clients there are.
"""

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from pkm.federation.ring import Ring

SECRET_BYTES = 32


def derived(secret: bytes, purpose: str, salt: bytes | None = None) -> bytes:
    """Derive a key for one purpose from a secret (HKDF with SHA-256)."""
    return HKDF(SHA256(), SECRET_BYTES, salt, b"private k-means bench: " + purpose.encode()).derive(
        secret
    )


def keystream(key: bytes):
    """Encryptor whose encryption of zeros is uniform bytes: AES-256 in counter mode; a key serves one stream."""
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()


class KeyStream:
    """Uniform words, each handed out once: AES-256 in counter mode.

    Parameters
    ----------
    secret : bytes
    number : int
        Which of the secret's streams.
    """

    def __init__(self, secret: bytes, number: int):
        self._cipher = keystream(derived(secret, f"mask stream {number}"))

    def next(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """The stream's next words."""
        zeros = bytes(int(np.prod(shape)) * dtype.itemsize)
        return np.frombuffer(self._cipher.update(zeros), dtype).reshape(shape)


class Masks:
    """The masks of one client, in lockstep with those of the others: a new one for every message.

    Parameters
    ----------
    secret : bytes
        Known to the clients, not to the server.
    client, n_clients : int
        Clients count from 1.
    ring : Ring

    Examples
    --------
    >>> secret, values, ring = bytes(32), np.array([5, -7]), Ring()
    >>> masks = [Masks(secret, client, 3, ring) for client in (1, 2, 3)]
    >>> total = sum(mask.hide(values) for mask in masks)
    >>> masks[1].reveal(total).tolist()
    [15, -21]
    """

    def __init__(self, secret: bytes, client: int, n_clients: int, ring: Ring):
        if not 1 <= client <= n_clients:
            raise ValueError(f"client={client} must be one of 1 .. {n_clients}")
        self._ring = ring
        self._total_stream = KeyStream(secret, 0)
        self._own = self._total_stream if client == 1 else KeyStream(secret, client - 1)
        self._following = KeyStream(secret, client) if client < n_clients else None
        self._total = None

    def hide(self, values: np.ndarray) -> np.ndarray:
        """Mask int64 values; what comes out is words, uniform over the ring whatever the values."""
        if self._total is not None:
            raise RuntimeError(
                "the sum of the last masks was not revealed yet: masks would fall out of step"
            )
        words, dtype = self._ring.words(values), self._ring.dtype
        own = self._own.next(values.shape, dtype)
        words += own
        if self._following is not None:
            words -= self._following.next(values.shape, dtype)
        self._total = (
            own if self._own is self._total_stream else self._total_stream.next(values.shape, dtype)
        )
        return words

    def reveal(self, words: np.ndarray) -> np.ndarray:
        """Take the masks off the sum of all clients' messages; int64."""
        if self._total is None:
            raise RuntimeError("there is no masked message whose sum could be revealed")
        total, self._total = self._total, None
        return self._ring.signed(words - total)
