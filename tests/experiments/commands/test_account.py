"""Accounts on the command line: charges of runs, persons, refusals."""

import shutil

import numpy as np
import pandas as pd
import pytest

from pkm.experiments.commands import account as command
from pkm.experiments.commands import run as run_command
from pkm.privacy import Budget, PrivacyAccountant


@pytest.fixture
def path(tmp_path):
    return tmp_path / "account.json"


@pytest.mark.integration
def test_a_command_stops_a_schedule_that_follows_the_data(call, path, tmp_path):
    """The cells that an account pays for make the planned releases alone, too."""
    np.save(tmp_path / "points.npy", np.ones((400, 2)))
    file = (f"path={tmp_path / 'points.npy'}", "bounds=[-1,1]", "dataset=file", "k=1")
    words = ("method=planted_faults:FollowsTheData", *file, "epsilon=1.0", "seeds=1")
    assert call(run_command, *words, "backend.retries=0")[0] == 0
    PrivacyAccountant(Budget(2.0, 1e-5), path)
    code, out, _ = call(run_command, *words, f"account={path}", "backend.retries=0")
    assert code == 1
    assert "ScheduleError: release 'sums_and_counts' round 1" in out
    assert len(PrivacyAccountant.open(path).runs) == 1


@pytest.fixture
def call(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("PKM_DATA", raising=False)
    monkeypatch.setenv("PKM_CACHE", str(tmp_path / "cache"))

    def go(verb, *words, results="results"):
        more = [f"results={tmp_path / results}"] if verb is run_command else []
        code = verb.main([*words, *more])
        return code, *capsys.readouterr()

    return go


RUN = ("method=glloyd", "dataset=iris", "epsilon=[0.5]", "seeds=2")


@pytest.fixture
def visits(tmp_path):
    """Words that choose a file with three rows of each person."""
    rows = np.random.default_rng(0).uniform(0, 1, (60, 2))
    frame = pd.DataFrame(rows, columns=["x", "y"]).assign(user=np.arange(60) // 3)
    frame.to_csv(tmp_path / "visits.csv", index=False)
    chosen = ["dataset=file", f"path={tmp_path / 'visits.csv'}", "columns=[x,y]", "bounds=[0,1]"]
    return [*chosen, "k=2", "epsilon=[0.5]", "seeds=1", "metrics=[nicv]"]


@pytest.mark.integration
def test_the_command_line_charges_persons_to_an_account_of_persons(call, path, visits):
    words = ["method=glloyd", *visits, f"account={path}"]
    assert call(command, str(path), "epsilon=2", "delta=1e-5", "unit=person")[0] == 0

    code, _, errors = call(run_command, *words)
    assert code == 2
    assert errors.count("\n") == 1 and "unit=row cannot be added" in errors
    code, out, _ = call(run_command, *words, "groups=user")
    assert code == 0
    assert "unit=person" in out
    (run,) = PrivacyAccountant.open(path).runs
    assert run.budget.unit == "person"


@pytest.mark.integration
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["method=em_mc"], "groups and sample_weight are not supported by EMMC"),
        (
            ["method=fastlloyd", "federation.clients=2", "timing=true"],
            "groups='user' is not allowed: groups must be null with federation",
        ),
        (["method=fastlloyd", "columns=[x,user]"], "should not name the column of persons"),
    ],
)
def test_what_serves_no_persons_is_refused_before_it_is_charged(call, path, visits, words, message):
    assert call(command, str(path), "epsilon=2", "delta=1e-5", "unit=person")[0] == 0
    code, _, errors = call(run_command, *visits, *words, "groups=user", f"account={path}")
    assert code == 2
    assert message in errors
    assert not PrivacyAccountant.open(path).runs


