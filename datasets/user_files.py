"""Points from a user's text, Parquet, NPY or NPZ file, or several Parquet files."""

import glob
import hashlib
import json
import re
import shlex
import zipfile
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pkm.datasets import delimited
from pkm.datasets.dataset import check_table, encode_classes
from pkm.datasets.delimited import DECIMALS, Column
from pkm.datasets.sources import DataUnavailable
from pkm.files import keyed_digest
from pkm.names import suggestion
from pkm.row_blocks import ENCODING, PARQUET, find_null, list_parquet_files
from pkm.source import read_code

if TYPE_CHECKING:
    from pandas import DataFrame, Series

TEXT = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
SUFFIXES = (*TEXT, *PARQUET, ".npy", ".npz")
#: Array of the points in an archive of several tables.
ARRAY_NAMES = ("data", "X", "points")
IDENTIFIER = re.compile(
    r"(id|idx|index|row|nr|no|number|key|uuid)|.*[_\s.-](id|nr|no)\.?|id[_\s.-].*",
    re.I,
)
#: Types that pandas infers for columns of booleans with NaN, or of integers beyond 64
#: bits.
OBJECTS_AS_NUMBERS = ("boolean", "integer", "mixed-integer-float")


class Table(NamedTuple):
    """Points of a file, with what is known of its rows.

    Attributes
    ----------
    points : ndarray of float64, shape (n, d)
        A row with a missing, NaN or infinite value is a null record: NaN throughout.
        With `missing` a row of which only some values are missing keeps the others.
    labels : ndarray of int64, shape (n,), or None
        Numbers of the classes.
    groups : Series or ndarray of shape (n,), or None
        Persons of the rows.
    layout : str
        In words, what was found out about a text file; empty for others.
    """

    points: np.ndarray
    labels: np.ndarray | None
    groups: "Series | np.ndarray | None"
    layout: str


class FileOptions(NamedTuple):
    """What is read of a user's file, and how: keywords of `pkm.datasets.load`.

    Attributes
    ----------
    path : path-like
        Text (``.csv``, ``.tsv``, ``.txt``, also gzipped): separators (tab, semicolon,
        comma, blanks) and decimal commas are found out; the first line is a header
        unless all of it is numbers. ``.parquet``, a folder of such files, or a pattern
        such as ``"data/*.parquet"``: their rows in the order of their names. ``.npy``:
        a two-dimensional array of numbers. ``.npz``: one such array, or one named data,
        X or points.
    columns : sequence of str or int, optional
        The features, by name, or by number from 0 where no name is that number.
        Default: all but `label` and `groups`.
    label : str or int, optional
        Column of the class; of an ``.npz`` file also the name of an array of one
        dimension.
    decimal : {"point", "comma"}, optional
        Decimal mark of a text file. Default: it is found out.
    groups : str or int, optional
        Column or array of the person, as of `label`: integers or texts. Those of a text
        file are texts: 1 and 01 are two persons.
    missing : str, optional
        How a method treats missing values; rows with some are kept for it.
    """

    path: str | PathLike | None = None
    columns: Sequence[Column] | None = None
    label: Column | None = None
    decimal: str | None = None
    groups: Column | None = None
    missing: str | None = None


def read(options: FileOptions) -> Table:
    """Read the points of a file, the numbers of their classes, and their persons.

    Raises
    ------
    DataUnavailable
        If there is no such file.
    ValueError
        If the format is unknown, or the file cannot be read as that format. If a column
        is unknown, not numeric or an identifier, or files have different columns. If no
        row is complete. Messages name columns, never rows or values.
    """
    path, columns, label, decimal, groups, missing = options
    files = list_files(path)
    path = files[0] if len(files) == 1 else path
    suffix = _find_suffix(files[0])
    if decimal is not None and (suffix not in TEXT or decimal not in DECIMALS):
        raise ValueError(
            f"decimal={decimal!r} should be {' or '.join(DECIMALS)}, with a text file "
            f"({', '.join(TEXT)})"
        )
    try:
        if suffix in TEXT:
            content, layout = delimited.read(files[0], decimal, groups)
        else:
            content, layout = _read_content(files, suffix), ""
    # Arrow's errors of damaged files are ValueErrors.
    except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
        kind = suffix[1:].upper()
        raise ValueError(f"{path}: cannot be read as {kind}: {error}") from error
    try:
        points, classes, persons = _select(content, columns, label, groups)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    points = check_table(points, str(path), keep_missing=missing is not None)
    return Table(points, _encode(classes, points, str(path)), persons, layout)


