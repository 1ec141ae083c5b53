"""Stored results for other programs: all rows as one frame, released centers as a file.

    pkm centers
    pkm centers CELL ... output=centers.csv

Without a cell the command lists those whose centers are kept (``pkm run keep_centers=true``). A
cell is named by its key or the beginning of it. The output is CSV, or Parquet by its ending; what
comes from restricted data is for its owner alone, as the rows are. Both take results=FOLDER.
"""

import io
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from rich.table import Table

from pkm.experiments.config.settings import require
from pkm.experiments.console.console import consoles, exit_code, parsed_words
from pkm.experiments.store.columns import expanded
from pkm.experiments.store.store import Store
from pkm.files import ANY_FILE, atomic_write

#: Characters of a cell's key that a list shows.
SHOWN = 12
LISTED = ("cell", "method", "dataset", "k", "epsilon", "seed")


def load_rows(results: str | Path = "results") -> pd.DataFrame:
    """Load all stored rows.

    Parameters
    ----------
    results : path, default="results"
        The results folder.

    Returns
    -------
    DataFrame
        One row per cell and seed, newest cells first, with the columns of ``docs/schema.md`` and
        one for every parameter of a method, None where a method has no such parameter. A parameter
        that has the name of a column gets the ending ``_param``.

    Raises
    ------
    FileNotFoundError
        If no cell is stored there.

    Examples
    --------
    >>> load_rows("nowhere")
    Traceback (most recent call last):
        ...
    FileNotFoundError: results='nowhere' holds no cells: give the folder that pkm run wrote to
    """
    store = Store(results)
    rows = store.read(store.keys())
    if rows.empty:
        raise FileNotFoundError(
            f"results={str(results)!r} holds no cells: give the folder that pkm run wrote to"
        )
    # Parameters are those of the cell: read once for all of its seeds.
    cells = rows.drop_duplicates("cell")
    parameters = expanded(cells).set_axis(cells["cell"])
    taken = {name: f"{name}_param" for name in parameters if name in rows}
    return rows.join(parameters.rename(columns=taken), on="cell")


def centers_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the released centers of rows that keep them, in the raw units of the data.

    Parameters
    ----------
    rows : DataFrame
        As stored, such as by `load_rows`.

    Returns
    -------
    DataFrame
        One line per center: cell, method, dataset, k, epsilon, seed, center (0, 1, ...), and its
        coordinates x0, x1, ...; NaN beyond the dimensions of a cell's data set.
    """
    kept = rows[rows["centers"].notna()] if "centers" in rows else rows.iloc[:0]
    if kept.empty:
        return pd.DataFrame(columns=[*LISTED, "center"])
    matrices = [np.array(list(map(list, centers))) for centers in kept["centers"]]
    sizes = [len(matrix) for matrix in matrices]
    coordinates = pd.concat([pd.DataFrame(matrix) for matrix in matrices], ignore_index=True)
    lines = kept[list(LISTED)].iloc[np.repeat(np.arange(len(kept)), sizes)].reset_index(drop=True)
    lines["center"] = np.concatenate([np.arange(size) for size in sizes])
    return lines.join(coordinates.add_prefix("x"))


def export(keys: Sequence[str], store: Store, output: Path) -> int:
    """Write the centers of some cells as a file.

    Returns
    -------
    int
        How many centers were written.

    Raises
    ------
    ValueError
        If the ending of the output is not known, or a cell keeps no centers.
    """
    is_known = output.suffix in (".csv", ".parquet")
    require(is_known, "output", str(output), "a file that ends in .csv or .parquet")
    rows = store.read(keys)
    centers = centers_of(rows)
    without = [key[:SHOWN] for key in keys if key not in set(centers["cell"])]
    if without:
        listed = ", ".join(without)
        raise ValueError(f"cell {listed} keeps no centers: run it with keep_centers=true")
    buffer = io.BytesIO()
    if output.suffix == ".csv":
        centers.to_csv(buffer, index=False)
    else:
        centers.to_parquet(buffer, index=False)
    # Who may read all of the cells may read the output.
    mode = ANY_FILE
    for key in keys:
        mode &= store.path(key).stat().st_mode
    atomic_write(output, buffer.getvalue(), mode)
    return len(centers)


def find(beginning: str, keys: Sequence[str]) -> str:
    """Return the one key that begins so.

    Raises
    ------
    ValueError
        If there is none, or more than one.
    """
    found = [key for key in keys if key.startswith(beginning)]
    rule = "the key of one stored cell, or the beginning of it (pkm centers lists them)"
    require(len(found) == 1, "cell", beginning, rule)
    return found[0]


def overview(store: Store) -> Table:
    """List the cells whose centers are kept."""
    table = Table("cell", "method", "data set", "k", "ε", "seeds", box=None)
    kept = centers_of(store.read(store.keys(), [*LISTED, "centers"]))
    for key, lines in kept.groupby("cell", sort=False):
        first = lines.iloc[0]
        epsilon = "-" if pd.isna(first["epsilon"]) else f"{first['epsilon']:g}"
        n_seeds = str(lines["seed"].nunique())
        table.add_row(
            key[:SHOWN], first["method"], first["dataset"], str(first["k"]), epsilon, n_seeds
        )
    return table


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; see the module's text.

    Returns
    -------
    int
        Exit code: 0, or 2 if the request was refused.
    """
    beginnings, given = parsed_words("centers", __doc__, "CELL", "cells, results=, output=", argv)

    def run() -> None:
        for name in given:
            require(name in ("results", "output"), "option", name, "results or output")
        store = Store(given.get("results", "results"))
        console = consoles()[0]
        if not beginnings:
            console.print(overview(store))
            return
        output = Path(given.get("output", "centers.csv"))
        keys = [find(beginning, store.keys()) for beginning in beginnings]
        console.print(f"{export(keys, store, output)} centers in {output}", soft_wrap=True)

    return exit_code(run)


if __name__ == "__main__":
    sys.exit(main())
