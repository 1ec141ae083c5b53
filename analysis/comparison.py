"""The cross-paper comparison as numbers: ratios to non-private k-means, ranks, best methods.

A ratio is a run's NICV over that of the best non-private k-means run stored for the data set.
Methods are compared by the median ratio of their seeds: private runs have heavy tails. Ranks follow
Demšar (2006): on every data set the methods are ranked by their median, Friedman's test asks
whether their mean ranks could be those of chance, and two methods differ at a level where their
mean ranks are farther apart than Nemenyi's critical difference.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from pkm.analysis.accounting import min_released_count
from pkm.analysis.charges import charges_of
from pkm.analysis.tables import Study, concatenate

METRIC = "nicv"
REFERENCE = "kmeans"
YARDSTICKS = ("mean", "packing")
#: Methods that release as many centers as they find: shown beside the others, not ranked with them.
NATIVE = ("dpm_sound",)
LEVEL = 0.05
REPEATS = 2000
_SEED = 20250602
COLUMNS = [
    "dataset", "method", "variant", "epsilon", "notion", "adjacency", "trust", "delta", "n", "d",
    "k", "seeds", "median", "low", "high", "lower_quartile", "upper_quartile", "reference",
    "n_centers", "insufficient_data",
]  # fmt: skip


@dataclass(frozen=True)
class Ranking:
    """Mean ranks of methods over data sets at one epsilon.

    Attributes
    ----------
    epsilon : float
    datasets : tuple of str
        On all of which all of the methods have results.
    table : DataFrame
        `method`, `mean_rank` (1 is best, ties share), `low`, `high` (95 % bootstrap interval over
        data sets); best first.
    p_value : float
        Of Friedman's test; NaN below three methods or two data sets.
    critical : float
        Nemenyi's critical difference at `LEVEL`; NaN where the test cannot be made.
    """

    epsilon: float
    datasets: tuple[str, ...]
    table: pd.DataFrame
    p_value: float
    critical: float

    def cliques(self) -> list[tuple[int, int]]:
        """Groups of methods that do not differ, best first.

        That is, maximal runs within the critical difference.

        Returns
        -------
        list of (int, int)
            First and last line of `table`, of groups of two methods or more that are part of no
            larger one; none where the test cannot be made.
        """
        ranks, found = self.table["mean_rank"].to_numpy(), []
        for first in range(len(ranks)) if np.isfinite(self.critical) else ():
            last = int(np.flatnonzero(ranks - ranks[first] <= self.critical)[-1])
            if last > first and (not found or last > found[-1][1]):
                found.append((first, last))
        return found


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
    columns = []
    for column in np.asarray(values, dtype=float).T:
        own = np.sort(column[np.isfinite(column)])
        if not own.size:
            columns.append((np.nan, np.nan, np.nan, 0))
            continue
        inside = max(int(stats.binom.ppf((1 - level) / 2, own.size, 0.5)), 1) - 1
        columns.append((np.median(own), own[inside], own[own.size - 1 - inside], own.size))
    return (
        tuple(np.array(part) for part in zip(*columns, strict=True))
        if columns
        else (np.empty(0),) * 4
    )


def insufficient_data(cells: pd.DataFrame) -> pd.Series:
    """Tell which runs could release no bucket.

    That is, every threshold that they paid for is above the number of records. What such a method
    returns comes from its public fallback and from later releases.

    Parameters
    ----------
    cells : DataFrame
        With columns `charges` (JSON text) and `n`, and a unique index.

    Examples
    --------
    >>> charge = '"label": "bucket_counts", "count_scale": 100, "count_sensitivity": 1'
    >>> charges = '[{' + charge + ', "delta": 1e-6}]'
    >>> insufficient_data(pd.DataFrame({"charges": charges, "n": [400, 600]})).tolist()
    [True, False]
    """
    charges = charges_of(cells)
    histograms = charges[charges["label"] == "bucket_counts"]
    thresholds = [min_released_count(charge) for charge in histograms.to_dict("records")]
    lowest = pd.Series(thresholds, histograms.index, dtype=float).groupby(level=0).min()
    return lowest.reindex(cells.index) > cells["n"]


def ratios(study: Study) -> pd.DataFrame:
    """Ratio of NICV to the best non-private k-means run, by data set, method and epsilon.

    Parameters
    ----------
    study : analysis.tables.Study

    Returns
    -------
    DataFrame
        Columns `COLUMNS`: median over seeds with its interval and quartiles; `reference` is the
        NICV that divides, `n_centers` the mean number of released centers, `insufficient_data` as
        the function of that name says. Methods without epsilon stand at every epsilon of the grid.
        Data sets without the reference are left out.
    """
    panels = {}
    for metric in (METRIC, "n_centers"):
        found = [study.panel(sweep, metric) for sweep in study.sweeps]
        panel = concatenate(found) if found else None
        once = ~panel.cells["cell"].duplicated().to_numpy() & ~panel.cells["timing"].to_numpy(
            dtype=bool
        )
        panels[metric] = panel.take(once).broadcast()
    panel, numbers = panels[METRIC], panels["n_centers"]
    cells = panel.cells
    is_reference = (cells["method"] == REFERENCE).to_numpy()
    best = pd.Series(
        np.nanmin(panel.values[:, is_reference], axis=0), index=cells.loc[is_reference, "dataset"]
    )
    reference = cells["dataset"].map(best.groupby(level=0).min()).to_numpy(dtype=float)
    values = panel.values / reference
    median, low, high, seeds = median_interval(values)
    lower, upper = pd.DataFrame(values).quantile([0.25, 0.75]).to_numpy()
    key = ["cell", "epsilon"]
    centers = (
        numbers.cells[key].assign(n_centers=np.nanmean(numbers.values, axis=0))
        if len(numbers.cells)
        else None
    )
    table = cells.assign(median=median, low=low, high=high, seeds=seeds, reference=reference)
    table = table.assign(lower_quartile=lower, upper_quartile=upper)
    table = table.assign(insufficient_data=insufficient_data(cells))
    table = (
        table.merge(centers, on=key, how="left")
        if centers is not None
        else table.assign(n_centers=np.nan)
    )
    return table.loc[np.isfinite(table["median"]), COLUMNS].reset_index(drop=True)


def private(table: pd.DataFrame) -> pd.DataFrame:
    """Lines of the methods that are compared: private ones, with as many centers as requested."""
    return table[(table["notion"] != "none") & ~table["method"].isin(NATIVE)]


def matrix(
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
    epsilons = sorted(table["epsilon"].dropna().unique())
    table = private(table)
    missing = {}
    for method in sorted(set(table["method"])):
        lines = table[table["method"] == method]
        stored = set(zip(lines["dataset"], lines["epsilon"], strict=True))
        missing[method] = [
            name for name in datasets if any((name, epsilon) not in stored for epsilon in epsilons)
        ]
    with_all = [method for method, names in missing.items() if not names]
    return with_all, {method: names for method, names in missing.items() if names}


def shared_datasets(table: pd.DataFrame, datasets: Sequence[str]) -> list[str]:
    """Data sets on which every method has a result at every epsilon, in their order.

    Methods that have one on fewer than half of the data sets do not count: they would leave nothing
    to compare.
    """
    missing = complete(table, datasets)[1].values()
    excluded = {name for names in missing if len(names) <= len(datasets) / 2 for name in names}
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
) -> Ranking:
    """Rank methods on data sets at one epsilon.

    Parameters
    ----------
    table : DataFrame
        From `ratios`.
    epsilon : float
    datasets, methods : sequence of str
        Every method must have a result on every data set.

    Returns
    -------
    Ranking
    """
    wide = matrix(table, epsilon, list(datasets))[list(methods)]
    ranks = stats.rankdata(wide.to_numpy(), axis=1) if wide.size else np.empty(wide.shape)

    # Friedman's test and Nemenyi's difference.
    p_value = critical = np.nan
    if len(methods) > 2 and len(datasets) > 1:
        p_value = float(stats.friedmanchisquare(*wide.to_numpy().T).pvalue)
        critical = critical_difference(len(methods), len(datasets))

    # Resample the data sets for intervals of the mean ranks.
    rng = np.random.default_rng([_SEED, len(datasets)])
    resamples = rng.integers(len(datasets), size=(REPEATS, len(datasets)))
    low, high = np.quantile(ranks[resamples].mean(axis=1), [0.025, 0.975], axis=0)
    lines = pd.DataFrame(
        {"method": list(methods), "mean_rank": ranks.mean(axis=0), "low": low, "high": high}
    )
    lines = lines.sort_values(["mean_rank", "method"], ignore_index=True)
    return Ranking(float(epsilon), tuple(datasets), lines, p_value, critical)


def best_methods(table: pd.DataFrame) -> pd.DataFrame:
    """The private method with the smallest median ratio of each data set and epsilon.

    Returns
    -------
    DataFrame
        `dataset`, `epsilon`, `n`, `d`, `k`, `records` (n epsilon / k), `method`, `median`, `second`
        and its `second_median` (the next best), `yardstick` (the smaller ratio of the mean as only
        center and of centers without data; NaN without them) and `useful`: whether the method is
        below it.
    """
    lines = []
    for (dataset, epsilon), mine in table.groupby(["dataset", "epsilon"], sort=True):
        own = private(mine).sort_values(["median", "method"])
        if not len(own):
            continue
        first, others = own.iloc[0], own.iloc[1:]
        yardstick = mine.loc[mine["method"].isin(YARDSTICKS), "median"].min()
        lines.append(
            {
                "dataset": dataset,
                "epsilon": epsilon,
                **{name: first[name] for name in ("n", "d", "k", "method", "median")},
                "records": first["n"] * epsilon / first["k"],
                "second": others["method"].iloc[0] if len(others) else "",
                "second_median": others["median"].iloc[0] if len(others) else np.nan,
                "yardstick": yardstick,
                "useful": not first["median"] >= yardstick,
            }
        )
    return pd.DataFrame(lines)


def times(study: Study) -> pd.DataFrame:
    """Seconds of a fit, alone on the machine, by data set and method.

    Returns
    -------
    DataFrame
        `dataset`, `method`, `n`, `d`, `k`, `epsilon`, `seconds` (median over seeds of the timing
        sweeps), `seeds`; empty where nothing was timed.
    """
    rows = study.rows_with(["fit_seconds"])
    rows = rows[rows["timing"].astype(bool)] if "timing" in rows else rows.iloc[:0]
    keys = ["dataset", "method", "n", "d", "k"]
    if not len(rows):
        return pd.DataFrame(columns=[*keys, "epsilon", "seconds", "seeds"])
    grouped = rows.groupby([*keys, rows["epsilon"].fillna(-1.0)], sort=True)["fit_seconds"]
    table = grouped.agg(seconds="median", seeds="size").reset_index()
    return table.assign(epsilon=table["epsilon"].where(table["epsilon"] >= 0))