def list_files(path: str | PathLike | None) -> list[Path]:
    """List the files of a path: one, or the Parquet files of a folder or a pattern.

    Raises
    ------
    DataUnavailable
        If there is none.
    ValueError
        If the path is None.
    """
    if path is None:
        raise ValueError(
            "path=None: the data set 'file' needs path=<a "
            f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} file, or a folder or "
            "pattern of Parquet files>"
        )
    if Path(path).is_file():
        return [Path(path)]
    if not (Path(path).is_dir() or glob.has_magic(str(path))):
        raise DataUnavailable(f"path={str(path)!r} should be an existing file")
    try:
        return [Path(file) for file in list_parquet_files(str(path))]
    except FileNotFoundError as error:
        raise DataUnavailable(str(error)) from error


def fingerprint(options: FileOptions) -> str:
    """Digest the files' content, what is chosen of it, and the code of its reader.

    The points are not parsed. The file is somebody's own: a digest without a key would
    confirm a guess of its content.
    """
    content = content_digest(options.path)
    features = None if options.columns is None else list(options.columns)
    chosen = repr(options._replace(path=None, columns=features))
    code = read_code(Path(__file__)) + read_code(Path(delimited.__file__))
    return keyed_digest(content + (chosen + code).encode())


def content_digest(path: str | PathLike | None) -> bytes:
    """Join the SHA-256 of the files of a path; without a key it is not to be kept."""
    digests = []
    for file in list_files(path):
        with file.open("rb") as stream:
            digests.append(hashlib.file_digest(stream, "sha256").digest())
    return b"".join(digests)


def _find_suffix(path: Path) -> str:
    for suffix in SUFFIXES:
        if path.name.lower().endswith(suffix):
            return suffix
    raise ValueError(f"path={str(path)!r} should end in one of {', '.join(SUFFIXES)}")


def _read_content(files: Sequence[Path], suffix: str) -> Any:
    """Read a table, or an array, or several arrays by their names."""
    if suffix in PARQUET:
        return _read_parquet(files)
    try:
        content = np.load(files[0], allow_pickle=False)
    # numpy's error of a damaged file quotes it, or advises to load pickles.
    except (ValueError, EOFError):
        raise ValueError(
            "it is damaged, or holds objects of Python, not numbers"
        ) from None
    if suffix == ".npy":
        return content
    with content as archive:
        try:
            return {name: archive[name] for name in archive.files}
        except ValueError:
            raise ValueError("an array is damaged or holds objects of Python") from None


def _read_parquet(files: Sequence[Path]) -> "DataFrame":
    import pandas as pd

    # Types are those of the files, whatever is null.
    tables = [pd.read_parquet(file, dtype_backend="numpy_nullable") for file in files]
    for file, table in zip(files, tables, strict=True):
        if not table.dtypes.equals(tables[0].dtypes):
            raise ValueError(f"{file} has other columns or types than {files[0]}")
    return pd.concat(tables, ignore_index=True)


def _select(
    content: "DataFrame | np.ndarray | dict[str, np.ndarray]",
    columns: Sequence[Column] | None,
    label: Column | None,
    groups: Column | None,
) -> "tuple[np.ndarray, Series | np.ndarray | None, Series | np.ndarray | None]":
    """Select points, not yet checked, classes and persons of a file's content."""
    import pandas as pd

    # What is no feature, by name: other arrays of an archive, and columns.
    others: dict[Column | None, Any] = {}
    if isinstance(content, dict):
        others.update(content)
        content = _choose_array(content)
    wanted = [name for name in (label, groups) if name not in (None, *others)]
    is_array = isinstance(content, np.ndarray)
    if is_array and columns is None and not wanted:
        return content, others.get(label), others.get(groups)

    table = pd.DataFrame(content)
    taken = {name: _find_column(table, name) for name in wanted}
    others.update({name: table[column] for name, column in taken.items()})
    features = table.drop(columns=list(taken.values()))
    if columns is not None:
        names = _find_columns(table, columns)
        for name, column in taken.items():
            if column in names:
                role = "label" if name == label else "column of persons"
                raise ValueError(
                    f"columns={names} should not name the {role} {column!r}"
                )
        features = table.loc[:, names]
    elif not is_array:
        _refuse_identifiers(features)
    if not len(table):
        names = ", ".join(map(str, features.columns))
        raise ValueError(f"there is a header ({names}) but no point below it")
    return _to_numbers(features), others.get(label), others.get(groups)


