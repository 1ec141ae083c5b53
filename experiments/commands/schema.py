"""Draft the schema of a table from names and types alone: ``pkm schema``.

    pkm schema customers.csv
    pkm schema customers.csv decimal=comma output=schema.yaml
    pkm schema customers.parquet

Every bound and level of the draft is ``?``. Replace each by what is known without the
data; ``pkm.Schema.from_yaml`` refuses a file with a ``?`` left. Types of a text file
are what a parser finds in it, so check the kinds, too. No file is overwritten.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import yaml

from pkm.datasets import delimited
from pkm.datasets.user_files import TEXT
from pkm.datasets.user_schema import Schema
from pkm.experiments.config.settings import FILE
from pkm.experiments.console.console import make_main, require_one

HEADER = """\
# Replace every '?' by what is known without the data, and check the kinds.
# Bounds and levels that are looked up in the data are not private.
"""


def run(names: Sequence[str], options: Mapping[str, str]) -> None:
    """Write a draft, and say which columns it leaves out."""
    path = Path(require_one(names, "FILE", "one file"))
    FILE.require("FILE", str(path))
    decimal = "point"
    name = path.name.lower()
    if name.endswith(TEXT):
        table, layout = delimited.read(path, options.get("decimal"))
        if "decimal comma" in layout:
            decimal = "comma"
    else:
        header = pq.read_schema(path)
        table = header.empty_table().to_pandas()
    rules = Schema.draft(table.dtypes, decimal)
    output = Path(options.get("output", f"{path.stem}.yaml"))
    with output.open("x", encoding="utf-8") as file:
        file.write(HEADER)
        yaml.safe_dump(
            rules,
            file,
            default_flow_style=None,  # a line for each rule
            sort_keys=False,
            allow_unicode=True,
        )
    omitted = ", ".join(str(name) for name in table if name not in rules) or "none"
    print(f"{len(rules)} columns in {output}; left out: {omitted}")


main = make_main("schema", __doc__, "FILE", ("output", "decimal"), run)
