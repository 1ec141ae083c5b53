"""What an entry is ranked by: costs and CPU times as ratios to the reference."""

import math

import pandas as pd
from scipy import stats


def score_costs(rows: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Compare the costs of a method with those of the reference, cell by cell.

    Parameters
    ----------
    rows : DataFrame
        Of an entry: those of its method and of the reference.
    reference : str
        Name of the reference.

    Returns
    -------
    DataFrame
        One row per data set, epsilon and ``bounds_factor``: ``ratio`` of the mean NICV
        to the reference's best on the same set, and ``seeds``.

    Examples
    --------
    >>> rows = pd.DataFrame({
    ...     "method": ["kmeans", "mine"], "dataset": "iris", "epsilon": [None, 1.0],
    ...     "nicv": [0.1, 0.15], "seed": 0, "timing": False, "bounds_factor": 1.0})
    >>> score_costs(rows, "kmeans")["ratio"].round(9).tolist()
    [1.5]
    """
    rows = rows[~rows["timing"]]
    is_reference = rows["method"] == reference
    base = rows[is_reference].groupby("dataset")["nicv"].min()
    keys = ["dataset", "epsilon", "bounds_factor"]
    cells = rows[~is_reference].groupby(keys, dropna=False)
    scores = cells.agg(
        nicv=("nicv", "mean"),
        seeds=("seed", "nunique"),
    )
    scores = scores.reset_index()
    ratio = scores.pop("nicv") / scores["dataset"].map(base)
    return scores.assign(ratio=ratio)


def cpu_ratio(rows: pd.DataFrame, reference: str) -> float:
    """Return the CPU time of a fit over that of the reference, in the timed fits.

    It is the geometric mean over data sets of ratios of medians; NaN without such rows.
    """
    timed = rows[rows["timing"]]
    is_reference = timed["method"] == reference
    own, base = (
        fits.groupby("dataset")["fit_cpu_seconds"].median()
        for fits in (timed[~is_reference], timed[is_reference])
    )
    ratios = own / base
    return geometric_mean(ratios.dropna())


def geometric_mean(ratios: pd.Series) -> float:
    """Return the geometric mean of numbers that are not negative; NaN of none."""
    return math.nan if ratios.empty else float(stats.gmean(ratios))
