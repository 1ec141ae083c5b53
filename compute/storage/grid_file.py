"""Points on the integer grid in a file that is mapped to memory: packed once, read in every pass.

The file is a header and two arrays, little-endian: the coordinates (n, d), float32,
which are integers of at most 2**16, and from ``remainders_at`` on the remainders of
rounding to the grid (n, d), int16. The header is the word ``PKMGRID1``, the length of
what follows in 8 bytes, and a JSON object, filled up with blanks to whole pages.
"""

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from pkm.compute.storage.blocks import Blocks
from pkm.compute.storage.points import (
    SCALE,
    Points,
    middle_and_half_width,
    squared_norms_of,
)
from pkm.row_blocks import (
    BLOCK_VALUES,
    ChangedRows,
    RowBlocks,
    mapped_blocks,
    read_stamp,
)
from pkm.scalars import is_integer, is_number

SUFFIX = ".grid"
MAGIC = b"PKMGRID1"
VERSION = 1
PAGE = 4096
LENGTH_BYTES = 8
DIGITS = 32  # of a bound, with its comma
ROWS_TYPE = np.dtype("<f4")
REMAINDERS_TYPE = np.dtype("<i2")


@dataclass(frozen=True)
class Header:
    """What a grid file says of its points.

    Attributes
    ----------
    version, scale : int
        Of the format, and grid steps per half-width.
    n_records, n_null, n_features : int
        Null records are counted and have no coordinates.
    lower, upper : list of float
        Bounds of the box that the grid represents, in the units of the data.
    outside : bool
        Whether a point was clipped to the box.
    remainders_at : int
        Where the remainders begin, in bytes from the end of the header.
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


@dataclass(frozen=True)
class GridBlock:
    """Coordinates (m, d), float32, and remainders (m, d), int16, of some points."""

    rows: np.ndarray
    remainders: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, eq=False)
class GridFile:
    """An open grid file.

    Attributes
    ----------
    path : str
    header : Header
    begin : int
        Where the coordinates begin, in bytes.
    stamp : tuple of int
        Size and time of change when it was opened.
    """

    path: str
    header: Header
    begin: int
    stamp: tuple[int, int]

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
        """Read all points once, in blocks; null records are none of them.

        Raises
        ------
        ChangedRows
            If the file has changed since it was opened.
        """
        self.check_unchanged()
        # Copies of pages on writing: kernels are compiled for arrays that can be
        # written to.
        rows, remainders = self._arrays("c")
        size = max(1, BLOCK_VALUES // self.n_columns)
        yield from map(
            GridBlock,
            mapped_blocks(rows, size, is_own=True),
            mapped_blocks(remainders, size, is_own=True, read_pages=False),
        )
        self.check_unchanged()

    def by_blocks(self) -> Blocks:
        """Points that are read anew in every pass."""
        return Blocks(self, _entered, n_null=self.header.n_null)

    def mapped(self) -> Points:
        """All points at once: coordinates stay in the file, squared norms are in memory.

        For methods that need more than sums over points; what they compute of the
        points for themselves comes on top. Pages are read when they are needed: call
        :meth:`check_unchanged` after the last use of the points.

        Raises
        ------
        ChangedRows
            If the file has changed since it was opened.
        ValueError
            If it is damaged.
        """
        self.check_unchanged()
        # Copies of pages on writing: kernels are compiled for arrays that can be
        # written to.
        rows, remainders = (np.asarray(array) for array in self._arrays("c"))
        squared_norms = np.empty(len(rows))
        size = max(1, BLOCK_VALUES // self.n_columns)
        for start in range(0, len(rows), size):
            part = slice(start, start + size)
            _check_rows(rows[part])
            squared_norms[part] = squared_norms_of(rows[part])
        self.check_unchanged()
        return Points(rows, squared_norms, remainders, self.header.n_null)

    def in_units(self) -> RowBlocks:
        """Rows in the units of the data, float64, as exactly as the remainders tell."""
        middle, half_width = middle_and_half_width(*self.bounds)

        def read() -> Iterator[np.ndarray]:
            for block in self.blocks():
                steps = block.rows.astype(np.float64) + block.remainders / SCALE
                yield middle + half_width * (steps / SCALE)

        n = self.header.n_records - self.header.n_null
        return RowBlocks(n, self.n_columns, read, self.path)

    def verify(self) -> None:
        """Compare the content with the checksum.

        Raises
        ------
        ValueError
            If it is damaged.
        """
        hashes = [hashlib.sha256(), hashlib.sha256()]
        for block in self.blocks():
            hashes[0].update(block.rows.data)
            hashes[1].update(block.remainders.data)
        if _joined(hashes) != self.header.checksum:
            raise ValueError(
                f"{self.path} is damaged: its checksum differs; pack it again"
            )

    def check_unchanged(self) -> None:
        """Compare the file with what it was when it was opened.

        Raises
        ------
        ChangedRows
            If it has changed.
        """
        if read_stamp(self.path) != self.stamp:
            raise ChangedRows(
                f"{self.path} has changed since it was opened: no result is valid; fit again when "
                "nothing writes to it"
            )

    def _arrays(self, mode: Any) -> tuple[np.memmap, np.memmap]:
        shape = (self.header.n_records - self.header.n_null, self.header.n_features)
        begin = self.begin
        rows = np.memmap(self.path, ROWS_TYPE, mode, begin, shape)
        remainders = np.memmap(
            self.path, REMAINDERS_TYPE, mode, begin + self.header.remainders_at, shape
        )
        return rows, remainders


def is_grid_file(source: object) -> bool:
    """Whether an object is an open grid file, or a path that ends as one."""
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
    with open(name, "rb") as stream:
        stamp = read_stamp(stream.fileno())
        magic = stream.read(len(MAGIC))
        length = int.from_bytes(stream.read(LENGTH_BYTES), "little")
        if magic != MAGIC or length > stamp[0]:
            raise ValueError(f"path={name!r} is no grid file: write one with pkm pack")
        text = stream.read(length)
    header = _header_of(text, name)
    opened = GridFile(name, header, len(MAGIC) + LENGTH_BYTES + length, stamp)
    values = (header.n_records - header.n_null) * header.n_features
    size = opened.begin + header.remainders_at + values * REMAINDERS_TYPE.itemsize
    if stamp[0] != size:
        raise ValueError(
            f"path={name!r} has {stamp[0]} bytes instead of {size}: it is cut off; pack it again"
        )
    return opened


@contextmanager
def unchanged(source: Any) -> Iterator[Any]:
    """Open a source if it is a grid file; at the end, refuse one that has changed since.

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


