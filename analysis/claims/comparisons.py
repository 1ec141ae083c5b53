"""What a claim compares: pairs of stored means, and their ratios.

`left` and `right` list selectors (a method's name, or column values); `over` names the columns in
which both sides agree, with the expected values, a named set of them, or ``any``. Data sets that
share these columns are averaged, over those that both sides have. `columns` adds columns to the
cells, each an expression in those before it. With `share_of_runs`, an expression in them and in the
`value` of a run, the share of runs in which it holds takes the place of the mean.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pandas as pd

from pkm.analysis.claims.expressions import evaluated
from pkm.analysis.claims.findings import (
    Context,
    Draws,
    MissingRows,
    as_list,
    describe_absent,
    join_texts,
)
from pkm.analysis.claims.reported import number
from pkm.analysis.tables.planted import parse_planted_names
from pkm.analysis.tables.statistics import area, resampled_means
from pkm.analysis.tables.study import SeedMatrix, Study, matches

#: Keys that select what is compared.
SELECTION = (
    "sweep", "metric", "area", "columns", "left", "right", "over", "where", "share_of_runs",
    "across", "best_of", "relative_to", "average", "by", "times", "expected", "datasets_each",
    "up_to", "mean_of_right",
)  # fmt: skip
#: Keys of reported numbers that the ratios are divided by.
REPORTED = ("numbers", "cell", "inverse")
_NUMERIC = ("dataset", "epsilon", "n", "d", "k")
Selector = str | Mapping


@dataclass(frozen=True)
class Pairs:
    """Comparisons found in a matrix.

    Attributes
    ----------
    matrix : SeedMatrix
    keys : DataFrame
        One line per comparison: values of the `over` columns and labels of both sides.
    left, right, scale : list of list of int
        Columns of the matrix, data set by data set; `scale` of the method that both sides are
        relative to, without columns where there is none.
    missing : str
        What was expected and is not stored.
    complete : ndarray of shape (comparisons,), bool
        Which comparisons rest on all the data sets and candidates that they are about.
    """

    matrix: SeedMatrix
    keys: pd.DataFrame
    left: list[list[int]]
    right: list[list[int]]
    scale: list[list[int]]
    missing: str
    complete: np.ndarray

    @property
    def shared_seeds(self) -> np.ndarray:
        """Fewest seeds that both sides of each comparison, and its scale, share on a data set."""
        finite = np.isfinite(self.matrix.values)
        shared = []
        for left, right, scale in zip(self.left, self.right, self.scale, strict=True):
            both = finite[:, left] & finite[:, right] & finite[:, scale or left]
            shared.append(both.sum(axis=0).min())
        return np.array(shared)

    @property
    def seeds(self) -> int:
        """Fewest seeds that both sides of a comparison share."""
        return int(self.shared_seeds.min())


def find_pairs(study: Study, check: Mapping, context: Context) -> Pairs:
    """Find the comparisons of a check; see the module.

    With `across` each selector names one cell per combination, and the two sides need not be of
    the same data set. `best_of` makes a candidate of every value of these columns.
    """
    matrix = study.matrix(check["sweep"], check["metric"])
    if not len(matrix.cells):
        raise MissingRows(context.why(check["sweep"]))
    matrix = area(matrix) if check.get("area") else matrix.broadcast()
    matrix = replace(matrix, cells=with_columns(matrix.cells, check.get("columns", {})))
    resolved = check["over"].items()
    over = {name: None if values == "any" else context.resolve(values) for name, values in resolved}
    matrix = matrix.take(_allowed(matrix.cells, over))
    if "where" in check:
        stored = matrix
        matrix = stored.take(numeric(stored.cells, check["where"]).eval(check["where"]))
        if not len(matrix.cells):
            raise MissingRows(f"none of {len(stored.cells)} stored cells has {check['where']}")
    without_rows = ""
    if "share_of_runs" in check:
        # A rule on runs says nothing of those that are not stored.
        methods = [_as_mapping(selector)["method"] for selector in check["left"]]
        without_rows = context.absent_cells(methods, check["sweep"])
        matrix = _share_of_runs(matrix, check["share_of_runs"])
    cells = matrix.cells

    # Find the cells of every selector, by the values of the `over` columns and by data set.
    lefts = [(label(selector), _cells_by_key(cells, selector, over)) for selector in check["left"]]
    selectors = _candidates(cells, check)
    rights = [(label(selector), _cells_by_key(cells, selector, over)) for selector in selectors]
    denominators = matches(cells, check.get("relative_to", {"method": []}))
    scale_of = dict(zip(cells["dataset"][denominators], np.flatnonzero(denominators), strict=True))

    # Match both sides on the data sets that they share.
    lines = []
    sides = []
    for (left_label, left_by_key), (right_label, right_by_key) in product(
        lefts, rights or [("1", None)]
    ):
        for key, left in left_by_key.items():
            right = left if right_by_key is None else right_by_key.get(key, {})
            if check.get("across"):
                left = _nameless(left, left_label)
                right = _nameless(right, right_label)
            datasets = [name for name in left if name in right]
            if "relative_to" in check:
                datasets = [name for name in datasets if name in scale_of]
            if datasets:
                facts = dict(zip(over, key, strict=True))
                lines.append(facts | {"left": left_label, "right": right_label})
                columns = [[side[name] for name in datasets] for side in (left, right)]
                sides.append((*columns, [scale_of[name] for name in datasets if scale_of]))
    if not lines:
        raise MissingRows(context.why(check["sweep"]))
    keys = pd.DataFrame(lines)
    left, right, scale = (list(side) for side in zip(*sides, strict=True))

    absent = _absent_candidates(check, cells)
    n_datasets = np.array([len(columns) for columns in left])
    each = check.get("datasets_each", 1)
    few = f"only {n_datasets.min()} of {each} data sets behind some comparisons"
    missing = join_texts(
        _absent_comparisons(check, over, keys),
        few if n_datasets.min() < each else "",
        absent,
        _short_of_ends(check, cells.iloc[np.concatenate(left)]),
        without_rows,
    )
    complete = (n_datasets >= each) & (not absent)
    return Pairs(matrix, keys, left, right, scale, missing, complete)


def with_columns(cells: pd.DataFrame, columns: Mapping[str, str]) -> pd.DataFrame:
    """Add columns to the cells by expressions, after those of the names of planted data sets."""
    cells = parse_planted_names(cells)
    for name, expression in columns.items():
        cells = cells.assign(**{name: evaluated(expression, _arrays(cells, expression))})
    return cells


def _share_of_runs(matrix: SeedMatrix, expression: str) -> SeedMatrix:
    """Replace the value of each run by whether an expression holds."""
    holds = evaluated(expression, _arrays(matrix.cells, expression) | {"value": matrix.values})
    cells = matrix.cells.assign(
        mean_of_runs=np.nanmean(matrix.values, axis=0),
        largest_of_runs=np.nanmax(matrix.values, axis=0),
    )
    return replace(matrix, cells=cells, values=np.where(np.isnan(matrix.values), np.nan, holds))


def _arrays(cells: pd.DataFrame, expression: str) -> dict[str, np.ndarray]:
    """Columns that an expression names as arrays, numbers where they have some."""
    return {name: column.to_numpy() for name, column in numeric(cells, expression).items()}


def _nameless(positions: Mapping[str, int], name: str) -> dict[str, int]:
    """Return the only cell under no name, so that it matches one of another data set."""
    if len(positions) > 1:
        raise ValueError(
            f"across: selector {name!r} matches several data sets, {sorted(positions)}"
        )
    return dict(zip([""], positions.values(), strict=False))


def _candidates(cells: pd.DataFrame, check: Mapping) -> list[Selector]:
    """Return the selectors of the right side; `best_of` splits each by those columns' values."""
    selectors = list(check.get("right", ()))
    columns = check.get("best_of", [])
    if not columns or not set(columns) <= set(cells.columns):
        return selectors
    values = [cells.loc[matches(cells, each), columns].dropna() for each in selectors]
    return [
        _as_mapping(selector) | line
        for selector, of_selector in zip(selectors, values, strict=True)
        for line in of_selector.drop_duplicates().to_dict("records")
    ]


