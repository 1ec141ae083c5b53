"""Choosing one of many public candidates by a private score: the exponential mechanism, and the score of a split.

Only the index of the winner leaves. Candidates are compared in log space with Gumbel noise, so that no weight can
overflow or vanish.
"""

from dataclasses import dataclass

import numpy as np

from privacy.noise import NoiseStreams


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
    spread : float
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
    >>> score(np.array([50.0]), np.array([0.0]), 100.0, 100.0).round(6).tolist(), round(score.spread, 6)
    ([6.0], 8.6)
    """

    t: float
    q: float
    emptiness_weight: float
    from_both_ends: bool

    def __post_init__(self):
        if not (0 < self.q and 2 * self.q <= self.t <= 1 and 2 * self.q < 1):
            raise ValueError(f"t={self.t} and q={self.q} must satisfy 0 < 2 q <= t <= 1 and q < 0.5")
        if not 0 < self.emptiness_weight < np.inf:
            raise ValueError(f"emptiness_weight={self.emptiness_weight} must be positive and finite")

    @property
    def spread(self) -> float:
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
        known = size >= 1
        size = np.maximum(size, 1.0)
        half, outer = size / 2, size * self.q
        rank = np.minimum(left, total - left) if self.from_both_ends else half - np.abs(left - half)
        rank = np.minimum(rank, half)
        # Two lines that meet at the border; the outer one is the steeper, so the smaller of them is the centreness.
        scores = rank * (self.t / outer)
        rank *= (1 - self.t) / (half - outer)
        rank += (self.t - 2 * self.q) / (1 - 2 * self.q)
        np.minimum(scores, rank, out=scores)
        emptiness = np.multiply(inside, -self.emptiness_weight / size, out=rank)
        emptiness += self.emptiness_weight
        scores += np.maximum(emptiness, 0.0, out=emptiness)
        scores *= known
        return scores


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

    def choose(self, exponents: np.ndarray, streams: NoiseStreams, key: tuple) -> np.ndarray:
        """Draw an index for each row of exponents, for one replicate; ``-inf`` only if a row has nothing else."""
        noisy = streams.gumbel(key, exponents.shape)[0]
        noisy += exponents
        return noisy.argmax(axis=1)
