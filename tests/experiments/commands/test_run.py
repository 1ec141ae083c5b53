"""The command lines, called as a user calls them."""

import re
import shlex
import sys

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from pkm.__main__ import main as pkm_main
from pkm.arrow import read_parameters
from pkm.datasets import load
from pkm.experiments.commands import (
    launcher,
    pack,
    run,
    run_cells,
)
from pkm.experiments.config.groups import choices, read_choice
from pkm.experiments.plan.plan import SEEDED_NOISE_NOTICE
from pkm.experiments.store.store import Store
from pkm.methods import FastLloyd, Lloyd, load_method

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("PKM_DATA", raising=False)
    monkeypatch.setenv("PKM_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def call_run(tmp_path, capsys):
    """Return a function that runs the command line: exit code, output, errors.

    The results are in its attribute `store`.
    """

    def run_main(*words):
        code = run.main([*words, f"results={tmp_path / 'results'}"])
        return code, *capsys.readouterr()

    run_main.store = Store(tmp_path / "results")
    return run_main


@pytest.mark.slow
def test_run_prints_a_table_and_stores_the_cells(call_run):
    words = ("method=fastlloyd", "dataset=iris", "epsilon=[0.1,1.0]", "seeds=3")
    code, out, _ = call_run(*words)
    assert code == 0
    assert "fastlloyd" in out
    assert "iris" in out
    assert "nicv" in out
    assert len(call_run.store.keys()) == 2
    _, out, _ = call_run(*words)
    assert "2 cells were stored already, 0 were run" in out


@pytest.mark.slow
def test_multirun_runs_every_combination(call_run):
    code, _, _ = call_run(
        "-m", "method=fastlloyd,glloyd,mean", "dataset=iris,wine", "epsilon=0.1,1.0", "seeds=[4,2]"
    )
    assert code == 0
    # Two private methods at two epsilons and one without, on two data sets.
    assert len(call_run.store.keys()) == (2 * 2 + 1) * 2
    assert set(call_run.store.read(call_run.store.keys())["seed"]) == {2, 4}


def test_corrupt_cell_is_run_again(call_run):
    words = ("method=mean", "dataset=iris", "seeds=2")
    call_run(*words)
    (key,) = call_run.store.keys()
    path = call_run.store.path(key)
    content = path.read_bytes()
    path.write_bytes(content[:40] + b"\0" * 40 + content[80:])
    code, out, _ = call_run(*words)
    assert code == 0
    assert "0 cells were stored already, 1 were run" in out
    assert path.with_name(path.name + ".corrupt").exists()


@pytest.mark.parametrize("bounds", ["bounds=[0,1]", "bounds=[[0,0],[1,1]]"])
def test_run_on_a_user_file(call_run, tmp_path, bounds):
    points = np.random.default_rng(0).random((60, 2))
    np.savetxt(tmp_path / "points.csv", points, delimiter=",")
    words = (
        "dataset=file",
        f"path={tmp_path / 'points.csv'}",
        bounds,
        "k=2",
        "preprocessing=public",
        "seeds=2",
    )
    code, _, _ = call_run(*words, "method=glloyd", "epsilon=1.0")
    assert code == 0
    rows = call_run.store.read(call_run.store.keys())
    assert rows["dataset"].unique() == ["points"]
    assert not rows["private_bounds"].any()


def test_run_of_an_external_method(call_run, tmp_path, monkeypatch):
    (tmp_path / "elsewhere.py").write_text(
        "from pkm.methods import DataMean\n\n\nclass External(DataMean):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    code, out, _ = call_run("method=elsewhere:External", "dataset=iris", "seeds=2")
    sys.modules.pop("elsewhere")
    assert code == 0
    assert "external" in out


def is_central(name):
    return hasattr(load_method(read_choice("method", name)["_target_"]), "fit_with")


METHODS = [name for name in choices("method") if name != "diffprivlib"]
# Hydra composes a job of a sweep twice: cells of all files run in test_plan.py.
ONE_OF_EACH_CLASS = sorted(
    {read_choice("method", name)["_target_"]: name for name in METHODS}.values()
)


@pytest.mark.parametrize(
    "words, message",
    [
        (["run", "--foo"], "--foo is no option of pkm run"),
        (
            ["reproduce", "--multi-run"],
            "--multi-run is no option of pkm reproduce; did you",
        ),
        (["run", "--cfg", "jobb"], "'jobb' is no value of --cfg; did you mean 'job'?"),
        (["reproduce", "--info=plugin"], "'plugin' is no value of --info; did you mean 'plugins'?"),
        (["run", "k=3", "--cfg"], "'' is no value of --cfg; known are job, hydra, all"),
        (["diff", "--foo"], "unrecognized arguments: --foo; see pkm diff --help"),
        (["data", "fech"], "argument command: invalid choice: 'fech'"),
        (["rnu"], "verb 'rnu' is unknown; did you mean 'run'?"),
    ],
)
def test_unknown_options_are_refused_in_one_line(words, message, capfd):
    try:
        code = pkm_main(words)
    except SystemExit as stop:
        code = stop.code
    out, err = capfd.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")
    assert err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "setting"),
    [
        ([name for name in ONE_OF_EACH_CLASS if is_central(name)], []),
        (
            [name for name in ONE_OF_EACH_CLASS if not is_central(name)],
            ["unlearning.clients=4", "unlearning.clusters_per_client=2"],
        ),
    ],
    ids=["central", "unlearning"],
)
@pytest.mark.no_cover  # other tests run the same code
def test_a_file_of_every_class_runs_from_the_command_line(call_run, monkeypatch, names, setting):
    jobs = []

    def recording(configs, console):
        jobs.extend(configs)
        return run_cells.run(configs, console)

    monkeypatch.setattr(launcher, "run", recording)
    # So wide that no name is broken.
    monkeypatch.setattr(launcher, "make_console", lambda: Console(width=2000))
    words = [
        "dataset=blobs-200-2-3",
        "preprocessing=range",
        "epsilon=1.0",
        "seeds=1",
        "metrics=[nicv]",
        *setting,
    ]
    code, out, err = call_run("-m", f"method={','.join(names)}", *words)
    assert (code, err) == (0, "")
    # Each job has the method as papers have it, and ran.
    assert [job.method for job in jobs] == [read_choice("method", name) for name in names]
    rows = call_run.store.read(call_run.store.keys())
    assert sorted(rows["method"]) == names
    assert [name for name in names if name.removesuffix("_sound") not in out] == []


