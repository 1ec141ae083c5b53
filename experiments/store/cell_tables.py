"""What two stores are compared by: one line for each cell, and its measured values."""

import json
import multiprocessing
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from pkm.arrow import read_parameters, to_frame
from pkm.experiments.store.columns import FOUND
from pkm.experiments.store.row_cache import bounds_of
from pkm.experiments.store.store import Store
from pkm.schema import COLUMNS, names

#: What a plan states of a cell, besides its budget.
STATED = [
    *(name for name in names("identity", "setting") if name not in (*FOUND, "n", "d")),
    "metrics",
]
#: Cells of one experiment agree in these, and in their budgets.
IDENTITY = [*STATED, "n", "d"]
BUDGET = ["epsilon", "delta"]
#: What must be alike in two cells that are compared.
ALIKE = ["notion", "adjacency", "trust", "metrics_code"]
#: What may explain a difference.
ORIGIN = ["code", "data", "versions", "host"]
#: Metrics that are times or rates, which no second run repeats.
TIMES = [
    column.name
    for column in COLUMNS
    if column.kind == "metric" and (column.unit == "ms" or column.name == "deletions_per_second")
]
MEASURED = [
    *(name for name in names("metric") if name not in TIMES),
    "epsilon_spent",
    "iterations",
    "clipped",
]
DESCRIPTION = ["cell", *IDENTITY, *BUDGET, *ALIKE, *ORIGIN]


@dataclass(frozen=True)
class Comparable:
    """The cells of a store, each experiment once, and their values.

    Attributes
    ----------
    cells : DataFrame
        `DESCRIPTION`, with parameters as text. Of several cells of one experiment that with the
        most seeds, of those with equally many the newest.
    values : DataFrame
        `cell` (its position in `cells`), `seed` and those of `MEASURED` that are stored.
    """

    cells: pd.DataFrame
    values: pd.DataFrame


def read_both(a: str | Path, b: str | Path) -> tuple[Comparable, Comparable]:
    """Read two stores at the same time; see `read`."""
    # Most of the time goes into opening small files, which threads do no faster.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        first = pool.submit(read, a)
        second = read(b)
        return first.result(), second


def read(root: str | Path) -> Comparable:
    """Read a store.

    Raises
    ------
    FileNotFoundError
        If no cell is stored there.
    """
    store = Store(root)
    columns = [*DESCRIPTION, "seed", *MEASURED]
    rows = store.rows(store.keys(), columns)
    if rows is None:
        raise FileNotFoundError(
            f"results={str(root)!r} holds no cells: give the folder that pkm run wrote to"
        )
    rows = rows.combine_chunks()
    bounds = bounds_of(rows["cell"])
    sizes = np.diff(bounds)
    described = [name for name in rows.column_names if name in DESCRIPTION]
    firsts = rows.select(described).take(bounds[:-1])
    cells = to_frame([firsts], DESCRIPTION)
    measured = [name for name in rows.column_names if name not in DESCRIPTION]
    values = to_frame([rows.select(measured)], measured)
    cells = cells.assign(
        params=[as_text(given) for given in read_parameters(cells)],
        # Machines may round a delta differently that is computed.
        delta=[float(f"{delta:.9g}") for delta in cells["delta"]],
    )

    # Number the cells that are kept, and drop the values of the others.
    by_size = cells.iloc[np.argsort(-sizes, kind="stable")]
    kept = by_size.drop_duplicates([*IDENTITY, *BUDGET]).index.sort_values()
    number = np.full(len(cells), -1)
    number[kept] = np.arange(len(kept))
    values.insert(0, "cell", np.repeat(number, sizes))
    return Comparable(cells.loc[kept].reset_index(drop=True), values[values["cell"] >= 0])


def as_text(parameters: Mapping) -> str:
    """Write parameters in a form that can be compared."""
    return json.dumps(parameters, sort_keys=True)
