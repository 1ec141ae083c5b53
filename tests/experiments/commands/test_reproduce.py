"""Papers from the command line: run, status, report."""

import gc
import platform

import numpy as np
import pytest
from fabricated.audit import make_record, write_records
from rich.console import Console

from pkm.experiments.applications import application, composition
from pkm.experiments.cell.cell import Cell
from pkm.experiments.commands import reproduce
from pkm.experiments.config.backend import Backend
from pkm.experiments.config.groups import choices, read_choice
from pkm.experiments.fit.central import Central
from pkm.experiments.plan.estimate import estimate_wall_time, make_estimator
from pkm.experiments.plan.plan import SEEDED_NOISE_NOTICE, make_plan
from pkm.experiments.reports import reproduction
from pkm.experiments.store.store import Store

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("PKM_DATA", raising=False)
    monkeypatch.setenv("PKM_CACHE", str(tmp_path / "cache"))


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["plan", "status", "run", "report"])
def test_damaged_data_file_stops_a_reproduction(verb, tmp_path, capsys):
    data_dir = tmp_path / "files"
    (data_dir / "g2").mkdir(parents=True)
    (data_dir / "g2" / "g2-128-20.txt").write_text("1 2\n")
    words = [
        verb,
        "profile=quick",
        f"data={data_dir}",
        f"results={tmp_path / 'results'}",
        "tracking=none",
    ]
    # A status and a report are of a folder that is there.
    results = tmp_path / "results"
    if verb in ("status", "report"):
        results.mkdir()
    assert reproduce.main(words) == 2
    assert "g2-128-20.txt has SHA-256" in capsys.readouterr().err
    assert not results.exists() or not list(results.iterdir())


def smoke_words(tmp_path, *omitted):
    """Words of a smoke reproduction without the omitted sweeps."""
    words = ["profile=smoke", f"results={tmp_path / 'results'}", "tracking=none", "backend=serial"]
    return words + [f"paper.profiles.smoke.{sweep}=null" for sweep in omitted]


def test_verbs_on_a_small_paper(tmp_path, capsys):
    omitted = (
        "real", "rivals", "g2", "synthk", "synth", "ablation", "iterations", "initialization",
        "protocol",
    )  # fmt: skip
    small = "paper.profiles.smoke.sound={datasets:[iris],epsilon:[1.0]}"
    words = [*smoke_words(tmp_path, *omitted), small]

    def call_verb(verb):
        code = reproduce.main([verb, *words])
        return code, capsys.readouterr().out

    code, out = call_verb("plan")
    assert code == 0
    assert "7 of 7 cells to run" in out
    assert not (tmp_path / "results").exists()
    for verb in ("status", "report"):
        assert call_verb(verb) == (2, "")
        assert not (tmp_path / "results").exists()
    code, out = call_verb("run")
    assert code == 0
    assert "7 done, 0 failed" in out
    assert out.count(SEEDED_NOISE_NOTICE) == 1
    code, out = call_verb("run")
    assert "7 stored, 0 to run" in out

    # An earlier failure is reported by `status`, skipped by `run`, and run again by `retry`.
    store = Store(tmp_path / "results")
    key = store.keys()[0]
    removed = store.read([key]).iloc[0]
    store.path(key).unlink()
    failed_cell = Cell(
        "x",
        "pkm.methods.Lloyd",
        {},
        "iris",
        "minmax",
        3,
        None,
        None,
        (0,),
        ("nicv",),
        kind=Central(),
    )
    failed_cell.__dict__["key"] = key
    store.write_failure(failed_cell, RuntimeError("the power failed"))
    code, out = call_verb("status")
    assert "the power failed" in out
    code, out = call_verb("run")
    assert code == 1
    assert "1 cells failed before" in out
    code, out = call_verb("retry")
    assert code == 0
    repeated = store.read([key]).iloc[0]
    assert repeated["nicv"] == removed["nicv"]


