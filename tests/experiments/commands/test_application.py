"""Both commands do what a person who knows Hydra expects."""

import logging
import os
import re
import stat
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import slurm

import pkm.__main__
from pkm import catalogue
from pkm.__main__ import main
from pkm.catalogue import CONF, ENTRY_POINTS
from pkm.experiments.commands import dashboard, reproduce, run, run_cells, sync
from pkm.experiments.commands.application import complete_words
from pkm.experiments.commands.composition import load_config
from pkm.experiments.commands.options import OPTIONS, list_keys
from pkm.experiments.config.groups import choices
from pkm.experiments.console.console import make_consoles
from pkm.experiments.store.store import Store
from pkm.schema import COLUMNS

pytestmark = pytest.mark.integration
ROOT = CONF.parent
#: Two jobs, of two cells and of one.
SWEEP = ("-m", "method=fastlloyd,mean", "epsilon=[1.0,2.0]", "seeds=2", "metrics=[nicv]")


@pytest.fixture
def call(tmp_path, capfd, monkeypatch):
    """Return a function that calls a command: exit code, output, errors.

    Results are in the folder ``results`` of the current one.
    """
    monkeypatch.delenv("PKM_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    # A command is a process of its own, for which no earlier one has set up logging.
    logger = logging.getLogger("hydra")
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)
    logger.propagate = True

    def call_command(*words, command=run):
        code = command.main([*words, "results=results"])
        return code, *capfd.readouterr()

    return call_command


def rows(folder="results"):
    """Rows of all cells of a store, in a fixed order and without times, places and versions."""
    store = Store(folder)
    table = store.read(store.keys())
    kept = [column.name for column in COLUMNS if column.kind not in ("resource", "provenance")]
    kept = [name for name in table if name in ("cell", *kept)]
    return table[kept].sort_values(["cell", "seed"], ignore_index=True)


def test_nothing_internal_is_imported():
    files = [*ROOT.glob("experiments/**/*.py"), *ROOT.glob("hydra_plugins/*/*.py")]
    assert len(files) > 20
    for path in files:
        assert "hydra._internal" not in path.read_text(encoding="utf-8"), path


@pytest.mark.parametrize("command", [run, reproduce])
def test_help_names_every_key_and_choice(call, command):
    code, out, _ = call("--help", command=command)
    name = command.__name__.rpartition(".")[2]
    assert code == 0
    for key in list_keys(OPTIONS[name]):
        assert re.search(rf"^  {key} |^{key}: ", out, re.MULTILINE), key
    group = {"run": "method", "reproduce": "paper"}[name]
    for choice in choices(group):
        assert choice in out


@pytest.mark.slow
def test_help_imports_no_method():
    script = (
        "from pkm.experiments.commands import run; code = run.main(['--help']); import sys; "
        + ("sys.exit(code or int(bool({'numba', 'sklearn', 'pandas'} & set(sys.modules))))")
    )
    completed = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert completed.returncode == 0


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


@pytest.mark.parametrize(
    "line, expected",
    [
        ("pkm re", "reproduce"),
        ("pkm run method=fast", "method=fastlloyd method=fastlloyd_published"),
        ("pkm run method.rad", "method.radius="),
        ("pkm run dataset=wi", "dataset=wine"),
        ("pkm run hydra/launcher=ce", "hydra/launcher=cells"),
        ("pkm reproduce paper=d", "paper=distdp paper=dpm"),
        ("pkm reproduce prof", "profile."),
    ],
)
def test_the_shell_completes_keys_and_choices(monkeypatch, capfd, line, expected):
    monkeypatch.setenv("COMP_LINE", line)
    assert pkm.__main__.main(["-sc", "query=bash"]) == 0
    assert expected in capfd.readouterr().out


def test_completion_is_installed_for_the_command(capfd):
    assert pkm.__main__.main(["-sc", "install=bash"]) == 0
    assert capfd.readouterr().out.rstrip().endswith("hydra_bash_completion pkm")


