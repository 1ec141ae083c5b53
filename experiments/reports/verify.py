"""The result of a claim or a figure, and the rows that it needs."""

import pandas as pd

from pkm.analysis.claims import verdicts
from pkm.analysis.claims.claim import Claim, read_claims
from pkm.analysis.claims.findings import NOT_RUN
from pkm.analysis.figures.figure import FigureSpec, read_figures
from pkm.analysis.figures.figure_data import make_figure_data
from pkm.analysis.tables.study import Study
from pkm.experiments.config.settings import require
from pkm.names import suggestion

Target = Claim | FigureSpec


def find_target(name: str) -> Target:
    """Find a claim by its id, or a figure by its paper and name."""
    rule = "PAPER/CLAIM or PAPER/FIGURE, such as fastlloyd/figure8"
    require("/" in name, "name", name, rule)
    paper = name.partition("/")[0]
    targets: dict[str, Target] = {
        f"{paper}/{spec.name}": spec for spec in read_figures(paper)
    }
    targets |= {claim.id: claim for claim in read_claims(paper)["claims"]}
    if name not in targets:
        hint = suggestion(name, targets)
        raise ValueError(f"no claim or figure is called {name!r}{hint}")
    return targets[name]


def evaluate(
    target: Target, rows: pd.DataFrame, missing: pd.DataFrame
) -> tuple[str, pd.DataFrame]:
    """Evaluate a claim, or compute the numbers of a figure, on the rows of a plan.

    Returns
    -------
    verdict : str
        With its numbers; empty for a figure.
    table : DataFrame
        The evidence, or the numbers of the figure; none where rows say nothing.
    """
    study = Study(rows)
    if isinstance(target, FigureSpec):
        return "", make_figure_data(study, target).table
    prepared, context = verdicts.prepare(study, target.id.partition("/")[0], missing)
    finding = verdicts.evaluate_check(prepared, target.check, context)
    return f"{finding.verdict}. {finding.summary}", finding.evidence


def select_needed(
    target: Target, rows: pd.DataFrame, missing: pd.DataFrame
) -> pd.DataFrame:
    """Return the rows that a claim or figure needs; none if it has no result.

    Sweeps, then methods, then data sets that the evidence does not name are left out if
    the result stays the same to the bit.
    """
    verdict, table = evaluate(target, rows, missing)
    if verdict.startswith(NOT_RUN) or (not verdict and table.empty):
        return rows.iloc[:0]
    parts = [
        (name, [value]) for name in ("sweep", "method") for value in rows[name].unique()
    ]
    if "dataset" in table:
        parts.append(("dataset", list(set(rows["dataset"]) - set(table["dataset"]))))
    for column, values in parts:
        rest = rows[~rows[column].isin(values)]
        if len(rest):
            other_verdict, other_table = evaluate(target, rest, missing)
            if other_verdict == verdict and other_table.equals(table):
                rows = rest
    return rows
