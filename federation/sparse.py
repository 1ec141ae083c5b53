"""Sparse compressed secure aggregation (SCMA): sums of sparse count vectors, without their owners.

A client's vector has an entry for every bin of a fine grid, all but a few of them zero. It sends
power sums of its bins' locators, masked so that only the sum over all clients comes out; the server
recovers the sum's non-zero bins and counts as one decodes a Reed-Solomon code: Berlekamp and
Massey's algorithm, roots, a Vandermonde system. Locators are salted hashes of the bins, so that the
field stays small however many bins there are; the coordinates travel in further sums, and the hash
tells afterwards whether everything fits.

Source: Pan et al., "Machine unlearning of federated clusters" (ICLR 2023), Sec. 4.1 and Alg. 2,
with locators of our own; the paper's, which are the bins' numbers in a field larger than the number
of bins, are in ``locators="literal"``.
"""

import hashlib
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import flint
import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from numba import njit

from pkm.federation.masks import derive_key, keystream

PRIME = (1 << 61) - 1
CHECKS = 2  # power sums beyond those that decoding needs
PACKED_BITS = 60  # of coordinates that share a field element
SALT_BYTES = 16
ATTEMPTS = 5


class DecodeFailure(RuntimeError):
    """The sums are not those of a vector that the code allows: try a fresh salt."""


@njit(cache=True)
def _times(a, b):
    """Product modulo 2^61 - 1 of two reduced numbers."""
    prime, half, low29 = np.uint64(PRIME), np.uint64(0xFFFFFFFF), np.uint64((1 << 29) - 1)
    a1, a0, b1, b0 = a >> np.uint64(32), a & half, b >> np.uint64(32), b & half
    middle, low = a1 * b0 + a0 * b1, a0 * b0
    # 2^64 is 8 and 2^61 is 1.
    r = (
        ((a1 * b1) << np.uint64(3))
        + (middle >> np.uint64(29))
        + ((middle & low29) << np.uint64(32))
    )
    r += (low & prime) + (low >> np.uint64(61))
    r = (r & prime) + (r >> np.uint64(61))
    return r - prime if r >= prime else r


@njit(cache=True)
def _power_sums(values, locators, sums):
    prime = np.uint64(PRIME)
    for j in range(len(locators)):
        current = values[j]
        for i in range(len(sums)):
            total = sums[i] + current
            sums[i] = total - prime if total >= prime else total
            current = _times(current, locators[j])


def power_sums(
    values: Sequence[int], locators: Sequence[int], length: int, prime: int = PRIME
) -> np.ndarray:
    """Sums over j of ``values[j] * locators[j]**i`` modulo a prime, for i from 0 to ``length - 1``.

    Examples
    --------
    >>> power_sums([2, 3], [5, 7], 3).tolist()
    [5, 31, 197]
    """
    if prime == PRIME:
        sums = np.zeros(length, np.uint64)
        _power_sums(
            np.array([v % prime for v in values], np.uint64), np.array(locators, np.uint64), sums
        )
        return sums
    sums, current = np.zeros(length, object), [value % prime for value in values]
    for i in range(length):
        sums[i] = sum(current) % prime
        current = [c * x % prime for c, x in zip(current, locators, strict=True)]
    return sums


