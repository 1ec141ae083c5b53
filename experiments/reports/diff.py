"""Two stores compared cell by cell: same bits, moved within noise, or changed."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from pkm.analysis.claims import verdicts
from pkm.analysis.tables.inference import holm
from pkm.analysis.tables.study import Study
from pkm.experiments.plan.plan import Plan, make_gap_table, repeat_for_sweeps
from pkm.experiments.plan.sweep import Gap
from pkm.experiments.store.cell_tables import (
    MUST_MATCH,
    PROVENANCE,
    match_keys,
    read_values,
)
from pkm.experiments.store.store import Store

SAME = "same bits"
WITHIN = "within sampling error"
UNTESTED = "different, on fewer than two seeds"
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
    """Compare the values of pairs of cells.

    Means are compared by t tests: paired where two seeds are shared, else Welch's. If
    only one cell has a value, the difference is no sampling error.

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
    # The seeds that both have count; where there are none, all seeds do.
    shared = a.index.intersection(b.index)
    a, b = a.align(b)
    pair = a.index.get_level_values("pair")
    is_shared = a.index.isin(shared)
    counts = is_shared | ~pair.isin(pair[is_shared])
    left = a.to_numpy()
    right = b.to_numpy()
    differs = pd.DataFrame(~compare_bits(left, right)[counts])
    differs = differs.groupby(pair[counts]).any().to_numpy()

    values = np.hstack([left, right, subtract(left, right)])
    groups = pd.DataFrame(values).where(np.isfinite(values)).groupby(pair)
    mean, deviation, n = (
        np.split(moments.to_numpy(), 3, axis=1)
        for moments in (groups.mean(), groups.std(), groups.count())
    )
    is_paired = n[2] > 1
    t = abs(mean[2]) / deviation[2] * np.sqrt(n[2])
    paired = 2 * stats.t.sf(t, n[2] - 1)
    welch = stats.ttest_ind_from_stats(
        mean[0],
        deviation[0],
        n[0],
        mean[1],
        deviation[1],
        n[1],
        equal_var=False,
    ).pvalue
    p = np.where(is_paired, paired, welch)
    # Without variance the means decide.
    change = np.where(is_paired, mean[2], subtract(mean[0], mean[1]))
    p = np.where(change == 0, 1, p)
    p = np.where((n[0] == 0) != (n[1] == 0), 0, p)
    p = np.where(differs, p, np.nan)
    is_tested = ~np.isnan(p)
    p[is_tested] = holm(p[is_tested])

    # The surest metric of each pair; without a test, the first one that differs.
    surest = np.where(is_tested, p, np.where(differs, 2, 3)).argmin(axis=1)
    line = np.arange(len(p))
    p = p[line, surest]
    states = [~differs.any(axis=1), np.isnan(p), p <= LEVEL]
    return pd.DataFrame(
        {
            "state": np.select(states, [SAME, UNTESTED, MOVED], WITHIN),
            "metric": a.columns.to_numpy()[surest],
            "mean_a": mean[0][line, surest],
            "mean_b": mean[1][line, surest],
            "p": p,
        }
    )


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


def evaluate_claims(
    plan: Plan,
    store: Store,
    cells: pd.DataFrame,
) -> dict[str, str]:
    """Evaluate the claims of a plan's paper on the cells of a store, of any code.

    Returns
    -------
    dict of str to str
        The verdict on each claim, by its id; empty where no cell of the plan is stored.
    """
    keys = match_keys(plan.cells, cells)
    entries = []
    gaps = list(plan.gaps)
    for sweep, cell in plan.entries:
        if cell.key in keys:
            entries.append((sweep, keys[cell.key], cell.dataset_name))
        else:
            gaps.append(
                Gap(sweep, cell.method, cell.dataset_name, cell.epsilon, "not run")
            )
    if not entries:
        return {}
    rows = repeat_for_sweeps(store.read(keys.values()), entries)
    evaluated = verdicts.evaluate_claims(Study(rows), plan.paper, make_gap_table(gaps))
    return {verdict.claim.id: verdict.finding.verdict for verdict in evaluated}