def test_running_time_can_be_measured(call_run):
    words = ("method=mean", "dataset=iris", "seeds=3")
    code, _, _ = call_run(*words, "timing=true", "jobs=2")
    assert code == 0
    rows = call_run.store.read(call_run.store.keys())
    assert rows["timing"].all()
    assert rows["fit_seconds"].nunique() == 3
    # A cell without timing is another cell.
    _, out, _ = call_run(*words)
    assert "0 cells were stored already, 1 were run" in out


@pytest.mark.slow
def test_time_limit_is_reported(call_run, tmp_path, monkeypatch):
    (tmp_path / "sleepy.py").write_text(
        "import time\nfrom pkm.methods.baselines.baselines import DataMean\n\n\n"
        "class Sleepy(DataMean):\n    def cluster(self, curator):\n        time.sleep(60)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    code, out, _ = call_run(
        "method=sleepy:Sleepy", "dataset=iris", "seeds=2", "backend.time_limit=0.5"
    )
    assert code == 1
    assert "sleepy · iris: failed: TimeLimitExceeded: time limit of 0.5 s reached" in out


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name == "dask" else [])
        for name in choices("backend")
    ],
)
def test_every_backend_file_runs(call_run, name):
    assert call_run(f"backend={name}", "method=mean", "seeds=1")[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "words, message",
    [
        (["method=loyd"], "Did you mean lloyd? Similar: lloyd, "),
        (["method=loyd"], "`pkm run --help` lists all "),
        (["dataset=irises"], "dataset='irises' is unknown. Did you mean iris? Similar: iris, "),
        (
            ["metrics=[nicvv]"],
            "metric='nicvv' is unknown. Did you mean nicv? Known: nicv, silhouette",
        ),
        (["epsilon=0"], "epsilon=0 is not allowed"),
        (["epsilon=[1.0,-2]"], "epsilon=-2 is not allowed"),
        (["delta=0.5"], "delta=0.5 is not allowed"),
        (["delta=0"], "delta=0 is not allowed"),
        (["k=0"], "k=0 is not allowed"),
        (["k=151"], "k must be at most n=150"),
        (["seeds=0"], "seeds=0 is not allowed"),
        (["-m", "epsilon=1.0,-1.0"], "epsilon=-1.0 is not allowed"),
        (["dataset=brightkite"], "brightkite"),
        (["dataset=file", "k=2"], "path=None"),
        (["dataset=file", "path=nowhere.csv", "k=2"], "nowhere.csv"),
        (["path=points.csv"], "path='points.csv' is not allowed"),
        (["dataset=iris", "bounds=[0,1]"], "bounds=[0, 1] is not allowed"),
        (["method=nowhere:Class"], "method 'nowhere.Class' is unknown"),
        (["method=fastlloyd", "method.alpha=-1"], "alpha=-1"),
        (["speed=3"], "speed"),
        (["backend=cloud"], "backend='cloud' is unknown"),
        (["jobs=0"], "jobs=0"),
        (["backend=serial", "jobs=0"], "jobs=0 is not allowed"),
        (
            ["backend.time_limit=abc"],
            "time_limit='abc' is not allowed: time_limit must be a number of seconds",
        ),
        (["backend.retries=-1"], "retries=-1 is not allowed"),
        (["+backend.speed=1"], "speed"),
        (
            ["tracking=mlflow", "tracking.uri=carrier://x"],
            "tracking.uri='carrier://x' is not allowed",
        ),
        (["tracking=mlflow", "tracking.uri=null"], "tracking.uri=None is not allowed"),
        (["tracking=mlflow", "tracking.uri=mlruns"], "tracking.uri='mlruns' is not allowed"),
        (["tracking=mlflow", "tracking.uri='http://'"], "tracking.uri='http://' is not allowed"),
        (["tracking=mlflow", "tracking.uri='postgresql+nodriver://h/x'"], "cannot be used"),
        (["tracking=mlflow", "tracking.artifacts=null"], "tracking.artifacts=None is not allowed"),
        (
            ["tracking=none", "tracking.uri=sqlite:///x.db"],
            "must be left out unless tracking=mlflow",
        ),
        (["clip=maybe"], "clip='maybe' is not allowed"),
        (["timing=maybe"], "timing='maybe' is not allowed"),
        (
            ["preprocessing=rnge"],
            "preprocessing='rnge' is unknown. Did you mean range? Known: minmax, public, range, "
            "ball",
        ),
        (
            ["dataset=wine", "preprocessing=range"],
            "preprocessing='range' needs one range that all columns share",
        ),
        (["dataset=ablation-2-2-0.25", "k=5000"], "k=5000 is not allowed: k must be at most n="),
        (["epsilon=[0.1"], "0.1"),
    ],
)
def test_invalid_requests_are_refused_in_one_line(call_run, words, message):
    code, _, err = call_run(*words)
    assert code == 2
    assert message in err
    assert err.startswith("error: ")
    assert "Traceback" not in err
    assert err.count("\n") == 1
    # A sweep leaves Hydra's record of itself.
    assert not (call_run.store.root / "cells").exists()