def _as_mapping(selector: Selector) -> dict:
    return {"method": selector} if isinstance(selector, str) else dict(selector)


def label(selector: Selector) -> str:
    """Write a selector: the method, and the other columns with their values."""
    columns = _as_mapping(selector).items()
    texts = [str(value) if name == "method" else f"{name}={value}" for name, value in columns]
    return ", ".join(texts)


def _allowed(cells: pd.DataFrame, over: Mapping) -> np.ndarray:
    """Mask of the cells with expected values of the `over` columns."""
    allowed = np.ones(len(cells), dtype=bool)
    for name, values in over.items():
        if name not in cells:
            raise MissingRows(f"no stored row has the parameter {name}")
        if name in _NUMERIC and values is not None:
            listed = cells[name].isin(values)
            is_free = cells[name].isna() if name == "epsilon" else False
            allowed &= (listed | is_free).to_numpy()
    return allowed


def _cells_by_key(
    cells: pd.DataFrame, selector: Selector, over: Mapping
) -> dict[tuple, dict[str, int]]:
    """Map each combination of values of the `over` columns to the selected cells by data set."""
    selected = cells[matches(cells, selector)]
    values = selected[list(over)].to_numpy(dtype=object)
    by_key: dict[tuple, dict[str, int]] = {}
    for position, line, name in zip(selected.index, values, selected["dataset"], strict=True):
        by_dataset = by_key.setdefault(tuple(line), {})
        if name in by_dataset:
            raise ValueError(
                f"selector {selector!r} matches two cells of data set {name!r} at {list(over)}="
                f"{tuple(line)}"
            )
        by_dataset[name] = position
    return by_key


