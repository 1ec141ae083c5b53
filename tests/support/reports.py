"""A paper's report on fabricated rows: what the tests of all reports share."""

from functools import cache

import numpy as np
import pandas as pd
from fabricated.fastlloyd import SIZES, cell_rows
from fabricated.studies import ROWS, paper_of, study_of

from pkm.analysis.claims import verdicts
from pkm.analysis.claims.claim import list_variants, read_claims
from pkm.analysis.claims.findings import CHECK_KEYS, as_list
from pkm.analysis.figures.figure import read_figures
from pkm.analysis.pages import report
from pkm.analysis.render import draw as figures
from pkm.analysis.tables import removals
from pkm.analysis.tables.study import Study

NONE_MISSING = pd.DataFrame(columns=["sweep", "method", "dataset", "epsilon", "reason"])


def missing_cell(sweep, method, dataset, epsilon, reason):
    """Table of one cell without rows, with the recorded reason."""
    return pd.DataFrame([(sweep, method, dataset, epsilon, reason)], columns=NONE_MISSING.columns)


@cache
def verdicts_of(study):
    """Verdicts on all claims of a paper from the fabricated rows of a study, computed once."""
    return verdicts.evaluate_claims(study_of(study), paper_of(study), NONE_MISSING)


def evaluate_claims(paper, rows, missing=NONE_MISSING):
    """Findings of all claims of a paper, by the claims' names without that of the paper."""
    return by_claim(verdicts.evaluate_claims(Study(rows), paper, missing))


def by_claim(paper_verdicts):
    """Findings by the claims' names without that of the paper."""
    return {verdict.claim.id.split("/")[1]: verdict.finding for verdict in paper_verdicts}


def evaluate_check(paper, check, rows, missing=NONE_MISSING):
    """Finding of one check, with the sets, reported numbers and evaluators of a paper."""
    rows = rows_of_check(paper, check, rows)
    study, context = verdicts.prepare(Study(rows), paper, missing)
    return verdicts.evaluate_check(study, check, context)


def rows_of_check(paper, check, rows):
    """Rows of the sweeps that a check compares; all rows where it may read others."""
    names = set().union(*compared_sweeps(check))
    if not names or None in names:
        return rows
    sweeps = rows["sweep"]
    if read_claims(paper)["removals"]:
        sweeps = sweeps.map(removals.parent_sweep)
        names = set().union(*map(removals.find_parents, names))
    return rows[sweeps.isin(names)]


def compared_sweeps(check):
    """Sweeps that a check and its parts and variants name; None of one that compares no cells."""
    for entry in (*check.get("parts", ()), *list_variants(check)):
        yield from compared_sweeps(entry)
    if "parts" not in check:
        yield as_list(check["sweep"]) if "left" in CHECK_KEYS[check["type"]] else [None]


def evaluate_claim(paper, name, rows, missing=NONE_MISSING):
    """Finding of one claim, by its name without that of the paper."""
    return evaluate_check(paper, check_of(paper, name), rows, missing)


def check_of(paper, name):
    """Check of one claim, by its name without that of the paper."""
    checks = {claim.id.split("/")[1]: claim.check for claim in read_claims(paper)["claims"]}
    return checks[name]


def figure_spec(paper, name):
    """Specification of one figure of a paper."""
    (spec,) = (spec for spec in read_figures(paper) if spec.name == name)
    return spec


def draw(paper, name, rows):
    """Draw one figure of a paper."""
    spec = figure_spec(paper, name)
    return figures.draw(Study(rows), spec)


@cache
def figure_of(study, name):
    """One figure of the fabricated rows of a study, drawn once."""
    spec = figure_spec(paper_of(study), name)
    return figures.draw(study_of(study), spec)


def build_report(paper, rows, out, monkeypatch, figure_names, missing=NONE_MISSING):
    """Build a report with a selection of its figures.

    Figures and verdicts of unchanged fabricated rows are taken from the caches of `figure_of` and
    `verdicts_of`.
    """
    studies = [study for study in ROWS if paper_of(study) == paper]
    cached_study = next((study for study in studies if ROWS[study]() is rows), None)
    specs = [spec for spec in read_figures(paper) if spec.name in figure_names]
    assert len(specs) == len(figure_names), f"unknown figures among {figure_names}"
    if cached_study is not None:
        monkeypatch.setattr(report, "draw", lambda _, spec: figure_of(cached_study, spec.name))
        if missing is NONE_MISSING:
            found = verdicts_of(cached_study)
            monkeypatch.setattr(verdicts, "evaluate_claims", lambda *arguments: found)
    monkeypatch.setattr(report, "read_figures", lambda paper: specs)
    return report.build(rows, paper=paper, missing=missing, out=out, environment={})


def row_mask(rows, **values):
    """Mask of the rows with the given values; at least one row must have them."""
    mask = np.logical_and.reduce([rows[name] == value for name, value in values.items()])
    assert mask.any(), f"no rows with {values}"
    return mask


def changed(rows, column, change, **where):
    """Copy of rows in which one column of the selected rows changes; `change` takes those rows."""
    rows = rows.copy(deep=False)
    mask = row_mask(rows, **where)
    rows.loc[mask, column] = change(rows[mask])
    return rows


def scaled(rows, where, **factors):
    """Copy of rows in which the given metrics of selected rows are multiplied."""
    rows = rows.copy(deep=False)
    mask = row_mask(rows, **where)
    for name, factor in factors.items():
        rows.loc[mask, name] *= factor
    return rows


def without(rows, **where):
    """Copy of rows without the selected ones."""
    return rows[~row_mask(rows, **where)].reset_index(drop=True)


@cache
def foreign_rows():
    """Rows of FastLloyd in a sweep that no paper has; a store holds other papers' rows as well."""
    rows = cell_rows("real", "fastlloyd_published", "iris", 0.5, 3, size=SIZES["iris"])
    return rows.assign(sweep="other")
