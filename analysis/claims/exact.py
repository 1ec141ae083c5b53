"""Checks without sampling error: rules that every row keeps, counts, sizes, reported numbers."""

import re
from collections.abc import Iterable, Mapping
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
from pkm.analysis.tables.accounting import composed_delta, noise_multiplier, replacement_epsilon
from pkm.analysis.tables.charges import read_charges
from pkm.analysis.tables.study import Study, matches

#: What rules may call, with ``@`` before the name.
_FUNCTIONS = {"clip": np.clip, "noise_multiplier": np.vectorize(noise_multiplier)}
_NO_CHARGES = "no stored row has such charges"


def _selected(table: pd.DataFrame, check: Mapping) -> pd.DataFrame:
    """Rows or cells of the `method` and the `sweeps` of a check, where it names some."""
    keys = {"method": "method", "sweep": "sweeps"}
    selector = {column: check[key] for column, key in keys.items() if key in check}
    return table[matches(table, selector)]


@check_type("metrics", "rule", "where", "method", "sweeps", "expected", "printed")
def rows(study: Study, check: Mapping, context: Context) -> Agreement:
    """Check a rule on every stored row that has all of the `metrics`.

    `rule` and `where` (which rows it is about) are expressions in the columns of the rows.
    `expected` lists the values of columns that the claim is about. A number that the paper itself
    prints is a case, too: `printed` names its cells, which are judged by the same rule.
    """
    metric, *_ = check["metrics"]
    table = numeric(_selected(study.rows_with(check["metrics"]), check))
    considered = len(table)
    if considered and "where" in check:
        table = table[table.eval(check["where"])]
    printed = context.reported[check["printed"]]["cells"] if "printed" in check else []
    if not len(table) and not printed:
        none = f"none of {considered} stored rows has {check.get('where')}"
        raise MissingRows(none if considered else context.why(check.get("sweeps", study.sweeps)))

    evidence = [_printed(printed, check)] if printed else []
    text = f"required: {check['rule']}."
    if len(table):
        grouped = table.assign(agrees=table.eval(check["rule"]))
        grouped = grouped.groupby(["sweep", "method", "dataset"])
        exists = check.get("quantifier") == "some"
        agrees = grouped["agrees"].any() if exists else grouped["agrees"].all()
        extremes = grouped[metric].agg(smallest="min", largest="max", rows="size")
        evidence.insert(0, extremes.assign(agrees=agrees).reset_index())
        text = f"{metric} from {table[metric].min():.4g} to {table[metric].max():.4g} in "
        text += f"{len(table)} of {considered} rows, required: {check['rule']}."
    absent = []
    for name, values in check.get("expected", {}).items():
        without = [value for value in context.resolve(values) if value not in set(table[name])]
        absent += [f"no stored rows of {name} {', '.join(map(str, without))}"] if without else []
    missing = join_texts(*absent, context.absent_cells(check.get("method"), check.get("sweeps")))
    return Agreement(pd.concat(evidence, ignore_index=True), text, missing)


def _printed(cells: Iterable[Mapping], check: Mapping) -> pd.DataFrame:
    """Judge the numbers that the paper prints for the first metric, one line each."""
    metric, *_ = check["metrics"]
    numbers = {cell["dataset"]: cell[metric] for cell in cells if metric in cell}
    values = pd.Series(numbers, name=metric).map(lambda text: reported.number(text)[0])
    agrees = values.to_frame().eval(check["rule"])
    printed = pd.DataFrame({"dataset": values.index, "smallest": values.values})
    return printed.assign(sweep="printed", largest=printed["smallest"], agrees=agrees.to_numpy())


_LEDGER = ("method", "where", "labels", "rule", "columns", "defaults")


@check_type(*_LEDGER)
def charges(study: Study, check: Mapping, context: Context) -> Agreement:
    """Check a rule on every stored charge whose label begins with one of `labels`.

    Rules are expressions in the columns of the charge and of its cell; where both have a column,
    that of the charge ends in ``_charged``. `defaults` are parameters that a cell need not name,
    `columns` further columns of the cells, see `pkm.analysis.claims.comparisons`.
    """
    cells, charged = _charged(study, check)
    table = charged.join(cells, suffixes=("_charged", ""))
    return _judge(table, ["round"], check, context)