def _absent_comparisons(check: Mapping, over: Mapping, keys: pd.DataFrame) -> str:
    """Say which comparisons the claim asks for and are not stored."""
    n_right = 1 if "best_of" in check else len(check.get("right", "1"))
    listed = {name: values for name, values in over.items() if values is not None}
    compared = [*(over if "expected" in check else listed), "left"]
    compared += [] if "best_of" in check else ["right"]
    n_available = len(keys[compared].drop_duplicates())
    n_values = np.prod([len(values) for values in listed.values()], dtype=int)
    n_expected = check.get("expected", n_values * len(check["left"]) * n_right)
    if n_available >= n_expected:
        return ""
    absent_texts = []
    for name, values in listed.items():
        absent = [str(value) for value in values if value not in set(keys[name])]
        absent_texts += [f"{name} {', '.join(absent)}"] if absent else []
    absent_text = f"absent: {'; '.join(absent_texts)}" if absent_texts else ""
    return join_texts(f"{n_available} of {n_expected} comparisons available", absent_text)


def _absent_candidates(check: Mapping, cells: pd.DataFrame) -> str:
    """Say which listed values of a `best_of` column no stored cell has."""
    texts = []
    for selector, name in product(check.get("right", ()), check.get("best_of", ())):
        listed = _as_mapping(selector).get(name)
        if isinstance(listed, list) and name in cells:
            absent = [str(value) for value in listed if not (cells[name] == value).any()]
            texts += [f"{name} {', '.join(absent)} not stored"] if absent else []
    return "; ".join(texts)


def _short_of_ends(check: Mapping, cells: pd.DataFrame) -> str:
    """Say which columns are not stored up to the value that the claim is about."""
    ends = [(name, cells[name].max(), last) for name, last in check.get("up_to", {}).items()]
    texts = [
        f"{name} up to {end:,} instead of {last:,}"
        for name, end, last in ends
        if end * (1 + 1e-9) < last
    ]
    return "; ".join(texts)


