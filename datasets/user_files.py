"""Points from a user's text, Parquet, NPY or NPZ file, or from several Parquet files."""

import csv
import glob
import hashlib
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pkm.datasets import delimited
from pkm.datasets.dataset import check_points
from pkm.datasets.sources import DataUnavailable
from pkm.files import keyed_digest
from pkm.names import suggestion
from pkm.row_blocks import PARQUET, parquet_files
from pkm.source import code_of

if TYPE_CHECKING:
    from pandas import DataFrame, Series

TEXT = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
BINARY = (*PARQUET, ".npy", ".npz")
SUFFIXES = (*TEXT, *BINARY)
#: Array of the points in an archive of several tables.
ARRAY_NAMES = ("data", "X", "points")
IDENTIFIER = re.compile(r"(id|idx|index|row|nr|no|number|key|uuid)|.*[_\s.-]id|id[_\s.-].*", re.I)
#: From so many rows on, a first column of consecutive numbers is taken for row numbers.
MIN_NUMBERED_ROWS = 10

#: A column: its name or, where columns have no names, its number from 0.
Column = str | int


@dataclass(frozen=True)
class Table:
    """Points, (n, d) float64, and the numbers of their classes, (n,) int64, or None."""

    points: np.ndarray
    labels: np.ndarray | None


