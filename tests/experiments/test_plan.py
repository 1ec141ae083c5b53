"""From configuration to cells: sweeps, profiles, gaps; bad input is refused beforehand."""

import io
import json
import math

import numpy as np
import pytest
from rich.console import Console

from pkm import datasets
from pkm.experiments.backends import Backend, run_cells
from pkm.experiments.cell import to_hashable
from pkm.experiments.configuration import ConfigurationError, choices, load, method_entry
from pkm.experiments.estimate import estimator, max_centers, rough_seconds, wall_seconds
from pkm.experiments.execute import execute
from pkm.experiments.overview import gap_lines, show, substitution_lines
from pkm.experiments.plan import make_plan
from pkm.experiments.prepared import accepts, build, prepare
from pkm.experiments.store import Store
from pkm.methods import load_method

PROFILE = {"name": "tiny", "seeds": 2}


def paper(**sweep):
    return {"name": "mini", "sweeps": {"one": {"datasets": ["iris"], "methods": ["lloyd"]} | sweep}}


def cells(**sweep):
    return [cell for _, cell in make_plan(paper(**sweep), PROFILE).entries]


def test_private_methods_run_once_per_epsilon_and_others_once():
    found = cells(methods=["lloyd", "fastlloyd"], epsilon=[0.1, 1.0])
    assert [(cell.method, cell.epsilon) for cell in found] == [
        ("lloyd", None),
        ("fastlloyd", 0.1),
        ("fastlloyd", 1.0),
    ]
    assert {cell.seeds for cell in found} == {(0, 1)}
    assert {cell.k for cell in found} == {3}


def test_delta_goes_to_methods_that_have_one():
    found = cells(methods=["lloyd", "sulloyd", "glloyd"], epsilon=1.0, delta=1e-5)
    assert [cell.delta for cell in found] == [None, None, 1e-5]


def test_sweep_may_have_its_own_budget_seeds_and_limits():
    content = paper(methods=["glloyd"]) | {"epsilon": [0.1, 1.0]}
    own = {"epsilon": 0.75, "delta": 1e-7, "seeds": 4, "timing": True, "time_limit": 600}
    content["sweeps"]["two"] = {"datasets": ["iris"], "methods": ["glloyd", "lloyd"]} | own
    content["profiles"] = {"tiny": {"two": {"seeds": [5], "time_limit": 30, "epsilon": [0.5]}}}

    def of(sweep, profile):
        plan = make_plan(content, {"name": profile, "seeds": 2})
        return [
            (cell.method, cell.epsilon, cell.delta, cell.seeds, cell.timing, cell.time_limit)
            for name, cell in plan.entries
            if name == sweep
        ]

    assert of("one", "tiny") == [
        ("glloyd", epsilon, "auto", (0, 1), False, None) for epsilon in (0.1, 1.0)
    ]
    assert of("two", "other") == [
        ("glloyd", 0.75, 1e-7, (0, 1, 2, 3), True, 600),
        ("lloyd", None, None, (0, 1, 2, 3), True, 600),
    ]
    assert of("two", "tiny") == [
        ("glloyd", 0.5, 1e-7, (5,), True, 30),
        ("lloyd", None, None, (5,), True, 30),
    ]


def test_grid_makes_every_combination_under_one_name():
    found = cells(
        methods=[
            {"method": "fastlloyd", "grid": {"alpha": [0.4, 0.8], "radius_clipping": [True, False]}}
        ]
    )
    assert {cell.method for cell in found} == {"fastlloyd"}
    values = {(dict(cell.params)["alpha"], dict(cell.params)["radius_clipping"]) for cell in found}
    assert values == {(0.4, True), (0.4, False), (0.8, True), (0.8, False)}


def test_pattern_makes_every_combination():
    found = cells(datasets=[{"pattern": "synth-{k}-{d}-0", "k": [2, 4], "d": [2, 8]}])
    assert [cell.dataset for cell in found] == [
        "synth-2-2-0",
        "synth-2-8-0",
        "synth-4-2-0",
        "synth-4-8-0",
    ]
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
    pattern = {"pattern": "g2-{d}-20", "fallback": "g2-{d}-20-generated", "d": [2, 4]}
    plan = make_plan(paper(datasets=[pattern]), PROFILE, mirror=str(tmp_path / "empty"))
    assert [cell.dataset for cell in plan.cells] == ["g2-2-20-generated", "g2-4-20-generated"]
    # Nothing is lacking, and the report is not told so.
    assert plan.gaps == ()
    assert set(plan.missing(Store(tmp_path / "results"))["reason"]) == {"not run"}
    assert [(found.dataset, found.substitute) for found in plan.substitutions] == [
        ("g2-2-20", "g2-2-20-generated"),
        ("g2-4-20", "g2-4-20-generated"),
    ]
    family = "g2-{d}-20 as g2-{d}-20-generated, because the file is not available: g2-2-20, g2-4-20"
    assert substitution_lines(plan.substitutions) == [family]