def test_clipped_points_are_reported_or_refused(call_run, tmp_path):
    (tmp_path / "points.csv").write_text("0.1,0.2\n0.3,0.4\n0.5,7\n")
    words = ("dataset=file", f"path={tmp_path / 'points.csv'}", "k=1", "seeds=2", "method=mean")
    code, _, err = call_run(*words, "bounds=[0,1]", "clip=false")
    assert code == 2
    path = tmp_path / "points.csv"
    expected = f"points of '{path}' lie outside the declared domain, bounds=(0.0, 1.0)"
    assert f"clip=False is not allowed: {expected}" in err
    assert err.startswith("error: ")
    assert not call_run.store.root.exists()
    code, out, _ = call_run(*words, "bounds=[0,1]")
    assert code == 0
    moved = (
        "points: 1 of 3 points (number not protected) lie outside the public domain and were moved"
    )
    assert moved in out
    _, out, _ = call_run(*words, "bounds=[0,7]", "clip=false")
    assert "moved" not in out


@pytest.mark.parametrize(
    "bounds", ["{a:[0,1]}", "[{a:1},5]", "5", "[]", "[[],[]]", "'{a:1}'", "[0,true]"]
)
def test_bounds_are_two_numbers_or_two_lists(call_run, tmp_path, bounds):
    path = tmp_path / "points.csv"
    path.write_text("x,y\n0,1\n1,0\n")
    code, out, err = call_run("dataset=file", f"path={path}", f"bounds={bounds}", "k=1")
    assert (code, out) == (2, "")
    rule = "bounds must be [lower,upper] or [[lower,...],[upper,...]], in numbers"
    assert re.fullmatch(rf"error: bounds=.+ is not allowed: {re.escape(rule)}\n", err)
    assert not call_run.store.root.exists()


