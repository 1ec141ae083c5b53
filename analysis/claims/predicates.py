"""Predicates on the means of compared cells: bounds, trends, extremes.

Each function returns the values that the bounds of the check, or truth, decide on every resample.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from pkm.analysis.claims.comparisons import REPORTED, SELECTION, measure_ratios
from pkm.analysis.claims.expressions import LEAST, evaluated
from pkm.analysis.claims.findings import (
    INCONCLUSIVE,
    Context,
    Draws,
    Finding,
    MissingRows,
    as_list,
    check_type,
    describe_case,
    join_texts,
)
from pkm.analysis.tables.inference import paired_rank_correlation
from pkm.analysis.tables.statistics import percentile_interval, resampled_means
from pkm.analysis.tables.study import Study, matches
from pkm.schema import higher_is_better

#: Columns of cases that hold texts.
_SIDES = ("left", "right")
_TEXTS = ("dataset", "metric", *_SIDES)


def _groups(draws: Draws, names: Sequence[str]) -> list[tuple[dict, pd.DataFrame]]:
    """Split cases by the values of some columns; the values and the cases of each group."""
    if not names:
        return [({}, draws.cases)]
    grouped = draws.cases.groupby(list(names), sort=False)
    return [(dict(zip(names, group, strict=True)), members) for group, members in grouped]


@check_type(*SELECTION, *REPORTED)
def bound(study: Study, check: Mapping, context: Context) -> Draws:
    """Check the ratio left / right, or what `measure_ratios` takes instead, against bounds."""
    return measure_ratios(study, check, context)


#: Keys of a statistic.
STATISTIC = ("statistic", "name", "per", "joined", "paired", "grows", "undecided")


@check_type(*SELECTION, *REPORTED, *STATISTIC)
def statistic(study: Study, check: Mapping, context: Context) -> Draws:
    """Check one number about all cases together, or about those of each value of `per` columns.

    `statistic` is an expression in `value`, which is the ratio left / right (see
    `measure_ratios`), and in the columns of the cases, with the functions of `expressions`;
    `name` is what to call it. `loss` is the value of metrics that are better low, less that of
    others.
    ``at_largest(k)`` is the k of the case with the largest value, ``at_smallest(k)`` that of the
    smallest; ``n_best('metric')`` says how many of the other columns' values have the smallest loss
    for some metric, ``correlation_between('dataset', k > 2)`` is Spearman's between the values of
    two data sets, matched by the other columns. `joined` is a second
    expression, in the numbers of all groups as `value`, their `per` columns and the ends of the
    others: ``smallest_k`` and ``largest_k``. `undecided` lists conditions on the sample (`when`, an
    expression like `statistic` or, where that is given, `joined`) under which a number decides
    nothing, and their `text`; what is not a number on the sample decides nothing either. `paired`
    names a column of which the smallest and the largest value alone count, where the other columns
    have both. With `grows` the number can only grow with more cases, so that one above its bound
    refutes the claim on a part.
    """
    draws = measure_ratios(study, check, context)
    if "paired" in check:
        draws = _with_both_ends(draws, check["paired"])
    names = check.get("per", [])
    n_cases = _cases_of_group(check, context, names)
    if not check.get("joined"):
        return _of_groups(draws, check, names, n_cases)
    groups = _of_groups(draws, check | {"undecided": []}, names, n_cases)
    numbers = draws.cases.drop(columns=[name for name in _SIDES if name not in names])
    ends = numbers.groupby(list(names), sort=False).agg(["min", "max"])
    ends.columns = [f"{'smallest' if end == 'min' else 'largest'}_{name}" for name, end in ends]
    pairs = zip(groups.values[0], groups.cases.iterrows(), strict=True)
    listed = ", ".join(f"{value:.4g} ({describe_case(case)})" for value, (_, case) in pairs)
    groups = replace(groups, cases=groups.cases.merge(ends, on=list(names)))
    joined = _of_groups(groups, check | {"statistic": check["joined"]}, [], None)
    return replace(joined, text=f"of {listed}")


def _of_groups(draws: Draws, check: Mapping, names: Sequence[str], n_cases: int | None) -> Draws:
    """Evaluate a statistic on the cases of each group."""
    columns = []
    lines = []
    missing = draws.missing
    complete = []
    reasons = []
    for group, members in _groups(draws, names):
        values = draws.values[:, members.index]
        try:
            number_of_group = _evaluate(check["statistic"], values, members)
            reasons.append(_why_undecided(check, number_of_group[0], values[:1], members))
        except MissingRows as few:
            place = f"{describe_case(pd.Series(group))}: " if group else ""
            missing = join_texts(missing, f"{place}{few}")
            continue
        columns.append(number_of_group)
        lines.append(group)
        too_large = check.get("grows") and number_of_group[0] > check.get("at_most", np.inf)
        has_all = not draws.missing if n_cases is None else len(members) == n_cases
        complete.append(too_large or (has_all and draws.complete[members.index].all()))
    if not columns:
        raise MissingRows(missing)
    low, high = percentile_interval(draws.values)
    by_case = draws.cases.assign(value=draws.values[0], low=low, high=high, **draws.facts)
    is_truth = columns[0].dtype == bool
    text = "" if names else ", ".join(_extents(by_case if is_truth else draws.cases))
    if is_truth:
        n_true = sum(bool(truth[0]) for truth in columns)
        truth = f" in {n_true} of {len(columns)}" if names else f": {text}"
        text = f"{check['name']}{truth}"
    return replace(
        draws,
        values=np.column_stack(columns),
        cases=pd.DataFrame(lines) if names else draws.cases.iloc[:1],
        missing=missing,
        name=check["name"],
        complete=np.array(complete),
        facts={},
        evidence=None if names else by_case,
        text=text,
        undecided=" ".join(dict.fromkeys(filter(None, reasons))),
        decidable=np.array([not reason for reason in reasons]),
    )


def _extents(cases: pd.DataFrame) -> list[str]:
    """Write the range of every column that varies and holds numbers."""
    varying = cases.select_dtypes("number").drop(columns=["low", "high"], errors="ignore")
    return [
        f"{name} from {column.min():g} to {column.max():g}"
        for name, column in varying.items()
        if column.nunique() > 1
    ]


def _why_undecided(check: Mapping, number: float, values: np.ndarray, cases: pd.DataFrame) -> str:
    """Say why a number on the sample decides nothing; empty where it does."""
    for condition in check.get("undecided", ()):
        if np.all(_evaluate(condition["when"], values, cases)):
            return condition["text"]
    if np.isnan(number):
        return "Not defined on the sample, as a logarithm of what is not above zero."
    return ""


def _with_both_ends(draws: Draws, along: str) -> Draws:
    """Keep the cases at both ends of a column, where the other columns have both."""
    column = draws.cases[along]
    others = [name for name in draws.cases if name not in (along, "right")]
    at_ends = draws.cases[column.isin([column.min(), column.max()])]
    n_ends = at_ends.groupby(others)[along].transform("nunique")
    kept = n_ends.index[n_ends == 2]
    if not len(kept):
        raise MissingRows(f"no two cases differ in {along} alone and have its ends")
    cases = draws.cases.loc[kept].reset_index(drop=True)
    return replace(draws, values=draws.values[:, kept], cases=cases, complete=draws.complete[kept])


def _cases_of_group(check: Mapping, context: Context, names: Sequence[str]) -> int | None:
    """How many cases a group of a complete study has; None where the check does not say."""
    listed = {"metric": as_list(check["metric"])}
    listed |= {key: context.resolve(of) for key, of in check["over"].items() if of != "any"}
    n_values = {name: len(values) for name, values in listed.items()}
    inside = [name for name in ("metric", *check["over"]) if name not in names]
    if not names or not set(inside) <= set(n_values):
        if "expected" not in check or not set(names) <= set(n_values):
            return None
        n_groups = math.prod(n_values[name] for name in names)
        return check["expected"] * n_values["metric"] // n_groups
    n_cases = math.prod(n_values[name] for name in inside)
    return n_cases * len(check["left"]) * len(check.get("right", "1"))


def _evaluate(statistic: str, values: np.ndarray, cases: pd.DataFrame) -> np.ndarray:
    """Evaluate the expression of a `statistic` on every line of values (lines, cases)."""
    columns = {name: cases[name].to_numpy() for name in cases}
    columns |= {name: column.astype(str) for name, column in columns.items() if name in _TEXTS}
    signs = np.array([-1 if higher_is_better(name) else 1 for name in cases.get("metric", ())])
    loss = values * signs if signs.size else values

    of_cases = {
        "loss": loss,
        "at_largest": lambda column: column[values.argmax(axis=1)],
        "at_smallest": lambda column: column[values.argmin(axis=1)],
        "correlation_between": lambda *which: paired_rank_correlation(
            *(values[:, places] for places in _matched(cases, *which).T)
        ),
        "n_best": lambda name: _n_different(loss[:, _matched(cases, name)].argmin(axis=1)),
    }
    return evaluated(statistic, columns | of_cases | {"value": values})


def _matched(cases: pd.DataFrame, name: str, where: np.ndarray | None = None) -> np.ndarray:
    """Places of the cases of each value of a column (across), matched by numbers (down)."""
    placed = cases.assign(place=np.arange(len(cases)))
    index = list(cases.select_dtypes("number"))
    chosen = placed if where is None else placed[where]
    wide = chosen.pivot_table(index=index, columns=name, values="place").dropna()
    if wide.shape[0] < LEAST or wide.shape[1] < 2:
        raise MissingRows(f"two values of {name} with {LEAST} cases in common are not stored")
    return wide.to_numpy(dtype=int)


def _n_different(numbers: np.ndarray) -> np.ndarray:
    """How many different numbers each line has."""
    return 1.0 + np.count_nonzero(np.diff(np.sort(numbers, axis=1)), axis=1)


@check_type(*SELECTION, "along", "direction", "ends")
def trend(study: Study, check: Mapping, context: Context) -> Draws:
    """Check that the ratio left / right rises or falls along a key.

    Per group of the other keys: Spearman's correlation, signed by `direction`, against bounds, and
    with `ends` the last value beyond the first.
    """
    draws = measure_ratios(study, check, context)
    along = check["along"]
    sign = {"rising": 1, "falling": -1}[check["direction"]]
    statistic = f"{sign} * correlation({along}, value)"
    if check.get("ends"):
        first = f"mean(value, {along} == {along}.min())"
        last = f"mean(value, {along} == {along}.max())"
        statistic += f" * ({sign} * ({last} - {first}) > 0)"
    expected = check["over"][along]
    n_expected = None if expected == "any" else len(context.resolve(expected))
    groups = [name for name in draws.cases.columns if name not in (along, "right")]
    name = f"Rank correlation ({check['direction']} along {along})"
    found = _of_groups(draws, {"statistic": statistic, "name": name}, groups, n_expected)

    # What the ratios are at both ends.
    by_case = draws.cases.assign(value=draws.values[0]).sort_values(along)
    ends = by_case.groupby(groups)["value"].agg(["first", "last"]).reset_index()
    ends = found.cases.merge(ends, on=groups)
    text = f"mean ratio from {ends['first'].mean():.4g} at the first to "
    text += f"{ends['last'].mean():.4g} at the last"
    return replace(found, facts={name: ends[name] for name in ("first", "last")}, text=text)


@check_type("sweeps", "method", "dataset", "runs", "seconds")
def longer_than(study: Study, check: Mapping, context: Context) -> Draws | Finding:
    """Check that `runs` fits take more CPU seconds than `seconds`.

    Where a fit was stopped at a recorded time limit the claim is inconclusive.
    """
    selector = {"method": check["method"], "dataset": check["dataset"]}
    for sweep in check["sweeps"]:
        matrix = study.matrix(sweep, "fit_cpu_seconds")
        matrix = matrix.take(matches(matrix.cells, selector))
        if len(matrix.cells):
            total = check["runs"] * resampled_means(matrix)[:, :1]
            text = f"{check['runs']} fits take {total[0, 0]:.4g} s of CPU time (required: more "
            text += f"than {check['seconds']:g} s)"
            cases = matrix.cells[["sweep", "method", "dataset"]].iloc[:1]
            return Draws(total > check["seconds"], cases, len(matrix.seeds), text=text)
    stopped = context.missing[context.missing["sweep"].isin(check["sweeps"])]
    stopped = stopped[matches(stopped, selector)]
    stopped = stopped[stopped["reason"].str.contains("time limit|time_limit").astype(bool)]
    if not len(stopped):
        raise MissingRows(context.why(check["sweeps"]))
    text = "Stopped before the end, so only a lower bound is known: "
    return Finding(INCONCLUSIVE, text + stopped["reason"].iloc[0], 1)
