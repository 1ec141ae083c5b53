"""Exact checks: rules that every row keeps, sizes of data sets, reported numbers."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
from scipy import stats

from pkm.analysis.claims import reported
from pkm.analysis.claims.expressions import (
    evaluate_columns,
    named_columns,
    with_columns,
)
from pkm.analysis.claims.findings import (
    HOLDS,
    LEVEL,
    NOT_RUN,
    REFUTED,
    Context,
    Finding,
    MissingRows,
    agree,
    check_type,
    describe_missing,
    describe_slack,
    join_texts,
    percent,
    to_verdict,
    weaken,
)
from pkm.analysis.tables.accounting import (
    composed_delta,
    gaussian_epsilon,
)
from pkm.analysis.tables.charges import read_charges
from pkm.analysis.tables.study import Study, matches

_NO_CHARGES = "no stored row has such charges"
#: Says that rows lack columns that a rule names.
WITHOUT = "stored rows without some of the columns"


def _select(
    table: pd.DataFrame,
    check: Mapping,
    *columns: str,
) -> pd.DataFrame:
    """Select the rows or cells that have the values that a check names."""
    selector = {name: check[name] for name in columns if name in check}
    return table[matches(table, selector)]


def _restrict(
    table: pd.DataFrame,
    check: Mapping,
) -> pd.DataFrame:
    """Select the rows that the rule of a check is about."""
    if not len(table) or "where" not in check:
        return table
    return table[evaluate_columns(table, check["where"])]


@check_type("metric", "rule", "allowed", "where", "method", "sweep", "expected")
def rows(
    study: Study,
    check: Mapping,
    context: Context,
) -> Finding:
    """Check a rule on every stored row that has all metrics.

    `rule` and `where` (which rows it is about) are expressions in the columns of the
    rows. `allowed` takes the place of a rule: it bounds the first metric from above,
    and the finding states the slack. `expected` lists the values of columns that the
    claim is about.
    """
    metrics = check["metric"]
    metric = metrics[0]
    allowed = check.get("allowed")
    rule = f"{metric} <= {allowed}" if allowed else check["rule"]
    stored = _select(study.rows_with(metrics), check, "method", "sweep")
    table = _restrict(stored, check)
    if not len(table):
        sweeps = check.get("sweep", study.sweeps)
        without = f"none of {len(stored)} stored rows has {check.get('where')}"
        raise MissingRows(without if len(stored) else context.explain_missing(sweeps))

    quantifier = "any" if check.get("quantifier") == "some" else "all"
    evidence = (
        with_columns(table, {"agrees": rule})
        .groupby(["sweep", "method", "dataset"])
        .agg(
            smallest=(metric, "min"),
            largest=(metric, "max"),
            rows=(metric, "size"),
            agrees=("agrees", quantifier),
        )
        .reset_index()
    )
    ends = f"from {table[metric].min():.4g} to {table[metric].max():.4g}"
    text = f"{metric} {ends} in {len(table)} of {len(stored)} rows, required: {rule}."
    if allowed:
        slack = (evaluate_columns(table, allowed) / table[metric]).min()
        text = f"{text} {describe_slack(slack)}"
    missing = [
        describe_missing(values, table[name], f"{name} ")
        for name, values in check.get("expected", {}).items()
    ]
    unstored = context.describe_missing_cells(check.get("method"), check.get("sweep"))
    return agree(evidence, text, check, join_texts(*missing, unstored))


@check_type("numbers", "metric", "rule")
def printed(
    study: Study,
    check: Mapping,
    context: Context,
) -> Finding:
    """Check a rule on the numbers that the paper itself prints.

    `rule` is an expression in the columns of the printed cells. With `metric` it is one
    in the names of methods, and a case is a data set.
    """
    entry = context.reported[check["numbers"]]
    table = pd.DataFrame(reported.list_reported_cells(entry))
    if "metric" in check:
        table = table.pivot(
            index="dataset",
            columns="method",
            values=check["metric"],
        )
        table = table.reset_index()
    rule = check["rule"]
    used = named_columns(table, rule)
    texts = table[used].fillna("N/A").astype(str)
    means = texts.map(lambda text: reported.parse(text).mean)
    table = table.assign(**means).dropna(subset=used)
    evidence = with_columns(table[["dataset", *used]], {"agrees": rule})
    evidence = evidence.reset_index(drop=True)
    text = f"Printed numbers, required: {rule}."
    return agree(evidence, text, check, is_printed=True)


_LEDGER = ("method", "where", "labels", "rule", "columns", "defaults")


@check_type(*_LEDGER)
def charges(
    study: Study,
    check: Mapping,
    context: Context,
) -> Finding:
    """Check a rule on every stored charge whose label begins with one of `labels`.

    Rules are expressions in the columns of the charge and of its cell; where both have
    a column, that of the charge ends in ``_charged``, and stands in for a value that
    the cell lacks. `defaults` are values of parameters that a cell does not name or
    that are ``auto``, `columns` further columns of the cells, see
    `pkm.analysis.claims.comparisons`.
    """
    cells, charged = _read_charged(study, check)
    table = charged.join(cells, suffixes=("_charged", ""))
    for name in charged.columns.intersection(cells.columns):
        table[name] = table[name].fillna(table[f"{name}_charged"])
    return _judge_rows(table, ["round"], check, context)


@check_type(*_LEDGER, "at", "sweep", "replaced", "report_ranges")
def ledger(
    study: Study,
    check: Mapping,
    context: Context,
) -> Finding:
    """Check a rule on every stored cell and the total cost of its charges.

    See `charges`. Further columns are `releases` (number of charges), `pure` (sum of
    their pure epsilons) and `delta_at`: the composed delta of the Gaussian charges at
    the epsilon `at`, an expression, plus the deltas charged directly.
    With `replaced`, the rules of `replacement_costs`, there is `epsilon_replaced`, the
    epsilon of the same releases at the same delta if a record is replaced, and cells
    without charges are missing. `report_ranges` maps names to further expressions whose
    ranges the finding states.
    """
    cells, charged = _read_charged(study, check)
    by_cell = [charged[charged.index == index] for index in cells.index]
    table = cells.assign(
        releases=list(map(len, by_cell)),
        pure=[group["epsilon"].sum() for group in by_cell],
    )
    if "at" in check:
        epsilons = evaluate_columns(cells, check["at"])
        table["delta_at"] = list(map(composed_delta, by_cell, epsilons))
    if "replaced" not in check:
        return _judge_rows(table, [], check, context)

    costs = replacement_costs(charged, check["replaced"])
    rest = cells["delta"] - costs["delta"]
    table["epsilon_replaced"] = [
        gaussian_epsilon(square**0.5, delta) if square > 0 else np.nan
        for square, delta in zip(costs["square"], rest, strict=True)
    ]
    all_cells = _select(study.cells.drop_duplicates("cell"), check, "method", "sweep")
    n_without = len(all_cells) - len(cells)
    uncharged = f"charges of {n_without} cells" if n_without else ""
    judged = _judge_rows(
        table,
        ["epsilon_replaced"],
        check,
        context,
        uncharged,
    )
    texts = [judged.summary]
    for name, expression in check["report_ranges"].items():
        values = evaluate_columns(table, expression)
        values = values[~np.isnan(values)]
        if len(values):
            texts.append(f"{name}: {values.min():.4g} to {values.max():.4g}.")
    return replace(judged, summary=" ".join(texts))


def replacement_costs(
    charged: pd.DataFrame,
    rules: Mapping[str, Mapping[str, str]],
) -> pd.DataFrame:
    """Compute what runs cost if a record is replaced, not left out.

    Parameters
    ----------
    charged : DataFrame
        See `pkm.analysis.tables.charges.read_charges`.
    rules : mapping
        Label of charges to the expressions `square` and, where it differs, `delta`.

    Returns
    -------
    DataFrame
        Columns `square` and `delta` by run; NaN where a charge has no rule.
    """
    unknown = {"square": "nan"}
    parts = [
        with_columns(charges, rules.get(label, unknown))
        for label, charges in charged.groupby("label")
    ]
    costs = pd.concat(parts)[["square", "delta"]]
    return costs.groupby(level=0).sum(skipna=False)


def _read_charged(
    study: Study,
    check: Mapping,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read the cells of a check, with parameters that it names, and their charges."""
    cells = _select(study.cells.drop_duplicates("cell"), check, "method", "sweep")
    for name, default in check.get("defaults", {}).items():
        stored = cells.get(name, pd.Series("auto", cells.index)).fillna("auto")
        cells = cells.assign(**{name: stored.where(stored != "auto", default)})
    cells = with_columns(cells, check.get("columns", {}))

    charged = read_charges(cells)
    if not len(charged):
        raise MissingRows(_NO_CHARGES)
    cells = cells.loc[charged.index.unique()]
    labels = tuple(check.get("labels", [""]))
    is_meant = charged["label"].str.startswith(labels)
    return cells, charged[is_meant]


