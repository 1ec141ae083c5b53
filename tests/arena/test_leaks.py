"""A cell on other points, with equal releases: sound methods do the same, others are found."""

import pytest

from pkm.arena import leaks
from pkm.arena.leaks import find_leak, move, trace_cell
from pkm.arena.suite import make_stage_plan
from pkm.compute import Points
from pkm.experiments.config.groups import choices, read_choice
from pkm.methods import load_method


def make_cell(method, dataset="iris"):
    """The cell of a method at epsilon 4."""
    plan = make_stage_plan("tiny", "lite", read_choice("method", method))
    cells = [cell for cell in plan.cells if (cell.dataset, cell.epsilon) == (dataset, 4.0)]
    return cells[0]


def assert_the_same(method):
    """It does something: there are draws, and no exception."""
    cell = make_cell(method)
    assert find_leak(cell) == ""
    trace = trace_cell(cell, None)
    assert trace.draws
    assert "exception" not in trace.observed


@pytest.mark.parametrize(
    "method",
    ["sulloyd", "dpm", "eugkm", "kaplan_stemmer", "feddp_shifted", "dist_dp", "ldp_lloyd"],
)
def test_a_sound_method_does_the_same(method):
    assert_the_same(method)


@pytest.mark.slow
@pytest.mark.parametrize("method", choices("method"))
def test_every_private_method_does_the_same(method):
    """Published variants as well: their flaws are in what they charge."""
    target = load_method(read_choice("method", method)["_target_"])
    if not any(claim.private for claim in getattr(target, "claims", {}).values()):
        pytest.skip("it claims no privacy")
    assert_the_same(method)


def test_what_depends_on_points_is_named_without_values():
    leak = find_leak(make_cell("lying_methods:PeeksAtMany", "lsun"))
    text = "centers differs although all releases are equal: it depends on data directly"
    assert leak == text
    assert find_leak(make_cell("lying_methods:PeeksAtMany")) == ""


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        pytest.param("StopsOnRows", "releases depend on data", id="number of rounds"),
        pytest.param("RadiusFromData", "releases depend on data", id="radius"),
        pytest.param("BestOfThree", "it depends on data directly", id="best of three"),
    ],
)
def test_what_follows_the_data_is_named(method, reason):
    assert reason in find_leak(make_cell(f"planted_faults:{method}", "lsun"))


def test_a_method_without_a_claim_is_not_run(monkeypatch):
    monkeypatch.setattr(leaks, "trace_cell", None)
    assert find_leak(make_cell("lying_methods:Unseeded")) == ""


def test_points_are_moved_on_the_grid():
    moved = move(Points.from_grid([[4, -2], [65536, 0]], n_null=3))
    assert moved.rows.tolist() == [[-2, 1], [-32768, 0]]
    assert moved.squared_norms.tolist() == [5, 32768**2]
    assert moved.n_records == 5