@dataclass(frozen=True)
class SparseCode:
    """What all parties know of the vectors.

    Parameters
    ----------
    n_features : int
        Coordinates of a bin.
    n_bins : int
        Bins per coordinate, numbered from 0.
    most : int
        Bound on the distinct non-empty bins of all clients together.
    locators : {"salted", "literal"}, default="salted"
        ``literal`` is the paper's: the number of the bin, counted from 1, in a field of a prime
        above all of them.

    Raises
    ------
    ValueError
        If a number is not positive.
    """

    n_features: int
    n_bins: int
    most: int
    locators: str = "salted"

    def __post_init__(self):
        for name in ("n_features", "n_bins", "most"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if self.locators not in ("salted", "literal"):
            raise ValueError(f"locators={self.locators!r} is unknown, choose 'salted' or 'literal'")
        if self.bits > PACKED_BITS:
            raise ValueError(
                f"n_bins={self.n_bins} must be at most 2**{PACKED_BITS} per coordinate"
            )

    @cached_property
    def prime(self) -> int:
        """Size of the field."""
        if self.locators == "salted":
            return PRIME
        candidate = max(self.n_bins**self.n_features + 1, PRIME)
        while not flint.fmpz(candidate).is_prime():
            candidate += 1
        return candidate

    @property
    def dtype(self) -> type:
        """Of arrays of field elements: the sum of two of them must not wrap."""
        return np.uint64 if self.prime == PRIME else object

    @property
    def bits(self) -> int:
        """Bits of one coordinate."""
        return max((self.n_bins - 1).bit_length(), 1)

    @property
    def groups(self) -> int:
        """Field elements that hold the coordinates of a bin; none where the locator tells them."""
        return (
            0
            if self.locators == "literal"
            else math.ceil(self.n_features / (PACKED_BITS // self.bits))
        )

    @property
    def n_sums(self) -> int:
        """Power sums of the counts."""
        return 2 * self.most + CHECKS

    @property
    def n_elements(self) -> int:
        """Field elements of a message."""
        return self.n_sums + self.most * self.groups

    @property
    def n_bytes(self) -> int:
        """Bytes of a message, elements packed to whole bits."""
        return math.ceil(self.n_elements * self.prime.bit_length() / 8)

    def locate(self, bins: np.ndarray, salt: bytes) -> list[int]:
        """Non-zero field elements that stand for bins, shape (r, d)."""
        if self.locators == "salted":
            rows = np.ascontiguousarray(bins, "<i8")
            return [
                1
                + int.from_bytes(hashlib.blake2b(row.tobytes(), digest_size=16, key=salt).digest())
                % (PRIME - 1)
                for row in rows
            ]
        numbers = []
        for row in bins.tolist():
            number = 0
            for coordinate in row:
                number = number * self.n_bins + coordinate
            numbers.append(number + 1)
        return numbers

    def pack(self, bins: np.ndarray) -> list[list[int]]:
        """Coordinates as ``groups`` numbers per bin."""
        together = PACKED_BITS // self.bits
        return [
            [
                sum(
                    c << (self.bits * place)
                    for place, c in enumerate(row[first : first + together])
                )
                for first in range(0, self.n_features, together)
            ]
            for row in bins.tolist()
        ]

    def unpack(self, groups: Sequence[int]) -> list[int]:
        """Coordinates of a bin from its numbers."""
        together, mask = PACKED_BITS // self.bits, (1 << self.bits) - 1
        return [
            (group >> (self.bits * place)) & mask
            for first, group in zip(range(0, self.n_features, together), groups, strict=True)
            for place in range(min(together, self.n_features - first))
        ]


def sum_by_bin(bins: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct bins in order, with their counts added; bins whose counts cancel are left out."""
    distinct, place = np.unique(np.asarray(bins, np.int64), axis=0, return_inverse=True)
    totals = np.zeros(len(distinct), np.int64)
    np.add.at(totals, place.ravel(), np.asarray(counts, np.int64))
    return distinct[totals != 0], totals[totals != 0]


def encode(code: SparseCode, salt: bytes, bins: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """A client's message before masking.

    Parameters
    ----------
    code : SparseCode
    salt : bytes
        Public, fresh for every round, fixed after the inputs.
    bins : ndarray of shape (r, d), int
        May repeat.
    counts : ndarray of shape (r,), int
        Signed for differences.

    Returns
    -------
    ndarray of shape (code.n_elements,)
        Field elements.

    Raises
    ------
    ValueError
        If a bin lies outside the grid.
    """
    bins = np.asarray(bins).reshape(-1, code.n_features)
    if bins.size and (bins.min() < 0 or bins.max() >= code.n_bins):
        raise ValueError(
            f"bins must be in 0 .. {code.n_bins - 1}, got {bins.min()} .. {bins.max()}"
        )
    bins, counts = sum_by_bin(bins, counts)
    locators, values = code.locate(bins, salt), counts.tolist()
    words = [power_sums(values, locators, code.n_sums, code.prime)]
    packed = code.pack(bins)
    for group in range(code.elements_per_bin):
        weighted = [value * numbers[group] for value, numbers in zip(values, packed, strict=True)]
        words.append(power_sums(weighted, locators, code.max_bins, code.prime))
    return np.concatenate(words)


def decode(
    code: SparseCode, salt: bytes, words: np.ndarray, total: int, *, signed: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Bins and counts of the sum of all clients' vectors.

    Parameters
    ----------
    code : SparseCode
    salt : bytes
    words : ndarray of shape (code.n_elements,)
        Sum of the messages, modulo the prime.
    total : int
        Announced sum of all counts.
    signed : bool, default=False
        Whether counts may be negative (differences).

    Returns
    -------
    bins : ndarray of shape (t, d), int64
        Distinct, in lexicographic order.
    counts : ndarray of shape (t,), int64

    Raises
    ------
    DecodeFailure
        If the sums do not belong to at most ``code.max_bins`` bins of the grid with counts that add
        up to ``total``: too many bins, a collision of hashes, or a damaged message.
    """
    prime = code.prime
    ring = flint.fmpz_mod_poly_ctx(flint.fmpz_mod_ctx(prime))
    words = words.tolist()
    sums = words[: code.n_sums]
    connection = ring.minpoly(sums)
    t = connection.degree()
    if t > code.max_bins:
        raise DecodeFailure(f"more than max_bins={code.max_bins} bins are not empty")
    if connection[0] == 0 and t > 0:
        raise DecodeFailure("a locator is zero, which stands for no bin")
    locators = sorted(int(root) for root in connection.roots(multiplicities=False))
    if len(locators) < t:
        raise DecodeFailure(
            f"only {len(locators)} of {t} locators are in the field: too many bins or a damaged message"
        )
    slopes = connection.derivative().multipoint_evaluate(locators)

    def solved(values: Sequence[int]) -> list[int]:
        """Weights w of ``values[i] = sum of w_j x_j**i``."""
        numerator = (connection * ring(list(reversed(values[:t])))).right_shift(t)
        return [
            int(n / s) for n, s in zip(numerator.multipoint_evaluate(locators), slopes, strict=True)
        ]

    counts = solved(sums)
    if power_sums(counts, locators, code.n_sums, prime).tolist() != sums:
        raise DecodeFailure("the check sums do not fit: too many bins or a damaged message")
    if code.elements_per_bin:
        rows = _rows_of(code, words, counts, solved)
    else:
        rows = [_digits(locator - 1, code) for locator in locators]
    bins = np.array(rows, np.int64).reshape(-1, code.n_features)
    if t and (bins.min() < 0 or bins.max() >= code.n_bins or code.locate(bins, salt) != locators):
        raise DecodeFailure(
            "the bins do not have the hashes they came under: a collision or a damaged message"
        )
    if signed:
        counts = [count - prime if count > prime // 2 else count for count in counts]
    if sum(counts) != total or not (signed or all(count <= total for count in counts)):
        raise DecodeFailure(f"counts must add up to total={total}, each of them possible")
    order = np.lexsort(bins.T[::-1])
    return bins[order], np.array(counts, np.int64)[order]


def _rows_of(code: SparseCode, words, counts: Sequence[int], solved) -> list[list[int]]:
    """Coordinates from the weighted sums."""
    starts = range(code.n_sums, code.n_elements, code.max_bins)
    weighted = [solved(words[start : start + code.max_bins]) for start in starts]
    inverses = [pow(count, -1, code.prime) for count in counts]
    return [
        code.unpack([column[j] * inverse % code.prime for column in weighted])
        for j, inverse in enumerate(inverses)
    ]


def _digits(number: int, code: SparseCode) -> list[int]:
    digits = []
    for _ in range(code.n_features):
        number, digit = divmod(number, code.n_bins)
        digits.append(digit)
    return digits[::-1] if number == 0 else [-1] * code.n_features


def zero_sum_masks(
    private: X25519PrivateKey,
    client: int,
    public: Sequence[X25519PublicKey],
    round_name: str,
    code: SparseCode,
) -> np.ndarray:
    """Mask of one client, made of secrets that it has with each of the others; all masks of a round
    add up to zero.

    Parameters
    ----------
    private : X25519PrivateKey
        Of the client.
    client : int
        Its place in ``public``, from 0.
    public : sequence of X25519PublicKey
        Of all clients.
    round_name : str
        Different for every message: two under one mask would tell their difference.
    code : SparseCode

    Returns
    -------
    ndarray of shape (code.n_elements,)
        Field elements, uniform as long as one other client is honest.
    """
    mask = np.zeros(code.n_elements, code.dtype)
    for other, key in enumerate(public):
        if other != client:
            stream = _uniform_elements(
                derive_key(private.exchange(key), f"sparse {round_name}"), code
            )
            mask = (mask + (stream if other > client else (code.prime - stream))) % code.prime
    return mask


def _uniform_elements(key: bytes, code: SparseCode) -> np.ndarray:
    """Uniform field elements by rejection, from AES-256 in counter mode."""
    cipher = keystream(key)
    size, cut = (code.prime.bit_length() + 7) // 8, (1 << code.prime.bit_length()) - 1
    found = np.empty(0, code.dtype)
    while len(found) < code.n_elements:
        block = cipher.update(bytes(size * (code.n_elements - len(found))))
        if code.dtype is np.uint64:
            drawn = np.frombuffer(block, "<u8") & np.uint64(cut)
        else:
            pieces = (block[i : i + size] for i in range(0, len(block), size))
            drawn = np.array([int.from_bytes(piece) & cut for piece in pieces], object)
        found = np.concatenate([found, drawn[drawn < code.prime]])
    return found


@dataclass(frozen=True)
class SparseReport:
    """Cost of one aggregation: bytes and mean seconds of a client (masks apart), seconds of the
    server, attempts.
    """

    bytes_per_client: int
    encode_seconds: float
    mask_seconds: float
    decode_seconds: float
    attempts: int


def aggregate_sparse(
    code: SparseCode,
    vectors: Sequence[tuple[np.ndarray, np.ndarray]],
    *,
    masked: bool = True,
    signed: bool = False,
) -> tuple[np.ndarray, np.ndarray, SparseReport]:
    """Play a round with all clients in this process: encode, mask, add, decode; again with a fresh
    salt on failure.

    Parameters
    ----------
    code : SparseCode
    vectors : sequence of (bins, counts)
        One per client.
    masked : bool, default=True
        Without masks the same numbers come out, and the cost of the masks is left out.
    signed : bool, default=False

    Returns
    -------
    bins, counts : ndarray
        See :func:`decode`.
    report : SparseReport

    Raises
    ------
    DecodeFailure
        If no salt helps: there are more bins than ``code.max_bins``.
    """
    total = int(sum(np.sum(counts) for _, counts in vectors))
    private = [X25519PrivateKey.generate() for _ in vectors] if masked else []
    public = [key.public_key() for key in private]
    encoding = masking = decoding = 0.0
    attempt = 0
    while True:
        attempt += 1
        salt, sums = os.urandom(SALT_BYTES), np.zeros(code.n_elements, code.dtype)
        for client, (bins, counts) in enumerate(vectors):
            began = time.perf_counter()
            message = encode(code, salt, bins, counts)
            encoded = time.perf_counter()
            if masked:
                mask = zero_sum_masks(private[client], client, public, f"attempt {attempt}", code)
                message = (message + mask) % code.prime
            encoding, masking = encoding + encoded - began, masking + time.perf_counter() - encoded
            sums = (sums + message) % code.prime
        began = time.perf_counter()
        try:
            bins, counts = decode(code, salt, sums, total, signed=signed)
        except DecodeFailure:
            if attempt == ATTEMPTS:
                raise
        else:
            n = max(len(vectors), 1)
            decoding += time.perf_counter() - began
            return (
                bins,
                counts,
                SparseReport(code.n_bytes, encoding / n, masking / n, decoding, attempt),
            )
        decoding += time.perf_counter() - began
