"""Expressions of YAML files in the columns of tables.

Those of rules, conditions and further columns have a value in every row. A statistic
says something of all compared means together: names are columns of the cases and
`value`, a number of every case as an array of shape (resamples, cases). Functions
reduce a number of every case to one:

* ``largest(value)``, `smallest`, `median`, `mean`: over two cases or more, or with a
  second argument over the cases for which a condition holds;
* ``slope(log(n), log(value))``: slope of the least-squares line through at least three
  cases, or as many as ``min_points=2`` says; ``rmse`` is the root mean square of its
  residuals;
* ``correlation(k, value)``: Spearman's, of three cases or more; 0 where all values are
  equal;
* ``first(epsilon, value < 2)``: the smallest epsilon at which something holds;
  ``holds_from(n, value < 2)``: the smallest n such that it holds there and at every
  larger n; both infinite if there is none, both of some cases by a third argument;
* ``stays_true(n, value < 2)``: whether it holds at some n and at every n after that;
* ``lowest(value, 0.2)``: a condition, true for the fifth of the cases with the smallest
  values, and for one at least; ``rank(value)`` is the share of cases with smaller ones;
* ``interior_gain(value, level, group)``: by how much the smallest mean at an inner
  level is below the means at the first and the last level, as a share of the largest
  mean; each group has the same weight, and only levels that all groups have
  (``n_levels(level, group)``) count.

Columns of lists are read by ``item(shares, 0)``; ``where(k > 2, value, nan)`` chooses.
"""

import re
from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype, is_object_dtype, is_string_dtype
from scipy import special, stats

from pkm.analysis.claims.findings import MissingRows
from pkm.analysis.tables.accounting import noise_multiplier
from pkm.analysis.tables.inference import keep_finite
from pkm.names import suggestion

Mask = np.ndarray | None
#: Fewest values that show a slope or a trend.
MIN_POINTS = 3


def evaluate_expression(
    statistic: str,
    values: Mapping[str, object],
) -> np.ndarray:
    """Evaluate an expression of a claims file.

    It is code of this project, not input of a user.

    Parameters
    ----------
    statistic : str
    values : mapping
        What its names stand for, besides `FUNCTIONS`.

    Raises
    ------
    MissingRows
        If cases that it needs are not stored.
    ValueError
        If it has an unknown name.

    Examples
    --------
    >>> values = {"value": np.array([[1.0, 4.0]]), "k": np.array([2, 3])}
    >>> evaluate_expression("largest(value) / mean(value, k == 2)", values)
    array([4.])
    >>> difference = "mean(k, lowest(value, 0.5)) - mean(k, lowest(-value, 0.5))"
    >>> evaluate_expression(difference, values)
    array([-1.])
    """
    known = FUNCTIONS | dict(values)
    try:
        with np.errstate(divide="ignore", invalid="ignore"):
            return eval(statistic, {"__builtins__": {}}, known)
    except NameError as error:
        advice = suggestion(str(error.name), known)
        raise ValueError(
            f"expression {statistic!r}: {error.name!r} is unknown{advice}"
        ) from None


def evaluate_columns(
    table: pd.DataFrame,
    expression: str,
    **others: np.ndarray,
) -> np.ndarray:
    """Evaluate an expression in columns of a table, numbers where they have some.

    Examples
    --------
    >>> table = pd.DataFrame({"k": [2, "auto"], "dataset": ["iris", "s1"]})
    >>> evaluate_columns(table, "(k < 3) | starts_with(dataset, 's')")
    array([ True,  True])
    """
    used = named_columns(table, expression)
    columns = {name: _read_column(table[name]) for name in used}
    return evaluate_expression(expression, columns | others)


def named_columns(
    table: pd.DataFrame,
    expression: str,
) -> list[str]:
    """List the columns of a table that an expression names."""
    words = re.findall(r"\w+", expression)
    return [name for name in table if name in words]


def _read_column(column: pd.Series) -> np.ndarray:
    """Return the numbers of a column, or its texts where it has no number."""
    if is_numeric_dtype(column):
        return column.to_numpy()
    if is_string_dtype(column) or is_object_dtype(column):
        numbers = pd.to_numeric(column, errors="coerce")
        if numbers.notna().any():
            return numbers.to_numpy()
    return column.to_numpy(str)


def with_columns(
    table: pd.DataFrame,
    columns: Mapping[str, str],
) -> pd.DataFrame:
    """Add columns to a table, each an expression in those before it."""
    for name, expression in columns.items():
        table = table.assign(**{name: evaluate_columns(table, expression)})
    return table


def _first(
    column: np.ndarray,
    holds: np.ndarray,
    mask: Mask = None,
) -> np.ndarray:
    """Find the smallest value of a column at which something holds, else infinity."""
    selected = holds & _as_mask(holds, mask)
    values = np.where(selected, column.astype(float), np.inf)
    return values.min(axis=1)


def _holds_from(
    column: np.ndarray,
    holds: np.ndarray,
    mask: Mask = None,
) -> np.ndarray:
    """Find the smallest value from which on something always holds, else infinity."""
    selected = _as_mask(holds, mask)
    violations = np.where(~holds & selected, column.astype(float), -np.inf)
    last_violation = violations.max(axis=1, keepdims=True)
    return _first(column, column > last_violation, selected)


def _stays_true(
    column: np.ndarray,
    holds: np.ndarray,
) -> np.ndarray:
    """Tell whether something holds at some value, and at every value after that."""
    holds_from = _holds_from(column, holds)
    is_first = holds_from == _first(column, holds)
    return is_first & (holds_from < np.inf)


