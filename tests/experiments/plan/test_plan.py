"""From configuration to cells: sweeps, profiles, gaps; invalid input is refused beforehand."""

import io
import math

import numpy as np
import pytest
from rich.console import Console

from pkm import datasets
from pkm.arrow import read_parameters
from pkm.catalogue import CONF
from pkm.experiments.backends.backends import run_cells
from pkm.experiments.commands.composition import load_config
from pkm.experiments.config.backend import Backend
from pkm.experiments.config.errors import ConfigurationError
from pkm.experiments.config.groups import choices, read_entry
from pkm.experiments.config.method_parameters import accepts_parameter
from pkm.experiments.fit.execute import execute
from pkm.experiments.fit.inputs import build_method, prepare_cell_data
from pkm.experiments.plan.estimate import (
    count_max_centers,
    estimate_wall_time,
    estimate_without_timings,
    make_estimator,
)
from pkm.experiments.plan.plan import make_plan
from pkm.experiments.reports.overview import describe_gaps, describe_substitutions, show_plan
from pkm.experiments.store.store import Store
from pkm.methods import load_method

PROFILE = {"name": "tiny", "seeds": 2}


def paper(**sweep):
    default = {"datasets": ["iris"], "methods": ["lloyd"]}
    return {"name": "mini", "sweeps": {"first": default | sweep}}


def cells(**sweep):
    return [cell for _, cell in make_plan(paper(**sweep), PROFILE).entries]


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
            for name, cell in plan.entries
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
    entries = make_plan(content, PROFILE).entries
    assert [(sweep, cell.dataset, cell.epsilon) for sweep, cell in entries] == [
        ("first", "wine", 0.1),
        ("first", "wine", 0.5),
    ]
    # A profile that names no sweep changes none.
    entries = make_plan(content, {"name": "other", "seeds": 2}).entries
    assert len(entries) == 3
    # A sweep that the profile does not name is that of the paper.
    content["profiles"]["tiny"].pop("second")
    entries = make_plan(content, PROFILE).entries
    assert [sweep for sweep, _ in entries] == ["first", "first", "second"]


def test_cell_of_two_sweeps_is_planned_once():
    content = paper()
    content["sweeps"]["second"] = content["sweeps"]["first"]
    plan = make_plan(content, PROFILE)
    assert len(plan.entries) == 2
    assert len(plan.cells) == 1


def test_missing_data_are_a_gap(monkeypatch, tmp_path):
    monkeypatch.delenv("PKM_DATA", raising=False)
    monkeypatch.setenv("PKM_CACHE", str(tmp_path))
    content = paper(datasets=["iris", "texture"], methods=["glloyd"], epsilon=[0.1, 1.0])
    plan = make_plan(content, PROFILE, data_dir=str(tmp_path))
    assert {cell.dataset for cell in plan.cells} == {"iris"}
    assert [(gap.dataset, gap.method, gap.epsilon) for gap in plan.gaps] == [
        ("texture", "glloyd", 0.1),
        ("texture", "glloyd", 1.0),
    ]
    missing = plan.list_missing(Store(tmp_path / "results"))
    assert list(missing.columns) == ["sweep", "method", "dataset", "epsilon", "reason"]
    assert missing["reason"].str.contains("texture.dat").sum() == 2
    assert (missing["reason"] == "not run").sum() == 2