def _choose_array(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Choose the array of an archive that holds the points."""
    tables = [name for name, array in arrays.items() if array.ndim == 2]
    if len(tables) != 1:
        tables = [name for name in ARRAY_NAMES if name in tables]
    if not tables:
        raise ValueError(
            f"of the arrays {', '.join(arrays)} one of two dimensions should be named "
            f"{', '.join(ARRAY_NAMES[:-1])} or {ARRAY_NAMES[-1]}"
        )
    return arrays[tables[0]]


def _find_column(table: "DataFrame", column: Column) -> Column:
    names = list(table.columns)
    for name in delimited.find_columns(names, [column]):
        return name
    hint = suggestion(str(column), map(str, names))
    raise ValueError(f"unknown column {column!r}{hint}")


def _find_columns(table: "DataFrame", columns: Sequence[Column]) -> list[Column]:
    if isinstance(columns, str) or not len(columns):
        raise ValueError(f"columns={columns!r} should be a list of one column or more")
    names = [_find_column(table, column) for column in columns]
    if len(set(names)) < len(names):
        raise ValueError(f"columns={list(columns)} should name each column once")
    return names


def _quote_columns(names: Sequence[str]) -> str:
    """Write a choice of columns as it is typed in a shell."""
    listed = json.dumps(names, ensure_ascii=False, separators=(",", ":"))
    return shlex.quote(f"columns={listed}")


def _refuse_identifiers(table: "DataFrame") -> None:
    """Refuse columns whose names say that they identify rows."""
    names = [str(name) for name in table.columns]
    # Only names are checked: a rule on values could reveal one record.
    for name in names:
        if IDENTIFIER.fullmatch(name):
            others = [other for other in names if other != name]
            raise ValueError(
                f"column {name!r} looks like a row number; choose "
                f"{_quote_columns(others)}, or name it too if it is a feature"
            )


def _to_numbers(table: "DataFrame") -> np.ndarray:
    """Return the values of a table, refusing columns that are not numbers by name."""
    import pandas as pd

    columns = []
    numeric = []
    wrong = []
    for position, name in enumerate(table.columns):
        values = table.iloc[:, position]
        is_object = values.dtype == object
        if is_object and pd.api.types.infer_dtype(values) in OBJECTS_AS_NUMBERS:
            values = values.map(_as_float, na_action="ignore").astype(np.float64)
        if pd.api.types.is_numeric_dtype(values.dtype):
            columns.append(values.to_numpy(np.float64, na_value=np.nan))
            numeric.append(str(name))
        else:
            _refuse_thousands(values)
            wrong.append(str(name))
    if wrong:
        choice = f"choose {_quote_columns(numeric)}, or " if numeric else ""
        many = len(wrong) > 1
        raise ValueError(
            f"column{'s' if many else ''} {', '.join(wrong)} should be numeric; "
            f"{choice}{ENCODING}; leave missing values empty"
        )
    return np.column_stack(columns)


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return np.inf


def _refuse_thousands(values: "Series") -> None:
    import pandas as pd

    # Three decimals look like thousands, but are a number.
    texts = values[pd.to_numeric(values, errors="coerce").isna()]
    for value in texts.dropna():
        text = value.strip() if isinstance(value, str) else ""
        if delimited.THOUSANDS.fullmatch(text):
            raise ValueError(
                f"column {values.name!r}: numbers have separators of thousands; write "
                "the digits without them and a decimal point"
            )


def _encode(
    classes: "Series | np.ndarray | None",
    points: np.ndarray,
    source: str,
) -> np.ndarray | None:
    """Replace classes by numbers from 0, in sorted order; null records may lack one."""
    import pandas as pd

    if classes is None:
        return None
    n = len(points)
    if np.shape(classes) != (n,):
        raise ValueError(
            f"{source}: labels of shape {np.shape(classes)} should be n={n} classes"
        )
    is_missing = np.asarray(pd.isna(classes))
    is_null = find_null(points, keep_missing=True)
    if (is_missing & ~is_null).any():
        raise ValueError(f"{source}: labels are missing; give every row a class")
    labels = np.full(n, -1)
    labels[~is_missing] = encode_classes(np.asarray(classes)[~is_missing])
    return labels
