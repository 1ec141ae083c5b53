"""All stored rows as files for other programs: ``pkm export``.

    pkm export
    pkm export results=results output=export

Written are ``rows.parquet``, ``rows.csv`` with nested columns as JSON, and ``rows.schema.json``,
which says what each column is (a Table Schema of Frictionless Data). What comes from restricted
data is for its owner alone, as the rows are.
"""

import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from pkm.arrow import to_table
from pkm.experiments.config.settings import require
from pkm.experiments.console.console import consoles, exit_code, parsed_words
from pkm.experiments.store.store import Store
from pkm.files import ANY_FILE, atomic_write
from pkm.schema import BY_NAME, Column

OPTIONS = ("results", "output")
#: Types of a Table Schema; what is nested is an array.
TYPES = {"text": "string", "integer": "integer", "number": "number", "flag": "boolean"}


def export_rows(store: Store, folder: Path) -> pd.DataFrame:
    """Write all stored rows as Parquet and CSV, with the schema beside them.

    Parameters
    ----------
    store : Store
    folder : Path
        Created; files of an earlier export are replaced.

    Returns
    -------
    DataFrame
        The rows.

    Raises
    ------
    FileNotFoundError
        If no cell is stored.
    """
    keys = list(store.keys())
    rows = store.read(keys)
    if rows.empty:
        raise FileNotFoundError(
            f"results={str(store.root)!r} holds no cells: give the folder that pkm run wrote to"
        )
    # Who may read all of the cells may read the files.
    mode = ANY_FILE
    for key in rows["cell"].unique():
        mode &= store.path(key).stat().st_mode
    table = to_table(rows)
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    columns = [BY_NAME[name] for name in table.column_names]
    schema = json.dumps(table_schema(columns), indent=1, ensure_ascii=False)
    atomic_write(folder / "rows.parquet", buffer.getvalue(), mode)
    atomic_write(folder / "rows.csv", flat(rows, columns).to_csv(index=False).encode(), mode)
    atomic_write(folder / "rows.schema.json", schema.encode())
    return rows


def flat(rows: pd.DataFrame, columns: Sequence[Column]) -> pd.DataFrame:
    """Return rows with nested columns as JSON."""
    nested = [column.name for column in columns if column.dtype not in TYPES]
    return rows[[column.name for column in columns]].assign(
        **{name: [as_json(value) for value in rows[name]] for name in nested}
    )


def as_json(value: object) -> str:
    """Write a nested value as JSON; empty where there is none.

    Examples
    --------
    >>> as_json([{"name": "alpha", "number": 0.8}])
    '[{"name": "alpha", "number": 0.8}]'
    >>> as_json(None)
    ''
    """
    if not isinstance(value, list | tuple) and not hasattr(value, "tolist"):
        return ""
    return json.dumps(value, default=lambda item: item.tolist())


def table_schema(columns: Sequence[Column]) -> dict:
    """Describe columns as a Table Schema.

    Examples
    --------
    >>> described = table_schema([BY_NAME["n"]])["fields"][0]
    >>> described["name"], described["type"], described["title"]
    ('n', 'integer', 'points')
    """
    fields = [
        {
            "name": column.name,
            "type": TYPES.get(column.dtype, "array"),
            "title": column.label,
            "description": f"{column.kind}; {column.dtype}",
            **({"unit": column.unit} if column.unit else {}),
            **({"better": column.better} if column.better else {}),
        }
        for column in columns
    ]
    return {"fields": fields, "missingValues": [""], "primaryKey": ["cell", "seed"]}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; see the module's text.

    Returns
    -------
    int
        Exit code: 0, or 2 if the request was refused.
    """
    words, given = parsed_words("export", __doc__, "KEY=VALUE", "results=, output=", argv)

    def run() -> None:
        require(not words, "word", " ".join(words), "key=value, of results and output")
        for name in given:
            require(name in OPTIONS, "option", name, " or ".join(OPTIONS))
        folder = Path(given.get("output", "export"))
        rows = export_rows(Store(given.get("results", "results")), folder)
        counted = f"{len(rows)} rows of {rows['cell'].nunique()} cells"
        consoles()[0].print(f"{counted} in {folder}", soft_wrap=True)

    return exit_code(run)


if __name__ == "__main__":
    sys.exit(main())
