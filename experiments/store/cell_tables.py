"""The cells of a store as tables: what each is, and its measured values."""

import json
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from pkm.arrow import read_parameters
from pkm.experiments.store.columns import DERIVED
from pkm.experiments.store.store import Store
from pkm.schema import COLUMNS, names

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

    The texts `settings` and `budget` identify an experiment. Where several cells belong
    to one, the row is of the cell with the most seeds, and of the newest of those.
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


def serialize_settings(cell: Mapping) -> str:
    """Return all that is planned of a cell as one text."""
    text = json.dumps([cell[name] for name in PLAN_COLUMNS])
    # Rows hold some whole numbers as floats.
    return json.dumps(json.loads(text, parse_int=float), sort_keys=True)
