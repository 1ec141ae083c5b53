"""Compare two results folders cell by cell: ``pkm diff A B``.

    pkm diff A B
    pkm diff A B paper=fastlloyd profile=paper

A cell of A and one of B are the same experiment if method, parameters, data set, settings, metrics
and budget agree; seeds, code and machine may differ. The result of each is one of

    same        the same bits on every seed that both have
    within      different, and within sampling error
    moved       different by more than that
    untested    different, on fewer than two seeds

Means are compared by t tests, paired where at least two seeds are in both, by Welch's otherwise,
with Holm's correction over all cells and metrics. Running times are left out.

Where cells differ, the claims of every paper that has a report in A or B (or of paper=NAME, at
profile=NAME, by default quick) are evaluated on both. data=FOLDER is the mirror, as for
`pkm reproduce`.

The exit code is 0 if no cell has moved, 1 if some have, and 2 if A and B must not be compared:
unlike budgets or adjacency, or other code of the metrics.
"""

import itertools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from scipy import stats

from pkm.analysis.claims.claim import papers_with_claims
from pkm.analysis.tables.inference import holm, paired_tests
from pkm.experiments.commands.composition import load
from pkm.experiments.config.errors import ConfigurationError, unknown
from pkm.experiments.config.groups import choices
from pkm.experiments.config.settings import require
from pkm.experiments.console.console import consoles, exit_code, parsed_words
from pkm.experiments.plan.plan import make_plan
from pkm.experiments.reports.changed_verdicts import changed_verdicts
from pkm.experiments.store.cell_tables import (
    ALIKE,
    BUDGET,
    IDENTITY,
    MEASURED,
    ORIGIN,
    Comparable,
    read_both,
)
from pkm.experiments.store.store import Store
from pkm.schema import BY_NAME

SAME = "same"
WITHIN = "within"
MOVED = "moved"
UNTESTED = "untested"
#: What a report calls them, in its order.
LABELS = {
    SAME: "same bits",
    WITHIN: "within sampling error",
    UNTESTED: "different, on fewer than two seeds",
    MOVED: "moved",
}
OPTIONS = ("paper", "profile", "data")
LEVEL = 0.05
#: A difference that is smaller, relative to the values, is rounding and not tested.
ROUNDING = 1e-9
#: How many moved cells, or changed verdicts of a paper, are printed.
LINES = 20


@dataclass(frozen=True)
class Difference:
    """Two stores compared.

    Attributes
    ----------
    cells : DataFrame
        One line per cell that both have: `IDENTITY`, `BUDGET`, the keys `cell_a` and `cell_b`,
        `state`; of the metric that differs most surely its name `metric`, `mean_a`, `mean_b` and
        adjusted `p`; in `origin`, which of code, data, versions and host differ.
    only_a, only_b : DataFrame
        Cells that one of them lacks.
    unversioned : int
        Cells of different code of which one does not say which code of the metrics it had.
    """

    cells: pd.DataFrame
    only_a: pd.DataFrame
    only_b: pd.DataFrame
    unversioned: int

    @property
    def moved(self) -> pd.DataFrame:
        """The cells that have moved, the surest first."""
        return self.cells[self.cells["state"] == MOVED].sort_values("p", kind="stable")

    @property
    def is_empty(self) -> bool:
        """Whether both have the same cells, with the same bits."""
        all_same = (self.cells["state"] == SAME).all()
        return bool(all_same) and self.only_a.empty and self.only_b.empty


def compare(a: Comparable, b: Comparable) -> Difference:
    """Compare two stores.

    Returns
    -------
    Difference

    Raises
    ------
    ValueError
        If budgets, adjacency or the code of the metrics are unlike.
    """
    experiment = [*IDENTITY, *BUDGET]
    joined = numbered(a.cells).merge(
        numbered(b.cells), on=experiment, how="outer", suffixes=("_a", "_b"), indicator=True
    )
    pairs = joined[joined["_merge"] == "both"].reset_index(drop=True)
    only_a = joined[joined["_merge"] == "left_only"]
    only_b = joined[joined["_merge"] == "right_only"]
    require_like_budgets(pairs, only_a, only_b)
    for name in ALIKE:
        require_alike(pairs, name)
    other_code = pairs["code_a"] != pairs["code_b"]
    unknown = (pairs["metrics_code_a"] == "") | (pairs["metrics_code_b"] == "")
    origin = [
        ", ".join(name for name in ORIGIN if pair[f"{name}_a"] != pair[f"{name}_b"])
        for pair in pairs.to_dict("records")
    ]
    cells = pairs[[*experiment, "cell_a", "cell_b"]].assign(origin=origin)
    numbers = [pairs[f"number_{side}"].to_numpy(dtype=int) for side in "ab"]
    cells = cells.join(differences(a.values, b.values, *numbers))
    return Difference(cells, only_a, only_b, int((other_code & unknown).sum()))


