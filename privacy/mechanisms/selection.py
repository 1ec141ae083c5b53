"""The exponential mechanism, and the score of a candidate split of a cell.

Only the index of the chosen candidate is released. Weights are relative to the largest,
so that none can overflow.
"""

import math
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numba import njit, vectorize
from scipy.special import log_expit, log_ndtr, ndtri_exp

from pkm.privacy.checks import check_positive, freeze_fields
from pkm.privacy.mechanisms import samplers
from pkm.privacy.mechanisms.additive import Cost
from pkm.privacy.mechanisms.noise import Key, NoiseStreams

BLOCK_INTERVALS = 1 << 13  # intervals between values that are scored at a time
NEGLIGIBLE = 40.0  # exp(-40) is below the resolution of a seeded uniform variate

# Bound on the relative error of a choice in float arithmetic, per unit of the largest
# exponent and per candidate. Candidates of negligible weight are left out.
TOLERANCE = 2.0**-50


@vectorize(cache=True)
def _split_score(
    left: float,
    inside: float,
    total: float,
    size: float,
    t: float,
    q: float,
    emptiness_weight: float,
    from_both_ends: bool,
) -> float:
    """Score of a candidate (DPM, Definitions 5 to 7); the first four are in records."""
    if size < 1:
        return 0.0

    # Rank of the candidate, in records: 0 at either end, half the size at the median.
    half = size / 2
    rank = min(left, total - left) if from_both_ends else half - abs(left - half)
    rank = min(rank, half)

    # Centreness is piecewise linear in the rank, with a break at the outer share q. The
    # outer line is steeper, so the smaller of the two lines applies.
    outer = size * q
    inner_line = rank * ((1 - t) / (half - outer)) + (t - 2 * q) / (1 - 2 * q)
    centreness = min(rank * (t / outer), inner_line)

    emptiness = max(inside * (-emptiness_weight / size) + emptiness_weight, 0.0)
    return centreness + emptiness


@njit(cache=True)
def _score_cell(
    counts: np.ndarray,
    records_per_count: float,
    size: float,
    score: tuple[float, float, float, bool],
    first: np.ndarray,
    last: np.ndarray,
    scores: np.ndarray,
) -> None:
    """Write the scores (d, candidates) of a cell, from its counts (d, bins)."""
    t, q, emptiness_weight, from_both_ends = score
    # Scores are of numbers of records: rows with weights are counted in fractions.
    total = counts[0].sum() * records_per_count
    for h in range(scores.shape[0]):
        # Invariant: ``below`` is the count of the bins below the candidate's interval.
        below = 0
        for candidate in range(scores.shape[1]):
            # A candidate's interval is the two bins on either side of its boundary.
            boundary = 2 * candidate + 1
            left = (below + counts[h, boundary - 1]) * records_per_count
            inside = np.int64(counts[h, boundary - 1]) + counts[h, boundary]
            below += inside
            scores[h, candidate] = -np.inf
            if first[h] < boundary < last[h]:
                scores[h, candidate] = _split_score(
                    left,
                    inside * records_per_count,
                    total,
                    size,
                    t,
                    q,
                    emptiness_weight,
                    from_both_ends,
                )


@njit(cache=True)
def _choose(
    scores: np.ndarray,
    scale: float,
    uniform: float,
    tolerance: float,
) -> int:
    """Draw an index with weights ``exp(scale * scores)``, by inversion.

    Returns -1 if rounding could have decided: the target is nearer to a neighbor's
    share than ``tolerance``, per unit of the largest exponent and per candidate. A
    tolerance of 0 never returns -1.
    """
    # Loops throughout: numpy's max and searchsorted take a second to compile each.
    top = -np.inf
    for i in range(len(scores)):
        top = max(top, scores[i] * scale)
    if top == -np.inf:
        return 0

    # After step i, ``total`` is the weight of candidates 0 .. i in units of the largest
    # weight: nothing overflows.
    cumulative = np.empty(len(scores))
    total = 0.0
    for i in range(len(scores)):
        exponent = scores[i] * scale
        if exponent > top - NEGLIGIBLE:
            total += math.exp(exponent - top)
        cumulative[i] = total

    # Find the first cumulative weight above the target. If rounding lifts the target to
    # the total, the search ends at the last candidate with a positive weight.
    target = uniform * total
    i = 0
    while cumulative[i] <= target and cumulative[i] < total:
        i += 1

    # Exponents are wrong by units in their last place, sums by one unit per candidate.
    if tolerance > 0:
        slack = tolerance * (abs(top) + NEGLIGIBLE + len(scores)) * total
        is_above = i == 0 or target - cumulative[i - 1] > slack
        is_below = i == len(scores) - 1 or cumulative[i] - target > slack
        if not (is_above and is_below):
            return -1
    return i


