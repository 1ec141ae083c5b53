"""The exponential mechanism, and the score of a candidate split of a cell.

Only the index of the chosen candidate is released. Weights are relative to the largest, so that
none can overflow.
"""

import math
from dataclasses import dataclass

import numpy as np
from numba import njit, vectorize
from scipy.special import log_expit, log_ndtr, ndtri_exp

NEGLIGIBLE = 40.0  # exp(-40) is below the resolution of a uniform variate


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
    """Score of a candidate; ``left``, ``inside``, ``total`` and ``size`` are in records."""
    if size < 1:
        return 0.0

    # Rank of the candidate, in records: 0 at either end, half the size at the median.
    half = size / 2
    rank = min(left, total - left) if from_both_ends else half - abs(left - half)
    rank = min(rank, half)

    # Centreness: two lines that meet at the border of the outer ranks. The outer one is steeper, so
    # the smaller of the two is the centreness.
    outer = size * q
    inner_line = rank * ((1 - t) / (half - outer)) + (t - 2 * q) / (1 - 2 * q)
    centreness = min(rank * (t / outer), inner_line)

    emptiness = max(inside * (-emptiness_weight / size) + emptiness_weight, 0.0)
    return centreness + emptiness


@njit(cache=True)
def _score_cell(
    counts: np.ndarray,
    size: float,
    score: tuple[float, float, float, bool],
    scale: float,
    first: np.ndarray,
    last: np.ndarray,
    exponents: np.ndarray,
) -> None:
    """Fill the exponents (d, candidates) of a cell from its counts (d, bins)."""
    t, q, emptiness_weight, from_both_ends = score
    total = counts[0].sum()
    for h in range(exponents.shape[0]):
        # Before each candidate, ``below`` is the number of points in the bins below its interval.
        below = 0
        for candidate in range(exponents.shape[1]):
            # A candidate's interval is the two bins on either side of its boundary.
            boundary = 2 * candidate + 1
            left = below + counts[h, boundary - 1]
            inside = np.int64(counts[h, boundary - 1]) + counts[h, boundary]
            below += inside
            exponents[h, candidate] = -np.inf
            if first[h] < boundary < last[h]:
                value = _split_score(
                    left, inside, total, size, t, q, emptiness_weight, from_both_ends
                )
                exponents[h, candidate] = value * scale


@njit(cache=True)
def _draw(exponents: np.ndarray, uniform: float) -> int:
    """Draw an index with probability proportional to ``exp(exponents)``, by inversion."""
    # Loops throughout: numpy's max and searchsorted take a second to compile each.
    top = -np.inf
    for i in range(len(exponents)):
        top = max(top, exponents[i])
    if top == -np.inf:
        return 0

    # After step i, ``total`` is the weight of candidates 0 .. i, relative to the largest.
    cumulative = np.empty(len(exponents))
    total = 0.0
    for i in range(len(exponents)):
        if exponents[i] > top - NEGLIGIBLE:
            total += math.exp(exponents[i] - top)
        cumulative[i] = total

    # Find the first candidate beyond the target. Rounding may lift the target to the total itself:
    # the last candidate that has weight ends the search.
    target = uniform * total
    i = 0
    while cumulative[i] <= target and cumulative[i] < total:
        i += 1
    return i


