"""Rows that are read in blocks: every source gives the same rows in every pass, or says why not."""

import os
import sys
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from pkm import row_blocks as module
from pkm.compute.storage.grid_file import pack
from pkm.methods import FastLloyd
from pkm.row_blocks import ChangedRows, RowBlocks, row_blocks, stacked


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 20 rows of three columns."""
    monkeypatch.setattr(module, "BLOCK_VALUES", 62)


def matrix(n=101, dtype=np.float32):
    return np.random.default_rng(0).normal(size=(n, 3)).astype(dtype)


def table_of(X):
    return pa.table({f"x{h}": X[:, h] for h in range(X.shape[1])})


def write(path, X, row_group_size=13):
    pq.write_table(table_of(X), path, row_group_size=row_group_size)
    return str(path)


def sources(folder, X):
    """All kinds of sources of the same rows."""
    np.save(folder / "x.npy", X)
    parts = folder / "parts"
    parts.mkdir()
    for part, rows in enumerate(np.array_split(X, 4)):
        write(parts / f"{part}.parquet", rows)
    found = {
        "npy": str(folder / "x.npy"),
        "path": folder / "x.npy",
        "parquet": write(folder / "x.parquet", X),
        "folder": str(parts),
        "pattern": str(parts / "*.parquet"),
        "dataset": ds.dataset(str(parts), format="parquet"),
        "table dataset": ds.dataset(table_of(X)),
        "table": table_of(X),
        "mapped": np.load(folder / "x.npy", mmap_mode="r"),
        "columns first": np.memmap(
            folder / "f", dtype=X.dtype, mode="w+", shape=X.shape, order="F"
        ),
        "blocks": RowBlocks(len(X), 3, lambda: iter([X[:50], X[50:]])),
    }
    found["columns first"][:] = X
    return found


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8])
def test_every_source_reads_the_same_rows_in_every_pass(tmp_path, small_blocks, dtype):
    X = (matrix() * 20).clip(0).astype(dtype)
    for name, source in sources(tmp_path, X).items():
        rows = row_blocks(source)
        assert rows is not None, name
        assert (rows.n_rows, rows.n_columns) == X.shape
        for _ in range(2):
            blocks = list(rows.blocks())
            assert max(map(len, blocks)) <= rows.block_size == 20, name
            np.testing.assert_array_equal(np.concatenate(blocks), X, err_msg=name)


def test_polars_frames_are_read_by_blocks(small_blocks):
    polars = pytest.importorskip("polars")
    X = matrix()
    frame = polars.DataFrame({f"x{h}": X[:, h] for h in range(3)})
    rows = row_blocks(frame)
    assert rows is not None
    np.testing.assert_array_equal(stacked(rows), X)


def test_narrow_columns_are_read_in_float32_and_wide_ones_in_float64(tmp_path):
    narrow = row_blocks(write(tmp_path / "a.parquet", matrix()))
    wide = row_blocks(write(tmp_path / "b.parquet", matrix(dtype=np.float64)))
    assert narrow is not None and wide is not None
    assert stacked(narrow).dtype == np.float32
    assert stacked(wide).dtype == np.float64


def test_nulls_are_nan():
    table = pa.table({"a": [1, None, 3], "b": [True, False, None], "c": [0.5, 1.5, None]})
    rows = row_blocks(table)
    assert rows is not None
    expected = [[1.0, 1.0, 0.5], [np.nan, 0.0, 1.5], [3.0, np.nan, np.nan]]
    np.testing.assert_array_equal(stacked(rows), expected)


def test_arrays_and_pandas_frames_in_memory_are_no_blocks():
    assert row_blocks(matrix()) is None
    assert row_blocks(matrix().tolist()) is None
    assert row_blocks(pd.DataFrame(matrix())) is None


@pytest.mark.parametrize(
    "source",
    [
        iter([matrix()]),
        (matrix() for _ in range(2)),
        table_of(matrix()).to_reader(),
    ],
)
def test_what_can_be_read_once_is_refused_with_the_remedy(source):
    with pytest.raises(TypeError, match=r"only once.*write them to a Parquet file.*RowBlocks"):
        row_blocks(source)


def test_a_stream_that_is_spent_is_refused_in_the_second_pass():
    class Stream:
        reader = table_of(matrix()).to_reader()

        def __arrow_c_stream__(self, requested_schema=None):
            return self.reader.__arrow_c_stream__(requested_schema)

    rows = row_blocks(Stream())
    assert rows is not None
    expected = r"only once|only 0.*write them to a Parquet"
    with pytest.raises((TypeError, ChangedRows), match=expected):
        list(rows.blocks())


@pytest.mark.parametrize("change", ["more", "fewer"])
def test_another_number_of_rows_is_refused(change):
    X = matrix()
    read = [X, X[:1]] if change == "more" else [X[1:]]
    rows = RowBlocks(len(X), 3, lambda: iter(read))
    with pytest.raises(ChangedRows, match=r"X has n=101 rows, but a pass read (more|only 100)"):
        list(rows.blocks())


def test_masked_entries_of_a_block_are_nan():
    masked = np.ma.masked_array(np.arange(6).reshape(3, 2), [[0, 0], [1, 0], [0, 0]])
    rows = RowBlocks(3, 2, lambda: iter([masked]))
    np.testing.assert_array_equal(stacked(rows), [[0, 1], [np.nan, 3], [4, 5]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_pages_of_mapped_arrays_are_given_back_without_a_loss(
    small_blocks, monkeypatch, tmp_path, dtype, mode
):
    """Rows are those of the array in every pass, also where it has changes of its own."""
    monkeypatch.setattr(module, "MAPPED_BLOCKS", 2)
    X = (100 * matrix()).astype(dtype)
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode=mode)
    if mode != "r":
        mapped[::7] = 1
        X[::7] = 1
    rows = row_blocks(mapped)
    assert rows is not None
    for _ in range(3):
        blocks = list(rows.blocks())
        assert [len(block) for block in blocks] == [20, 20, 20, 20, 20, 1]
        np.testing.assert_array_equal(np.concatenate(blocks), X)


def test_blocks_of_a_mapped_file_are_no_copies(small_blocks, tmp_path):
    for dtype in (np.float32, np.float64):
        np.save(tmp_path / "x.npy", matrix(dtype=dtype))
        rows = row_blocks(tmp_path / "x.npy")
        assert rows is not None
        for block in rows.blocks():
            assert type(block) is np.ndarray
            assert not block.flags.owndata
            assert block.flags.writeable


@pytest.mark.parametrize("mode", ["r", "c"])
def test_the_file_of_a_mapped_array_that_changes_is_refused(tmp_path, mode):
    np.save(tmp_path / "x.npy", matrix())
    rows = row_blocks(np.load(tmp_path / "x.npy", mmap_mode=mode)[1:])
    assert rows is not None
    np.testing.assert_array_equal(stacked(rows), matrix()[1:])
    np.save(tmp_path / "x.npy", matrix() + 1)
    os.utime(tmp_path / "x.npy", ns=(0, 0))
    with pytest.raises(ChangedRows, match=r"x\.npy has changed since it was opened"):
        list(rows.blocks())


def test_an_array_that_may_write_to_its_file_is_read_while_it_changes(tmp_path):
    np.save(tmp_path / "x.npy", matrix())
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r+")
    rows = row_blocks(mapped)
    assert rows is not None
    mapped[0] = 7
    mapped.flush()
    assert stacked(rows)[0].tolist() == [7, 7, 7]


def test_a_file_that_changes_between_passes_is_refused(tmp_path):
    path = write(tmp_path / "x.parquet", matrix())
    rows = row_blocks(path)
    assert rows is not None
    list(rows.blocks())
    write(tmp_path / "x.parquet", matrix() + 1)
    with pytest.raises(ChangedRows, match=r"x\.parquet has changed since it was opened"):
        list(rows.blocks())


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_file_whose_time_is_put_back_is_refused(tmp_path, is_replaced):
    path = tmp_path / "x.npy"
    np.save(path, matrix())
    rows = row_blocks(str(path))
    assert rows is not None
    list(rows.blocks())
    status = os.stat(path)
    if is_replaced:
        np.save(tmp_path / "other.npy", matrix() + 1)
        os.replace(tmp_path / "other.npy", path)
    else:
        np.save(path, matrix() + 1)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(ChangedRows, match=r"x\.npy has changed since it was opened"):
        list(rows.blocks())


def test_a_file_that_changes_during_a_pass_is_refused(tmp_path, small_blocks):
    np.save(tmp_path / "x.npy", matrix())
    rows = row_blocks(str(tmp_path / "x.npy"))
    assert rows is not None
    passing = rows.blocks()
    next(passing)
    status = os.stat(tmp_path / "x.npy")
    os.utime(tmp_path / "x.npy", ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    with pytest.raises(ChangedRows, match="has changed"):
        list(passing)


def replace(path, kind):
    """Put something else in the place of a Parquet file of three columns."""
    if kind == "removed":
        path.unlink()
    elif kind == "cut":
        os.truncate(path, 200)
    elif kind == "text":
        pq.write_table(pa.table({f"x{h}": ["a"] * 101 for h in range(3)}), path)
    else:
        write(path, {"columns": matrix()[:, :2], "types": matrix() > 0, "rows": matrix(50)}[kind])


@pytest.mark.parametrize("during", [False, True])
@pytest.mark.parametrize("kind", ["columns", "types", "rows", "text", "cut", "removed"])
def test_a_file_of_a_folder_that_is_replaced_is_refused(tmp_path, small_blocks, kind, during):
    for name in "abcdef":
        write(tmp_path / f"{name}.parquet", matrix())
    rows = row_blocks(str(tmp_path))
    assert rows is not None
    passing = rows.blocks()
    if during:
        next(passing)
    else:
        assert sum(len(block) for block in passing) == 606
        passing = rows.blocks()
    replace(tmp_path / "f.parquet", kind)
    with pytest.raises(ChangedRows, match=r"^\S*f\.parquet has changed since .* writes to it$"):
        list(passing)


@pytest.mark.parametrize("kind", ["columns", "rows", "removed"])
def test_nothing_is_left_of_a_fit_or_a_packed_file_whose_rows_change(tmp_path, small_blocks, kind):
    path = tmp_path / "x.parquet"

    def changing_rows():
        write(path, matrix())
        opened = row_blocks(str(path))

        def read():
            # After the first block the file is another one.
            for number, block in enumerate(opened.read()):
                if number == 1:
                    replace(path, kind)
                yield block

        return RowBlocks(opened.n_rows, 3, read, str(path), opened.stamps)

    with pytest.raises(ChangedRows, match="has changed since it was opened"):
        pack(changing_rows(), tmp_path / "x.grid", np.full(3, -9.0), np.full(3, 9.0))
    assert {each.name for each in tmp_path.iterdir()} <= {"x.parquet"}

    model = FastLloyd(2, bounds=(-9, 9), random_state=0)
    with pytest.raises(ChangedRows, match="has changed since it was opened"):
        model.fit(changing_rows())
    assert not hasattr(model, "cluster_centers_")


def test_bad_files_are_refused_by_name(tmp_path):
    write(tmp_path / "a.parquet", matrix())
    pq.write_table(pa.table({"x0": [1.0], "x1": [1.0]}), tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=r"b\.parquet has other columns .*\(.*x2.*\)"):
        row_blocks(str(tmp_path))

    pq.write_table(table_of(matrix(dtype=np.float64)), tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=r"b\.parquet has other columns .*same columns and types"):
        row_blocks(str(tmp_path / "*.parquet"))

    pq.write_table(pa.table({"x": [1.0], "name": ["a"]}), tmp_path / "c.parquet")
    with pytest.raises(ValueError, match="column name should be numeric"):
        row_blocks(str(tmp_path / "c.parquet"))

    (tmp_path / "d.parquet").write_bytes(b"no Parquet")
    with pytest.raises(ValueError, match="cannot be read as Parquet"):
        row_blocks(str(tmp_path / "d.parquet"))

    pq.write_table(table_of(matrix(n=0)), tmp_path / "e.parquet")
    with pytest.raises(ValueError, match="one row or more"):
        row_blocks(str(tmp_path / "e.parquet"))

    (tmp_path / "f.npy").write_bytes(b"no array")
    with pytest.raises(ValueError, match="is no NPY file of numbers"):
        row_blocks(str(tmp_path / "f.npy"))

    np.save(tmp_path / "g.npy", np.zeros(5))
    with pytest.raises(ValueError, match=r"real numbers of shape .*float64 of shape \(5,\)"):
        row_blocks(str(tmp_path / "g.npy"))

    (tmp_path / "h.csv").write_text("1,2\n")
    with pytest.raises(ValueError, match=r"should end in \.npy"):
        row_blocks(str(tmp_path / "h.csv"))
    for missing in ("none.parquet", "none.npy", "none*.parquet"):
        with pytest.raises(FileNotFoundError, match="path="):
            row_blocks(str(tmp_path / missing))


@pytest.mark.parametrize("block", [np.zeros((2, 4)), np.zeros(3), np.array([["a"] * 3]), None])
def test_blocks_of_another_kind_are_refused(block):
    rows = RowBlocks(2, 3, lambda: iter([block]))
    with pytest.raises(ValueError, match=r"blocks of shape \(m, 3\) of real numbers"):
        list(rows.blocks())


def test_a_file_that_needs_pyarrow_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.dataset", None)
    path = tmp_path / "points.parquet"
    with pytest.raises(FileNotFoundError, match="should be an existing file"):
        row_blocks(path)
    path.write_bytes(b"")
    with pytest.raises(ModuleNotFoundError, match="needs pyarrow, which is not installed"):
        row_blocks(path)


@pytest.mark.parametrize("row_group_size", [4_000, 200_000])
@pytest.mark.parametrize("ids", [None, "x0"])
def test_memory_of_a_slow_pass_grows_neither_with_a_file_nor_its_row_groups(
    tmp_path, monkeypatch, row_group_size, ids
):
    X = matrix(200_000, np.float64)
    path = tmp_path / "x.parquet"
    pq.write_table(
        table_of(X),
        path,
        row_group_size=row_group_size,
        data_page_size=10_000,
        use_dictionary=False,
    )
    monkeypatch.setattr(module, "BLOCK_VALUES", 6_000)
    rows = row_blocks(path, ids)
    before = pa.total_allocated_bytes()
    taken = []
    for number, _ in enumerate(rows.blocks()):
        if number < 30:
            # Time for a reader in the background to read ahead.
            time.sleep(0.02)
        taken.append(pa.total_allocated_bytes() - before)
    assert 0 < max(taken) < X.nbytes / 4