def _as_mask(
    holds: np.ndarray,
    mask: Mask,
) -> np.ndarray:
    """Return a mask of the cases, by default of all; refuse one of no case."""
    if mask is None:
        mask = np.ones(holds.shape[1], dtype=bool)
    if not mask.any():
        raise MissingRows("none of the cases is stored in which something is first")
    return mask


def _correlation(
    x: np.ndarray,
    values: np.ndarray,
) -> np.ndarray:
    """Compute Spearman's correlation with x; 0 where all values are equal."""
    _require(len(x), MIN_POINTS, "values", "that a trend needs")
    with np.errstate(invalid="ignore"):
        ranks = stats.rankdata(values, axis=1)
        correlation = np.corrcoef(stats.rankdata(x), ranks)
    return np.nan_to_num(correlation[0, 1:])


def _require(
    count: int,
    min_points: int,
    what: str,
    why: str,
) -> None:
    if count < min_points:
        raise MissingRows(f"only {count} of {min_points} {what} are stored {why}")


def _fit_line(
    x: np.ndarray,
    values: np.ndarray,
    min_points: int = MIN_POINTS,
) -> tuple[np.ndarray, np.ndarray]:
    """Fit a least-squares line to the cases: slope, and RMSE of the residuals."""
    _require(len(np.unique(x)), min_points, "values", "that a slope needs")
    values = keep_finite(values)
    x = x - x.mean()
    values = values - values.mean(axis=1, keepdims=True)
    slope = values @ x / (x @ x)
    residuals = values - np.outer(slope, x)
    mean_square = (residuals**2).mean(axis=1)
    return slope, np.sqrt(mean_square)


def item(
    column: np.ndarray,
    place: int,
) -> np.ndarray:
    """Return an item of lists of numbers, written as text; NaN where there is none."""
    texts = pd.Series(column.astype(str))
    items = texts.str.strip("[]").str.split(",").str[place]
    numbers = pd.to_numeric(items, errors="coerce")
    return numbers.to_numpy(dtype=float)


def _rank(values: np.ndarray) -> np.ndarray:
    """Compute the share of the cases with values before that of each one."""
    ranks = stats.rankdata(values, "ordinal", axis=1)
    return (ranks - 1) / values.shape[1]


def _lowest(
    values: np.ndarray,
    share: float,
) -> np.ndarray:
    """Return a mask of a share of the cases with the smallest values, one at least."""
    n_cases = values.shape[1]
    n_lowest = max(round(share * n_cases), 1)
    return _rank(values) * n_cases < n_lowest - 0.5


def _levels(
    level: np.ndarray,
    group: np.ndarray,
) -> list[float]:
    """List the levels that every group has, in their order."""
    counts = pd.Series(group).groupby(level).nunique()
    n_groups = len(np.unique(group))
    return list(counts.index[counts == n_groups])


def _interior_gain(
    values: np.ndarray,
    level: np.ndarray,
    group: np.ndarray,
) -> np.ndarray:
    """Measure how far the best inner level is below the outer ones; see the module."""
    levels = _levels(level, group)
    _require(len(levels), MIN_POINTS, "levels", "in every group")
    by_group = pd.DataFrame(values.T).groupby([level, group])
    by_level = by_group.mean().groupby(level=0)
    means = by_level.mean().loc[levels].to_numpy()
    first, *inner, last = means
    best_outer = np.minimum(first, last)
    best_inner = np.min(inner, axis=0)
    largest = np.abs(means).max(axis=0)
    return (best_outer - best_inner) / largest


def _mean(
    values: np.ndarray,
    mask: Mask = None,
) -> np.ndarray:
    # Which cases are meant may differ between resamples.
    if np.ndim(mask) > 1:
        total = np.where(mask, values, 0.0).sum(axis=1)
        return total / mask.sum(axis=1)
    return _reduced(np.mean)(values, mask)


def _reduced(reduce: Callable) -> Callable:
    def function(
        values: np.ndarray,
        mask: Mask = None,
    ) -> np.ndarray:
        if mask is None and values.shape[1] < 2:
            raise MissingRows("only one case is stored")
        selected = values if mask is None else values[:, mask]
        if not selected.shape[1]:
            raise MissingRows("a case is not stored that the statistic needs")
        return reduce(selected, axis=1)

    return function


#: What expressions take from numpy.
NUMPY = (
    "abs",
    "ceil",
    "clip",
    "exp",
    "floor",
    "inf",
    "maximum",
    "nan",
    "round",
    "sqrt",
    "where",
)
#: What expressions may call.
FUNCTIONS = {
    **{name: getattr(np, name) for name in NUMPY},
    "largest": _reduced(np.max),
    "smallest": _reduced(np.min),
    "median": _reduced(np.median),
    "mean": _mean,
    "log": lambda values: np.log(np.where(values > 0, values, np.nan)),
    "normal_quantile": special.ndtri,
    "logistic": special.expit,
    "starts_with": np.char.startswith,
    "ends_with": np.char.endswith,
    "noise_multiplier": np.vectorize(noise_multiplier),
    "item": item,
    "rank": _rank,
    "lowest": _lowest,
    "interior_gain": _interior_gain,
    "n_levels": lambda level, group: len(_levels(level, group)),
    "first": _first,
    "holds_from": _holds_from,
    "stays_true": _stays_true,
    "correlation": _correlation,
    "slope": lambda *values, **options: _fit_line(*values, **options)[0],
    "rmse": lambda *values, **options: _fit_line(*values, **options)[1],
}