def measure_ratios(study: Study, check: Mapping, context: Context) -> Draws:
    """Resampled ratios left / right per comparison of a check; see `divide_pairs`.

    With `numbers` these are divided by reported ones, or the other way with `inverse`, where a data
    set has both. `numbers` names a mapping from data sets to reported numbers, or reported cells
    whose smallest entry of the names `cell` is meant; `over` may name some of these data sets.

    A list of metrics gives the comparisons of each one, with a column `metric`.
    """
    if isinstance(check["metric"], list):
        return _of_metrics(study, check, context)
    if "numbers" not in check:
        return divide_pairs(find_pairs(study, check, context), check)
    reported = context.reported[check["numbers"]]
    if "cell" in check:
        wanted = as_list(check["cell"])
        texts = {
            cell["dataset"]: [cell[name] for name in wanted if name in cell]
            for cell in reported["cells"]
        }
        reported = {name: min(number(text)[0] for text in t) for name, t in texts.items() if t}
    if "over" in check:
        named = context.resolve(check["over"]["dataset"])
        reported = {name: reported[name] for name in named}
    over = {"dataset": list(reported)}
    measured = divide_pairs(find_pairs(study, check | {"over": over}, context), check)
    values = measured.cases["dataset"].map(reported).to_numpy(dtype=float)
    factors = measured.values / values
    return replace(
        measured,
        values=1 / factors if check.get("inverse") else factors,
        missing=describe_absent(reported, measured.cases["dataset"]),
        name="Reported over measured" if check.get("inverse") else "Measured over reported",
        facts={"measured": measured.values[0], "reported": values},
    )


def _of_metrics(study: Study, check: Mapping, context: Context) -> Draws:
    """Join the comparisons of several metrics."""
    parts = []
    missing = []
    for metric in check["metric"]:
        try:
            part = measure_ratios(study, check | {"metric": metric}, context)
        except MissingRows:
            missing.append(f"no stored rows of metric {metric}")
            continue
        parts.append(replace(part, cases=part.cases.assign(metric=metric)))
        missing.append(part.missing)
    if not parts:
        raise MissingRows(context.why(check["sweep"]))
    return replace(
        parts[0],
        values=np.hstack([part.values for part in parts]),
        cases=pd.concat([part.cases for part in parts], ignore_index=True),
        seeds=min(part.seeds for part in parts),
        missing=join_texts(*dict.fromkeys(missing)),
        complete=np.concatenate([part.complete for part in parts]),
        facts={},
    )


