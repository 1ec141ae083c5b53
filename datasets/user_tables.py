"""A user's table in blocks of rows, with cells as they are written, for a schema."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pkm.datasets import delimited
from pkm.datasets.user_files import TEXT
from pkm.row_blocks import PARQUET, read_parquet

if TYPE_CHECKING:
    from pandas import DataFrame

BLOCK_ROWS = 100_000


def read_blocks(path: Path, columns: Sequence[str]) -> "Iterator[DataFrame]":
    """Read some columns of a text file or a Parquet file, block by block.

    Parameters
    ----------
    path : Path
        A text file has the names of its columns in the first line.
    columns : sequence of str
        Names of the columns that are needed; others of a text file are read, too.

    Yields
    ------
    DataFrame
        Cells of a text file are texts, see `delimited.read_texts`. Others have types
        that do not depend on where nulls are.

    Raises
    ------
    ValueError
        If it is no such file. Messages quote no cells.
    """
    name = path.name.lower()
    if not name.endswith((*TEXT, *PARQUET)):
        known = ", ".join((*TEXT, *PARQUET))
        raise ValueError(f"{path} should be a file that ends in one of {known}")
    try:
        if name.endswith(TEXT):
            yield from delimited.read_texts(path, columns, BLOCK_ROWS)
        else:
            yield from _read_parquet(path, columns)
    # Arrow's errors of damaged files are ValueErrors.
    except ValueError as error:
        raise ValueError(f"{path}: cannot be read as a table: {error}") from error


def _read_parquet(
    path: Path,
    columns: Sequence[str],
) -> "Iterator[DataFrame]":
    import pyarrow.parquet as pq

    names = pq.read_schema(path).names
    known = [name for name in columns if name in names]
    for batch in read_parquet(path, known, BLOCK_ROWS):
        # Objects of Python have no date beyond the year 9999.
        yield batch.to_pandas(date_as_object=False, integer_object_nulls=True)
