"""Exact checks: rules that every row keeps, sizes of data sets, reported numbers."""

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
from scipy import stats

from pkm.analysis.claims import reported
from pkm.analysis.claims.comparisons import numeric, with_columns
from pkm.analysis.claims.findings import (
    FAILS,
    HOLDS,
    INCONCLUSIVE,
    LEVEL,
    NOT_RUN,
    Agreement,
    Context,
    Finding,
    MissingRows,
    check_type,
    describe_absent,
    join_texts,
    join_words,
    percent,
    weaken,
)
from pkm.analysis.tables.accounting import (
    composed_delta,
    noise_multiplier,
    replacement_epsilon,
)
from pkm.analysis.tables.charges import read_charges
from pkm.analysis.tables.study import Study, matches

#: What rules may call, with ``@`` before the name.
_FUNCTIONS = {"clip": np.clip, "noise_multiplier": np.vectorize(noise_multiplier)}
_NO_CHARGES = "no stored row has such charges"


def _select(table: pd.DataFrame, check: Mapping) -> pd.DataFrame:
    """Rows or cells of the `method` and the `sweeps` that a check names."""
    keys = {"method": "method", "sweep": "sweeps"}
    selector = {column: check[key] for column, key in keys.items() if key in check}
    return table[matches(table, selector)]


def _restrict(table: pd.DataFrame, check: Mapping) -> pd.DataFrame:
    """The lines that the rule of a check is about."""
    if not len(table) or "where" not in check:
        return table
    return table[table.eval(check["where"])]


@check_type("metrics", "rule", "where", "method", "sweeps", "expected", "printed")
def rows(study: Study, check: Mapping, context: Context) -> Agreement:
    """Check a rule on every stored row that has all of the `metrics`.

    `rule` and `where` (which rows it is about) are expressions in the columns of the
    rows. `expected` lists the values of columns that the claim is about. A number that
    the paper itself prints is a case, too: `printed` names its cells, which are judged
    by the same rule.
    """
    metric, *_ = check["metrics"]
    rule = check["rule"]
    stored = numeric(_select(study.rows_with(check["metrics"]), check))
    table = _restrict(stored, check)
    cases = table
    if "printed" in check:
        printed = pd.DataFrame(context.reported[check["printed"]]["cells"])
        numbers = [reported.number(text)[0] for text in printed[metric]]
        facts = {"sweep": "printed", "method": check["method"], metric: numbers}
        cases = pd.concat([table, printed[["dataset"]].assign(**facts)])
    if not len(cases):
        sweeps = check.get("sweeps", study.sweeps)
        without = f"none of {len(stored)} stored rows has {check.get('where')}"
        raise MissingRows(without if len(stored) else context.explain_missing(sweeps))

    cases = cases.assign(agrees=cases.eval(rule))
    groups = cases.groupby(["sweep", "method", "dataset"])
    agrees = groups["agrees"].agg("any" if check.get("quantifier") == "some" else "all")
    extremes = groups[metric].agg(smallest="min", largest="max", rows="size")
    text = f"required: {rule}."
    if len(table):
        ends = f"from {table[metric].min():.4g} to {table[metric].max():.4g}"
        text = f"{metric} {ends} in {len(table)} of {len(stored)} rows, {text}"
    absent = [
        describe_absent(context.resolve(values), table[name], f"{name} ")
        for name, values in check.get("expected", {}).items()
    ]
    gaps = context.absent_cells(check.get("method"), check.get("sweeps"))
    evidence = extremes.assign(agrees=agrees).reset_index()
    return Agreement(evidence, text, join_texts(*absent, gaps))


_LEDGER = ("method", "where", "labels", "rule", "columns", "defaults")


@check_type(*_LEDGER)
def charges(study: Study, check: Mapping, context: Context) -> Agreement:
    """Check a rule on every stored charge whose label begins with one of `labels`.

    Rules are expressions in the columns of the charge and of its cell; where both have
    a column, that of the charge ends in ``_charged``. `defaults` are parameters that a
    cell need not name, `columns` further columns of the cells, see
    `pkm.analysis.claims.comparisons`.
    """
    cells, charged = _read_charged(study, check)
    table = charged.join(cells, suffixes=("_charged", ""))
    return _judge(table, ["round"], check, context)


