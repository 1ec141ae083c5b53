"""Both commands do what a person who knows Hydra expects."""

import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from swept_rows import SWEEP, rows

import pkm.__main__
from pkm import catalogue
from pkm.__main__ import main
from pkm.catalogue import CONF, ENTRY_POINTS, FOLDERS
from pkm.experiments.applications.composition import load_config
from pkm.experiments.commands import dashboard, reproduce, run, run_cells, sync
from pkm.experiments.config.groups import choices
from pkm.experiments.console.console import make_console

pytestmark = pytest.mark.integration
ROOT = CONF.parent


def test_nothing_internal_is_imported():
    files = [*ROOT.glob("experiments/**/*.py"), *ROOT.glob("hydra_plugins/*/*.py")]
    assert len(files) > 20
    for path in files:
        assert "hydra._internal" not in path.read_text(encoding="utf-8"), path


@pytest.mark.slow
@pytest.mark.parametrize(
    "words, expected",
    [
        (("--cfg", "job"), "require_zoom: false"),
        (("--cfg", "job", "--package", "method"), "# @package method"),
        (("--cfg", "job", "--resolve", "jobs=3"), "  jobs: 3"),
        (("--cfg", "hydra"), "hydra_plugins.pkm_cells.CellsLauncher"),
        (("--info", "plugins"), "CellsLauncher"),
        (("--info", "defaults", "method=fastlloyd_published"), "method/fastlloyd_published"),
        (("--info", "searchpath"), "conf://"),
    ],
)
def test_hydras_own_options(call, words, expected):
    code, out, err = call(*words)
    assert code == 0
    # Hydra logs what --info shows.
    assert expected in out + err
    assert not Path("results").exists()


def test_hydras_own_help(capfd):
    assert run.main(["--hydra-help"]) == 0
    assert "--shell-completion" in capfd.readouterr().out


def test_completion_is_installed_for_the_command(capfd):
    assert pkm.__main__.main(["-sc", "install=bash"]) == 0
    assert capfd.readouterr().out.rstrip().endswith("hydra_bash_completion pkm")


@pytest.mark.slow
def test_ranges_and_globs(call):
    _, out, _ = call(
        "k=range(2,5)", "-m", "method=glob(sulloyd_published*)", "epsilon=1.0", *SWEEP[3:]
    )
    assert "6 were run" in out
    assert sorted(rows()["k"].unique()) == [2, 3, 4]


@pytest.mark.slow
def test_a_sweep_over_a_parameter_shows_it(call):
    _, out, _ = call("-m", "method=fastlloyd", "method.alpha=0.4,0.8", "epsilon=1.0", *SWEEP[3:])
    (heading,) = [line for line in out.splitlines() if "data set" in line]
    assert "alpha" in heading
    assert heading.count("variant") == 1
    lines = [line.split() for line in out.splitlines() if " sound" in line]
    assert [line[5] for line in lines] == ["0.4", "0.8"]


@pytest.mark.slow
def test_a_folder_that_is_asked_for_gets_hydras_record(call):
    assert call("method=mean", "seeds=1", "hydra.run.dir=single")[0] == 0
    assert "method=mean" in Path("single/.hydra/overrides.yaml").read_text()
    assert call("-m", "method=mean", "seeds=1,2", "hydra.sweep.dir=sweep")[0] == 0
    assert Path("sweep/multirun.yaml").is_file()
    assert "seeds=2" in Path("sweep/1/.hydra/overrides.yaml").read_text()
    # Without asking there is none.
    call("method=mean", "seeds=1")
    assert {path.name for path in Path().iterdir()} == {"single", "sweep", "results"}


@pytest.mark.slow
def test_a_job_answers_with_its_objective(tmp_path):
    words = ["seeds=3", "metrics=[silhouette,nicv]", f"results={tmp_path}"]
    console = make_console()

    def answers(*more):
        return run_cells.run(
            [load_config([f"method={name}", *words, *more], "run") for name in names], console
        )

    names = ["mean", "kmeans"]
    nicv = answers()
    means = rows(tmp_path).groupby("method")[["nicv", "silhouette"]].mean().loc[names]
    assert nicv == pytest.approx(means["nicv"].tolist())
    assert answers("objective=silhouette") == pytest.approx(means["silhouette"].tolist())


@pytest.mark.slow
def test_optuna_tunes_a_parameter_and_is_warned_of(call):
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    code, _, err = call(
        "-m",
        "hydra/sweeper=optuna",
        "method=fastlloyd",
        "method.alpha=interval(0.4,1.6)",
        "hydra.sweeper.n_trials=3",
        "hydra.sweeper.n_jobs=1",
        "epsilon=1.0",
        *SWEEP[3:],
    )
    assert code == 0
    assert err.count("warning: this sweep chooses parameters by results on the data") == 1
    best = min(rows().groupby("cell")["nicv"].mean())
    record = Path("results/hydra/optimization_results.yaml").read_text()
    assert float(re.search(r"best_value: (.*)", record)[1]) == pytest.approx(best)


