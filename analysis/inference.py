"""Paired tests over seeds and corrections for many comparisons."""

import numpy as np
import pandas as pd
from scipy import stats


def holm(p_values):
    """Holm's step-down adjustment; controls the chance of any false rejection whatever the
    dependence.

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
    stepped = np.maximum.accumulate(p_values[order] * np.arange(p_values.size, 0, -1))
    adjusted = np.empty_like(p_values)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


def paired_tests(differences):
    """One-sided paired t tests of each column of differences, in both directions.

    Parameters
    ----------
    differences : ndarray of shape (n_seeds, m)
        Left minus right per seed; NaN where one of the two is missing.

    Returns
    -------
    DataFrame
        `difference` (mean), `half_width` (95 %), `seeds`, `p_greater` (evidence that the mean is
        above zero) and `p_less`. Columns without spread get 0 or 1 by the sign of their mean, and 1
        twice if it is zero; columns with fewer than two seeds get 1 twice.
    """
    finite = np.isfinite(differences)
    count = finite.sum(axis=0)
    some, freedom = np.maximum(count, 1), np.maximum(count - 1, 1)
    mean = np.where(finite, differences, 0).sum(axis=0) / some
    error = np.sqrt(np.where(finite, (differences - mean) ** 2, 0).sum(axis=0) / freedom / some)
    # A spread at the level of rounding says that every seed gave the same difference.
    flat = error <= 1e-14 * np.abs(mean)
    t = np.where(flat, np.where(mean > 0, np.inf, -np.inf), mean / np.where(flat, 1.0, error))
    known = count > 1
    p_greater = np.where(
        known & (mean != 0), stats.t.sf(t, freedom), np.where(known & ~flat, 0.5, 1.0)
    )
    p_less = np.where(
        known & (mean != 0), stats.t.cdf(t, freedom), np.where(known & ~flat, 0.5, 1.0)
    )
    half_width = np.where(known, stats.t.ppf(0.975, freedom) * error, np.nan)
    return pd.DataFrame(
        {
            "difference": np.where(count > 0, mean, np.nan),
            "half_width": half_width,
            "seeds": count,
            "p_greater": p_greater,
            "p_less": p_less,
        }
    )


def rank_correlation(x, values):
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
    ranks = stats.rankdata(values, axis=1) - (len(x) + 1) / 2
    along = stats.rankdata(x) - (len(x) + 1) / 2
    scale = np.sqrt((ranks**2).sum(axis=1) * (along**2).sum())
    usable = np.isfinite(values).all(axis=1) & (scale > 0)
    return np.where(usable, (ranks @ along) / np.where(scale > 0, scale, 1), np.nan)
