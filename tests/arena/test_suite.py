"""Suites are frozen; plans have the reference, and name what a method refuses."""

import pytest
import yaml

from pkm.arena.suite import CURRENT, make_stage_plan, read_suite, select_cells
from pkm.catalogue import CONF
from pkm.experiments.config.groups import read_choice
from pkm.files import record_digest

#: Of the content, comments left out. A suite is never edited: what changes gets a name of its own.
DIGESTS = {"2026-11": "ebeb7ac44c3b0927605393edc378f36a6a05f858a4d1c6a92062ea847629357a"}


def test_suites_are_never_edited():
    suites = (CONF / "suite").glob("*.yaml")
    found = {path.stem: record_digest(yaml.safe_load(path.read_text())) for path in suites}
    assert found == DIGESTS


def test_the_current_suite_is_planned_on_sets_that_come_with_the_code():
    plan = make_stage_plan(CURRENT, "lite")
    assert {cell.method for cell in plan.cells} == {"kmeans"}
    assert len(plan.cells) == 6 + 2
    full = read_suite(CURRENT)["sweeps"]["full"]
    assert set(read_suite(CURRENT)["sweeps"]["lite"]["datasets"]) < set(full["datasets"])


@pytest.mark.parametrize(
    ("suite", "stage", "method", "rule"),
    [
        pytest.param("2026-12", "lite", "sulloyd", "suite must be one of", id="suite"),
        pytest.param("../suite/tiny", "lite", "sulloyd", "suite must be one of", id="path"),
        pytest.param("tiny", "all", "sulloyd", "stage must be one of lite, full", id="stage"),
        pytest.param("tiny", "lite", "kmeans", "another than that of the reference", id="name"),
    ],
)
def test_what_cannot_be_planned_is_refused(suite, stage, method, rule):
    with pytest.raises(ValueError, match=rule):
        make_stage_plan(suite, stage, read_choice("method", method))


def test_a_class_with_the_name_of_the_reference_is_refused():
    method = read_choice("method", "sulloyd") | {"name": "kmeans"}
    with pytest.raises(ValueError, match="declare the method under one"):
        make_stage_plan("tiny", "lite", method)


def test_a_set_that_a_method_refuses_is_a_gap():
    """The other sets are planned, and the reference on all."""
    method = read_choice("method", "lying_methods:RefusesManyRecords")
    plan = make_stage_plan("tiny", "lite", method)
    sets = {cell.dataset for cell in plan.cells if cell.method == method["name"]}
    assert sets == {"iris", "wine"}
    assert {cell.dataset for cell in plan.cells} == {"iris", "lsun", "wine"}
    assert {(gap.dataset, gap.epsilon) for gap in plan.gaps} == {("lsun", 0.5), ("lsun", 4.0)}
    assert "399 records at most" in plan.gaps[0].reason


def test_a_method_that_refuses_all_sets_is_refused():
    method = read_choice("method", "sulloyd") | {"n_iterations": -1}
    with pytest.raises(ValueError, match="n_iterations"):
        make_stage_plan("tiny", "lite", method)


def test_cells_are_selected_by_method_set_and_epsilon():
    plan = make_stage_plan("tiny", "lite", read_choice("method", "sulloyd"))
    chosen = [["lite", "sulloyd", "iris", 0.5], ["lite", "kmeans", "wine", None]]
    kept = select_cells(plan, chosen)
    untimed = [cell for cell in kept.cells if not cell.timing]
    names = {(cell.method, cell.dataset, cell.epsilon) for cell in untimed}
    assert names == {("sulloyd", "iris", 0.5), ("kmeans", "wine", None)}
    assert sum(cell.timing for cell in kept.cells) == 2