@pytest.mark.parametrize(
    "launcher",
    [
        "basic",
        pytest.param("joblib", marks=pytest.mark.slow),
        pytest.param("submitit_local", marks=pytest.mark.slow),
    ],
)
def test_all_launchers_give_the_same_rows(call, launcher):
    assert call(*SWEEP)[0] == 0
    os.rename("results", "cells")
    assert call(*SWEEP, f"hydra/launcher={launcher}")[0] == 0
    expected = rows("cells")
    assert len(expected) == 6
    assert rows().equals(expected)


@pytest.mark.parametrize(
    "words, message",
    [
        ((), "hydra/launcher=submitit_slurm needs a machine of a SLURM cluster"),
        (("-m", "hydra/launcher=submitit_slurm"), "this one has no `srun`"),
        (("backend=submitit", "hydra/launcher=basic"), "hydra/launcher=basic is not allowed"),
        (("-m", "backend=submitt"), "Did you mean submitit?"),
        (("backend=submitit", "hydra.launcher.partitoin=short"), "hydra.launcher.partitoin"),
    ],
)
def test_jobs_of_slurm_are_refused_before_any_is_run(call, monkeypatch, tmp_path, words, message):
    programs = tmp_path / "programs"
    programs.mkdir()
    if "partitoin" in message:
        (programs / "srun").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(programs))
    code, _, err = call(*(words or ["backend=submitit"]), *SWEEP[1:])
    assert code == 2
    last = err.splitlines()[-1]
    assert last.startswith("error: ")
    assert message in last
    assert not Path("results").exists()


def test_what_runs_no_cell_is_no_job_of_slurm(call):
    code, out, _ = call("backend=submitit", "--cfg", "job")
    assert code == 0
    assert "name: processes" in out
    code, out, _ = call("plan", "backend=submitit", "paper=dpm", "profile=smoke", command=reproduce)
    assert code == 0
    assert "cells to run" in out


@pytest.mark.slow
def test_jobs_of_slurm_give_the_same_rows(call, tmp_path, monkeypatch):
    """Each configuration is a job; `tests/support/slurm.py` stands for the cluster."""
    submitted = slurm.install(tmp_path / "slurm")
    monkeypatch.setenv("PATH", f"{tmp_path / 'slurm'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_SUBMITTED", str(submitted))
    assert call(*SWEEP)[0] == 0
    os.rename("results", "cells")
    words = ("backend=submitit", "jobs=2", "hydra.launcher.partition=short", *SWEEP[1:])
    code, out, err = call(*words)
    assert code == 0, out + err
    text = submitted.read_text(encoding="utf-8")
    for line in ("--array=0-1%2", "--cpus-per-task=2", "--partition=short"):
        assert f"#SBATCH {line}\n" in text
    assert rows().equals(rows("cells"))


def test_a_sweep_is_one_batch(call):
    code, out, _ = call(*SWEEP, "epsilon=[1.0]")
    assert code == 0
    assert "0 cells were stored already, 2 were run" in out
    # Of the second sweep one cell is stored, and two jobs share one.
    _, out, _ = call("-m", "method=mean", "epsilon=1.0,2.0", "k=3,4", *SWEEP[3:])
    assert "1 cells were stored already, 1 were run" in out
    assert sorted(path.name for path in Path("results/hydra").iterdir()) == ["multirun.yaml"]


@pytest.mark.parametrize("launcher", ["cells", "basic"])
def test_folders_of_a_sweep_are_for_their_owner_alone(call, launcher):
    """Launchers of jobs and sweepers write objectives of private data there."""
    call("-m", "method=mean", "epsilon=1.0", *SWEEP[3:], f"hydra/launcher={launcher}")
    for folder in ("results", "results/hydra"):
        assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700


def test_ranges_and_globs(call):
    _, out, _ = call(
        "k=range(2,5)", "-m", "method=glob(sulloyd_published*)", "epsilon=1.0", *SWEEP[3:]
    )
    assert "6 were run" in out
    assert sorted(rows()["k"].unique()) == [2, 3, 4]


