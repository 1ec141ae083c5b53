"""The cross-paper comparison as numbers: ratios to non-private k-means, ranks.

A ratio is a run's NICV over that of the best non-private k-means run stored for the
data set. Methods are compared by the median ratio of their seeds: private runs have
heavy tails. Ranks follow Demšar (2006): on every data set the methods are ranked by
their median, Friedman's test is that of equal mean ranks, and two methods differ at a
level if their mean ranks differ by more than Nemenyi's critical difference.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from pkm.analysis.tables.accounting import min_released_count
from pkm.analysis.tables.charges import read_charges
from pkm.analysis.tables.inference import keep_finite
from pkm.analysis.tables.statistics import column_statistics
from pkm.analysis.tables.study import SeedMatrix, Study

METRIC = "nicv"
#: The method whose NICV divides that of all methods.
REFERENCE = "kmeans"
#: Methods without privacy or data that a useful private method must beat.
BASELINES = ("mean", "packing")
#: Methods that choose their number of centers: not ranked with those that release k.
UNRANKED = ("dpm",)
#: How names of methods end that find their domain themselves (`zoom=`).
ZOOMED = "_zoomed"
#: Methods that do so by default: compared with those that do and those that do not.
ALWAYS_ZOOMED = ("synopsis",)
#: Sweeps that are compared among themselves only: widths of bounds, other accounting,
#: public data, persons.
SEPARATE_SWEEPS = (
    "wide_bounds",
    "replace_one",
    "smaller_delta",
    "public_data",
    "persons",
)
#: Of Nemenyi's critical difference.
LEVEL = 0.05
#: Bootstrap resamples of the data sets.
REPEATS = 2000
_SEED = 20250602
COLUMNS = [
    "dataset",
    "method",
    "variant",
    "epsilon",
    "notion",
    "adjacency",
    "unit",
    "trust",
    "delta",
    "n",
    "d",
    "k",
    "seeds",
    "median",
    "low",
    "high",
    "reference",
    "insufficient_data",
]


def median_interval(values: np.ndarray) -> pd.DataFrame:
    """Compute medians of finite values, with distribution-free intervals.

    Parameters
    ----------
    values : ndarray of shape (seeds, columns)

    Returns
    -------
    DataFrame
        One row per column: `median`, `low`, `high`, `seeds` (number of finite values).
        Below six values not even all of them reach 95 %, and the interval is their
        range.

    Examples
    --------
    >>> median_interval(np.arange(1.0, 21.0)[:, None])
       median  low  high  seeds
    0    10.5  6.0  15.0     20
    """
    summary = column_statistics(values)[["median", "seeds"]]
    counts = summary["seeds"].to_numpy()
    # What is not finite is sorted to the end.
    ordered = np.sort(keep_finite(values), axis=0)
    # Order statistics at symmetric ranks, by quantiles of the binomial distribution.
    trials = np.maximum(counts, 1)
    quantile = stats.binom.ppf(0.025, trials, 0.5).astype(int)
    rank_low = np.maximum(quantile, 1) - 1
    rank_high = np.maximum(counts - 1 - rank_low, 0)
    ranks = np.stack([rank_low, rank_high])
    low, high = np.take_along_axis(ordered, ranks, axis=0)
    interval = summary.assign(low=low, high=high)
    return interval[["median", "low", "high", "seeds"]]


def insufficient_data(cells: pd.DataFrame) -> pd.Series:
    """Tell which runs could release no bucket.

    Every threshold that they were charged for is above the number of records. What such
    a method returns comes from its public fallback and from later releases.

    Parameters
    ----------
    cells : DataFrame
        With columns `charges` and `n`, and a unique index.

    Examples
    --------
    >>> from pkm.arrow import make_nested
    >>> charge = {"label": "bucket_counts", "count_scale": 100, "count_sensitivity": 1}
    >>> charges = make_nested("charges", [[charge | {"delta": 1e-6}]] * 2)
    >>> insufficient_data(pd.DataFrame({"charges": charges, "n": [400, 600]})).tolist()
    [True, False]
    """
    charges = read_charges(cells)
    histograms = charges[charges["label"] == "bucket_counts"]
    lines = histograms.to_dict("records")
    thresholds = list(map(min_released_count, lines))
    thresholds = pd.Series(thresholds, histograms.index, dtype=float)
    lowest = thresholds.groupby(level=0).min()
    return lowest.reindex(cells.index) > cells["n"]


def ratios(
    study: Study,
    sweeps: Sequence[str] = (),
    *,
    bounds_factor: float = 1.0,
    zoomed: bool = False,
) -> pd.DataFrame:
    """Compute ratios of NICV to the best non-private k-means run, for each cell.

    Parameters
    ----------
    study : Study
    sweeps : sequence of str, optional
        Those whose private methods are taken. Default: all but `SEPARATE_SWEEPS`.
    bounds_factor : float, default=1
        Of the private cells that are taken.
    zoomed : bool, default=False
        Take methods that find their domain, under the names of those that do not; of
        `ALWAYS_ZOOMED` in either case.

    Returns
    -------
    DataFrame
        Columns `COLUMNS`: median over seeds with its interval; `reference` is the NICV
        that divides, `insufficient_data` as the function of that name says. Methods
        without epsilon are listed at every epsilon of the grid. Data sets without the
        reference are left out.
    """
    matrix = _select(study, sweeps, bounds_factor, zoomed)
    cells = matrix.cells

    # Divide by the best run of the reference on the same data set, with the same unit.
    is_reference = cells["method"] == REFERENCE
    best_runs = pd.DataFrame(matrix.values).min()
    best_runs = best_runs.where(is_reference)
    same_rows = [cells["dataset"], cells["unit"]]
    reference = best_runs.groupby(same_rows).transform("min")
    values = matrix.values / reference.to_numpy()
    table = cells.assign(
        **median_interval(values),
        reference=reference,
        insufficient_data=insufficient_data(cells),
    )
    has_value = np.isfinite(table["median"])
    return table[COLUMNS][has_value].reset_index(drop=True)


def _select(
    study: Study,
    sweeps: Sequence[str],
    bounds_factor: float,
    zoomed: bool,
) -> SeedMatrix:
    """Select every cell once, at every epsilon of the grid, without timing cells."""
    compared = {*study.sweeps}.difference(SEPARATE_SWEEPS)
    names = sorted(compared.union(sweeps))
    matrix = study.matrix(names, METRIC)
    cells = matrix.cells

    # Methods without an epsilon are in every selection: they divide, or must be beaten.
    finds_domain = cells["method"].str.endswith(ZOOMED)
    has_zoom = finds_domain == zoomed
    has_zoom |= cells["method"].isin(ALWAYS_ZOOMED)
    has_bounds = cells["bounds_factor"] == bounds_factor
    is_selected = has_bounds & has_zoom
    if sweeps:
        is_selected &= cells["sweep"].isin(sweeps)
    is_selected |= cells["epsilon"].isna()

    is_repeated = cells["cell"].where(is_selected).duplicated()
    is_timed = cells["timing"].astype(bool)
    matrix = matrix.take(is_selected & ~is_repeated & ~is_timed)
    names = matrix.cells["method"].str.removesuffix(ZOOMED)
    return matrix.describe(method=names).broadcast()


def private(table: pd.DataFrame) -> pd.DataFrame:
    """Select the lines of the compared methods: private ones, with k centers."""
    is_private = table["notion"] != "none"
    is_unranked = table["method"].isin(UNRANKED)
    return table[is_private & ~is_unranked]


def median_matrix(table: pd.DataFrame) -> pd.DataFrame:
    """Arrange medians: epsilons and data sets down, private methods across."""
    lines = private(table).groupby(["epsilon", "dataset", "method"])
    return lines["median"].first().unstack()


def full_results(
    table: pd.DataFrame,
    datasets: Sequence[str],
) -> pd.DataFrame:
    """Tell on which data sets a private method has a result at every epsilon.

    Data sets are down, methods across.
    """
    lines = private(table).groupby(["dataset", "method"])
    counts = lines["epsilon"].nunique().unstack()
    return counts.reindex(datasets) >= table["epsilon"].nunique()


def complete_methods(
    table: pd.DataFrame,
    datasets: Sequence[str],
) -> list[str]:
    """Return the private methods with a result on all data sets at all epsilons."""
    is_full = full_results(table, datasets)
    return list(is_full.columns[is_full.all()])


def shared_datasets(
    table: pd.DataFrame,
    datasets: Sequence[str],
) -> list[str]:
    """List the data sets on which every method has a result at every epsilon.

    Methods that have one on fewer than half of the data sets do not count: they would
    leave nothing to compare.
    """
    is_full = full_results(table, datasets)
    counted = is_full.loc[:, is_full.mean() >= 0.5]
    return list(is_full.index[counted.all(axis=1)])


def critical_difference(
    methods: int,
    datasets: int,
) -> float:
    """Compute Nemenyi's critical difference of mean ranks, at `LEVEL`.

    Examples
    --------
    >>> round(critical_difference(4, 14), 3)  # Demšar: 2.569 sqrt(4 * 5 / (6 * 14))
    1.254
    """
    quantile = stats.studentized_range.ppf(1 - LEVEL, methods, np.inf)
    variance = methods * (methods + 1) / (6 * datasets)
    return float(quantile / np.sqrt(2) * np.sqrt(variance))


def rank(
    table: pd.DataFrame,
    epsilon: float,
    datasets: Sequence[str],
    methods: Sequence[str],
) -> pd.DataFrame:
    """Compute mean ranks of methods over data sets at one epsilon.

    Parameters
    ----------
    table : DataFrame
        From `ratios`.
    epsilon : float
    datasets, methods : sequence of str
        Every method must have a result on every data set.

    Returns
    -------
    DataFrame
        Best first: `method`, `mean_rank` (1 is best, ties share), `low`, `high` (95 %
        bootstrap interval over data sets), `epsilon`, `datasets` (their number),
        `friedman_p` and `critical_difference` (Nemenyi's, at `LEVEL`); both NaN below
        three methods or two data sets.
    """
    medians = median_matrix(table).loc[epsilon]
    medians = medians.loc[datasets, methods].to_numpy()
    ranks = stats.rankdata(medians, axis=1)
    n_datasets, n_methods = medians.shape

    # Friedman's test and Nemenyi's difference.
    p_value = np.nan
    critical = np.nan
    if n_methods > 2 and n_datasets > 1:
        p_value = stats.friedmanchisquare(*medians.T).pvalue
        critical = critical_difference(n_methods, n_datasets)

    # Resample the data sets for intervals of the mean ranks.
    rng = np.random.default_rng([_SEED, n_datasets])
    resamples = rng.integers(n_datasets, size=(REPEATS, n_datasets))
    resampled_ranks = ranks[resamples].mean(axis=1)
    low, high = np.quantile(resampled_ranks, [0.025, 0.975], axis=0)
    columns = {
        "method": methods,
        "mean_rank": ranks.mean(axis=0),
        "low": low,
        "high": high,
        "epsilon": epsilon,
        "datasets": n_datasets,
        "friedman_p": p_value,
        "critical_difference": critical,
    }
    order = ["mean_rank", "method"]
    return pd.DataFrame(columns).sort_values(order, ignore_index=True)


def profile(
    table: pd.DataFrame,
    datasets: Sequence[str],
    factors: Sequence[float],
) -> pd.DataFrame:
    """Compute the share of settings in which a method is within a factor of the best.

    Dolan and Moré (2002): performance profiles, of costs in place of times.

    Parameters
    ----------
    table : DataFrame
        From `ratios`.
    datasets : sequence of str
    factors : sequence of float
        At least 1.

    Returns
    -------
    DataFrame
        `method`, `factor`, `share`; methods with a result on all data sets at all
        epsilons.
    """
    methods = complete_methods(table, datasets)
    if not methods:
        return pd.DataFrame(columns=["method", "factor", "share"])
    medians = median_matrix(table).loc[(slice(None), datasets), methods]
    smallest = medians.min(axis=1)
    relative = medians.div(smallest, axis=0)
    shares = {factor: (relative <= factor).mean() for factor in factors}
    table = pd.DataFrame(shares).rename_axis("factor", axis=1)
    return table.stack().rename("share").reset_index()


def best_methods(table: pd.DataFrame) -> pd.DataFrame:
    """Find the private method with the smallest median ratio in each setting.

    Returns
    -------
    DataFrame
        `dataset`, `epsilon`, `n`, `d`, `k`, `records` (n epsilon / k), `method`,
        `median`, `second` and its `second_median` (the next best), `baseline` (the
        smaller ratio of the mean as only center and of centers without data; NaN
        without them) and `useful`: whether the method is below it.
    """
    place = ["dataset", "epsilon"]
    ranked = private(table).sort_values([*place, "median", "method"])
    facts = [*place, "n", "d", "k", "method", "median"]
    best = ranked.drop_duplicates(place)[facts]
    others = ranked.drop(best.index).drop_duplicates(place)
    others = others.set_index(place)[["method", "median"]]
    others = others.set_axis(["second", "second_median"], axis=1)
    is_baseline = table["method"].isin(BASELINES)
    baselines = table[is_baseline].groupby(place)["median"].min()
    best = best.join(others, on=place)
    best = best.join(baselines.rename("baseline"), on=place)
    return best.assign(
        second=best["second"].fillna(""),
        records=best["n"] * best["epsilon"] / best["k"],
        # Without a baseline a method is useful.
        useful=~(best["median"] >= best["baseline"]),
    )
