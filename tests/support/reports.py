"""A paper's report on fabricated rows: what the tests of all reports share."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
from fabricated.studies import ROWS, paper_of, study_of

from pkm.analysis import claims, report, verdicts
from pkm.analysis.figures import figures_of
from pkm.analysis.figures.style import styled
from pkm.analysis.tables import Study

NO_GAPS = pd.DataFrame(columns=["sweep", "method", "dataset", "epsilon", "reason"])


@cache
def verdicts_of(study):
    """Verdicts on all claims of a paper from the fabricated rows of a study, judged once."""
    return verdicts.evaluate(study_of(study), paper_of(study), NO_GAPS)


def findings_of(paper, rows, missing=NO_GAPS):
    """Findings of all claims of a paper, by the claims' names without that of the paper."""
    return by_claim(verdicts.evaluate(Study(rows), paper, missing))


def by_claim(found):
    """Findings by the claims' names without that of the paper."""
    return {verdict.claim["id"].split("/")[1]: verdict.finding for verdict in found}


def check_finding(paper, check, rows, missing=NO_GAPS):
    """Finding of one check, with the sets, printed numbers and evaluators of a paper."""
    content = claims.load(paper)
    context = verdicts.Context(content["sets"], missing, content.get("reported", {}))
    return verdicts._check(
        Study(rows), check, context, verdicts.EVALUATORS | claims.paper_evaluators(paper)
    )


def finding(paper, name, rows, missing=NO_GAPS):
    """Finding of one claim, by its name without that of the paper."""
    checks = {claim["id"].split("/")[1]: claim["check"] for claim in claims.load(paper)["claims"]}
    return check_finding(paper, checks[name], rows, missing)


def drawn(paper, name, rows):
    """Draw one figure of a paper."""
    (spec,) = (spec for spec in figures_of(paper) if spec.name == name)
    with styled():
        return spec.draw(Study(rows))


@cache
def figure_of(study, name):
    """One figure of the fabricated rows of a study, drawn once."""
    (spec,) = (spec for spec in figures_of(paper_of(study)) if spec.name == name)
    with styled():
        return spec.draw(study_of(study))


def built(paper, rows, out, monkeypatch, some, missing=NO_GAPS):
    """Build a report with some of its figures; those of fabricated rows as they are were drawn
    before.
    """
    studies = [study for study in ROWS if paper_of(study) == paper]
    shared = next((study for study in studies if ROWS[study]() is rows), None)
    chosen = [spec for spec in figures_of(paper) if spec.name in some]
    assert len(chosen) == len(some), f"unknown figures among {some}"
    if shared is not None:
        chosen = [
            replace(spec, draw=lambda _, name=spec.name: figure_of(shared, name)) for spec in chosen
        ]
    monkeypatch.setattr(report, "figures_of", lambda paper: chosen)
    return report.build(rows, paper=paper, missing=missing, out=out, environment={})


def those(rows, **where):
    """Mask of the rows with some values; there must be some."""
    chosen = np.logical_and.reduce([rows[name] == value for name, value in where.items()])
    assert chosen.any(), f"no rows with {where}"
    return chosen


def changed(rows, column, change, **where):
    """Copy of rows in which one column of some rows is changed; `change` takes those rows."""
    rows, chosen = rows.copy(), those(rows, **where)
    rows.loc[chosen, column] = change(rows[chosen])
    return rows


def without(rows, **where):
    """Copy of rows without some."""
    return rows[~those(rows, **where)].reset_index(drop=True)


def check_figure_without_rows(paper, name, rows):
    """A figure that no row belongs to says so of every panel."""
    shown = drawn(paper, name, rows)
    assert shown.gaps and all(gap.endswith("not run: no stored rows") for gap in shown.gaps)