def _judge_rows(
    table: pd.DataFrame,
    columns: list[str],
    check: Mapping,
    context: Context,
    missing: str = "",
) -> Finding:
    """Judge every row of a table by the rule of a check.

    The evidence has the columns that say which cell it is, `columns` and those that the
    rule names. A row without one of these says nothing, and is missing.
    """
    rule = check["rule"]
    table = _restrict(table, check)
    if not len(table):
        raise MissingRows(_NO_CHARGES)
    used = named_columns(table, rule)
    known = table.dropna(subset=used)
    n_unknown = len(table) - len(known)
    unknown = f"{n_unknown} {WITHOUT} {', '.join(used)}" if n_unknown else ""
    if not len(known):
        raise MissingRows(unknown)
    identity = ["sweep", "method", "dataset", "n", "d", "k", "epsilon"]
    names = dict.fromkeys([*identity, *columns, *used])
    evidence = with_columns(known[list(names)], {"agrees": rule})
    evidence = evidence.reset_index(drop=True)
    unstored = context.describe_missing_cells(known["method"].unique())
    missing = join_texts(unknown, unstored, missing)
    return agree(evidence, f"Required: {rule}.", check, missing)


@check_type("sweep", "expected")
def sizes(
    study: Study,
    check: Mapping,
    context: Context,
) -> Finding:
    """Compare N, d and, if given, k of the stored data sets with `expected`.

    `sweep` restricts the comparison to one sweep, where others run the data sets with
    another k.
    """
    cells = _select(study.cells, check, "sweep")
    cells = cells.drop_duplicates("dataset").set_index("dataset")
    stored = cells[["n", "d", "k"]].astype(int).T.to_dict("list")
    rows = [
        {
            "dataset": name,
            "reported": f"{tuple(expected)}",
            "stored": f"{tuple(stored[name])}",
            "agrees": stored[name][: len(expected)] == expected,
        }
        for name, expected in check["expected"].items()
        if name in stored
    ]
    missing = describe_missing(check["expected"], stored)
    text = missing or "Compared: N, d, k."
    return agree(pd.DataFrame(rows), text, check, missing)


