"""From configuration to cells: sweeps, profiles, gaps, and bad input refused before anything runs."""

import pytest

import datasets
from experiments.cell import freeze
from experiments.configuration import ConfigurationError, choices, load, method_entry
from experiments.execute import build, execute
from experiments.plan import estimator, gap_lines, make_plan, rough_seconds, stand_in_lines
from experiments.store import Store

PROFILE = {"name": "tiny", "seeds": 2}


def paper(**sweep):
    return {"name": "mini", "sweeps": {"one": {"datasets": ["iris"], "methods": ["lloyd"]} | sweep}}


def cells(**sweep):
    return [cell for _, cell in make_plan(paper(**sweep), PROFILE).entries]


def test_private_methods_run_once_per_epsilon_and_others_once():
    found = cells(methods=["lloyd", "fastlloyd"], epsilon=[0.1, 1.0])
    assert [(cell.method, cell.epsilon) for cell in found] == [("lloyd", None), ("fastlloyd", 0.1), ("fastlloyd", 1.0)]
    assert {cell.seeds for cell in found} == {(0, 1)}
    assert {cell.k for cell in found} == {3}


def test_delta_goes_to_methods_that_have_one():
    found = cells(methods=["lloyd", "sulloyd", "glloyd"], epsilon=1.0, delta=1e-5)
    assert [cell.delta for cell in found] == [None, None, 1e-5]


def test_grid_makes_every_combination_under_one_name():
    found = cells(methods=[{"method": "fastlloyd", "grid": {"alpha": [0.4, 0.8], "radius_clipping": [True, False]}}])
    assert {cell.method for cell in found} == {"fastlloyd"}
    values = {(dict(cell.params)["alpha"], dict(cell.params)["radius_clipping"]) for cell in found}
    assert values == {(0.4, True), (0.4, False), (0.8, True), (0.8, False)}


def test_pattern_makes_every_combination():
    found = cells(datasets=[{"pattern": "synth-{k}-{d}-0", "k": [2, 4], "d": [2, 8]}])
    assert [cell.dataset for cell in found] == ["synth-2-2-0", "synth-2-8-0", "synth-4-2-0", "synth-4-8-0"]
    assert [cell.k for cell in found] == [2, 2, 4, 4]


def test_profile_changes_its_own_keys_only():
    content = paper(epsilon=[0.1, 0.5], methods=["glloyd"])
    content["sweeps"]["two"] = {"datasets": ["wine"], "methods": ["lloyd"]}
    content["profiles"] = {"tiny": {"one": {"datasets": ["wine"]}, "two": None}}
    entries = make_plan(content, PROFILE).entries
    assert [(sweep, cell.dataset, cell.epsilon) for sweep, cell in entries] == [
        ("one", "wine", 0.1),
        ("one", "wine", 0.5),
    ]
    # A profile that names no sweep changes none.
    assert len(make_plan(content, {"name": "other", "seeds": 2}).entries) == 3
    # One that it does not name stays as the paper has it.
    content["profiles"]["tiny"].pop("two")
    assert [sweep for sweep, _ in make_plan(content, PROFILE).entries] == ["one", "one", "two"]


def test_cell_that_two_sweeps_share_is_one_cell():
    content = paper()
    content["sweeps"]["two"] = content["sweeps"]["one"]
    plan = make_plan(content, PROFILE)
    assert len(plan.entries) == 2
    assert len(plan.cells) == 1


def test_data_that_are_not_at_hand_are_a_gap_and_the_rest_goes_on(monkeypatch, tmp_path):
    monkeypatch.delenv("PKM_DATA", raising=False)
    monkeypatch.setenv("PKM_CACHE", str(tmp_path))
    content = paper(datasets=["iris", "mnist"], methods=["glloyd"], epsilon=[0.1, 1.0])
    plan = make_plan(content, PROFILE, mirror=str(tmp_path))
    assert {cell.dataset for cell in plan.cells} == {"iris"}
    assert [(gap.dataset, gap.method, gap.epsilon) for gap in plan.gaps] == [
        ("mnist", "glloyd", 0.1),
        ("mnist", "glloyd", 1.0),
    ]
    missing = plan.missing(Store(tmp_path / "results"))
    assert list(missing.columns) == ["sweep", "method", "dataset", "epsilon", "reason"]
    assert missing["reason"].str.contains("t10k").sum() == 2
    assert (missing["reason"] == "not run").sum() == 2


