"""A cache of stored rows: one file, read faster than thousands of small ones.

The files of the cells stay the truth. The cache holds the size and time of the file of
each cell. Rows of a file that has changed since, or is gone, are not used. If the cache
is absent or damaged, reading takes longer, and no row is lost.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pkm.arrow import check_table
from pkm.files import read_with_checksum, write_with_checksum

#: Metadata of the cache: size in bytes and time of modification in ns of the file of
#: each cell, as JSON.
FILE_STATS = b"file_stats"


def read_file_stats(
    keys: Iterable[str],
    find_path: Callable[[str], Path],
) -> dict[str, tuple[int, int]]:
    """Return size and time of the files of those cells that have one, by key."""
    file_stats = {}
    for key in keys:
        try:
            status = find_path(key).stat()
        except FileNotFoundError:
            continue
        # A copy of the results folder keeps both.
        file_stats[key] = (status.st_size, status.st_mtime_ns)
    return file_stats


class RowCache:
    """Rows of those cells whose files have not changed since they were cached.

    Parameters
    ----------
    path : Path or None
        File of the cache. One that is absent, unreadable or damaged holds no cell.
    find_path : callable
        Key of a cell to the path of its file.
    """

    def __init__(
        self,
        path: Path | None,
        find_path: Callable[[str], Path],
    ):
        self.path = path
        self.file_stats: dict[str, Sequence[int]] = {}
        content = None
        with suppress(OSError):
            content = path and read_with_checksum(path)
        if content is None:
            return
        self.file = pq.ParquetFile(pa.BufferReader(content))
        try:
            check_table(self.file.schema_arrow.empty_table())
            cached = json.loads(self.file.metadata.metadata[FILE_STATS])
        except (KeyError, TypeError, ValueError):
            # Another version wrote it.
            return
        current = read_file_stats(cached, find_path)
        self.file_stats = {
            key: stats
            for key, stats in cached.items()
            if current.get(key) == tuple(stats)
        }

    @property
    def keys(self) -> Set[str]:
        """Its cells."""
        return self.file_stats.keys()

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
            Read `cell` and those of these that the cache has; by default all of them.
        """
        available = self.file.schema_arrow.names
        if columns is not None:
            available = [name for name in ("cell", *columns) if name in available]
        rows = self.file.read(available, use_threads=False)
        return rows.filter(pc.is_in(rows["cell"], pa.array(keys)))

    def write(
        self,
        tables: Mapping[str, pa.Table],
        file_stats: Mapping[str, tuple[int, int]],
    ) -> None:
        """Write the cache anew, with further cells.

        Parameters
        ----------
        tables : mapping of str to Table
            Key of a cell to its rows with all their columns.
        file_stats : mapping of str to (int, int)
            Key of a cell to size and time of the file that the rows were read from.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        parts = list(tables.values())
        if self.keys:
            parts.append(self.read(sorted(self.keys)))
        rows = pa.concat_tables(parts, promote_options="permissive")
        stats = self.file_stats | {key: file_stats[key] for key in tables}
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(
            sink,
            rows.schema,
            compression="zstd",
            write_statistics=False,
            store_schema=False,
        ) as writer:
            writer.write_table(rows)
            writer.add_key_value_metadata({FILE_STATS: json.dumps(stats)})
        write_with_checksum(self.path, sink.getvalue().to_pybytes())
