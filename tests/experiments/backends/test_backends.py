"""Running cells: identical rows under every backend and order, and after an interruption."""

import os
import signal
import time
from dataclasses import replace
from functools import partial

import pandas as pd
import pytest
import small_cells
from small_cells import BASE, CELLS, outcomes_by_key, stored_rows
from started_runs import start_command

from pkm.experiments.backends.backends import order_chunks, run_cells
from pkm.experiments.config.backend import Backend
from pkm.experiments.store.store import Store

pytestmark = pytest.mark.integration


@pytest.fixture
def misbehaving_cell(tmp_path):
    """Return a function from the name of a misbehaving method to a cell of it."""
    return partial(small_cells.misbehaving_cell, tmp_path)


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("serial"))
    outcomes = run_cells(CELLS, store, Backend())
    assert {outcome.status for outcome in outcomes} == {"done"}
    return stored_rows(store, CELLS)


def test_two_workers_give_identical_rows(serial, tmp_path):
    store = Store(tmp_path)
    outcomes = run_cells(CELLS, store, Backend("processes", jobs=2))
    assert sorted(outcome.key for outcome in outcomes) == sorted(cell.key for cell in CELLS)
    pd.testing.assert_frame_equal(stored_rows(store, CELLS), serial, check_exact=True)


def test_rows_do_not_depend_on_the_order(serial, tmp_path):
    costs = {cell.key: i for i, cell in enumerate(CELLS)}
    run_cells(CELLS[::-1], Store(tmp_path), Backend(), costs=costs)
    pd.testing.assert_frame_equal(stored_rows(Store(tmp_path), CELLS), serial, check_exact=True)


def test_rows_do_not_depend_on_other_seeds(serial, tmp_path):
    single = replace(CELLS[0], seeds=(2,))
    run_cells([single], Store(tmp_path), Backend())
    row = stored_rows(Store(tmp_path), [single]).drop(columns="cell")
    is_same = (serial["cell"] == CELLS[0].key) & (serial["seed"] == 2)
    expected = serial[is_same].drop(columns="cell").reset_index(drop=True)
    pd.testing.assert_frame_equal(row, expected, check_exact=True)


@pytest.mark.slow
def test_resumed_run_equals_an_uninterrupted_one(misbehaving_cell, tmp_path):
    cells = [misbehaving_cell("Slow", seeds=(seed,)) for seed in range(8)]
    uninterrupted = Store(tmp_path / "uninterrupted")
    interrupted = Store(tmp_path / "interrupted")
    process = start_command(tmp_path, cells, interrupted, Backend())
    deadline = time.monotonic() + 60
    while len(interrupted.keys()) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    finished = interrupted.keys()
    assert 2 <= len(finished) < 8

    # The rest is run; the finished cells are not run again.
    remaining = [cell for cell in cells if interrupted.status(cell.key) != "done"]
    outcomes = run_cells(remaining, interrupted, Backend("processes", jobs=2))
    assert not {outcome.key for outcome in outcomes} & set(finished)

    run_cells(cells, uninterrupted, Backend("processes", jobs=2))
    rows = stored_rows(interrupted, cells)
    expected = stored_rows(uninterrupted, cells)
    pd.testing.assert_frame_equal(rows, expected, check_exact=True)


@pytest.mark.slow
def test_time_limit_changes_neither_key_nor_rows(serial, tmp_path):
    limited = [replace(cell, time_limit=100.0) for cell in CELLS]
    assert [cell.key for cell in limited] == [cell.key for cell in CELLS]
    run_cells(limited, Store(tmp_path), Backend())
    pd.testing.assert_frame_equal(stored_rows(Store(tmp_path), CELLS), serial, check_exact=True)


def log_of(folder):
    """Return the log of `Watched`."""
    columns = ["start", "end", "process", "seeds", "name", "threads"]
    table = pd.read_csv(folder / "log", sep=" ", names=columns)
    return table.sort_values("start").reset_index(drop=True)


@pytest.mark.parametrize("backend", [Backend(threads=2), Backend("processes", jobs=2, threads=2)])
def test_timing_cells_run_last_and_alone(misbehaving_cell, tmp_path, backend):
    timed = [misbehaving_cell("Watched", timing=True, k=k) for k in (1, 2)]
    untimed = [misbehaving_cell("Neighbor", seeds=(seed,)) for seed in range(6)]
    store = Store(tmp_path / "results")
    outcomes = run_cells([*timed, *untimed], store, backend)
    assert {outcome.status for outcome in outcomes} == {"done"}
    log = log_of(tmp_path)
    assert list(log["name"]) == ["neighbor"] * 6 + ["watched"] * 8
    watched = log[log["name"] == "watched"]
    # Per cell: one fit to warm up, three measured ones; all in this process, seed by seed, on one
    # thread.
    assert set(watched["seeds"]) == {1}
    assert set(watched["threads"]) == {1}
    assert set(watched["process"]) == {os.getpid()}
    # A timed fit starts after all earlier fits have ended.
    ends = log["end"].cummax()
    previous_ends = ends[watched.index - 1].to_numpy()
    assert (watched["start"].to_numpy() >= previous_ends).all()
    rows = store.read([timed[0].key])
    assert rows["timing"].all()
    assert rows["seed"].tolist() == [0, 1, 2]
    assert rows["fit_seconds"].between(0.05, 5).all()
    assert rows["fit_seconds"].nunique() == 3


