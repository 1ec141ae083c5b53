"""Running cells: the same rows whatever the backend, the order, or an interruption."""

import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from joblib.externals.loky import get_reusable_executor

from pkm.experiments import backends, execute
from pkm.experiments.backends import Backend, arrange, run_cells
from pkm.experiments.cell import Cell, to_hashable
from pkm.experiments.store import Store

SUPPORT = Path(__file__).parents[1] / "support"
pytestmark = pytest.mark.integration
#: What a run measures about itself; everything else must be equal bit for bit.
OWN = [
    "fit_seconds",
    "fit_cpu_seconds",
    "metric_seconds",
    "metric_cpu_seconds",
    "peak_memory_mb",
    "finished",
]
BASE = Cell(
    "fastlloyd",
    "pkm.methods.lloyd.FastLloyd",
    to_hashable({"variant": "published"}),
    "iris",
    "minmax",
    3,
    1.0,
    "auto",
    (0, 1, 2),
    ("nicv", "silhouette"),
)
CELLS = [
    replace(BASE, epsilon=epsilon, dataset=name)
    for name in ("iris", "wine")
    for epsilon in (0.1, 0.5, 1.0)
] + [
    Cell(
        "kmeans",
        "pkm.methods.kmeans.KMeansPlusPlus",
        (),
        "iris",
        "minmax",
        3,
        None,
        None,
        (0, 1, 2),
        ("nicv",),
    )
]


@pytest.fixture(scope="module", autouse=True)
def workers_end():
    yield
    get_reusable_executor().shutdown(wait=True)


@pytest.fixture
def trouble(tmp_path):
    """Return a function from the name of an ill-behaved method to a cell of it."""
    return lambda name, **changes: replace(
        BASE,
        method=name.lower(),
        target=f"trouble.{name}",
        params=to_hashable({"folder": str(tmp_path)}),
        epsilon=None,
        delta=None,
        **changes,
    )


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
    run_cells(
        CELLS[::-1], Store(tmp_path), Backend(), costs={cell.key: i for i, cell in enumerate(CELLS)}
    )
    pd.testing.assert_frame_equal(stored(Store(tmp_path), CELLS), serial, check_exact=True)


def test_seed_gives_the_same_row_whatever_its_neighbors(serial, tmp_path):
    alone = replace(CELLS[0], seeds=(2,))
    run_cells([alone], Store(tmp_path), Backend())
    row = stored(Store(tmp_path), [alone])
    same = serial[(serial["cell"] == CELLS[0].key) & (serial["seed"] == 2)]
    pd.testing.assert_frame_equal(
        row.drop(columns="cell"), same.drop(columns="cell").reset_index(drop=True), check_exact=True
    )


@pytest.mark.slow
def test_killed_in_the_middle_and_resumed_equals_uninterrupted(trouble, tmp_path):
    cells = [trouble("Slow", seeds=(seed,)) for seed in range(8)]
    whole = Store(tmp_path / "whole")
    broken = Store(tmp_path / "broken")
    (tmp_path / "work").write_bytes(pickle.dumps((cells, broken)))
    script = (
        "import pickle\n"
        "from pkm.experiments.backends import Backend, run_cells\n"
        "run_cells(*pickle.load(open('work', 'rb')), Backend())\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": str(SUPPORT)},
        cwd=tmp_path,
    )
    deadline = time.monotonic() + 60
    while len(broken.keys()) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    finished = broken.keys()
    assert 2 <= len(finished) < 8
    outcomes = run_cells(
        [cell for cell in cells if broken.status(cell.key) != "done"],
        broken,
        Backend("joblib", jobs=2),
    )
    assert not {outcome.key for outcome in outcomes} & set(finished)
    run_cells(cells, whole, Backend("joblib", jobs=2))
    pd.testing.assert_frame_equal(stored(broken, cells), stored(whole, cells), check_exact=True)


