"""The cross-paper comparison as numbers: ratios to non-private k-means, ranks, best methods.

A ratio is a run's NICV over that of the best non-private k-means run stored for the data set.
Methods are compared by the median ratio of their seeds: private runs have heavy tails. Ranks follow
Demšar (2006): on every data set the methods are ranked by their median, Friedman's test is that of
equal mean ranks, and two methods differ at a level if their mean ranks differ by more than
Nemenyi's critical difference.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from scipy import stats

from pkm.analysis.tables.accounting import min_released_count
from pkm.analysis.tables.charges import read_charges
from pkm.analysis.tables.statistics import column_statistics
from pkm.analysis.tables.study import SeedMatrix, Study, concatenate

METRIC = "nicv"
#: The method whose NICV divides that of all methods.
REFERENCE = "kmeans"
#: Methods without privacy or data that a useful private method must beat.
BASELINES = ("mean", "packing")
#: Methods that choose their number of centers: shown, not ranked with those that release k.
UNRANKED = ("dpm",)
#: How names of methods end that find their domain themselves (`zoom=`).
ZOOMED = "_zoomed"
#: Methods that do so by default: compared with those that do and with those that do not.
ALWAYS_ZOOMED = ("synopsis",)
#: Sweeps that are compared among themselves only: widths of bounds, other accounting, public data.
SEPARATE_SWEEPS = ("wide_bounds", "replace_one", "smaller_delta", "public_data")
#: Of Nemenyi's critical difference.
LEVEL = 0.05
#: Bootstrap resamples of the data sets.
REPEATS = 2000
_SEED = 20250602
COLUMNS = [
    "dataset", "method", "variant", "epsilon", "notion", "adjacency", "trust", "delta", "n", "d",
    "k", "seeds", "median", "low", "high", "lower_quartile", "upper_quartile", "reference",
    "n_centers", "insufficient_data",
]  # fmt: skip


def median_interval(
    values: np.ndarray, level: float = 0.95
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Median of the finite values of each column, with a distribution-free interval.

    Parameters
    ----------
    values : ndarray of shape (seeds, columns)
    level : float
        Coverage; below six values not even all of them reach 95 %, and the interval is their range.

    Returns
    -------
    tuple of ndarray of shape (columns,)
        Median, lower and upper end, number of finite values.

    Examples
    --------
    >>> [float(end[0]) for end in median_interval(np.arange(1.0, 21.0)[:, None])]
    [10.5, 6.0, 15.0, 20.0]
    """
    # What is not finite is sorted to the end.
    finite = np.isfinite(values)
    ordered = np.sort(np.where(finite, values, np.nan), axis=0)
    counts = finite.sum(axis=0)
    columns = np.arange(counts.size)
    # Order statistics at symmetric ranks, by quantiles of the binomial distribution.
    quantile = stats.binom.ppf((1 - level) / 2, np.maximum(counts, 1), 0.5).astype(int)
    rank_low = np.maximum(quantile, 1) - 1
    rank_high = np.maximum(counts - 1 - rank_low, 0)
    middle = [ordered[np.maximum(counts - 1, 0) // 2, columns], ordered[counts // 2, columns]]
    median = np.mean(middle, axis=0)
    return median, ordered[rank_low, columns], ordered[rank_high, columns], counts


def insufficient_data(cells: pd.DataFrame) -> pd.Series:
    """Tell which runs could release no bucket.

    Every threshold that they were charged for is above the number of records. What such a method
    returns comes from its public fallback and from later releases.

    Parameters
    ----------
    cells : DataFrame
        With columns `charges` and `n`, and a unique index.

    Examples
    --------
    >>> from pkm.arrow import nested
    >>> charge = {"label": "bucket_counts", "count_scale": 100, "count_sensitivity": 1}
    >>> charges = nested("charges", [[charge | {"delta": 1e-6}]] * 2)
    >>> insufficient_data(pd.DataFrame({"charges": charges, "n": [400, 600]})).tolist()
    [True, False]
    """
    charges = read_charges(cells)
    histograms = charges[charges["label"] == "bucket_counts"]
    thresholds = [min_released_count(charge) for charge in histograms.to_dict("records")]
    lowest = pd.Series(thresholds, histograms.index, dtype=float).groupby(level=0).min()
    return lowest.reindex(cells.index) > cells["n"]


def ratios(
    study: Study,
    sweeps: Sequence[str] = (),
    *,
    bounds_factor: float = 1.0,
    zoomed: bool = False,
) -> pd.DataFrame:
    """Ratio of NICV to the best non-private k-means run, by data set, method and epsilon.

    Parameters
    ----------
    study : analysis.tables.study.Study
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
        Columns `COLUMNS`: median over seeds with its interval and quartiles; `reference` is the
        NICV that divides, `n_centers` the mean number of released centers, `insufficient_data` as
        the function of that name says. Methods without epsilon are listed at every epsilon of the
        grid. Data sets without the reference are left out.
    """
    matrix = _cells(study, METRIC, sweeps, bounds_factor, zoomed)
    cells = matrix.cells

    # Divide by the best run of the reference on the same data set.
    is_reference = (cells["method"] == REFERENCE).to_numpy()
    reference_datasets = cells.loc[is_reference, "dataset"]
    best_runs = np.nanmin(matrix.values[:, is_reference], axis=0)
    best = pd.Series(best_runs, index=reference_datasets).groupby(level=0).min()
    reference = cells["dataset"].map(best).to_numpy(dtype=float)
    values = matrix.values / reference

    # Summarize the ratios over the seeds.
    median, low, high, seeds = median_interval(values)
    lower, upper = pd.DataFrame(values).quantile([0.25, 0.75]).to_numpy()
    table = cells.assign(
        median=median,
        low=low,
        high=high,
        seeds=seeds,
        reference=reference,
        lower_quartile=lower,
        upper_quartile=upper,
        insufficient_data=insufficient_data(cells),
    )
    counted = _cells(study, "n_centers", sweeps, bounds_factor, zoomed)
    n_centers = column_statistics(counted.values).mean
    counts = counted.cells[["cell", "epsilon"]].assign(n_centers=n_centers)
    table = table.merge(counts, on=["cell", "epsilon"], how="left")
    known = np.isfinite(table["median"])
    return table.loc[known, COLUMNS].reset_index(drop=True)


def _cells(
    study: Study, metric: str, sweeps: Sequence[str], bounds_factor: float, zoomed: bool
) -> SeedMatrix:
    """Every cell once, at every epsilon of the grid, without timing cells; see `ratios`."""
    known = [sweep for sweep in study.sweeps if sweep not in SEPARATE_SWEEPS or sweep in sweeps]
    matrix = concatenate([study.matrix(sweep, metric) for sweep in known])
    cells = matrix.cells

    # Methods without an epsilon are in every selection: they divide, or must be beaten.
    finds_domain = cells["method"].str.endswith(ZOOMED)
    has_zoom = (finds_domain == zoomed) | cells["method"].isin(ALWAYS_ZOOMED)
    selected = (cells["bounds_factor"] == bounds_factor) & has_zoom
    if sweeps:
        selected &= cells["sweep"].isin(sweeps)
    selected |= cells["epsilon"].isna()

    repeated = cells["cell"].where(selected).duplicated()
    timed = cells["timing"].astype(bool)
    matrix = matrix.take((selected & ~repeated & ~timed).to_numpy())
    names = matrix.cells["method"].str.removesuffix(ZOOMED)
    return replace(matrix, cells=matrix.cells.assign(method=names)).broadcast()


def private(table: pd.DataFrame) -> pd.DataFrame:
    """Lines of the methods that are compared: private ones, with as many centers as requested."""
    return table[(table["notion"] != "none") & ~table["method"].isin(UNRANKED)]


def median_matrix(
    table: pd.DataFrame, epsilon: float, datasets: Sequence[str] | None = None
) -> pd.DataFrame:
    """Medians at one epsilon: data sets down, private methods across; NaN without a result."""
    table = private(table)
    table = table[table["epsilon"] == epsilon]
    wide = table.pivot_table(index="dataset", columns="method", values="median", aggfunc="first")
    return wide if datasets is None else wide.reindex(datasets)


def complete(
    table: pd.DataFrame, datasets: Sequence[str]
) -> tuple[list[str], dict[str, list[str]]]:
    """Split private methods into those with a result everywhere and the others.

    Everywhere is on all data sets at all epsilons.

    Returns
    -------
    tuple of (list of str, dict)
        The first sorted; the second says by method on which data sets it lacks a result.
    """
    epsilons = set(table["epsilon"].dropna())
    complete_methods = []
    missing_by_method = {}
    for method, lines in private(table).groupby("method", sort=True):
        stored = {name: set(part["epsilon"]) for name, part in lines.groupby("dataset")}
        missing = [name for name in datasets if not epsilons <= stored.get(name, set())]
        if missing:
            missing_by_method[method] = missing
        else:
            complete_methods.append(method)
    return complete_methods, missing_by_method


def shared_datasets(table: pd.DataFrame, datasets: Sequence[str]) -> list[str]:
    """Data sets on which every method has a result at every epsilon, in their order.

    Methods that have one on fewer than half of the data sets do not count: they would leave nothing
    to compare.
    """
    _, missing_by_method = complete(table, datasets)
    excluded = set()
    for missing in missing_by_method.values():
        if len(missing) <= len(datasets) / 2:
            excluded.update(missing)
    return [name for name in datasets if name not in excluded]


def critical_difference(methods: int, datasets: int, level: float = LEVEL) -> float:
    """Nemenyi's critical difference of mean ranks.

    Examples
    --------
    >>> round(critical_difference(4, 14), 3)  # Demšar (2006): 2.569 sqrt(4 * 5 / (6 * 14))
    1.254
    """
    q = stats.studentized_range.ppf(1 - level, methods, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(methods * (methods + 1) / (6 * datasets)))


def rank(
    table: pd.DataFrame, epsilon: float, datasets: Sequence[str], methods: Sequence[str]
) -> pd.DataFrame:
    """Mean ranks of methods over data sets at one epsilon.

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
        Best first: `method`, `mean_rank` (1 is best, ties share), `low`, `high` (95 % bootstrap
        interval over data sets), `epsilon`, `datasets` (their number), `friedman_p` and
        `critical_difference` (Nemenyi's, at `LEVEL`); both NaN below three methods or two data
        sets.
    """
    medians = median_matrix(table, epsilon, list(datasets))[list(methods)].to_numpy()
    ranks = stats.rankdata(medians, axis=1) if medians.size else np.empty(medians.shape)
    n_datasets = len(datasets)
    n_methods = len(methods)

    # Friedman's test and Nemenyi's difference.
    p_value = np.nan
    critical = np.nan
    if n_methods > 2 and n_datasets > 1:
        p_value = float(stats.friedmanchisquare(*medians.T).pvalue)
        critical = critical_difference(n_methods, n_datasets)

    # Resample the data sets for intervals of the mean ranks.
    rng = np.random.default_rng([_SEED, n_datasets])
    resamples = rng.integers(n_datasets, size=(REPEATS, n_datasets))
    resampled_ranks = ranks[resamples].mean(axis=1)
    low, high = np.quantile(resampled_ranks, [0.025, 0.975], axis=0)
    lines = pd.DataFrame({"method": list(methods), "mean_rank": ranks.mean(axis=0)})
    lines = lines.assign(low=low, high=high, epsilon=epsilon, datasets=n_datasets)
    lines = lines.assign(friedman_p=p_value, critical_difference=critical)
    return lines.sort_values(["mean_rank", "method"], ignore_index=True)


def profile(table: pd.DataFrame, datasets: Sequence[str], factors: np.ndarray) -> pd.DataFrame:
    """Share of data sets and epsilons on which a method is within a factor of the best.

    Dolan and Moré (2002): performance profiles, of costs in place of times.

    Parameters
    ----------
    table : DataFrame
        From `ratios`.
    datasets : sequence of str
    factors : ndarray of shape (m,)
        At least 1.

    Returns
    -------
    DataFrame
        `method`, `factor`, `share`; methods with a result on all data sets at all epsilons.
    """
    methods = complete(table, datasets)[0]
    if not methods:
        return pd.DataFrame(columns=["method", "factor", "share"])
    grid = np.sort(table["epsilon"].dropna().unique())
    medians = [median_matrix(table, epsilon, list(datasets))[methods] for epsilon in grid]
    stacked = pd.concat(medians)
    relative = stacked.div(stacked.min(axis=1), axis=0).to_numpy()
    within = relative[:, :, None] <= np.asarray(factors)
    shares = pd.DataFrame(within.mean(axis=0), index=methods, columns=factors)
    lines = shares.rename_axis(index="method", columns="factor").stack()
    return lines.rename("share").reset_index()


def best_methods(table: pd.DataFrame) -> pd.DataFrame:
    """The private method with the smallest median ratio of each data set and epsilon.

    Returns
    -------
    DataFrame
        `dataset`, `epsilon`, `n`, `d`, `k`, `records` (n epsilon / k), `method`, `median`, `second`
        and its `second_median` (the next best), `baseline` (the smaller ratio of the mean as only
        center and of centers without data; NaN without them) and `useful`: whether the method is
        below it.
    """
    place = ["dataset", "epsilon"]
    ranked = private(table).sort_values([*place, "median", "method"])
    by_place = ranked.groupby(place)
    second = by_place.nth(1)[[*place, "method", "median"]]
    second = second.rename(columns={"method": "second", "median": "second_median"})
    is_baseline = table["method"].isin(BASELINES)
    baselines = table[is_baseline].groupby(place)["median"].min().rename("baseline")
    best = by_place.nth(0)[[*place, "n", "d", "k", "method", "median"]]
    best = best.merge(second, on=place, how="left").join(baselines, on=place)
    return best.assign(
        second=best["second"].fillna(""),
        records=best["n"] * best["epsilon"] / best["k"],
        # Without a baseline a method is useful.
        useful=~(best["median"] >= best["baseline"]),
    )
