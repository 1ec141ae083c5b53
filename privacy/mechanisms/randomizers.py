"""Local randomizers: reports instead of values, with pure local differential privacy.

A frequency oracle estimates the number of users with each of K values. A vector
randomizer reports unbiased vectors; with public random signs the server can sum them
over cells that are chosen after the reports. A report depends on the user's value and
randomness alone. Every randomizer makes one choice by the value, among finitely many
outcomes whose probabilities differ by a factor of at most exp(epsilon) between any two
values.

A randomizer is a mechanism: it draws the reports of a block of users at a time. All
that is computed from reports is post-processing.

Sources: optimized local hashing, Wang, Blocki, Li, Jha (USENIX Security 2017); Hadamard
response, after Acharya, Sun, Zhang (AISTATS 2019) and Cormode, Maddock, Maple (VLDB
2021); the vector randomizer, Duchi, Jordan, Wainwright (JASA 2018); signed sums, after
Bassily, Smith (STOC 2015).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.special import expit, gammaln

from pkm.compute.kernels.ldp import (
    add_signed_reports,
    add_spectrum,
    hash_values,
    parity_hashes,
    parity_support_counts,
    random_signs,
    support_counts,
)
from pkm.privacy.checks import freeze_fields
from pkm.privacy.mechanisms.additive import Cost
from pkm.privacy.mechanisms.noise import Key, NoiseStreams

# Uniforms have at least 53 bits: for epsilons of at least this, that changes the log
# ratio of two reports' probabilities by at most a relative 2**-30.
MIN_EPSILON = 2.0**-20
MAX_EPSILON = 40.0  # exp(-40) is still resolved by secure uniforms, which end at 2**-65
MAX_SYMBOLS = 1 << 16  # of local hashing
MAX_BITS = 10  # of a symbol of the Hadamard response
# Up to so many values local hashing is used, which takes time n * K; above, the
# Hadamard response.
MAX_HASHED_VALUES = 256
REPORT_SCALE = 1 << 20  # steps per unit of a reported direction
# Randomized response has a smaller variance than local hashing below
# DIRECT_FACTOR * exp(epsilon) + 2 values (Wang et al.).
DIRECT_FACTOR = 3


class UserCells(NamedTuple):
    """Cells of a block of users: private.

    Attributes
    ----------
    users : ndarray of shape (m,), int64
        Numbers of the users: public.
    cells : ndarray of shape (m,), int64
        The cell of each, from 0.
    """

    users: np.ndarray
    cells: np.ndarray


class UserVectors(NamedTuple):
    """Vectors of a block of users: private.

    Attributes
    ----------
    users : ndarray of shape (m,), int64
        Numbers of the users: public.
    cells : ndarray of shape (m,), int64
        The cell of each, from 0.
    vectors : ndarray of shape (m, dimensions), float64
        In radii of the ball; longer ones are treated as of length 1.
    """

    users: np.ndarray
    cells: np.ndarray
    vectors: np.ndarray


class LocalDomain(NamedTuple):
    """Values that a user can have, in place of a sensitivity.

    A user's neighbor may have any other of them.

    Attributes
    ----------
    size : int
        Number of cells, or number of dimensions of vectors.
    radius : float, default=1
        Radius of the public ball that users clip to, in half-widths.
    """

    size: int
    radius: float = 1.0


Reports = tuple[np.ndarray, np.ndarray]
"""Numbers (m,) of a block of users, and their reports (m, ...)."""


@dataclass(frozen=True)
class _LocalRandomizer:
    """Base class: one report of each user, at a pure epsilon."""

    epsilon: float

    def __post_init__(self) -> None:
        freeze_fields(self)
        check_epsilon(self.epsilon)

    def cost(self, domain: LocalDomain) -> Cost:
        """Epsilon: the largest log ratio of a report's probabilities."""
        return Cost(epsilon=self.epsilon)


