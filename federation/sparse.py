"""Sparse compressed secure aggregation (SCMA): sums of the clients' sparse count vectors.

A client's vector has an entry for every bin of a fine grid, all but a few of them zero. It sends
power sums of its bins' locators, masked so that only the sum over all clients comes out; the server
recovers the sum's non-zero bins and counts as one decodes a Reed-Solomon code: Berlekamp and
Massey's algorithm, roots, a Vandermonde system. Locators are salted hashes of the bins, so that the
field stays small however many bins there are; the coordinates are sent in further sums, and the
hashes of the decoded bins verify the result.

Source: Pan et al., "Machine unlearning of federated clusters" (ICLR 2023), Sec. 4.1 and Alg. 2,
but for the locators; with ``locators="literal"`` these are the paper's as well: the numbers of the
bins, in a field larger than the number of bins.
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

from pkm.federation.keys import pair_secrets
from pkm.federation.masks import add_pairwise, derive_key, keystream

PRIME = (1 << 61) - 1
N_CHECK_SUMS = 2  # power sums beyond those that decoding needs
PACKED_BITS = 60  # of coordinates that share a field element
SALT_BYTES = 16
MAX_ATTEMPTS = 5


class DecodeFailure(RuntimeError):
    """The sums are not those of a vector that the code allows: try a fresh salt."""


@njit(cache=True)
def _multiply(a: np.uint64, b: np.uint64) -> np.uint64:
    """Product modulo 2^61 - 1 of two reduced numbers."""
    prime = np.uint64(PRIME)
    half = np.uint64(0xFFFFFFFF)
    low29 = np.uint64((1 << 29) - 1)

    # The product in halves of 32 bits: 2^64 high + 2^32 middle + low.
    a_high = a >> np.uint64(32)
    a_low = a & half
    b_high = b >> np.uint64(32)
    b_low = b & half
    middle = a_high * b_low + a_low * b_high
    low = a_low * b_low

    # Modulo the prime 2^64 is 8 and 2^61 is 1.
    product = (
        ((a_high * b_high) << np.uint64(3))
        + (middle >> np.uint64(29))
        + ((middle & low29) << np.uint64(32))
    )
    product += (low & prime) + (low >> np.uint64(61))
    product = (product & prime) + (product >> np.uint64(61))
    return product - prime if product >= prime else product


@njit(cache=True)
def _power_sums(values: np.ndarray, locators: np.ndarray, sums: np.ndarray) -> None:
    """Add every value's geometric series to ``sums``, modulo 2^61 - 1."""
    prime = np.uint64(PRIME)
    for j in range(len(locators)):
        # Invariant: the term is values[j] * locators[j]**i.
        term = values[j]
        for i in range(len(sums)):
            total = sums[i] + term
            sums[i] = total - prime if total >= prime else total
            term = _multiply(term, locators[j])


def power_sums(
    values: Sequence[int], locators: Sequence[int], length: int, prime: int = PRIME
) -> np.ndarray:
    """Sums over j of ``values[j] * locators[j]**i`` modulo a prime, for i from 0 to ``length - 1``.

    Examples
    --------
    >>> power_sums([2, 3], [5, 7], 3).tolist()
    [5, 31, 197]
    """
    terms = [value % prime for value in values]
    if prime == PRIME:
        sums = np.zeros(length, np.uint64)
        _power_sums(np.array(terms, np.uint64), np.array(locators, np.uint64), sums)
        return sums
    sums = np.zeros(length, object)
    for i in range(length):
        sums[i] = sum(terms) % prime
        terms = [term * locator % prime for term, locator in zip(terms, locators, strict=True)]
    return sums


@dataclass(frozen=True)
class SparseCode:
    """Public parameters of the vectors and of their encoding.

    Parameters
    ----------
    n_features : int
        Coordinates of a bin.
    n_bins : int
        Bins per coordinate, numbered from 0.
    max_bins : int
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
    max_bins: int
    locators: str = "salted"

    def __post_init__(self):
        for name in ("n_features", "n_bins", "max_bins"):
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
    def elements_per_bin(self) -> int:
        """Field elements that hold a bin's coordinates; none where the locator implies them."""
        if self.locators == "literal":
            return 0
        return math.ceil(self.n_features / self._per_element)

    @property
    def _per_element(self) -> int:
        """Coordinates that share a field element."""
        return PACKED_BITS // self.bits

    @property
    def n_sums(self) -> int:
        """Power sums of the counts."""
        return 2 * self.max_bins + N_CHECK_SUMS

    @property
    def n_elements(self) -> int:
        """Field elements of a message."""
        return self.n_sums + self.max_bins * self.elements_per_bin

    @property
    def n_bytes(self) -> int:
        """Bytes of a message, elements packed to whole bits."""
        return math.ceil(self.n_elements * self.prime.bit_length() / 8)

    def locate(self, bins: np.ndarray, salt: bytes) -> list[int]:
        """Locators, non-zero field elements, of bins (r, d)."""
        if self.locators == "salted":
            return [_salted_hash(row, salt) for row in np.ascontiguousarray(bins, "<i8")]
        return [self._number(row) + 1 for row in bins.tolist()]

    def _number(self, coordinates: Sequence[int]) -> int:
        """Number of a bin, its coordinates read as digits."""
        number = 0
        for coordinate in coordinates:
            number = number * self.n_bins + coordinate
        return number

    def pack(self, bins: np.ndarray) -> list[list[int]]:
        """Coordinates as :attr:`elements_per_bin` numbers per bin."""
        starts = range(0, self.n_features, self._per_element)
        return [
            [self._packed(row[start : start + self._per_element]) for start in starts]
            for row in bins.tolist()
        ]

    def _packed(self, coordinates: Sequence[int]) -> int:
        """One number from a few coordinates, the first in the lowest bits."""
        return sum(
            coordinate << (self.bits * position) for position, coordinate in enumerate(coordinates)
        )

    def unpack(self, numbers: Sequence[int]) -> list[int]:
        """Coordinates of a bin from its numbers."""
        mask = (1 << self.bits) - 1
        coordinates = [
            (number >> (self.bits * position)) & mask
            for number in numbers
            for position in range(self._per_element)
        ]
        return coordinates[: self.n_features]


