"""Predicates on the means of compared cells: orderings, bounds, trends, extremes.

Each function returns numbers, which are compared with the bounds of the check on every
resample, or truth values.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from pkm.analysis.claims.comparisons import (
    REPORTED,
    SELECTION,
    count_values,
    find_comparisons,
    measure_ratios,
)
from pkm.analysis.claims.expressions import evaluate_columns
from pkm.analysis.claims.findings import (
    BootstrapValues,
    Context,
    Finding,
    MissingRows,
    check_type,
    decide,
    describe_case,
    describe_values,
    join_texts,
)
from pkm.analysis.tables.inference import estimate
from pkm.analysis.tables.study import Study
from pkm.schema import higher_is_better

#: Columns of cases that hold texts.
_SIDES = ("left", "right")
#: Keys of a statistic.
STATISTIC = ("statistic", "name", "per", "joined", "increasing", "undecided")

#: Keys of an ordering.
ORDER = ("strict", "margin", "higher_is_better")
#: By which share the left side may be worse where a claim has no margin of its own.
MARGIN = 0.05


@check_type(*SELECTION, *REPORTED)
def bound(
    study: Study,
    check: Mapping,
    context: Context,
) -> Finding:
    """Check the ratio left / right, or what `measure_ratios` takes instead."""
    return decide(measure_ratios(study, check, context), check)


@check_type(*SELECTION, *REPORTED, *STATISTIC)
def statistic(
    study: Study,
    check: Mapping,
    context: Context,
) -> Finding:
    """Check one number about all cases, or about those of each value of `per` columns.

    `statistic` is an expression in `value`, which is the ratio left / right (see
    `measure_ratios`), and in the columns of the cases, with the functions of
    `expressions`; `name` is what to call it. `loss` is the value of metrics that are
    better low, less that of others.

    `joined` is a second expression, evaluated once on the numbers of all groups: they
    are its `value`, beside their `per` columns and the smallest and largest value of
    every other column, such as ``smallest_k`` and ``largest_k``. `undecided` lists
    conditions (`when`) under which a number on the sample decides nothing, each with
    its reason (`text`); NaN decides nothing either. With `increasing` the number can
    only increase with more cases, so that one above its bound refutes the claim even
    where cases are missing.
    """
    bootstrap = measure_ratios(study, check, context)
    names = check.get("per", [])
    n_cases = _count_cases(check, names)
    if not check.get("joined"):
        return decide(_evaluate_groups(bootstrap, check, names, n_cases), check)
    groups = _evaluate_groups(bootstrap, check | {"undecided": []}, names, n_cases)

    # Add the ends of the other columns to the groups, and evaluate these together.
    unused = [name for name in _SIDES if name not in names]
    ends = bootstrap.cases.drop(columns=unused).groupby(names, sort=False)
    smallest = ends.min().add_prefix("smallest_")
    largest = ends.max().add_prefix("largest_")
    cases = groups.cases.join(smallest, on=names).join(largest, on=names)
    with_ends = replace(groups, cases=cases)
    check = check | {"statistic": check["joined"]}
    joined = _evaluate_groups(with_ends, check, [], None)
    text = f"of {', '.join(describe_values(groups))}"
    return decide(replace(joined, text=text), check)


def _evaluate_groups(
    bootstrap: BootstrapValues,
    check: Mapping,
    names: Sequence[str],
    n_cases: int | None,
) -> BootstrapValues:
    """Evaluate a statistic on the cases of each group."""
    cases = bootstrap.cases
    groups = cases.groupby(list(names), sort=False) if names else [((), cases)]
    limit = check.get("at_most", np.inf)
    missing = bootstrap.missing
    evaluated = []
    for group, members in groups:
        key = dict(zip(names, group, strict=True))
        values = bootstrap.values[:, members.index]
        try:
            column = _evaluate_statistic(check["statistic"], values, members)
            reason = _why_undecided(check, column[0], values[:1], members)
        except MissingRows as few:
            case = f"{describe_case(key)}: " if key else ""
            missing = join_texts(missing, f"{case}{few}")
            continue
        is_above = check.get("increasing") and column[0] > limit
        has_all = not bootstrap.missing if n_cases is None else len(members) == n_cases
        has_all &= bootstrap.complete[members.index].all()
        seeds = bootstrap.seeds[members.index].min()
        evaluated.append((column, key, seeds, is_above or has_all, reason))
    if not evaluated:
        raise MissingRows(missing)

    columns, keys, seeds, complete, reasons = zip(*evaluated, strict=True)
    values = np.column_stack(columns)
    joint = replace(
        bootstrap,
        values=values,
        cases=pd.DataFrame(keys),
        seeds=np.array(seeds),
        missing=missing,
        name=check["name"],
        complete=np.array(complete),
        extra_columns={},
        undecided=reasons,
    )
    is_truth = values.dtype == bool
    if names:
        counts = f"{joint.name} in {values[0].sum()} of {len(evaluated)}"
        return replace(joint, text=counts) if is_truth else joint

    # A single number has all cases as its evidence.
    low, high = estimate(bootstrap.values, bootstrap.seeds, log=True).interval()
    evidence = cases.assign(
        value=bootstrap.values[0],
        low=low,
        high=high,
        **bootstrap.extra_columns,
    )
    ranges = _describe_ranges(evidence if is_truth else cases)
    text = f"{joint.name}: {ranges}" if is_truth else ranges
    return replace(
        joint,
        cases=cases.iloc[:1],
        evidence=evidence,
        text=text,
    )


def _describe_ranges(cases: pd.DataFrame) -> str:
    """Write the range of every column that varies and holds numbers."""
    return ", ".join(
        f"{name} from {column.min():g} to {column.max():g}"
        for name, column in cases.select_dtypes("number").items()
        if column.nunique() > 1 and name not in ("low", "high")
    )


def _why_undecided(
    check: Mapping,
    number: float,
    values: np.ndarray,
    cases: pd.DataFrame,
) -> str:
    """Say why a number on the sample decides nothing; empty where it does."""
    for condition in check.get("undecided", ()):
        if np.all(_evaluate_statistic(condition["when"], values, cases)):
            return condition["text"]
    if np.isnan(number):
        return "Not defined on the sample, as a logarithm of what is not above zero."
    return ""


def _count_cases(
    check: Mapping,
    names: Sequence[str],
) -> int | None:
    """Count the cases of a group of a complete study; None if it cannot be told."""
    counts = count_values(check)
    inside = {*counts, *check["over"]}.difference(names)
    if names and inside <= set(counts):
        return math.prod(counts[name] for name in inside)
    if "expected" in check and set(names) <= set(counts):
        n_groups = math.prod(counts[name] for name in names)
        return check["expected"] * counts["metric"] // n_groups
    return None


def _evaluate_statistic(
    expression: str,
    values: np.ndarray,
    cases: pd.DataFrame,
) -> np.ndarray:
    """Evaluate an expression on values of shape (resamples, cases)."""
    metrics = cases.get("metric", pd.Series("", cases.index))
    sign = np.where(metrics.map(higher_is_better), -1, 1)
    return evaluate_columns(
        cases,
        expression,
        value=values,
        loss=sign * values,
    )


# Orderings


@check_type(*SELECTION, *ORDER)
def ordering(
    study: Study,
    check: Mapping,
    context: Context,
) -> Finding:
    """Check that left is no worse than right by more than the `margin`.

    The value is the ratio of the two means, of better over worse with
    `higher_is_better`. Where a mean is not above zero, as silhouettes are not, it is
    one plus the difference as a share of the larger mean in size. A `strict` claim has
    no margin and needs a value below one.
    """
    comparisons = find_comparisons(study, check, context)
    left, right = map(comparisons.resample, _SIDES)
    # Costs are compared by their ratio, and so are positive scores.
    sign = -1.0 if check.get("higher_is_better") else 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (left / right) ** sign
        larger = np.maximum(np.abs(left), np.abs(right))
        shifted = 1 + sign * (left - right) / larger
    is_positive = ((left > 0) & (right > 0)).all(axis=0)
    values = np.where(is_positive, ratio, shifted)
    values = np.where(left == right, 1.0, values)

    bounds = {"at_most": 1 + check.get("margin", MARGIN)}
    if check.get("strict"):
        bounds = {"below": 1.0}
    bootstrap = BootstrapValues(
        values,
        comparisons.keys,
        comparisons.shared_seeds,
        comparisons.missing,
        "Ratio",
        comparisons.complete,
        {"left_mean": left[0], "right_mean": right[0]},
    )
    return decide(bootstrap, check | bounds)
