"""Running cells: the same rows whatever the backend, the order, or an interruption."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from joblib.externals.loky import get_reusable_executor

from experiments.backends import Backend, TimeLimitExceeded, arrange, run_cells, time_limit
from experiments.cell import Cell, freeze
from experiments.store import Store

ROOT = Path(__file__).resolve().parents[1]
#: What a run measures about itself; everything else must be equal bit for bit.
OWN = ["fit_seconds", "fit_cpu_seconds", "metric_seconds", "metric_cpu_seconds", "peak_memory_mb", "finished"]

BASE = Cell(
    "fastlloyd",
    "methods.lloyd.FastLloyd",
    freeze({"variant": "published"}),
    "iris",
    "minmax",
    3,
    1.0,
    "auto",
    (0, 1, 2),
    ("nicv", "silhouette"),
)
CELLS = [replace(BASE, epsilon=epsilon, dataset=name) for name in ("iris", "wine") for epsilon in (0.1, 0.5, 1.0)] + [
    Cell("kmeans", "methods.kmeans.KMeansPlusPlus", (), "iris", "minmax", 3, None, None, (0, 1, 2), ("nicv",))
]

TROUBLE = """
import os
import time
from pathlib import Path

from methods.yardsticks import DataMean

HERE = Path(__file__).parent


class Slow(DataMean):
    def cluster(self, curator):
        time.sleep(0.2)
        return super().cluster(curator)


class Endless(DataMean):
    def cluster(self, curator):
        time.sleep(60)
        return super().cluster(curator)


class Broken(DataMean):
    def cluster(self, curator):
        raise ZeroDivisionError("by design")


class BrokenOnce(DataMean):
    def cluster(self, curator):
        if not (HERE / "tried").exists():
            (HERE / "tried").touch()
            raise OSError("the first time only")
        return super().cluster(curator)


class Deadly(DataMean):
    def cluster(self, curator):
        os._exit(1)
