"""Sweeps and profiles as cells; invalid ones are refused."""

import pytest
from small_plans import PROFILE, cells, paper

from pkm.experiments.config.errors import ConfigurationError
from pkm.experiments.fit.execute import execute
from pkm.experiments.plan.plan import make_plan


def test_only_private_methods_run_for_every_epsilon():
    planned = cells(methods=["lloyd", "fastlloyd"], epsilon=[0.1, 1.0])
    assert [(cell.method, cell.epsilon) for cell in planned] == [
        ("lloyd", None),
        ("fastlloyd", 0.1),
        ("fastlloyd", 1.0),
    ]
    assert {cell.seeds for cell in planned} == {(0, 1)}
    assert {cell.k for cell in planned} == {3}


def test_delta_is_for_methods_with_the_parameter():
    planned = cells(methods=["lloyd", "sulloyd", "glloyd"], epsilon=1.0, delta=1e-5)
    assert [cell.delta for cell in planned] == [None, None, 1e-5]


def test_sweep_may_set_budget_seeds_and_limits():
    content = paper(methods=["glloyd"]) | {"epsilon": [0.1, 1.0]}
    content["sweeps"]["second"] = {
        "datasets": ["iris"],
        "methods": ["glloyd", "lloyd"],
        "epsilon": 0.75,
        "delta": 1e-7,
        "seeds": 4,
        "timing": True,
        "time_limit": 600,
    }
    changes = {"seeds": [5], "time_limit": 30, "epsilon": [0.5]}
    content["profiles"] = {"tiny": {"second": changes}}

    def values_of(sweep, profile):
        plan = make_plan(content, {"name": profile, "seeds": 2})
        return [
            (cell.method, cell.epsilon, cell.delta, cell.seeds, cell.timing, cell.time_limit)
            for name, cell in plan.sweep_cells
            if name == sweep
        ]

    assert values_of("first", "tiny") == [
        ("glloyd", 0.1, "auto", (0, 1), False, None),
        ("glloyd", 1.0, "auto", (0, 1), False, None),
    ]
    assert values_of("second", "other") == [
        ("glloyd", 0.75, 1e-7, (0, 1, 2, 3), True, 600),
        ("lloyd", None, None, (0, 1, 2, 3), True, 600),
    ]
    assert values_of("second", "tiny") == [
        ("glloyd", 0.5, 1e-7, (5,), True, 30),
        ("lloyd", None, None, (5,), True, 30),
    ]


def test_grid_gives_every_combination_under_one_name():
    grid = {"alpha": [0.4, 0.8], "radius_clipping": [True, False]}
    planned = cells(methods=[{"method": "fastlloyd", "grid": grid}])
    assert {cell.method for cell in planned} == {"fastlloyd"}
    params = [dict(cell.params) for cell in planned]
    values = {(param["alpha"], param["radius_clipping"]) for param in params}
    assert values == {(0.4, True), (0.4, False), (0.8, True), (0.8, False)}


def test_rows_and_persons_of_a_set_are_different_cells():
    visits = {"name": "visits-100-2-4", "groups": "user"}
    by_row, by_person = cells(datasets=["visits-100-2-4", visits], methods=["kmeans"])
    assert by_row.key != by_person.key
    units = [cell.planned_columns()["unit"] for cell in (by_row, by_person)]
    assert units == ["row", "person"]
    rows = [execute(cell) for cell in (by_row, by_person)]
    # A person is a record, and so is its share of the cost.
    assert [set(table["n"]) for table in rows] == [{100}, {10}]
    assert [set(table["unit"]) for table in rows] == [{"row"}, {"person"}]
    assert rows[0]["nicv"].iloc[0] != rows[1]["nicv"].iloc[0]


def test_pattern_gives_every_combination():
    planned = cells(datasets=[{"pattern": "synth-{k}-{d}-0", "k": [2, 4], "d": [2, 8]}])
    assert [cell.dataset for cell in planned] == [
        "synth-2-2-0",
        "synth-2-8-0",
        "synth-4-2-0",
        "synth-4-8-0",
    ]
    assert [cell.k for cell in planned] == [2, 2, 4, 4]


def test_profile_changes_only_its_keys():
    content = paper(epsilon=[0.1, 0.5], methods=["glloyd"])
    content["sweeps"]["second"] = {"datasets": ["wine"], "methods": ["lloyd"]}
    content["profiles"] = {"tiny": {"first": {"datasets": ["wine"]}, "second": None}}
    entries = make_plan(content, PROFILE).sweep_cells
    assert [(sweep, cell.dataset, cell.epsilon) for sweep, cell in entries] == [
        ("first", "wine", 0.1),
        ("first", "wine", 0.5),
    ]
    # A profile that names no sweep changes none.
    entries = make_plan(content, {"name": "other", "seeds": 2}).sweep_cells
    assert len(entries) == 3
    # A sweep that the profile does not name is that of the paper.
    content["profiles"]["tiny"].pop("second")
    entries = make_plan(content, PROFILE).sweep_cells
    assert [sweep for sweep, _ in entries] == ["first", "first", "second"]