@dataclass(frozen=True)
class SplitScore:
    """Score of a candidate split: high near the median and in sparse intervals.

    Source: DPM, Definitions 5 to 7.

    Parameters
    ----------
    t : float
        Centreness at the border between the outer and the inner ranks, in (0, 1].
    q : float
        Fraction of the points in each outer part; ``2 q <= t``.
    emptiness_weight : float
        Positive weight of the emptiness against the centreness.
    from_both_ends : bool
        Whether the rank is the smaller of the exact counts on the two sides (True), or is measured
        from half the noisy size (False, as published).

    Attributes
    ----------
    sensitivity : float
        Bound on the change that a record makes to the difference of two scores, times the noisy
        size: zero-out or add-remove.

    Raises
    ------
    ValueError
        If a parameter is outside its range.

    Notes
    -----
    An added record adds at most 1 to each side's count and to the count inside an interval. The
    centreness has slope at most t / q per noisy size. Counted from both ends, no centreness falls
    and no emptiness rises when a record is added, so scores change within [-emptiness_weight, t /
    q] / size, and the difference of any two by at most the sum. Measured from half the size,
    centreness moves either way; twice the published sensitivity covers that.

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
        if not (0 < self.q and 2 * self.q <= self.t <= 1 and 2 * self.q < 1):
            raise ValueError(
                f"t={self.t} and q={self.q} must satisfy 0 < 2 q <= t <= 1 and q < 0.5"
            )
        if not 0 < self.emptiness_weight < np.inf:
            raise ValueError(
                f"emptiness_weight={self.emptiness_weight} must be positive and finite"
            )

    @property
    def sensitivity(self) -> float:
        """Bound on the change of the difference of two scores, times the noisy size."""
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
            Shaped like ``left``, against which cells may broadcast.
        """
        # numba's stubs do not say that vectorize makes a ufunc.
        scores = _split_score(left, inside, total, size, *self._numbers)  # type: ignore[reportArgumentType]
        return np.asarray(scores)

    def of_cell(
        self,
        counts: np.ndarray,
        size: float,
        scale: float,
        first: np.ndarray,
        last: np.ndarray,
        out: np.ndarray,
    ) -> None:
        """Score the candidates of a cell: the midpoints of intervals of two bins each.

        Parameters
        ----------
        counts : ndarray of shape (d, 2 m + 1), unsigned
            Exact number of the cell's points per feature and bin.
        size : float
            Its released count, in records.
        scale : float
            Factor of the scores.
        first, last : ndarray of shape (d,), int64
            Candidate c is allowed in feature h if ``first[h] < 2 c + 1 < last[h]``.
        out : ndarray of shape (d, m), float64
            Receives the scaled scores, ``-inf`` where a candidate is not allowed.
        """
        _score_cell(counts, float(size), self._numbers, float(scale), first, last, out)

    @property
    def _numbers(self) -> tuple[float, float, float, bool]:
        return float(self.t), float(self.q), float(self.emptiness_weight), bool(self.from_both_ends)


@dataclass(frozen=True)
class Exponential:
    """Exponential mechanism: candidate y with probability proportional to ``exp(exponent(y))``.

    Parameters
    ----------
    epsilon : float
        Its cost, if no record changes the difference of two exponents by more than that.
    """

    epsilon: float

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < np.inf:
            raise ValueError(f"epsilon={self.epsilon} of a selection must be positive and finite")

    def choose(self, exponents: np.ndarray, uniform: float) -> int:
        """Choose a candidate.

        Parameters
        ----------
        exponents : ndarray of shape (m,), float64
            ``-inf`` for candidates that must not be chosen, unless there are no others.
        uniform : float
            Secret uniform variate in (0, 1). A candidate less likely than its resolution, 2**-53,
            is never chosen.

        Returns
        -------
        int
            Index of the candidate.
        """
        return int(_draw(exponents, uniform))


def selection_mu(epsilon: float) -> float:
    """Gaussian cost of an exponential mechanism of range ``epsilon``: exponents move one way only.

    Parameters
    ----------
    epsilon : float
        Bound on the range of the privacy loss: on what one record adds to an exponent, where it
        lowers none.

    Returns
    -------
    float
        The mechanism is mu-GDP for it, at most 0.627 epsilon.

    Notes
    -----
    Losses in an interval of length epsilon (bounded range, Durfee and Rogers 2019) let no event of
    probability q be more likely than p for the neighbor with ``logit(p) = logit(q) + epsilon``.
    Gaussians whose means differ by ``mu`` allow ``probit(p) = probit(q) + mu``. The slope of probit
    against logit is largest at one half, so the interval of length epsilon that needs the largest
    mu is the one about it: ``mu = 2 probit(expit(epsilon / 2))``.

    Examples
    --------
    >>> round(selection_mu(0.1), 6), round(selection_epsilon(selection_mu(3.0)), 9)
    (0.062663, 3.0)
    """
    return float(-2 * ndtri_exp(log_expit(-epsilon / 2)))


def selection_epsilon(mu: float) -> float:
    """Range of exponents that costs ``mu``: the inverse of :func:`selection_mu`."""
    return float(2 * (log_ndtr(mu / 2) - log_ndtr(-mu / 2)))
