"""Grid files: quantized points in a file that is mapped to memory and read often.

The file is a header and two arrays, little-endian: the coordinates (n, d), float32,
which are integers of at most 2**16, and from ``remainders_at`` on the remainders of
rounding to the grid (n, d), int16. The header is the word ``PKMGRID1``, the length of
its rest in 8 bytes, and a JSON object, padded with blanks to whole pages.
"""

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pkm.compute.storage.blocks import Blocks
from pkm.compute.storage.points import (
    SCALE,
    Points,
    make_slices,
    middle_and_half_width,
    square_norms,
)
from pkm.row_blocks import (
    BLOCK_VALUES,
    ChangedRows,
    RowBlocks,
    Stamp,
    mapped_blocks,
    read_stamp,
)
from pkm.scalars import is_integer, is_number

SUFFIX = ".grid"
MAGIC = b"PKMGRID1"
VERSION = 1
PAGE = 4096  # bytes
LENGTH_BYTES = 8
#: Bytes reserved for a bound with its comma and blank: no float64 has more than 24.
DIGITS = 32
ROWS_TYPE = np.dtype("<f4")
REMAINDERS_TYPE = np.dtype("<i2")


@dataclass(frozen=True)
class Header:
    """Header of a grid file.

    Attributes
    ----------
    version, scale : int
        Version of the format, and grid steps per half-width.
    n_records, n_null, n_features : int
        Null records are counted and have no coordinates.
    lower, upper : list of float
        Bounds of the box that the grid represents, in the units of the data.
    outside : bool
        Whether a point was clipped to the box.
    remainders_at : int
        Offset of the remainders, in bytes from the end of the header.
    checksum : str
        SHA-256 of the coordinates followed by SHA-256 of the remainders, hexadecimal.
    """

    version: int
    scale: int
    n_records: int
    n_null: int
    n_features: int
    lower: list[float]
    upper: list[float]
    outside: bool
    remainders_at: int
    checksum: str

    @property
    def n_rows(self) -> int:
        """Number of records that have coordinates."""
        return self.n_records - self.n_null


@dataclass(frozen=True)
class GridBlock:
    """Coordinates (m, d), float32, and remainders (m, d), int16, of some points."""

    rows: np.ndarray
    remainders: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(eq=False)
