"""The process of an entry: its answer, its end, and what is said of it."""

import time

import pytest

from pkm.arena import attempt
from pkm.arena.attempt import AttemptFailed, run_attempt


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a function that runs a script of the shell in the place of Python."""

    def run_script(script, seconds=60.0):
        program = tmp_path / "python"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o700)
        monkeypatch.setattr(attempt.sys, "executable", str(program))
        work = tmp_path / "work"
        work.mkdir(exist_ok=True)
        return run_attempt("check", {"method": {"name": "mine"}}, work, seconds, n_cells=3)

    return run_script


def test_the_answer_is_read_and_the_request_written(run, tmp_path):
    assert run("cp request.json answer.json") == {"method": {"name": "mine"}}


def test_temporary_files_are_in_the_folder(run, tmp_path):
    answer = run('echo "{\\"tmp\\": \\"$TMPDIR\\"}" > answer.json')
    assert answer["tmp"] == str(tmp_path / "work" / "tmp")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        pytest.param("exit 3", "check: exit code 3", id="silent"),
        pytest.param("kill -9 $$", "check: exit code -9", id="killed"),
        pytest.param("echo Trace >&2; echo 'ValueError: no'; exit 1", "check: ValueError: no"),
        pytest.param("echo '{}' > answer.json; exit 1", "check: exit code 1", id="late failure"),
        pytest.param("echo done", "check: done", id="no answer"),
        pytest.param("cat", "check: exit code 0", id="nobody answers at the keyboard"),
    ],
)
def test_a_failure_is_told_in_a_line(run, script, reason):
    with pytest.raises(AttemptFailed) as failed:
        run(script)
    assert str(failed.value) == reason


def test_an_answer_of_an_earlier_phase_is_not_taken(run):
    run("echo '{}' > answer.json")
    with pytest.raises(AttemptFailed):
        run("exit 0")


def test_a_process_and_its_children_are_killed_in_time(run, tmp_path):
    start = time.monotonic()
    with pytest.raises(AttemptFailed, match=r"check: not done after 0\.5 s"):
        run("(sleep 2; touch late) & sleep 60", seconds=0.5)
    assert time.monotonic() - start < 30
    time.sleep(2.5)
    assert not (tmp_path / "work" / "late").exists()


def test_progress_is_the_number_of_stored_cells(run, capsys, monkeypatch):
    monkeypatch.setattr(attempt, "PROGRESS", 0.2)
    make = "mkdir -p results/cells/{0}; touch results/cells/{0}/{0}.parquet; sleep 1; "
    run(make.format("a") + make.format("b") + "echo '{}' > answer.json")
    assert capsys.readouterr().out.split("\n") == [
        "    1 of 3 cells done",
        "    2 of 3 cells done",
        "",
    ]
