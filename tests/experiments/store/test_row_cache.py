"""The copy of all rows in one file."""

import pandas as pd
import pytest
from stored_cells import cell_of, rows_of

from pkm.experiments.store import store as store_module
from pkm.experiments.store.store import CACHE_NAME, Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


@pytest.fixture
def copied(store, monkeypatch):
    """Three cells, of which one has a column more, in a store that copies the rows of any."""
    monkeypatch.setattr(store_module, "MAX_UNCACHED", 0)
    cells = [cell_of(seed) for seed in (0, 10, 20)]
    for cell in cells:
        store.write(cell, rows_of(cell))
    store.write(cells[1], rows_of(cells[1], silhouette=[1.0, 2.0]))
    return cells


def keys_read(store, monkeypatch):
    """Keys of the cells whose own files are read from now on."""
    read = []
    read_cell = store.read_cell

    def record(key, *columns):
        read.append(key)
        return read_cell(key, *columns)

    monkeypatch.setattr(store, "read_cell", record)
    return read


@pytest.mark.slow
@pytest.mark.parametrize("columns", [None, ["seed", "silhouette", "cell", "params"]])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0), (0,), (1, 2, 0)])
def test_a_copy_holds_the_rows_of_the_cells(store, copied, monkeypatch, order, columns):
    keys = [copied[number].key for number in order]
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "MAX_UNCACHED", 3)
        expected = store.read(keys, columns)
    assert not (store.root / "cells" / CACHE_NAME).exists()
    store.read(store.keys())
    read = keys_read(store, monkeypatch)
    pd.testing.assert_frame_equal(store.read(keys, columns), expected)
    assert read == []


def test_a_copy_follows_the_cells(store, copied, monkeypatch):
    keys = [cell.key for cell in copied]
    store.read(keys)
    path = store.root / "cells" / CACHE_NAME
    assert path.stat().st_mode & 0o777 == 0o600

    # A cell that was run again, one that is gone, and a new one.
    store.write(copied[0], rows_of(copied[0], inertia=[3.0, 4.0]))
    store.path(copied[1].key).unlink()
    new = cell_of(30)
    store.write(new, rows_of(new))
    read = keys_read(store, monkeypatch)
    rows = store.read([*keys, new.key])
    assert list(rows["seed"]) == [0, 1, 20, 21, 30, 31]
    assert rows["inertia"].tolist()[:2] == [3.0, 4.0]
    assert "silhouette" not in rows
    assert sorted(read) == sorted([copied[0].key, new.key])

    # What one reader did not ask for stays.
    read.clear()
    store.write(new, rows_of(new, inertia=[5.0, 6.0]))
    store.read([new.key])
    store.read(keys)
    assert read == [new.key]


def test_copied_cells_are_readable_without_reading_their_files(store, copied, monkeypatch):
    keys = [cell.key for cell in copied]
    assert store.filter_readable(keys) == set(keys)
    read = keys_read(store, monkeypatch)
    assert store.filter_readable([*keys, "0" * 64]) == set(keys)
    assert read == []

    # Not so a file that has changed, or is gone.
    store.path(keys[0]).write_bytes(b"PAR1 damaged PAR1")
    store.path(keys[1]).unlink()
    assert store.filter_readable(keys) == {keys[2]}
    assert read == [keys[0]]


@pytest.mark.parametrize("damage", ["cut", "flipped", "a folder"])
def test_a_damaged_copy_costs_no_rows(store, copied, damage):
    keys = [cell.key for cell in copied]
    expected = store.read(keys)
    path = store.root / "cells" / CACHE_NAME
    content = bytearray(path.read_bytes())
    path.unlink()
    if damage == "a folder":
        # So it cannot be written either.
        path.mkdir()
    else:
        content[len(content) // 2] ^= 1
        path.write_bytes(content[: len(content) // 3] if damage == "cut" else content)
    pd.testing.assert_frame_equal(store.read(keys), expected)
    assert path.is_dir() == (damage == "a folder")
    pd.testing.assert_frame_equal(store.read(keys), expected)


def test_a_damaged_cell_is_read_from_no_copy(store, copied):
    keys = [cell.key for cell in copied]
    store.read(keys)
    path = store.path(keys[0])
    path.write_bytes(path.read_bytes()[:-1])
    assert set(store.read(keys)["cell"]) == set(keys[1:])
    assert store.status(keys[0]) == "absent"
