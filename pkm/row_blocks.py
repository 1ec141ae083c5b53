"""Rows of numbers that are read anew in every pass, block by block: files, Arrow streams.

Nothing here is larger in memory than some blocks, whatever the number of rows.
"""

import glob
import mmap
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.dataset import Dataset

#: Values of a block: 8 megabytes in float32.
BLOCK_VALUES = 1 << 21
#: Blocks of a mapped file whose pages stay in memory: more than are computed on at
#: once.
MAPPED_BLOCKS = 16
#: Batches that Arrow decodes ahead, and files that it has open.
BATCHES_AHEAD = 2
#: Types of columns that float32 holds.
NARROW = ("float", "halffloat", "int8", "int16", "uint8", "uint16", "bool")
PARQUET = (".parquet", ".pq")
#: What can be done with rows that can be read once.
REMEDY = "write them to a Parquet file and fit that, or give a RowBlocks, which starts every pass"


class ChangedRows(ValueError):
    """Rows differ from those of an earlier pass."""


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
        In messages.
    stamps : mapping of str to tuple, optional
        Size and time of change of the files behind the rows: they are compared in every
        pass.

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
    stamps: dict[str, tuple[int, int]] = field(default_factory=dict)

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
        self._check_stamps()
        n_read = 0
        try:
            for block in self.read():
                array = checked_block(block, self.n_columns, self.name)
                n_read += len(array)
                if n_read > self.n_rows:
                    break
                for start in range(0, len(array), self.block_size):
                    yield array[start : start + self.block_size]
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
                f"passes must read the same rows; {REMEDY}"
            )

    def _check_stamps(self) -> None:
        for path, stamp in self.stamps.items():
            if not Path(path).exists() or stamp_of(path) != stamp:
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
"""What is read in blocks, besides mapped arrays and Arrow datasets."""


def row_blocks(source: Any) -> RowBlocks | None:
    """Find out how rows are read in blocks.

    Parameters
    ----------
    source : object
        A path of an NPY file, a Parquet file, a folder of them, or a pattern such as
        ``"data/*.parquet"``; an array that is mapped from a file; a
        ``pyarrow.dataset.Dataset``; a ``dask.array``; whatever offers the Arrow stream
        protocol again and again, such as a polars frame or an Arrow table; RowBlocks.

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
    """
    if type(source) is np.ndarray:
        return None
    if isinstance(source, RowBlocks):
        return source
    if isinstance(source, str | PathLike):
        return _of_path(os.fspath(source))
    if isinstance(source, np.memmap):
        return (
            _of_mapped(source, "X", _stamps(source))
            if source.ndim == 2 and source.size
            else None
        )
    if isinstance(source, Iterator) or _is_of(source, "pyarrow", "RecordBatchReader"):
        raise TypeError(
            f"X={type(source).__name__} can be read only once, and k-means needs "
            f"several passes: {REMEDY}"
        )
    if is_dask_array(source):
        return _of_dask(source)
    if _is_of(source, "pyarrow", "Dataset"):
        return _of_dataset(source, "X")
    is_pandas = type(source).__module__.split(".")[0] == "pandas"
    if hasattr(source, "__arrow_c_stream__") and not is_pandas:
        return _of_stream(source)
    return None