def numbered(cells: pd.DataFrame) -> pd.DataFrame:
    """Return cells with their positions."""
    return cells.assign(number=np.arange(len(cells)))


def require_like_budgets(pairs: pd.DataFrame, only_a: pd.DataFrame, only_b: pd.DataFrame) -> None:
    """Refuse experiments that were run at some budgets in A and at none of these in B."""
    shared = pairs[IDENTITY].drop_duplicates().assign(shared=True)
    both = only_a[[*IDENTITY, *BUDGET]].merge(
        only_b[[*IDENTITY, *BUDGET]], on=IDENTITY, suffixes=("_a", "_b")
    )
    both = both.drop_duplicates(IDENTITY).merge(shared, on=IDENTITY, how="left")
    unlike = both[both["shared"].isna()]
    if len(unlike):
        first = unlike.iloc[0]
        budgets = [f"({first[f'epsilon_{side}']:g}, {first[f'delta_{side}']:g})" for side in "ab"]
        raise ValueError(
            f"unlike budgets: {len(unlike)} settings, such as {label(first)}, have (ε, δ) = "
            f"{budgets[0]} in A and {budgets[1]} in B, and none in both: run them at the same"
        )


def require_alike(pairs: pd.DataFrame, name: str) -> None:
    """Refuse pairs that differ in a column; rows older than the column are not refused."""
    a = pairs[f"{name}_a"]
    b = pairs[f"{name}_b"]
    unlike = pairs[(a != b) & (a != "") & (b != "")]
    if len(unlike):
        first = unlike.iloc[0]
        raise ValueError(
            f"unlike {name} ({BY_NAME[name].label}): {len(unlike)} cells, such as {label(first)}, "
            f"have {first[f'{name}_a']:.12} in A and {first[f'{name}_b']:.12} in B: "
            "run them with the same code"
        )


def label(cell: Mapping) -> str:
    """Name an experiment in one line.

    Examples
    --------
    >>> given = {"variant": "sound", "params": '{"alpha": 0.8}', "k": 3, "epsilon": 1.0}
    >>> label(given | {"method": "fastlloyd", "dataset": "iris"})
    'fastlloyd sound {"alpha": 0.8} · iris · k=3 · ε=1'
    """
    params = "" if cell["params"] == "{}" else cell["params"]
    method = " ".join(filter(None, [cell["method"], cell["variant"], params]))
    epsilon = cell.get("epsilon", np.nan)
    budget = [] if np.isnan(epsilon) else [f"ε={epsilon:g}"]
    return " · ".join([method, cell["dataset"], f"k={cell['k']}", *budget])


