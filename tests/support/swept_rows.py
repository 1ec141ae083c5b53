"""A sweep of the command line, and its rows."""

from pkm.experiments.store.store import Store
from pkm.schema import COLUMNS

#: Two jobs, of two cells and of one.
SWEEP = ("-m", "method=fastlloyd,mean", "epsilon=[1.0,2.0]", "seeds=2", "metrics=[nicv]")


def rows(folder="results"):
    """Rows of all cells of a store, in a fixed order and without times, places and versions."""
    store = Store(folder)
    table = store.read(store.keys())
    kept = [column.name for column in COLUMNS if column.topic not in ("resource", "provenance")]
    kept = [name for name in table if name in ("cell", *kept)]
    return table[kept].sort_values(["cell", "seed"], ignore_index=True)
