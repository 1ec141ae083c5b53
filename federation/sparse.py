"""Secure compressed multiset aggregation (SCMA): sums of clients' sparse count vectors.

A client's vector has an entry for every bin of a fine grid, and most are zero. The
client sends power sums of its bins' locators, the field elements that stand for bins.
Masks cancel only in the sum over all clients. The server recovers the sum's non-zero
bins and counts as one decodes a Reed-Solomon code: by Berlekamp and Massey's algorithm,
the roots of its polynomial, and a Vandermonde system.

Locators are salted hashes of the bins, so that the field stays small however many bins
there are. Further sums carry the coordinates, and the hashes of the decoded bins verify
the result.

Source: Pan et al., "Machine unlearning of federated clusters" (ICLR 2023), Sec. 4.1 and
Alg. 2, but for the locators. With ``locators="literal"`` these are the paper's as well:
the numbers of the bins, in a field larger than the number of bins.
"""

import hashlib
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import flint
import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)

from pkm.federation.keys import exchange_secrets
from pkm.federation.links import cut
from pkm.federation.masks import KeyStream, add_pairwise, derive_key

PRIME = (1 << 61) - 1
N_CHECK_SUMS = 2  # power sums beyond those that decoding needs
PACKED_BITS = 60  # coordinates are joined to field elements of so many bits
SALT_BYTES = 16
MAX_ATTEMPTS = 5


class DecodeFailure(RuntimeError):
    """The code represents no vector with these sums; another salt may help."""


def sum_powers(
    values: Sequence[int], locators: Sequence[int], length: int, prime: int = PRIME
) -> np.ndarray:
    """Sum ``values[j] * locators[j]**i`` over j modulo a prime, for i below a length.

    Examples
    --------
    >>> sum_powers([2, 3], [5, 7], 3).tolist()
    [5, 31, 197]
    """
    # The sums are the coefficients of the power series of a sum of fractions.
    ring = _make_ring(prime)
    fractions = [(ring([0]), ring([1]))]
    for value, locator in zip(values, locators, strict=True):
        fractions.append((ring([value]), ring([1, -locator])))
    numerator, denominator = _sum_fractions(fractions)
    series = numerator * denominator.inverse_series_trunc(length)
    sums = [int(series[i]) for i in range(length)]
    return np.array(sums, np.uint64 if prime == PRIME else object)


def _make_ring(prime: int) -> flint.fmpz_mod_poly_ctx:
    """Make the ring of polynomials over a field."""
    return flint.fmpz_mod_poly_ctx(flint.fmpz_mod_ctx(prime))