def _salted_hash(row: np.ndarray, salt: bytes) -> int:
    """Non-zero field element from a salted hash of a bin's coordinates."""
    hashed = hashlib.blake2b(row.tobytes(), digest_size=16, key=salt).digest()
    return 1 + int.from_bytes(hashed) % (PRIME - 1)


def sum_by_bin(bins: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct bins in order, with their counts added; bins whose counts cancel are left out."""
    distinct, index = np.unique(np.asarray(bins, np.int64), axis=0, return_inverse=True)
    totals = np.zeros(len(distinct), np.int64)
    np.add.at(totals, index.ravel(), np.asarray(counts, np.int64))
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
    locators = code.locate(bins, salt)
    values = counts.tolist()

    # Power sums of the counts.
    parts = [power_sums(values, locators, code.n_sums, code.prime)]

    # Power sums of the counts times each packed number of the coordinates.
    packed = code.pack(bins)
    for position in range(code.elements_per_bin):
        weighted = [
            value * numbers[position] for value, numbers in zip(values, packed, strict=True)
        ]
        parts.append(power_sums(weighted, locators, code.max_bins, code.prime))
    return np.concatenate(parts)


def decode(
    code: SparseCode, salt: bytes, message: np.ndarray, total: int, *, signed: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Bins and counts of the sum of all clients' vectors.

    Parameters
    ----------
    code : SparseCode
    salt : bytes
    message : ndarray of shape (code.n_elements,)
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
    elements = message.tolist()
    sums = elements[: code.n_sums]

    # The locators are the roots of the shortest recurrence of the sums (Berlekamp and Massey).
    system = _VandermondeSystem(code, sums)
    locators = system.locators

    # The counts solve a Vandermonde system, which the check sums must satisfy as well.
    counts = system.solve(sums)
    if power_sums(counts, locators, code.n_sums, code.prime).tolist() != sums:
        raise DecodeFailure("the check sums do not fit: too many bins or a damaged message")

    # The coordinates follow from the further sums, or from the locators themselves.
    if code.elements_per_bin:
        rows = _rows_from_sums(code, elements, counts, system)
    else:
        rows = [_digits(locator - 1, code) for locator in locators]
    bins = np.array(rows, np.int64).reshape(-1, code.n_features)

    # The bins must hash to the locators that they were decoded from.
    if len(bins) and (
        bins.min() < 0 or bins.max() >= code.n_bins or code.locate(bins, salt) != locators
    ):
        raise DecodeFailure(
            "the hashes of the bins are not their locators: a collision or a damaged message"
        )

    # The counts must be possible, and add up to the announced total.
    if signed:
        counts = [count - code.prime if count > code.prime // 2 else count for count in counts]
    if sum(counts) != total or not (signed or all(count <= total for count in counts)):
        raise DecodeFailure(f"counts must add up to total={total}, each of them possible")

    order = np.lexsort(bins.T[::-1])
    return bins[order], np.array(counts, np.int64)[order]


class _VandermondeSystem:
    """Systems ``values[i] = sum over j of w_j x_j**i`` whose locators x follow from power sums.

    Attributes
    ----------
    locators : list of int
        In increasing order.

    Raises
    ------
    DecodeFailure
        If there are more than ``code.max_bins`` locators, or not all lie in the field.
    """

    def __init__(self, code: SparseCode, sums: Sequence[int]):
        self._ring = flint.fmpz_mod_poly_ctx(flint.fmpz_mod_ctx(code.prime))
        self._connection = self._ring.minpoly(sums)
        self._degree = self._connection.degree()
        if self._degree > code.max_bins:
            raise DecodeFailure(f"more than max_bins={code.max_bins} bins are not empty")
        if self._connection[0] == 0 and self._degree > 0:
            raise DecodeFailure("a locator is zero, which is that of no bin")
        roots = self._connection.roots(multiplicities=False)
        self.locators = sorted(int(root) for root in roots)
        if len(self.locators) < self._degree:
            raise DecodeFailure(
                f"only {len(self.locators)} of {self._degree} locators are in the field: too many "
                "bins or a damaged message"
            )
        self._slopes = self._connection.derivative().multipoint_evaluate(self.locators)

    def solve(self, values: Sequence[int]) -> list[int]:
        """Weights w, one per locator, by Forney's formula."""
        reverse = self._ring(list(reversed(values[: self._degree])))
        numerator = (self._connection * reverse).right_shift(self._degree)
        numerators = numerator.multipoint_evaluate(self.locators)
        return [int(n / slope) for n, slope in zip(numerators, self._slopes, strict=True)]


def _rows_from_sums(
    code: SparseCode, elements: Sequence[int], counts: Sequence[int], system: _VandermondeSystem
) -> list[list[int]]:
    """Coordinates of the bins: weights of the further sums, divided by the counts."""
    starts = range(code.n_sums, code.n_elements, code.max_bins)
    weighted = [system.solve(elements[start : start + code.max_bins]) for start in starts]
    rows = []
    for j, count in enumerate(counts):
        inverse = pow(count, -1, code.prime)
        rows.append(code.unpack([weights[j] * inverse % code.prime for weights in weighted]))
    return rows


def _digits(number: int, code: SparseCode) -> list[int]:
    """Coordinates of the bin of that number; -1 in all of them if there is no such bin."""
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
    """Mask of one client, from its secrets with the others; the masks of a round add up to zero.

    Parameters
    ----------
    private : X25519PrivateKey
        Of the client.
    client : int
        Its index in ``public``, from 0.
    public : sequence of X25519PublicKey
        Of all clients.
    round_name : str
        Different for every message: two under one mask would reveal their difference.
    code : SparseCode

    Returns
    -------
    ndarray of shape (code.n_elements,)
        Field elements, uniform as long as one other client is honest.
    """
    peers = {peer: key for peer, key in enumerate(public) if peer != client}
    secrets = pair_secrets(private, peers)
    elements = (
        (peer, _uniform_elements(derive_key(secret, f"sparse {round_name}"), code))
        for peer, secret in secrets.items()
    )
    mask = np.zeros(code.n_elements, code.dtype)
    add_pairwise(mask, client, elements, code.prime)
    return mask


def _uniform_elements(key: bytes, code: SparseCode) -> np.ndarray:
    """Uniform field elements by rejection, from AES-256 in counter mode."""
    cipher = keystream(key)
    n_bits = code.prime.bit_length()
    n_bytes = (n_bits + 7) // 8
    bit_mask = (1 << n_bits) - 1
    elements = np.empty(0, code.dtype)
    while len(elements) < code.n_elements:
        block = cipher.update(bytes(n_bytes * (code.n_elements - len(elements))))
        if code.dtype is np.uint64:
            numbers = np.frombuffer(block, "<u8") & np.uint64(bit_mask)
        else:
            pieces = [block[i : i + n_bytes] for i in range(0, len(block), n_bytes)]
            numbers = np.array([int.from_bytes(piece) & bit_mask for piece in pieces], object)
        elements = np.concatenate([elements, numbers[numbers < code.prime]])
    return elements


@dataclass(frozen=True)
class SparseReport:
    """Cost of one aggregation: bytes and seconds.

    Attributes
    ----------
    bytes_per_client : int
    encode_seconds, mask_seconds : float
        Means over the clients.
    decode_seconds : float
        Of the server.
    attempts : int
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
    """Aggregate the vectors of all clients in this process; repeat with a fresh salt on failure.

    Parameters
    ----------
    code : SparseCode
    vectors : sequence of (bins, counts)
        One per client.
    masked : bool, default=True
        Without masks the result is the same, and the cost of the masks is left out.
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
    n_clients = max(len(vectors), 1)
    private = [X25519PrivateKey.generate() for _ in vectors] if masked else []
    public = [key.public_key() for key in private]
    encode_seconds = 0.0
    mask_seconds = 0.0
    decode_seconds = 0.0
    attempt = 0
    while True:
        attempt += 1
        salt = os.urandom(SALT_BYTES)

        # Every client encodes and masks its vector; the messages are added.
        sums = np.zeros(code.n_elements, code.dtype)
        for client, (bins, counts) in enumerate(vectors):
            started = time.perf_counter()
            message = encode(code, salt, bins, counts)
            encoded = time.perf_counter()
            if masked:
                mask = zero_sum_masks(private[client], client, public, f"attempt {attempt}", code)
                message = (message + mask) % code.prime
            encode_seconds += encoded - started
            mask_seconds += time.perf_counter() - encoded
            sums = (sums + message) % code.prime

        # The server decodes the sum.
        started = time.perf_counter()
        try:
            bins, counts = decode(code, salt, sums, total, signed=signed)
        except DecodeFailure:
            decode_seconds += time.perf_counter() - started
            if attempt == MAX_ATTEMPTS:
                raise
            continue
        decode_seconds += time.perf_counter() - started
        report = SparseReport(
            code.n_bytes,
            encode_seconds / n_clients,
            mask_seconds / n_clients,
            decode_seconds,
            attempt,
        )
        return bins, counts, report
