"""Write all stored rows for other programs: ``pkm export``.

    pkm export
    pkm export results=results output=export

The folder gets ``rows.parquet``, ``rows.csv.gz`` with nested columns as JSON, and
``rows.schema.json``, which says what each column is (a Table Schema of Frictionless
Data). Rows of restricted data are for their owner alone, as stored cells are.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pkm.experiments.config.settings import require
from pkm.experiments.console.console import make_main
from pkm.experiments.store.export import write_rows
from pkm.experiments.store.store import Store


def run(names: Sequence[str], options: Mapping[str, str]) -> None:
    """Write the rows and say how many there are."""
    require(not names, "word", " ".join(names), "key=value, of results and output")
    folder = Path(options.get("output", "export"))
    rows = write_rows(Store(options.get("results", "results")), folder)
    print(f"{len(rows)} rows of {rows['cell'].nunique()} cells in {folder}")


main = make_main("export", __doc__, "WORD", ("results", "output"), run)
