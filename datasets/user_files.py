"""Points from a user's CSV, Parquet or NPY file."""

import csv
import hashlib
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pkm.datasets.dataset import check_points
from pkm.datasets.sources import DataUnavailable
from pkm.files import keyed_digest
from pkm.source import code_of

if TYPE_CHECKING:
    from pandas import DataFrame


def read(path: str | PathLike | None) -> np.ndarray:
    """Read the points of a file; every column is a feature.

    Parameters
    ----------
    path : path-like
        ``.csv`` (commas; the first line is a header unless all of it is numbers, and every line has
        as many fields), ``.parquet`` or ``.npy`` (a two-dimensional array of numbers).

    Returns
    -------
    ndarray of float64, shape (n, d)

    Raises
    ------
    DataUnavailable
        If there is no such file.
    ValueError
        If the format is unknown, the file cannot be read as that format, a column is not numeric,
        or a value is missing, NaN or infinite.
    """
    import pandas as pd

    path = require_file(path)
    readers = {".csv": _csv, ".parquet": _parquet, ".npy": _npy}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise ValueError(f"path={str(path)!r} should end in one of {', '.join(readers)}")
    try:
        table = reader(path)
    except (OSError, EOFError, ValueError, csv.Error, pd.errors.ParserError) as error:
        raise ValueError(
            f"{path}: cannot be read as {path.suffix.lower()[1:].upper()}: {error}"
        ) from error
    points = _numeric(table, path) if isinstance(table, pd.DataFrame) else table
    return check_points(points, str(path))


def require_file(path: str | PathLike | None) -> Path:
    """Return the path, refusing None and files that do not exist."""
    if path is None:
        raise ValueError(
            "path=None: the data set 'file' needs path=<a .csv, .parquet or .npy file>"
        )
    path = Path(path)
    if not path.is_file():
        raise DataUnavailable(f"path={str(path)!r} should be an existing file")
    return path


def fingerprint(path: str | PathLike | None) -> str:
    """Keyed digest of the file's content and of the code of its reader; the points are not parsed.

    The file is somebody's own: a digest without a key would confirm a guess of its content.
    """
    with require_file(path).open("rb") as stream:
        content = hashlib.file_digest(stream, "sha256").digest()
    functions = (read, _csv, _check_lines, _parquet, _npy, _numeric)
    readers = "".join(code_of(function) for function in functions)
    return keyed_digest(content + readers.encode())


def _csv(path: Path) -> "DataFrame":
    import pandas as pd

    first = _check_lines(path)
    # What pandas writes for unnamed columns. As a point it would silently change every result.
    if len(first) > 1 and first == [str(i) for i in range(len(first))]:
        raise ValueError(
            f"the first line {','.join(first)} may be column numbers or a point; name the columns "
            "with words, or move that point to another line"
        )
    if _all_numbers(first):
        return pd.read_csv(path, header=None, skipinitialspace=True, encoding="utf-8-sig")
    if "" in first:
        raise ValueError(
            f"column {first.index('')} (from 0) has no name in the header {','.join(first)}: if "
            "it is the index that DataFrame.to_csv writes, write with index=False, else name it"
        )
    return pd.read_csv(path, skipinitialspace=True, encoding="utf-8-sig")


def _check_lines(path: Path) -> list[str]:
    """First line of a CSV, split; refuses lines that are longer or shorter.

    pandas would take the first fields of longer lines for row names and drop them from the points.
    """
    first = None
    with path.open(newline="", encoding="utf-8-sig") as stream:
        reader = csv.reader(stream, skipinitialspace=True)
        for fields in reader:
            if len(fields) < 2 and not "".join(fields).strip():
                continue
            if first is None:
                first = [field.strip() for field in fields]
            elif len(fields) != len(first):
                raise ValueError(
                    f"line {reader.line_num} has {len(fields)} fields, the first line has "
                    f"{len(first)}; give every line one value per column"
                )
    return first or []


def _all_numbers(fields: list[str]) -> bool:
    try:
        for field in fields:
            float(field)
    except ValueError:
        return False
    return True


def _parquet(path: Path) -> "DataFrame":
    import pandas as pd

    return pd.read_parquet(path)


def _npy(path: Path) -> np.ndarray:
    return np.load(path, allow_pickle=False)


def _numeric(table: "DataFrame", path: Path) -> np.ndarray:
    """Values of a table, refusing the columns that are not numbers by name."""
    import pandas as pd

    wrong = [
        str(name) for name, kind in table.dtypes.items() if not pd.api.types.is_numeric_dtype(kind)
    ]
    if wrong:
        raise ValueError(
            f"{path}: columns {', '.join(wrong)} should be numeric; remove them or encode them as "
            "numbers"
        )
    return table.to_numpy(dtype=np.float64, na_value=np.nan)