"""


@pytest.fixture
def trouble(tmp_path, monkeypatch):
    """Return a function from the name of an ill-behaved method to a cell of it."""
    (tmp_path / "trouble_methods.py").write_text(TROUBLE)
    monkeypatch.syspath_prepend(tmp_path)
    # Workers of earlier tests have been told another search path.
    get_reusable_executor().shutdown(wait=True)
    yield lambda name, **changes: replace(
        BASE, method=name.lower(), target=f"trouble_methods.{name}", params=(), epsilon=None, delta=None, **changes
    )
    sys.modules.pop("trouble_methods", None)
    get_reusable_executor().shutdown(wait=True)


def stored(store, cells):
    return store.read([cell.key for cell in cells]).drop(columns=OWN)


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("serial"))
    outcomes = run_cells(CELLS, store, Backend())
    assert {outcome.status for outcome in outcomes} == {"done"}
    return stored(store, CELLS)


def test_two_workers_give_the_same_bits_as_one_process(serial, tmp_path):
    store = Store(tmp_path)
    outcomes = run_cells(CELLS, store, Backend("joblib", jobs=2))
    assert sorted(outcome.key for outcome in outcomes) == sorted(cell.key for cell in CELLS)
    pd.testing.assert_frame_equal(stored(store, CELLS), serial, check_exact=True)


def test_order_of_cells_does_not_matter(serial, tmp_path):
    run_cells(CELLS[::-1], Store(tmp_path), Backend(), costs={cell.key: i for i, cell in enumerate(CELLS)})
    pd.testing.assert_frame_equal(stored(Store(tmp_path), CELLS), serial, check_exact=True)


def test_seed_gives_the_same_row_whatever_its_neighbours(serial, tmp_path):
    alone = replace(CELLS[0], seeds=(2,))
    run_cells([alone], Store(tmp_path), Backend())
    row, same = stored(Store(tmp_path), [alone]), serial[(serial["cell"] == CELLS[0].key) & (serial["seed"] == 2)]
    pd.testing.assert_frame_equal(
        row.drop(columns="cell"), same.drop(columns="cell").reset_index(drop=True), check_exact=True
    )


def test_killed_in_the_middle_and_resumed_equals_uninterrupted(trouble, tmp_path):
    cells = [trouble("Slow", seeds=(seed,)) for seed in range(8)]
    whole, broken = Store(tmp_path / "whole"), Store(tmp_path / "broken")
    script = (
        "from test_experiments_backends import *\n"
        "base = replace(BASE, method='slow', target='trouble_methods.Slow', params=(), epsilon=None, delta=None)\n"
        f"run_cells([replace(base, seeds=(s,)) for s in range(8)], Store({str(broken.root)!r}), Backend())\n"
    )
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests"), str(tmp_path)])
    process = subprocess.Popen([sys.executable, "-c", script], env=os.environ | {"PYTHONPATH": path}, cwd=ROOT)
    deadline = time.monotonic() + 60
    while len(broken.keys()) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    finished = broken.keys()
    assert 2 <= len(finished) < 8
    outcomes = run_cells(
        [cell for cell in cells if broken.status(cell.key) != "done"], broken, Backend("joblib", jobs=2)
    )
    assert not {outcome.key for outcome in outcomes} & set(finished)
    run_cells(cells, whole, Backend("joblib", jobs=2))
    pd.testing.assert_frame_equal(stored(broken, cells), stored(whole, cells), check_exact=True)


@pytest.mark.parametrize("jobs", [1, 2])
def test_failure_is_recorded_and_does_not_stop_the_others(trouble, tmp_path, jobs):
    store, cells = Store(tmp_path / "results"), [trouble("Broken"), BASE]
    outcomes = {outcome.key: outcome for outcome in run_cells(cells, store, Backend("joblib", jobs=jobs, retries=2))}
    assert outcomes[cells[0].key].status == "failed"
    assert "ZeroDivisionError: by design" in outcomes[cells[0].key].error
    assert store.failure_record(cells[0].key)["attempts"] == 3
    assert "in cluster" in store.failure(cells[0].key)
    assert store.status(BASE.key) == "done"


def test_passing_trouble_is_tried_again_and_leaves_no_failure(trouble, tmp_path):
    store, cell = Store(tmp_path / "results"), trouble("BrokenOnce")
    assert [outcome.status for outcome in run_cells([cell], store, Backend(retries=1))] == ["done"]
    assert store.failure(cell.key) == ""


def test_dying_worker_costs_its_own_cell_only(trouble, tmp_path):
    store = Store(tmp_path / "results")
    cells = [trouble("Deadly"), *CELLS]
    outcomes = {outcome.key: outcome.status for outcome in run_cells(cells, store, Backend("joblib", jobs=2))}
    assert outcomes.pop(cells[0].key) == "failed"
    assert set(outcomes.values()) == {"done"}
    assert "WorkerDied" in store.failure_record(cells[0].key)["error"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_time_limit_stops_a_cell_without_a_second_try(trouble, tmp_path, jobs):
    store, cells = Store(tmp_path / "results"), [trouble("Endless"), trouble("Endless", k=2)]
    run_cells(cells, store, Backend("joblib", jobs=jobs, time_limit=0.3, retries=3))
    for cell in cells:
        assert "TimeLimitExceeded" in store.failure_record(cell.key)["error"]
        assert store.failure_record(cell.key)["attempts"] == 1


def test_time_limit_leaves_no_alarm_behind():
    with pytest.raises(TimeLimitExceeded, match=r"after 0\.05 s"), time_limit(0.05):
        time.sleep(1)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


def test_unwritable_results_are_refused_before_any_work(trouble, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PermissionError, match="cannot be written"):
        run_cells([trouble("Slow")], Store(tmp_path / "file" / "results"), Backend())


def test_chunks_keep_data_sets_together_and_start_with_the_dearest():
    costs = {cell.key: 5.0 if cell.dataset == "wine" else 1.0 for cell in CELLS}
    chunks = arrange(CELLS, costs, jobs=2)
    assert sorted(cell.key for chunk in chunks for cell in chunk) == sorted(costs)
    names = [chunk[0].dataset for chunk in chunks]
    assert names == sorted(names, reverse=True)
    assert all(len({cell.dataset for cell in chunk}) == 1 for chunk in chunks)
    # 19 s over two workers: no chunk may hold more than an eighth of it, apart from single cells.
    assert all(len(chunk) == 1 or sum(costs[cell.key] for cell in chunk) <= 19 / 8 for chunk in chunks)


@pytest.mark.parametrize(
    "given, message",
    [
        ({"name": "cloud"}, "backend='cloud'"),
        ({"jobs": 0}, "jobs=0"),
        ({"threads": 0}, "threads=0"),
        ({"time_limit": 0}, "time_limit=0"),
        ({"retries": -1}, "retries=-1"),
    ],
)
def test_backend_refuses_wrong_settings(given, message):
    with pytest.raises(ValueError, match=message):
        Backend(**given)