class GridFile:
    """An open grid file.

    The first complete pass over it compares its content with the checksum.

    Attributes
    ----------
    path : str
    header : Header
    begin : int
        Offset of the coordinates in the file, in bytes.
    stamp : tuple of int
        Size and times of the file when it was opened: see
        :func:`pkm.row_blocks.read_stamp`.
    is_verified : bool
        Whether the content has the checksum.
    """

    path: str
    header: Header
    begin: int
    stamp: Stamp
    is_verified: bool = field(default=False, init=False)

    @property
    def n_rows(self) -> int:
        """Number of records, null ones included."""
        return self.header.n_records

    @property
    def n_columns(self) -> int:
        """Number of features."""
        return self.header.n_features

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of the grid's box, each of shape (d,), float64."""
        return np.array(self.header.lower), np.array(self.header.upper)

    def blocks(self) -> Iterator[GridBlock]:
        """Read all points once, in blocks, without null records.

        Raises
        ------
        ChangedRows
            If the file has changed since it was opened.
        ValueError
            After the last block, if the content differs from the checksum.
        """
        self.check_unchanged()
        rows, remainders = self._map_arrays()
        size = self._block_size
        blocks = map(
            GridBlock,
            mapped_blocks(rows, size, unwritten=True),
            mapped_blocks(remainders, size, unwritten=True, read_pages=False),
        )
        yield from blocks if self.is_verified else self._verify(blocks)
        # Once more: a change during the pass may have mixed old and new points.
        self.check_unchanged()

    def to_blocks(self) -> Blocks:
        """Points that are read again in every pass."""
        return Blocks(self, _to_points, n_null=self.header.n_null)

    def to_points(self) -> Points:
        """All points at once: coordinates in the file, squared norms in memory.

        For methods that need more than sums over points; what they compute takes memory
        in addition. Pages are read when they are needed: call :meth:`check_unchanged`
        after the last use of the points.

        Raises
        ------
        ChangedRows
            If the file has changed since it was opened.
        ValueError
            If it is damaged.
        """
        rows, remainders = map(np.asarray, self._map_arrays())
        squared_norms = np.empty(len(rows))
        slices = make_slices(len(rows), self._block_size)
        for rows_of_block, block in zip(slices, self.blocks(), strict=True):
            squared_norms[rows_of_block] = _to_points(block).squared_norms
        return Points(rows, squared_norms, remainders, self.header.n_null)

    def to_data_units(self) -> RowBlocks:
        """Rows in the units of the data, float64, as precise as the remainders are."""
        middle, half_width = middle_and_half_width(*self.bounds)

        def read() -> Iterator[np.ndarray]:
            for block in self.blocks():
                steps = block.rows.astype(np.float64) + block.remainders / SCALE
                yield middle + half_width * (steps / SCALE)

        return RowBlocks(self.header.n_rows, self.n_columns, read, self.path)

    def check_unchanged(self) -> None:
        """Compare the file with what it was when it was opened.

        Raises
        ------
        ChangedRows
            If it has changed.
        """
        if read_stamp(self.path) != self.stamp:
            raise ChangedRows(
                f"{self.path} has changed since it was opened: no result is valid; fit "
                "again when nothing writes to it"
            )

    @property
    def _block_size(self) -> int:
        return max(1, BLOCK_VALUES // self.n_columns)

    def _verify(self, blocks: Iterator[GridBlock]) -> Iterator[GridBlock]:
        """Pass blocks on, and compare their content with the checksum."""
        hashes = [hashlib.sha256(), hashlib.sha256()]
        for block in blocks:
            hashes[0].update(block.rows.data)
            hashes[1].update(block.remainders.data)
            yield block
        # Only a complete pass comes here; a shorter one leaves the file unverified.
        if _join(hashes) != self.header.checksum:
            raise ValueError(
                f"{self.path} is damaged: its checksum differs; pack it again"
            )
        self.is_verified = True

    def _map_arrays(self) -> tuple[np.memmap, np.memmap]:
        shape = (self.header.n_rows, self.n_columns)
        rows_at = self.begin
        remainders_at = self.begin + self.header.remainders_at
        # Mode c copies pages on writing: kernels are compiled for writable arrays.
        rows = np.memmap(self.path, ROWS_TYPE, "c", rows_at, shape)
        remainders = np.memmap(self.path, REMAINDERS_TYPE, "c", remainders_at, shape)
        return rows, remainders


def is_grid_file(source: object) -> bool:
    """Whether an object is an open grid file, or a path with its suffix."""
    if isinstance(source, str | PathLike):
        return str(os.fspath(source)).lower().endswith(SUFFIX)
    return isinstance(source, GridFile)


def open_grid(path: str | PathLike[str] | GridFile) -> GridFile:
    """Open a grid file; its points are not read.

    Raises
    ------
    FileNotFoundError
        If there is none.
    ValueError
        If it is no grid file, of another version, damaged, or cut off.
    """
    if isinstance(path, GridFile):
        return path
    name = os.fspath(path)
    if not Path(name).is_file():
        raise FileNotFoundError(f"path={name!r} should be an existing file")
    # The stamp is read first: a change after this is noticed.
    with open(name, "rb") as stream:
        stamp = read_stamp(stream.fileno())
        magic = stream.read(len(MAGIC))
        # A length beyond the size of the file is not read: it may exceed all memory.
        length = int.from_bytes(stream.read(LENGTH_BYTES), "little")
        if magic != MAGIC or length > stamp[0]:
            raise ValueError(f"path={name!r} is no grid file: write one with pkm pack")
        text = stream.read(length)
    damage = _find_damage(text)
    if damage:
        raise ValueError(f"path={name!r} has {damage}: pack it again")
    header = Header(**json.loads(text))
    begin = len(MAGIC) + LENGTH_BYTES + length
    n_values = header.n_rows * header.n_features
    size = begin + header.remainders_at + n_values * REMAINDERS_TYPE.itemsize
    if stamp[0] != size:
        raise ValueError(
            f"path={name!r} has {stamp[0]} bytes instead of {size}: it is cut off; "
            "pack it again"
        )
    return GridFile(name, header, begin, stamp)


@contextmanager
def open_unchanged(source: Any) -> Iterator[Any]:
    """Open a source if it is a grid file; on leaving, refuse a changed file.

    Mapped points may be read until then.

    Yields
    ------
    GridFile or object
        Any other source as it is.

    Raises
    ------
    ChangedRows
        If the file has changed.
    """
    if not is_grid_file(source):
        yield source
        return
    file = open_grid(source)
    yield file
    file.check_unchanged()


def _find_damage(text: bytes) -> str:
    """Say what is wrong with a header; empty if nothing is."""
    try:
        content = json.loads(text)
    except ValueError:
        return "a damaged header"
    if not isinstance(content, dict):
        return "a damaged header"
    # The version comes first: files of another one may have other fields.
    version = content.get("version")
    scale = content.get("scale")
    if version != VERSION or scale != SCALE:
        return (
            f"version {version} and scale {scale}, "
            f"this program reads {VERSION} and {SCALE}"
        )
    differing = sorted(content.keys() ^ {field.name for field in fields(Header)})
    if differing:
        return f"a header with unknown or missing {', '.join(differing)}"
    wrong = _find_wrong_field(Header(**content))
    return f"a damaged header, {wrong}" if wrong else ""


def _find_wrong_field(header: Header) -> str:
    """Name the first field of a header that is out of its range; empty if none is."""
    n = header.n_records
    d = header.n_features
    if not (is_integer(n) and n >= 1):
        return "n_records"
    if not (is_integer(header.n_null) and 0 <= header.n_null < n):
        return "n_null"
    if not (is_integer(d) and d >= 1):
        return "n_features"
    # The room is for all records: null records were counted only while writing.
    if header.remainders_at != n * d * ROWS_TYPE.itemsize:
        return "remainders_at"
    for name in ("lower", "upper"):
        bound = getattr(header, name)
        if not (
            isinstance(bound, list) and len(bound) == d and all(map(_is_finite, bound))
        ):
            return name
    if not (np.array(header.lower) < np.array(header.upper)).all():
        return "lower"
    if not isinstance(header.outside, bool):
        return "outside"
    return ""


def _is_finite(value: object) -> bool:
    # This comparison is false for NaN, and for integers beyond the range of float64.
    return is_number(value) and abs(value) <= sys.float_info.max


def pack(
    rows: RowBlocks,
    path: str | PathLike[str],
    lower: np.ndarray,
    upper: np.ndarray,
) -> GridFile:
    """Quantize rows in a box once, and write them to a grid file.

    Parameters
    ----------
    rows : RowBlocks
    path : path-like
        Should end in ``.grid``. An existing file is replaced once all is written.
    lower, upper : ndarray of shape (d,), float64
        Public bounds, in the units of the data.

    Returns
    -------
    GridFile

    Raises
    ------
    OSError
        If the disk has too little room; nothing is written then.
    ChangedRows
        If the rows change meanwhile.
    """
    path = Path(path)
    # Refuse before anything is written. The need is at most this: null records take no
    # room.
    n_values = rows.n_rows * rows.n_columns
    room = shutil.disk_usage(path.absolute().parent).free
    needed = n_values * (ROWS_TYPE.itemsize + REMAINDERS_TYPE.itemsize) + PAGE
    if needed > room:
        raise OSError(
            f"{path} needs {needed:,} bytes, and {room:,} are free on its disk"
        )
    # Points are private: the owner alone can read the file. It lies beside the final
    # one, because a file is replaced atomically within one file system only.
    descriptor, temporary_name = tempfile.mkstemp(
        ".tmp", f".{path.name}.", path.absolute().parent
    )
    temporary = Path(temporary_name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            _write_grid(stream, rows, lower, upper)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
    return open_grid(path)


def _write_grid(
    stream: BinaryIO,
    rows: RowBlocks,
    lower: np.ndarray,
    upper: np.ndarray,
) -> None:
    d = rows.n_columns
    begin = _count_header_bytes(d)
    remainders_at = rows.n_rows * d * ROWS_TYPE.itemsize
    # Coordinates and remainders are written to two places of the file, block by block,
    # and hashed on the way.
    hashes = [hashlib.sha256(), hashlib.sha256()]
    n_written = 0
    outside = False
    for block in rows.blocks():
        points, is_clipped = Points.quantize(block, lower, upper)
        assert points.remainders is not None, "points of a box have remainders"
        arrays = (
            points.rows.astype(ROWS_TYPE, copy=False),
            points.remainders.astype(REMAINDERS_TYPE, copy=False),
        )
        for array, start, digest in zip(
            arrays, (0, remainders_at), hashes, strict=True
        ):
            stream.seek(begin + start + n_written * d * array.itemsize)
            stream.write(array.data)
            digest.update(array.data)
        n_written += len(points.rows)
        outside |= is_clipped
    if n_written == 0:
        raise ValueError(f"{rows.name} has no row without NaN or infinite values")

    # The header is written last, into the room that was left for it at the beginning.
    header = Header(
        version=VERSION,
        scale=SCALE,
        n_records=rows.n_rows,
        n_null=rows.n_rows - n_written,
        n_features=d,
        lower=lower.tolist(),
        upper=upper.tolist(),
        outside=outside,
        remainders_at=remainders_at,
        checksum=_join(hashes),
    )
    text = json.dumps(asdict(header)).encode()
    length = begin - len(MAGIC) - LENGTH_BYTES
    stream.seek(0)
    stream.write(MAGIC + length.to_bytes(LENGTH_BYTES, "little") + text.ljust(length))


def _count_header_bytes(n_features: int) -> int:
    """Bytes of a header in whole pages, enough for its names, checksum and bounds."""
    return -(-(PAGE // 2 + 2 * DIGITS * n_features) // PAGE) * PAGE


def _join(hashes: list) -> str:
    return "".join(digest.hexdigest() for digest in hashes)


def _check_rows(rows: np.ndarray) -> None:
    """Refuse coordinates of a damaged file: sums of them would not be bounded."""
    # NaN is not within the scale either.
    if not (np.abs(rows) <= SCALE).all():
        raise ValueError(
            "a grid file is damaged: it has points outside the domain; pack it again"
        )
    if not (np.rint(rows) == rows).all():
        raise ValueError(
            "a grid file is damaged: it has points off the grid; pack it again"
        )


def _to_points(block: GridBlock) -> Points:
    """Check the coordinates of a block, and complete it to Points."""
    _check_rows(block.rows)
    return Points(block.rows, square_norms(block.rows), block.remainders)
