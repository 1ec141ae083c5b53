"""Launchers: one batch, the same rows."""

import os
import stat
import sys
from pathlib import Path

import pytest
import slurm
from joblib.externals.loky import get_reusable_executor
from swept_rows import SWEEP, rows

from pkm.experiments.commands import reproduce, run

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Rows of the sweep by the launcher of cells."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PKM_DATA", raising=False)
        patch.chdir(tmp_path_factory.mktemp("cells"))
        assert run.main([*SWEEP, "results=results"]) == 0
        return rows()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "methods", "n_rows"),
    # A job of submitit is two processes, and the test of SLURM has two jobs.
    [
        ("basic", "fastlloyd,mean", 6),
        ("joblib", "fastlloyd,mean", 6),
        ("submitit_local", "fastlloyd", 4),
    ],
)
def test_all_launchers_give_the_same_rows(call, expected, launcher, methods, n_rows):
    # Workers of joblib keep the folder of the test that started them.
    get_reusable_executor().shutdown()
    assert call("-m", f"method={methods}", *SWEEP[2:], f"hydra/launcher={launcher}")[0] == 0
    chosen = expected[expected["method"].isin(methods.split(","))]
    assert len(chosen) == n_rows
    assert rows().equals(chosen.reset_index(drop=True))


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
def test_jobs_of_slurm_give_the_same_rows(call, expected, tmp_path, monkeypatch):
    """Each configuration is a job; `tests/support/slurm.py` stands for the cluster."""
    submitted = slurm.install(tmp_path / "slurm")
    monkeypatch.setenv("PATH", f"{tmp_path / 'slurm'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_SUBMITTED", str(submitted))
    words = ("backend=submitit", "jobs=2", "hydra.launcher.partition=short", *SWEEP[1:])
    code, out, err = call(*words)
    assert code == 0, out + err
    text = submitted.read_text(encoding="utf-8")
    for line in ("--array=0-1%2", "--cpus-per-task=2", "--partition=short"):
        assert f"#SBATCH {line}\n" in text
    assert rows().equals(expected)


@pytest.mark.slow
def test_a_sweep_is_one_batch(call):
    code, out, _ = call(*SWEEP, "epsilon=[1.0]")
    assert code == 0
    assert "0 cells were stored already, 2 were run" in out
    # Of the second sweep one cell is stored, and two jobs share one.
    _, out, _ = call("-m", "method=mean", "epsilon=1.0,2.0", "k=3,4", *SWEEP[3:])
    assert "1 cells were stored already, 1 were run" in out
    assert sorted(path.name for path in Path("results/hydra").iterdir()) == ["multirun.yaml"]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["cells", "basic"])
def test_folders_of_a_sweep_are_for_their_owner_alone(call, launcher):
    """Launchers of jobs and sweepers write objectives of private data there."""
    call("-m", "method=mean", "epsilon=1.0", *SWEEP[3:], f"hydra/launcher={launcher}")
    for folder in ("results", "results/hydra"):
        assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700


@pytest.mark.slow
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
