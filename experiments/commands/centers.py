"""List or write the released centers that are kept: ``pkm centers``.

    pkm centers
    pkm centers CELL ... output=centers.csv

Without a cell the command lists those that keep their centers (``pkm run
keep_centers=true``). A cell is named by its key or the beginning of it. The output is
CSV, or Parquet by its ending. Centers of restricted data are for their owner alone, as
stored cells are. Both forms take results=FOLDER.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pkm.experiments.config.settings import require
from pkm.experiments.console.console import make_main
from pkm.experiments.store.export import FIT_COLUMNS, extract_centers, write_centers
from pkm.experiments.store.store import Store


def run(names: Sequence[str], options: Mapping[str, str]) -> None:
    """Write the centers of some cells, or list the cells that keep theirs."""
    store = Store(options.get("results", "results"))
    stored = store.keys()
    if not names:
        centers = extract_centers(store.read_all([*FIT_COLUMNS, "centers"]))
        cells = centers.groupby(FIT_COLUMNS[:-1], sort=False, dropna=False)
        counts = cells["seed"].nunique().reset_index(name="seeds")
        print(counts.to_string(index=False))
        return
    keys = []
    rule = "the key of one stored cell, or its beginning (pkm centers lists them)"
    for name in names:
        matches = [key for key in stored if key.startswith(name)]
        require(len(matches) == 1, "cell", name, rule)
        keys += matches
    output = Path(options.get("output", "centers.csv"))
    n_centers = write_centers(store, list(dict.fromkeys(keys)), output)
    print(f"{n_centers} centers in {output}")


main = make_main("centers", __doc__, "CELL", ("results", "output"), run)