def _header_of(text: bytes, name: str) -> Header:
    """The header that a file's text tells, or a refusal."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ValueError(
            f"path={name!r} has a damaged header: pack it again"
        ) from error
    if not isinstance(content, dict):
        raise ValueError(f"path={name!r} has a damaged header: pack it again")
    if content.get("version") != VERSION or content.get("scale") != SCALE:
        raise ValueError(
            f"path={name!r} has version {content.get('version')} and scale {content.get('scale')}, "
            f"this program reads {VERSION} and {SCALE}: pack it again"
        )
    differing = sorted(content.keys() ^ {field.name for field in fields(Header)})
    if differing:
        raise ValueError(
            f"path={name!r} has a header with unknown or missing {', '.join(differing)}: pack it "
            "again"
        )
    header = Header(**content)
    wrong = _wrong_field(header)
    if wrong:
        raise ValueError(f"path={name!r} has a damaged header, {wrong}: pack it again")
    return header


def _wrong_field(header: Header) -> str:
    """The first field of a header that is out of its range; empty if there is none."""
    n = header.n_records
    d = header.n_features
    if not (is_integer(n) and n >= 1):
        return "n_records"
    if not (is_integer(header.n_null) and 0 <= header.n_null < n):
        return "n_null"
    if not (is_integer(d) and d >= 1):
        return "n_features"
    # Null records have no coordinates, but it was not known how many they are.
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
    # Written so that NaN, and integers beyond the floats, are none.
    return is_number(value) and abs(value) <= sys.float_info.max


def pack(
    rows: RowBlocks, path: str | PathLike[str], lower: np.ndarray, upper: np.ndarray
) -> GridFile:
    """Enter rows on the grid of a box once, and write them to a file.

    Parameters
    ----------
    rows : RowBlocks
    path : path-like
        Replaced when all of it is written; it should end in ``.grid``.
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
    d = rows.n_columns
    values = rows.n_rows * d
    room = shutil.disk_usage(path.absolute().parent).free
    needed = values * (ROWS_TYPE.itemsize + REMAINDERS_TYPE.itemsize) + PAGE
    if needed > room:
        raise OSError(
            f"{path} needs {needed:,} bytes, and {room:,} are free on its disk"
        )
    facts: dict[str, Any] = {
        "n_records": rows.n_rows,
        "n_features": d,
        "lower": lower.tolist(),
        "upper": upper.tolist(),
    }
    remainders_at = values * ROWS_TYPE.itemsize
    # The header is written last, into the room that is left for it.
    begin = _header_room(d)
    hashes = [hashlib.sha256(), hashlib.sha256()]
    n_written = 0
    outside = False
    # Points are private: the owner alone can read the file.
    descriptor, temporary_name = tempfile.mkstemp(
        ".tmp", f".{path.name}.", path.absolute().parent
    )
    temporary = Path(temporary_name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            for block in rows.blocks():
                points, is_clipped = Points.quantize(block, lower, upper)
                outside |= is_clipped
                offset = n_written * d
                stored = points.rows.astype(ROWS_TYPE, copy=False)
                assert points.remainders is not None, "points of a box have remainders"
                remainders = points.remainders.astype(REMAINDERS_TYPE, copy=False)
                stream.seek(begin + offset * ROWS_TYPE.itemsize)
                stream.write(stored.data)
                stream.seek(begin + remainders_at + offset * REMAINDERS_TYPE.itemsize)
                stream.write(remainders.data)
                hashes[0].update(stored.data)
                hashes[1].update(remainders.data)
                n_written += len(stored)
            header = Header(
                VERSION,
                SCALE,
                n_null=rows.n_rows - n_written,
                outside=outside,
                remainders_at=remainders_at,
                checksum=_joined(hashes),
                **facts,
            )
            if n_written == 0:
                raise ValueError(
                    f"{rows.name} has no row without NaN or infinite values"
                )
            text = json.dumps(asdict(header)).encode()
            length = begin - len(MAGIC) - LENGTH_BYTES
            stream.seek(0)
            stream.write(
                MAGIC + length.to_bytes(LENGTH_BYTES, "little") + text.ljust(length)
            )
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
    return open_grid(path)


def _header_room(n_features: int) -> int:
    """Bytes of a header, in whole pages: enough for its names, checksum and bounds."""
    return -(-(PAGE // 2 + 2 * DIGITS * n_features) // PAGE) * PAGE


def _joined(hashes: list) -> str:
    return "".join(each.hexdigest() for each in hashes)


def _check_rows(rows: np.ndarray) -> None:
    """Refuse coordinates that a damaged file may hold: sums of them would not be bounded."""
    n_inside, n_on_grid = _count_grid_values(rows.reshape(-1))
    if n_inside < rows.size:
        raise ValueError(
            "a grid file is damaged: it has points outside the domain; pack it again"
        )
    if n_on_grid < rows.size:
        raise ValueError(
            "a grid file is damaged: it has points off the grid; pack it again"
        )


@njit(cache=True, nogil=True)
def _count_grid_values(values: np.ndarray) -> tuple[int, int]:
    """Numbers of values inside the domain and of whole ones; NaN is neither."""
    n_inside = 0
    n_on_grid = 0
    for value in values:
        n_inside += abs(value) <= SCALE
        n_on_grid += np.rint(value) == value
    return n_inside, n_on_grid


def _entered(block: GridBlock) -> Points:
    """Points of a block, for a pass."""
    _check_rows(block.rows)
    return Points(block.rows, squared_norms_of(block.rows), block.remainders)