def stamp_of(path: str | PathLike | int) -> tuple[int, int]:
    """Size in bytes and time of the last change in nanoseconds, of a path or an open file."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def checked_block(block: object, n_columns: int, name: str = "X") -> np.ndarray:
    """A block of rows (m, d), whose masked entries become NaN.

    Raises
    ------
    ValueError
        If it is no matrix of real numbers with that many columns.
    """
    is_matrix = (
        isinstance(block, np.ndarray) and block.ndim == 2 and block.dtype.kind in "iuf"
    )
    if not is_matrix or block.shape[1] != n_columns:
        found = f"{getattr(block, 'dtype', type(block).__name__)}"
        raise ValueError(
            f"{name} must be read as blocks of shape (m, {n_columns}) of real numbers, "
            f"got {found} of shape {getattr(block, 'shape', None)}"
        )
    return without_mask(block)


def without_mask(array: np.ndarray) -> np.ndarray:
    """An array of numbers, float64 with NaN for masked entries if it is a masked array."""
    if isinstance(array, np.ma.MaskedArray) and array.dtype.kind in "biuf":
        return array.astype(np.float64).filled(np.nan)
    return array


def stacked(rows: RowBlocks) -> np.ndarray:
    """Read all rows into one array (n, d) in memory."""
    return np.concatenate(list(rows.blocks()))


def is_dask_array(source: object) -> bool:
    """Whether an object is a ``dask.array``."""
    return _is_of(source, "dask", "Array")


def is_pandas_frame(source: object) -> bool:
    """Whether an object is a ``pandas.DataFrame``."""
    return _is_of(source, "pandas", "DataFrame")


def _is_of(source: object, package: str, name: str) -> bool:
    """Whether an object is of a class of a package, which is not imported for it."""
    return any(
        base.__module__.split(".")[0] == package and base.__name__ == name
        for base in type(source).__mro__
    )


def _of_path(path: str) -> RowBlocks:
    if path.lower().endswith(".npy"):
        return _of_npy(path)
    from pyarrow.dataset import dataset

    files = list_parquet_files(path)
    try:
        source = dataset(files, format="parquet")
    # Arrow's error of a damaged file is a ValueError.
    except (OSError, ValueError) as error:
        raise ValueError(f"path={path!r} cannot be read as Parquet: {error}") from error
    return _of_dataset(source, path)


def list_parquet_files(path: str) -> list[str]:
    """Parquet files of a path, a folder or a pattern, in the order of their names.

    Raises
    ------
    FileNotFoundError
        If there is none.
    ValueError
        If a single file has another name.
    """
    if glob.has_magic(path):
        found = sorted(glob.glob(path, recursive=True))
        files = [file for file in found if file.lower().endswith(PARQUET)]
        if not files:
            raise FileNotFoundError(
                f"path={path!r} should match one or more Parquet files"
            )
        return files
    if Path(path).is_dir():
        found = [str(file) for file in sorted(Path(path).rglob("*"))]
        files = [file for file in found if file.lower().endswith(PARQUET)]
        if not files:
            raise FileNotFoundError(
                f"path={path!r} should be a folder with Parquet files"
            )
        return files
    if not Path(path).is_file():
        raise FileNotFoundError(f"path={path!r} should be an existing file")
    if not path.lower().endswith(PARQUET):
        raise ValueError(
            f"path={path!r} should end in .npy, .parquet or .grid, or be a folder of "
            "Parquet files or a pattern; read other files into an array or a frame"
        )
    return [path]


def _of_npy(path: str) -> RowBlocks:
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
    return _of_mapped(array, path, {path: stamp_of(path)}, is_own=True)


def _stamps(array: np.memmap) -> dict[str, tuple[int, int]]:
    """Stamp of the file that an array is mapped from, unless the array may write to it."""
    if (
        array.filename is None
        or array.mode not in ("r", "c")
        or not Path(array.filename).is_file()
    ):
        return {}
    return {str(array.filename): stamp_of(array.filename)}


def _of_mapped(
    array: np.memmap,
    name: str,
    stamps: dict[str, tuple[int, int]],
    *,
    is_own: bool = False,
) -> RowBlocks:
    """Blocks of an array that is mapped from a file."""
    n, d = array.shape
    size = max(1, BLOCK_VALUES // d)
    return RowBlocks(
        n, d, lambda: mapped_blocks(array, size, is_own=is_own), name, stamps
    )


def mapped_blocks(
    array: np.memmap, size: int, *, is_own: bool, read_pages: bool = True
) -> Iterator[np.ndarray]:
    """Blocks of rows of an array that is mapped from a file.

    Pages are given back some blocks later.

    Parameters
    ----------
    array : memmap of shape (n, d)
    size : int
        Rows of a block.
    is_own : bool
        Whether nobody writes to the array: pages with changes would be lost.
    read_pages : bool, default=True
        Whether the thread that asks for a block reads its pages, so that others need
        not wait for them. Others read what they use.

    Yields
    ------
    ndarray of shape (m, d)
        Parts of the array itself where kernels can take them.
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
            give_back(array, is_own=is_own)
    give_back(array, is_own=is_own)


def give_back(array: np.memmap, *, is_own: bool) -> None:
    """Let the system have the pages of a mapped array; they are read again when they are needed."""
    mapping = getattr(array, "_mmap", None)
    is_shared = array.mode in ("r", "r+")
    if (
        (is_shared or is_own)
        and isinstance(mapping, mmap.mmap)
        and hasattr(mmap, "MADV_DONTNEED")
    ):
        mapping.madvise(mmap.MADV_DONTNEED)