@check_type(*_LEDGER, "at", "sweeps", "states")
def ledger(study: Study, check: Mapping, context: Context) -> Agreement:
    """Check a rule on every stored cell and what its charges cost together; see `charges`.

    Further columns are `releases` (number of charges), `pure` (sum of their pure epsilons) and
    `delta_at` (that of the Gaussian ones at the epsilon `at`, an expression, and the deltas that
    are charged with them). `states` are further expressions by their names, whose ranges the
    finding says; for them there is `epsilon_replaced`, what the same releases need at the same
    delta where a record is replaced. Cells without charges are missing.
    """
    cells, charged = _charged(study, check)
    by_cell = [charged[charged.index == index] for index in cells.index]
    table = cells.assign(
        releases=[len(group) for group in by_cell],
        pure=[group["epsilon"].sum() for group in by_cell],
    )
    if "at" in check:
        pairs = zip(by_cell, numeric(cells, check["at"]).eval(check["at"]), strict=True)
        table["delta_at"] = [composed_delta(*pair) for pair in pairs]
    states = check.get("states", {})
    if not states:
        return _judge(table, [], check, context)
    lines = [group.to_dict("records") for group in by_cell]
    pairs = zip(lines, cells["delta"], strict=True)
    table["epsilon_replaced"] = [replacement_epsilon(*pair) for pair in pairs]
    judged = _judge(table, ["epsilon_replaced"], check, context)
    ranges = {name: table.eval(expression).dropna() for name, expression in states.items()}
    texts = [f"{name}: {of.min():.4g} to {of.max():.4g}." for name, of in ranges.items() if len(of)]
    n_silent = len(_selected(study.cells.drop_duplicates("cell"), check)) - len(cells)
    missing = join_texts(judged.missing, f"charges of {n_silent} cells" if n_silent else "")
    return replace(judged, text=join_words(judged.text, *texts), missing=missing)