def test_a_sweep_over_a_parameter_shows_it(call):
    _, out, _ = call("-m", "method=fastlloyd", "method.alpha=0.4,0.8", "epsilon=1.0", *SWEEP[3:])
    (heading,) = [line for line in out.splitlines() if "data set" in line]
    assert "alpha" in heading
    assert heading.count("variant") == 1
    lines = [line.split() for line in out.splitlines() if " sound" in line]
    assert [line[5] for line in lines] == ["0.4", "0.8"]


def test_a_folder_that_is_asked_for_gets_hydras_record(call):
    assert call("method=mean", "seeds=1", "hydra.run.dir=single")[0] == 0
    assert "method=mean" in Path("single/.hydra/overrides.yaml").read_text()
    assert call("-m", "method=mean", "seeds=1,2", "hydra.sweep.dir=sweep")[0] == 0
    assert Path("sweep/multirun.yaml").is_file()
    assert "seeds=2" in Path("sweep/1/.hydra/overrides.yaml").read_text()
    # Without asking there is none.
    call("method=mean", "seeds=1")
    assert {path.name for path in Path().iterdir()} == {"single", "sweep", "results"}


def test_a_job_answers_with_its_objective(tmp_path):
    words = ["seeds=3", "metrics=[silhouette,nicv]", f"results={tmp_path}"]
    console, _ = make_consoles()

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


@pytest.mark.parametrize("launcher", ["cells", "basic"])
def test_a_failed_job_is_told(call, monkeypatch, tmp_path, launcher):
    (tmp_path / "failing.py").write_text(
        "from pkm.methods.baselines.baselines import DataMean\n\n\n"
        "class Failing(DataMean):\n    def cluster(self, curator):\n        raise OSError('no')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    words = ("method=failing:Failing", "seeds=1,2", f"hydra/launcher={launcher}")
    code, out, err = call("-m", *words)
    sys.modules.pop("failing")
    assert code == 1
    assert "failed: OSError: no" in out
    assert "Error executing job with overrides" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "words, message",
    [
        (("eps=1",), "key 'eps' is unknown. Did you mean epsilon?"),
        (("method.radios=0.5",), "Did you mean method.radius?"),
        (("Method=dpm",), "Did you mean method?"),
        (("dataset=Iris",), "dataset='Iris' is unknown. Did you mean iris?"),
        (("dataset=header.csv",), "dataset=file path=header.csv"),
        (("dataset=some/points.npz",), "dataset=file path=some/points.npz"),
        (("dataset=ablation-2-2-7",), "ablation"),
        (("+foo=1",), "key 'foo' is unknown"),
        (("+federation.client=3",), "Did you mean federation.clients?"),
        (("+tracking.url=x",), "Did you mean tracking.uri?"),
        (("~jobs",), "~jobs is not allowed"),
        (("jobs=abc",), "jobs='abc' is not allowed: jobs must be a whole number"),
        (("epsilon=1,2",), "give a list, epsilon=[1,2], or add -m"),
        (("method=dpm,lloyd",), "method=dpm,lloyd lists values: add -m to sweep over them"),
        (("epsilon=null",), "epsilon=None is not allowed"),
        (("path=a(b).csv",), "needs quotes"),
        (("path=~/points.csv",), "needs quotes"),
        (("path=a=b.csv",), "needs quotes"),
        (("columns=[Age (years)]",), """'columns=["a, b","c"]'"""),
        (('bounds={"Age (years)":1}',), "--help shows what bounds may be"),
        (("data=nowhere",), "data='nowhere' is not allowed: data must be a folder that exists"),
        (("-m", "objective=nicvv"), "objective='nicvv' is not allowed"),
        (("objective=nicv",), "has no effect on a single run: add -m"),
        (("paper=dpm",), "it is a key of `pkm reproduce`"),
        (("hydra/launcher=joblib",), "has no effect on a single run: add -m"),
        (("hydra.sweep.dir=x",), "has no effect on a single run: add -m"),
        (("-m", "hydra.run.dir=x"), "has no effect on a sweep"),
        (("-m", "jobs=1,2"), "jobs=['1', '2'] is not allowed"),
        (("-m", "method=fastlloyd", "+foo=1,2"), "key 'foo' is unknown"),
        (("method.name=3",), "method.name=3 is not allowed: method.name must be a text"),
        (("method._target_=3",), "use method=package.module:Class"),
        (("method=os:path",), "a subclass of PrivateKMeans"),
        (("method=os:sep",), "a subclass of PrivateKMeans"),
        (("method=sklearn.cluster:KMeans",), "a subclass of PrivateKMeans"),
    ],
)
@pytest.mark.no_cover  # other tests run the same code
def test_what_has_no_effect_is_refused_in_one_line(call, words, message):
    code, _, err = call(*words)
    assert code == 2
    assert message in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert not Path("results/cells").exists()