@pytest.mark.slow
def test_timing_cell_can_have_a_time_limit(misbehaving_cell, tmp_path):
    watched = misbehaving_cell("Watched", timing=True, time_limit=60.0)
    endless = misbehaving_cell("Endless", timing=True, time_limit=0.3)
    store = Store(tmp_path / "results")
    outcomes = outcomes_by_key([watched, endless], store, Backend())
    assert outcomes[watched.key].status == "done"
    assert "time limit of 0.3 s reached" in outcomes[endless.key].error
    (process,) = set(log_of(tmp_path)["process"])
    assert process != os.getpid()


def test_timing_does_not_change_the_results(serial, tmp_path):
    timed = [replace(cell, timing=True) for cell in CELLS]
    assert not {cell.key for cell in timed} & {cell.key for cell in CELLS}
    run_cells(timed, Store(tmp_path), Backend())
    rows = stored_rows(Store(tmp_path), timed)
    # The number of iterations of k-means is that of the slowest replicate of a batch.
    different = ["cell", "timing", "iterations"]
    results = rows.drop(columns=different)
    expected = serial.drop(columns=different)
    pd.testing.assert_frame_equal(results, expected, check_exact=True)


def test_unwritable_results_are_refused_before_the_run(misbehaving_cell, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PermissionError, match="cannot be written"):
        run_cells([misbehaving_cell("Slow")], Store(tmp_path / "file" / "results"), Backend())


def test_cheap_cells_come_first_then_the_longest():
    cells = [replace(BASE, dataset=name, k=k) for name in ("wine", "iris") for k in range(2, 14)]
    costs = {cell.key: cell.k * (5.0 if cell.dataset == "wine" else 1.0) for cell in cells}
    chunks = order_chunks(cells, costs, jobs=2)
    assert sorted(cell.key for chunk in chunks for cell in chunk) == sorted(costs)
    order = [(cell.dataset, cell.k) for chunk in chunks for cell in chunk]
    # 2 + 3 + 4 seconds are at most ten; one more would be above.
    assert order[:3] == [("iris", 2), ("iris", 3), ("iris", 4)]
    assert order[3:] == [("wine", k) for k in range(13, 1, -1)] + [
        ("iris", k) for k in range(13, 4, -1)
    ]
    # A chunk of several cells has at most a fair share: an eighth of the whole for two workers.
    for chunk in chunks:
        assert len({cell.dataset for cell in chunk}) == 1
        seconds = sum(costs[cell.key] for cell in chunk)
        assert len(chunk) == 1 or seconds <= sum(costs.values()) / 8


def test_a_cell_longer_than_the_first_seconds_is_no_obstacle():
    costs = {cell.key: 100.0 + i for i, cell in enumerate(CELLS)}
    assert order_chunks(CELLS, costs, jobs=2)[0] == [CELLS[0]]
    assert order_chunks([], {}, jobs=2) == []


def test_cells_without_a_limit_do_not_wait_for_a_worker(misbehaving_cell, tmp_path):
    free = [misbehaving_cell("Watched", seeds=(seed,)) for seed in range(2)]
    limited = misbehaving_cell("Watched", time_limit=60.0)
    outcomes = run_cells([limited, *free], Store(tmp_path / "results"), Backend())
    assert [outcome.status for outcome in outcomes] == ["done"] * 3
    assert outcomes[-1].key == limited.key
    processes = list(log_of(tmp_path)["process"])
    assert processes[:2] == [os.getpid()] * 2
    assert processes[-1] != os.getpid()


def test_interrupted_cells_come_last_the_first_begun_first():
    keys = [cell.key for cell in CELLS]
    costs = {key: 1.0 + i for i, key in enumerate(keys)}
    interrupted = [keys[1], "of another plan", keys[0]]
    chunks = order_chunks(CELLS, costs, 1, interrupted)
    order = [cell.key for chunk in chunks for cell in chunk]
    assert order[-2:] == [keys[1], keys[0]]
    assert sorted(order[:-2]) == sorted(keys[2:])
    assert [len(chunk) for chunk in chunks[-2:]] == [1, 1]
    chunks = order_chunks(CELLS[:1], costs, 1, interrupted)
    assert chunks == [[CELLS[0]]]


def test_no_more_workers_than_chunks(misbehaving_cell, tmp_path):
    cells = [misbehaving_cell("Watched", seeds=(seed,)) for seed in range(3)]
    store = Store(tmp_path / "results")
    outcomes = run_cells(cells, store, Backend("processes", jobs=1000))
    assert {outcome.status for outcome in outcomes} == {"done"}
    assert len(set(log_of(tmp_path)["process"])) <= 3


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_full_disk_ends_the_run_in_one_line(tmp_path, monkeypatch, jobs):
    store = Store(tmp_path / "results")
    store.check_writable()
    # A link to nowhere: cells can be looked for, and not be stored.
    (tmp_path / "results" / "cells").symlink_to(tmp_path / "nowhere")
    with pytest.raises(PermissionError, match=r"results=.* cannot be written .*: give a folder"):
        run_cells(CELLS, store, Backend("processes", jobs=jobs))


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"name": "cloud"}, "backend='cloud'"),
        ({"jobs": 0}, "jobs=0"),
        ({"threads": 0}, "threads=0"),
        ({"time_limit": 0}, "time_limit=0"),
        ({"retries": -1}, "retries=-1"),
    ],
)
def test_backend_refuses_invalid_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        Backend(**settings)
