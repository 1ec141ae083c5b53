"""Paired tests over seeds and corrections for many comparisons."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats


def holm(p_values: ArrayLike) -> np.ndarray:
    """Holm's step-down adjustment, which controls the familywise error rate.

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


def paired_tests(differences: np.ndarray) -> pd.DataFrame:
    """One-sided paired t tests of each column of differences, in both directions.

    Parameters
    ----------
    differences : ndarray of shape (n_seeds, m)
        Left minus right per seed; NaN where one of the two is missing.

    Returns
    -------
    DataFrame
        `difference` (mean), `half_width` (95 %), `seeds`, `p_greater` (evidence that the mean is
        above zero) and `p_less`. Columns without variance get 0 or 1 by the sign of their mean, and
        1 twice if it is zero; columns with fewer than two seeds get 1 twice.
    """
    finite = np.isfinite(differences)
    count = finite.sum(axis=0)
    n_values = np.maximum(count, 1)
    freedom = np.maximum(count - 1, 1)
    mean = np.where(finite, differences, 0).sum(axis=0) / n_values
    squares = np.where(finite, (differences - mean) ** 2, 0).sum(axis=0)
    error = np.sqrt(squares / freedom / n_values)

    # An error at the level of rounding says that every seed gave the same difference.
    constant = error <= 1e-14 * np.abs(mean)
    infinite = np.where(mean > 0, np.inf, -np.inf)
    t = np.where(constant, infinite, mean / np.where(constant, 1.0, error))

    # Without a difference neither direction has evidence.
    known = count > 1
    testable = known & (mean != 0)
    p_untestable = np.where(known & ~constant, 0.5, 1.0)
    half_width = stats.t.ppf(0.975, freedom) * error
    p_greater = stats.t.sf(t, freedom)
    p_less = stats.t.cdf(t, freedom)
    return pd.DataFrame(
        {
            "difference": np.where(count > 0, mean, np.nan),
            "half_width": np.where(known, half_width, np.nan),
            "seeds": count,
            "p_greater": np.where(testable, p_greater, p_untestable),
            "p_less": np.where(testable, p_less, p_untestable),
        }
    )


def rank_correlation(x: ArrayLike, values: np.ndarray) -> np.ndarray:
    """Spearman's rank correlation of `x` with each line of `values`, ties by mean rank.

    Parameters
    ----------
    x : array-like of shape (m,)
    values : ndarray of shape (lines, m)

    Returns
    -------
    ndarray of shape (lines,)
        NaN where a line is constant or holds NaN.

    Examples
    --------
    >>> rank_correlation([1, 2, 4], np.array([[0.1, 0.2, 0.3], [3.0, 2.0, 1.0]])).tolist()
    [1.0, -1.0]
    """
    return paired_rank_correlation(np.broadcast_to(x, values.shape), values)


def paired_rank_correlation(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Spearman's rank correlation of each line with that of the other matrix.

    NaN where a line is constant or holds NaN.
    """
    mean_rank = (left.shape[1] + 1) / 2
    left_ranks = stats.rankdata(left, axis=1) - mean_rank
    right_ranks = stats.rankdata(right, axis=1) - mean_rank
    scale = np.sqrt((left_ranks**2).sum(axis=1) * (right_ranks**2).sum(axis=1))
    product = (left_ranks * right_ranks).sum(axis=1)
    known = np.isfinite(left + right).all(axis=1) & (scale > 0)
    return np.where(known, product / np.where(known, scale, 1), np.nan)
