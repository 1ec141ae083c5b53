"""Rows of numbers that are read anew in every pass, block by block.

They come from files, mapped arrays or Arrow streams. Only some blocks are in memory at
a time, whatever the number of rows.
"""

import glob
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.dataset import Dataset

#: Values of a block: 8 megabytes in float32.
BLOCK_VALUES = 1 << 21
#: Number of values that take as much memory as one id while persons are counted.
VALUES_OF_ID = 4
#: Number of blocks of a mapped file whose pages stay in memory. It is larger than the
#: number of blocks in use at once.
MAPPED_BLOCKS = 16
#: Bytes of a column of a Parquet file that are read at once.
COLUMN_BYTES = 1 << 16
PARQUET = (".parquet", ".pq")
#: Stamp of a file, which tells that it has changed: its size, times of writing and of
#: any change, and inode.
Stamp = tuple[int, int, int, int]
Block = TypeVar("Block", bound=Sized)
#: Advice for columns that are not numeric.
ENCODING = "encode texts as numbers, and dates as days since a public one"
#: Advice for rows that can be read only once.
READ_TWICE_ADVICE = (
    "write them to a Parquet file and fit that, or give a RowBlocks, which starts "
    "every pass"
)


class ChangedRows(ValueError):
    """Rows differ from those of an earlier pass."""


