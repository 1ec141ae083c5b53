"""Tests of resampled statistics, and corrections for many comparisons."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats


def keep_finite(values: ArrayLike) -> np.ndarray:
    """Return values with NaN in place of those that are not finite."""
    return np.where(np.isfinite(values), values, np.nan)


def holm(p_values: ArrayLike) -> np.ndarray:
    """Adjust p-values by Holm's step-down method, for the familywise error rate.

    It does so under any dependence of the tests.

    Parameters
    ----------
    p_values : array-like of shape (m,)

    Returns
    -------
    ndarray of shape (m,)
        Adjusted values, to be compared with the level itself.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p_values = np.asarray(p_values, dtype=float)
    order = np.argsort(p_values, kind="stable")
    n_remaining = np.arange(p_values.size, 0, -1)
    stepped = np.maximum.accumulate(p_values[order] * n_remaining)
    adjusted = np.empty_like(p_values)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


@dataclass(frozen=True)
class Estimates:
    """Statistics with standard errors, the logarithms of some.

    Attributes
    ----------
    center, error : ndarray of shape (m,)
        NaN where a resample is not finite.
    freedom : ndarray of shape (m,)
        Degrees of freedom of the Student t distribution.
    is_log : ndarray of shape (m,), bool
        Which statistics are logarithms.
    """

    center: np.ndarray
    error: np.ndarray
    freedom: np.ndarray
    is_log: np.ndarray

    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the 95 % Student t interval of each statistic itself."""
        quantile = stats.t.ppf(0.975, self.freedom)
        half_width = quantile * self.error
        low = self.center - half_width
        high = self.center + half_width
        for end in (low, high):
            logs = np.minimum(end[self.is_log], 700.0)
            end[self.is_log] = np.exp(logs)
        return low, high

    def p_above(
        self,
        bound: float,
    ) -> np.ndarray:
        """Compute one-sided p-values: small where the statistic is above a bound.

        NaN where statistics without variance are equal to the bound.
        """
        log_bound = np.log(max(bound, 1e-300))
        limit = np.where(self.is_log, log_bound, bound)
        difference = self.center - limit
        is_equal = np.abs(difference) < 1e-9
        difference = np.where(is_equal, 0.0, difference)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = difference / self.error
        return stats.t.sf(t, self.freedom)


def estimate(
    resampled: np.ndarray,
    seeds: ArrayLike,
    *,
    log: bool,
) -> Estimates:
    """Estimate statistics and their standard errors from resamples of the seeds.

    Parameters
    ----------
    resampled : ndarray of shape (repeats + 1, m)
        The first line is the sample itself.
    seeds : int or array-like of shape (m,)
        Number of seeds behind each statistic.
    log : bool
        Whether to take logarithms of what is always above zero.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> resampled = 2 * np.exp(0.1 * rng.normal(size=(2001, 1)))
    >>> resampled[0] = 2.0
    >>> estimates = estimate(resampled, 20, log=True)
    >>> [round(float(end), 1) for (end,) in estimates.interval()]
    [1.6, 2.5]
    >>> estimates.p_above(1.5) < 0.01
    array([ True])
    """
    seeds = np.broadcast_to(seeds, resampled.shape[1])
    freedom = np.maximum(seeds - 1, 1)
    is_log = (resampled > 0).all(axis=0) & log
    logs = np.log(np.where(is_log, resampled, 1.0))
    values = keep_finite(np.where(is_log, logs, resampled))
    # The standard deviation of resampled means has n in the place of n - 1.
    correction = np.sqrt(seeds / freedom)
    error = values[1:].std(axis=0) * correction
    is_rounding = error <= 1e-14 * np.abs(values[0])
    error = np.where(is_rounding, 0.0, error)
    return Estimates(values[0], error, freedom, is_log)