def test_substitute_replaces_missing_data(tmp_path, monkeypatch):
    monkeypatch.delenv("PKM_DATA", raising=False)
    monkeypatch.setenv("PKM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "empty").mkdir()
    pattern = {"pattern": "g2-{d}-20", "fallback": "g2-{d}-20-generated", "d": [128, 256]}
    plan = make_plan(paper(datasets=[pattern]), PROFILE, data_dir=str(tmp_path / "empty"))
    assert [cell.dataset for cell in plan.cells] == ["g2-128-20-generated", "g2-256-20-generated"]
    # A substituted set is not a gap, and the report does not count it as missing.
    assert plan.gaps == ()
    missing = plan.list_missing(Store(tmp_path / "results"))
    assert set(missing["reason"]) == {"not run"}
    substitutions = [(pair.dataset, pair.substitute) for pair in plan.substitutions]
    assert substitutions == [
        ("g2-128-20", "g2-128-20-generated"),
        ("g2-256-20", "g2-256-20-generated"),
    ]
    (family,) = describe_substitutions(plan.substitutions)
    expected = "g2-{d}-20 as g2-{d}-20-generated, because the file is not available: "
    assert family == f"{expected}g2-128-20, g2-256-20"


@pytest.fixture
def damaged_mirror(tmp_path, monkeypatch):
    """Return a mirror in which the file of g2-128-20 differs from the published file."""
    monkeypatch.delenv("PKM_DATA", raising=False)
    monkeypatch.setenv("PKM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "mirror" / "g2").mkdir(parents=True)
    (tmp_path / "mirror" / "g2" / "g2-128-20.txt").write_text("1 2\n")
    return str(tmp_path / "mirror")


@pytest.mark.parametrize("options", [{}, {"fallback": "g2-{d}-20-generated"}])
def test_damaged_file_is_refused_not_replaced(damaged_mirror, options):
    pattern = {"pattern": "g2-{d}-20", "d": [128]} | options
    content = paper(datasets=["iris", pattern])
    expected = r"g2-128-20\.txt has SHA-256 .* delete it and fetch it again"
    with pytest.raises(ConfigurationError, match=expected):
        make_plan(content, PROFILE, data_dir=damaged_mirror)


def test_missing_files_of_a_family_share_a_line(tmp_path, monkeypatch):
    monkeypatch.delenv("PKM_DATA", raising=False)
    monkeypatch.setenv("PKM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "empty").mkdir()
    names = [{"pattern": "g2-128-{sd}", "sd": list(range(10, 101, 10))}, "g2-256-20", "femnist"]
    plan = make_plan(paper(datasets=names), PROFILE, data_dir=str(tmp_path / "empty"))
    family, other = describe_gaps(plan.gaps)
    assert family.startswith("g2-128-10, g2-128-20, ")
    assert "and 1 more (11 cells): data set 'NAME' needs the file g2/NAME.txt" in family
    assert other.startswith("femnist (1 cells): data set 'femnist' needs")


@pytest.fixture
def file_entry(tmp_path):
    """Return a sweep's entry for a file with one of three points outside its bounds."""
    (tmp_path / "points.csv").write_text("0.1,0.2\n0.3,0.4\n0.5,7\n")
    return {"name": "file", "path": str(tmp_path / "points.csv"), "bounds": [0, 1]}


def test_points_outside_the_domain_are_counted_or_refused(file_entry):
    (cell,) = cells(datasets=[file_entry], methods=["mean"], k=1)
    assert (execute(cell)["clipped"] == 1).all()
    expected = "points of .* lie outside the declared domain"
    with pytest.raises(ConfigurationError, match=expected):
        cells(datasets=[file_entry], methods=["mean"], k=1, clip=False)
    # Domains of registered sets contain their points, so these are never refused.
    (iris,) = cells(preprocessing="public", clip=False)
    assert (execute(iris)["clipped"] == 0).all()


def test_public_domains_are_the_default(file_entry):
    def choose_preprocessing(**sweep):
        (cell,) = cells(methods=["mean"], k=1, **sweep)
        return cell.preprocessing

    without_bounds = file_entry | {"bounds": None}
    assert choose_preprocessing(datasets=[file_entry]) == "public"
    assert choose_preprocessing(datasets=["iris"], preprocessing=None) == "public"
    assert choose_preprocessing(datasets=[file_entry], preprocessing="public") == "public"

    # Bounds are never ignored.
    expected = r"bounds=\[0, 1\] is not allowed with preprocessing='minmax'"
    with pytest.raises(ConfigurationError, match=expected):
        choose_preprocessing(datasets=[file_entry], preprocessing="minmax")
    # The extremes of a file's points are private, and taken only where they are asked for.
    for preprocessing in ("minmax", "ball"):
        chosen = choose_preprocessing(datasets=[without_bounds], preprocessing=preprocessing)
        assert chosen == preprocessing
    for preprocessing in (None, "public", "range"):
        with pytest.raises(ConfigurationError, match="bounds must be given for a file"):
            choose_preprocessing(datasets=[without_bounds], preprocessing=preprocessing)


def test_range_preprocessing_needs_one_common_range(file_entry):
    metrics = ["inertia", "accuracy"]
    (cell,) = cells(
        datasets=["blobs-200-3-2"],
        methods=["kmeans"],
        preprocessing="range",
        metrics=metrics,
    )
    prepared = prepare_cell_data(cell, None)
    # The box of the centers; points may lie outside.
    assert prepared.domain.tolist() == [[-100.0] * 3, [100.0] * 3]
    rows = execute(cell)
    assert (rows["half_width"] == 100).all()
    assert not rows["private_bounds"].any()
    # In raw units the points have variance 1 in each of three columns around their clusters'
    # centers.
    raw_inertia = rows["inertia"] * rows["half_width"] ** 2
    assert raw_inertia.between(0.5 * 200 * 3, 2 * 200 * 3).all()
    assert (rows["accuracy"] == 1).all()

    # A file with the same bounds in all columns has a range; with different bounds it has none.
    (file_cell,) = cells(datasets=[file_entry], methods=["mean"], k=1, preprocessing="range")
    assert execute(file_cell)["half_width"].tolist() == [0.5] * 2
    bounds_by_column = file_entry | {"bounds": [[0, 0], [1, 7]]}
    expected = "preprocessing='range' needs one range that all columns share"
    for dataset in ("wine", bounds_by_column, "synth-2-2-0"):
        with pytest.raises(ConfigurationError, match=expected):
            cells(datasets=[dataset], k=1, preprocessing="range")

    # Points outside the range may be refused instead of clipped.
    with pytest.raises(ConfigurationError, match="lie outside the declared range"):
        cells(datasets=["blobs-1000-10-8"], preprocessing="range", clip=False)


def test_half_width_is_missing_without_a_common_range():
    (cell,) = cells(datasets=["wine"])
    assert execute(cell)["half_width"].map(math.isnan).all()


def test_k_is_bounded_by_random_sizes():
    n = len(datasets.load("ablation-2-2-0.25").points)
    assert cells(datasets=["ablation-2-2-0.25"], k=n)
    expected = f"k={n + 1} is not allowed: k must be at most n={n}"
    with pytest.raises(ConfigurationError, match=expected):
        cells(datasets=["ablation-2-2-0.25"], k=n + 1)


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


def test_missing_method_is_a_gap():
    missing_method = {"name": "missing", "_target_": "no_such_package.Missing"}
    plan = make_plan(paper(methods=["lloyd", missing_method]), PROFILE)
    assert [cell.method for cell in plan.cells] == ["lloyd"]
    assert plan.gaps[0].method == "missing"
    assert "no_such_package" in plan.gaps[0].reason


@pytest.mark.parametrize(
    "sweep, message",
    [
        ({"methods": ["loyd"]}, "method='loyd' is unknown. Did you mean lloyd"),
        ({"datasets": ["irises"]}, "unknown data set 'irises'; did you mean 'iris'"),
        ({"metrics": ["nicvv"]}, "metric='nicvv' is unknown. Did you mean nicv"),
        ({"preprocessing": "zscore"}, "preprocessing='zscore' is unknown"),
        ({"epsilon": 0}, "epsilon=0 is not allowed"),
        ({"epsilon": [1.0, -1]}, "epsilon=-1 is not allowed"),
        ({"epsilon": []}, "at least one data set, one method, one epsilon"),
        ({"methods": ["glloyd"], "delta": 1.5}, r"delta=1\.5 is not allowed"),
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


def test_estimate_prefers_measured_times(tmp_path):
    store = Store(tmp_path)
    (cell,) = cells()
    assert make_estimator(store)(cell) == (estimate_without_timings(cell), False)
    rows = execute(cell).assign(fit_seconds=3.0, metric_seconds=2.0)
    store.write(cell, rows)
    seconds, measured = make_estimator(store)(cell)
    assert measured
    assert seconds == pytest.approx(2 * 5.0, abs=0.1)
    # Times of a cell without timing do not apply to a timing cell; a limit bounds the estimate.
    (timed,) = cells(timing=True)
    assert make_estimator(store)(timed) == (estimate_without_timings(timed), False)
    (limited,) = cells(time_limit=4)
    assert make_estimator(store)(limited) == (4, True)
    assert make_estimator(store, Backend(time_limit=3))(cell) == (3, True)
    assert make_estimator(store, Backend(time_limit=3))(limited) == (4, True)


def test_results_of_older_versions_give_estimates(tmp_path):
    store = Store(tmp_path)
    (cell,) = cells()
    rows = execute(cell).assign(fit_seconds=3.0, metric_seconds=2.0)
    store.write(cell, rows.drop(columns=["timing", "half_width", "n_centers", "references"]))
    assert make_estimator(store)(cell)[1]


def test_rough_estimate_depends_on_number_of_centers():
    def dpm_cell(**grid):
        (cell,) = cells(methods=[{"method": "dpm", "grid": grid}], epsilon=1.0)
        return cell

    merged = dpm_cell(merge=True)
    shallow = dpm_cell(depth=4)
    default = dpm_cell()
    assert count_max_centers(merged) == 3
    assert count_max_centers(shallow) == 16
    assert count_max_centers(default) == 128

    # The additional time is in proportion to the number of centers beyond the k = 3 merged ones.
    merged_seconds = estimate_without_timings(merged)
    ratio = (estimate_without_timings(default) - merged_seconds) / (
        estimate_without_timings(shallow) - merged_seconds
    )
    assert ratio == pytest.approx((128 - 3) / (16 - 3))

    # Seeds of Lloyd's algorithm are fitted as one batch, which is faster.
    (lloyd,) = cells()
    assert count_max_centers(lloyd) == 3
    assert estimate_without_timings(lloyd) < merged_seconds / 5


def test_timing_cells_are_estimated_in_sequence():
    both = [*cells(), *cells(timing=True)]
    seconds = {cell.key: 6.0 for cell in both}
    assert estimate_wall_time(seconds, both, jobs=2) == 3 + 6


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
@pytest.mark.parametrize("name", [name for name in choices("method") if name != "diffprivlib"])
def test_every_method_file_runs(name):
    target = read_entry("method", name)["_target_"]
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
        assert load_config([f"method={name}"], "run")["method"] == read_entry("method", name)


@pytest.mark.parametrize("group", ["paper", "profile", "backend", "tracking"])
def test_every_file_of_every_group_composes(group):
    assert choices(group)
    for name in choices(group):
        assert load_config([f"{group}={name}"])[group]["name"] == name


def test_external_method_composes():
    method = load_config(["method=package.module:Class"], "run")["method"]
    assert method == {"name": "class", "_target_": "package.module.Class"}


@pytest.mark.parametrize("name", choices("paper"))
@pytest.mark.parametrize(
    "profile",
    ["smoke", *(pytest.param(name, marks=pytest.mark.slow) for name in ("quick", "paper"))],
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
        planned = {sweep for sweep, _ in plan.entries}
        assert planned == set(config.paper.sweeps) - omitted


def test_every_key_of_a_choice_has_a_comment():
    """Names and styles are explained once, in docs/extending.md."""
    explained = ("defaults:", "_target_:", "name:", "label:", "color:", "marker:")
    for path in CONF.rglob("*.yaml"):
        if path.is_relative_to(CONF / "paper"):
            continue
        for line in path.read_text().splitlines():
            if line and not line.startswith(("#", "  -", *explained)):
                assert "#" in line, f"{path.name}: {line}"


def test_wider_bounds_change_the_domain_and_not_the_units():
    request = {"datasets": ["planted-600-2-4-0.05"], "methods": ["kmeans"], "metrics": ["nicv"]}
    (plain,) = cells(**request)
    same, wide = cells(**request, bounds_factor=[1, 8])
    assert same.key == plain.key != wide.key
    prepared = prepare_cell_data(wide, None)
    np.testing.assert_array_equal(prepared.method_domain, [[-8, -8], [8, 8]])
    np.testing.assert_array_equal(prepared.domain, [[-1, -1], [1, 1]])
    assert np.abs(8 * prepared.method_points.rows - prepared.points.rows).max() <= 4.5
    rows = execute(wide)
    assert (rows["bounds_factor"] == 8).all()
    assert (execute(plain)["bounds_factor"] == 1).all()
    # Without noise the same centers are found, on a grid eight times as coarse.
    np.testing.assert_allclose(rows["nicv"], execute(plain)["nicv"], rtol=1e-3)


def test_noise_grows_with_the_bounds():
    """A pure method's noise is in half-widths of what it gets: the same centers, as far apart."""
    request = {"datasets": ["planted-600-2-4-0.05"], "methods": ["sulloyd"], "epsilon": 1.0}
    tight, wide = (execute(cell) for cell in cells(**request, bounds_factor=[1, 100]))
    assert wide["nicv"].median() > 10 * tight["nicv"].median()
    np.testing.assert_allclose(wide["epsilon_spent"], tight["epsilon_spent"])


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


def test_rows_describe_the_cell():
    (cell,) = cells(
        methods=["fastlloyd_published"],
        epsilon=0.5,
        metrics=["nicv", "silhouette"],
        datasets=["wine"],
        preprocessing="minmax",
    )
    rows = execute(cell)
    first = rows.iloc[0]
    assert (first["n"], first["d"], first["k"]) == (178, 13, 3)
    assert (first["variant"], first["private_bounds"]) == ("published", True)
    parameters = read_parameters(rows)[0]
    assert parameters["alpha"] == 0.8
    assert "variant" not in parameters
    assert first["data"] == datasets.fingerprint("wine")
    assert first["epsilon_spent"] + first["epsilon_unspent"] == pytest.approx(0.5)
    assert (first["n_centers"], first["timing"], list(first["references"])) == (3, False, [])
    assert dict(cell.params)["variant"] == "published"


def test_rows_hold_the_sizes_of_references(tmp_path, monkeypatch):
    monkeypatch.setenv("PKM_CACHE", str(tmp_path))
    (cell,) = cells(
        datasets=["blobs-300-2-3"], preprocessing="range", metrics=["nicv", "kmeans_distance"]
    )
    rows = execute(cell)
    sizes = rows["references"].iloc[0]
    assert len(sizes) == 20
    assert min(sizes) >= 2
    assert rows["kmeans_distance"].between(0, 2).all()


def test_fit_batch_receives_the_domain_in_raw_units(tmp_path, monkeypatch):
    (tmp_path / "recording.py").write_text(
        "import numpy as np\nfrom pkm.methods import PrivateKMeans, Run\n"
        "from pkm.privacy import NO_CLAIM\n\n\n"
        "class Recording(PrivateKMeans):\n"
        "    claims = {'sound': NO_CLAIM}\n"
        "    calls = []\n\n"
        "    def __init__(self, n_clusters=8):\n"
        "        self.n_clusters = n_clusters\n\n"
        "    def fit_batch(self, points, seeds, domain=None, **options):\n"
        "        self.calls.append((tuple(seeds), domain.tolist()))\n"
        "        n_centers = np.array([1 + seed for seed in seeds])\n"
        "        centers = np.zeros((len(seeds), n_centers.max(), points.shape[1]), np.int64)\n"
        "        for r, seed in enumerate(seeds):\n"
        "            centers[r, : seed + 1] += 1000 * np.arange(1, seed + 2)[:, None]\n"
        "            centers[r, seed + 1 :] = 1000\n"
        "        return Run(centers, 0, None, tuple(seeds), n_centers)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import recording

    metrics = ["nicv", "n_centers", "nonempty_centers", "empty_clusters"]
    sweep = {
        "datasets": ["blobs-200-3-2"],
        "methods": [{"name": "recording", "_target_": "recording.Recording"}],
        "preprocessing": "range",
        "metrics": metrics,
        "seeds": [0, 2, 1],
    }

    def execute_and_check(timing, batches):
        recording.Recording.calls.clear()
        (cell,) = cells(**sweep, timing=timing)
        rows = execute(cell)
        box = [[-100.0] * 3, [100.0] * 3]
        assert recording.Recording.calls == [(batch, box) for batch in batches]
        # Each seed releases a different number of centers.
        assert rows["n_centers"].tolist() == [1, 3, 2]
        assert rows["nonempty_centers"].le(rows["n_centers"]).all()
        return rows

    rows = execute_and_check(timing=False, batches=[(0, 2, 1)])
    timed_rows = execute_and_check(timing=True, batches=[(0,), (0,), (2,), (1,)])
    for name in metrics:
        np.testing.assert_array_equal(rows[name], timed_rows[name])
