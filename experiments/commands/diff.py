"""Compare two results folders cell by cell: ``pkm diff A B``.

    pkm diff results /tmp/other

A cell of A and one of B are the same experiment if method, parameters, data set,
settings, metrics and budget agree; seeds, code and machine may differ. Each pair has
the same bits on every seed that both have, or it differs: within sampling error, or by
more than that ("moved"). Means are compared by paired t tests on the seeds that both
have, with Holm's correction over all cells and metrics; with fewer than two such seeds,
nothing is tested. Running times are left out. Then come the claims that reports in A
and B decide differently.

The exit code is 0 if no cell has moved, 1 if some have, and 2 if A and B must not be
compared: unlike budgets or adjacency, or other code of the metrics.
"""

from collections.abc import Mapping, Sequence

import pandas as pd

from pkm.experiments.config.settings import require
from pkm.experiments.console.console import make_main
from pkm.experiments.reports.diff import MOVED, STATES, compare, compare_verdicts
from pkm.experiments.store.cell_tables import read_cells
from pkm.experiments.store.store import Store

#: How many moved cells are printed, and which columns.
MAX_LINES = 20
COLUMNS = ["method", "variant", "params", "dataset", "k", "epsilon"]
COLUMNS += ["metric", "mean_a", "mean_b", "p", "provenance"]


def run(folders: Sequence[str], options: Mapping[str, str]) -> int:
    """Print what differs; return 1 if a cell has moved, else 0."""
    names = [*folders, *options]
    holds = len(folders) == 2 and not options
    require(holds, "folders", " ".join(names), "two results folders, A and B")
    stores = [Store(folder) for folder in folders]
    difference = compare(stores, [read_cells(store) for store in stores])
    print_states(difference)
    changed = compare_verdicts(stores)
    print(f"{len(changed)} verdicts of reports changed")
    for name, (before, after) in changed.items():
        print(f"  {name}: {before} -> {after}")
    return int((difference["state"] == MOVED).any())


def print_states(difference: pd.DataFrame) -> None:
    """Print how many cells are in each state, and which have moved, surest first."""
    counts = difference["state"].value_counts().reindex(STATES, fill_value=0)
    print(counts.rename_axis(None).to_string())
    moved = difference[difference["state"] == MOVED].sort_values("p", kind="stable")
    if len(moved):
        n_lines = min(len(moved), MAX_LINES)
        print(f"\n{n_lines} of the cells that have moved, the surest first:")
        table = moved[COLUMNS].head(MAX_LINES)
        print(table.to_string(index=False, float_format="{:.4g}".format))


main = make_main("diff", __doc__, "FOLDER", (), run)