def read(
    path: str | PathLike | None,
    columns: Sequence[Column] | None = None,
    label: Column | None = None,
) -> Table:
    """Read the points of a file.

    Parameters
    ----------
    path : path-like
        Text (``.csv``, ``.tsv``, ``.txt``, also gzipped): separators (tab, semicolon, comma,
        blanks) and decimal commas are found out; the first line is a header unless all of it is
        numbers. ``.parquet``, a folder of such files, or a pattern such as ``"data/*.parquet"``:
        their rows in the order of their names. ``.npy``: a two-dimensional array of numbers.
        ``.npz``: one such array, or one named data, X or points.
    columns : sequence of str or int, optional
        The features, by name or, without names, by number from 0. Default: all but `label`.
    label : str or int, optional
        Column of the class; of an ``.npz`` file also the name of an array of one dimension.

    Raises
    ------
    DataUnavailable
        If there is no such file.
    ValueError
        If the format is unknown, the file cannot be read as that format, a column is unknown, not
        numeric or an identifier, files have different columns, or a value is missing, NaN or
        infinite.
    """
    files = files_of(path)
    path = files[0] if len(files) == 1 else path
    suffix = _suffix(files[0])
    readers = {".npy": _npy, ".npz": _npz}
    reader = readers.get(suffix, delimited.read)
    try:
        content = _parquet(files) if suffix in PARQUET else reader(files[0])
    # pandas' and Arrow's errors of damaged files are ValueErrors.
    except (OSError, EOFError, ValueError, csv.Error, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: cannot be read as {suffix[1:].upper()}: {error}") from error
    try:
        points, classes = _select(content, columns, label)
        labels = _codes(classes, len(points))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return Table(check_points(points, str(path)), labels)


def files_of(path: str | PathLike | None) -> list[Path]:
    """List the files of a path: one, or the Parquet files of a folder or a pattern by their names.

    Raises
    ------
    DataUnavailable
        If there is none.
    ValueError
        If the path is None.
    """
    if path is None:
        raise ValueError(
            f"path=None: the data set 'file' needs path=<a {', '.join(SUFFIXES[:-1])} or "
            f"{SUFFIXES[-1]} file, or a folder or pattern of Parquet files>"
        )
    if Path(path).is_file():
        return [Path(path)]
    if not (Path(path).is_dir() or glob.has_magic(str(path))):
        raise DataUnavailable(f"path={str(path)!r} should be an existing file")
    try:
        return [Path(file) for file in parquet_files(str(path))]
    except FileNotFoundError as error:
        raise DataUnavailable(str(error)) from error


def fingerprint(
    path: str | PathLike | None,
    columns: Sequence[Column] | None = None,
    label: Column | None = None,
) -> str:
    """Keyed digest of the files' content, what is chosen of it, and the code of its reader.

    The points are not parsed. The file is somebody's own: a digest without a key would confirm a
    guess of its content.
    """
    content = content_digest(path)
    chosen = repr((None if columns is None else list(columns), label))
    code = code_of(Path(__file__)) + code_of(Path(delimited.__file__))
    return keyed_digest(content + (chosen + code).encode())


def content_digest(path: str | PathLike | None) -> bytes:
    """SHA-256 of the content of each file of a path, joined; without a key, so not to be kept."""
    digests = []
    for file in files_of(path):
        with file.open("rb") as stream:
            digests.append(hashlib.file_digest(stream, "sha256").digest())
    return b"".join(digests)


def _suffix(path: Path) -> str:
    name = path.name.lower()
    found = [suffix for suffix in SUFFIXES if name.endswith(suffix)]
    if not found:
        raise ValueError(f"path={str(path)!r} should end in one of {', '.join(SUFFIXES)}")
    return found[0]


def _parquet(files: Sequence[Path]) -> "DataFrame":
    import pandas as pd

    tables = [pd.read_parquet(file) for file in files]
    for file, table in zip(files, tables, strict=True):
        if not table.dtypes.equals(tables[0].dtypes):
            raise ValueError(f"{file} has other columns or types than {files[0]}")
    return pd.concat(tables, ignore_index=True) if len(tables) > 1 else tables[0]


def _npy(path: Path) -> np.ndarray:
    return _load(path)


def _npz(path: Path) -> dict[str, np.ndarray]:
    with _load(path) as archive:
        try:
            return {name: archive[name] for name in archive.files}
        except ValueError as error:
            raise ValueError("an array is damaged or holds objects of Python") from error


def _load(path: Path) -> Any:
    """Call `numpy.load`, whose error of a damaged file advises to load pickles."""
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError("it is damaged, or holds objects of Python, not numbers") from error


def _select(
    content: "DataFrame | np.ndarray | dict[str, np.ndarray]",
    columns: Sequence[Column] | None,
    label: Column | None,
) -> "tuple[np.ndarray, Series | np.ndarray | None]":
    """Points, not yet checked, and classes of a file's content."""
    import pandas as pd

    classes = None
    if isinstance(content, dict):
        if label in content:
            classes = content[label]
            label = None
        content = _points_array(content)
    is_array = isinstance(content, np.ndarray)
    if is_array:
        if columns is None and label is None:
            return content, classes
        content = pd.DataFrame(content)
    if label is not None:
        label = _find(content, label)
        classes = content[label]
        content = content.drop(columns=label)
    if columns is not None:
        content = content[_chosen(content, columns)]
    elif not is_array:
        _refuse_identifiers(content)
    if not len(content):
        names = ", ".join(map(str, content.columns))
        raise ValueError(f"there is a header ({names}) but no point below it")
    return _numbers(content), classes


def _points_array(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """The array of an archive that holds the points."""
    tables = [name for name, array in arrays.items() if array.ndim == 2]
    named = [name for name in ARRAY_NAMES if name in tables]
    if len(tables) != 1 and not named:
        raise ValueError(
            f"of the arrays {', '.join(arrays)} one of two dimensions should be named "
            f"{', '.join(ARRAY_NAMES[:-1])} or {ARRAY_NAMES[-1]}"
        )
    return arrays[tables[0] if len(tables) == 1 else named[0]]


def _find(table: "DataFrame", column: Column) -> Column:
    names = {str(name): name for name in table.columns}
    if str(column) not in names:
        raise ValueError(f"unknown column {column!r}{suggestion(str(column), names)}")
    return names[str(column)]


def _chosen(table: "DataFrame", columns: Sequence[Column]) -> list[Column]:
    if isinstance(columns, str) or not len(columns):
        raise ValueError(f"columns={columns!r} should be a list of one column or more")
    chosen = [_find(table, column) for column in columns]
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"columns={list(columns)} should name each column once")
    return chosen


def _refuse_identifiers(table: "DataFrame") -> None:
    """Refuse columns that identify rows and measure nothing."""
    import pandas as pd

    for position, name in enumerate(table.columns):
        values = table[name] if table.columns.is_unique else table.iloc[:, position]
        if not pd.api.types.is_integer_dtype(values.dtype) or len(table) < 2:
            continue
        is_named = IDENTIFIER.fullmatch(str(name)) is not None and values.is_unique
        is_numbered = (
            position == 0
            and table.shape[1] > 1
            and len(table) >= MIN_NUMBERED_ROWS
            and values.iloc[0] in (0, 1)
            and bool((values.diff().iloc[1:] == 1).all())
        )
        if is_named or is_numbered:
            others = [str(other) for other in table.columns if other != name]
            raise ValueError(
                f"column {name!r} looks like a row number; choose columns=[{','.join(others)}], "
                "or name it too if it is a feature"
            )


def _numbers(table: "DataFrame") -> np.ndarray:
    """Values of a table, refusing columns that are not numbers by name."""
    import pandas as pd

    is_number = [pd.api.types.is_numeric_dtype(kind) for kind in table.dtypes]
    wrong = [position for position, numeric in enumerate(is_number) if not numeric]
    for position in wrong:
        _refuse_thousands(table.iloc[:, position])
    if wrong:
        names = [str(table.columns[position]) for position in wrong]
        others = [str(name) for name, good in zip(table.columns, is_number, strict=True) if good]
        remedy = f"choose columns=[{','.join(others)}], or " if others else ""
        many = len(names) > 1
        raise ValueError(
            f"column{'s' if many else ''} {', '.join(names)} should be numeric; {remedy}encode "
            f"{'them' if many else 'it'} as numbers"
        )
    return table.to_numpy(dtype=np.float64, na_value=np.nan)


def _refuse_thousands(values: "Series") -> None:
    for value in values.dropna():
        if isinstance(value, str) and delimited.THOUSANDS.fullmatch(value.strip()):
            raise ValueError(
                f"column {values.name!r}: the value {value.strip()!r} has separators of thousands; "
                "write the digits without them and a decimal point"
            )


def _codes(classes: "Series | np.ndarray | None", n: int) -> np.ndarray | None:
    """Classes to numbers from 0, in sorted order."""
    import pandas as pd

    if classes is None:
        return None
    if np.shape(classes) != (n,):
        raise ValueError(f"labels of shape {np.shape(classes)} should be n={n} classes")
    if pd.isna(classes).any():
        raise ValueError(f"{int(pd.isna(classes).sum())} labels are missing")
    return np.unique(np.asarray(classes), return_inverse=True)[1].astype(np.int64)