def test_substitute_takes_the_place_of_data_that_are_not_at_hand(tmp_path, monkeypatch):
    monkeypatch.delenv("PKM_DATA", raising=False)
    monkeypatch.setenv("PKM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "empty").mkdir()
    pattern = {"pattern": "g2-{d}-20", "otherwise": "g2-{d}-20-generated", "d": [2, 4]}
    plan = make_plan(paper(datasets=[pattern]), PROFILE, mirror=str(tmp_path / "empty"))
    assert [cell.dataset for cell in plan.cells] == ["g2-2-20-generated", "g2-4-20-generated"]
    # Nothing is lacking, and the report is not told so.
    assert plan.gaps == ()
    assert set(plan.missing(Store(tmp_path / "results"))["reason"]) == {"not run"}
    assert [(found.dataset, found.stand_in) for found in plan.substitutions] == [
        ("g2-2-20", "g2-2-20-generated"),
        ("g2-4-20", "g2-4-20-generated"),
    ]
    family = "g2-{d}-20 as g2-{d}-20-generated, because the file is not at hand: g2-2-20, g2-4-20"
    assert stand_in_lines(plan.substitutions) == [family]


@pytest.fixture
def damaged(tmp_path, monkeypatch):
    """Return a mirror in which the file of g2-2-20 is not the published one."""
    monkeypatch.delenv("PKM_DATA", raising=False)
    monkeypatch.setenv("PKM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "mirror" / "g2").mkdir(parents=True)
    (tmp_path / "mirror" / "g2" / "g2-2-20.txt").write_text("1 2\n")
    return str(tmp_path / "mirror")


@pytest.mark.parametrize("more", [{}, {"otherwise": "g2-{d}-20-generated"}])
def test_damaged_file_stops_the_plan_and_is_never_replaced(damaged, more):
    with pytest.raises(ConfigurationError, match=r"g2-2-20\.txt has SHA-256 .* delete it and fetch it again"):
        make_plan(paper(datasets=["iris", {"pattern": "g2-{d}-20", "d": [2]} | more]), PROFILE, mirror=damaged)


def test_one_line_tells_of_a_whole_family_of_missing_files(tmp_path, monkeypatch):
    monkeypatch.delenv("PKM_DATA", raising=False)
    monkeypatch.setenv("PKM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "empty").mkdir()
    names = [{"pattern": "g2-2-{sd}", "sd": list(range(10, 101, 10))}, "g2-4-20", "mnist"]
    plan = make_plan(paper(datasets=names), PROFILE, mirror=str(tmp_path / "empty"))
    family, mnist = gap_lines(plan.gaps)
    assert family.startswith("g2-2-10, g2-2-20, ")
    assert "and 1 more (11 cells): data set 'NAME' needs the file g2/NAME.txt" in family
    assert mnist.startswith("mnist (1 cells): data set 'mnist' needs")


@pytest.fixture
def own(tmp_path):
    """Return a sweep's entry for a file with one of its three points outside its bounds."""
    (tmp_path / "points.csv").write_text("0.1,0.2\n0.3,0.4\n0.5,7\n")
    return {"name": "file", "path": str(tmp_path / "points.csv"), "bounds": [0, 1]}


def test_points_outside_the_domain_are_counted_or_refused_before_anything_runs(own):
    (cell,) = cells(datasets=[own], methods=["mean"], k=1)
    assert (execute(cell)["clipped"] == 1).all()
    with pytest.raises(ConfigurationError, match=r"1 of 3 points .* lie outside the declared domain"):
        cells(datasets=[own], methods=["mean"], k=1, clip=False)
    # Registered domains hold their points, so refusing costs nothing there.
    (iris,) = cells(preprocessing="public", clip=False)
    assert (execute(iris)["clipped"] == 0).all()


def test_bounds_decide_the_preprocessing_and_are_never_passed_over(own):
    def scaled(**sweep):
        (cell,) = cells(methods=["mean"], k=1, **sweep)
        return cell.preprocessing

    assert scaled(datasets=[own]) == "public"
    assert scaled(datasets=[own | {"bounds": None}]) == "minmax"
    assert scaled(datasets=["iris"], preprocessing=None) == "minmax"
    assert scaled(datasets=[own], preprocessing="public") == "public"
    with pytest.raises(ConfigurationError, match=r"bounds=\[0, 1\] is not allowed with preprocessing='minmax'"):
        scaled(datasets=[own], preprocessing="minmax")
    with pytest.raises(ConfigurationError, match="needs a public domain"):
        scaled(datasets=[own | {"bounds": None}], preprocessing="public")


def test_sizes_that_are_drawn_bound_k_too():
    n = len(datasets.load("ablation-2-2-0.25").points)
    assert cells(datasets=["ablation-2-2-0.25"], k=n)
    with pytest.raises(ConfigurationError, match=f"k={n + 1} is not allowed: k must be at most n={n}"):
        cells(datasets=["ablation-2-2-0.25"], k=n + 1)


def test_rows_bear_the_names_of_the_plan(own, tmp_path):
    twin = tmp_path / "twin.csv"
    twin.write_bytes((tmp_path / "points.csv").read_bytes())
    store = Store(tmp_path / "results")
    (cell,) = cells(datasets=[own], methods=["mean"], k=1)
    store.write(cell, execute(cell).assign(git="", finished=0.0))

    def names(*entries):
        return list(make_plan(paper(datasets=list(entries), methods=["mean"], k=1), PROFILE).rows(store)["dataset"])

    assert names(own) == ["points"] * 2
    assert names(own | {"path": str(twin)}) == ["twin"] * 2
    assert names(own, own | {"path": str(twin)}) == ["points"] * 2 + ["twin"] * 2


def test_method_that_cannot_be_found_is_a_gap():
    plan = make_plan(paper(methods=["lloyd", {"name": "lost", "_target_": "no_such_package.Lost"}]), PROFILE)
    assert [cell.method for cell in plan.cells] == ["lloyd"]
    assert plan.gaps[0].method == "lost"
    assert "no_such_package" in plan.gaps[0].reason


@pytest.mark.parametrize(
    "sweep, message",
    [
        ({"methods": ["loyd"]}, "method='loyd' is unknown. Did you mean lloyd"),
        ({"datasets": ["irises"]}, "unknown data set 'irises'; known are iris"),
        ({"metrics": ["nicvv"]}, "metric='nicvv' is unknown. Did you mean nicv"),
        ({"preprocessing": "zscore"}, "preprocessing='zscore' is unknown"),
        ({"epsilon": 0}, "epsilon=0 is not allowed"),
        ({"epsilon": [1.0, -1]}, "epsilon=-1 is not allowed"),
        ({"epsilon": []}, "at least one data set, one method and one epsilon"),
        ({"methods": ["glloyd"], "delta": 1.5}, r"delta=1\.5 is not allowed"),
        ({"k": 0}, "k=0 is not allowed"),
        ({"k": 151}, "k=151 is not allowed: k must be at most n=150"),
        ({"seeds": 0}, "seeds=0 is not allowed"),
        ({"seeds": [1, 1]}, r"seeds=\(1, 1\) is not allowed"),
        ({"speed": 3}, "sweep one: key='speed' is unknown"),
        ({"methods": [{"method": "lloyd", "grid": {"alpha": [1]}}]}, "lloyd has no parameter alpha: known are"),
        ({"methods": [{"method": "fastlloyd", "grid": {"alpha": [-1]}}]}, "alpha=-1"),
        ({"methods": [{"method": "lloyd", "grid": {"random_state": [1]}}]}, "no parameter random_state"),
        ({"datasets": [{"pattern": "g2-{d}-{sd}", "d": [2]}]}, "has a place without values"),
        ({"datasets": [{"name": "file", "path": "nowhere.csv"}]}, "k=None|nowhere.csv"),
    ],
)
def test_wrong_configuration_is_refused(sweep, message):
    with pytest.raises(ConfigurationError, match=message):
        plan = make_plan(paper(**sweep), PROFILE)
        # A file that does not exist is a gap, which the entry point for single runs refuses.
        raise ConfigurationError(plan.gaps[0].reason)


def test_profile_of_an_unknown_sweep_is_refused():
    content = paper() | {"profiles": {"tiny": {"onne": {}}}}
    with pytest.raises(ConfigurationError, match="Did you mean one"):
        make_plan(content, PROFILE)


def test_estimate_prefers_what_was_measured(tmp_path):
    store, (cell,) = Store(tmp_path), cells()
    assert estimator(store)(cell) == (rough_seconds(cell), False)
    rows = execute(cell).assign(fit_seconds=3.0, metric_seconds=2.0)
    store.write(cell, rows)
    seconds, measured = estimator(store)(cell)
    assert measured
    assert seconds == pytest.approx(2 * 5.0, abs=0.1)


@pytest.mark.parametrize("name", [name for name in choices("method") if name != "external"])
def test_every_method_file_runs(name):
    private = "epsilon" in build.__globals__["parameters"](method_entry(name)["_target_"])
    (cell,) = cells(methods=[name], epsilon=1.0)
    rows = execute(cell)
    assert list(rows["seed"]) == [0, 1]
    assert rows["method"].unique() == [name]
    assert rows["nicv"].between(0, 10).all()
    assert (rows["epsilon_spent"] <= 1.0 + 1e-6).all() == private


@pytest.mark.parametrize("group", ["paper", "method", "dataset", "profile", "backend", "tracking"])
def test_every_file_of_every_group_composes(group):
    assert choices(group)
    for name in choices(group):
        given = [f"{group}={name}"]
        if name == "external":
            given.append("method._target_=package.Class")
        assert load(given)[group]["name"] == (None if name == "external" else "iris" if name == "registered" else name)


@pytest.mark.parametrize("name", choices("paper"))
@pytest.mark.parametrize("profile", choices("profile"))
def test_every_paper_can_be_planned_at_every_size(name, profile, monkeypatch, tmp_path):
    monkeypatch.delenv("PKM_DATA", raising=False)
    monkeypatch.setenv("PKM_CACHE", str(tmp_path))
    config = load([f"paper={name}", f"profile={profile}", "data=null"])
    plan = make_plan(config.paper, config.profile)
    assert plan.cells
    if profile == "smoke":
        # The smallest size needs nothing that is not on the machine.
        assert not plan.gaps
        left_out = {sweep for sweep, change in config.paper.profiles.smoke.items() if change is None}
        assert {sweep for sweep, _ in plan.entries} == set(config.paper.sweeps) - left_out


def test_every_key_of_every_file_has_a_comment():
    from experiments.configuration import CONF

    for path in CONF.rglob("*.yaml"):
        if path.parent.name == "paper":
            continue
        for line in path.read_text().splitlines():
            if line and not line.startswith(("#", "  -", "defaults:", "hydra:")):
                assert "#" in line, f"{path.name}: {line}"


def test_rows_say_what_was_run():
    (cell,) = cells(methods=["fastlloyd"], epsilon=0.5, metrics=["nicv", "silhouette"], datasets=["wine"])
    rows = execute(cell)
    first = rows.iloc[0]
    assert (first["n"], first["d"], first["k"], first["variant"], first["private_bounds"]) == (
        178,
        13,
        3,
        "published",
        True,
    )
    assert '"alpha":0.8' in first["params"]
    assert "variant" not in first["params"]
    assert first["data"] == datasets.fingerprint("wine")
    assert first["epsilon_spent"] + first["epsilon_unspent"] == pytest.approx(0.5)
    assert dict(cell.params)["variant"] == "published"
    assert freeze(["a", {"b": 1}]) == ("a", (("b", 1),))