@dataclass(frozen=True, eq=False)
class IdentifiedBlock:
    """Rows (m, d) and the ids of their persons, an Arrow array (m,)."""

    rows: np.ndarray
    ids: Any

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, eq=False)
class RowBlocks:
    """Rows of numbers that can be read any number of times, block by block.

    Parameters
    ----------
    n_rows, n_columns : int
        Public, and known before the first pass.
    read : callable
        Starts a pass: it returns an iterator over arrays (m, d) of real numbers, whose
        rows together are the same in every pass.
    name : str, default="X"
        Name of the rows in messages.
    stamps : mapping of str to tuple, optional
        Stamps of the files behind the rows, by path (:func:`read_stamp`). Every pass
        compares them, and refuses files that have changed.
    read_identified : callable, optional
        Starts a pass over :class:`IdentifiedBlock`, where rows have ids.
    read_ids : callable, optional
        Starts a pass over the ids alone.

    Examples
    --------
    >>> def read():
    ...     return (np.random.default_rng(seed).random((1000, 2)) for seed in range(5))
    >>> rows = RowBlocks(5000, 2, read)
    >>> sum(len(block) for block in rows.blocks())
    5000
    """

    n_rows: int
    n_columns: int
    read: Callable[[], Iterator[np.ndarray]]
    name: str = "X"
    stamps: dict[str, Stamp] = field(default_factory=dict)
    read_identified: Callable[[], Iterator[IdentifiedBlock]] | None = None
    read_ids: Callable[[], Iterator[Any]] | None = None

    @property
    def block_size(self) -> int:
        """Largest number of rows of a block."""
        return max(1, BLOCK_VALUES // self.n_columns)

    def blocks(self) -> Iterator[np.ndarray]:
        """Read all rows once.

        Yields
        ------
        ndarray of shape (m, d)
            Of any real dtype, with at least one row and at most :attr:`block_size`.

        Raises
        ------
        ChangedRows
            If a file has changed since the rows were opened, or their number is
            another.
        ValueError
            If a block is no matrix of real numbers with that many columns.
        """
        check = partial(checked_block, n_columns=self.n_columns, name=self.name)
        for array in self._complete(lambda: map(check, self.read())):
            for start in range(0, len(array), self.block_size):
                yield array[start : start + self.block_size]

    def identified_blocks(self) -> Iterator[IdentifiedBlock]:
        """Read all rows once with the ids of their persons; see :meth:`blocks`."""
        assert self.read_identified is not None, "rows have no ids"
        return self._complete(self.read_identified)

    def ids(self) -> Iterator[Any]:
        """Read the ids of all rows once, as Arrow arrays; see :meth:`blocks`."""
        assert self.read_ids is not None, "rows have no ids"
        return self._complete(self.read_ids)

    def _complete(self, read: Callable[[], Iterable[Block]]) -> Iterator[Block]:
        """Read all blocks once; refuse changed files, and another number of rows."""
        self._check_stamps()
        n_read = 0
        try:
            for block in read():
                n_read += len(block)
                if n_read > self.n_rows:
                    break
                yield block
        except (OSError, ValueError):
            # A file that has changed cannot be read as the one that was opened: that is
            # the reason.
            self._check_stamps()
            raise
        self._check_stamps()
        if n_read != self.n_rows:
            more = "more" if n_read > self.n_rows else f"only {n_read}"
            raise ChangedRows(
                f"{self.name} has n={self.n_rows} rows, but a pass read {more}: all "
                f"passes must read the same rows; {READ_TWICE_ADVICE}"
            )

    def _check_stamps(self) -> None:
        for path, stamp in self.stamps.items():
            if not Path(path).exists() or read_stamp(path) != stamp:
                raise ChangedRows(
                    f"{path} has changed since it was opened: no result is valid; fit "
                    "again when nothing writes to it"
                ) from None


class ArrowStream(Protocol):
    """Whatever offers the Arrow stream protocol."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """A capsule with the stream."""
        ...


RowsLike = str | PathLike[str] | RowBlocks | ArrowStream
"""Sources that are read in blocks, besides mapped arrays and Arrow datasets."""


def row_blocks(source: Any, ids: str | None = None) -> RowBlocks | None:
    """Open a source of rows as blocks.

    Parameters
    ----------
    source : object
        A path of an NPY file, a Parquet file, a folder of them, or a pattern such as
        ``"data/*.parquet"``; an array that is mapped from a file; a
        ``pyarrow.dataset.Dataset``; a ``dask.array``; whatever offers the Arrow stream
        protocol again and again, such as a polars frame or an Arrow table; RowBlocks.
    ids : str, optional
        Column of a Parquet file or an Arrow source with the ids of persons, which is no
        feature.

    Returns
    -------
    RowBlocks or None
        None for all other objects, such as arrays in memory.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    TypeError
        If rows can be read only once.
    ValueError
        If a column is not numeric, files have different columns, or there are no rows.
        If there is no such column of ids.
    """
    rows = _open(source, ids)
    if rows is not None and ids is not None and rows.read_ids is None:
        raise ValueError(
            f"groups={ids!r} should name a column, and {rows.name} has no names: give "
            "the ids of all rows as an array"
        )
    return rows


def _open(source: Any, ids: str | None) -> RowBlocks | None:
    if isinstance(source, RowBlocks):
        return source
    if isinstance(source, str | PathLike):
        return _open_path(os.fspath(source), ids)
    if isinstance(source, np.memmap):
        is_matrix = source.ndim == 2 and source.size
        return _open_mapped(source, "X") if is_matrix else None
    is_reader = _is_instance(source, "pyarrow", "RecordBatchReader")
    if is_reader or isinstance(source, Iterator):
        raise _make_read_once_error(source)
    if is_dask_array(source):
        return _open_dask(source)
    if _is_instance(source, "pyarrow", "Dataset"):
        return _open_dataset(source, "X", ids)
    is_pandas = type(source).__module__.split(".")[0] == "pandas"
    if hasattr(source, "__arrow_c_stream__") and not is_pandas:
        return _open_stream(source, ids)
    return None


def read_stamp(path: str | PathLike | int) -> Stamp:
    """Read the stamp of a file, which changes when the file is changed or replaced.

    A program can reset the time of writing, but not that of the change.

    Parameters
    ----------
    path : path-like or int
        Or the number of an open file.
    """
    status = os.stat(path)
    return (
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_ino,
    )


def _make_read_once_error(source: object) -> TypeError:
    return TypeError(
        f"X={type(source).__name__} can be read only once, and k-means needs several "
        f"passes: {READ_TWICE_ADVICE}"
    )


def checked_block(block: object, n_columns: int, name: str = "X") -> np.ndarray:
    """Check a block of rows (m, d); its masked entries become NaN.

    Raises
    ------
    ValueError
        If it is no matrix of real numbers with that many columns.
    """
    if (
        isinstance(block, np.ndarray)
        and block.dtype.kind in "iuf"
        and block.ndim == 2
        and block.shape[1] == n_columns
    ):
        return without_mask(block)
    dtype = getattr(block, "dtype", type(block).__name__)
    raise ValueError(
        f"{name} must be read as blocks of shape (m, {n_columns}) of real numbers, "
        f"got {dtype} of shape {getattr(block, 'shape', None)}"
    )


def without_mask(array: np.ndarray) -> np.ndarray:
    """Return an array whose masked entries, if there are any, are NaN in float64."""
    if isinstance(array, np.ma.MaskedArray) and array.dtype.kind in "biuf":
        return array.astype(np.float64).filled(np.nan)
    return array


def stacked(rows: RowBlocks) -> np.ndarray:
    """Read all rows into one array (n, d) in memory."""
    return np.concatenate(list(rows.blocks()))


def find_null(rows: np.ndarray, keep_missing: bool = False) -> np.ndarray:
    """Mask (n,) of the null records, which are rows with a missing entry.

    Where missing entries are kept, only rows without any value are null. A row with an
    infinite value is null in either case.

    Examples
    --------
    >>> rows = np.array([[0.0, 1.0], [0.0, np.nan], [np.nan, np.nan], [0.0, np.inf]])
    >>> find_null(rows).tolist(), find_null(rows, keep_missing=True).tolist()
    ([False, True, True, True], [False, False, True, True])
    """
    n_finite = np.isfinite(rows).sum(axis=1)
    if keep_missing:
        return (np.isinf(rows).sum(axis=1) > 0) | (n_finite == 0)
    return n_finite < rows.shape[1]


def is_dask_array(source: object) -> bool:
    """Tell whether an object is a ``dask.array``."""
    return _is_instance(source, "dask", "Array")


def is_pandas_frame(source: object) -> bool:
    """Tell whether an object is a ``pandas.DataFrame``."""
    return _is_instance(source, "pandas", "DataFrame")


def _is_instance(source: object, package: str, name: str) -> bool:
    """Tell whether an object is of a package's class, without an import of it."""
    return any(
        base.__module__.split(".")[0] == package and base.__name__ == name
        for base in type(source).__mro__
    )


def _open_path(path: str, ids: str | None) -> RowBlocks:
    if path.lower().endswith(".npy"):
        return _open_npy(path)
    files = list_parquet_files(path)
    try:
        from pyarrow.dataset import dataset
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"path={path!r} needs pyarrow, which is not installed: pip install pyarrow"
        ) from error
    try:
        source = dataset(files, format="parquet")
    # Arrow's error of a damaged file is a ValueError.
    except (OSError, ValueError) as error:
        raise ValueError(f"path={path!r} cannot be read as Parquet: {error}") from error
    return _open_dataset(source, path, ids)