def test_report_receives_substitutes_and_environments(tmp_path, monkeypatch, capsys):
    received = {}

    def build(rows, *, out, environment, audited, **_):
        received.update(environment, audited=audited)
        return out / "index.html"

    monkeypatch.setattr("pkm.analysis.pages.report.build", build)
    monkeypatch.setattr("pkm.analysis.pages.index_page.build", lambda folder: None)
    write_records(tmp_path / "results", [make_record("FastLloyd", "sound")])
    omitted = (
        "real", "rivals", "sound", "synthk", "synth", "ablation", "iterations", "initialization",
        "protocol",
    )  # fmt: skip
    pattern = "{pattern:'g2-{d}-20',fallback:'g2-{d}-20-generated',d:[128]}"
    words = [*smoke_words(tmp_path, *omitted), f"paper.profiles.smoke.g2.datasets=[{pattern}]"]
    assert reproduce.main(words) == 0
    expected = "g2-{d}-20 as g2-{d}-20-generated, because the file is not available: g2-128-20"
    assert received["substitutes"] == expected
    assert "substitute: g2-{d}-20 as" in capsys.readouterr().out
    assert list(received["audited"]) == [("pkm.methods.FastLloyd", "sound")]
    assert received["computed on"] == [platform.node()]
    versions = f"python {platform.python_version()} numpy {np.__version__}"
    assert versions in received["computed with"]
    assert "git commit" in received["report made with"]


@pytest.mark.slow
def test_every_paper_is_planned_the_cheapest_first(tmp_path, capsys):
    words = ["plan", "paper=all", "profile=smoke", f"results={tmp_path / 'results'}"]
    assert reproduce.main(words) == 0
    out = capsys.readouterr().out
    lines = [line for line in out.splitlines() if line.startswith("paper ")]
    papers = [line.rpartition(" ")[2] for line in lines]
    assert sorted(papers) == choices("paper")
    assert lines == [
        f"paper {number} of {len(papers)}: {name}" for number, name in enumerate(papers, 1)
    ]
    seconds = []
    for paper in papers:
        config = composition.load_config([f"paper={paper}", "profile=smoke", "tracking=none"])
        cells = make_plan(config.paper, config.profile, data_dir=config.data).cells
        estimate = make_estimator(Store(tmp_path), Backend(**config.backend))
        costs = {cell.key: estimate(cell)[0] for cell in cells}
        seconds.append(estimate_wall_time(costs, cells, config.backend.jobs))
    assert seconds == sorted(seconds)
    assert len(set(seconds)) > 1
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
def test_reports_of_several_papers_are_made_by_another_process(tmp_path, capsys):
    words = ["report", "paper=all", "profile=smoke", f"results={tmp_path}", "tracking=none"]
    assert reproduce.main(words) == 0
    out = capsys.readouterr().out
    assert out.count("nothing is stored for this plan yet: no report\n") == len(choices("paper"))


def test_no_cycles_are_looked_for_until_cells_are_run():
    states = []
    assert application.call(lambda: states.append(gc.isenabled()), "reproduce", []) == 0
    assert states == [False]
    assert gc.isenabled()


def test_the_cheapest_cells_of_all_papers_come_first(tmp_path, monkeypatch):
    received = []
    monkeypatch.setattr(
        reproduction, "run_cells", lambda cells, *_, **options: received.append(cells)
    )
    words = [f"results={tmp_path / 'results'}", "tracking=none", "profile=smoke", "paper=all"]
    config = composition.load_config(words)
    papers = [read_choice("paper", name) for name in ("mufc", "pe-means")]
    console = Console(quiet=True)
    requests = reproduction.make_requests(papers, config, console)
    cells = {cell.key: cell for each in requests for cell in each.selection.cells}
    costs = {key: 3.0 + i for i, key in enumerate(reversed(cells))}
    costly_first = list(cells)
    reproduction.run_cheapest(requests, costs, config, console)
    assert [cell.key for cell in received.pop()] == costly_first[:-3:-1]

    # Not those that an earlier run has begun, or that are stored.
    store = Store(config.results)
    mark = store.running_path(costly_first[-1])
    mark.parent.mkdir(parents=True)
    mark.touch()
    del costs[costly_first[-2]]
    reproduction.run_cheapest(requests, costs, config, console)
    assert [cell.key for cell in received.pop()] == [costly_first[-3]]
    reproduction.run_cheapest(requests, {}, config, console)
    assert received == []


def test_unknown_verb_is_refused(capsys):
    assert reproduce.main(["rune", "profile=smoke"]) == 2
    message = "verb='rune' is unknown. Did you mean run? Known: plan, run, status, retry, report"
    assert message in capsys.readouterr().err
