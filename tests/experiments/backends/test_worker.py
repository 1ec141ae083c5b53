"""Workers: failures, retries, time limits, and the end of their command."""

import contextlib
import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest
import small_cells
from small_cells import BASE, CELLS, outcomes_by_key
from started_runs import start_command

from pkm.experiments.backends.backends import run_cells
from pkm.experiments.config.backend import Backend
from pkm.experiments.fit import execute
from pkm.experiments.store.store import Store

pytestmark = pytest.mark.integration


@pytest.fixture
def misbehaving_cell(tmp_path):
    """Return a function from the name of a misbehaving method to a cell of it."""
    return partial(small_cells.misbehaving_cell, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_the_command(misbehaving_cell, tmp_path, number):
    cells = [misbehaving_cell(name) for name in ("Compiled", "Endless")]
    backend = Backend("processes", jobs=2)
    command = start_command(tmp_path, cells, Store(tmp_path / "results"), backend)
    deadline = time.monotonic() + 60
    while not (tmp_path / "spinning").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(find_workers(tmp_path)) == 2
    command.send_signal(number)
    command.wait()
    deadline = time.monotonic() + 20
    while find_workers(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert find_workers(tmp_path) == []


def find_workers(folder):
    """Return the processes that lead a group of their own and work in a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_leader = os.getpgid(int(path.name)) == int(path.name)
            if is_leader and (path / "cwd").samefile(folder):
                found.append(path.name)
    return found


@pytest.mark.parametrize("jobs", [1, 2])
def test_failure_is_recorded_and_other_cells_run(misbehaving_cell, tmp_path, jobs):
    store = Store(tmp_path / "results")
    broken = misbehaving_cell("Broken")
    backend = Backend("processes", jobs=jobs, retries=2)
    outcomes = outcomes_by_key([broken, BASE], store, backend)
    assert outcomes[broken.key].status == "failed"
    assert "ZeroDivisionError: by design" in outcomes[broken.key].error
    assert store.read_failure(broken.key)["attempts"] == 3
    assert "in cluster" in store.read_failure(broken.key).get("traceback", "")
    assert store.status(BASE.key) == "done"


def test_successful_retry_leaves_no_failure(misbehaving_cell, tmp_path):
    store = Store(tmp_path / "results")
    cell = misbehaving_cell("BrokenOnce")
    (outcome,) = run_cells([cell], store, Backend(retries=1))
    assert outcome.status == "done"
    assert store.read_failure(cell.key).get("traceback", "") == ""


@pytest.mark.slow
def test_dead_worker_fails_only_its_cell(misbehaving_cell, tmp_path):
    store = Store(tmp_path / "results")
    deadly = misbehaving_cell("Deadly")
    outcomes = outcomes_by_key([deadly, *CELLS], store, Backend("processes", jobs=2))
    assert outcomes.pop(deadly.key).status == "failed"
    assert {outcome.status for outcome in outcomes.values()} == {"done"}
    assert "WorkerDied" in store.read_failure(deadly.key)["error"]


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_time_limit_stops_a_cell_without_retries(misbehaving_cell, tmp_path, jobs):
    store = Store(tmp_path / "results")
    endless = misbehaving_cell("Endless")
    slow = misbehaving_cell("Slow")
    backend = Backend("processes", jobs=jobs, time_limit=6, retries=3)
    outcomes = outcomes_by_key([endless, slow], store, backend)
    error = outcomes[endless.key].error
    assert error == "TimeLimitExceeded: time limit of 6 s reached"
    record = store.read_failure(endless.key)
    assert record["error"] == error
    assert record["attempts"] == 1
    # Only the cell over the limit is stopped.
    assert store.status(slow.key) == "done"


@pytest.mark.slow
def test_time_limit_stops_compiled_code(misbehaving_cell, tmp_path):
    store = Store(tmp_path / "results")
    cell = misbehaving_cell("Compiled", time_limit=1.0)
    started = time.monotonic()
    (outcome,) = run_cells([cell], store, Backend())
    # Starting a process and compiling take a few seconds; the loop alone would take decades.
    assert time.monotonic() - started < 60
    assert (tmp_path / "spinning").exists()
    assert outcome.error == "TimeLimitExceeded: time limit of 1 s reached"


def test_time_limit_of_a_cell_precedes_the_backend(misbehaving_cell, tmp_path):
    store = Store(tmp_path)
    generous = misbehaving_cell("Slow", time_limit=60.0)
    strict = misbehaving_cell("Endless", time_limit=0.3)
    outcomes = outcomes_by_key([generous, strict], store, Backend(time_limit=0.1))
    assert outcomes[generous.key].status == "done"
    assert "time limit of 0.3 s reached" in outcomes[strict.key].error


@pytest.mark.slow
def test_failures_under_a_time_limit_are_recorded(misbehaving_cell, tmp_path):
    store = Store(tmp_path / "results")
    broken = misbehaving_cell("Broken")
    deadly = misbehaving_cell("Deadly")
    broken_once = misbehaving_cell("BrokenOnce")
    slow = misbehaving_cell("Slow")
    cells = [broken, deadly, broken_once, slow]
    outcomes = outcomes_by_key(cells, store, Backend(time_limit=60.0))
    assert "ZeroDivisionError: by design" in outcomes[broken.key].error
    assert store.read_failure(broken.key)["attempts"] == 2
    assert "WorkerDied" in outcomes[deadly.key].error
    assert outcomes[broken_once.key].status == "done"
    assert outcomes[slow.key].status == "done"


def test_rows_that_the_store_refuses_fail_their_cell(tmp_path, monkeypatch):
    complete = execute.execute
    monkeypatch.setattr(execute, "execute", lambda *given: complete(*given).assign(method=3))
    (outcome,) = run_cells([BASE], Store(tmp_path), Backend(retries=0))
    assert outcome.status == "failed"
    assert "method" in outcome.error