@pytest.mark.parametrize(
    "words, message",
    [
        (("epsilon=3",), "it is a key of `pkm run`"),
        (("method=dpm",), "it is a key of `pkm run`"),
        (("+foo=1",), "key 'foo' is unknown"),
        (("+paper.swepes=1",), "Did you mean paper.sweeps?"),
        (("paper=fastloyd",), "Did you mean fastlloyd?"),
        (("profile=quik",), "Did you mean quick?"),
        (("paln",), "verb='paln' is unknown. Did you mean plan?"),
        (("sweeps=[rael]",), "Did you mean real?"),
        (("hydra.launcher.n_jobs=2",), "add -m"),
        (("-m", "paper=dpm,mufc", "hydra/launcher=cells"), "is for `pkm run`"),
        (("data=nowhere", "profile=smoke"), "data must be a folder that exists"),
    ],
)
def test_reproduce_refuses_what_it_has_not(call, words, message):
    code, _, err = call(*words, command=reproduce)
    assert code == 2
    last = err.splitlines()[-1]
    assert last.startswith("error: ")
    assert message in last
    assert not Path("results/cells").exists()


@pytest.fixture
def own_folder(call, tmp_path):
    """Return a folder of configurations in the working folder, which `pkm` is given."""
    (tmp_path / "own").mkdir()
    return tmp_path / "own"


def call_pkm(verb, *words):
    return main([verb, "--config-dir", "own", *words])


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


def test_two_packages_with_one_method_are_refused(monkeypatch):
    entries = [EntryPoint("twin", f"package{i}:Class", ENTRY_POINTS) for i in range(2)]
    monkeypatch.setattr(catalogue, "entry_points", lambda group: entries)
    with pytest.raises(catalogue.CatalogueError, match="package0:Class and package1:Class"):
        catalogue.declared_methods.__wrapped__()


def test_reproduce_is_swept_too(call):
    code, out, _ = call("-m", "verb=plan", "paper=mufc,dpm", "profile=smoke", command=reproduce)
    assert code == 0
    assert "paper=mufc" in out
    assert "paper=dpm" in out


def test_full_errors_can_be_asked_for(call, monkeypatch):
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(Exception, match="Could not override 'eps'"):
        call("eps=1")


@pytest.mark.parametrize("words", [["--info"], ["-i", "k=3"], ["--info", "config", "k=3"]])
def test_info_needs_no_value(words):
    completed = complete_words(words, "run")
    assert completed[-1] == "hydra/hydra_logging=default"
    assert completed[0] == ("--info" if "config" in words else "--info=all")


@pytest.mark.parametrize("verb", [sync.main, dashboard.main])
def test_what_shows_results_makes_no_folder(verb, tmp_path, capsys):
    folder = tmp_path / "absent"
    assert verb(["paper=dpm", f"results={folder}"]) == 2
    assert "results must be a folder with stored cells" in capsys.readouterr().err
    assert not folder.exists()


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
