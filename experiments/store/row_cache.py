"""A copy of stored rows in one file, read faster than thousands of small ones.

The files of the cells stay the truth. The copy says of each cell which file it was made
from, by size and time: rows of a file that has changed since, or is gone, are not
taken. A copy that is absent or damaged costs time, not rows.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pkm.arrow import check
from pkm.files import read_with_checksum, write_with_checksum

#: Columns of the copy beside those of the rows: size in bytes and time in ns of the
#: cell's file.
STAMP = ["file_size", "file_time"]


def read_stamps(
    keys: Sequence[str],
    find_path: Callable[[str], Path],
) -> dict[str, tuple[int, int]]:
    """Read size and time of the files of those cells that have one, by key."""
    stamps = {}
    for key in keys:
        try:
            status = find_path(key).stat()
        except FileNotFoundError:
            continue
        # Those of a copied results folder are the same.
        stamps[key] = (status.st_size, status.st_mtime_ns)
    return stamps


class Copy:
    """Rows in a copy, of cells whose files are as they were.

    Parameters
    ----------
    path : Path
        Of the copy. One that is absent, unreadable or damaged holds no cell.
    find_path : callable
        Key of a cell to the path of its file.

    Attributes
    ----------
    keys : set of str
        Its cells.
    """

    def __init__(self, path: Path, find_path: Callable[[str], Path]):
        self.path = path
        self.keys: set[str] = set()
        try:
            content = read_with_checksum(path)
        except OSError:
            return
        if content is None:
            return
        self.file = pq.ParquetFile(pa.BufferReader(content))
        try:
            check(self.file.schema_arrow.empty_table().drop_columns(STAMP))
        except (KeyError, ValueError):
            # Of another version.
            return
        index = self.file.read(["cell", *STAMP]).group_by(["cell", *STAMP])
        copied = index.aggregate([]).to_pylist()
        stamps = read_stamps([line["cell"] for line in copied], find_path)
        for line in copied:
            key = line["cell"]
            if stamps.get(key) == (line["file_size"], line["file_time"]):
                self.keys.add(key)

    def read(
        self,
        keys: Sequence[str],
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Read the rows of some of its cells.

        Parameters
        ----------
        keys : sequence of str
            Cells of `keys`, at least one.
        columns : sequence of str, optional
            Of these and `cell`, those that the copy has; by default all of them.
        """
        known = self.file.schema_arrow.names
        if columns is not None:
            known = [name for name in ("cell", *columns) if name in known]
        rows = self.file.read(known, use_threads=False)
        return rows.filter(pc.is_in(rows["cell"], pa.array(keys)))

    def write(
        self,
        tables: Mapping[str, pa.Table],
        stamps: Mapping[str, tuple[int, int]],
    ) -> None:
        """Write the copy anew, with further cells.

        Parameters
        ----------
        tables : mapping of str to Table
            Key of a cell to its rows with all their columns.
        stamps : mapping of str to (int, int)
            Key of a cell to the stamp of the file that the rows were read from.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        parts = []
        for key, table in tables.items():
            for name, value in zip(STAMP, stamps[key], strict=True):
                table = table.append_column(name, pa.repeat(value, table.num_rows))
            parts.append(table)
        if self.keys:
            parts.append(self.read(sorted(self.keys)))
        rows = pa.concat_tables(parts, promote_options="permissive")
        sink = pa.BufferOutputStream()
        pq.write_table(
            rows,
            sink,
            compression="zstd",
            write_statistics=False,
            store_schema=False,
        )
        write_with_checksum(self.path, sink.getvalue().to_pybytes())