def differences(
    a: pd.DataFrame, b: pd.DataFrame, numbers_a: np.ndarray, numbers_b: np.ndarray
) -> pd.DataFrame:
    """Compare the measured values of pairs of cells.

    Parameters
    ----------
    a, b : DataFrame
        See `Comparable.values`.
    numbers_a, numbers_b : ndarray of shape (n_pairs,)
        Which cells are compared.

    Returns
    -------
    DataFrame
        One line per pair: `state`, `metric`, `mean_a`, `mean_b`, `p`; see `Difference`.
    """
    n_pairs = len(numbers_a)
    measured = [name for name in MEASURED if name in a or name in b]
    a = in_pairs(a, numbers_a, measured)
    b = in_pairs(b, numbers_b, measured)
    shared = a.merge(b, on=["pair", "seed"], suffixes=("_a", "_b"))
    pair = shared["pair"].to_numpy()
    position = shared.groupby("pair").cumcount().to_numpy()
    n_shared = np.bincount(pair, minlength=n_pairs)
    is_paired = n_shared > 1

    differs = np.zeros((len(measured), n_pairs), dtype=bool)
    p_values = np.full(differs.shape, np.nan)
    means = np.full((2, *differs.shape), np.nan)
    for line, name in enumerate(measured):
        left, right = (shared[f"{name}_{side}"].to_numpy(dtype=float) for side in "ab")
        changed = np.bincount(pair, ~same_bits(left, right), n_pairs) > 0
        moments = [moments_of(side, name, n_pairs) for side in (a, b)]
        is_measured = (moments[0][2] > 0) | (moments[1][2] > 0)
        differs[line] = np.where(n_shared > 0, changed, is_measured)
        if not differs[line].any():
            continue

        matrix = np.full((n_shared.max(initial=1), n_pairs), np.nan)
        matrix[position, pair] = without_rounding(left, right)
        paired = paired_tests(matrix)
        of_pairs = np.minimum(2 * paired[["p_greater", "p_less"]].min(axis=1).to_numpy(), 1)
        p = np.where(is_paired, of_pairs, welch(*moments))
        # A value on one side against none on the other is no sampling error.
        is_lost = (moments[0][2] == 0) != (moments[1][2] == 0)
        p_values[line] = np.where(differs[line], np.where(is_lost, 0.0, p), np.nan)
        means[0, line] = moments[0][0]
        means[1, line] = moments[1][0]
    return summarized(measured, differs, p_values, means)


def in_pairs(values: pd.DataFrame, numbers: np.ndarray, measured: Sequence[str]) -> pd.DataFrame:
    """Return the values of some cells, with the number of each cell's pair."""
    pair_of = np.full(values["cell"].max() + 1, -1)
    pair_of[numbers] = np.arange(len(numbers))
    pair = pair_of[values["cell"]]
    is_chosen = pair >= 0
    chosen = values[is_chosen].reindex(columns=["seed", *measured])
    return chosen.assign(pair=pair[is_chosen])