def test_what_lists_of_bounds_are_is_printed(call_run, tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("x,y\n0,1\n1,0\n")
    words = ("dataset=file", f"path={path}", "k=1", "seeds=1", "method=mean")
    _, out, _ = call_run(*words, "bounds=[[0,5],[1,9]]")
    assert "2 rows, 2 columns, separated by commas, decimal point, a header" in out
    assert "; bounds 0 to 1, 5 to 9\n" in out


def test_a_delta_above_one_by_n_is_warned_of(call_run):
    words = ("dataset=iris", "method=fastlloyd", "epsilon=1.0", "seeds=1")
    expected = "fastlloyd · iris: delta=0.4 is above 1/n=0.00667: "
    assert expected in call_run(*words, "delta=0.4")[1]
    assert "above 1/n" not in call_run(*words, "delta=0.006")[1]


@pytest.mark.slow
def test_folders_patterns_and_packed_grids_are_data_sets(call_run, tmp_path):
    """All hold the points of one array, and so have its rows."""
    X = np.random.default_rng(0).normal(0, 0.5, (200, 3))
    np.save(tmp_path / "all.npy", X)
    parts = tmp_path / "parts"
    parts.mkdir()
    for i in range(2):
        pd.DataFrame(X[100 * i :][:100], columns=list("abc")).to_parquet(parts / f"{i}.parquet")
    grid = tmp_path / "all.grid"
    assert pack.main([str(tmp_path / "all.npy"), str(grid), "bounds=[-1,1]"]) == 0

    def words(path, *bounds):
        keys = ("dataset=file", "noise=seeded", "k=3", "seeds=2", "epsilon=1.0")
        return (*keys, f"path='{path}'", *bounds)

    for path in (tmp_path / "all.npy", parts, f"{parts}/*.parquet"):
        assert call_run(*words(path, "bounds=[-1,1]"))[0] == 0
    assert call_run(*words(grid))[0] == 0
    # A pattern of the same files is the same cell.
    rows = call_run.store.read(call_run.store.keys())
    assert len(rows) == 3 * 2
    assert set(rows["preprocessing"]) == {"public"}
    assert rows.groupby("seed")[["nicv", "silhouette"]].nunique().eq(1).all(axis=None)

    # What was packed decides.
    for given, message in {
        "bounds=[-1,1]": "bounds=(-1, 1) is not allowed: bounds must be left out for",
        "columns=[0]": "columns=(0,) is not allowed: columns must be left out for",
        "clip=false": "was packed with points clipped to its bounds",
    }.items():
        code, _, err = call_run(*words(grid), given)
        assert code == 2
        assert message in err
    X[7, 1] = np.nan
    np.save(tmp_path / "null.npy", X)
    assert (
        pack.main([str(tmp_path / "null.npy"), str(tmp_path / "null.grid"), "bounds=[-1,1]"]) == 0
    )
    assert call_run(*words(tmp_path / "null.npy", "bounds=[-1,1]"))[0] == 0
    assert call_run(*words(tmp_path / "null.grid"))[0] == 0
    rows = call_run.store.read(call_run.store.keys()).query("dataset == 'null'")
    assert len(rows) == 2 * 2
    assert (rows["n"] == len(X)).all()
    assert rows.groupby("seed")[["nicv", "silhouette"]].nunique().eq(1).all(axis=None)


@pytest.mark.slow
def test_files_of_equal_content_are_shown_by_name(call_run, tmp_path):
    paths = [tmp_path / "left.csv", tmp_path / "right.csv"]
    for path in paths:
        path.write_text("0.1,0.2\n0.3,0.4\n")
    words = (
        "-m",
        "dataset=file",
        f"path={paths[0]},{paths[1]}",
        "bounds=[0,1]",
        "k=1",
        "seeds=2",
        "method=mean",
        "tracking=mlflow",
    )
    code, out, _ = call_run(*words)
    assert code == 0
    assert " left " in out
    assert " right " in out
    assert "1 were run" in out


def test_a_name_is_the_same_variant_on_the_command_line_and_in_python(call_run):
    words = ("method=fastlloyd", "dataset=iris", "epsilon=1.0", "seeds=[5]", "keep_centers=true")
    assert call_run(*words)[0] == 0
    (centers,) = call_run.store.read(call_run.store.keys())["centers"]
    iris = load("iris")
    method = FastLloyd(iris.n_clusters, epsilon=1.0, bounds=iris.domain, random_state=5)
    expected = method.fit(iris.points).cluster_centers_
    assert np.stack(centers).tolist() == expected.tolist()


def test_table_shows_what_differs_from_the_request(call_run):
    words = ("method=dpm_published", "epsilon=1.0", "seeds=2", "metrics=[nicv]", "dataset=iris")
    code, out, _ = call_run(*words, "preprocessing=minmax")
    assert code == 0
    heading, line, *notes = out.splitlines()[1:]
    columns = ("method", "variant", "k", "ε spent", "nicv", "centers", "flaws")
    assert [name in heading for name in columns] == [True] * len(columns)
    assert "published" in line
    assert "F-13" in line
    assert "ms per seed" not in heading
    assert notes[0].startswith("iris: the domain is read off the points")
    assert notes[1].startswith("dpm_published: the published variant has known flaws: F-13")
    assert notes[1].endswith("method=dpm corrects them")

    # A sound method on a declared domain spends what it says, and has its k centers.
    words = ("method=fastlloyd", *words[1:], "timing=true")
    heading, _, noise, note = call_run(*words)[1].splitlines()[1:]
    assert noise == SEEDED_NOISE_NOTICE
    assert not {"ε spent", "centers", "flaws"} & set(heading.split("  "))
    assert "ms per seed" in heading
    assert note.startswith("0 cells were stored")


@pytest.mark.slow
def test_columns_of_a_file(call_run, tmp_path):
    lines = [f"{i};{i % 3},5;{i % 5};{'ab'[i % 2]}" for i in range(20)]
    (tmp_path / "own.csv").write_text("\n".join(["id;x (m);y, or z;kind", *lines]) + "\n")
    words = ("dataset=file", f"path={tmp_path / 'own.csv'}", "k=2", "seeds=1", "method=kmeans")
    code, _, err = call_run(*words)
    assert code == 2
    # The hints work when they are pasted, as a shell reads them.
    (hint,) = re.findall("choose ('.*?'),", err)
    _, _, err = call_run(*words, *shlex.split(hint))
    (hint,) = re.findall("column kind should be numeric; choose ('.*?'),", err)
    words += (*shlex.split(hint), "label=kind")
    code, _, err = call_run(*words)
    assert code == 2
    assert "bounds=None is not allowed: bounds must be given for a file" in err
    assert "preprocessing=minmax takes their private extremes" in err
    chosen = (*words[-2:], "metrics=[accuracy]")
    words = (*words[:-2], "preprocessing=minmax")
    code, _, err = call_run(*words, *chosen)
    assert code == 0, err
    row = call_run.store.read(call_run.store.keys()).iloc[0]
    assert row["d"] == 2
    assert 0.5 <= row["accuracy"] <= 1
    # Other columns are other points, and the same ones the same cell.
    assert "1 were run" in call_run(*words, "columns=[2,1]", *chosen[1:])[1]
    assert "0 were run" in call_run(*words, *chosen)[1]
    assert "1 were run" in call_run(*words, "columns=[1]", "label=2", *chosen[2:])[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words, message",
    [
        (["columns=x"], "columns='x' is not allowed: columns must be a list"),
        (["columns=[]"], "columns=[] is not allowed"),
        (["columns=[[1]]"], "columns=[[1]] is not allowed"),
        (["label=1.5"], "label=1.5 is not allowed"),
        (["decimal=dot"], "decimal='dot' should be point or comma"),
        (["decimal=comma", "dataset=iris"], "decimal='comma' is not allowed"),
        (["columns=[x]", "dataset=iris"], "columns=['x'] is not allowed"),
        (["label=kind", "dataset=iris"], "label='kind' is not allowed"),
        (
            ["missing=middle", "dataset=iris"],
            "missing='middle' is not allowed: missing must be left",
        ),
        (
            ["method=fastlloyd", "missing=middle", "bounds=[0,1]"],
            "missing='middle' must be None or 'k-pod'",
        ),
        (
            [
                "missing=k-pod",
                "bounds=[0,1]",
                "method=glloyd",
                "federation.clients=1",
                "timing=true",
            ],
            "missing='k-pod' needs rows with missing entries, and clients of a protocol have none",
        ),
        (
            ["method=k_fed", "missing=middle", "bounds=[0,1]"],
            "missing must be null for k_fed, which has no such parameter",
        ),
    ],
)
def test_columns_that_are_none(call_run, tmp_path, words, message):
    (tmp_path / "own.csv").write_text("x,y\n1,2\n")
    path = [] if "dataset=iris" in words else ["dataset=file", f"path={tmp_path / 'own.csv'}"]
    code, _, err = call_run(*path, *words, "k=1")
    assert code == 2
    assert message in err


@pytest.mark.slow
def test_missing_values_are_null_records_where_the_adjacency_defines_them(call_run, tmp_path):
    """What a zero-out method gets, and the metrics, is the file without their rows; n stays."""
    (tmp_path / "holes.csv").write_text(
        "x,y,kind\n,0.3,c\n0.5,0.5,a\n0.6,0.4,a\n0.1,0.9,b\n0.2,0.8,b\n0.7,inf,c\n"
    )
    words = ["dataset=file", f"path={tmp_path / 'holes.csv'}", "label=kind", "bounds=[0,1]", "k=2"]
    words += ["seeds=1", "epsilon=30", "metrics=[nicv,accuracy,silhouette]"]
    for method in ("kmeans", "eugkm"):
        code, out, _ = call_run(f"method={method}", *words)
        assert code == 0
        said = " ".join(out.split())
        assert (
            "6 rows, 2 columns, separated by commas, decimal point, a header; 2 rows lack" in said
        )
    rows = call_run.store.read(call_run.store.keys()).set_index("method")
    assert (rows["n"] == 6).all()
    assert rows.loc["kmeans", "nicv"] == pytest.approx(0.005 * 2**2, rel=1e-4)
    assert (rows["accuracy"] == 1).all()

    for method, adjacency in {"ldp_mean": "local", "dist_dp": "rho_bounded"}.items():
        code, _, err = call_run(f"method={method}", *words)
        assert code == 2
        assert f"for {method}, private under {adjacency} adjacency: impute them" in err


def test_rows_with_missing_values_are_kept_for_a_method_that_treats_them(call_run, tmp_path):
    """Centers are those of `fit`; metrics are of the complete rows."""
    lines = ["x,y", ",0.3", "0.5,0.5", "0.6,0.4", "0.1,0.9", "0.2,0.8", "0.7,", ","]
    (tmp_path / "holes.csv").write_text("\n".join(lines) + "\n")
    words = ["dataset=file", f"path={tmp_path / 'holes.csv'}", "bounds=[0,1]", "k=2", "seeds=[3]"]
    words += ["method=lloyd", "keep_centers=true", "metrics=[nicv]"]
    for missing in ("k-pod", "null"):
        assert call_run(*words, f"missing={missing}")[0] == 0
    rows = call_run.store.read(call_run.store.keys())
    rows.index = ["missing" in parameters for parameters in read_parameters(rows)]
    X = np.genfromtxt(tmp_path / "holes.csv", delimiter=",", skip_header=1)
    fitted = Lloyd(2, bounds=(0, 1), missing="k-pod", random_state=3).fit(X[:-1])
    centers = np.stack(rows.loc[True, "centers"])
    assert centers.tolist() == fitted.cluster_centers_.tolist()
    assert centers.tolist() != np.stack(rows.loc[False, "centers"]).tolist()
    complete = X[np.isfinite(X).all(axis=1)]
    squares = ((complete[:, None] - centers) ** 2).sum(axis=2).min(axis=1)
    assert rows.loc[True, "nicv"] == pytest.approx(4 * squares.mean(), rel=1e-3)


def test_unwritable_results_are_refused(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert run.main(["method=mean", f"results={tmp_path / 'file' / 'results'}"]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_configuration_can_be_printed(call_run):
    code, out, _ = call_run("--cfg", "job", "method=glloyd")
    assert code == 0
    assert "_target_: pkm.methods.GLloyd" in out