@check_type(*_LEDGER, "at", "sweeps", "report_ranges")
def ledger(study: Study, check: Mapping, context: Context) -> Agreement:
    """Check a rule on every stored cell and the total cost of its charges.

    See `charges`. Further columns are `releases` (number of charges), `pure` (sum of
    their pure epsilons) and `delta_at`: the composed delta of the Gaussian charges at
    the epsilon `at`, an expression, plus the deltas charged directly.
    `report_ranges` maps names to further expressions whose ranges the finding states.
    They can use `epsilon_replaced`, the epsilon of the same releases at the same delta
    if a record is replaced. Cells without charges are missing.
    """
    cells, charged = _read_charged(study, check)
    by_cell = [charged[charged.index == index] for index in cells.index]
    table = cells.assign(
        releases=list(map(len, by_cell)),
        pure=[group["epsilon"].sum() for group in by_cell],
    )
    if "at" in check:
        epsilons = numeric(cells, check["at"]).eval(check["at"])
        table["delta_at"] = list(map(composed_delta, by_cell, epsilons))
    if "report_ranges" not in check:
        return _judge(table, [], check, context)
    records = [group.to_dict("records") for group in by_cell]
    table["epsilon_replaced"] = list(map(replacement_epsilon, records, cells["delta"]))
    judged = _judge(table, ["epsilon_replaced"], check, context)
    texts = []
    for name, expression in check["report_ranges"].items():
        values = table.eval(expression).dropna()
        if len(values):
            texts.append(f"{name}: {values.min():.4g} to {values.max():.4g}.")
    n_without = len(_select(study.cells.drop_duplicates("cell"), check)) - len(cells)
    uncharged = f"charges of {n_without} cells" if n_without else ""
    missing = join_texts(judged.missing, uncharged)
    return replace(judged, text=join_words(judged.text, *texts), missing=missing)


