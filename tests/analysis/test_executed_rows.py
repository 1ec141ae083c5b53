"""Claims on rows of executed cells: fabricated ones may have columns that no run stores."""

from dataclasses import replace
from functools import cache

import pytest
import reports
from fabricated.rows import with_params
from fabricated.studies import ROWS, paper_of
from small_cells import BASE

from pkm.analysis.claims import verdicts
from pkm.analysis.claims.exact import WITHOUT
from pkm.analysis.claims.findings import HOLDS, NOT_REPRODUCED, NOT_RUN, UNJUDGED
from pkm.analysis.tables.study import Study
from pkm.experiments.applications.composition import load_config
from pkm.experiments.backends.backends import run_cells
from pkm.experiments.config.backend import Backend
from pkm.experiments.config.groups import choices, read_choice
from pkm.experiments.plan.plan import make_plan
from pkm.experiments.store.store import Store


def test_total_budget_of_executed_default_shares(tmp_path, cache):
    entry = read_choice("method", "dpm_published")
    params = {"variant": entry["variant"]}
    cell = replace(BASE, method=entry["name"], target=entry["_target_"], params=params)
    store = Store(tmp_path)
    run_cells([cell], store, Backend())
    rows = store.read([cell.key]).assign(sweep="table")
    assert reports.evaluate_claim("dpm", "total-budget", rows).verdict == HOLDS
    # A share that is neither a list nor the default says nothing, and accuses nobody.
    unreadable = with_params(rows, params | {"shares": "some"})
    finding = reports.evaluate_claim("dpm", "total-budget", unreadable)
    assert finding.verdict == NOT_RUN
    assert WITHOUT in finding.summary
    too_much = with_params(rows, params | {"shares": [0.04, 0.18, 0.18, 0.61]})
    assert reports.evaluate_claim("dpm", "total-budget", too_much).verdict == NOT_REPRODUCED


@cache
def fabricated_findings(paper):
    """Findings on all fabricated rows of a paper, of each claim the last that is judged."""
    findings = {}
    for study in filter(lambda name: paper_of(name) == paper, ROWS):
        found = reports.by_claim(reports.verdicts_of(study))
        for name, finding in found.items():
            if finding.verdict not in UNJUDGED or name not in findings:
                findings[name] = finding
    return findings


def empty_columns(finding):
    """Columns of the evidence without any value."""
    evidence = finding.evidence
    return set(evidence.columns[evidence.isna().all()])


@pytest.mark.slow
@pytest.mark.parametrize("paper", choices("paper"))
def test_executed_rows_have_the_columns_of_fabricated_ones(paper, tmp_path, cache):
    config = load_config([f"paper={paper}", "profile=smoke", "tracking=none"])
    plan = make_plan(config.paper, config.profile)
    store = Store(tmp_path)
    run_cells(plan.cells, store, Backend())
    study = Study(plan.read_rows(store))
    gaps = plan.list_missing(store)
    executed = reports.by_claim(verdicts.evaluate_claims(study, paper, gaps))
    for name, finding in executed.items():
        assert WITHOUT not in f"{finding.summary} {finding.missing}", name
        fabricated = fabricated_findings(paper)[name]
        columns = set(finding.evidence) & set(fabricated.evidence)
        difference = empty_columns(finding) ^ empty_columns(fabricated)
        assert not difference & columns, name
