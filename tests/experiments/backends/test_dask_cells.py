"""Cells on a cluster of dask: the rows of the serial backend, also after workers have died."""

import os
import platform
import signal
import threading
import time
import urllib.error
import urllib.request
from dataclasses import replace
from functools import partial

import pandas as pd
import pytest
import small_cells
from small_cells import (
    BASE,
    CELLS,
    outcomes_by_key,
    stored_rows,
)

import pkm
from pkm.datasets import FileOptions
from pkm.experiments.backends import dask_cells
from pkm.experiments.backends.backends import check_backend, run_cells
from pkm.experiments.commands.reproduce import main
from pkm.experiments.config.backend import Backend
from pkm.experiments.config.errors import ConfigurationError
from pkm.experiments.store.store import Store

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.integration
PYTHON = platform.python_version().rpartition(".")[0]


@pytest.fixture
def misbehaving_cell(tmp_path):
    """Return a function from the name of a misbehaving method to a cell of it."""
    return partial(small_cells.misbehaving_cell, tmp_path)


@pytest.fixture
def no_process():
    """End the process of this worker, which is the process of the test."""
    yield
    dask_cells.close_process("run")
    assert not dask_cells.PROCESSES


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("serial"))
    run_cells(CELLS, store, Backend())
    return stored_rows(store, CELLS)


@pytest.fixture(scope="module")
def cluster():
    """Two workers on this machine."""
    options = {"threads_per_worker": 1, "memory_limit": None, "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(n_workers=2, silence_logs=50, **options) as started:
        yield started


@pytest.fixture
def scheduler(cluster):
    """Address of the scheduler of the cluster."""
    return cluster.scheduler_address


@pytest.mark.slow
def test_a_task_returns_the_file_of_a_store(serial, no_process, tmp_path):
    """What runs on a worker, in this process."""
    store = Store(tmp_path)
    backend = Backend("dask")
    for cell in CELLS:
        outcome, content = dask_cells.run_cell(cell, cell.code, "", "run", backend, None)
        store.write_file(cell, content, outcome.status)
    pd.testing.assert_frame_equal(stored_rows(store, CELLS), serial, check_exact=True)


@pytest.mark.slow
def test_failures_of_tasks_count_with_earlier_ones(misbehaving_cell, no_process, tmp_path):
    store = Store(tmp_path / "results")
    broken = misbehaving_cell("Broken")
    task = (broken, broken.code, "", "run", Backend("dask", retries=2), None)
    for attempts in (3, 6):
        outcome, content = dask_cells.run_cell(*task)
        assert "ZeroDivisionError: by design" in outcome.error
        store.write_file(broken, content, outcome.status)
        assert store.read_failure(broken.key)["attempts"] == attempts
    assert "in cluster" in store.read_failure(broken.key).get("traceback", "")


def test_workers_with_other_code_or_files_refuse_a_cell(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("1,20\n3,4\n5,7\n")
    file = FileOptions(str(path))
    cell = replace(BASE, dataset="file", file=file, bounds=(0, 9), k=2)
    task = (dask_cells.hash_files(cell), "run", Backend("dask"), None)
    path.write_text("1,20\n3,4\n5,8\n")
    with pytest.raises(ConfigurationError, match="not the same file on this worker"):
        dask_cells.run_cell(cell, cell.code, *task)
    with pytest.raises(ConfigurationError, match="the code of this worker is not that"):
        dask_cells.run_cell(cell, "other", *task)


def test_a_scheduler_that_is_not_there_is_refused_in_one_line(capfd, tmp_path, monkeypatch):
    monkeypatch.setattr(dask_cells, "CONNECT_SECONDS", 1)
    words = ["run", "paper=dpm", "profile=smoke", "backend=dask", f"results={tmp_path / 'results'}"]
    assert main([*words, "scheduler=tcp://127.0.0.1:1"]) == 2
    error = capfd.readouterr().err
    assert "error: scheduler='tcp://127.0.0.1:1' does not answer" in error
    assert "dask scheduler" in error
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "words, message",
    [
        (["scheduler=tcp://127.0.0.1:1"], "must be left out unless backend=dask"),
        (["backend=dask", "scheduler=127.0.0.1"], "must be an address such as tcp://"),
        (["backend=dask", "scheduler=tcp://127.0.0.1:1", "jobs=2"], "jobs=2 is not allowed"),
    ],
)
def test_settings_without_effect_are_refused(capfd, words, message):
    assert main(["plan", "paper=dpm", "profile=smoke", *words]) == 2
    assert message in capfd.readouterr().err


def test_a_cluster_without_workers_is_refused():
    with pytest.raises(ConfigurationError, match="has no worker: start some with `dask worker"):
        dask_cells.check_code({}, "tcp://s:1")


@pytest.mark.parametrize(
    "found, message",
    [
        (("3.9", "", ""), r"worker tcp://b:1 has Python 3\.9, this process 3\.1"),
        ((PYTHON, "0.0.7", ""), r"worker tcp://b:1 has pkm 0\.0\.7, this process"),
        (
            (PYTHON, pkm.__version__, ""),
            "worker tcp://b:1 has pkm .* with other code than this process",
        ),
        (ModuleNotFoundError("No module named 'pkm'"), r"tcp://b:1 cannot import pkm \(No module"),
    ],
)
def test_workers_with_other_code_are_refused(found, message):
    local_code = dask_cells.read_versions()
    dask_cells.check_code({"tcp://a:1": local_code}, "tcp://s:1")
    with pytest.raises(ConfigurationError, match=message):
        dask_cells.check_code({"tcp://a:1": local_code, "tcp://b:1": found}, "tcp://s:1")


@pytest.mark.slow
def test_two_workers_give_identical_rows(serial, scheduler, tmp_path):
    backend = check_backend(Backend("dask", scheduler=scheduler))
    assert backend.jobs == 2
    store = Store(tmp_path)
    outcomes = run_cells(CELLS, store, backend)
    assert sorted(outcome.key for outcome in outcomes) == sorted(cell.key for cell in CELLS)
    pd.testing.assert_frame_equal(stored_rows(store, CELLS), serial, check_exact=True)


@pytest.mark.slow
def test_nobody_else_reaches_workers_here():
    """Without the certificate of the run there is neither a connection nor a page."""
    with dask_cells.open_client(Backend("dask", jobs=2), 2) as client:
        worker, _ = client.scheduler_info()["workers"].values()
        address = client.scheduler.address
        assert address.startswith("tls://127.0.0.1:")
        options = {"timeout": 2, "set_as_default": False}
        for known in (address, worker["nanny"]):
            with pytest.raises(OSError, match="certificate"):
                distributed.Client(known, security=True, **options)
            with pytest.raises(OSError, match=r"Timed out|in <TCP"):
                distributed.Client(known.replace("tls:", "tcp:"), **options)
        pages = [client.cluster.scheduler.http_server.port, worker["services"].get("dashboard")]
        for port in filter(None, pages):
            for page in ("", "status", "health", "info/main/workers.html", "json/counts.json"):
                with pytest.raises(urllib.error.HTTPError, match="404"):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=5)
        assert client.submit(abs, -3).result() == 3


