"""A copy of stored rows in one file, read faster than thousands of small ones.

The files of the cells stay the truth. The copy says of each cell which file it was made
from, by size and time: rows of a file that has changed since, or is gone, are not
taken. A copy that is absent or damaged costs time, not rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pkm.arrow import check
from pkm.files import read_sealed, write_sealed
from pkm.row_blocks import read_stamp

#: Columns of the copy beside those of the rows: size in bytes and time in ns of the
#: cell's file, and the names of the columns that it has, with spaces between.
SOURCE = ["file_size", "file_time", "file_columns"]


#: Size of a file in bytes, and when it was last changed, in ns.
Stamp = tuple[int, int]


def stamp_if_present(path: Path) -> Stamp | None:
    """Return the stamp of a file; None where there is none."""
    try:
        return read_stamp(path)
    except FileNotFoundError:
        return None


@dataclass(frozen=True)
class Copy:
    """Rows in a copy, of cells whose files are as they were.

    Attributes
    ----------
    file : ParquetFile or None
        The copy; None if there is none.
    rows : dict of str to range
        Key of a cell to its rows.
    columns : dict of str to str
        Key of a cell to the names of the columns that its file has.
    """

    file: pq.ParquetFile | None
    rows: Mapping[str, range]
    columns: Mapping[str, str]

    def read(
        self, keys: Sequence[str], columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Read the rows of some cells.

        Parameters
        ----------
        keys : sequence of str
            Cells of `rows`, at least one.
        columns : sequence of str, optional
            Of these, those that the files of the cells have; by default all of them.

        Returns
        -------
        Table
            Cells in the order of `keys`; null where a cell lacks a column.
        """
        lists = dict.fromkeys(self.columns[key] for key in keys)
        known = list(dict.fromkeys(name for names in lists for name in names.split()))
        if columns is not None:
            known = [name for name in columns if name in (*known, *SOURCE)]
        numbers = np.concatenate([self.rows[key] for key in keys])
        assert self.file is not None  # it has rows
        table = self.file.read(columns=known, use_threads=False)
        if (np.diff(numbers) == 1).all():
            return table.slice(numbers[0], len(numbers))
        return table.combine_chunks().take(numbers)


NO_COPY = Copy(None, {}, {})


def open_copy(path: Path, path_of: Callable[[str], Path]) -> Copy:
    """Open a copy, and find the cells that can be read from it.

    Parameters
    ----------
    path : Path
        Of the copy. One that is absent, unreadable or damaged holds no cell.
    path_of : callable
        Key of a cell to the path of its file.
    """
    try:
        content = read_sealed(path)
    except OSError:
        content = None
    if content is None:
        return NO_COPY
    file = pq.ParquetFile(pa.BufferReader(content))
    try:
        check(file.schema_arrow.empty_table().drop_columns(SOURCE))
    except ValueError:
        # Of another version.
        return NO_COPY
    table = file.read(columns=["cell", *SOURCE], use_threads=False)
    bounds = bounds_of(table["cell"])
    rows = {}
    columns = {}
    for number, first in enumerate(table.take(bounds[:-1]).to_pylist()):
        key = first["cell"]
        if stamp_if_present(path_of(key)) == (first["file_size"], first["file_time"]):
            rows[key] = range(bounds[number], bounds[number + 1])
            columns[key] = first["file_columns"]
    return Copy(file, rows, columns)


def write_copy(
    path: Path, copy: Copy, tables: Mapping[str, pa.Table], stamps: Mapping[str, Stamp]
) -> None:
    """Write a copy anew, with the cells of an older one and others.

    Parameters
    ----------
    path : Path
        Where it is to be.
    copy : Copy
        The older one.
    tables : mapping of str to Table
        Key of a cell to its rows with all their columns.
    stamps : mapping of str to Stamp
        Key of a cell to the stamp of the file that the rows were read from.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    parts = [with_source(table, stamps[key]) for key, table in tables.items()]
    if copy.rows:
        known = dict.fromkeys(
            name for names in copy.columns.values() for name in names.split()
        )
        parts.append(copy.read(list(copy.rows), [*known, *SOURCE]))
    sink = pa.BufferOutputStream()
    rows = pa.concat_tables(parts, promote_options="permissive")
    pq.write_table(
        rows, sink, compression="zstd", write_statistics=False, store_schema=False
    )
    write_sealed(path, sink.getvalue().to_pybytes())


def with_source(table: pa.Table, stamp: Stamp) -> pa.Table:
    """Return the rows of a cell with `SOURCE`."""
    values = (*stamp, " ".join(table.column_names))
    for name, value in zip(SOURCE, values, strict=True):
        table = table.append_column(name, pa.repeat(value, table.num_rows))
    return table


def with_columns(table: pa.Table, columns: Sequence[str] | None) -> pa.Table:
    """Return a table with those of `columns` that it has; all without them."""
    if columns is None:
        return table
    return table.select([name for name in columns if name in table.column_names])


def bounds_of(cell: pa.ChunkedArray) -> np.ndarray:
    """Return where the rows of each cell begin, and last where they end.

    Examples
    --------
    >>> bounds_of(pa.chunked_array([["a", "a", "b", "c"]])).tolist()
    [0, 2, 3, 4]
    """
    codes = cell.combine_chunks().dictionary_encode().indices.to_numpy()
    return np.flatnonzero(np.diff(codes, prepend=-1, append=-1))