def _charged(study: Study, check: Mapping) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Cells of a check with all parameters that it names, and their charges."""
    cells = _selected(study.cells.drop_duplicates("cell"), check)
    for name, default in check.get("defaults", {}).items():
        given = cells.get(name, pd.Series(None, cells.index, dtype=object))
        cells = cells.assign(**{name: given.where(given.notna(), default)})
    cells = with_columns(cells, check.get("columns", {}))
    charged = read_charges(cells)
    if not len(charged):
        raise MissingRows(_NO_CHARGES)
    cells = cells.loc[charged.index.unique()]
    return cells, charged[charged["label"].str.startswith(tuple(check.get("labels", [""])))]


def _judge(table: pd.DataFrame, facts: list[str], check: Mapping, context: Context) -> Agreement:
    """Judge every line of a table by the rule of a check."""
    table = numeric(table)
    if "where" in check:
        table = table[table.eval(check["where"])]
    if not len(table):
        raise MissingRows(_NO_CHARGES)
    identity = ["sweep", "method", "dataset", "n", "d", "k", "epsilon", *facts]
    used = [name for name in table if re.search(rf"\b{name}\b", check["rule"])]
    evidence = table[list(dict.fromkeys([*identity, *used]))].reset_index(drop=True)
    evidence["agrees"] = table.eval(check["rule"], local_dict=_FUNCTIONS).to_numpy()
    methods = table["method"].unique()
    return Agreement(evidence, f"Required: {check['rule']}.", context.absent_cells(methods))


@check_type("sweep", "expected")
def sizes(study: Study, check: Mapping, context: Context) -> Agreement:
    """Compare N, d and, if given, k of the stored data sets with `expected`, by data set.

    `sweep` restricts the comparison to one sweep, where others run the data sets with another k.
    """
    cells = study.cells[matches(study.cells, {"sweep": check.get("sweep", study.sweeps)})]
    stored = cells.drop_duplicates("dataset").set_index("dataset")[["n", "d", "k"]].astype(int)
    lines = [
        {"dataset": name, "reported": tuple(expected), "stored": (*stored.loc[name],)}
        for name, expected in check["expected"].items()
        if name in stored.index
    ]
    table = pd.DataFrame(lines, columns=["dataset", "reported", "stored"])
    pairs = zip(table["reported"], table["stored"], strict=True)
    table["agrees"] = [reported == stored[: len(reported)] for reported, stored in pairs]
    missing = describe_absent(check["expected"], stored.index)
    table = table.astype({"reported": str, "stored": str})
    return Agreement(table, missing or "Compared: N, d, k.", missing)


@check_type("numbers", "sweeps", "method", "over")
def reported_values(study: Study, check: Mapping, context: Context) -> Finding:
    """Check that every reported number that can be compared is reproduced within sampling error.

    Holds if all are; fails if more lie outside than the standard errors allow by chance (binomial
    test at the level of all claims); else inconclusive. With `at_least` the claim is that such a
    share of them is, which decides it. `sweeps` replaces those of the numbers; `method` and the
    data sets `over` say which of them the claim is about.
    """
    entry = context.reported[check["numbers"]]
    table = reported.compare(study, {**entry, "sweeps": check.get("sweeps", entry.get("sweeps"))})
    about = {"method": check.get("method"), "dataset": context.resolve(check.get("over", ()))}
    table = table[matches(table, {name: value for name, value in about.items() if value})]
    is_judged = table["verdict"].isin(reported.JUDGED)
    judged = table[is_judged]
    others = table.loc[~is_judged, "verdict"].value_counts()
    texts = {name: f"{count} numbers {name}" for name, count in others.items()}
    others_text = "; ".join(texts.values())
    if not len(judged):
        raise MissingRows(f"none of {len(table)} reported numbers can be judged: {others_text}")

    # Two-sided chance beyond these errors; half a reported digit of slack makes it smaller.
    counts = judged["verdict"].value_counts().reindex(reported.JUDGED, fill_value=0)
    n_outside = len(judged) - counts[reported.WITHIN]
    errors = entry.get("standard_errors", reported.STANDARD_ERRORS)
    p_value = stats.binom.sf(n_outside - 1, len(judged), 2 * stats.norm.sf(errors))
    verdict = HOLDS if not n_outside else FAILS if p_value <= LEVEL else INCONCLUSIVE
    if "at_least" in check:
        share = counts[reported.WITHIN] / len(judged)
        verdict = HOLDS if share >= check["at_least"] else FAILS

    n_near = sum(reported.near(line) for line in judged.to_dict("records"))
    numbers = f"Of {len(judged)} reported numbers that can be compared {counts[reported.WITHIN]} "
    numbers += f"are within sampling error, {counts[reported.BETTER]} measured ones are better and "
    numbers += f"{counts[reported.WORSE]} worse; {n_near} lie within "
    numbers += f"{percent(reported.NEAR_SHARE)} of the reported mean. {others_text}"
    # More runs would supply these; what cannot be compared is no part of the claim.
    more_runs = (reported.NOT_STORED, reported.FEW_SEEDS)
    missing = join_texts(*(texts.get(name, "") for name in more_runs))
    order = [reported.WORSE, reported.BETTER, reported.WITHIN]
    evidence = judged.sort_values("verdict", key=lambda column: column.map(order.index))
    evidence = evidence[reported.EVIDENCE].reset_index(drop=True)
    seeds = int(judged["seeds"].min())
    # A part of the numbers can refute a share of all as little as show it.
    verdict = weaken(verdict, missing, refuted="at_least" not in check)
    return Finding(verdict, numbers, len(judged), seeds, missing, evidence)


@check_type("verdict", "test")
def proved_by(study: Study, check: Mapping, context: Context) -> Finding:
    """Give the verdict of a claim that no row bears on: a test proves it, or its opposite."""
    verdict = check["verdict"]
    if verdict not in (HOLDS, FAILS):
        raise ValueError(f"verdict={verdict!r} of a proved claim must be {HOLDS!r} or {FAILS!r}")
    what = "Follows" if verdict == HOLDS else "Is refuted"
    return Finding(verdict, f"{what} without stored rows: {check['test']} asserts it.", 1)


@check_type("reason")
def not_run(study: Study, check: Mapping, context: Context) -> Finding:
    """Give the recorded reason why a claim is not evaluated here."""
    return Finding(NOT_RUN, check["reason"])