def _sum_fractions(fractions: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Sum numerators over denominators, by halves."""
    if len(fractions) == 1:
        return fractions[0]
    half = len(fractions) // 2
    a, b = _sum_fractions(fractions[:half])
    c, d = _sum_fractions(fractions[half:])
    return a * d + c * b, b * d


def _join_digits(
    digits: Sequence[int],
    base: int,
) -> int:
    """Join digits to a number; the last digit is the lowest."""
    number = 0
    for digit in digits:
        number = number * base + digit
    return number


def _split_digits(
    number: int,
    base: int,
    n_digits: int,
) -> list[int]:
    """Split a number into its last digits; inverse of :func:`_join_digits`."""
    digits = []
    for _ in range(n_digits):
        number, digit = divmod(number, base)
        digits.append(digit)
    return digits[::-1]


@dataclass(frozen=True)
class SparseCode:
    """Public parameters of the clients' vectors and of their encoding.

    Parameters
    ----------
    n_features : int
        Number of coordinates of a bin.
    n_bins : int
        Bins per coordinate, numbered from 0.
    max_bins : int
        Bound on the distinct non-empty bins of all clients together.
    locators : {"salted", "literal"}, default="salted"
        ``literal`` is the paper's: the number of the bin, counted from 1, in a field of
        a prime above all of them.

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
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        if self.locators not in ("salted", "literal"):
            raise ValueError(
                f"locators={self.locators!r} is unknown, choose 'salted' or 'literal'"
            )
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
        """Type of arrays of field elements: it holds the sum of three."""
        return np.uint64 if self.prime == PRIME else object

    @property
    def bits(self) -> int:
        """Bits of one coordinate."""
        return max((self.n_bins - 1).bit_length(), 1)

    @property
    def elements_per_bin(self) -> int:
        """Field elements of a bin's coordinates; none if the locator encodes them."""
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

    def locate(
        self,
        bins: np.ndarray,
        salt: bytes,
    ) -> list[int]:
        """Turn bins (r, d) into their locators, non-zero field elements."""
        if self.locators == "literal":
            return [_join_digits(row, self.n_bins) + 1 for row in bins.tolist()]
        return [_hash_bin(row, salt) for row in np.ascontiguousarray(bins, "<i8")]

    def pack(self, bins: np.ndarray) -> list[list[int]]:
        """Pack the coordinates of each bin into :attr:`elements_per_bin` numbers.

        The first of the coordinates that share a number is in its lowest bits.
        """
        base = 1 << self.bits
        return [
            [_join_digits(group[::-1], base) for group in cut(row, self._per_element)]
            for row in bins.tolist()
        ]

    def unpack(self, numbers: Sequence[int]) -> list[int]:
        """Unpack the coordinates of a bin from its numbers."""
        coordinates = []
        for number in numbers:
            digits = _split_digits(number, 1 << self.bits, self._per_element)
            coordinates += reversed(digits)
        return coordinates[: self.n_features]


def _hash_bin(
    row: np.ndarray,
    salt: bytes,
) -> int:
    """Hash a bin's coordinates, with a salt, to a non-zero field element."""
    digest = hashlib.blake2b(row.tobytes(), digest_size=16, key=salt).digest()
    return 1 + int.from_bytes(digest) % (PRIME - 1)


def sum_by_bin(
    bins: np.ndarray,
    counts: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Add up counts by bin: distinct bins in order, without those whose sum is zero."""
    distinct, index = np.unique(bins, axis=0, return_inverse=True)
    totals = np.zeros(len(distinct), np.int64)
    np.add.at(totals, index.ravel(), counts)
    is_left = totals != 0
    return distinct[is_left], totals[is_left]


def encode(
    code: SparseCode, salt: bytes, bins: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """Encode a client's vector: its message before masking.

    Parameters
    ----------
    code : SparseCode
    salt : bytes
        Public, drawn anew for every round after the inputs are fixed.
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

    # Power sums of the counts: as many as decoding needs, and some to check it.
    sums = [sum_powers(values, locators, code.n_sums, code.prime)]

    # Power sums of the counts times each packed number of the coordinates: half as many
    # are enough, because the locators are known by then.
    packed = code.pack(bins)
    for position in range(code.elements_per_bin):
        pairs = zip(values, packed, strict=True)
        weighted = [value * numbers[position] for value, numbers in pairs]
        sums.append(sum_powers(weighted, locators, code.max_bins, code.prime))
    return np.concatenate(sums)


def decode(
    code: SparseCode,
    salt: bytes,
    message: np.ndarray,
    total: int,
    *,
    signed: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Decode the bins and counts of the sum of all clients' vectors.

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
        If the sums do not belong to at most ``code.max_bins`` bins of the grid with
        counts that add up to ``total``. Then there are too many bins, hashes collide,
        or the message is damaged.
    """
    elements = message.tolist()
    sums = elements[: code.n_sums]

    # The locators are the roots of the shortest recurrence of the sums (Berlekamp and
    # Massey).
    system = _VandermondeSystem(code, sums)
    locators = system.locators

    # The counts solve a Vandermonde system, which the check sums must satisfy as well.
    counts = system.solve(sums)
    if sum_powers(counts, locators, code.n_sums, code.prime).tolist() != sums:
        raise DecodeFailure(
            "the check sums do not fit: too many bins or a damaged message"
        )

    # The coordinates follow from the further sums, or from the locators themselves.
    if code.elements_per_bin:
        rows = _solve_rows(code, elements, counts, system)
    else:
        rows = [
            _split_digits(locator - 1, code.n_bins, code.n_features)
            for locator in locators
        ]
    bins = np.array(rows, np.int64).reshape(-1, code.n_features)

    # The bins must hash to the locators that they were decoded from.
    if bins.max(initial=0) >= code.n_bins or code.locate(bins, salt) != locators:
        raise DecodeFailure(
            "the hashes of the bins are not their locators: a collision or a damaged "
            "message"
        )

    # The counts must be possible, and add up to the announced total.
    if signed:
        largest = code.prime // 2
        counts = [count - code.prime * (count > largest) for count in counts]
    if sum(counts) != total or not (signed or max(counts, default=0) <= total):
        raise DecodeFailure(
            f"counts must add up to total={total}, each of them possible"
        )

    order = np.lexsort(bins.T[::-1])
    return bins[order], np.array(counts, np.int64)[order]


class _VandermondeSystem:
    """Systems ``values[i] = sum over j of w_j x_j**i``, with locators x of power sums.

    Attributes
    ----------
    locators : list of int
        In increasing order.

    Raises
    ------
    DecodeFailure
        If there are more than ``code.max_bins`` locators, or not all lie in the field.
    """

    def __init__(
        self,
        code: SparseCode,
        sums: Sequence[int],
    ):
        # The minimal polynomial of the power sums, which decoders call the connection
        # polynomial, has the locators as its roots.
        self._ring = _make_ring(code.prime)
        connection = self._ring.minpoly(sums)
        degree = connection.degree()
        if degree > code.max_bins:
            raise DecodeFailure(
                f"more than max_bins={code.max_bins} bins are not empty"
            )
        if connection[0] == 0 and degree > 0:
            raise DecodeFailure("a locator is zero, which is that of no bin")
        self.locators = sorted(map(int, connection.roots(multiplicities=False)))
        if len(self.locators) < degree:
            raise DecodeFailure(
                f"only {len(self.locators)} of {degree} locators are in the field: too "
                "many bins or a damaged message"
            )
        # Forney's formula divides by the derivative at the locators.
        derivative = connection.derivative()
        self._connection = connection
        self._derivatives = derivative.multipoint_evaluate(self.locators)

    def solve(self, values: Sequence[int]) -> list[int]:
        """Solve for the weights w, one per locator, by Forney's formula."""
        degree = len(self.locators)
        reverse = self._ring(values[:degree][::-1])
        numerator = (self._connection * reverse).right_shift(degree)
        numerators = numerator.multipoint_evaluate(self.locators)
        pairs = zip(numerators, self._derivatives, strict=True)
        return [int(value / derivative) for value, derivative in pairs]


def _solve_rows(
    code: SparseCode,
    elements: Sequence[int],
    counts: Sequence[int],
    system: _VandermondeSystem,
) -> list[list[int]]:
    """Solve for the coordinates: weights of the further sums, divided by the counts."""
    # A further sum's weight is a count times a packed number of coordinates.
    sums_by_position = cut(elements[code.n_sums :], code.max_bins)
    weighted = [system.solve(sums) for sums in sums_by_position]
    rows = []
    for count, *weights in zip(counts, *weighted, strict=True):
        inverse = pow(count, -1, code.prime)
        rows.append(code.unpack([weight * inverse % code.prime for weight in weights]))
    return rows


def derive_mask(
    private: X25519PrivateKey,
    client: int,
    public: Sequence[X25519PublicKey],
    round_name: str,
    code: SparseCode,
) -> np.ndarray:
    """Derive the mask of one client from its secrets with the others.

    The masks of a round add up to zero.

    Parameters
    ----------
    private : X25519PrivateKey
        Private key of the client.
    client : int
        Its index in ``public``, from 0.
    public : sequence of X25519PublicKey
        Public keys of all clients.
    round_name : str
        Different for every message: two messages under one mask would reveal their
        difference.
    code : SparseCode

    Returns
    -------
    ndarray of shape (code.n_elements,)
        Field elements, uniform unless all other clients collude.
    """
    peers = {peer: key for peer, key in enumerate(public) if peer != client}
    purpose = f"sparse {round_name}"
    elements = (
        (peer, _draw_elements(derive_key(secret, purpose), code))
        for peer, secret in exchange_secrets(private, peers).items()
    )
    mask = np.zeros(code.n_elements, code.dtype)
    add_pairwise(mask, client, elements, code.prime)
    return mask


def _draw_elements(
    key: bytes,
    code: SparseCode,
) -> np.ndarray:
    """Draw uniform field elements by rejection, from AES-256 in counter mode."""
    stream = KeyStream(key)
    n_bits = code.prime.bit_length()
    n_bytes = (n_bits + 7) // 8
    bit_mask = (1 << n_bits) - 1
    elements = np.empty(0, code.dtype)
    # Numbers of as many bits as the prime are uniform below it once larger ones are
    # left out.
    while len(elements) < code.n_elements:
        shape = (code.n_elements - len(elements), n_bytes)
        words = stream.next(shape, np.dtype(np.uint8))
        if code.dtype is np.uint64:
            numbers = words.view("<u8").ravel() & np.uint64(bit_mask)
        else:
            integers = [int.from_bytes(word) & bit_mask for word in words.tolist()]
            numbers = np.array(integers, object)
        elements = np.concatenate([elements, numbers[numbers < code.prime]])
    return elements


@dataclass
class SparseReport:
    """Cost of one aggregation: bytes and seconds.

    Attributes
    ----------
    bytes_per_client : int
    encode_seconds, mask_seconds : float
        Means over the clients.
    decode_seconds : float
        Time of the server.
    attempts : int
        Number of salts that were tried.
    """

    bytes_per_client: int
    encode_seconds: float = 0.0
    mask_seconds: float = 0.0
    decode_seconds: float = 0.0
    attempts: int = 0


def aggregate_sparse(
    code: SparseCode,
    vectors: Sequence[tuple[np.ndarray, np.ndarray]],
    *,
    signed: bool = False,
) -> tuple[np.ndarray, np.ndarray, SparseReport]:
    """Aggregate the vectors of all clients in this process.

    On failure it tries again with a fresh salt.

    Parameters
    ----------
    code : SparseCode
    vectors : sequence of (bins, counts)
        One per client.
    signed : bool, default=False
        Whether counts may be negative (differences).

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
    private = [X25519PrivateKey.generate() for _ in vectors]
    public = [key.public_key() for key in private]
    n_clients = len(vectors)
    report = SparseReport(code.n_bytes)
    while True:
        report.attempts += 1
        salt = os.urandom(SALT_BYTES)

        # Every client encodes and masks its vector; the messages are added.
        sums = np.zeros(code.n_elements, code.dtype)
        for client, (bins, counts) in enumerate(vectors):
            started = time.perf_counter()
            message = encode(code, salt, bins, counts)
            encoded = time.perf_counter()
            name = f"attempt {report.attempts}"
            mask = derive_mask(
                private[client],
                client,
                public,
                name,
                code,
            )
            sums = (sums + message + mask) % code.prime
            masked = time.perf_counter()
            report.encode_seconds += (encoded - started) / n_clients
            report.mask_seconds += (masked - encoded) / n_clients

        # The server decodes the sum.
        started = time.perf_counter()
        try:
            bins, counts = decode(
                code,
                salt,
                sums,
                total,
                signed=signed,
            )
            return bins, counts, report
        except DecodeFailure:
            if report.attempts == MAX_ATTEMPTS:
                raise
        finally:
            report.decode_seconds += time.perf_counter() - started
