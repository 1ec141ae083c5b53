"""Claims on rows of executed cells: fabricated ones may have columns that no run stores."""

import os
import subprocess
import sys
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


#: The paper that `pkm reproduce` takes by default.
DEFAULT = "fastlloyd"


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    """Reproduce a paper in a separate process, as a user does: its folder of results, its output.

    There is no folder of data, and there are two workers.
    """
    folder = tmp_path_factory.mktemp("reproduced")
    environment = {name: value for name, value in os.environ.items() if name != "PKM_DATA"}
    words = ["reproduce", "profile=smoke", f"results={folder}", "tracking=none", "jobs=2"]
    completed = subprocess.run(
        [sys.executable, "-m", "pkm", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert completed.returncode == 0, completed.stderr
    return folder, completed.stdout


@pytest.mark.integration
@pytest.mark.slow
def test_smoke_reproduction_from_end_to_end(reproduced):
    results, printed = reproduced
    page = results / "reports" / f"{DEFAULT}-smoke" / "index.html"
    text = page.read_text()
    for label in ("computed with", "computed on", "computed at commit", "report made with"):
        assert label in text
    assert str(page) in printed
    # Packages that draw and write the report log to nowhere.
    assert "[HYDRA]" not in printed


@pytest.mark.slow
@pytest.mark.parametrize("paper", choices("paper"))
def test_executed_rows_have_the_columns_of_fabricated_ones(paper, tmp_path, cache, request):
    # Two seeds have the columns of three.
    seeds = [] if paper == DEFAULT else ["profile.seeds=2"]
    words = [f"paper={paper}", "profile=smoke", "tracking=none", *seeds]
    config = load_config(words)
    plan = make_plan(config.paper, config.profile)
    if paper == DEFAULT:
        results, _ = request.getfixturevalue("reproduced")
        store = Store(results)
    else:
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