def _read_charged(study: Study, check: Mapping) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Cells of a check with all parameters that it names, and their charges."""
    cells = _select(study.cells.drop_duplicates("cell"), check)
    for name, default in check.get("defaults", {}).items():
        values = cells.get(name, pd.Series(None, cells.index, dtype=object))
        cells = cells.assign(**{name: values.where(values.notna(), default)})
    cells = with_columns(cells, check.get("columns", {}))
    charged = read_charges(cells)
    if not len(charged):
        raise MissingRows(_NO_CHARGES)
    labels = tuple(check.get("labels", [""]))
    is_meant = charged["label"].str.startswith(labels)
    return cells.loc[charged.index.unique()], charged[is_meant]


def _judge(
    table: pd.DataFrame, facts: list[str], check: Mapping, context: Context
) -> Agreement:
    """Judge every line of a table by the rule of a check."""
    rule = check["rule"]
    table = _restrict(numeric(table), check)
    if not len(table):
        raise MissingRows(_NO_CHARGES)
    identity = ["sweep", "method", "dataset", "n", "d", "k", "epsilon", *facts]
    used = [name for name in table if re.search(rf"\b{name}\b", rule)]
    evidence = table[list(dict.fromkeys([*identity, *used]))].assign(
        agrees=table.eval(rule, local_dict=_FUNCTIONS)
    )
    missing = context.absent_cells(table["method"].unique())
    return Agreement(evidence.reset_index(drop=True), f"Required: {rule}.", missing)


@check_type("sweep", "expected")
def sizes(study: Study, check: Mapping, context: Context) -> Agreement:
    """Compare N, d and, if given, k of the stored data sets with `expected`.

    `sweep` restricts the comparison to one sweep, where others run the data sets with
    another k.
    """
    cells = study.cells
    if "sweep" in check:
        cells = cells[cells["sweep"] == check["sweep"]]
    cells = cells.drop_duplicates("dataset").set_index("dataset")
    stored = cells[["n", "d", "k"]].to_numpy(int).tolist()
    sizes_of = dict(zip(cells.index, stored, strict=True))
    lines = [
        {
            "dataset": name,
            "reported": f"{tuple(expected)}",
            "stored": f"{tuple(sizes_of[name])}",
            "agrees": sizes_of[name][: len(expected)] == expected,
        }
        for name, expected in check["expected"].items()
        if name in sizes_of
    ]
    missing = describe_absent(check["expected"], sizes_of)
    return Agreement(pd.DataFrame(lines), missing or "Compared: N, d, k.", missing)


@check_type("numbers", "sweeps", "method", "over")
def reported_values(study: Study, check: Mapping, context: Context) -> Finding:
    """Check that every reported number that can be compared is reproduced.

    That is, within sampling error. Holds if all are; fails if more lie outside than the
    standard errors allow by chance (binomial test at the level of all claims); else
    inconclusive. With `at_least` the claim is that such a share of them is, which
    decides it. `sweeps` replaces those of the numbers; `method` and the data sets
    `over` say which of them the claim is about.
    """
    entry = context.reported[check["numbers"]]
    if "sweeps" in check:
        entry = entry | {"sweeps": check["sweeps"]}
    table = reported.compare(study, entry)
    if "method" in check:
        table = table[table["method"] == check["method"]]
    if "over" in check:
        table = table[table["dataset"].isin(context.resolve(check["over"]))]
    counts = table["verdict"].value_counts()
    others = counts.drop(list(reported.JUDGED), errors="ignore")
    texts = {name: f"{count} numbers {name}" for name, count in others.items()}
    others_text = "; ".join(texts.values())
    within, better, worse = counts.reindex(reported.JUDGED, fill_value=0)
    n_judged = within + better + worse
    if not n_judged:
        none = f"none of {len(table)} reported numbers can be judged"
        raise MissingRows(f"{none}: {others_text}")

    # Two-sided chance beyond these errors; half a reported digit of slack makes it
    # smaller.
    n_outside = better + worse
    errors = entry.get("standard_errors", reported.STANDARD_ERRORS)
    p_value = stats.binom.sf(n_outside - 1, n_judged, 2 * stats.norm.sf(errors))
    verdict = HOLDS if not n_outside else FAILS if p_value <= LEVEL else INCONCLUSIVE
    if "at_least" in check:
        verdict = HOLDS if within / n_judged >= check["at_least"] else FAILS

    # Numbers that speak against the claim come first.
    judged = table[table["verdict"].isin(reported.JUDGED)]
    order = judged["verdict"].map(reported.JUDGED[::-1].index)
    judged = judged.loc[order.sort_values(kind="stable").index]
    n_near = sum(reported.near(line) for line in judged.to_dict("records"))
    numbers = (
        f"Of {n_judged} reported numbers that can be compared {within} are within "
        f"sampling error, {better} measured ones are better and {worse} worse; "
        f"{n_near} lie within {percent(reported.NEAR_SHARE)} of the reported mean. "
        f"{others_text}"
    )
    # More runs would supply these; what cannot be compared is no part of the claim.
    more_runs = (reported.NOT_STORED, reported.FEW_SEEDS)
    missing = join_texts(*(texts.get(name, "") for name in more_runs))
    # A part of the numbers can refute a share of all as little as show it.
    verdict = weaken(verdict, missing, refuted="at_least" not in check)
    seeds = int(judged["seeds"].min())
    evidence = judged[reported.EVIDENCE].reset_index(drop=True)
    return Finding(verdict, numbers, int(n_judged), seeds, missing, evidence)


@check_type("verdict", "test")
def proved_by(study: Study, check: Mapping, context: Context) -> Finding:
    """Give the verdict of a claim that no row bears on: a test proves or refutes it."""
    verdict = check["verdict"]
    texts = {HOLDS: "Follows", FAILS: "Is refuted"}
    if verdict not in texts:
        raise ValueError(f"{verdict=} of a proved claim must be {HOLDS!r} or {FAILS!r}")
    text = f"{texts[verdict]} without stored rows: {check['test']} asserts it."
    return Finding(verdict, text, 1)


@check_type("reason")
def not_run(study: Study, check: Mapping, context: Context) -> Finding:
    """Give the recorded reason why a claim is not evaluated here."""
    return Finding(NOT_RUN, check["reason"])
