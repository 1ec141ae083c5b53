"""Paired tests over seeds and corrections for many comparisons."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from pkm.analysis.tables.statistics import column_statistics


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
        `difference` (mean), `half_width` (95 %), `seeds`, `p_greater` (evidence that
        the mean is above zero) and `p_less`. Columns without variance get 0 or 1 by the
        sign of their mean, and 1 twice if it is zero; columns with fewer than two seeds
        get 1 twice.
    """
    mean, half_width, _, deviation, seeds = column_statistics(differences)
    error = np.nan_to_num(deviation) / np.sqrt(np.maximum(seeds, 1))
    # An error at the level of rounding says that every seed gave the same difference.
    constant = error <= 1e-14 * np.abs(mean)
    t = mean / np.where(constant, 1.0, error)
    t = np.where(constant, np.copysign(np.inf, mean), t)

    # Without any difference neither direction has evidence.
    known = (seeds > 1) & ((mean != 0) | ~constant)
    freedom = np.maximum(seeds - 1, 1)
    return pd.DataFrame(
        {
            "difference": mean,
            "half_width": half_width,
            "seeds": seeds,
            "p_greater": np.where(known, stats.t.sf(t, freedom), 1.0),
            "p_less": np.where(known, stats.t.cdf(t, freedom), 1.0),
        }
    )


def rank_correlation(left: ArrayLike, right: np.ndarray) -> np.ndarray:
    """Spearman's rank correlation of each line with that of the other matrix.

    Parameters
    ----------
    left : array-like of shape (m,) or (lines, m)
        One line is compared with all of the other matrix.
    right : ndarray of shape (lines, m)

    Returns
    -------
    ndarray of shape (lines,)
        Ties have their mean rank. NaN where a line is constant or holds NaN.

    Examples
    --------
    >>> right = np.array([[0.1, 0.2, 0.3], [3.0, 2.0, 1.0]])
    >>> rank_correlation([1, 2, 4], right).tolist()
    [1.0, -1.0]
    """
    left = np.broadcast_to(left, right.shape)
    mean_rank = (right.shape[1] + 1) / 2
    left_ranks = stats.rankdata(left, axis=1) - mean_rank
    right_ranks = stats.rankdata(right, axis=1) - mean_rank
    scale = np.sqrt((left_ranks**2).sum(axis=1) * (right_ranks**2).sum(axis=1))
    known = np.isfinite(left + right).all(axis=1) & (scale > 0)
    product = (left_ranks * right_ranks).sum(axis=1)
    return np.where(known, product / np.where(known, scale, 1), np.nan)
