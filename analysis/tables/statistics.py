"""Statistics of seeds by cells: means with intervals, areas over epsilon, resamples.

Seeds are the replicate axis, so a paired comparison is a difference of two columns and
a paired bootstrap is one matrix product.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
from scipy import stats

from pkm import schema
from pkm.analysis.tables.inference import keep_finite
from pkm.analysis.tables.study import SeedMatrix

BOOTSTRAP_REPEATS = 2000
_BOOTSTRAP_SEED = 20250601


def summarize(matrix: SeedMatrix) -> pd.DataFrame:
    """Summarize a matrix over its seeds.

    Returns
    -------
    DataFrame
        The cells with `mean`, `half_width` (95 % Student t interval of the mean; NaN
        below two seeds), `median`, `seeds` (finite values used) and `left_out` (values
        that are not finite).

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> cells = pd.DataFrame({"method": ["a"], "epsilon": [1.0]})
    >>> values = np.array([[1.0], [2.0], [3.0]])
    >>> one = SeedMatrix("nicv", cells, np.arange(3), values, np.array([0]))
    >>> summarize(one)[["mean", "median", "seeds"]].values.tolist()
    [[2.0, 2.0, 3.0]]
    """
    summary = column_statistics(matrix.values).drop(columns="deviation")
    return matrix.cells.assign(
        metric=matrix.metric,
        **summary,
        left_out=matrix.left_out,
    )


def column_statistics(values: np.ndarray) -> pd.DataFrame:
    """Summarize the finite values of each column of a matrix of seeds by cells.

    Returns
    -------
    DataFrame
        `mean`, `half_width` of its 95 % Student t interval, `median`, `seeds` (number
        of values) and `deviation` (n - 1). Without values all but the number are NaN,
        and below two so are half-width and deviation.

    Examples
    --------
    >>> column_statistics(np.array([[1.0], [3.0], [np.nan]]))
       mean  half_width  median  seeds  deviation
    0   2.0   12.706205     2.0      2   1.414214
    """
    known = pd.DataFrame(keep_finite(values))
    seeds = known.count()
    deviation = known.std()
    freedom = np.maximum(seeds - 1, 1)
    quantile = stats.t.ppf(0.975, freedom)
    root = np.sqrt(np.maximum(seeds, 1))
    columns = {
        "mean": known.mean(),
        "half_width": quantile * deviation / root,
        "median": known.median(),
        "seeds": seeds,
        "deviation": deviation,
    }
    return pd.DataFrame(columns)


def area(matrix: SeedMatrix) -> SeedMatrix:
    """Compute the area under a metric over epsilon (FastLloyd paper, section 6.2.1).

    The grid is that of the whole matrix. A curve that lacks one of its epsilons has no
    area and is left out rather than integrated over fewer points, because areas over
    different grids cannot be compared. A non-private cell repeats its value at every
    epsilon. Since the area, by trapezoids, is linear, the mean over seeds equals the
    area under the means.

    Returns
    -------
    SeedMatrix
        One column per curve; no columns if the grid has fewer than two epsilons.
    """
    grid = matrix.epsilons
    names = ["sweep", *schema.names("identity")]
    identity = matrix.cells[names].astype(str)
    curves = identity.groupby(names, sort=False)
    matrix = matrix.describe(curve=curves.ngroup())
    matrix = matrix.broadcast()

    # The columns of complete curves, curve by curve.
    order = ["curve", "epsilon"]
    places = matrix.cells[order].sort_values(order, kind="stable")
    n_epsilons = places.groupby("curve")["epsilon"].transform("count")
    is_complete = (n_epsilons == grid.size) & (n_epsilons > 1)
    complete = places[is_complete].index.to_numpy()
    columns = complete.reshape(-1, max(grid.size, 1))

    firsts = matrix.take(columns[:, 0])
    cells = firsts.cells.drop(columns="curve")
    values = matrix.values[:, columns]
    left_out = matrix.left_out[columns]
    return replace(
        firsts,
        metric=f"{matrix.metric}_area",
        cells=cells.assign(epsilon=np.nan),
        values=np.trapezoid(values, grid, axis=2),
        left_out=left_out.sum(axis=1),
    )


def resampled_means(matrix: SeedMatrix) -> np.ndarray:
    """Compute the mean of every column in the sample and in resamples of its seeds.

    One draw of seeds serves every method, data set and epsilon, so whatever the
    replicates share (initialization, data stream) stays paired. The generator is fixed:
    a report built twice from the same rows is the same.

    Returns
    -------
    ndarray of shape (repeats + 1, n_cells)
        The first line is the sample itself. NaN where a resample holds no finite value.
    """
    n_seeds = len(matrix.seeds)
    if n_seeds == 0:
        return np.full((BOOTSTRAP_REPEATS + 1, len(matrix.cells)), np.nan)
    rng = np.random.default_rng([_BOOTSTRAP_SEED, n_seeds])
    shares = np.full(n_seeds, 1 / n_seeds)
    counts = rng.multinomial(n_seeds, shares, size=BOOTSTRAP_REPEATS)
    sample = np.ones(n_seeds)
    weights = np.vstack([sample, counts])

    finite = np.isfinite(matrix.values)
    total = weights @ np.where(finite, matrix.values, 0.0)
    count = weights @ finite.astype(float)
    means = total / np.maximum(count, 1)
    return np.where(count > 0, means, np.nan)


def percentile_interval(resampled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute the 95 % percentile interval of each column of resamples."""
    resamples = keep_finite(resampled[1:])
    low, high = np.quantile(resamples, [0.025, 0.975], axis=0)
    return low, high
