"""Choosing one of many public candidates by a private score: the exponential mechanism, and the score of a split.

Only the index of the winner leaves. Weights are relative to the largest, so that none can overflow.
"""

import math
from dataclasses import dataclass

import numpy as np
from numba import njit, vectorize
from scipy.special import log_expit, log_ndtr, ndtri_exp

NEGLIGIBLE = 40.0  # exp(-40) is below the resolution of a uniform variate


@vectorize(cache=True)
def _split_score(left, inside, total, size, t, q, emptiness_weight, from_both_ends):
    if size < 1:
        return 0.0
    half, outer = size / 2, size * q
    rank = min(left, total - left) if from_both_ends else half - abs(left - half)
    rank = min(rank, half)
    # Two lines that meet at the border; the outer one is the steeper, so the smaller of them is the centreness.
    inner_line = rank * ((1 - t) / (half - outer)) + (t - 2 * q) / (1 - 2 * q)
    centreness = min(rank * (t / outer), inner_line)
    return centreness + max(inside * (-emptiness_weight / size) + emptiness_weight, 0.0)


@njit(cache=True)
def _score_cell(counts, size, score, scale, first, last, exponents):
    t, q, emptiness_weight, from_both_ends = score
    total = counts[0].sum()
    for h in range(exponents.shape[0]):
        below = 0
        for candidate in range(exponents.shape[1]):
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
def _draw(exponents, uniform):
    """Index drawn with probability proportional to ``exp(exponents)``, by the inverse of the distribution function."""
    top = exponents.max()
    if top == -np.inf:
        return 0
    below = np.empty(len(exponents))
    total = 0.0
    for i in range(len(exponents)):
        if exponents[i] > top - NEGLIGIBLE:
            total += math.exp(exponents[i] - top)
        below[i] = total
    # Rounding may lift the product to the total itself, past the last candidate that has weight.
    return min(np.searchsorted(below, uniform * total, side="right"), np.searchsorted(below, total))


@dataclass(frozen=True)
class SplitScore:
    """How well a candidate splits a cell: near the median, through a sparse interval (DPM, Definitions 5 to 7).

    Parameters
    ----------
    t : float
        Centreness at the border between the outer and the inner ranks, in (0, 1].
    q : float
        Share of the points in each outer part; ``2 q <= t``.
    emptiness_weight : float
        Positive weight of the emptiness against the centreness.
    from_both_ends : bool
        Whether the rank is the smaller of the exact counts on the two sides (True), or is measured from half the noisy
        size (False, as published).

    Attributes
    ----------
    sensitivity : float
        Bound on how far a record can move two candidates' scores apart, times the noisy size: zero-out or add-remove.

    Raises
    ------
    ValueError
        If a parameter is outside its range.

    Notes
    -----
    A record more adds at most one to each side's count and to the count inside an interval. The centreness has slope
    at most t / q per noisy size. Counted from both ends, no centreness falls and no emptiness rises when a record is
    added, so scores move within [-emptiness_weight, t / q] / size, and any two of them apart by no more than the sum.
    Measured from half the size, centreness moves either way; twice the published sensitivity covers that.

    Examples
    --------
    >>> score = SplitScore(t=0.3, q=1 / 12, emptiness_weight=5.0, from_both_ends=True)
    >>> score(np.array([50.0]), np.array([0.0]), 100.0, 100.0).round(6).tolist(), round(score.sensitivity, 6)
    ([6.0], 8.6)
    """

    t: float
    q: float
    emptiness_weight: float
    from_both_ends: bool

    def __post_init__(self):
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
        """Bound on how far a record can move two scores apart, times the noisy size."""
        bound = self.t / self.q + self.emptiness_weight
        return bound if self.from_both_ends else 2 * bound

    def __call__(self, left: np.ndarray, inside: np.ndarray, total, size) -> np.ndarray:
        """Score candidates.

        Parameters
        ----------
        left, inside : ndarray
            Exact numbers of points below a candidate and in its interval.
        total : float or ndarray
            Exact number of points in the cell.
        size : float or ndarray
            The cell's released count; below one record nothing can be told apart and all scores are 0.

        Returns
        -------
        ndarray
            Shaped like ``left``, against which cells may broadcast.
        """
        return _split_score(left, inside, total, size, *self._numbers)

    def of_cell(
        self,
        counts,
        size: float,
        scale: float,
        first: np.ndarray,
        last: np.ndarray,
        into: np.ndarray,
    ) -> None:
        """Score the candidates of a cell: the middles of intervals of two bins each.

        Parameters
        ----------
        counts : ndarray of shape (d, 2 m + 1), unsigned
            Exact number of the cell's points per column and bin.
        size : float
            Its released count.
        scale : float
            What scores are multiplied by.
        first, last : ndarray of shape (d,), int64
            Candidate c is allowed in column h if ``first[h] < 2 c + 1 < last[h]``.
        into : ndarray of shape (d, m), float64
            Receives the scaled scores, ``-inf`` where a candidate is not allowed.
        """
        _score_cell(counts, float(size), self._numbers, float(scale), first, last, into)

    @property
    def _numbers(self) -> tuple[float, float, float, bool]:
        return float(self.t), float(self.q), float(self.emptiness_weight), bool(self.from_both_ends)


@dataclass(frozen=True)
class Exponential:
    """Exponential mechanism: candidate y with probability proportional to ``exp(exponent(y))``.

    Parameters
    ----------
    epsilon : float
        Its cost, if no record moves two exponents apart by more than that.
    """

    epsilon: float

    def __post_init__(self):
        if not 0 < self.epsilon < np.inf:
            raise ValueError(f"epsilon={self.epsilon} of a selection must be positive and finite")

    def choose(self, exponents: np.ndarray, uniform: float) -> int:
        """Choose a candidate.

        Parameters
        ----------
        exponents : ndarray of shape (m,), float64
            ``-inf`` for candidates that must not be chosen, unless there are no others.
        uniform : float
            Secret uniform variate in (0, 1). What is less likely than its resolution, 2**-53, is never chosen.

        Returns
        -------
        int
            Index of the candidate.
        """
        return _draw(exponents, uniform)


def selection_mu(epsilon: float) -> float:
    """Gaussian cost of an exponential mechanism whose exponents all move one way, by at most ``epsilon``.

    Parameters
    ----------
    epsilon : float
        Bound on the range of the privacy loss: what one record can add to an exponent, where it takes from none.

    Returns
    -------
    float
        The mechanism is mu-GDP for it, at most 0.627 epsilon.

    Notes
    -----
    Losses in an interval of length epsilon (bounded range, Durfee and Rogers 2019) let no event of probability q be
    likelier than p for the neighbor with ``logit(p) = logit(q) + epsilon``. Gaussians ``mu`` apart allow
    ``probit(p) = probit(q) + mu``. The slope of probit against logit is largest at one half, so the interval of length
    epsilon that needs the largest mu is the one about it: ``mu = 2 probit(expit(epsilon / 2))``.

    Examples
    --------
    >>> round(selection_mu(0.1), 6), round(selection_epsilon(selection_mu(3.0)), 9)
    (0.062663, 3.0)
    """
    return float(-2 * ndtri_exp(log_expit(-epsilon / 2)))


def selection_epsilon(mu: float) -> float:
    """Range of exponents that costs ``mu``: the inverse of :func:`selection_mu`."""
    return float(2 * (log_ndtr(mu / 2) - log_ndtr(-mu / 2)))