def list_parquet_files(path: str) -> list[str]:
    """List the Parquet files of a path, a folder or a pattern, in their names' order.

    Raises
    ------
    FileNotFoundError
        If there is none.
    ValueError
        If a single file has another name.
    """
    if glob.has_magic(path):
        files = sorted(glob.glob(path, recursive=True))
        rule = "match one or more Parquet files"
    elif Path(path).is_dir():
        files = [str(file) for file in sorted(Path(path).rglob("*"))]
        rule = "be a folder with Parquet files"
    else:
        files = [path] if Path(path).is_file() else []
        rule = "be an existing file"
    named = [file for file in files if file.lower().endswith(PARQUET)]
    if files == [path] and not named:
        raise ValueError(
            f"path={path!r} should end in .npy, .parquet or .grid, or be a folder of "
            "Parquet files or a pattern; read other files into an array or a frame"
        )
    if not named:
        raise FileNotFoundError(f"path={path!r} should {rule}")
    return named


def _open_npy(path: str) -> RowBlocks:
    if not Path(path).is_file():
        raise FileNotFoundError(f"path={path!r} should be an existing file")
    try:
        # Copies of pages on writing: kernels are compiled for arrays that can be
        # written to.
        array = np.load(path, mmap_mode="c", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"path={path!r} is no NPY file of numbers: {error}") from error
    if array.ndim != 2 or not array.size or array.dtype.kind not in "iuf":
        raise ValueError(
            f"path={path!r} must hold real numbers of shape (n, d) with n, d >= 1, got "
            f"{array.dtype} of shape {array.shape}"
        )
    return _open_mapped(array, path, unwritten=True)


