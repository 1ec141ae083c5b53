"""The store: a cell is complete or absent, also after an interruption."""

import os
import time

import pandas as pd
import pyarrow.parquet as pq
import pytest

from pkm.experiments.cell import Cell
from pkm.experiments.store import Store


def cell_of(seed=0):
    return Cell(
        "lloyd",
        "pkm.methods.lloyd.Lloyd",
        {},
        "iris",
        "minmax",
        3,
        None,
        None,
        (seed, seed + 1),
        ("nicv",),
    )


def rows_of(cell, **columns):
    values = {"cell": cell.key, "seed": list(cell.seeds), "nicv": [0.25, 0.5], "method": "lloyd"}
    return pd.DataFrame(values | columns)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


def test_read_returns_rows_in_the_requested_order(store):
    first = cell_of(0)
    second = cell_of(10)
    store.write(first, rows_of(first, extra=[1.0, 2.0]))
    store.write(second, rows_of(second))
    rows = store.read([second.key, "absent" * 10, first.key])
    assert list(rows["seed"]) == [10, 11, 0, 1]
    # A column that only some cells have is NaN for the others.
    assert rows["extra"].isna().tolist() == [True, True, False, False]
    pd.testing.assert_frame_equal(store.read([second.key]), rows_of(second))


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
    path = store.write(cell, rows_of(cell))
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
        other_path = store.write(other_cell, rows_of(other_cell))
        path.write_bytes(other_path.read_bytes())
    assert store.read([cell.key]).empty
    assert store.status(cell.key) == "absent"
    renamed = [file.name for file in path.parent.glob("*.corrupt")]
    assert renamed == [path.name + ".corrupt"]
    store.write(cell, rows_of(cell))
    assert store.readable([cell.key, other_cell.key]) >= {cell.key}


def test_failure_is_a_status_not_a_result(store):
    cell = cell_of()
    try:
        raise ZeroDivisionError("by design")
    except ZeroDivisionError as error:
        store.write_failure(cell, error, 2)
    assert store.status(cell.key) == "failed"
    assert store.read([cell.key]).empty
    assert "test_failure_is_a_status" in store.failure(cell.key)
    assert store.failure_record(cell.key)["attempts"] == 2
    store.write(cell, rows_of(cell))
    assert store.status(cell.key) == "done"
    assert store.failure(cell.key) == ""


def test_interrupted_write_leaves_no_cell(store, monkeypatch):
    cell = cell_of()

    def failing_fsync(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", failing_fsync)
    with pytest.raises(OSError, match="disk full"):
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


def test_bulk_read_is_quick(store):
    # 5000 cells are to be read in about 5 s; the bound leaves room for a busy machine.
    cells = [cell_of(2 * number) for number in range(400)]
    words = {f"text{number}": "word" for number in range(15)}
    for cell in cells:
        store.write(cell, rows_of(cell, **words))
    started = time.perf_counter()
    rows = store.read([cell.key for cell in cells])
    assert time.perf_counter() - started < 400 * 0.005
    assert list(rows["seed"]) == list(range(800))