@pytest.mark.slow
def test_a_single_worker_has_no_port(serial, tmp_path):
    """It is in this process, and its cells are in one of their own, as elsewhere."""
    with dask_cells.open_client(Backend("dask", jobs=2), 1) as client:
        assert client.scheduler.address.startswith("inproc://")
    store = Store(tmp_path / "results")
    outcomes_by_key(CELLS, store, Backend("dask", jobs=1))
    pd.testing.assert_frame_equal(stored_rows(store, CELLS), serial, check_exact=True)


@pytest.mark.slow
def test_an_open_scheduler_is_called_open(scheduler, capsys):
    check_backend(Backend("dask", scheduler=scheduler))
    assert "without TLS" in capsys.readouterr().err


@pytest.mark.slow
def test_time_limits_and_failures_are_those_of_other_backends(
    scheduler, misbehaving_cell, tmp_path
):
    store = Store(tmp_path / "results")
    compiled = misbehaving_cell("Compiled", time_limit=1.0)
    broken = misbehaving_cell("Broken")
    slow = misbehaving_cell("Slow", time_limit=60.0)
    backend = Backend("dask", scheduler=scheduler, retries=2)
    outcomes = outcomes_by_key([compiled, broken, slow], store, backend)
    assert outcomes[compiled.key].error == "TimeLimitExceeded: time limit of 1 s reached"
    assert (tmp_path / "spinning").exists()
    assert "ZeroDivisionError: by design" in outcomes[broken.key].error
    assert store.read_failure(broken.key)["attempts"] == 3
    assert outcomes[slow.key].status == "done"


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_cell_that_ends_its_workers_fails_alone(misbehaving_cell, tmp_path, jobs):
    store = Store(tmp_path / "results")
    deadly = misbehaving_cell("Deadly")
    outcomes = outcomes_by_key([deadly, *CELLS], store, Backend("dask", jobs=jobs))
    assert "WorkerDied: the worker process ended" in outcomes.pop(deadly.key).error
    assert {outcome.status for outcome in outcomes.values()} == {"done"}


@pytest.mark.slow
def test_two_killed_workers_change_no_row(misbehaving_cell, cluster, tmp_path):
    cells = [misbehaving_cell("Slow", seeds=(seed,)) for seed in range(8)]
    expected = Store(tmp_path / "serial")
    run_cells(cells, expected, Backend())
    store = Store(tmp_path / "cluster")
    killed = []

    def kill():
        """Kill one worker after another, each while it runs a cell."""
        for n_stored in (2, 5):
            while len(store.keys()) < n_stored:
                time.sleep(0.02)
            worker = next(each for each in cluster.workers.values() if each.process.pid)
            killed.append(worker.process.pid)
            os.kill(worker.process.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    outcomes = run_cells(cells, store, Backend("dask", scheduler=cluster.scheduler_address))
    killer.join()
    assert len(set(killed)) == 2
    assert [outcome.status for outcome in outcomes] == ["done"] * len(cells)
    rows = stored_rows(store, cells)
    pd.testing.assert_frame_equal(rows, stored_rows(expected, cells), check_exact=True)