def divide_pairs(pairs: Pairs, check: Mapping) -> Draws:
    """Resampled ratios left / right per comparison.

    Without `right` the left side itself (its mean relative to `relative_to`); with `best_of` the
    smallest right-hand side divides, chosen anew in every resample, and with `mean_of_right` the
    mean of all of them. ``by: difference`` subtracts the right side instead, ``by: dispersion`` is
    the standard deviation of the left side over its mean; `times` multiplies the
    left side by an expression in the columns of its cells, such as ``1 / k``.
    """
    keys = pairs.keys
    complete = pairs.complete
    facts = _facts(pairs, check)
    means = resampled_means(pairs.matrix)
    average = check.get("average", "ratio_of_means")
    left = average_sides(means, pairs.left, pairs.scale, average)
    right = average_sides(means, pairs.right, pairs.scale, average)
    if "times" in check:
        factors = numeric(pairs.matrix.cells, check["times"]).eval(check["times"])
        factors = np.broadcast_to(np.asarray(factors, dtype=float), len(pairs.matrix.cells))
        left = left * [factors[columns].mean() for columns in pairs.left]
    name = "Ratio" if {"right", "relative_to", "times"} & set(check) else "Value"
    if "right" not in check:
        right = np.ones_like(left)
    if "best_of" in check or check.get("mean_of_right"):
        joined = np.min if "best_of" in check else np.mean
        groups = list(keys.groupby([*check["over"], "left"], sort=False).indices.values())
        if "best_of" not in check:
            groups = [members for members in groups if len(members) == len(check["right"])]
        if not groups:
            raise MissingRows("no comparison has all of its right sides stored")
        firsts = [members[0] for members in groups]
        right = np.column_stack([joined(right[:, members], axis=1) for members in groups])
        left = left[:, firsts]
        complete = complete[firsts]
        facts = facts.iloc[firsts].reset_index(drop=True)
        keys = keys.iloc[firsts].assign(right=f"{joined.__name__} of all").reset_index(drop=True)
    values = left / right
    if check.get("by") == "difference":
        name = "Difference"
        values = left - right
    if check.get("by") == "dispersion":
        name = "Deviation over mean"
        squares = resampled_means(replace(pairs.matrix, values=pairs.matrix.values**2))
        variance = average_sides(squares, pairs.left, pairs.scale, average) - left**2
        factor = pairs.seeds / max(pairs.seeds - 1, 1)
        values = np.sqrt(np.maximum(variance, 0) * factor) / np.abs(left)
    if "share_of_runs" in check:
        name = "Share of runs"
    return Draws(values, keys, pairs.seeds, pairs.missing, name, complete, facts)


def _facts(pairs: Pairs, check: Mapping) -> pd.DataFrame:
    """Columns of the left sides that a check adds, and what is behind their shares of runs."""
    names = [*check.get("columns", ())]
    names += ["mean_of_runs", "largest_of_runs"] if "share_of_runs" in check else []
    firsts = [columns[0] for columns in pairs.left]
    return pairs.matrix.cells.iloc[firsts].reset_index(drop=True)[names]


def numeric(cells: pd.DataFrame, expression: str | None = None) -> pd.DataFrame:
    """Cells with numbers in columns that mix types, so that expressions can use them.

    With an expression they have the columns that it names alone.
    """
    if expression is not None:
        words = set(re.findall(r"\w+", expression))
        cells = cells[[name for name in cells if name in words]]
    mixed = cells.select_dtypes(["object", "str"])
    numbers = mixed.apply(pd.to_numeric, errors="coerce")
    return cells.assign(**{name: numbers[name] for name in numbers if numbers[name].notna().any()})


def average_sides(
    means: np.ndarray, side: list[list[int]], scale: list[list[int]], average: str
) -> np.ndarray:
    """Averages over data sets, one column per comparison, relative to the columns of `scale`.

    Parameters
    ----------
    means : ndarray of shape (n_lines, n_cells)
    side, scale : list of list of int
        Columns, data set by data set.
    average : str
        ``"ratio_of_means"``, ``"mean_of_ratios"`` (every data set weighs the same, whatever its
        height) or ``"difference"``: the mean less that of `scale`.
    """
    if average == "difference":
        pairs = zip(side, scale, strict=True)
        return np.column_stack([(means[:, a] - means[:, b]).mean(axis=1) for a, b in pairs])
    averages = [
        (means[:, columns] * weights(means[:, denominators], average)).mean(axis=1)
        for columns, denominators in zip(side, scale, strict=True)
    ]
    return np.column_stack(averages)


def weights(denominators: np.ndarray, average: str) -> np.ndarray | float:
    """Factors of the values on each data set, before their mean over data sets is taken."""
    if average not in ("ratio_of_means", "mean_of_ratios"):
        known = "'ratio_of_means', 'mean_of_ratios'"
        raise ValueError(f"average={average!r} is unknown; known: {known}")
    if not denominators.shape[-1]:
        return 1.0
    if average == "mean_of_ratios":
        return 1 / denominators
    return 1 / denominators.mean(axis=-1, keepdims=True)