def choose_securely(scores: np.ndarray, scale: float) -> int:
    """Draw an index with probability proportional to ``exp(scale * scores)``, exactly.

    By inversion of a uniform number, whose first 64 bits are a random word. Float
    arithmetic decides, unless rounding could matter; then rational bounds and further
    random bits do.

    Parameters
    ----------
    scores : ndarray of shape (c,), float64
        ``-inf`` for candidates that must not be chosen, unless there are no others.
    scale : float

    Returns
    -------
    int
    """
    # 64 bits first, by float arithmetic; exactly only where these do not decide.
    word = int(samplers.random_words(1)[0])
    choice = _choose(scores, scale, word * 2.0**-64, TOLERANCE)
    if choice >= 0:
        return int(choice)
    allowed = np.flatnonzero(scores > -np.inf)
    exact_scale = Fraction(scale)
    exponents = [Fraction(score) * exact_scale for score in scores[allowed].tolist()]
    return int(allowed[samplers.choose(exponents, word)])


@dataclass(frozen=True)
class SplitScore:
    """Score of a candidate split: high near the median and in sparse intervals.

    Source: DPM, Definitions 5 to 7.

    Parameters
    ----------
    t : float
        Centreness of a candidate with the fraction q of the points on one side, in (0,
        1].
    q : float
        Fraction of the points on one side at which the centreness has a break; ``2 q <=
        t``.
    emptiness_weight : float
        Positive weight of the emptiness relative to the centreness.
    from_both_ends : bool
        Whether the rank is the smaller of the exact counts on the two sides (True), or
        is computed from the distance to half the noisy size (False, as published).

    Attributes
    ----------
    sensitivity : float
        Bound on the change that a record makes to the difference of two scores, times
        the noisy size: zero-out or add-remove.

    Raises
    ------
    ValueError
        If a parameter is outside its range.

    Notes
    -----
    An added record adds at most 1 to each side's count and to the count inside an
    interval. The slope of the centreness is at most t / (q size). Counted from both
    ends, a record can only raise a centreness and only lower an emptiness. So scores
    change by amounts in [-emptiness_weight, t / q] / size, and the difference of two by
    at most the sum of both. Computed from half the size, a record can raise or lower a
    centreness; twice the published sensitivity covers that.

    Examples
    --------
    >>> score = SplitScore(t=0.3, q=1 / 12, emptiness_weight=5.0, from_both_ends=True)
    >>> score(np.array([50.0]), np.array([0.0]), 100.0, 100.0).round(6).tolist()
    [6.0]
    >>> round(score.sensitivity, 6)
    8.6
    """

    t: float
    q: float
    emptiness_weight: float
    from_both_ends: bool

    def __post_init__(self) -> None:
        freeze_fields(self)
        if not (0 < self.q and 2 * self.q <= self.t <= 1 and 2 * self.q < 1):
            raise ValueError(
                f"t={self.t} and q={self.q} must satisfy 0 < 2 q <= t <= 1 and q < 0.5"
            )
        check_positive("emptiness_weight", self.emptiness_weight)

    @property
    def sensitivity(self) -> float:
        """Bound on the change of the difference of two scores, times the noisy size."""
        # Range of a score's change: t / q of the centreness, plus that of the
        # emptiness.
        bound = self.t / self.q + self.emptiness_weight
        return bound if self.from_both_ends else 2 * bound

    def __call__(
        self,
        left: np.ndarray,
        inside: np.ndarray,
        total: float | np.ndarray,
        size: float | np.ndarray,
    ) -> np.ndarray:
        """Score candidates.

        Parameters
        ----------
        left, inside : ndarray
            Exact numbers of points below a candidate and in its interval.
        total : float or ndarray
            Exact number of points in the cell.
        size : float or ndarray
            The cell's released count; below one record all scores are 0.

        Returns
        -------
        ndarray
            Shaped like ``left``; ``total`` and ``size`` broadcast against it.
        """
        # numba's stubs do not say that vectorize makes a ufunc.
        score: Any = _split_score
        return np.asarray(score(left, inside, total, size, *self._numbers))

    def score_cell(
        self,
        counts: np.ndarray,
        records_per_count: float,
        size: float,
        first: np.ndarray,
        last: np.ndarray,
        out: np.ndarray,
    ) -> None:
        """Score the candidates of a cell: the midpoints of intervals of two bins each.

        Parameters
        ----------
        counts : ndarray of shape (d, 2 m + 1), integer
            Exact count of the cell per feature and bin.
        records_per_count : float
            Records that one stands for in a count: 1, or 2**-16 where rows have
            weights.
        size : float
            Its released count, in records.
        first, last : ndarray of shape (d,), int64
            Candidate c is allowed in feature h if ``first[h] < 2 c + 1 < last[h]``.
        out : ndarray of shape (d, m), float64
            Written: the scores, ``-inf`` where a candidate is not allowed.
        """
        _score_cell(
            counts,
            records_per_count,
            float(size),
            self._numbers,
            first,
            last,
            out,
        )

    @property
    def _numbers(self) -> tuple[float, float, float, bool]:
        return astuple(self)