@pytest.mark.parametrize(
    "sweep, message",
    [
        ({"methods": ["loyd"]}, "method='loyd' is unknown. Did you mean lloyd"),
        ({"datasets": [{"name": "iris", "groups": "x"}]}, "groups='x' is not allowed for 'iris'"),
        (
            {"datasets": [{"name": "visits-100-2-4", "groups": "user"}], "methods": ["lloyd"]},
            "groups and sample_weight are not supported by Lloyd",
        ),
        ({"datasets": ["irises"]}, "unknown data set 'irises'; did you mean 'iris'"),
        ({"methods": [{"method": "fastlloyd", "alpha": 0.8}]}, "key of a method='alpha' is"),
        ({"datasets": [{"name": "iris", "colums": [1]}]}, "key of a data set='colums' is"),
        ({"datasets": [{"columns": [1]}]}, "must be names, patterns or mappings with a name"),
        ({"metrics": ["nicvv"]}, "metric='nicvv' is unknown. Did you mean nicv"),
        ({"preprocessing": "zscore"}, "preprocessing='zscore' is unknown"),
        ({"epsilon": 0}, "epsilon=0 is not allowed"),
        ({"epsilon": [1.0, -1]}, "epsilon=-1 is not allowed"),
        ({"epsilon": []}, "at least one data set, one method, one epsilon"),
        ({"methods": ["glloyd"], "delta": 1.5}, r"delta=1\.5 is not allowed"),
        (
            {
                "methods": [{"method": "glloyd", "grid": {"adjacency": ["add_remove"]}}],
                "delta": "1/n^1.5",
            },
            r"delta must be a number for data sets whose size is drawn, or secret",
        ),
        (
            {"methods": [{"method": "lloyd", "grid": {"adjacency": ["add_remove"]}}]},
            "adjacency=add_remove is not supported by Lloyd: it claims no privacy",
        ),
        ({"k": 0}, "k=0 is not allowed"),
        ({"k": 151}, "k=151 is not allowed: k must be at most n=150"),
        ({"seeds": 0}, "seeds=0 is not allowed"),
        ({"seeds": [1, 1]}, r"seeds=\(1, 1\) is not allowed"),
        ({"timing": "yes"}, "timing='yes' is not allowed: timing must be true or false"),
        ({"keep_centers": 1}, "keep_centers=1 is not allowed: keep_centers must be true or false"),
        (
            {"methods": [{"method": "lloyd", "grid": {"name": [3]}}]},
            "method.name=3 is not allowed: method.name must be a text",
        ),
        (
            {"methods": [{"method": "lloyd", "grid": {"color": [3]}}]},
            "method.color=3 is not allowed: method.color must be a text",
        ),
        (
            {"methods": [{"method": "lloyd", "grid": {"_target_": [3]}}]},
            "method._target_=3 is not allowed",
        ),
        (
            {"methods": ["glloyd"], "epsilon": None},
            "epsilon=None is not allowed: epsilon must be a number for glloyd, which is private",
        ),
        ({"datasets": [3]}, "datasets=3 is not allowed: datasets must be"),
        (
            {"time_limit": -1},
            "time_limit=-1 is not allowed: time_limit must be a number of seconds above 0",
        ),
        ({"speed": 3}, "sweep first: key='speed' is unknown"),
        (
            {"methods": [{"method": "lloyd", "grid": {"alpha": [1]}}]},
            "lloyd has no parameter alpha: known are",
        ),
        ({"methods": [{"method": "fastlloyd", "grid": {"alpha": [-1]}}]}, "alpha=-1"),
        (
            {"methods": [{"method": "lloyd", "grid": {"random_state": [1]}}]},
            "no parameter random_state",
        ),
        ({"datasets": [{"pattern": "g2-{d}-{sd}", "d": [2]}]}, "has a field without values"),
        ({"datasets": [{"name": "file", "path": "nowhere.csv"}]}, "k=None|nowhere.csv"),
    ],
)
def test_invalid_configuration_is_refused(sweep, message):
    with pytest.raises(ConfigurationError, match=message):
        plan = make_plan(paper(**sweep), PROFILE)
        # A file that does not exist is a gap, which the entry point for single runs refuses.
        raise ConfigurationError(plan.gaps[0].reason)


def test_profile_of_an_unknown_sweep_is_refused():
    content = paper() | {"profiles": {"tiny": {"frst": {}}}}
    with pytest.raises(ConfigurationError, match="Did you mean first"):
        make_plan(content, PROFILE)


@pytest.mark.parametrize("factor", [0.5, -1, True, "wide", float("nan"), 1e7])
def test_bounds_that_are_no_factor_are_refused(factor):
    with pytest.raises(ValueError, match=r"bounds_factor=.* a number from 1 to 1,000,000"):
        cells(methods=["kmeans"], bounds_factor=factor)


def test_wider_bounds_are_of_central_cells():
    with pytest.raises(ValueError, match=r"bounds_factor=2.* 1 for a cell with federation"):
        cells(
            methods=["fastlloyd"],
            epsilon=1.0,
            federation={"clients": 2},
            timing=True,
            bounds_factor=2,
        )
