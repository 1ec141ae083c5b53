"""The store: a cell is complete or absent, also after an interruption."""

import os
import signal
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fabricated.rows import with_charges, with_params
from stored_cells import cell_of, rows_of

from pkm.analysis.tables.charges import read_charges
from pkm.arrow import check_table, read_parameters
from pkm.experiments.config.backend import Backend
from pkm.experiments.plan.estimate import make_estimator
from pkm.experiments.store.store import REQUIRED, Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


def test_read_returns_rows_in_the_requested_order(store):
    first = cell_of(0)
    second = cell_of(10)
    store.write(first, rows_of(first, silhouette=[1.0, 2.0]))
    store.write(second, rows_of(second))
    rows = store.read([second.key, "absent" * 10, first.key])
    assert list(rows["seed"]) == [10, 11, 0, 1]
    # A column that only some cells have is NaN for the others.
    assert rows["silhouette"].isna().tolist() == [True, True, False, False]
    stored = store.read([second.key])
    expected = rows_of(second)
    pd.testing.assert_frame_equal(stored[expected.columns], expected)
    # Settings that no row has are there, with the values of cells without them.
    assert (stored["clients"] == 0).all()


def test_reading_an_empty_store_creates_nothing(store):
    assert store.read(["a" * 64]).empty
    assert store.status("a" * 64) == "absent"
    assert store.keys() == []
    assert not store.root.exists()


def test_incomplete_rows_are_refused(store):
    cell = cell_of()
    with pytest.raises(ValueError, match="not one per seed"):
        store.write(cell, rows_of(cell).iloc[:1])
    assert store.status(cell.key) == "absent"


@pytest.mark.parametrize("damage", ["empty", "cut", "flip", "foreign"])
def test_corrupt_file_is_renamed_and_counts_as_absent(store, damage):
    cell = cell_of()
    other_cell = cell_of(10)
    store.write(cell, rows_of(cell))
    path = store.path(cell.key)
    content = path.read_bytes()
    if damage == "empty":
        path.write_bytes(b"")
    elif damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "flip":
        # One bit inside the first data page, which only the page checksum can detect.
        column = pq.read_metadata(path).row_group(0).column(2)
        start = column.dictionary_page_offset or column.data_page_offset
        flipped = bytearray(content)
        flipped[start + column.total_compressed_size - 3] ^= 1
        path.write_bytes(flipped)
    else:
        store.write(other_cell, rows_of(other_cell))
        other_path = store.path(other_cell.key)
        path.write_bytes(other_path.read_bytes())
    assert store.read([cell.key]).empty
    assert store.status(cell.key) == "absent"
    renamed = [file.name for file in path.parent.glob("*.corrupt")]
    assert renamed == [path.name + ".corrupt"]
    store.write(cell, rows_of(cell))
    assert store.filter_readable([cell.key, other_cell.key]) >= {cell.key}


def test_a_file_that_cannot_be_opened_is_not_set_aside(store, monkeypatch):
    cell = cell_of()
    store.write(cell, rows_of(cell))
    path = store.path(cell.key)

    def refuse(path):
        raise PermissionError(f"{path} cannot be opened")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(PermissionError):
        store.read([cell.key])
    assert path.exists()


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("method", pa.array([3, 3]), "column 'method' holds int64, not string"),
        ("params", pa.array(["{}", "{}"]), "column 'params' holds string, not list"),
        ("extra", pa.array([1.0, 2.0]), "column 'extra' is not declared"),
        ("dataset", None, "column 'dataset' is missing"),
    ],
)
def test_file_that_does_not_fit_the_schema_is_set_aside(store, name, values, message):
    cell = cell_of()
    other_cell = cell_of(10)
    store.write(cell, rows_of(cell))
    path = store.path(cell.key)
    store.write(other_cell, rows_of(other_cell))
    table = pq.read_table(path)
    if name in table.column_names:
        table = table.drop_columns(name)
    if values is not None:
        table = table.append_column(name, values)
    with pytest.raises(ValueError, match=message):
        check_table(table, REQUIRED)
    pq.write_table(table, path, write_page_checksum=True)
    keys = [cell.key, other_cell.key]
    assert store.filter_readable(keys) == {other_cell.key}
    assert store.status(cell.key) == "absent"
    assert path.with_name(f"{path.name}.corrupt").exists()
    assert set(store.read(keys)["cell"]) == {other_cell.key}


