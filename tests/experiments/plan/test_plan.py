"""From configuration to cells: sweeps, profiles, gaps; invalid input is refused beforehand."""

import io

import pytest
from rich.console import Console
from small_plans import PROFILE, cells, paper

from pkm.catalogue import CONF
from pkm.experiments.applications.composition import load_config
from pkm.experiments.backends.backends import run_cells
from pkm.experiments.config.backend import Backend
from pkm.experiments.config.groups import choices, read_choice
from pkm.experiments.config.method_parameters import accepts_parameter
from pkm.experiments.fit.execute import execute
from pkm.experiments.fit.inputs import build_method
from pkm.experiments.plan.estimate import (
    count_max_centers,
)
from pkm.experiments.plan.plan import make_plan
from pkm.experiments.reports.overview import show_plan
from pkm.experiments.store.store import Store
from pkm.methods import load_method


def test_cell_of_two_sweeps_is_planned_once():
    content = paper()
    content["sweeps"]["second"] = content["sweeps"]["first"]
    plan = make_plan(content, PROFILE)
    assert len(plan.sweep_cells) == 2
    assert len(plan.cells) == 1


def test_rows_have_the_names_of_the_plan(file_entry, tmp_path):
    twin = tmp_path / "twin.csv"
    twin.write_bytes((tmp_path / "points.csv").read_bytes())
    twin_entry = file_entry | {"path": str(twin)}
    store = Store(tmp_path / "results")
    (cell,) = cells(datasets=[file_entry], methods=["mean"], k=1)
    store.write(cell, execute(cell).assign(git="", finished=0.0))

    def names(*entries):
        content = paper(datasets=list(entries), methods=["mean"], k=1)
        rows = make_plan(content, PROFILE).read_rows(store)
        return list(rows["dataset"])

    assert names(file_entry) == ["points"] * 2
    assert names(twin_entry) == ["twin"] * 2
    assert names(file_entry, twin_entry) == ["points"] * 2 + ["twin"] * 2


@pytest.mark.slow
def test_failure_reason_names_the_time_limit(tmp_path, monkeypatch):
    (tmp_path / "too_slow.py").write_text(
        "import time\nfrom pkm.methods.baselines.baselines import DataMean\n\n\n"
        "class TooSlow(DataMean):\n    def cluster(self, curator):\n        time.sleep(60)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    entry = {"name": "slow", "_target_": "too_slow.TooSlow"}
    plan = make_plan(paper(methods=[entry], time_limit=0.5), PROFILE)
    store = Store(tmp_path / "results")
    run_cells(plan.cells, store, Backend())
    (reason,) = plan.list_missing(store)["reason"]
    assert reason == "failed: TimeLimitExceeded: time limit of 0.5 s reached"
    console = Console(file=io.StringIO(), width=160)
    show_plan(plan, store, Backend(), console)
    assert "1 of 1 cells to run" in console.file.getvalue()


# diffprivlib needs an environment of its own: tests/methods/baselines/test_diffprivlib.py.
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in choices("method") if name != "diffprivlib"])
def test_every_method_file_runs(name):
    target = read_choice("method", name)["_target_"]
    private = accepts_parameter(target, "epsilon")
    central = hasattr(load_method(target), "fit_with")
    # Published variants of the DPM paper's methods need one range for all columns.
    setting = {} if central else {"unlearning": {"clients": 4, "clusters_per_client": 2}}
    (cell,) = cells(
        methods=[name], epsilon=1.0, datasets=["blobs-300-2-3"], preprocessing="range", **setting
    )
    rows = execute(cell)
    assert list(rows["seed"]) == [0, 1]
    assert rows["method"].unique() == [name]
    assert rows["nicv"].between(0, 10).all()
    assert rows["epsilon_spent"].notna().all() == private
    if private:
        # The declared epsilon may exceed the budget where a published variant overspends.
        declared = build_method(cell).budget(300, 2).epsilon
        assert rows["epsilon_spent"].max() <= declared * (1 + 1e-6)
        assert declared <= 1.0 or cell.variant == "published"
    assert rows["n_centers"].between(1, count_max_centers(cell)).all()


@pytest.mark.slow
@pytest.mark.no_cover  # other tests run the same code
def test_hydra_composes_files_that_change_others_as_papers_do():
    """A file of each class is composed and run from the command line in test_cli.py."""
    files = sorted((CONF / "method").glob("*.yaml"))
    changed = [path.stem for path in files if "defaults:" in path.read_text()]
    assert changed
    for name in changed:
        assert load_config([f"method={name}"], "run")["method"] == read_choice("method", name)


@pytest.mark.slow
@pytest.mark.parametrize("group", ["paper", "profile", "backend", "tracking"])
def test_every_file_of_every_group_composes(group):
    assert choices(group)
    for name in choices(group):
        assert load_config([f"{group}={name}"])[group]["name"] == name


def test_external_method_composes():
    method = load_config(["method=package.module:Class"], "run")["method"]
    assert method == {"name": "class", "_target_": "package.module.Class"}


@pytest.mark.slow
@pytest.mark.parametrize("name", choices("paper"))
@pytest.mark.parametrize(
    "profile",
    ["smoke", "quick", "paper"],
)
@pytest.mark.no_cover  # other tests run the same code
def test_every_paper_can_be_planned_in_every_profile(name, profile, monkeypatch, tmp_path):
    monkeypatch.delenv("PKM_DATA", raising=False)
    monkeypatch.setenv("PKM_CACHE", str(tmp_path))
    config = load_config([f"paper={name}", f"profile={profile}", "data=null"])
    plan = make_plan(config.paper, config.profile)
    assert plan.cells
    if profile == "smoke":
        # The smallest profile needs no file.
        assert not plan.gaps
        changes = config.paper.profiles.smoke
        omitted = {sweep for sweep, change in changes.items() if change is None}
        planned = {sweep for sweep, _ in plan.sweep_cells}
        assert planned == set(config.paper.sweeps) - omitted


def test_every_key_of_a_choice_has_a_comment():
    """Names and styles are explained once, in docs/extending.md, and so are sweeps."""
    explained = ("defaults:", "_target_:", "name:", "label:", "color:", "marker:")
    for path in CONF.rglob("*.yaml"):
        if path.is_relative_to(CONF / "paper") or path.is_relative_to(CONF / "suite"):
            continue
        for line in path.read_text().splitlines():
            if line and not line.startswith(("#", "  -", *explained)):
                assert "#" in line, f"{path.name}: {line}"