def _open_mapped(array: np.memmap, name: str, unwritten: bool = False) -> RowBlocks:
    """Return the blocks of an array that is mapped from a file."""
    n, d = array.shape

    def read() -> Iterator[np.ndarray]:
        return mapped_blocks(array, max(1, BLOCK_VALUES // d), unwritten=unwritten)

    return RowBlocks(n, d, read, name, _stamp_mapped(array))


def _stamp_mapped(array: np.memmap) -> dict[str, Stamp]:
    """Return the stamp of the file of a mapped array, if only others write to it."""
    path = array.filename
    # An array that may write to its file changes it, too.
    if path is not None and array.mode in ("r", "c") and Path(path).is_file():
        return {str(path): read_stamp(path)}
    return {}


def attach_ids(rows: RowBlocks, ids: np.memmap) -> RowBlocks:
    """Give rows the ids of their persons, which are mapped from a file of their own.

    Raises
    ------
    ValueError
        If there are not as many ids as rows.
    """
    if ids.shape != (rows.n_rows,):
        raise ValueError(
            f"groups of shape {ids.shape} must have one id for each of {rows.n_rows} "
            "rows"
        )

    def read_identified() -> Iterator[IdentifiedBlock]:
        start = 0
        for block in rows.blocks():
            stop = start + len(block)
            yield IdentifiedBlock(block, np.asarray(ids[start:stop]))
            start = stop

    return replace(
        rows,
        stamps=rows.stamps | _stamp_mapped(ids),
        read_identified=read_identified,
        read_ids=partial(
            mapped_blocks,
            ids,
            max(1, BLOCK_VALUES // VALUES_OF_ID),
            unwritten=False,
        ),
    )


def mapped_blocks(
    array: np.memmap, size: int, *, unwritten: bool, read_pages: bool = True
) -> Iterator[np.ndarray]:
    """Read rows of an array that is mapped from a file, block by block.

    The memory of pages that were read is released some blocks later.

    Parameters
    ----------
    array : memmap of shape (n, d)
    size : int
        Rows of a block.
    unwritten : bool
        Whether the array is unchanged. Changes would be lost with the released pages.
    read_pages : bool, default=True
        Whether the thread that asks for a block reads its pages, so that others need
        not wait for them. Others read what they use.

    Yields
    ------
    ndarray of shape (m, d)
        Views of the array where kernels can take them, else copies.
    """
    is_view = array.flags.c_contiguous and (
        array.flags.writeable or array.dtype != np.float64
    )
    for number, start in enumerate(range(0, len(array), size)):
        block = np.asarray(array[start : start + size])
        if is_view and read_pages:
            # A byte of every page.
            block.reshape(-1).view(np.uint8)[:: mmap.PAGESIZE].max()
        yield block if is_view else np.array(block)
        if number % MAPPED_BLOCKS == MAPPED_BLOCKS - 1:
            release_pages(array, unwritten=unwritten)
    release_pages(array, unwritten=unwritten)


def release_pages(array: np.memmap, *, unwritten: bool) -> None:
    """Release the pages of a mapped array; they are read again when needed."""
    mapping = getattr(array, "_mmap", None)
    is_released = unwritten or array.mode in ("r", "r+")
    if is_released and isinstance(mapping, mmap.mmap):
        mapping.madvise(mmap.MADV_DONTNEED)


def _open_dask(array: Any) -> RowBlocks:
    """Return the chunks of an array as blocks, computed when they are read."""
    if array.ndim != 2 or any(size != size or size < 1 for size in array.shape):
        raise ValueError(
            "X must be a dask.array of known shape (n, d) with n, d >= 1, got "
            f"{array.shape}: call its compute_chunk_sizes()"
        )
    n, d = array.shape

    def read() -> Iterator[np.ndarray]:
        for chunk in array.rechunk({1: -1}).to_delayed().ravel():
            yield np.asanyarray(chunk.compute())

    return RowBlocks(n, d, read)


def _open_dataset(source: "Dataset", name: str, ids: str | None) -> RowBlocks:
    """Return the blocks of an Arrow dataset; all columns but the ids are features."""
    from pyarrow.dataset import ParquetFileFormat

    _check_files(source)
    files = [path for path in getattr(source, "files", ()) if Path(path).is_file()]
    is_parquet = isinstance(getattr(source, "format", None), ParquetFileFormat)

    def open_batches(
        columns: Sequence[str] | None, size: int
    ) -> Iterator["pa.RecordBatch"]:
        if not is_parquet:
            yield from source.to_batches(columns=columns, batch_size=size)
            return
        for fragment in source.get_fragments():
            with fragment.open() as file:
                yield from read_parquet(file, columns, size)

    return _open_batches(
        source.schema,
        source.count_rows,
        open_batches,
        name,
        {path: read_stamp(path) for path in files},
        ids,
    )


def read_parquet(
    file: Any,
    columns: Sequence[str] | None,
    size: int,
) -> Iterator["pa.RecordBatch"]:
    """Read batches of a Parquet file, each when it is asked for.

    Memory grows neither with the file nor with its row groups. Arrow's scanner would
    decode up to a gigabyte for a caller that is slower.

    Parameters
    ----------
    file : path-like or file
    columns : sequence of str or None
        All if it is None.
    size : int
        Largest number of rows of a batch.
    """
    from pyarrow.parquet import ParquetFile

    # Arrow would keep all bytes that it has buffered in advance.
    reader = ParquetFile(file, pre_buffer=False, buffer_size=COLUMN_BYTES)
    yield from reader.iter_batches(size, columns=columns)


def _open_stream(source: Any, ids: str | None) -> RowBlocks:
    """Return the blocks of an Arrow stream, which is opened anew for every pass."""
    import pyarrow as pa

    reader = pa.RecordBatchReader.from_stream(source)

    def count_rows() -> int:
        # This is the first pass.
        return sum(batch.num_rows for batch in reader)

    def open_batches(
        columns: Sequence[str] | None, size: int
    ) -> Iterable[pa.RecordBatch]:
        try:
            batches = pa.RecordBatchReader.from_stream(source)
        except Exception as error:
            raise _make_read_once_error(source) from error
        return (batch.select(columns) if columns else batch for batch in batches)

    return _open_batches(
        reader.schema,
        count_rows,
        open_batches,
        "X",
        {},
        ids,
    )


def _open_batches(
    schema: "pa.Schema",
    count_rows: Callable[[], int],
    open_batches: Callable[[Sequence[str] | None, int], Iterable["pa.RecordBatch"]],
    name: str,
    stamps: dict[str, Stamp],
    ids: str | None,
) -> RowBlocks:
    """Return the blocks of Arrow's batches of rows, read from columns that are named.

    All columns are read where there are no ids: names may be there twice.
    """
    features = None
    if ids is not None:
        if schema.names.count(ids) != 1:
            listed = ", ".join(schema.names)
            raise ValueError(
                f"groups={ids!r} should name one column of {name}: {listed}"
            )
        schema = schema.remove(schema.get_field_index(ids))
        features = schema.names
    dtype = _choose_dtype(schema, name)
    d = len(schema.names)
    n = count_rows()
    if n == 0:
        raise ValueError(f"{name} must have one row or more, got 0")

    def read(
        columns: Sequence[str] | None, n_values: int = d
    ) -> Iterator["pa.RecordBatch"]:
        size = max(1, BLOCK_VALUES // n_values)
        for batch in open_batches(columns, size):
            for start in range(0, batch.num_rows, size):
                yield batch.slice(start, size)

    def read_rows() -> Iterator[np.ndarray]:
        return (_to_rows(batch, dtype) for batch in read(features))

    plain = RowBlocks(n, d, read_rows, name, stamps)
    if features is None:
        return plain

    def read_identified() -> Iterator[IdentifiedBlock]:
        for batch in read([*features, ids]):
            rows = _to_rows(batch.select(features), dtype)
            yield IdentifiedBlock(rows, batch.column(ids))

    def read_ids() -> Iterator["pa.Array"]:
        return (batch.column(0) for batch in read([ids], VALUES_OF_ID))

    return replace(
        plain,
        read_identified=read_identified,
        read_ids=read_ids,
    )


def _choose_dtype(schema: "pa.Schema", name: str) -> np.dtype:
    """Choose the type of a block: float32 if it holds all columns, else float64."""
    import pyarrow as pa

    if not len(schema.names):
        raise ValueError(f"{name} must have one column or more, got 0")
    accepted = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    wrong = [
        column.name
        for column in schema
        if not any(accept(column.type) for accept in accepted)
    ]
    if wrong:
        raise ValueError(
            f"{name}: column{'s' if len(wrong) > 1 else ''} {', '.join(wrong)} should "
            f"be numeric; leave them out, or {ENCODING}"
        )
    return np.result_type(
        np.float32, *(column.to_pandas_dtype() for column in schema.types)
    )


def _check_files(source: "Dataset") -> None:
    """Refuse files with other columns, which Arrow would fill with nulls."""
    for fragment in source.get_fragments():
        different = set(fragment.physical_schema) ^ set(source.schema)
        names = ", ".join(dict.fromkeys(sorted(column.name for column in different)))
        if not fragment.physical_schema.equals(source.schema):
            raise ValueError(
                f"{getattr(fragment, 'path', 'a part of X')} has other columns than "
                f"the first file ({names or 'their order'}): give files with the same "
                "columns and types"
            )


def _to_rows(batch: "pa.RecordBatch", dtype: np.dtype) -> np.ndarray:
    """Return the rows (m, d) of a batch, column after column; nulls become NaN."""
    import pyarrow as pa

    columns = np.empty((batch.num_columns, batch.num_rows), dtype)
    for h, column in enumerate(batch.columns):
        is_flag = pa.types.is_boolean(column.type)
        numbers = column.cast(pa.uint8()) if is_flag else column
        columns[h] = numbers.to_numpy(zero_copy_only=False)
    return columns.T
