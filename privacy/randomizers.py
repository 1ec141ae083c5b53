"""Local randomizers: what a user sends instead of a value, with pure local differential privacy.

A frequency oracle counts the users of each of K values; a vector randomizer gives unbiased vectors, and with public
random signs sums of them over cells that are named only later. A report depends on the user's own value and the user's
own randomness alone. Every randomizer is built on one step whose law is exact: a choice among finitely many outcomes
whose probabilities differ by a factor of at most exp(epsilon) between any two values.

Sources: optimized local hashing, Wang, Blocki, Li, Jha (USENIX Security 2017); Hadamard response, after Acharya, Sun,
Zhang (AISTATS 2019) and Cormode, Maddock, Maple (VLDB 2021); the vector randomizer, Duchi, Jordan, Wainwright (JASA
2018); signed sums, after Bassily, Smith (STOC 2015).
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import expit, gammaln

from pkm.compute.ldp import (
    add_signed_reports,
    add_spectrum,
    hash_values,
    parity_hashes,
    parity_support_counts,
    random_signs,
    support_counts,
)
from pkm.privacy.noise import NoiseStreams

MAX_EPSILON = 40.0  # exp(-40) is still resolved by secure uniforms, which end at 2**-65
MAX_SYMBOLS = 1 << 16  # that a hashed value can be reported as
MAX_BITS = 10
HASHED_VALUES = 256  # up to here local hashing, which looks at all values of all users; beyond, the Hadamard transform
DIRECTION = 1 << 20  # steps per unit of a reported direction
GROWTH = 3  # direct response is more accurate than hashing below GROWTH * exp(epsilon) + 2 values


@dataclass(frozen=True)
class FrequencyOracle:
    """Counts of values from randomized reports; the parts that the three kinds share.

    A user's symbol, a public function of value, user and key, is reported as it is with probability ``keep`` and as
    each other symbol with probability ``other``.

    Parameters
    ----------
    epsilon : float
        Of each report; at most :data:`MAX_EPSILON`.
    size : int
        Number of values K.
    key : int, default=0
        Public key of the hash.

    Attributes
    ----------
    symbols : int
        Number of symbols that a report can be.
    keep, other : float
        Probabilities of a report; ``keep = exp(epsilon) * other``.
    agree : float
        Probability, over the hash and the report, that a user supports a value that is not the user's.
    """

    epsilon: float
    size: int
    key: int = 0
    name: ClassVar[str]

    def __post_init__(self):
        check_epsilon(self.epsilon)
        if self.size < 1:
            raise ValueError(f"size={self.size} must be at least 1: the number of values to count")

    @property
    def symbols(self) -> int:
        """Number of symbols that a report can be."""
        raise NotImplementedError(f"{type(self).__name__} must define symbols")

    @property
    def p_false(self) -> float:
        """Probability of each symbol that is not the user's."""
        return 1 / (math.exp(self.epsilon) + self.symbols - 1)

    @property
    def p_true(self) -> float:
        """Probability of the user's own symbol."""
        return 1 - self._lie

    @property
    def _lie(self) -> float:
        return (self.symbols - 1) * self.p_false

    @property
    def p_false_support(self) -> float:
        """Probability that a user supports a value that is not the user's."""
        return 1 / self.symbols

    def symbols_of(self, users: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Symbols (m,), int64, of a value of each user."""
        raise NotImplementedError(f"{type(self).__name__} must define symbols_of(users, values)")

    def report(
        self, users: np.ndarray, values: np.ndarray, streams: NoiseStreams, key: tuple
    ) -> np.ndarray:
        """What users send.

        Parameters
        ----------
        users, values : ndarray of shape (m,), int64
            Numbers of the users; values in 0 .. size - 1.
        streams : NoiseStreams
            Of one replicate: the users' own randomness, user by user.
        key : tuple
            Of a release that has been paid for.

        Returns
        -------
        ndarray of shape (m,), int64
            In 0 .. symbols - 1.
        """
        lies, shifts = streams.uniform(key, (2, len(users)))[0]
        own = self.symbols_of(users, values)
        # The rare outcome is where the uniforms are finest. A lie moves on by 1 .. symbols - 1, all alike.
        moved = (own + 1 + (shifts * (self.symbols - 1)).astype(np.int64)) % self.symbols
        return np.where(lies < self._lie, moved, own)

    def probabilities(self, user: int) -> np.ndarray:
        """Probability of every report of a user for every value, shape (size, symbols)."""
        values = np.arange(self.size)
        law = np.full((self.size, self.symbols), self.p_false)
        law[values, self.symbols_of(np.full(self.size, user), values)] = self.p_true
        return law

    def tally(self) -> "Tally":
        """Start counting reports."""
        return Tally(self)

    def stddev(self, n_users: int, count: float = 0.0) -> float:
        """Standard deviation of an estimated count.

        Parameters
        ----------
        n_users : int
            Who report.
        count : float, default=0
            How many of them have the value.

        Returns
        -------
        float
            In users.
        """
        p, q = self.p_true, self.p_false_support
        variance = count * p * (1 - p) + (n_users - count) * q * (1 - q)
        return math.sqrt(variance) / (p - q)

    def _start(self) -> np.ndarray:
        return np.zeros(self.size, np.int64)

    def _add(self, totals: np.ndarray, users: np.ndarray, reports: np.ndarray) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define _add(totals, users, reports)")

    def _supports(self, totals: np.ndarray) -> np.ndarray:
        return totals


class Tally:
    """Counts of the reports of a frequency oracle, added up part by part."""

    def __init__(self, oracle: FrequencyOracle):
        self._oracle, self._totals, self._n = oracle, oracle._start(), 0

    def add(self, users: np.ndarray, reports: np.ndarray) -> None:
        """Add reports (m,) of users (m,)."""
        self._oracle._add(self._totals, users, reports)
        self._n += len(users)

    @property
    def supports(self) -> np.ndarray:
        """Number of reports that support each value, shape (size,), int64."""
        return self._oracle._supports(self._totals)

    def estimate(self) -> np.ndarray:
        """Unbiased numbers of the users with each value, shape (size,), float64; may be negative."""
        p, q = self._oracle.p_true, self._oracle.p_false_support
        return (self.supports - self._n * q) / (p - q)


class DirectResponse(FrequencyOracle):
    """k-ary randomized response: a symbol is a value; the best for few values."""

    name = "randomized_response"

    @property
    def symbols(self) -> int:
        """One for each value; two at least, so that a report of the only value has something to lie with."""
        return max(self.size, 2)

    @property
    def p_false_support(self) -> float:
        """Probability that a user supports a value that is not the user's."""
        return self.p_false

    def symbols_of(self, users, values):
        """The values themselves."""
        return np.asarray(values, np.int64)

    def _add(self, totals, users, reports):
        totals += np.bincount(reports, minlength=self.symbols)[: self.size]


class LocalHashing(FrequencyOracle):
    """Optimised local hashing: values are hashed to round(exp(epsilon)) + 1 symbols, user by user."""

    name = "local_hashing"

    @property
    def symbols(self) -> int:
        """Close to exp(epsilon) + 1, which makes the variance least."""
        return min(round(math.exp(self.epsilon)) + 1, MAX_SYMBOLS)

    def symbols_of(self, users, values):
        """Keyed hashes of (user, value)."""
        return hash_values(self.key, users, values, self.symbols)

    def _add(self, totals, users, reports):
        totals += support_counts(self.key, users, reports, self.symbols, self.size)


class HadamardResponse(FrequencyOracle):
    """Local hashing by random rows of a Hadamard matrix: the symbol is what the value has in a few of them.

    The number of symbols is the power of two next to exp(epsilon) + 1 on a logarithmic scale; that costs at most 3 % of
    the standard deviation, and the server's work is n * symbols + K log K instead of n * K.
    """

    name = "hadamard_response"

    @property
    def bits(self) -> int:
        """Number of rows that a user looks at."""
        return min(max(round(math.log2(math.exp(self.epsilon) + 1)), 1), MAX_BITS)

    @property
    def symbols(self) -> int:
        """Power of two."""
        return 1 << self.bits

    @property
    def order(self) -> int:
        """Order of the matrix: the least power of two that holds all values."""
        return 1 << max(self.size - 1, 0).bit_length()

    def symbols_of(self, users, values):
        """Entries of the user's rows in the values' columns."""
        return parity_hashes(self.key, users, values, self.bits, self.order)

    def _start(self):
        return np.zeros(self.order, np.int64)

    def _add(self, totals, users, reports):
        add_spectrum(self.key, users, reports, self.bits, totals)

    def _supports(self, totals):
        return parity_support_counts(totals, self.bits)[: self.size]


def frequency_oracle(epsilon: float, size: int, key: int = 0) -> FrequencyOracle:
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
        :class:`DirectResponse` below 3 exp(epsilon) + 2 values, where its variance is the least; then
        :class:`LocalHashing` up to :data:`HASHED_VALUES`; beyond, :class:`HadamardResponse`.

    Examples
    --------
    >>> [frequency_oracle(1.0, size).name for size in (10, 100, 1000)]
    ['randomized_response', 'local_hashing', 'hadamard_response']
    """
    check_epsilon(epsilon)
    if size < GROWTH * math.exp(epsilon) + 2:
        return DirectResponse(epsilon, size, key)
    return (LocalHashing if size <= HASHED_VALUES else HadamardResponse)(epsilon, size, key)


@dataclass(frozen=True)
class VectorRandomizer:
    """Unbiased private vectors of the unit ball.

    A uniform direction is drawn without regard to the vector; it is sent as it is, or turned round, so that it points
    to the vector's side with probability ``(1 + r tanh(epsilon / 2)) / 2`` for a vector of length r. All that depends
    on the vector is therefore one bit, with probabilities between 1 / (exp(epsilon) + 1) and exp(epsilon) /
    (exp(epsilon) + 1) however directions and inner products are rounded: a rounded direction and its opposite are
    equally likely before.

    Parameters
    ----------
    epsilon : float
    dimensions : int

    Attributes
    ----------
    length : float
        B: a report stands for the vector B times its direction, whose expectation is the user's vector.
    """

    epsilon: float
    dimensions: int
    name: ClassVar[str] = "vector_randomizer"

    def __post_init__(self):
        check_epsilon(self.epsilon)
        if self.dimensions < 1:
            raise ValueError(f"dimensions={self.dimensions} must be at least 1")

    @property
    def length(self) -> float:
        """Length of the vector that a report stands for, in radii of the ball."""
        d = self.dimensions
        return (
            math.sqrt(math.pi)
            / math.tanh(self.epsilon / 2)
            * math.exp(gammaln((d + 1) / 2) - gammaln(d / 2))
        )

    @property
    def stddev(self) -> float:
        """Standard deviation of a report's coordinate about its expectation, at most: that of the vector 0."""
        return self.length / math.sqrt(self.dimensions)

    def report(self, vectors: np.ndarray, streams: NoiseStreams, key: tuple) -> np.ndarray:
        """What users send.

        Parameters
        ----------
        vectors : ndarray of shape (m, dimensions), float64
            Longer ones count as of length 1.
        streams : NoiseStreams
            Of one replicate: the users' own randomness, user by user.
        key : tuple
            Of a release that has been paid for.

        Returns
        -------
        ndarray of shape (m, dimensions), int32
            Directions, in multiples of 2**-20.
        """
        directions = streams.normal((*key, "direction"), vectors.shape)[0]
        lengths = np.sqrt(np.einsum("ij,ij->i", directions, directions))
        directions /= np.maximum(lengths, np.finfo(float).tiny)[:, None]
        towards = np.einsum("ij,ij->i", directions, vectors) >= 0
        against = self.flip_probability(np.sqrt(np.einsum("ij,ij->i", vectors, vectors)))
        lies = streams.uniform((*key, "side"), (len(vectors),))[0] < against
        directions *= np.where(towards ^ lies, DIRECTION, -DIRECTION)[:, None]
        return np.rint(directions).astype(np.int32)

    def flip_probability(self, lengths: np.ndarray) -> np.ndarray:
        """Probability that a report points away from the user's vector."""
        short = 1 - np.minimum(lengths, 1.0)
        return expit(-self.epsilon) + 0.5 * math.tanh(self.epsilon / 2) * short

    def density(self, vectors: np.ndarray, directions: np.ndarray) -> np.ndarray:
        """Density of reports, relative to uniform directions.

        Parameters
        ----------
        vectors, directions : ndarray of shape (..., dimensions), float64

        Returns
        -------
        ndarray of shape (...)
        """
        against = self.flip_probability(np.linalg.norm(vectors, axis=-1))
        return 2 * np.where((vectors * directions).sum(axis=-1) >= 0, 1 - against, against)


@dataclass(frozen=True)
class SignedSums:
    """Sums of the users' vectors over cells that need not be known when users report.

    A user turns the vector round or not by a public random sign of (user, cell) and sends it through a
    :class:`VectorRandomizer`; the server multiplies every report by its sign of the cell in question, which keeps
    that cell's vectors and leaves of the others' only noise.

    Parameters
    ----------
    randomizer : VectorRandomizer
    key : int, default=0
        Public key of the signs.
    """

    randomizer: VectorRandomizer
    key: int = 0

    def report(self, users, cells, vectors, streams: NoiseStreams, key: tuple) -> np.ndarray:
        """What users (m,) with cells (m,) and vectors (m, d) of the unit ball send; see :class:`VectorRandomizer`."""
        return self.randomizer.report(
            vectors * random_signs(self.key, users, cells)[:, None], streams, key
        )

    def add(
        self, totals: np.ndarray, users: np.ndarray, reports: np.ndarray, cells: np.ndarray
    ) -> None:
        """Add reports (m, d) of users (m,) to the totals (cells, d), int64, of cells (cells,)."""
        add_signed_reports(self.key, users, reports, cells, totals)

    def estimate(self, totals: np.ndarray) -> np.ndarray:
        """Unbiased sums of the vectors, in radii."""
        return totals * (self.randomizer.length / DIRECTION)

    def stddev(self, n_users: int) -> float:
        """Standard deviation of a coordinate of a sum, at most."""
        return math.sqrt(n_users) * self.randomizer.stddev


def check_epsilon(epsilon: float) -> None:
    """Refuse an epsilon that a user's randomness cannot carry out."""
    if not 0 < epsilon <= MAX_EPSILON:
        raise ValueError(
            f"epsilon={epsilon} must be positive and, of a local report, at most {MAX_EPSILON:g}: beyond, a user's "
            "random numbers are too coarse for the smallest probability"
        )