@dataclass(frozen=True)
class FrequencyOracle(_LocalRandomizer):
    """Counts of values from randomized reports: base class.

    A user's symbol, a public function of value, user and key, is reported with
    probability ``p_true``, and each other symbol with probability ``p_false``. A report
    supports the values that have the reported symbol, as in Wang et al. By default a
    symbol is a value.

    Parameters
    ----------
    epsilon : float
        Epsilon of each report; at most :data:`MAX_EPSILON`.
    size : int
        Number of values K.
    key : int, default=0
        Public key of the hash.

    Attributes
    ----------
    symbols : int
        Number of symbols that a report can be.
    p_true, p_false : float
        Probabilities of the user's symbol and of each false one; ``p_true =
        exp(epsilon) * p_false``.
    p_false_support : float
        Probability, over the hash and the report, that a report supports a value that
        is not the user's.
    """

    size: int
    key: int = 0
    name: ClassVar[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size < 1:
            raise ValueError(
                f"size={self.size} must be at least 1: the number of values to count"
            )

    @property
    def symbols(self) -> int:
        """Number of symbols: at least two, so that there is a false one."""
        return max(self.size, 2)

    @property
    def p_false(self) -> float:
        """Probability of each symbol that is not the user's."""
        return 1 / (math.exp(self.epsilon) + self.symbols - 1)

    @property
    def p_true(self) -> float:
        """Probability of the user's symbol."""
        return 1 - self._p_any_false

    @property
    def _p_any_false(self) -> float:
        return (self.symbols - 1) * self.p_false

    @property
    def p_false_support(self) -> float:
        """Probability that a report supports a value that is not the user's."""
        return self.p_false

    def encode(self, users: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Symbols (m,), int64, of one value for each user."""
        return np.asarray(values, np.int64)

    def check(self, domain: LocalDomain) -> None:
        """Refuse an oracle for fewer values than users can have."""
        if self.size < domain.size:
            raise ValueError(
                f"size={self.size} of the oracle must be at least the number of cells, "
                f"{domain.size}"
            )

    def details(self, domain: LocalDomain) -> dict[str, float]:
        """Probabilities of true and false symbols; numbers of symbols and values."""
        return {
            "p_true": self.p_true,
            "p_false": self.p_false,
            "symbols": self.symbols,
            "size": self.size,
        }

    def draw(
        self,
        values: UserCells,
        streams: NoiseStreams,
        key: Key,
        sensitivity: LocalDomain | None = None,
    ) -> np.ndarray:
        """Randomized reports of users.

        Parameters
        ----------
        values : UserCells
            Cells in 0 .. size - 1.
        streams : NoiseStreams
            Streams of one replicate: the randomness of the users, user by user.
        key : tuple
            Key of a block of a release that has been charged.
        sensitivity : ignored

        Returns
        -------
        ndarray of shape (1, m), int64
            In 0 .. symbols - 1.
        """
        # Two uniforms per user: whether to report a false symbol, and which one.
        uniforms, shift_uniforms = streams.uniform(key, (2, len(values.users)))[0]
        true_symbols = self.encode(values.users, values.cells)

        # False symbols: the true one plus 1 .. symbols - 1, uniformly, modulo symbols.
        shifts = 1 + (shift_uniforms * (self.symbols - 1)).astype(np.int64)
        false_symbols = (true_symbols + shifts) % self.symbols

        # A false symbol is reported for small uniforms, which have full precision.
        return np.where(uniforms < self._p_any_false, false_symbols, true_symbols)[None]

    def probabilities(self, user: int) -> np.ndarray:
        """Probability of a user's reports for every value, shape (size, symbols)."""
        values = np.arange(self.size)
        # For tests and audits: the exact channel of one user, value by value.
        probabilities = np.full((self.size, self.symbols), self.p_false)
        true_symbols = self.encode(np.full(self.size, user), values)
        probabilities[values, true_symbols] = self.p_true
        return probabilities

    def count_supports(self, reports: Iterable[Reports]) -> tuple[np.ndarray, int]:
        """Numbers of reports that support each value, (size,), and of all reports."""
        totals = np.zeros(self.n_totals, np.int64)
        n_reports = 0
        for users, symbols in reports:
            self._add(totals, users, symbols)
            n_reports += len(users)
        return self._supports(totals), n_reports

    def estimate(self, reports: Iterable[Reports]) -> np.ndarray:
        """Unbiased numbers of users with each value, (size,); may be negative."""
        # E[supports] = count * p + (n_reports - count) * q, solved for the count.
        supports, n_reports = self.count_supports(reports)
        p = self.p_true
        q = self.p_false_support
        return (supports - n_reports * q) / (p - q)

    def stddev(
        self,
        n_users: int,
        count: float = 0.0,
    ) -> float:
        """Standard deviation of an estimated count.

        Parameters
        ----------
        n_users : int
            Number of users who report.
        count : float, default=0
            Number of those with the value.

        Returns
        -------
        float
            In users.
        """
        # Supports are a sum of Bernoulli variables: p for users with the value, q for
        # the others.
        p = self.p_true
        q = self.p_false_support
        variance = count * p * (1 - p) + (n_users - count) * q * (1 - q)
        return math.sqrt(variance) / (p - q)

    @property
    def n_totals(self) -> int:
        """Length of the array that reports are added to."""
        return self.size

    def _add(self, totals: np.ndarray, users: np.ndarray, reports: np.ndarray) -> None:
        totals += np.bincount(reports, minlength=self.symbols)[: self.size]

    def _supports(self, totals: np.ndarray) -> np.ndarray:
        return totals


class RandomizedResponse(FrequencyOracle):
    """k-ary randomized response: a symbol is a value. Best for few values."""

    name = "randomized_response"


class LocalHashing(FrequencyOracle):
    """Optimized local hashing: users hash values to round(exp(epsilon)) + 1 symbols."""

    name = "local_hashing"

    @property
    def symbols(self) -> int:
        """Close to exp(epsilon) + 1, which minimizes the variance."""
        return min(round(math.exp(self.epsilon)) + 1, MAX_SYMBOLS)

    @property
    def p_false_support(self) -> float:
        """Probability that a report supports a value that is not the user's."""
        return 1 / self.symbols

    def encode(self, users: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Keyed hashes of (user, value)."""
        return hash_values(np.uint64(self.key), users, values, self.symbols)

    def _add(self, totals: np.ndarray, users: np.ndarray, reports: np.ndarray) -> None:
        totals += support_counts(
            np.uint64(self.key), users, reports, self.symbols, self.size
        )


class HadamardResponse(LocalHashing):
    """Local hashing by a few random rows of a Hadamard matrix.

    The bits of a value's symbol are its entries in these rows.

    The number of symbols is the power of two next to exp(epsilon) + 1 on a logarithmic
    scale, up to 1,024. Up to an epsilon of 7 that costs at most 5 % of the standard
    deviation, beyond that more. The server's work is ``n * symbols + K log K`` instead
    of ``n * K``.
    """

    name = "hadamard_response"

    @property
    def bits(self) -> int:
        """Number of rows per user."""
        # The power of two nearest to exp(epsilon) + 1 on a logarithmic scale.
        closest = round(math.log2(math.exp(self.epsilon) + 1))
        return min(max(closest, 1), MAX_BITS)

    @property
    def symbols(self) -> int:
        """Power of two."""
        return 1 << self.bits

    @property
    def n_totals(self) -> int:
        """Order of the matrix: the smallest power of two not below the size."""
        return 1 << (self.size - 1).bit_length()

    def encode(self, users: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Entries of the user's rows in the values' columns."""
        return parity_hashes(
            np.uint64(self.key), users, values, self.bits, self.n_totals
        )

    def _add(self, totals: np.ndarray, users: np.ndarray, reports: np.ndarray) -> None:
        add_spectrum(np.uint64(self.key), users, reports, self.bits, totals)

    def _supports(self, totals: np.ndarray) -> np.ndarray:
        return parity_support_counts(totals, self.bits)[: self.size]


def frequency_oracle(
    epsilon: float,
    size: int,
    key: int = 0,
) -> FrequencyOracle:
    """Choose the oracle for a number of values.

    Parameters
    ----------
    epsilon : float
    size : int
        Number of values K.
    key : int, default=0
        Public.

    Returns
    -------
    FrequencyOracle
        :class:`RandomizedResponse` below 3 exp(epsilon) + 2 values, where its variance
        is the smallest; then :class:`LocalHashing` up to :data:`MAX_HASHED_VALUES`;
        beyond, :class:`HadamardResponse`.

    Examples
    --------
    >>> [frequency_oracle(1.0, size).name for size in (10, 100, 1000)]
    ['randomized_response', 'local_hashing', 'hadamard_response']
    """
    check_epsilon(epsilon)
    if size < DIRECT_FACTOR * math.exp(epsilon) + 2:
        return RandomizedResponse(epsilon, size, key)
    if size <= MAX_HASHED_VALUES:
        return LocalHashing(epsilon, size, key)
    return HadamardResponse(epsilon, size, key)


@dataclass(frozen=True)
class VectorRandomizer(_LocalRandomizer):
    """Unbiased private vectors of the unit ball.

    A uniform direction is drawn independently of the vector. It is reported as it is or
    negated, so that its inner product with a vector of length r is positive with
    probability ``(1 + r tanh(epsilon / 2)) / 2``. Only the sign depends on the vector.
    Its probabilities are between 1 / (exp(epsilon) + 1) and exp(epsilon) /
    (exp(epsilon) + 1), also after rounding: a rounded direction and its opposite are
    equally likely to be drawn.

    Parameters
    ----------
    epsilon : float
    dimensions : int

    Attributes
    ----------
    length : float
        The factor B: the expectation of B times the reported direction is the user's
        vector.
    """

    dimensions: int
    name = "vector_randomizer"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dimensions < 1:
            raise ValueError(f"dimensions={self.dimensions} must be at least 1")

    @property
    def length(self) -> float:
        """Factor B of reported directions, in radii of the ball."""
        d = self.dimensions
        # Duchi, Jordan, Wainwright: 1 / B is tanh(epsilon / 2) times the mean absolute
        # coordinate of a uniform direction.
        gamma_ratio = math.exp(gammaln((d + 1) / 2) - gammaln(d / 2))
        return math.sqrt(math.pi) / math.tanh(self.epsilon / 2) * gamma_ratio

    @property
    def stddev(self) -> float:
        """Largest standard deviation of a coordinate, of the vector 0, in radii."""
        return self.length / math.sqrt(self.dimensions)

    def check(self, domain: LocalDomain) -> None:
        """Refuse vectors of another number of dimensions."""
        if self.dimensions != domain.size:
            raise ValueError(
                f"dimensions={self.dimensions} of the randomizer must be the number "
                f"of features, {domain.size}"
            )

    def details(self, domain: LocalDomain) -> dict[str, float]:
        """Length of a report's vector, number of dimensions, radius of the ball."""
        return {
            "length": self.length,
            "dimensions": self.dimensions,
            "radius": domain.radius,
        }

    def draw(
        self,
        values: UserVectors,
        streams: NoiseStreams,
        key: Key,
        sensitivity: LocalDomain | None = None,
    ) -> np.ndarray:
        """Randomized reports of users.

        Parameters
        ----------
        values : UserVectors
        streams : NoiseStreams
            Streams of one replicate: the randomness of the users, user by user.
        key : tuple
            Key of a block of a release that has been charged.
        sensitivity : ignored

        Returns
        -------
        ndarray of shape (1, m, dimensions), int32
            Directions, in multiples of 2**-20.
        """
        vectors = values.vectors

        # Draw uniform directions.
        directions = streams.normal((*key, "direction"), vectors.shape)[0]
        lengths = np.sqrt(np.einsum("ij,ij->i", directions, directions))
        directions /= np.maximum(lengths, np.finfo(float).tiny)[:, None]

        # Turn each to the vector's side, or away from it with probability p_flip, which
        # depends on the vector's length.
        # Zero counts as the vector's side, in ``density`` as well.
        on_side = np.einsum("ij,ij->i", directions, vectors) >= 0
        p_flip = self.flip_probability(np.sqrt(np.einsum("ij,ij->i", vectors, vectors)))
        uniforms = streams.uniform((*key, "side"), (len(vectors),))[0]
        is_flipped = uniforms < p_flip
        directions *= np.where(on_side ^ is_flipped, REPORT_SCALE, -REPORT_SCALE)[
            :, None
        ]
        return np.rint(directions).astype(np.int32)[None]

    def flip_probability(self, lengths: np.ndarray) -> np.ndarray:
        """Probability that a report points away from the user's vector."""
        # (1 - r tanh(epsilon / 2)) / 2, written without cancellation: expit(-epsilon)
        # at r = 1, one half at r = 0.
        missing_length = 1 - np.minimum(lengths, 1.0)
        return expit(-self.epsilon) + 0.5 * math.tanh(self.epsilon / 2) * missing_length

    def density(
        self,
        vectors: np.ndarray,
        directions: np.ndarray,
    ) -> np.ndarray:
        """Density of reports, relative to uniform directions.

        Parameters
        ----------
        vectors, directions : ndarray of shape (..., dimensions), float64

        Returns
        -------
        ndarray of shape (...)
        """
        p_flip = self.flip_probability(np.linalg.norm(vectors, axis=-1))
        on_side = (vectors * directions).sum(axis=-1) >= 0
        return 2 * np.where(on_side, 1 - p_flip, p_flip)


@dataclass(frozen=True)
class SignedSums(VectorRandomizer):
    """Sums of the users' vectors over cells, which may be chosen after the reports.

    A user multiplies the vector by a public random sign of (user, cell) and randomizes
    it as :class:`VectorRandomizer` does. For the sum of a cell the server multiplies
    every report by the user's sign of that cell. That cancels the sign of the cell's
    vectors, and all other vectors become noise of mean zero.

    Parameters
    ----------
    epsilon : float
    dimensions : int
    key : int, default=0
        Public key of the signs.
    """

    key: int = 0

    def draw(
        self,
        values: UserVectors,
        streams: NoiseStreams,
        key: Key,
        sensitivity: LocalDomain | None = None,
    ) -> np.ndarray:
        """Randomized reports of users; see :meth:`VectorRandomizer.draw`."""
        # A public sign maps the unit ball to itself: privacy is that of the randomizer.
        signs = random_signs(np.uint64(self.key), values.users, values.cells)
        signed = values._replace(vectors=values.vectors * signs[:, None])
        return super().draw(signed, streams, key, sensitivity)

    def estimate(
        self,
        reports: Iterable[Reports],
        cells: np.ndarray,
    ) -> np.ndarray:
        """Unbiased sums (m, dimensions) of the vectors of cells (m,), in radii."""
        # Integer totals, exact in any order; then from report steps to radii.
        totals = np.zeros((len(cells), self.dimensions), np.int64)
        for users, directions in reports:
            add_signed_reports(np.uint64(self.key), users, directions, cells, totals)
        return totals * (self.length / REPORT_SCALE)

    def sum_stddev(self, n_users: int) -> float:
        """Largest standard deviation of a coordinate of a sum, in radii."""
        return math.sqrt(n_users) * self.stddev


def check_epsilon(epsilon: float) -> None:
    """Refuse an epsilon for which uniforms are too coarse."""
    if not MIN_EPSILON <= epsilon <= MAX_EPSILON:
        raise ValueError(
            f"epsilon={epsilon} of a local report must be from {MIN_EPSILON:.2g} to "
            f"{MAX_EPSILON:g}: beyond, random numbers are too coarse for its "
            "probabilities"
        )
