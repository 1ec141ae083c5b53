"""One-time pads from a stream cipher, whose sum every client can compute and the server cannot.

With M streams F_0, ..., F_(M-1) from the clients' common secret, client i adds F_i - F_(i+1), the
last one F_(M-1) alone. That is a bijection between streams and masks, so the masks together are as
uniform as the streams, and their sum is F_0: a client expands three streams, however many clients
there are.
"""

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from pkm.federation.ring import Ring

SECRET_BYTES = 32


def derive_key(secret: bytes, purpose: str, salt: bytes | None = None) -> bytes:
    """Derive a key for one purpose from a secret (HKDF with SHA-256)."""
    return HKDF(SHA256(), SECRET_BYTES, salt, b"private k-means bench: " + purpose.encode()).derive(
        secret
    )


def keystream(key: bytes) -> CipherContext:
    """Encryptor of AES-256 in counter mode: zeros become uniform bytes. A key serves one stream."""
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()


class KeyStream:
    """Uniform words, none of them returned twice: AES-256 in counter mode.

    Parameters
    ----------
    secret : bytes
    number : int
        Which of the secret's streams.
    """

    def __init__(self, secret: bytes, number: int):
        self._cipher = keystream(derive_key(secret, f"mask stream {number}"))

    def next(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """The stream's next words."""
        zeros = bytes(int(np.prod(shape)) * dtype.itemsize)
        return np.frombuffer(self._cipher.update(zeros), dtype).reshape(shape)


class Masks:
    """The masks of one client, synchronized with those of the others: a new one for every message.

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
    >>> total = sum(mask.mask(values) for mask in masks)
    >>> masks[1].unmask(total).tolist()
    [15, -21]
    """

    def __init__(self, secret: bytes, client: int, n_clients: int, ring: Ring):
        if not 1 <= client <= n_clients:
            raise ValueError(f"client={client} must be one of 1 .. {n_clients}")
        self._ring = ring
        self._sum_stream = KeyStream(secret, 0)
        self._stream = self._sum_stream if client == 1 else KeyStream(secret, client - 1)
        self._next_stream = KeyStream(secret, client) if client < n_clients else None
        self._mask_sum: np.ndarray | None = None

    def mask(self, values: np.ndarray) -> np.ndarray:
        """Mask int64 values; the result is uniform over the ring whatever the values."""
        if self._mask_sum is not None:
            raise RuntimeError(
                "the sum of the last masks was not revealed yet: masks must stay synchronized"
            )
        dtype = self._ring.dtype

        # Client i adds F_i - F_(i+1), the last one F_(M-1) alone.
        masked = self._ring.encode(values)
        pad = self._stream.next(values.shape, dtype)
        masked += pad
        if self._next_stream is not None:
            masked -= self._next_stream.next(values.shape, dtype)

        # The sum of all masks is F_0.
        if self._stream is self._sum_stream:
            self._mask_sum = pad
        else:
            self._mask_sum = self._sum_stream.next(values.shape, dtype)
        return masked

    def unmask(self, total: np.ndarray) -> np.ndarray:
        """Take the masks off the sum of all clients' messages; int64."""
        if self._mask_sum is None:
            raise RuntimeError("there is no masked message whose sum could be revealed")
        mask_sum = self._mask_sum
        self._mask_sum = None
        return self._ring.decode(total - mask_sum)
