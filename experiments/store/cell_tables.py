"""The cells of a store as tables: what each is, and its measured values."""

import json
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from pkm.arrow import read_parameters
from pkm.experiments.cell.cell import Cell
from pkm.experiments.store.columns import DERIVED
from pkm.experiments.store.store import Store
from pkm.schema import BY_NAME, COLUMNS, names

#: What a plan says of a cell, besides its budget.
PLAN_COLUMNS = sorted({*names("identity", "setting"), "metrics"} - {*DERIVED, "n", "d"})
#: Columns that two cells must share: otherwise their values mean different things.
MUST_MATCH = ["notion", "adjacency", "trust", "metrics_code"]
#: Columns that may explain why two cells differ.
PROVENANCE = ["code", "data", "versions", "host"]
#: Metrics that are times or rates: a second run has other values.
TIME_METRICS = {column.name for column in COLUMNS if column.unit == "ms"}
TIME_METRICS.add("deletions_per_second")
#: Columns in which two runs of a cell are compared.
COMPARED = [name for name in names("metric") if name not in TIME_METRICS]
COMPARED += ["epsilon_spent", "iterations", "clipped"]


def read_cells(store: Store) -> pd.DataFrame:
    """Read what the cells of a store are, one row per experiment.

    Returns
    -------
    DataFrame
        Stored columns, parameters as text, and the texts `settings` and `budget`, which
        identify an experiment. Where several cells belong to one experiment, the row is
        of the cell with the most seeds, and of the newest of those.

    Raises
    ------
    FileNotFoundError
        If no cell is stored.
    """
    rows = store.read_all(
        ["cell", *PLAN_COLUMNS, "epsilon", "delta", *MUST_MATCH, *PROVENANCE]
    )
    cells = rows.drop_duplicates("cell")
    n_seeds = cells["cell"].map(rows["cell"].value_counts())
    cells = cells.iloc[np.argsort(-n_seeds, kind="stable")]
    records = cells.assign(params=read_parameters(cells)).to_dict("records")
    cells = cells.assign(
        params=[json.dumps(row["params"]) for row in records],
        settings=[serialize_settings(row) for row in records],
        # Machines may round a computed delta differently.
        budget=[f"({row['epsilon']:.9g}, {row['delta']:.9g})" for row in records],
    )
    return cells.drop_duplicates(["settings", "budget"])


def read_values(store: Store, keys: Sequence[str]) -> pd.DataFrame:
    """Read `COMPARED` of some cells, indexed by the position in `keys` and the seed."""
    columns = ["cell", "seed", *COMPARED]
    rows = store.read(keys, columns).reindex(columns=columns)
    pair = rows.pop("cell").map(pd.Series(range(len(keys)), keys, dtype=int))
    rows = rows.assign(pair=pair).set_index(["pair", "seed"])
    return rows.dropna(axis=1, how="all").astype(float)


def match_keys(planned: Iterable[Cell], stored: pd.DataFrame) -> dict[str, str]:
    """Find the stored cells of a plan by their settings: keys change with the code.

    Parameters
    ----------
    planned : iterable of Cell
    stored : DataFrame
        From `read_cells`.

    Returns
    -------
    dict of str to str
        Key in the plan to key in the store.
    """
    defaults = {name: BY_NAME[name].missing for name in PLAN_COLUMNS}
    lines = []
    for cell in planned:
        settings = serialize_settings(defaults | cell.planned_columns())
        lines.append((cell.key, settings, cell.epsilon, cell.delta))
    cells = pd.DataFrame(lines, columns=["planned", "settings", "epsilon", "declared"])
    # A delta that the method chooses is no number.
    cells["declared"] = pd.to_numeric(cells["declared"], errors="coerce")
    cells["epsilon"] = cells["epsilon"].astype(float)
    pairs = cells.merge(stored, on=["settings", "epsilon"])
    is_declared = np.isclose(pairs["delta"], pairs["declared"], rtol=1e-8, atol=0)
    pairs = pairs[is_declared | pairs["declared"].isna()]
    return dict(zip(pairs["planned"], pairs["cell"], strict=True))


def serialize_settings(cell: Mapping) -> str:
    """Return all that is planned of a cell as one text."""
    text = json.dumps([cell[name] for name in PLAN_COLUMNS])
    # Rows hold some whole numbers as floats.
    return json.dumps(json.loads(text, parse_int=float), sort_keys=True)