def same_bits(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Tell which numbers have the same bits; all NaN count as one.

    Examples
    --------
    >>> same_bits(np.array([1.0, 0.0, np.nan]), np.array([1.0, -0.0, -np.nan])).tolist()
    [True, False, True]
    """
    same = np.ascontiguousarray(left).view(np.int64) == np.ascontiguousarray(right).view(np.int64)
    return same | (np.isnan(left) & np.isnan(right))


def without_rounding(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return left minus right, zero where they differ by rounding alone; NaN is kept."""
    with np.errstate(invalid="ignore"):
        difference = left - right
        scale = np.maximum(np.abs(left), np.abs(right))
    return np.where(np.abs(difference) <= ROUNDING * scale, 0.0, difference)


def moments_of(
    rows: pd.DataFrame, name: str, n_pairs: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, standard deviation and number of the finite values of each pair."""
    values = rows[name].to_numpy(dtype=float)
    finite = np.isfinite(values)
    pair = rows["pair"].to_numpy()[finite]
    values = values[finite]
    n = np.bincount(pair, minlength=n_pairs)
    mean = np.bincount(pair, values, n_pairs) / np.maximum(n, 1)
    squares = np.bincount(pair, (values - mean[pair]) ** 2, n_pairs)
    return np.where(n > 0, mean, np.nan), np.sqrt(squares / np.maximum(n - 1, 1)), n


def welch(left: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> np.ndarray:
    """Two-sided Welch tests from means, deviations and numbers; NaN below two values."""
    with np.errstate(invalid="ignore", divide="ignore"):
        p = stats.ttest_ind_from_stats(*left, *right, equal_var=False).pvalue
    # Without any variance the means decide.
    constant = (left[1] == 0) & (right[1] == 0)
    p = np.where(constant, np.where(without_rounding(left[0], right[0]) == 0, 1.0, 0.0), p)
    return np.where((left[2] > 1) & (right[2] > 1), p, np.nan)


def summarized(
    measured: Sequence[str], differs: np.ndarray, p_values: np.ndarray, means: np.ndarray
) -> pd.DataFrame:
    """Reduce the tests of all metrics to one line per pair: see `differences`."""
    tested = np.isfinite(p_values)
    adjusted = np.full(p_values.shape, np.nan)
    adjusted[tested] = holm(p_values[tested])

    # The surest metric of each pair; of equally sure ones the one that differs.
    order = np.where(tested, adjusted, np.where(differs, 2.0, 3.0))
    line = order.argmin(axis=0)
    column = np.arange(order.shape[1])
    p = adjusted[line, column]
    is_different = differs.any(axis=0)
    state = np.select(
        [~is_different, np.isnan(p), p <= LEVEL], [SAME, UNTESTED, MOVED], default=WITHIN
    )
    return pd.DataFrame(
        {
            "state": state,
            "metric": np.where(is_different, np.array(measured)[line], ""),
            "mean_a": means[0, line, column],
            "mean_b": means[1, line, column],
            "p": p,
        }
    )


def reports_of(stores: Sequence[Store]) -> list[tuple[str, str]]:
    """List the papers and profiles that some store has a report on."""
    known = itertools.product(papers_with_claims(), choices("profile"))
    return [each for each in known if any(s.report_folder(*each).is_dir() for s in stores)]


def show(difference: Difference, console: Console) -> None:
    """Print the counts, then the cells that have moved."""
    counts = difference.cells["state"].value_counts()
    table = Table("cells", "", box=None, show_header=False)
    table.columns[1].justify = "right"
    for state, text in LABELS.items():
        table.add_row(text, str(counts.get(state, 0)))
    table.add_row("only in A", str(len(difference.only_a)))
    table.add_row("only in B", str(len(difference.only_b)))
    console.print(table)
    if difference.unversioned:
        console.print(
            f"{difference.unversioned} cells of different code do not say which code their metrics "
            "had: a difference may come from there",
            style="yellow",
        )
    moved = difference.moved
    if len(moved):
        table = Table("moved", "metric", "A", "B", "p", "differs in", box=None)
        for cell in moved.head(LINES).to_dict("records"):
            numbers = [f"{cell[name]:.4g}" for name in ("mean_a", "mean_b")]
            table.add_row(label(cell), cell["metric"], *numbers, f"{cell['p']:.2g}", cell["origin"])
        console.print(table)
    if len(moved) > LINES:
        console.print(f"and {len(moved) - LINES} more")


def run(folders: Sequence[str], options: Mapping[str, str], console: Console) -> int:
    """Compare two folders and print the result.

    Returns
    -------
    int
        0, or 1 if a cell has moved.
    """
    require(len(folders) == 2, "folders", " ".join(folders), "two results folders, A and B")
    for name in options:
        require(name in OPTIONS, "option", name, " or ".join(OPTIONS))
    for name in ("paper", "profile"):
        known = choices(name)
        if options.get(name, known[0]) not in known:
            raise ConfigurationError(unknown(name, options[name], known))
    a, b = read_both(*folders)
    difference = compare(a, b)
    show(difference, console)
    if difference.is_empty:
        return 0

    stores = [Store(folder) for folder in folders]
    profile = options.get("profile", "quick")
    evaluated = [(options["paper"], profile)] if "paper" in options else reports_of(stores)
    if not evaluated:
        console.print("verdicts: neither has a report; paper=NAME profile=NAME says of which paper")
    data = [f"data={options['data']}"] if "data" in options else []
    for paper, profile in evaluated:
        config = load([f"paper={paper}", f"profile={profile}", "tracking=none", *data])
        plan = make_plan(config.paper, config.profile, mirror=config.data)
        changed = changed_verdicts(plan, stores, [a.cells, b.cells])
        console.print(f"{paper} ({profile}): {len(changed)} verdicts changed")
        for line in changed.itertuples():
            console.print(f"  {line.claim}: {line.a} -> {line.b}", markup=False, highlight=False)
    return 1 if len(difference.moved) else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; see the module's text.

    Returns
    -------
    int
        Exit code: 0, 1 if a cell has moved, 2 if the request was refused.
    """
    keys = "A, B, " + "=, ".join(OPTIONS) + "="
    folders, options = parsed_words("diff", __doc__, "FOLDER", keys, argv)
    return exit_code(lambda: run(folders, options, consoles()[0]))


if __name__ == "__main__":
    sys.exit(main())
