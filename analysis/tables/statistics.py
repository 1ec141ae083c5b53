"""Statistics of seeds by cells: means with intervals, areas over epsilon, resampled means.

Seeds are the replicate axis, so a paired comparison is a difference of two columns and a paired
bootstrap is one matrix product.
"""

import warnings
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from pkm import schema
from pkm.analysis.tables.study import SeedMatrix

BOOTSTRAP_REPEATS = 2000
_BOOTSTRAP_SEED = 20250601


def summarize(matrix: SeedMatrix) -> pd.DataFrame:
    """Summarize a matrix over its seeds.

    Returns
    -------
    DataFrame
        The cells with `mean`, `half_width` (95 % Student t interval of the mean; NaN below two
        seeds), `median`, `seeds` (finite values used) and `left_out` (values that are not finite).

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> cells = pd.DataFrame({"method": ["a"], "epsilon": [1.0]})
    >>> values = np.array([[1.0], [2.0], [3.0]])
    >>> one = SeedMatrix("nicv", cells, np.arange(3), values, np.array([0]))
    >>> summarize(one)[["mean", "median", "seeds"]].values.tolist()
    [[2.0, 2.0, 3.0]]
    """
    found = column_statistics(matrix.values)
    return matrix.cells.assign(
        metric=matrix.metric,
        mean=found.mean,
        half_width=found.half_width,
        median=found.median,
        seeds=found.count,
        left_out=matrix.left_out,
    )


class ColumnStatistics(NamedTuple):
    """Statistics of the finite values of each column of a matrix of seeds by cells.

    Attributes
    ----------
    mean, half_width, median, deviation : ndarray of shape (n_columns,)
        The half-width is that of the 95 % Student t interval of the mean, the deviation has n - 1;
        both are NaN below two values.
    count : ndarray of shape (n_columns,)
    """

    mean: np.ndarray
    half_width: np.ndarray
    median: np.ndarray
    deviation: np.ndarray
    count: np.ndarray


def column_statistics(values: np.ndarray) -> ColumnStatistics:
    """Mean with its interval, median, standard deviation and number of finite values.

    Examples
    --------
    >>> found = column_statistics(np.array([[1.0], [3.0], [np.nan]]))
    >>> float(found.mean[0]), float(found.median[0]), int(found.count[0])
    (2.0, 2.0, 2)
    """
    finite = np.isfinite(values)
    count = finite.sum(axis=0)
    known = np.where(finite, values, np.nan)
    with warnings.catch_warnings():
        # Columns that have too few values.
        warnings.filterwarnings("ignore", "Mean of empty|All-NaN|Degrees of freedom")
        mean = np.nanmean(known, axis=0)
        median = np.nanmedian(known, axis=0)
        deviation = np.nanstd(known, axis=0, ddof=1)
    quantile = stats.t.ppf(0.975, np.maximum(count - 1, 1))
    half_width = quantile * deviation / np.sqrt(np.maximum(count, 1))
    return ColumnStatistics(mean, half_width, median, deviation, count)


def area(matrix: SeedMatrix) -> SeedMatrix:
    """Area under a metric over epsilon, per seed (trapezoids; FastLloyd paper, section 6.2.1).

    The grid is that of the whole matrix. A curve that lacks one of its epsilons has no area and is
    left out rather than integrated over fewer points, because areas over different grids cannot be
    compared. A non-private cell repeats its value at every epsilon. Since the area is linear, the
    mean over seeds equals the area under the means.

    Returns
    -------
    SeedMatrix
        One column per curve; no columns if the grid has fewer than two epsilons.
    """
    grid = matrix.epsilons
    curves = _curves(matrix.cells) if grid.size > 1 else []
    epsilon = matrix.cells["epsilon"].to_numpy(dtype=float)
    first_cells = []
    values = []
    left_out = []
    for columns in curves:
        epsilons = epsilon[columns]
        if columns.size == 1 and np.isnan(epsilons[0]):
            under = matrix.values[:, columns[0]] * (grid[-1] - grid[0])
        elif columns.size == grid.size and np.array_equal(np.sort(epsilons), grid):
            in_order = columns[np.argsort(epsilons)]
            under = np.trapezoid(matrix.values[:, in_order], grid, axis=1)
        else:
            continue
        first_cells.append(columns[0])
        values.append(under)
        left_out.append(matrix.left_out[columns].sum())
    collapsed = matrix.take(np.array(first_cells, dtype=int))
    has_epsilon = collapsed.cells["epsilon"].notna()
    cells = collapsed.cells.assign(private=has_epsilon, epsilon=np.nan)
    areas = np.column_stack(values) if values else np.empty((len(matrix.seeds), 0))
    left_out = np.array(left_out, dtype=int)
    return SeedMatrix(f"{matrix.metric}_area", cells, matrix.seeds, areas, left_out)


def _curves(cells: pd.DataFrame) -> list[np.ndarray]:
    """Positions of the cells that differ in epsilon alone, in the order of their first one."""
    if not len(cells):
        return []
    identity = cells[["sweep", *schema.names("identity")]].astype(str).agg("\x1f".join, axis=1)
    curve, _ = pd.factorize(identity)
    return list(pd.Series(np.arange(len(curve))).groupby(curve).indices.values())


def resampling_weights(n_seeds: int, repeats: int = BOOTSTRAP_REPEATS) -> np.ndarray:
    """Bootstrap counts of each seed, the first line being the sample itself.

    One draw of seeds serves every method, data set and epsilon, so whatever the replicates share
    (initialization, data stream) stays paired. The generator is fixed: a report built twice from
    the same rows is the same.

    Returns
    -------
    ndarray of shape (repeats + 1, n_seeds)
        float64 counts; every line sums to `n_seeds`.
    """
    rng = np.random.default_rng([_BOOTSTRAP_SEED, n_seeds])
    counts = rng.multinomial(n_seeds, np.full(n_seeds, 1 / n_seeds), size=repeats)
    return np.vstack([np.ones(n_seeds), counts])


def resampled_means(matrix: SeedMatrix, weights: np.ndarray | None = None) -> np.ndarray:
    """Mean of every column in the sample and in every resample of its seeds.

    Parameters
    ----------
    matrix : SeedMatrix
    weights : ndarray of shape (n_lines, n_seeds), optional
        By default `resampling_weights` for all seeds of the matrix.

    Returns
    -------
    ndarray of shape (n_lines, n_cells)
        NaN where a resample holds no finite value.
    """
    if weights is None:
        weights = resampling_weights(len(matrix.seeds))
    finite = np.isfinite(matrix.values)
    total = weights @ np.where(finite, matrix.values, 0.0)
    if finite.all():
        count = np.full(total.shape, float(len(matrix.seeds)))
    else:
        count = weights @ finite.astype(float)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def percentile_interval(resampled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """95 % percentile interval of each column; the first line is the sample and does not count."""
    resamples = resampled[1:]
    low = np.full(resampled.shape[1], np.nan)
    high = np.full(resampled.shape[1], np.nan)
    known = np.isfinite(resamples).all(axis=0)
    if known.any():
        low[known], high[known] = np.quantile(resamples[:, known], [0.025, 0.975], axis=0)
    return low, high
