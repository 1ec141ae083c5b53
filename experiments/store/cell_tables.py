"""The cells of a store as tables: what each is, and its measured values."""

import json
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from pkm.arrow import read_parameters
from pkm.experiments.cell.cell import Cell
from pkm.experiments.store.columns import FOUND
from pkm.experiments.store.store import Store
from pkm.schema import BY_NAME, COLUMNS, names

#: What a plan knows of a cell, besides its budget.
KNOWN = {*names("identity", "setting"), "metrics"} - {*FOUND, "n", "d"}
PLANNED = sorted(KNOWN)
#: Columns that two cells must share, or their values mean different things.
MEANING = ["notion", "adjacency", "trust", "metrics_code"]
#: Columns that may explain why two cells differ.
ORIGIN = ["code", "data", "versions", "host"]
#: Metrics that are times or rates, which no second run repeats.
TIMES = {column.name for column in COLUMNS if column.unit == "ms"}
TIMES.add("deletions_per_second")
MEASURED = [name for name in names("metric") if name not in TIMES]
MEASURED += ["epsilon_spent", "iterations", "clipped"]


def read_cells(store: Store) -> pd.DataFrame:
    """Read what the cells of a store are.

    Returns
    -------
    DataFrame
        Stored columns, parameters as text, and the texts `setting` and `budget`, which
        name an experiment. Of several cells of one it has that with the most seeds, of
        those with equally many the newest.

    Raises
    ------
    FileNotFoundError
        If no cell is stored.
    """
    rows = store.read_all(["cell", *PLANNED, "epsilon", "delta", *MEANING, *ORIGIN])
    cells = rows.drop_duplicates("cell")
    n_seeds = cells["cell"].map(rows["cell"].value_counts())
    cells = cells.iloc[np.argsort(-n_seeds, kind="stable")]
    lines = cells.assign(params=read_parameters(cells)).to_dict("records")
    cells = cells.assign(
        params=[json.dumps(line["params"]) for line in lines],
        setting=[write_setting(line) for line in lines],
        # Machines may round a computed delta differently.
        budget=[f"({line['epsilon']:.9g}, {line['delta']:.9g})" for line in lines],
    )
    return cells.drop_duplicates(["setting", "budget"])


def read_values(store: Store, keys: Sequence[str]) -> pd.DataFrame:
    """Read `MEASURED` of some cells, indexed by the position in `keys` and the seed."""
    columns = ["cell", "seed", *MEASURED]
    rows = store.read(keys, columns).reindex(columns=columns)
    pair = rows.pop("cell").map(pd.Series(range(len(keys)), keys, dtype=int))
    rows = rows.assign(pair=pair).set_index(["pair", "seed"])
    return rows.dropna(axis=1, how="all").astype(float)


def match_keys(planned: Iterable[Cell], stored: pd.DataFrame) -> dict[str, str]:
    """Find the stored cells of a plan by what they are, for keys change with the code.

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
    defaults = {name: BY_NAME[name].missing for name in PLANNED}
    lines = []
    for cell in planned:
        setting = write_setting(defaults | cell.known_columns())
        lines.append((cell.key, setting, cell.epsilon, cell.delta))
    cells = pd.DataFrame(lines, columns=["planned", "setting", "epsilon", "declared"])
    # A delta that the method chooses is no number.
    cells["declared"] = pd.to_numeric(cells["declared"], errors="coerce")
    cells["epsilon"] = cells["epsilon"].astype(float)
    pairs = cells.merge(stored, on=["setting", "epsilon"])
    is_declared = np.isclose(pairs["delta"], pairs["declared"], rtol=1e-8, atol=0)
    pairs = pairs[is_declared | pairs["declared"].isna()]
    return dict(zip(pairs["planned"], pairs["cell"], strict=True))


def write_setting(cell: Mapping) -> str:
    """Write all that is planned of a cell as one text."""
    text = json.dumps([cell[name] for name in PLANNED])
    # Rows hold some whole numbers as floats.
    return json.dumps(json.loads(text, parse_int=float), sort_keys=True)