def _of_dask(array: Any) -> RowBlocks:
    """Blocks of the chunks of an array, each computed when it is read."""
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


def _of_dataset(source: "Dataset", name: str) -> RowBlocks:
    """Blocks of the rows of an Arrow dataset; all of its columns are features."""
    from pyarrow.dataset import ParquetFileFormat, ParquetFragmentScanOptions

    schema = source.schema
    dtype = _dtype(schema, name)
    _check_files(source, schema)
    n = source.count_rows()
    _check_size(n, name)
    stamps = {
        path: stamp_of(path)
        for path in getattr(source, "files", ())
        if Path(path).is_file()
    }
    batch_size = max(1, BLOCK_VALUES // len(schema.names))
    # Arrow would keep all bytes of a file that it has read.
    is_parquet = isinstance(getattr(source, "format", None), ParquetFileFormat)
    options = ParquetFragmentScanOptions(pre_buffer=False) if is_parquet else None

    def read() -> Iterator[np.ndarray]:
        batches = source.to_batches(
            batch_size=batch_size,
            batch_readahead=BATCHES_AHEAD,
            fragment_readahead=1,
            fragment_scan_options=options,
        )
        for batch in batches:
            if batch.num_rows:
                yield _rows(batch, dtype)

    return RowBlocks(n, len(schema.names), read, name, stamps)


def _of_stream(source: Any) -> RowBlocks:
    """Blocks of an Arrow stream, which is opened anew for every pass."""
    import pyarrow as pa

    # The first pass counts the rows.
    reader = pa.RecordBatchReader.from_stream(source)
    dtype = _dtype(reader.schema, "X")
    n = sum(batch.num_rows for batch in reader)
    _check_size(n, "X")
    names = reader.schema.names
    size = max(1, BLOCK_VALUES // len(names))

    def read() -> Iterator[np.ndarray]:
        try:
            stream = pa.RecordBatchReader.from_stream(source)
        except Exception as error:
            raise TypeError(
                f"X={type(source).__name__} can be read only once, and k-means needs "
                f"several passes: {REMEDY}"
            ) from error
        for batch in stream:
            for start in range(0, batch.num_rows, size):
                yield _rows(batch.slice(start, size), dtype)

    return RowBlocks(n, len(names), read)


def _check_size(n: int, name: str) -> None:
    if n == 0:
        raise ValueError(f"{name} must have one row or more, got 0")


def _dtype(schema: "pa.Schema", name: str) -> type:
    """Type of a block: float32 where it holds all columns, else float64."""
    import pyarrow as pa

    if not len(schema.names):
        raise ValueError(f"{name} must have one column or more, got 0")
    accepted = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    wrong = [
        each.name
        for each in schema
        if not any(accept(each.type) for accept in accepted)
    ]
    if wrong:
        raise ValueError(
            f"{name}: column{'s' if len(wrong) > 1 else ''} {', '.join(wrong)} should "
            "be numeric; leave them out, or encode them as numbers"
        )
    is_narrow = all(str(each.type) in NARROW for each in schema)
    return np.float32 if is_narrow else np.float64


def _check_files(source: "Dataset", schema: "pa.Schema") -> None:
    """Refuse files with other columns, which Arrow would fill with nulls."""
    for fragment in source.get_fragments():
        own = fragment.physical_schema
        if not own.equals(schema):
            differing = sorted(set(own) ^ set(schema), key=str)
            names = (
                ", ".join(dict.fromkeys(each.name for each in differing))
                or "their order"
            )
            raise ValueError(
                f"{getattr(fragment, 'path', 'a part of X')} has other columns than "
                f"the first file ({names}): give files with the same columns and types"
            )


def _rows(batch: "pa.RecordBatch", dtype: type) -> np.ndarray:
    """Rows (m, d) of a batch, a column after the other in memory; nulls become NaN."""
    import pyarrow as pa

    columns = np.empty((batch.num_columns, batch.num_rows), dtype)
    for h, column in enumerate(batch.columns):
        numbers = (
            column.cast(pa.uint8()) if pa.types.is_boolean(column.type) else column
        )
        columns[h] = numbers.to_numpy(zero_copy_only=False)
    return columns.T