@check_type("numbers", "sweep", "method", "dataset")
def reported_values(
    study: Study,
    check: Mapping,
    context: Context,
) -> Finding:
    """Check that every reported number that can be compared is reproduced.

    That is, as well as chance allows. It holds if no more numbers lie outside their
    sampling error than a binomial test explains at the level of all claims, and if all
    lie within a tenth of the reported mean; if neither is so, it is not reproduced.
    `sweep` replaces those of the numbers; `method` and `dataset` say which of them the
    claim is about.
    """
    entry = context.reported[check["numbers"]]
    if "sweep" in check:
        entry = entry | {"sweep": check["sweep"]}
    table = reported.compare_reported(study, entry)
    table = _select(table, check, "method", "dataset")

    # What cannot be compared is no part of the claim; more runs would supply the rest.
    is_judged = table["verdict"].isin(reported.JUDGED)
    is_absent = table["verdict"].isin([NOT_RUN, reported.FEW_SEEDS])
    others = reported.counts_text(table.loc[~is_judged, "verdict"])
    absent = reported.counts_text(table.loc[is_absent, "verdict"])
    missing = f"{absent} of {len(table)} numbers" if absent else ""
    judged = table[is_judged]
    n_judged = len(judged)
    if not n_judged:
        none = f"none of {len(table)} reported numbers can be judged"
        raise MissingRows(f"{none}: {others}")
    counts = judged["verdict"].value_counts()
    within, better, worse = counts.reindex(reported.JUDGED, fill_value=0)
    n_near = sum(map(reported.is_near, judged.to_dict("records")))
    # Half a reported digit of slack makes the chance smaller than this two-sided one.
    errors = entry.get("standard_errors", reported.STANDARD_ERRORS)
    chance = 2 * stats.norm.sf(errors)
    n_outside = n_judged - within
    by_chance = stats.binom.sf(n_outside - 1, n_judged, chance) > LEVEL
    # Absent numbers support nothing; but were all of them met, fewer would be outside.
    may_be_chance = stats.binom.sf(n_outside - 1, n_judged + is_absent.sum(), chance)
    is_near = n_near == n_judged
    is_violated = may_be_chance <= LEVEL and not is_near
    verdict = weaken(to_verdict(is_violated, by_chance and is_near), missing)

    # Numbers that speak against the claim come first.
    order = reported.JUDGED[::-1].index
    judged = judged.sort_values(
        "verdict", key=lambda names: names.map(order), kind="stable"
    )
    summary = (
        f"Of {n_judged} reported numbers that can be compared {within} are within "
        f"sampling error, {better} measured ones are better and {worse} worse; "
        f"{n_near} lie within {percent(reported.NEAR_SHARE)} of the reported mean."
    )
    if others:
        summary = f"{summary} Further numbers: {others}."
    seeds = int(judged["seeds"].min())
    evidence = judged[reported.EVIDENCE].reset_index(drop=True)
    return Finding(
        verdict,
        summary,
        n_judged,
        seeds,
        missing,
        evidence,
    )


@check_type("verdict", "test")
def proved_by(
    study: Study,
    check: Mapping,
    context: Context,
) -> Finding:
    """Give the verdict of a claim that no row bears on: a test proves or refutes it."""
    verdict = check["verdict"]
    texts = {HOLDS: "Follows", REFUTED: "Is refuted"}
    if verdict not in texts:
        raise ValueError(
            f"{verdict=} of a proved claim must be {HOLDS!r} or {REFUTED!r}"
        )
    text = f"{texts[verdict]} without stored rows: {check['test']} asserts it."
    return Finding(verdict, text, 1)


@check_type("reason")
def not_run(
    study: Study,
    check: Mapping,
    context: Context,
) -> Finding:
    """Give the recorded reason why a claim is not evaluated here."""
    return Finding(NOT_RUN, check["reason"])
