"""What a claim compares: stored means of two sides, and their ratios.

`left` and `right` list selectors (a method's name, or column values); `over` names the
columns in which both sides agree, with the expected values or ``any``. Data sets that
share these columns are averaged, over those that both sides have. With `along`, one of
these columns, the right side is the left one at the value before. `columns` adds
columns to the cells, each an expression in those before it. With `share_of_runs`, an
expression in them and in the `value` of a run, the share of runs in which it holds
takes the place of the mean.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from pkm.analysis.claims.expressions import evaluate_columns, with_columns
from pkm.analysis.claims.findings import (
    BootstrapValues,
    Context,
    MissingRows,
    as_list,
    describe_missing,
    join_texts,
)
from pkm.analysis.claims.reported import parse_number
from pkm.analysis.tables.statistics import area, resampled_means
from pkm.analysis.tables.study import (
    SeedMatrix,
    Study,
    as_columns,
    concatenate,
    matches,
)

#: Keys that select what is compared.
SELECTION = (
    "sweep",
    "metric",
    "area",
    "columns",
    "left",
    "right",
    "over",
    "along",
    "where",
    "share_of_runs",
    "across",
    "relative_to",
    "average",
    "by",
    "times",
    "expected",
    "datasets_each",
    "up_to",
)
#: Keys that name the reported numbers by which the ratios are divided.
REPORTED = ("numbers", "cell")
#: How values are averaged over data sets: ratio of the means, mean of the ratios (every
#: data set weighs the same, whatever its height), mean of the differences.
AVERAGES = ("ratio_of_means", "mean_of_ratios", "difference")
_DATA_COLUMNS = ("dataset", "epsilon", "n", "d", "k")


@dataclass(frozen=True)
class Comparisons:
    """Comparisons between cells of a matrix, the left ones and the right ones.

    Attributes
    ----------
    matrix : SeedMatrix
    keys : DataFrame
        One row per comparison: values of the `over` columns and labels of both sides.
    rows : DataFrame
        One row per comparison and data set, comparison by comparison: `comparison`,
        and `left`, `right` and, where both sides are relative to a method, `scale`:
        columns of the matrix.
    missing : str
        What was expected and is not stored.
    complete : ndarray of shape (comparisons,), bool
        Which comparisons rest on all the data sets that they are about.
    averaging : str
        How values are averaged over data sets: one of `AVERAGES`.
    """

    matrix: SeedMatrix
    keys: pd.DataFrame
    rows: pd.DataFrame
    missing: str
    complete: np.ndarray
    averaging: str

    def first_cells(
        self,
        columns: Sequence[str],
    ) -> pd.DataFrame:
        """Return columns of the first left cell of each comparison."""
        firsts = self.rows.drop_duplicates("comparison")["left"]
        return self.matrix.cells[columns].iloc[firsts].reset_index(drop=True)

    @property
    def shared_seeds(self) -> np.ndarray:
        """Fewest seeds that all sides of each comparison share on a data set."""
        finite = np.isfinite(self.matrix.values)
        sides = self.rows.drop(columns="comparison")
        is_shared = np.logical_and.reduce([finite[:, sides[name]] for name in sides])
        counts = self.rows.assign(seeds=is_shared.sum(axis=0))
        return counts.groupby("comparison")["seeds"].min().to_numpy()

    @cached_property
    def _means(self) -> np.ndarray:
        return resampled_means(self.matrix)

    def average(
        self,
        values: np.ndarray,
    ) -> np.ndarray:
        """Average values of shape (n, rows) over the data sets of each comparison."""
        comparison = self.rows["comparison"].to_numpy()
        starts = np.flatnonzero(np.diff(comparison, prepend=-1))
        sums = np.add.reduceat(values, starts, axis=1)
        return sums / np.bincount(comparison)

    def resample(
        self,
        side: str,
    ) -> np.ndarray:
        """Average the resampled means of a side, relative to those of their `scale`."""
        if self.averaging not in AVERAGES:
            raise ValueError(f"average={self.averaging!r} must be one of {AVERAGES}")
        values = self._means[:, self.rows[side]]
        if "scale" not in self.rows:
            return self.average(values)
        scale = self._means[:, self.rows["scale"]]
        if self.averaging == "difference":
            return self.average(values - scale)
        if self.averaging == "mean_of_ratios":
            return self.average(values / scale)
        return self.average(values) / self.average(scale)


def find_comparisons(
    study: Study,
    check: Mapping,
    context: Context,
) -> Comparisons:
    """Find the comparisons of a check; see the module.

    With `across` each selector names one cell per combination, and the two sides need
    not be of the same data set.
    """
    over = {
        name: None if values == "any" else values
        for name, values in check["over"].items()
    }
    if isinstance(check["metric"], list):
        over["metric"] = check["metric"]
    matrix = _select_matrix(study, check, over, context)
    unstored = ""
    if "share_of_runs" in check:
        # A rule on runs says nothing of those that are not stored.
        methods = [as_columns(selector)["method"] for selector in check["left"]]
        unstored = context.describe_missing_cells(methods, check["sweep"])
        matrix = _share_of_runs(matrix, check["share_of_runs"])
    rows = _match_sides(matrix.cells, check, over)
    if not len(rows):
        raise MissingRows(context.explain_missing(check["sweep"]))
    # Number the comparisons.
    identity = [*over, "left_label", "right_label"]
    groups = rows.groupby(
        identity,
        sort=False,
        dropna=False,
    )
    rows = rows.assign(comparison=groups.ngroup()).sort_values(
        "comparison", kind="stable", ignore_index=True
    )
    keys = (
        rows.drop_duplicates("comparison")[identity]
        .reset_index(drop=True)
        .set_axis([*over, "left", "right"], axis=1)
        .infer_objects()
    )
    rows = rows.filter(["comparison", "left", "right", "scale"]).astype(int)

    n_datasets = np.bincount(rows["comparison"])
    n_fewest = n_datasets.min()
    n_expected = check.get("datasets_each", 1)
    few = f"only {n_fewest} of {n_expected} data sets behind some comparisons"
    # Columns that are not stored up to the value that the claim is about.
    short = []
    for name, last in check.get("up_to", {}).items():
        largest = matrix.cells[name].iloc[rows["left"]].max()
        if largest * (1 + 1e-9) < last:
            short.append(f"{name} up to {largest:,} instead of {last:,}")
    missing = join_texts(
        _describe_missing(check, over, keys),
        few if n_fewest < n_expected else "",
        *short,
        unstored,
    )
    return Comparisons(
        matrix,
        keys,
        rows,
        missing,
        n_datasets >= n_expected,
        check.get("average", AVERAGES[0]),
    )


def _match_sides(
    cells: pd.DataFrame,
    check: Mapping,
    over: Mapping,
) -> pd.DataFrame:
    """Match both sides, and what they are relative to, on the data sets they share."""
    rows = _find_side(cells, check, over, "left")
    if "right" in check:
        # On the `over` columns and by data set.
        rows = rows.merge(_find_side(cells, check, over, "right"))
    elif "along" in check:
        rows = _match_before(rows, check["along"], over)
    else:
        rows = rows.assign(right=rows["left"], right_label="1")
    if "relative_to" in check:
        scales = cells.loc[matches(cells, check["relative_to"]), "dataset"]
        scale_of = dict(zip(scales, scales.index, strict=True))
        rows = rows.assign(scale=rows["dataset"].map(scale_of)).dropna(subset="scale")
    return rows


def _match_before(
    rows: pd.DataFrame,
    along: str,
    over: Mapping,
) -> pd.DataFrame:
    """Match the cells of a side with those at the value of a column before theirs."""
    others = [name for name in (*over, "left_label") if name != along]
    curves = rows.groupby(others, sort=False, dropna=False).ngroup()
    rows = rows.assign(curve=curves).sort_values(["curve", along], kind="stable")
    before = rows.groupby(["curve", "dataset"])["left"].shift()
    rows = rows.assign(right=before, right_label="the value before")
    rows = rows.dropna(subset="right")
    if not len(rows):
        raise MissingRows(f"only one value of {along} is stored")
    return rows


def _select_matrix(
    study: Study,
    check: Mapping,
    over: Mapping[str, list | None],
    context: Context,
) -> SeedMatrix:
    """Return the stored cells that a check is about, with its further columns."""
    stored = []
    for metric in as_list(check["metric"]):
        matrix = study.matrix(check["sweep"], metric)
        if len(matrix.cells):
            stored.append(matrix.describe(metric=metric))
    if not stored:
        raise MissingRows(context.explain_missing(check["sweep"]))
    matrix = concatenate(stored)
    matrix = area(matrix) if check.get("area") else matrix.broadcast()
    cells = with_columns(matrix.cells, check.get("columns", {}))

    is_allowed = np.ones(len(cells), dtype=bool)
    for name, values in over.items():
        if name not in cells:
            raise MissingRows(f"no stored row has the parameter {name}")
        if name in _DATA_COLUMNS and values is not None:
            # An area has no epsilon.
            is_allowed &= cells[name].isin(values) | cells[name].isna()
    matrix = replace(matrix, cells=cells).take(is_allowed)

    if "where" not in check:
        return matrix
    condition = check["where"]
    selected = matrix.take(evaluate_columns(matrix.cells, condition))
    if not len(selected.cells):
        raise MissingRows(f"none of {len(matrix.cells)} stored cells has {condition}")
    return selected


def _find_side(
    cells: pd.DataFrame,
    check: Mapping,
    over: Mapping,
    side: str,
) -> pd.DataFrame:
    """Find the cells of one side by the values of the `over` columns and by data set.

    Returns
    -------
    DataFrame
        These columns, and `<side>` (position of the cell) and `<side>_label` (of the
        selector).
    """
    is_across = check.get("across")
    on = list(dict.fromkeys([*over, "dataset"]))
    tables = []
    for selector in check[side]:
        selected = cells[on][matches(cells, selector)]
        if is_across:
            # Without a name a cell matches one of another data set.
            selected = selected.assign(dataset="")
        repeated = selected[selected.duplicated()]
        if len(repeated):
            what = "several data sets" if is_across else "two cells"
            values = dict(repeated.iloc[0])
            raise ValueError(f"selector {selector!r} matches {what} at {values}")
        columns = {side: selected.index, f"{side}_label": label(selector)}
        tables.append(selected.assign(**columns))
    return pd.concat(tables, ignore_index=True)


def _share_of_runs(
    matrix: SeedMatrix,
    expression: str,
) -> SeedMatrix:
    """Replace the value of each run by whether an expression holds."""
    values = matrix.values
    holds = evaluate_columns(matrix.cells, expression, value=values)
    cells = matrix.cells.assign(
        mean_of_runs=np.nanmean(values, axis=0),
        largest_of_runs=np.nanmax(values, axis=0),
    )
    values = np.where(np.isnan(values), np.nan, holds)
    return replace(matrix, cells=cells, values=values)


def label(selector: str | Mapping) -> str:
    """Write a selector: the method, and the other columns with their values."""
    return ", ".join(
        str(value) if name == "method" else f"{name}={value}"
        for name, value in as_columns(selector).items()
    )


def count_values(check: Mapping) -> dict[str, int]:
    """Count the values that a check lists of each side and column."""
    keys = ("metric", "left", "right")
    counts = {name: len(as_list(check.get(name, "1"))) for name in keys}
    listed = {
        name: len(values) for name, values in check["over"].items() if values != "any"
    }
    return counts | listed


def _describe_missing(
    check: Mapping,
    over: Mapping,
    keys: pd.DataFrame,
) -> str:
    """Say which comparisons the claim asks for and are not stored."""
    # Nothing is before the first value of `along`.
    along = check.get("along")
    listed = {
        name: values
        for name, values in over.items()
        if values is not None and name != along
    }
    compared = [*(over if "expected" in check else listed), "left", "right"]
    n_available = len(keys[compared].drop_duplicates())
    counts = count_values(check)
    n_expected = math.prod(counts.values())
    if "expected" in check:
        n_expected = check["expected"] * counts["metric"]
    if n_available >= n_expected:
        return ""

    texts = []
    for name, values in listed.items():
        stored = set(keys[name])
        missing = [str(value) for value in values if value not in stored]
        if missing:
            texts.append(f"{name} {', '.join(missing)}")
    available = f"{n_available} of {n_expected} comparisons can be made"
    return join_texts(available, f"absent: {'; '.join(texts)}" if texts else "")


def measure_ratios(
    study: Study,
    check: Mapping,
    context: Context,
) -> BootstrapValues:
    """Compute resampled ratios left / right of each comparison; see `divide_sides`.

    With `numbers` these are divided by reported ones, where a data set has both:
    `numbers` names a mapping from data sets to reported numbers. Or it names reported
    cells (see `pkm.analysis.claims.reported`): then `cell` names numbers of each, of
    which the smallest is taken. `over` may name some of the data sets.

    A list of metrics gives the comparisons of each one, with a column `metric`.
    """
    if "numbers" not in check:
        return divide_sides(find_comparisons(study, check, context), check)
    reported = context.reported[check["numbers"]]
    if "cell" in check:
        # The smallest of the named numbers of each reported cell that has one.
        names = as_list(check["cell"])
        cells = pd.DataFrame(reported["cells"]).set_index("dataset").filter(names)
        numbers = cells.map(lambda text: parse_number(text)[0], na_action="ignore")
        reported = numbers.min(axis=1).dropna().to_dict()
    if "over" in check:
        reported = {name: reported[name] for name in check["over"]["dataset"]}

    check = check | {"over": {"dataset": list(reported)}}
    measured = divide_sides(find_comparisons(study, check, context), check)
    datasets = measured.cases["dataset"]
    divisors = datasets.map(reported).to_numpy(dtype=float)
    return replace(
        measured,
        values=measured.values / divisors,
        missing=describe_missing(reported, datasets),
        name="Measured over reported",
        extra_columns={"measured": measured.values[0], "reported": divisors},
    )


def divide_sides(
    comparisons: Comparisons,
    check: Mapping,
) -> BootstrapValues:
    """Compute resampled ratios left / right of each comparison.

    Without `right` and `along` the left side itself, or its mean relative to
    `relative_to`. ``by: difference`` subtracts the right side instead; `times`
    multiplies the left side by an expression in the columns of its cells, such as ``1 /
    k``.
    """
    left = comparisons.resample("left")
    has_right = {"right", "along"} & set(check)
    right = comparisons.resample("right") if has_right else 1.0
    if "times" in check:
        cells = comparisons.matrix.cells
        factors = evaluate_columns(cells, check["times"])
        factors = np.broadcast_to(np.asarray(factors, dtype=float), len(cells))
        left = left * comparisons.average(factors[None, comparisons.rows["left"]])

    is_ratio = has_right or {"relative_to", "times"} & set(check)
    name = "Ratio" if is_ratio else "Value"
    values = left / right
    if check.get("by") == "difference":
        name = "Difference"
        values = left - right

    extra_columns = list(check.get("columns", ()))
    if "share_of_runs" in check:
        name = "Share of runs"
        extra_columns += ["mean_of_runs", "largest_of_runs"]
    return BootstrapValues(
        values,
        comparisons.keys,
        comparisons.shared_seeds,
        comparisons.missing,
        name,
        comparisons.complete,
        comparisons.first_cells(extra_columns),
        is_cost="share_of_runs" not in check,
    )