@pytest.fixture
def own_folder(call, tmp_path):
    """Return a folder of configurations in the working folder, which `pkm` is given."""
    (tmp_path / "own").mkdir()
    return tmp_path / "own"


def call_pkm(verb, *words):
    return main([verb, "--config-dir", "own", *words])


def test_a_folder_of_configurations_is_named(capsys):
    assert main(["run", "dataset=iris", "--config-dir"]) == 2
    assert "--config-dir needs a folder" in capsys.readouterr().err


def test_a_folder_of_ones_own_adds_methods(own_folder, capfd):
    (own_folder / "method").mkdir()
    (own_folder / "method" / "halved.yaml").write_text(
        "name: halved\n_target_: pkm.methods.Lloyd\nradius_search: halving\n"
    )
    assert call_pkm("run", "seeds=1", "method=halved", "method.variant=sound") == 0
    assert rows()["method"].tolist() == ["halved"]
    assert rows()["variant"].tolist() == ["sound"]
    assert call_pkm("run", "method=havled") == 2
    assert "method='havled' is unknown. Did you mean halved?" in capfd.readouterr().err
    assert "halved" not in choices("method")


@pytest.mark.slow
def test_a_sweep_runs_methods_of_all_sources(own_folder, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from pkm.methods import DataMean\n\n\nclass Mean(DataMean):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    entry = EntryPoint("toylloyd", "pkm.methods:Lloyd", ENTRY_POINTS)
    monkeypatch.setattr(catalogue, "declared_methods", lambda: {"toylloyd": entry})
    catalogue.Catalogue.choices.cache_clear()
    try:
        assert call_pkm("run", "-m", "method=mean,mine:Mean,toylloyd", "seeds=1") == 0
    finally:
        catalogue.Catalogue.choices.cache_clear()
        sys.modules.pop("mine")
    assert sorted(rows()["target"]) == ["mine.Mean", "pkm.methods.DataMean", "pkm.methods.Lloyd"]


@pytest.mark.parametrize(
    "group, text, message",
    [
        ("method", "name: x\n_target_: [1\n", "own/method/broken.yaml:3: "),
        ("method", "name: x\n\t_target_: y\n", "own/method/broken.yaml:2: "),
        ("method", "", "own/method/broken.yaml:1: the file must hold a mapping"),
        ("method", "name: x\n", "method/broken.yaml: the key _target_ is missing"),
        ("method", "- a\n", "own/method/broken.yaml:1: the file must hold a mapping"),
        ("paper/broken", "", "own/paper/broken/sweeps.yaml:1: the file must hold a mapping"),
        ("paper/broken", "name: x\n", "paper/broken/sweeps.yaml: the key sweeps is missing"),
        ("paper/broken", "name: x\nsweeps: 3\n", "sweeps=3 is not allowed"),
    ],
)
def test_a_broken_file_in_a_folder_of_ones_own(own_folder, capfd, group, text, message):
    verb = "run" if group == "method" else "reproduce"
    (own_folder / group).mkdir(parents=True)
    file = "broken.yaml" if verb == "run" else "sweeps.yaml"
    (own_folder / group / file).write_text(text)
    assert call_pkm(verb, f"{group.partition('/')[0]}=broken") == 2
    err = capfd.readouterr().err
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "path, message",
    [
        ("paper/half/claims.yaml", "own/paper/half: sweeps.yaml is missing"),
        ("method/eugkm.yaml", "method=eugkm is declared twice: "),
        ("paper/dpm/sweeps.yaml", "paper=dpm is declared twice: "),
    ],
)
def test_a_folder_that_is_not_right_is_refused_before_anything_runs(
    own_folder, capfd, path, message
):
    (own_folder / path).parent.mkdir(parents=True)
    (own_folder / path).write_text("name: x\n")
    assert call_pkm("run") == 2
    err = capfd.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_a_missing_folder_is_refused(call, capfd):
    assert call_pkm("run") == 2
    assert "own' must be a folder that exists" in capfd.readouterr().err


OWN_SET = """
[tiny]
title = "nine points"
n = 9
d = 2
k = 2
parser = "numbers"
license = "none"
citation = "nobody"
domain = [{ lower = 0, upper = 9, reason = "digits" }]
files = [{ path = "tiny.txt", source = "here" }]
"""


@pytest.fixture
def own_set(own_folder):
    (own_folder / "datasets.toml").write_text(OWN_SET)
    (own_folder / "tiny.txt").write_text("".join(f"{i} {9 - i % 3}\n" for i in range(9)))
    return own_folder


