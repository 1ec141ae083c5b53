"""Two stores compared cell by cell: same bits, moved within noise, or changed."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from pkm.analysis.tables.inference import holm
from pkm.experiments.store.cell_tables import MUST_MATCH, PROVENANCE, read_values
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
    """Compare two stores, A and B, whose cells are from `read_cells`.

    Returns
    -------
    DataFrame
        One row per cell of either store: its columns (those of A, where both have it),
        its `state` (one of `STATES`), `provenance`, which names those of `PROVENANCE`
        that differ, and the columns of `compare_values`.

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

    provenance = [
        ", ".join(name for name in PROVENANCE if pair[name] != pair[f"{name}_b"])
        for pair in pairs.to_dict("records")
    ]
    values = map(read_values, stores, (pairs["cell"], pairs["cell_b"]))
    pairs = pairs.assign(provenance=provenance).join(compare_values(*values))
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
            f"{name} differs in {len(unequal)} cells; {label}, for example, has "
            f"{pair[name]:.20} in A and {pair[f'{name}_b']:.20} in B: "
            "run both with the same one"
        )


@np.errstate(divide="ignore", invalid="ignore")
def compare_values(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """Compare the values of pairs of cells on the seeds that both have, by t tests.

    If only one cell has a value, the difference is no sampling error. `a` and `b` have
    one column per metric, and are indexed by pair and seed.

    Returns
    -------
    DataFrame
        One row per pair: `state`, and `metric`, `mean_a`, `mean_b` and the p-value `p`
        of the metric with the smallest p, adjusted over all pairs and metrics.
    """
    pairs = a.index.union(b.index).unique("pair")
    shared = a.index.intersection(b.index)
    metrics = a.columns.union(b.columns, sort=False)
    values = pd.DataFrame(
        {
            name: table.reindex(index=shared, columns=metrics).stack(future_stack=True)
            for name, table in {"mean_a": a, "mean_b": b}.items()
        }
    )
    left, right = values.to_numpy().T
    values["differs"] = ~compare_bits(left, right)
    values["change"] = subtract(left, right)
    by_metric = values.replace([-np.inf, np.inf], np.nan).groupby(
        level=[0, 2], sort=False
    )

    # Without variance the mean decides.
    tests = by_metric[["mean_a", "mean_b", "change"]].mean()
    tests["differs"] = by_metric["differs"].any()
    n = by_metric["change"].count()
    t = tests["change"].abs() / by_metric["change"].std() * np.sqrt(n)
    p = pd.Series(2 * stats.t.sf(t, n - 1), tests.index).mask(tests["change"] == 0, 1.0)
    is_lost = tests["mean_a"].isna() != tests["mean_b"].isna()
    p = p.mask(is_lost, 0.0).where(tests["differs"]).dropna()
    tests["p"] = pd.Series(holm(p), p.index)

    # The surest metric of each pair; without a test, the first one that differs.
    tests = tests.rename_axis(["pair", "metric"]).reset_index("metric")
    tests = tests.sort_values(["p", "differs"], ascending=[True, False], kind="stable")
    surest = tests.groupby(level="pair").head(1).reindex(pairs)
    states = [surest["differs"].eq(False), surest["p"].isna(), surest["p"] <= LEVEL]
    state = np.select(states, [SAME, UNTESTED, MOVED], WITHIN)
    return surest.assign(state=state)[["state", "metric", "mean_a", "mean_b", "p"]]


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

    The verdicts of A and B are by the report and the id of the claim.
    """
    a, b = map(read_verdicts, stores)
    return {name: (a[name], b[name]) for name in a if b.get(name, a[name]) != a[name]}


def read_verdicts(store: Store) -> dict[str, str]:
    """Read the verdicts of all reports of a store."""
    verdicts = {}
    for path in sorted(store.root.glob("reports/*/tables/claims.csv")):
        table = pd.read_csv(path, keep_default_na=False)
        for name, verdict in zip(table["id"], table["verdict"], strict=True):
            verdicts[f"{path.parents[1].name}: {name}"] = verdict
    return verdicts