class ScoreSensitivity(NamedTuple):
    """Bound on the change of the difference of two scores between neighbors.

    Attributes
    ----------
    difference : float or ndarray of shape (m,)
        The bound, for all selections of a release or for each of them.
    monotonic : bool, default=False
        Whether an added record moves all scores in the same direction. A selection is
        then charged in mu, otherwise in epsilon.
    failure : float, default=0
        Probability that the bound does not hold: charged as delta. 0 if monotonic.
    """

    difference: float | np.ndarray
    monotonic: bool = False
    failure: float = 0.0


@dataclass(frozen=True)
class _Selection:
    """Base class of the exponential mechanisms, which select among candidates."""

    epsilon: float
    name = "exponential"

    def __post_init__(self) -> None:
        freeze_fields(self)
        if not 0 < self.epsilon < math.inf:
            raise ValueError(
                f"epsilon={self.epsilon} of a selection must be positive and finite"
            )

    def check(self, sensitivity: ScoreSensitivity) -> None:
        """Accept any epsilon: scores are divided by their sensitivity."""

    def cost(self, sensitivity: ScoreSensitivity) -> Cost:
        """Cost in mu if scores are monotonic, otherwise epsilon."""
        # The cost in mu needs bounded range alone, which all scores have here. For
        # other scores the pure cost is charged, which is valid too.
        if sensitivity.monotonic:
            return Cost(mu=selection_mu(self.epsilon))
        return Cost(epsilon=self.epsilon, delta=sensitivity.failure)

    def details(self, sensitivity: ScoreSensitivity) -> dict[str, float]:
        """The range of the exponents, if the charge is in mu."""
        return {"range": self.epsilon} if sensitivity.monotonic else {}


class Exponential(_Selection):
    """Exponential mechanism: probability proportional to ``exp(epsilon score / D)``.

    D is the sensitivity: a bound on the change of the difference of two scores.

    Parameters
    ----------
    epsilon : float
        Bound on the change of the difference of two exponents (bounded range).
    """

    def draw(
        self,
        values: Iterable[np.ndarray],
        streams: NoiseStreams,
        key: Key,
        sensitivity: ScoreSensitivity,
    ) -> np.ndarray:
        """Choose a candidate in every selection of a release.

        Parameters
        ----------
        values : iterable of ndarray of shape (c,), float64
            Scores of the candidates, one selection after the other: ``-inf`` for
            candidates that must not be chosen, unless there are no others.
        streams : NoiseStreams
            Streams of one replicate.
        key : tuple
        sensitivity : ScoreSensitivity

        Returns
        -------
        ndarray of shape (1, m), int64
            Index of the candidate of each selection. A secure choice has exactly the
            stated probabilities, for scores and scale as float64. A seeded one resolves
            probabilities to 2**-53, and leaves out candidates whose weight is below
            exp(-40) of the largest.
        """
        # Exponents are scores times scale: their differences change by at most epsilon.
        scales = self.epsilon / np.atleast_1d(sensitivity.difference)
        pairs = zip(values, scales.tolist(), strict=True)
        if streams.secure:
            choices = [choose_securely(*pair) for pair in pairs]
        else:
            uniforms = streams.uniform(key, scales.shape)[0].tolist()
            choices = [
                _choose(*pair, uniform, 0.0)
                for pair, uniform in zip(pairs, uniforms, strict=True)
            ]
        return np.array([choices], np.int64)


