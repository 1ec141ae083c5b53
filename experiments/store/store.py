"""The cell store: one Parquet file per finished cell, one JSON file per failed one."""

import contextlib
import itertools
import json
import os
import socket
import tempfile
import traceback
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pkm.arrow import check_table, to_frame, to_table
from pkm.experiments.cell.cell import Cell
from pkm.experiments.store.row_cache import RowCache, read_file_stats
from pkm.files import (
    ANY_FILE,
    OWNER_FILE,
    atomic_write,
    create_owner_folder,
    list_missing_folders,
    remove_empty_folders,
)
from pkm.schema import BY_NAME, COLUMNS

#: Threads for bulk reads. Opening many small files gains from a second one and loses
#: again from more (measured).
READERS = 2
#: File of the row cache, and the number of cells up to which it is not used.
CACHE_NAME = "consolidated"
MAX_UNCACHED = 200
#: Columns that every stored row has.
REQUIRED = [
    column.name
    for column in COLUMNS
    if column.fill_value is None and column.name != "sweep"
]


class ResultsNotWritable(PermissionError):
    """The results folder cannot be written, or its disk is full."""


class Store:
    """Results on disk, addressed by cell key.

    A cell is complete or absent: its file gets its final name only after every byte is
    on disk. A killed process leaves at worst a ``*.tmp`` file, which is never read, and
    an empty ``*.begun`` file. Later runs know from the latter which cell was
    interrupted.

    Rows of many cells are read from a cache (`pkm.experiments.store.row_cache`). A read
    of many cells that it lacks brings it up to date.

    Exact numbers are stored: the folder is for its owner alone where the store creates
    it, and so are the files of restricted data sets (`Cell.restricted`) in any folder.

    Parameters
    ----------
    root : path
        The results folder. Created on the first write, not before.
    """

    def __init__(self, root: str | Path):
        self.root = Path(root)

    def path(self, key: str, suffix: str = "parquet") -> Path:
        """Return where the rows of a cell lie (or would be)."""
        return self.root / "cells" / key[:2] / f"{key}.{suffix}"

    def failure_path(self, key: str) -> Path:
        """Return where the failure record of a cell lies (or would be)."""
        return self.path(key, "failed.json")

    def running_path(self, key: str) -> Path:
        """Return where there is an empty file while a cell is run."""
        return self.path(key, "begun")

    def report_folder(self, paper: str, profile: str) -> Path:
        """Return where the report on a paper lies (or would be)."""
        return self.root / "reports" / f"{paper}-{profile}"

    def check_writable(self) -> None:
        """Make sure that results can be written, before any work is spent on them.

        Raises
        ------
        ResultsNotWritable
            If the folder cannot be created or written.
        """
        with self._explain_unwritable():
            tempfile.TemporaryFile(dir=self.root).close()

    @contextlib.contextmanager
    def _explain_unwritable(self) -> Iterator[None]:
        """Make the folder for a block, and say what to do if it cannot be written."""
        try:
            create_owner_folder(self.root)
            yield
        except OSError as error:
            raise ResultsNotWritable(
                f"results={str(self.root)!r} cannot be written ({error.strerror}): "
                "give a folder that can be, e.g. results=/tmp/results"
            ) from error

    @contextlib.contextmanager
    def create_or_roll_back(self) -> Iterator[None]:
        """Create the folder before a block, and remove it again if the block fails."""
        missing = list_missing_folders(self.root)
        try:
            self.check_writable()
            yield
        except BaseException:
            remove_empty_folders(missing)
            raise

    def write(self, cell: Cell, rows: pd.DataFrame) -> None:
        """Store the rows of a finished cell atomically; drop its failure record.

        Parameters
        ----------
        cell : Cell
            Whose result it is.
        rows : DataFrame
            One row per seed, in the order of ``cell.seeds``; column ``cell`` holds the
            key.

        Raises
        ------
        ValueError
            If the rows are not those of this cell, or do not fit `pkm.schema`.
        ResultsNotWritable
            If the file cannot be written, for lack of space as well.
        """
        has_seeds = list(rows["seed"]) == list(cell.seeds)
        if not has_seeds or set(rows["cell"]) != {cell.key}:
            raise ValueError(
                f"the rows offered for {cell.label} are not one per seed "
                f"of cell {cell.key[:12]}"
            )
        table = to_table(rows)
        check_table(table, REQUIRED)
        sink = pa.BufferOutputStream()
        # Page checksums let a later read detect a flipped bit. Snappy, because a zstd
        # decompressor for every column takes twice as long as the rest of reading so
        # small a file.
        pq.write_table(
            table,
            sink,
            compression="snappy",
            write_statistics=False,
            write_page_checksum=True,
            # The declared types are those that Parquet has; another copy of the schema
            # in every file takes longer to read than the columns.
            store_schema=False,
        )
        self.write_file(cell, sink.getvalue(), "done")

    def write_failure(
        self,
        cell: Cell,
        error: BaseException,
    ) -> None:
        """Record that a cell failed: the error, its traceback, and the attempts so far.

        Parameters
        ----------
        cell : Cell
            Which cell.
        error : exception
            The error that ended this attempt.
        """
        record = {
            "cell": cell.key,
            "label": cell.label,
            "identity": cell.identity(),
            "error": f"{type(error).__name__}: {error}",
            "traceback": "".join(traceback.format_exception(error)),
            "attempts": 1,
            "host": socket.gethostname(),
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        self._write_record(cell, record)

    def _write_record(self, cell: Cell, record: dict) -> None:
        record["attempts"] += self.read_failure(cell.key).get("attempts", 0)
        content = json.dumps(record, indent=2, ensure_ascii=False).encode()
        self._write_bytes(cell, self.failure_path(cell.key), content)

    def pop_file(self, key: str, status: str) -> bytes:
        """Remove the file of a done or failed cell; return it, for `write_file`."""
        path = self.path(key) if status == "done" else self.failure_path(key)
        content = path.read_bytes()
        path.unlink()
        return content

    def write_file(
        self,
        cell: Cell,
        content: bytes | memoryview,
        status: str,
    ) -> None:
        """Store the content of the file of a cell.

        Parameters
        ----------
        cell : Cell
            Which cell.
        content : bytes
            Rows as Parquet, or the failure record as JSON. The attempts of a failure
            are added to those recorded here.
        status : {"done", "failed"}
            Status of the cell.

        Raises
        ------
        ResultsNotWritable
            If the file cannot be written.
        """
        if status == "done":
            self._write_bytes(cell, self.path(cell.key), content)
            self.failure_path(cell.key).unlink(missing_ok=True)
        else:
            self._write_record(cell, json.loads(content))

    @contextlib.contextmanager
    def mark_running(self, key: str) -> Iterator[None]:
        """Mark a cell as running during a block; the mark stays after a kill."""
        folder = self.running_path(key).parent
        missing = list_missing_folders(folder)
        # The mark serves only to order cells after a kill: it may fail to be set.
        with contextlib.suppress(OSError):
            create_owner_folder(self.root)
            folder.mkdir(parents=True, exist_ok=True)
            self.running_path(key).touch()
        try:
            yield
        finally:
            self.unmark_running(key)
            # Nothing is in them if the result could not be written.
            remove_empty_folders(missing)

    def unmark_running(self, key: str) -> None:
        """Remove the mark of a cell that was running."""
        with contextlib.suppress(OSError):
            self.running_path(key).unlink(missing_ok=True)

    def list_interrupted(self) -> list[str]:
        """List the cells that are marked as running, the oldest mark first.

        Cells that another process is running are among them.
        """
        times = {}
        for key, path in self._list_files(".begun").items():
            # Another process may have ended it in the meantime.
            with contextlib.suppress(FileNotFoundError):
                times[key] = path.stat().st_mtime_ns
        return sorted(times, key=times.__getitem__)

    def status(self, key: str) -> str:
        """Return the status of a cell without reading its rows.

        Returns
        -------
        {"done", "failed", "absent"}
            A file that is visibly no Parquet file is set aside and counts as absent.
        """
        path = self.path(key)
        if path.is_file():
            if is_parquet(path):
                return "done"
            quarantine(path)
        return "failed" if self.failure_path(key).is_file() else "absent"

    def read_failure(self, key: str) -> dict:
        """Return the failure record of a cell; empty where none can be read."""
        try:
            return json.loads(self.failure_path(key).read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError:
            quarantine(self.failure_path(key))
            return {}

    def read(
        self,
        keys: Iterable[str],
        columns: list[str] | None = None,
    ) -> pd.DataFrame:
        """Read the rows of many cells.

        Every page is checked against its checksum, and every column against
        `pkm.schema`; a file that fails is set aside (renamed to ``*.corrupt``) and its
        cell is absent from then on.

        Parameters
        ----------
        keys : iterable of str
            Which cells; those that are not done are left out of the answer.
        columns : list of str, optional
            Only these columns.

        Returns
        -------
        DataFrame
            The rows, cells in the order of `keys`, seeds in the order of the cell.
            Empty without columns where no cell is done.
        """
        keys = list(dict.fromkeys(keys))
        cache, tables = self._open_cache(keys, columns)
        parts = list(tables.values())
        cached_keys = [key for key in keys if key in cache.keys]
        if cached_keys:
            parts.append(cache.read(cached_keys, columns))
        if not parts:
            return pd.DataFrame()
        rows = pa.concat_tables(parts, promote_options="permissive").combine_chunks()

        positions = pc.index_in(rows["cell"], pa.array(keys)).to_numpy()
        if (np.diff(positions) < 0).any():
            rows = rows.take(np.argsort(positions, kind="stable"))
        # The cache has the columns of all cells.
        names = [name for name in BY_NAME if name in rows.column_names]
        known = [name for name in names if rows[name].null_count < rows.num_rows]
        return to_frame([rows.select(known)], columns)

    def read_all(self, columns: list[str] | None = None) -> pd.DataFrame:
        """Read the rows of all cells, newest first; see `read`.

        Raises
        ------
        FileNotFoundError
            If no cell is stored.
        """
        rows = self.read(self.keys(), columns)
        if rows.empty:
            raise FileNotFoundError(
                f"results={str(self.root)!r} holds no cells: "
                "give the folder that pkm run wrote to"
            )
        return rows

    def choose_shared_mode(self, keys: Iterable[str]) -> int:
        """Return permissions for a file of some cells: who may read all may read it."""
        mode = ANY_FILE
        for key in keys:
            mode &= self.path(key).stat().st_mode
        return mode

    def _open_cache(
        self,
        keys: Sequence[str],
        columns: list[str] | None,
    ) -> tuple[RowCache, dict[str, pa.Table]]:
        """Open the row cache, and read the cells that it lacks.

        If they are many, the cache is written anew.

        Returns
        -------
        cache : RowCache
            Without any cell for few keys.
        tables : dict of str to Table
            Rows of those `keys` that are done and not in the cache, with at least
            `columns`.
        """
        is_used = len(keys) > MAX_UNCACHED
        path = self.root / "cells" / CACHE_NAME
        cache = RowCache(path if is_used else None, self.path)
        others = [key for key in keys if key not in cache.keys]
        file_stats = read_file_stats(others, self.path)
        is_outdated = len(file_stats) > MAX_UNCACHED
        read_columns = None if is_outdated else columns
        with ThreadPoolExecutor(READERS) as pool:
            tables = pool.map(lambda key: self.read_cell(key, read_columns), file_stats)
            pairs = zip(file_stats, tables, strict=True)
            tables = {key: table for key, table in pairs if table is not None}
        if is_outdated and tables:
            # Rows in a folder that cannot be written are read from the cells every
            # time.
            with contextlib.suppress(OSError):
                cache.write(tables, file_stats)
        return cache, tables

    def filter_readable(self, keys: Iterable[str]) -> set[str]:
        """Return those of `keys` whose rows can be read; set corrupt files aside.

        Files that have not changed since they were cached are not read again.
        """
        keys = set(keys)
        cache, tables = self._open_cache(sorted(keys), None)
        return tables.keys() | (keys & cache.keys)

    def list_attempted(self) -> set[str]:
        """Return the keys of all cells that are done or failed."""
        return self._list_files(".parquet").keys() | self._list_files(".failed.json")

    def keys(self) -> list[str]:
        """List the keys of all stored cells, newest first."""
        files = self._list_files(".parquet")
        return sorted(files, key=lambda key: (-files[key].stat().st_mtime, key))

    def _list_files(self, suffix: str) -> dict[str, Path]:
        """List the files with a suffix by their keys: faster than a look for each."""
        paths = self.root.glob(f"cells/??/[!.]*{suffix}")
        return {path.name.removesuffix(suffix): path for path in paths}

    def _write_bytes(
        self,
        cell: Cell,
        path: Path,
        content: bytes | memoryview,
    ) -> None:
        """Write a file of a cell, for its owner alone if the data are restricted."""
        mode = OWNER_FILE if cell.restricted else ANY_FILE
        with self._explain_unwritable():
            atomic_write(path, content, mode)

    def read_cell(
        self,
        key: str,
        columns: list[str] | None = None,
    ) -> pa.Table | None:
        """Read the rows of one cell, with those of `columns` that it has; or None."""
        path = self.path(key)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            buffer = pa.BufferReader(content)
            file = pq.ParquetFile(buffer, page_checksum_verification=True)
            selected = None if columns is None else ["cell", *columns]
            table = file.read(selected, use_threads=False)
            check_table(table, REQUIRED if columns is None else ["cell"])
            if table["cell"].unique().to_pylist() != [key]:
                raise ValueError("the file holds the rows of no cell or of another one")
        except pa.ArrowMemoryError:
            raise
        # Arrow raises an OSError for content that it cannot parse.
        except (pa.ArrowException, OSError, ValueError, KeyError):
            quarantine(path)
            return None
        return table


def quarantine(path: Path) -> None:
    """Rename a damaged file to ``*.corrupt``, numbered if need be: it is not read."""
    number = itertools.count(1)
    target = path.with_name(f"{path.name}.corrupt")
    while target.exists():
        target = path.with_name(f"{path.name}.{next(number)}.corrupt")
    # A second process may have set it aside in the meantime; then there is nothing left
    # to do.
    with contextlib.suppress(FileNotFoundError):
        os.replace(path, target)


def is_parquet(path: Path) -> bool:
    """Tell whether a file begins and ends as a Parquet file does."""
    with open(path, "rb") as file:
        if file.read(4) != b"PAR1":
            return False
        file.seek(-4, os.SEEK_END)
        return file.read(4) == b"PAR1"
