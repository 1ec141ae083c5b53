"""What an entry is ranked by: costs and CPU times as ratios to the reference."""

import numpy as np
import pandas as pd


def score_rows(rows: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Compare a method with the reference, cell by cell.

    Parameters
    ----------
    rows : DataFrame
        Of an entry: those of its method and of the reference.
    reference : str
        Name of the reference.

    Returns
    -------
    DataFrame
        One row per data set and epsilon: ``ratio`` of the mean NICV to that of the
        reference on the same set, ``cpu_ratio`` of the mean CPU time of a fit, and
        ``seeds``.

    Examples
    --------
    >>> rows = pd.DataFrame({
    ...     "method": ["kmeans", "mine"], "dataset": "iris", "epsilon": [np.nan, 1.0],
    ...     "nicv": [0.1, 0.15], "fit_cpu_seconds": [0.5, 1.0], "seed": 0})
    >>> score_rows(rows, "kmeans")[["ratio", "cpu_ratio"]].to_numpy().round(9).tolist()
    [[1.5, 2.0]]
    """
    is_reference = rows["method"] == reference
    columns = ["nicv", "fit_cpu_seconds"]
    base = rows[is_reference].groupby("dataset")[columns].mean()
    cells = rows[~is_reference].groupby(["dataset", "epsilon"], dropna=False)
    means = cells[columns].mean()
    ratios = means / base.reindex(means.index.get_level_values("dataset")).to_numpy()
    ratios.columns = ["ratio", "cpu_ratio"]
    return ratios.assign(seeds=cells["seed"].nunique()).reset_index()


def geometric_mean(ratios: pd.Series) -> float:
    """Return the geometric mean of positive numbers; NaN of none."""
    return float(np.exp(np.log(ratios).mean())) if len(ratios) else float("nan")