class Percentile(_Selection):
    """Exponential mechanism for a percentile (Smith 2011).

    The score of a number is minus the distance of its rank from the percentile's. So
    the density between two neighboring values is uniform.

    Parameters
    ----------
    epsilon : float
    """

    def draw(
        self,
        values: "OrderStatistics",
        streams: NoiseStreams,
        key: Key,
        sensitivity: ScoreSensitivity,
    ) -> np.ndarray:
        """Draw a value near the rank.

        Parameters
        ----------
        values : OrderStatistics
        streams : NoiseStreams
            Streams of one replicate.
        key : tuple
        sensitivity : ScoreSensitivity
            Bound on the change of the difference of two ranks.

        Returns
        -------
        ndarray of shape (1,), float64
            Secure values are integers between 0 and ``upper``, each with exactly the
            stated probability: low-order bits of a float would reveal the interval's
            ends, which are private.
        """
        if streams.secure:
            scale = self.epsilon / float(sensitivity.difference)
            return np.array([choose_securely(values.scores(), scale)], np.float64)

        # Draw an interval between neighboring values, block by block, by the Gumbel-max
        # trick: the largest sum of log weight and Gumbel variate wins.
        best = -math.inf
        lower = 0.0
        length = values.upper
        n_intervals = len(values.ordered) + 1
        for first in range(0, n_intervals, BLOCK_INTERVALS):
            last = min(first + BLOCK_INTERVALS, n_intervals)
            edges = values.edges(first, last)
            lengths = np.maximum(np.diff(edges), 0.0)
            # The weight of an interval is its length times exp(exponent of its rank).
            utility = -np.abs(np.arange(first, last) - values.rank)
            with np.errstate(divide="ignore"):
                exponents = self.epsilon / sensitivity.difference * utility + np.log(
                    lengths
                )
            variates = streams.gumbel((*key, "interval", first), exponents.shape)[0]
            noisy = exponents + variates
            winner = int(noisy.argmax())
            if noisy[winner] > best:
                best = noisy[winner]
                lower = edges[winner]
                length = lengths[winner]

        # Draw a uniform value inside the interval.
        fraction = float(streams.uniform((*key, "inside"), (1,))[0, 0])
        return np.array([lower + fraction * length])


class OrderStatistics(NamedTuple):
    """Values in increasing order between 0 and ``upper``, and the rank to release."""

    ordered: np.ndarray
    rank: float
    upper: float

    def scores(self) -> np.ndarray:
        """Score of each integer from 0 to ``upper``: minus its distance in rank."""
        # The rank of an integer is the number of values that it is not below.
        ranks = np.searchsorted(
            self.ordered, np.arange(int(self.upper) + 1), side="right"
        )
        return -np.abs(ranks - self.rank)

    def edges(self, first: int, last: int) -> np.ndarray:
        """Ends of the intervals ``first`` .. ``last`` - 1 between neighboring values.

        Interval i lies between the i-th smallest value and the next; the outermost ones
        end at the ends of the range.
        """
        edges = np.empty(last - first + 1)
        edges[1:-1] = self.ordered[first : last - 1]
        edges[0] = self.ordered[first - 1] if first > 0 else 0.0
        edges[-1] = self.ordered[last - 1] if last <= len(self.ordered) else self.upper
        return edges


def selection_mu(epsilon: float) -> float:
    """Cost in mu of an exponential mechanism, by its bounded range.

    Parameters
    ----------
    epsilon : float
        Bound on the change of the difference of two exponents: the range of the privacy
        loss. If a record lowers no exponent, what it adds to one is such a bound.

    Returns
    -------
    float
        The mu for which the mechanism is mu-GDP, at most 0.627 epsilon.

    Notes
    -----
    If privacy losses lie in an interval of length epsilon (bounded range, Durfee and
    Rogers 2019), an event of probability q has for the neighbor at most the probability
    p with ``logit(p) = logit(q) + epsilon``. Gaussians whose means differ by ``mu``
    allow ``probit(p) = probit(q) + mu``. The slope of probit against logit is largest
    at one half. So the interval of length epsilon that needs the largest mu is the one
    about it: ``mu = 2 probit(expit(epsilon / 2))``.

    Examples
    --------
    >>> round(selection_mu(0.1), 6), round(selection_epsilon(selection_mu(3.0)), 9)
    (0.062663, 3.0)
    """
    return float(-2 * ndtri_exp(log_expit(-epsilon / 2)))


def selection_epsilon(mu: float) -> float:
    """Range of exponents that costs ``mu``: the inverse of :func:`selection_mu`."""
    return float(2 * (log_ndtr(mu / 2) - log_ndtr(-mu / 2)))
