"""Stored results for other programs: rows as a frame or files, released centers."""

import io
import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from pkm.arrow import to_table
from pkm.experiments.config.settings import require
from pkm.experiments.store.columns import parameter_columns
from pkm.experiments.store.store import Store
from pkm.files import atomic_write
from pkm.schema import BY_NAME

#: Types of a Table Schema; what is nested is an array.
FIELD_TYPES = {
    "text": "string",
    "integer": "integer",
    "number": "number",
    "flag": "boolean",
}
#: Columns that name the fit which released a center.
FIT_COLUMNS = ["cell", "method", "dataset", "k", "epsilon", "noise", "seed"]


def load_rows(results: str | Path = "results") -> pd.DataFrame:
    """Load all rows of a results folder, one per cell and seed, newest cells first.

    They have the columns of ``docs/schema.md`` and one for every parameter of a method,
    None where a method has no such parameter. A parameter with the name of a column
    gets the ending ``_param``.

    Examples
    --------
    >>> load_rows("nowhere")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    FileNotFoundError: results='nowhere' holds no cells: give the folder that ...
    """
    rows = Store(results).read_all()
    # The seeds of a cell share its parameters: read them once.
    cells = rows.drop_duplicates("cell")
    parameters = parameter_columns(cells).set_axis(cells["cell"])
    renamed = {name: f"{name}_param" for name in parameters if name in rows}
    return rows.join(parameters.rename(columns=renamed), on="cell")


def write_rows(store: Store, folder: Path) -> pd.DataFrame:
    """Write all stored rows as Parquet and CSV, with their Table Schema; return them.

    Nested values are JSON in the CSV file. Files of an earlier export are replaced.
    """
    rows = store.read_all()
    table = to_table(rows)
    flat = {}
    fields = []
    for column in map(BY_NAME.__getitem__, rows):
        values = table[column.name]
        if column.dtype not in FIELD_TYPES:
            cells = values.to_pylist()
            values = [None if cell is None else json.dumps(cell) for cell in cells]
        flat[column.name] = values
        field = {
            "name": column.name,
            "type": FIELD_TYPES.get(column.dtype, "array"),
            "title": column.label,
            "description": f"{column.topic}; {column.dtype}",
            "unit": column.unit,
        }
        fields.append(field)
    mode = store.choose_shared_mode(set(rows["cell"]))
    write_table(table, folder / "rows.parquet", mode)
    write_table(pa.table(flat), folder / "rows.csv.gz", mode)
    schema = {"fields": fields, "missingValues": [""], "primaryKey": ["cell", "seed"]}
    text = json.dumps(schema, indent=1, ensure_ascii=False)
    atomic_write(folder / "rows.schema.json", text.encode())
    return rows


def extract_centers(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the released centers of rows that keep them, in the units of the data.

    Each is a line of `FIT_COLUMNS`, its number, and its coordinates x0, x1, ...; they
    are NaN beyond the dimensions of a cell's data set.
    """
    kept = rows.reindex(columns=[*FIT_COLUMNS, "centers"]).dropna(subset=["centers"])
    lines = kept.explode("centers")
    lines["center"] = lines.groupby(level=0).cumcount()
    coordinates = pd.DataFrame([list(point) for point in lines.pop("centers")])
    return lines.reset_index(drop=True).join(coordinates.add_prefix("x"))


def write_centers(store: Store, keys: Sequence[str], path: Path) -> int:
    """Write the centers of some cells as CSV or Parquet; return how many there are."""
    is_known = path.suffix in (".csv", ".parquet")
    require(is_known, "output", str(path), "a file that ends in .csv or .parquet")
    centers = extract_centers(store.read(keys))
    without = [key[:12] for key in keys if key not in set(centers["cell"])]
    if without:
        raise ValueError(
            f"cell {', '.join(without)} keeps no centers: run it with keep_centers=true"
        )
    table = pa.Table.from_pandas(centers, preserve_index=False)
    write_table(table, path, store.choose_shared_mode(keys))
    return len(centers)


def write_table(table: pa.Table, path: Path, mode: int) -> None:
    """Write a table as CSV, packed or not, or as Parquet, by the ending of the file."""
    buffer = io.BytesIO()
    if path.suffix == ".parquet":
        pq.write_table(table, buffer)
    else:
        # Without a time equal rows make equal files.
        packed = {"method": "gzip", "mtime": 0} if path.suffix == ".gz" else None
        table.to_pandas().to_csv(buffer, index=False, compression=packed)
    atomic_write(path, buffer.getvalue(), mode)