@pytest.mark.parametrize("jobs", [1, 2])
def test_failure_is_recorded_and_does_not_stop_the_others(trouble, tmp_path, jobs):
    store = Store(tmp_path / "results")
    cells = [trouble("Broken"), BASE]
    outcomes = {
        outcome.key: outcome
        for outcome in run_cells(cells, store, Backend("joblib", jobs=jobs, retries=2))
    }
    assert outcomes[cells[0].key].status == "failed"
    assert "ZeroDivisionError: by design" in outcomes[cells[0].key].error
    assert store.failure_record(cells[0].key)["attempts"] == 3
    assert "in cluster" in store.failure(cells[0].key)
    assert store.status(BASE.key) == "done"


def test_passing_trouble_is_tried_again_and_leaves_no_failure(trouble, tmp_path):
    store = Store(tmp_path / "results")
    cell = trouble("BrokenOnce")
    assert [outcome.status for outcome in run_cells([cell], store, Backend(retries=1))] == ["done"]
    assert store.failure(cell.key) == ""


@pytest.mark.slow
def test_dying_worker_costs_its_own_cell_only(trouble, tmp_path):
    store = Store(tmp_path / "results")
    cells = [trouble("Deadly"), *CELLS]
    outcomes = {
        outcome.key: outcome.status
        for outcome in run_cells(cells, store, Backend("joblib", jobs=2))
    }
    assert outcomes.pop(cells[0].key) == "failed"
    assert set(outcomes.values()) == {"done"}
    assert "WorkerDied" in store.failure_record(cells[0].key)["error"]


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_time_limit_stops_a_cell_without_a_second_try(trouble, tmp_path, jobs):
    store = Store(tmp_path / "results")
    cells = [trouble("Endless"), trouble("Slow")]
    found = run_cells(cells, store, Backend("joblib", jobs=jobs, time_limit=6, retries=3))
    outcomes = {outcome.key: outcome for outcome in found}
    error = outcomes[cells[0].key].error
    assert error == "TimeLimitExceeded: time limit of 6 s reached"
    assert (
        store.failure_record(cells[0].key)["error"],
        store.failure_record(cells[0].key)["attempts"],
    ) == (error, 1)
    # The limit ends its own cell only.
    assert store.status(cells[1].key) == "done"


@pytest.mark.slow
def test_time_limit_holds_inside_compiled_code(trouble, tmp_path):
    store = Store(tmp_path / "results")
    cell = trouble("Compiled", time_limit=1.0)
    started = time.monotonic()
    (outcome,) = run_cells([cell], store, Backend())
    # Starting a process and compiling take a few seconds; the loop alone would take decades.
    assert time.monotonic() - started < 60
    assert (tmp_path / "spinning").exists()
    assert outcome.error == "TimeLimitExceeded: time limit of 1 s reached"


def test_cell_may_have_a_time_limit_of_its_own(trouble, tmp_path):
    store = Store(tmp_path)
    generous = trouble("Slow", time_limit=60.0)
    strict = trouble("Endless", time_limit=0.3)
    outcomes = {
        outcome.key: outcome
        for outcome in run_cells([generous, strict], store, Backend(time_limit=0.1))
    }
    assert outcomes[generous.key].status == "done"
    assert "time limit of 0.3 s reached" in outcomes[strict.key].error


@pytest.mark.slow
def test_time_limit_changes_neither_key_nor_rows(serial, tmp_path):
    limited = [replace(cell, time_limit=100.0) for cell in CELLS]
    assert [cell.key for cell in limited] == [cell.key for cell in CELLS]
    run_cells(limited, Store(tmp_path), Backend())
    pd.testing.assert_frame_equal(stored(Store(tmp_path), CELLS), serial, check_exact=True)


