"""Two stores compared cell by cell: same bits, moved within noise, or changed."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from pandas.core.groupby import DataFrameGroupBy
from scipy import stats

from pkm.analysis.tables.inference import holm
from pkm.experiments.store.cell_tables import (
    MUST_MATCH,
    PROVENANCE,
    read_values,
)
from pkm.experiments.store.store import Store

SAME = "same bits"
WITHIN = "within sampling error"
UNTESTED = "not tested, on fewer than two shared seeds"
MOVED = "moved"
ONLY_A = "only in A"
ONLY_B = "only in B"
STATES = [SAME, WITHIN, UNTESTED, MOVED, ONLY_A, ONLY_B]
LEVEL = 0.05
#: A difference that is smaller, relative to the values, is rounding.
ROUNDING = 1e-9


def compare(stores: Sequence[Store], cells: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Compare two stores, A and B.

    Parameters
    ----------
    stores : sequence of Store
    cells : sequence of DataFrame
        Of each store, from `read_cells`.

    Returns
    -------
    DataFrame
        One row per cell of either store: its columns (those of A, where both have it),
        its `state` (one of `STATES`), `origin`, which names those of code, data,
        versions and host that differ, and the columns of `compare_values`.

    Raises
    ------
    ValueError
        If budgets, adjacency or the code of the metrics are unlike.
    """
    a, b = cells
    joined = a.merge(b, on="settings", suffixes=("", "_b"))
    pairs = joined[joined["budget"] == joined["budget_b"]].reset_index(drop=True)
    require_equal(joined[~joined["settings"].isin(pairs["settings"])], "budget")
    for name in MUST_MATCH:
        require_equal(pairs, name)

    origin = [
        ", ".join(name for name in PROVENANCE if pair[name] != pair[f"{name}_b"])
        for pair in pairs.to_dict("records")
    ]
    values = map(read_values, stores, (pairs["cell"], pairs["cell_b"]))
    pairs = pairs.assign(origin=origin).join(compare_values(*values))
    only_a = a[~a["cell"].isin(pairs["cell"])].assign(state=ONLY_A)
    only_b = b[~b["cell"].isin(pairs["cell_b"])].assign(state=ONLY_B)
    return pd.concat([pairs, only_a, only_b])


def require_equal(pairs: pd.DataFrame, name: str) -> None:
    """Refuse pairs that differ in a column; rows older than the column pass."""
    a = pairs[name]
    b = pairs[f"{name}_b"]
    unequal = pairs[(a != b) & (a != "") & (b != "")]
    if len(unequal):
        pair = unequal.iloc[0]
        label = " ".join(pair[["method", "variant", "params", "dataset"]])
        raise ValueError(
            f"unlike {name} in {len(unequal)} cells, such as {label}, have "
            f"{pair[name]:.20} in A and {pair[f'{name}_b']:.20} in B: "
            "run them with the same"
        )


@np.errstate(divide="ignore", invalid="ignore")
def compare_values(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """Compare the values of pairs of cells on the seeds that both have, by t tests.

    If only one cell has a value, the difference is no sampling error.

    Parameters
    ----------
    a, b : DataFrame
        One column per metric, indexed by pair and seed.

    Returns
    -------
    DataFrame
        One row per pair: `state`, and `metric`, `mean_a`, `mean_b` and the p-value `p`
        of the metric with the smallest p, adjusted over all pairs and metrics.
    """
    pairs = a.index.union(b.index).unique("pair")
    shared = a.index.intersection(b.index)
    metrics = a.columns.union(b.columns, sort=False)
    a, b = (values.reindex(index=shared, columns=metrics) for values in (a, b))
    bits = compare_bits(a.to_numpy(), b.to_numpy())
    differs = group(pd.DataFrame(~bits, shared, metrics)).any()

    # Without variance the mean decides.
    change = pd.DataFrame(subtract(a.to_numpy(), b.to_numpy()), shared, metrics)
    groups = group(change.where(np.isfinite(change)))
    mean, n = groups.mean(), groups.count()
    t = mean.abs() / groups.std() * np.sqrt(n)
    p = pd.DataFrame(2 * stats.t.sf(t, n - 1), t.index, metrics).mask(mean == 0, 1.0)
    is_lost = group(np.isfinite(a)).any() != group(np.isfinite(b)).any()
    p = p.mask(is_lost, 0.0).where(differs).to_numpy(copy=True)
    is_tested = ~np.isnan(p)
    p[is_tested] = holm(p[is_tested])

    # The surest metric of each pair; without a test, the first one that differs.
    surest = np.where(is_tested, p, np.where(differs, 2, 3)).argmin(axis=1)
    line = np.arange(len(p))
    p = p[line, surest]
    states = [~differs.any(axis=1), np.isnan(p), p <= LEVEL]
    mean_a, mean_b = (
        group(values.where(np.isfinite(values))).mean().to_numpy()[line, surest]
        for values in (a, b)
    )
    columns = {
        "state": np.select(states, [SAME, UNTESTED, MOVED], WITHIN),
        "metric": metrics.to_numpy()[surest],
        "mean_a": mean_a,
        "mean_b": mean_b,
        "p": p,
    }
    compared = pd.DataFrame(columns, differs.index).reindex(pairs)
    return compared.fillna({"state": UNTESTED})


def group(values: pd.DataFrame) -> DataFrameGroupBy:
    """Group the seeds of each pair of cells."""
    return values.groupby(level="pair")


def subtract(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return left minus right; zero where they differ by rounding alone."""
    difference = left - right
    scale = np.maximum(abs(left), abs(right))
    return np.where(abs(difference) <= ROUNDING * scale, 0.0, difference)


def compare_bits(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Tell which numbers have the same bits; all NaN count as one.

    Examples
    --------
    >>> left = np.array([1.0, 0.0, np.nan])
    >>> compare_bits(left, np.array([1.0, -0.0, -np.nan])).tolist()
    [True, False, True]
    """
    are_nan = np.isnan(left) & np.isnan(right)
    return are_nan | (left.view(np.int64) == right.view(np.int64))


def compare_verdicts(stores: Sequence[Store]) -> dict[str, tuple[str, str]]:
    """Find the claims that the reports of two stores decide differently.

    Returns
    -------
    dict of str to (str, str)
        The verdicts of A and B, by the report and the id of the claim.
    """
    a, b = map(read_verdicts, stores)
    shared = {name: (a[name], b[name]) for name in a if name in b}
    return {name: pair for name, pair in shared.items() if pair[0] != pair[1]}


def read_verdicts(store: Store) -> dict[str, str]:
    """Read the verdicts of all reports of a store."""
    verdicts = {}
    for path in sorted(store.root.glob("reports/*/tables/claims.csv")):
        table = pd.read_csv(path, keep_default_na=False)
        for name, verdict in zip(table["id"], table["verdict"], strict=True):
            verdicts[f"{path.parents[1].name}: {name}"] = verdict
    return verdicts