def test_columns_of_other_types_stop_no_estimate(store):
    cell = cell_of()
    store.write(cell, rows_of(cell))
    path = store.path(cell.key)
    table = pq.read_table(path)
    table = table.set_column(0, "cell", pa.array([1, 2]))
    table = table.set_column(table.column_names.index("method"), "method", pa.array([3, 3]))
    pq.write_table(table, path)
    assert not make_estimator(store, Backend())(cell)[1]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"method": 3}, "column 'method' must hold text: 3"),
        ({"n": 2.5}, "column 'n' must hold integer: 2.5"),
        ({"private_bounds": "no"}, "column 'private_bounds' must hold flag"),
        ({"extra": 1.0}, "column 'extra' is not declared in pkm.schema"),
    ],
)
def test_rows_that_do_not_fit_the_schema_are_refused(store, columns, message):
    cell = cell_of()
    with pytest.raises(ValueError, match=message):
        store.write(cell, rows_of(cell).assign(**columns))
    assert store.status(cell.key) == "absent"


def test_nested_values_round_trip(store):
    cell = cell_of()
    params = {"a": 1, "b": 0.5, "c": True, "d": "x", "e": None, "f": [1.0, 2.5], "g": ["u", "v"]}
    charge = {"mechanism": "laplace", "label": "counts", "round": 3, "epsilon": 0.25, "scale": 4.0}
    grouped = charge | {"group": 2, "flaw": "F-01"}
    rows = with_charges(with_params(rows_of(cell), params), [charge, grouped])
    store.write(cell, rows)
    stored = store.read([cell.key])
    assert read_parameters(stored) == [params, params]
    charges = read_charges(stored)
    assert charges.index.tolist() == [0, 0, 1, 1]
    assert charges["epsilon"].tolist() == [0.25] * 4
    assert charges["mu"].tolist() == [0.0] * 4
    assert charges["scale"].tolist() == [4.0] * 4
    assert charges["group"].isna().tolist() == [True, False, True, False]
    assert charges["flaw"].tolist() == ["", "F-01"] * 2


def test_failure_is_a_status_not_a_result(store):
    cell = cell_of()
    try:
        raise ZeroDivisionError("by design")
    except ZeroDivisionError as error:
        store.write_failure(cell, error)
        store.write_failure(cell, error)
    assert store.status(cell.key) == "failed"
    assert store.read([cell.key]).empty
    assert "test_failure_is_a_status" in store.read_failure(cell.key).get("traceback", "")
    assert store.read_failure(cell.key)["attempts"] == 2
    store.write(cell, rows_of(cell))
    assert store.status(cell.key) == "done"
    assert store.read_failure(cell.key).get("traceback", "") == ""


def test_interrupted_write_leaves_no_cell(store, monkeypatch):
    cell = cell_of()

    def failing_fsync(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", failing_fsync)
    with pytest.raises(PermissionError, match="cannot be written"):
        store.write(cell, rows_of(cell))
    assert store.status(cell.key) == "absent"
    assert not list(store.root.rglob("*.tmp"))


def test_stray_temporary_file_is_ignored(store):
    cell = cell_of()
    path = store.path(cell.key)
    path.parent.mkdir(parents=True)
    path.with_name(f".{path.name}.123.0.tmp").write_bytes(b"half a file")
    assert store.status(cell.key) == "absent"
    assert store.keys() == []
    store.write(cell, rows_of(cell))
    assert store.keys() == [cell.key]


def test_unwritable_folder_is_refused(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(PermissionError, match=r"results=.*file.*cannot be written"):
        Store(blocked / "results").check_writable()


def test_a_cell_is_marked_from_its_begin_to_its_end(store):
    keys = [cell_of(seed).key for seed in (0, 10, 20)]
    with store.mark_running(keys[0]):
        assert store.list_interrupted() == [keys[0]]
        assert store.keys() == []
        assert store.list_attempted() == set()
        assert store.status(keys[0]) == "absent"
    with pytest.raises(KeyboardInterrupt), store.mark_running(keys[0]):
        raise KeyboardInterrupt
    assert store.list_interrupted() == []

    # Nothing is left of a cell whose result cannot be written.
    assert not store.running_path(keys[0]).parent.exists()

    # A process that is killed leaves the mark of its cell, others add theirs.
    for key in (keys[2], keys[1]):
        child = os.fork()
        if child == 0:
            with store.mark_running(key):
                os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
    os.utime(store.running_path(keys[1]), (0, 0))
    assert store.list_interrupted() == [keys[1], keys[2]]
    store.unmark_running(keys[1])
    store.unmark_running(keys[1])
    assert store.list_interrupted() == [keys[2]]


def test_present_are_the_cells_that_have_a_file(store):
    done, failed, absent = (cell_of(seed) for seed in (0, 10, 20))
    assert store.keys() == []
    store.write(done, rows_of(done))
    store.write_failure(failed, ValueError("no"))
    path = store.path(absent.key)
    path.parent.mkdir(exist_ok=True)
    path.with_name(f".{path.name}.1.0.tmp").touch()
    assert store.keys() == [done.key]
    assert store.list_attempted() == {done.key, failed.key}
    statuses = [store.status(cell.key) for cell in (done, failed, absent)]
    assert statuses == ["done", "failed", "absent"]