@pytest.mark.slow
def test_failures_of_a_cell_with_a_limit_are_recorded_as_ever(trouble, tmp_path):
    store = Store(tmp_path / "results")
    cells = [trouble(name) for name in ("Broken", "Deadly", "BrokenOnce", "Slow")]
    outcomes = {
        outcome.key: outcome for outcome in run_cells(cells, store, Backend(time_limit=60.0))
    }
    broken, deadly, once, slow = (outcomes[cell.key] for cell in cells)
    assert "ZeroDivisionError: by design" in broken.error
    assert store.failure_record(cells[0].key)["attempts"] == 2
    assert "WorkerDied" in deadly.error
    assert (once.status, slow.status) == ("done", "done")


def test_clock_starts_when_data_and_references_are_ready(tmp_path, monkeypatch):
    order = []
    for name in ("make_ready", "execute"):
        found = getattr(execute, name)
        monkeypatch.setattr(
            execute, name, lambda *given, n=name, f=found: (order.append(n), f(*given))[1]
        )
    backends.attempt(BASE, Store(tmp_path), Backend(), None, lambda: order.append("begin"))
    # What executes a cell makes ready as well, for those who call it alone.
    assert order == ["make_ready", "begin", "execute", "make_ready"]


def log_of(folder):
    """Return what `Watched` has written down."""
    table = pd.read_csv(
        folder / "log", sep=" ", names=["start", "end", "process", "seeds", "name", "threads"]
    )
    return table.sort_values("start").reset_index(drop=True)


@pytest.mark.parametrize("backend", [Backend(threads=2), Backend("joblib", jobs=2, threads=2)])
def test_timing_cells_run_last_alone_seed_by_seed_on_one_thread(trouble, tmp_path, backend):
    timed = [trouble("Watched", timing=True, k=k) for k in (1, 2)]
    others = [trouble("Neighbor", seeds=(seed,)) for seed in range(6)]
    store = Store(tmp_path / "results")
    outcomes = run_cells([*timed, *others], store, backend)
    assert {outcome.status for outcome in outcomes} == {"done"}
    log = log_of(tmp_path)
    assert list(log["name"]) == ["neighbor"] * 6 + ["watched"] * 8
    alone = log[log["name"] == "watched"]
    # Per cell: one fit to warm up, three that count; all in one process, none beside another.
    assert set(alone["seeds"]) == {1} and set(alone["threads"]) == {1}
    assert set(alone["process"]) == {os.getpid()}
    ends = log["end"].cummax()
    assert (alone["start"].to_numpy() >= ends[alone.index - 1].to_numpy()).all()
    rows = store.read([timed[0].key])
    assert rows["timing"].all() and rows["seed"].tolist() == [0, 1, 2]
    assert rows["fit_seconds"].between(0.05, 5).all() and rows["fit_seconds"].nunique() == 3


@pytest.mark.slow
def test_timing_cell_can_have_a_time_limit(trouble, tmp_path):
    cells = [
        trouble("Watched", timing=True, time_limit=60.0),
        trouble("Endless", timing=True, time_limit=0.3),
    ]
    outcomes = {
        outcome.key: outcome for outcome in run_cells(cells, Store(tmp_path / "results"), Backend())
    }
    assert outcomes[cells[0].key].status == "done"
    assert "time limit of 0.3 s reached" in outcomes[cells[1].key].error
    (process,) = set(log_of(tmp_path)["process"])
    assert process != os.getpid()


def test_timing_changes_what_is_measured_and_nothing_else(serial, tmp_path):
    timed = [replace(cell, timing=True) for cell in CELLS]
    assert not {cell.key for cell in timed} & {cell.key for cell in CELLS}
    run_cells(timed, Store(tmp_path), Backend())
    rows = stored(Store(tmp_path), timed)
    # The number of iterations of k-means is that of the slowest replicate of a batch.
    own = ["cell", "timing", "iterations"]
    pd.testing.assert_frame_equal(
        rows.drop(columns=own), serial.drop(columns=own), check_exact=True
    )


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
    assert all(
        len(chunk) == 1 or sum(costs[cell.key] for cell in chunk) <= 19 / 8 for chunk in chunks
    )


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