@pytest.mark.slow
def test_a_set_of_ones_own_is_swept_by_workers_as_somebodys(own_set):
    words = ("run", "-m", "method=lloyd,fastlloyd", "dataset=tiny,iris", "seeds=1", "epsilon=1")
    assert call_pkm(*words, "backend=processes", "backend.jobs=2") == 0
    noise = rows().groupby("dataset")["noise"].agg(set)
    assert noise["tiny"] == {"none", "secure"}
    assert noise["iris"] == {"none", "seeded"}
    files = Path("results").glob("cells/*/*.parquet")
    readable = [bool(file.stat().st_mode & 0o077) for file in files]
    assert sorted(readable) == [False, False, True, True]


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("license", "licence", "own/datasets.toml: [tiny] key: unknown 'licence'"),
        ("[tiny]", "[tiny", "own/datasets.toml: Expected ']'"),
        ("[tiny]", "[iris]", "dataset=iris is declared twice: "),
    ],
)
def test_wrong_sets_of_ones_own_are_refused_in_one_line(own_set, capfd, old, new, message):
    (own_set / "datasets.toml").write_text(OWN_SET.replace(old, new))
    for verb, words in {
        "run": ["dataset=iris"],
        "reproduce": ["paper=dpm", "profile=smoke"],
    }.items():
        assert call_pkm(verb, *words) == 2
        err = capfd.readouterr().err
        assert message in err
        assert err.count("\n") == 1


@pytest.fixture
def declare(monkeypatch):
    """Return a function by which an installed package declares a folder."""

    def declare_folder(package):
        entry = EntryPoint("mine", package, FOLDERS)
        found = {FOLDERS: [entry]}
        monkeypatch.setattr(catalogue, "entry_points", lambda group: found.get(group, []))
        catalogue.declared_folders.cache_clear()
        catalogue._catalogue.cache_clear()

    yield declare_folder
    catalogue.declared_folders.cache_clear()
    catalogue._catalogue.cache_clear()


@pytest.mark.parametrize("name", ["conf_of_a_package", "package_with.conf"])
def test_a_folder_of_an_installed_package_is_searched(own_set, monkeypatch, declare, name):
    package = own_set.parent.joinpath(*name.split("."))
    package.parent.mkdir(exist_ok=True)
    (own_set / "method").mkdir()
    (own_set / "method" / "halved.yaml").write_text("name: halved\n_target_: pkm.methods.Lloyd\n")
    own_set.rename(package)
    monkeypatch.syspath_prepend(own_set.parent)
    declare(name)
    assert main(["run", "dataset=tiny", "method=halved", "seeds=1"]) == 0
    assert rows()["dataset"].tolist() == ["tiny"]


@pytest.mark.parametrize("package", ["nowhere", "nowhere.conf", "pkm.names", "", "pkm:conf"])
def test_a_package_without_a_folder_is_refused_in_one_line(call, declare, capfd, package):
    declare(package)
    assert main(["run"]) == 2
    err = capfd.readouterr().err
    assert f"entry point mine of pkm.conf: {package!r} must be a package" in err
    assert err.count("\n") == 1


def test_two_packages_with_one_method_are_refused(monkeypatch):
    entries = [EntryPoint("twin", f"package{i}:Class", ENTRY_POINTS) for i in range(2)]
    monkeypatch.setattr(catalogue, "entry_points", lambda group: entries)
    with pytest.raises(catalogue.CatalogueError, match="package0:Class and package1:Class"):
        catalogue.declared_methods.__wrapped__()


@pytest.mark.slow
def test_reproduce_is_swept_too(call):
    code, out, _ = call("-m", "verb=plan", "paper=mufc,dpm", "profile=smoke", command=reproduce)
    assert code == 0
    assert "paper=mufc" in out
    assert "paper=dpm" in out


@pytest.mark.parametrize("verb", [sync.main, dashboard.main])
def test_what_shows_results_makes_no_folder(verb, tmp_path, capsys):
    folder = tmp_path / "absent"
    assert verb(["paper=dpm", f"results={folder}"]) == 2
    assert "results must be a folder with stored cells" in capsys.readouterr().err
    assert not folder.exists()


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_the_table_of_a_job_says_which_job_it_is_of(call, launcher):
    words = ("-m", "method=fastlloyd", "method.alpha=0.4,0.8", "dataset=iris", "seeds=1")
    code, out, _ = call(*words, "epsilon=1", f"hydra/launcher={launcher}")
    assert code == 0
    lines = out.splitlines()
    tables = [number for number, line in enumerate(lines) if line.split()[:1] == ["method"]]
    titles = [lines[number - 1] for number in tables]
    assert sorted(re.findall(r"alpha=\S+", " ".join(titles))) == ["alpha=0.4", "alpha=0.8"]


REFUSED = {
    "a method": ("-m", "method=fastlloyd,nope", "dataset=iris"),
    "a job": ("-m", "method=fastlloyd", "dataset=iris", "epsilon=1,-1"),
    "a single run's account": ("dataset=iris", "epsilon=1", "account=nowhere.json"),
    "a sweep's account": ("-m", "dataset=iris", "epsilon=1,2", "account=nowhere.json"),
}


@pytest.mark.slow
@pytest.mark.parametrize("words", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("is_there", [False, True])
def test_a_refused_command_leaves_no_folder(call, tmp_path, words, is_there):
    """A folder that was there before stays, empty as it was."""
    if is_there:
        (tmp_path / "results").mkdir()
    code, _, err = call(*words)
    assert code == 2
    assert err.startswith("error: ")
    left = {path.name for path in tmp_path.rglob("*")}
    assert left == ({"results"} if is_there else set())