@pytest.fixture
def damaged(tmp_path, monkeypatch):
    """Return a mirror in which the file of g2-2-20 is not the published one."""
    monkeypatch.delenv("PKM_DATA", raising=False)
    monkeypatch.setenv("PKM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "mirror" / "g2").mkdir(parents=True)
    (tmp_path / "mirror" / "g2" / "g2-2-20.txt").write_text("1 2\n")
    return str(tmp_path / "mirror")


@pytest.mark.parametrize("more", [{}, {"fallback": "g2-{d}-20-generated"}])
def test_damaged_file_stops_the_plan_and_is_never_replaced(damaged, more):
    with pytest.raises(
        ConfigurationError, match=r"g2-2-20\.txt has SHA-256 .* delete it and fetch it again"
    ):
        make_plan(
            paper(datasets=["iris", {"pattern": "g2-{d}-20", "d": [2]} | more]),
            PROFILE,
            mirror=damaged,
        )


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
    with pytest.raises(
        ConfigurationError, match=r"1 of 3 points .* lie outside the declared domain"
    ):
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
    with pytest.raises(
        ConfigurationError, match=r"bounds=\[0, 1\] is not allowed with preprocessing='minmax'"
    ):
        scaled(datasets=[own], preprocessing="minmax")
    with pytest.raises(ConfigurationError, match="needs a public domain"):
        scaled(datasets=[own | {"bounds": None}], preprocessing="public")


def test_one_range_for_all_columns(own):
    (cell,) = cells(
        datasets=["blobs-200-3-2"], preprocessing="range", metrics=["inertia", "accuracy"]
    )
    prepared = prepare(cell, None)
    # The box of the centers, which the points may leave.
    assert prepared.domain.tolist() == [[-100.0] * 3, [100.0] * 3]
    rows = execute(cell)
    assert (rows["half_width"] == 100).all() and not rows["private_bounds"].any()
    # In raw units the points have variance 1 in each of three columns around their clusters'
    # centers.
    raw = rows["inertia"] * rows["half_width"] ** 2
    assert raw.between(0.5 * 200 * 3, 2 * 200 * 3).all()
    assert (rows["accuracy"] == 1).all()
    # A file whose bounds are the same in all columns has a range; columns with bounds of their own
    # have none.
    (file,) = cells(datasets=[own], methods=["mean"], k=1, preprocessing="range")
    assert execute(file)["half_width"].tolist() == [0.5] * 2
    for one in ("wine", own | {"bounds": [[0, 0], [1, 7]]}, "synth-2-2-0"):
        with pytest.raises(
            ConfigurationError, match="preprocessing='range' needs one range that all columns share"
        ):
            cells(datasets=[one], k=1, preprocessing="range")
    # Points may be refused instead of clipped here too.
    with pytest.raises(ConfigurationError, match="lie outside the declared range"):
        cells(datasets=["blobs-1000-10-8"], preprocessing="range", clip=False)


def test_columns_without_one_range_have_no_half_width():
    (cell,) = cells(datasets=["wine"])
    assert execute(cell)["half_width"].map(math.isnan).all()


def test_sizes_that_are_drawn_bound_k_too():
    n = len(datasets.load("ablation-2-2-0.25").points)
    assert cells(datasets=["ablation-2-2-0.25"], k=n)
    with pytest.raises(
        ConfigurationError, match=f"k={n + 1} is not allowed: k must be at most n={n}"
    ):
        cells(datasets=["ablation-2-2-0.25"], k=n + 1)


def test_rows_bear_the_names_of_the_plan(own, tmp_path):
    twin = tmp_path / "twin.csv"
    twin.write_bytes((tmp_path / "points.csv").read_bytes())
    store = Store(tmp_path / "results")
    (cell,) = cells(datasets=[own], methods=["mean"], k=1)
    store.write(cell, execute(cell).assign(git="", finished=0.0))

    def names(*entries):
        return list(
            make_plan(paper(datasets=list(entries), methods=["mean"], k=1), PROFILE).rows(store)[
                "dataset"
            ]
        )

    assert names(own) == ["points"] * 2
    assert names(own | {"path": str(twin)}) == ["twin"] * 2
    assert names(own, own | {"path": str(twin)}) == ["points"] * 2 + ["twin"] * 2


def test_method_that_cannot_be_found_is_a_gap():
    plan = make_plan(
        paper(methods=["lloyd", {"name": "lost", "_target_": "no_such_package.Lost"}]), PROFILE
    )
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
        ({"epsilon": []}, "at least one data set, one method, one epsilon"),
        ({"methods": ["glloyd"], "delta": 1.5}, r"delta=1\.5 is not allowed"),
        ({"k": 0}, "k=0 is not allowed"),
        ({"k": 151}, "k=151 is not allowed: k must be at most n=150"),
        ({"seeds": 0}, "seeds=0 is not allowed"),
        ({"seeds": [1, 1]}, r"seeds=\(1, 1\) is not allowed"),
        ({"timing": "yes"}, "timing='yes' is not allowed: timing must be true or false"),
        (
            {"time_limit": -1},
            "time_limit=-1 is not allowed: time_limit must be a number of seconds above 0",
        ),
        ({"speed": 3}, "sweep one: key='speed' is unknown"),
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
    store = Store(tmp_path)
    (cell,) = cells()
    assert estimator(store)(cell) == (rough_seconds(cell), False)
    rows = execute(cell).assign(fit_seconds=3.0, metric_seconds=2.0)
    store.write(cell, rows)
    seconds, measured = estimator(store)(cell)
    assert measured
    assert seconds == pytest.approx(2 * 5.0, abs=0.1)
    # A timing cell is not like it, and no cell outlasts its limit.
    (timed,) = cells(timing=True)
    assert estimator(store)(timed) == (rough_seconds(timed), False)
    (limited,) = cells(time_limit=4)
    assert estimator(store)(limited) == (4, True)
    assert estimator(store, Backend(time_limit=3))(cell) == (3, True)
    assert estimator(store, Backend(time_limit=3))(limited) == (4, True)


def test_results_of_older_versions_still_give_estimates(tmp_path):
    store = Store(tmp_path)
    (cell,) = cells()
    rows = execute(cell).assign(fit_seconds=3.0, metric_seconds=2.0)
    store.write(cell, rows.drop(columns=["timing", "half_width", "n_centers", "references"]))
    assert estimator(store)(cell)[1]


def test_rough_model_knows_how_many_centers_are_released():
    def one(**grid):
        (cell,) = cells(methods=[{"method": "dpm", "grid": grid}], epsilon=1.0)
        return cell

    assert [max_centers(one(**grid)) for grid in ({}, {"depth": 4}, {"merge": True})] == [
        128,
        16,
        3,
    ]
    # What more centers add is in proportion to their number beyond the k = 3 that the merged ones
    # are.
    merged, many, most = (
        rough_seconds(one(**grid)) for grid in ({"merge": True}, {"depth": 4}, {})
    )
    assert (most - merged) / (many - merged) == pytest.approx((128 - 3) / (16 - 3))
    (plain,) = cells()
    assert (
        max_centers(plain) == 3 and rough_seconds(plain) < merged / 5
    )  # batched: no fit of its own for every seed


def test_timing_cells_take_their_time_one_after_another():
    both = [*cells(), *cells(timing=True)]
    assert wall_seconds({cell.key: 6.0 for cell in both}, both, jobs=2) == 3 + 6


@pytest.mark.slow
def test_cell_over_its_time_limit_is_failed_with_that_reason(tmp_path, monkeypatch):
    (tmp_path / "too_slow.py").write_text(
        "import time\nfrom pkm.methods.baselines import DataMean\n\n\n"
        "class TooSlow(DataMean):\n    def cluster(self, curator):\n        time.sleep(60)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    entry = {"name": "slow", "_target_": "too_slow.TooSlow"}
    plan = make_plan(paper(methods=[entry], time_limit=0.5), PROFILE)
    store = Store(tmp_path / "results")
    run_cells(plan.cells, store, Backend())
    (reason,) = plan.missing(store)["reason"]
    assert reason == "failed: TimeLimitExceeded: time limit of 0.5 s reached"
    told = Console(file=io.StringIO(), width=160)
    show(plan, store, Backend(), told)
    assert "1 of 1 cells to run" in told.file.getvalue()


@pytest.mark.parametrize("name", [name for name in choices("method") if name != "external"])
def test_every_method_file_runs(name):
    target = method_entry(name)["_target_"]
    private = accepts(target, "epsilon")
    central = hasattr(load_method(target), "fit_with")
    # Published versions of the DPM paper's methods know one range for all columns only.
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
        # What is declared may be more than epsilon where a published method overspends.
        declared = build(cell).budget(300, 2).epsilon
        assert rows["epsilon_spent"].max() <= declared * (1 + 1e-6)
        assert declared <= 1.0 or cell.variant == "published"
    assert rows["n_centers"].between(1, max_centers(cell)).all()


# Those of the group of methods are run from the command line in test_cli.py.
@pytest.mark.parametrize("group", ["paper", "dataset", "profile", "backend", "tracking"])
def test_every_file_of_every_group_composes(group):
    assert choices(group)
    for name in choices(group):
        composed = load([f"{group}={name}"])[group]["name"]
        assert composed == ("iris" if name == "registered" else name)


def test_external_method_composes():
    given = ["method=external", "method._target_=package.Class"]
    assert load(given)["method"]["name"] is None


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
        left_out = {
            sweep for sweep, change in config.paper.profiles.smoke.items() if change is None
        }
        assert {sweep for sweep, _ in plan.entries} == set(config.paper.sweeps) - left_out


def test_every_key_of_every_file_has_a_comment():
    from pkm.experiments.configuration import CONF

    for path in CONF.rglob("*.yaml"):
        if path.parent.name == "paper":
            continue
        for line in path.read_text().splitlines():
            if line and not line.startswith(("#", "  -", "defaults:", "hydra:")):
                assert "#" in line, f"{path.name}: {line}"


def test_rows_say_what_was_run():
    (cell,) = cells(
        methods=["fastlloyd"], epsilon=0.5, metrics=["nicv", "silhouette"], datasets=["wine"]
    )
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
    assert (first["n_centers"], first["timing"], first["references"]) == (3, False, "[]")
    assert dict(cell.params)["variant"] == "published"
    assert to_hashable(["a", {"b": 1}]) == ("a", (("b", 1),))


def test_rows_hold_what_the_references_are(tmp_path, monkeypatch):
    monkeypatch.setenv("PKM_CACHE", str(tmp_path))
    (cell,) = cells(
        datasets=["blobs-300-2-3"], preprocessing="range", metrics=["nicv", "kmeans_distance"]
    )
    rows = execute(cell)
    sizes = json.loads(rows["references"].iloc[0])
    assert len(sizes) == 20 and min(sizes) >= 2
    assert rows["kmeans_distance"].between(0, 2).all()


def test_method_is_told_the_bounds_in_raw_units_and_may_release_fewer_centers(
    tmp_path, monkeypatch
):
    (tmp_path / "curious.py").write_text(
        "import numpy as np\nfrom pkm.methods.base import PrivateKMeans, Run\n"
        "from pkm.privacy import NO_CLAIM\n\n\n"
        "class Curious(PrivateKMeans):\n"
        "    claims = {'sound': NO_CLAIM}\n"
        "    asked = []\n\n"
        "    def __init__(self, n_clusters=8):\n"
        "        self.n_clusters = n_clusters\n\n"
        "    def fit_batch(self, points, seeds, domain=None):\n"
        "        self.asked.append((tuple(seeds), domain.tolist()))\n"
        "        own = np.array([1 + seed for seed in seeds])\n"
        "        centers = np.zeros((len(seeds), own.max(), points.shape[1]), np.int64)\n"
        "        for r, seed in enumerate(seeds):\n"
        "            centers[r, : seed + 1] += 1000 * np.arange(1, seed + 2)[:, None]\n"
        "            centers[r, seed + 1 :] = 1000\n"
        "        return Run(centers, 0, None, tuple(seeds), own)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import curious

    entry = {"name": "curious", "_target_": "curious.Curious"}
    found = {}
    for timing in (False, True):
        curious.Curious.asked.clear()
        metrics = ["nicv", "n_centers", "nonempty_centers", "empty_clusters"]
        sweep = {
            "datasets": ["blobs-200-3-2"],
            "methods": [entry],
            "preprocessing": "range",
            "metrics": metrics,
        }
        (cell,) = cells(**sweep, seeds=[0, 2, 1], timing=timing)
        found[timing] = execute(cell)
        box = [[-100.0] * 3, [100.0] * 3]
        batches = [(0,), (0,), (2,), (1,)] if timing else [(0, 2, 1)]
        assert curious.Curious.asked == [(batch, box) for batch in batches]
        assert found[timing]["n_centers"].tolist() == [1, 3, 2]
        assert found[timing]["nonempty_centers"].le(found[timing]["n_centers"]).all()
    for name in metrics:
        np.testing.assert_array_equal(found[False][name], found[True][name])