@pytest.mark.slow
@pytest.mark.integration
def test_the_command_line_charges_an_account(call, path):
    assert call(command, str(path), "epsilon=2", "delta=1e-5")[0] == 0
    code, out, _ = call(run_command, f"account={path}", *RUN)
    assert code == 0
    assert "2 replicates of 1 cells were charged" in out
    assert PrivacyAccountant.open(path).spent() == 1.0

    (run,) = PrivacyAccountant.open(path).runs
    assert list(run.flaws) == []
    other = path.with_name("other.json")
    assert call(command, str(other), "epsilon=2", "delta=1e-5")[0] == 0
    assert call(run_command, *RUN, "preprocessing=minmax", f"account={other}")[0] == 0
    (run,) = PrivacyAccountant.open(other).runs
    assert list(run.flaws) == ["F-10"]

    # What is stored and paid for is free.
    code, out, _ = call(run_command, f"account={path}", *RUN)
    assert code == 0
    assert "0 replicates of 0 cells were charged" in out

    # What exceeds the budget is refused before any cell runs.
    before = path.read_bytes()
    code, _, errors = call(run_command, f"account={path}", *RUN[:2], "epsilon=[0.1,1.0]", "seeds=2")
    assert code == 2
    assert errors.count("\n") == 1 and "epsilon=3.2" in errors
    assert path.read_bytes() == before

    code, out, _ = call(command, str(path))
    assert code == 0
    assert "2 replicates of epsilon=0.5" in out and "epsilon=1 of 2" in out


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("is_paid", [False, True])
def test_a_cell_that_was_stored_without_the_account_is_run_and_charged(
    call, path, tmp_path, is_paid
):
    """Even if the account has paid for other releases of the same settings."""
    assert call(command, str(path), "epsilon=9", "delta=1e-3")[0] == 0
    if is_paid:
        assert call(run_command, f"account={path}", *RUN, results="elsewhere")[0] == 0
    assert call(run_command, *RUN, "noise=secure")[0] == 0
    code, out, _ = call(run_command, f"account={path}", *RUN)
    assert code == 0
    assert "2 replicates of 1 cells were charged" in out
    assert "0 cells were stored already, 1 were run" in out
    # A copy of what was paid for is free, wherever it is.
    shutil.copytree(tmp_path / "results", tmp_path / "copy")
    code, out, _ = call(run_command, f"account={path}", *RUN, results="copy")
    assert code == 0
    assert "0 replicates of 0 cells were charged" in out
    assert PrivacyAccountant.open(path).spent() == (2.0 if is_paid else 1.0)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["epsilon=1", "composition=gaussian"], "failure_delta=0.0"),
        (["epsilon=-1"], "epsilon=-1"),
        (["epsilon=much"], "epsilon='much'"),
        (["epsilon=1", "adjacency=far"], "far"),
        (["epsilon=1", "adjacency=rho_bounded"], "rho=None"),
        (["delta=1e-6"], "epsilon must be given"),
        (["budget=1"], "key='budget' is unknown"),
        ([], "cannot be read: No such file or directory; pkm account FILE epsilon="),
    ],
)
def test_the_command_refuses_bad_terms_in_one_line(call, path, words, name):
    code, _, errors = call(command, str(path), *words)
    assert code == 2
    assert name in errors and errors.count("\n") == 1
    assert not path.exists()


@pytest.mark.integration
def test_the_command_line_refuses_what_an_account_does_not_take(call, path):
    PrivacyAccountant(Budget(2.0, 1e-5, "add_remove"), path)
    cases = {
        "adjacency=zero_out": (f"account={path}", *RUN),
        "method='lloyd'": (f"account={path}", "method=lloyd", *RUN[1:]),
        "cannot be read": (f"account={path}.other", *RUN),
    }
    for name, words in cases.items():
        code, _, errors = call(run_command, *words)
        assert code == 2
        assert name in errors and errors.count("\n") == 1
    path.write_text("{}")
    code, _, errors = call(run_command, f"account={path}", *RUN)
    assert code == 2 and "damaged" in errors


@pytest.mark.integration
def test_the_command_line_refuses_a_method_without_a_schedule_in_one_line(call, path):
    PrivacyAccountant(Budget(2.0, 1e-5), path)
    words = ("method=planted_faults:HasNoSchedule", *RUN[1:])
    code, out, errors = call(run_command, f"account={path}", *words)
    assert code == 2
    assert "HasNoSchedule must define schedule(n_points, n_features)" in errors
    assert errors.count("\n") == 1 and "Traceback" not in out + errors
    assert PrivacyAccountant.open(path).spent() == 0
