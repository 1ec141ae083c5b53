"""From a table of people to a folder to publish: ``pkm cluster``.

    pkm cluster customers.csv schema=customers.yaml k=4 epsilon=1 output=customers
    pkm cluster visits.parquet schema=visits.yaml groups=user epsilon=1 output=visits
    pkm cluster customers.csv schema=customers.yaml k=4 epsilon=1 n=20000 dry_run=yes

The schema says what is public of each column; ``pkm schema FILE`` drafts one. Noise is
drawn from the operating system. The folder has released and public values alone:

    index.html     a page for people: groups, sizes, profiles, what is promised
    centers.csv    centers in the table's words
    schema.yaml    the schema
    model/         what `pkm.load` reads, and the statement

With ``groups=COLUMN`` a record is a person, all rows with one id. A tenth of the budget
buys sizes, intervals and profiles (``report=0.1``). ``adjacency=add_remove`` keeps the
number of records secret. ``dry_run=yes`` reads nothing and says, from n, k and epsilon,
what to expect.
"""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from pkm.datasets.user_schema import Schema
from pkm.datasets.user_tables import read_blocks
from pkm.experiments.config.settings import require
from pkm.experiments.console.console import make_main
from pkm.experiments.reports.cluster_page import build_page
from pkm.methods.synthetic.price import detection_limit, expected_excess
from pkm.methods.synthetic.synopsis import SynopsisKMeans

#: Options that are parameters of the method, by their names there.
PARAMETERS = {
    "k": "n_clusters",
    "epsilon": "epsilon",
    "delta": "delta",
    "adjacency": "adjacency",
    "report": "report",
}
DEFAULTS = {"k": "auto", "report": 0.1}
OPTIONS = (*PARAMETERS, "schema", "groups", "output", "n", "dry_run")
#: Name of the column of ids, beside those of the schema.
IDS = "person id"


def run(words: Sequence[str], options: Mapping[str, str]) -> None:
    """Cluster a table, or say what to expect; nothing is left half-written."""
    require(len(words) == 1, "FILE", " ".join(words), "one file")
    values = {name: yaml.safe_load(text) for name, text in options.items()}
    for name in ("schema", "epsilon"):
        require(name in values, name, "", f"given: {name}=...")
    schema = Schema.from_yaml(options["schema"])
    values = DEFAULTS | values
    parameters = {
        parameter: values[name]
        for name, parameter in PARAMETERS.items()
        if name in values
    }
    model: Any = SynopsisKMeans(bounds=schema.bounds, **parameters)
    model.check_parameters()
    rule = "above 0: the page needs a share of the budget"
    require(bool(model.report), "report", model.report, rule)
    if values.get("dry_run"):
        require("n" in values, "n", "", "the number of records, with dry_run=yes")
        n_features = len(schema.get_feature_names_out())
        print(describe_expectations(model, values["n"], n_features))
        return
    require("output" in values, "output", "", "a new folder: output=FOLDER")
    output = Path(options["output"]).absolute()
    require(not output.exists(), "output", str(output), "a folder that does not exist")
    require(output.parent.is_dir(), "output", str(output), "in a folder that exists")

    # Rows on the public scale are in a file that its owner alone can read.
    with tempfile.TemporaryDirectory(prefix=".", dir=output.parent) as scratch:
        rows = Path(scratch, "rows.parquet")
        groups = options.get("groups")
        write_rows(Path(words[0]), schema, groups, rows)
        model.fit(rows, groups=IDS if groups else None)
        # A fit in passes does not keep the names of columns.
        model.feature_names_in_ = schema.get_feature_names_out()
        folder = Path(scratch, output.name)
        write_release(model, schema, options["schema"], folder)
        folder.rename(output)
    print(f"{output}: open index.html; read model/statement.md before you publish")


def describe_expectations(
    model: Any,
    n_records: int,
    n_features: int,
) -> str:
    """Say what to expect of a clustering, from public numbers alone."""
    budget = model.budget(n_records, n_features)
    smallest = find_smallest(model, n_features)
    lines = [
        f"promises {budget}",
        f"half of such clusterings miss groups of fewer than {smallest:,.0f} records",
    ]
    if model.n_clusters != "auto":
        excess = expected_excess(
            n_records,
            n_features,
            model.n_clusters,
            epsilon_of_centers(model),
            delta=budget.delta,
        )
        lines.append(f"costs {excess:.0%} more than k-means, on average")
    return "\n".join(lines)


def epsilon_of_centers(model: Any) -> float:
    """Epsilon that a report leaves, about."""
    return (1 - model.report) * model.epsilon


def find_smallest(model: Any, n_features: int) -> float:
    """Size of the smallest cluster that half of the fits find."""
    delta = model.resolved_delta(0)
    return detection_limit(n_features, epsilon_of_centers(model), delta=delta)


def write_rows(
    source: Path,
    schema: Schema,
    groups: str | None,
    target: Path,
) -> None:
    """Write the rows of a table on the schema's scale, with their ids if it has some.

    Raises
    ------
    ValueError
        If the table lacks a column.
    """
    names = schema.get_feature_names_out()
    needed = [*schema.columns]
    if groups:
        needed.append(groups)
    writer: Any = None
    for block in read_blocks(source, needed):
        rows = schema.transform(block)
        columns = dict(zip(names, rows.T, strict=True))
        if groups:
            require(groups in block, "groups", groups, "the name of a column")
            columns[IDS] = pa.array(block[groups], from_pandas=True)
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(target, table.schema)
        writer.write_table(table)
    require(writer is not None, "FILE", str(source), "a table with at least one row")
    writer.close()


def write_release(
    model: Any,
    schema: Schema,
    schema_file: str,
    folder: Path,
) -> None:
    """Write the folder to publish."""
    model.save(folder / "model")
    centers = schema.inverse_transform(model.cluster_centers_)
    sizes = model.cluster_sizes_.round()
    centers.insert(0, "size", sizes.astype(int))
    centers.to_csv(folder / "centers.csv", index_label="group")
    shutil.copyfile(schema_file, folder / "schema.yaml")
    n_features = len(schema.get_feature_names_out())
    smallest = find_smallest(model, n_features)
    page = build_page(model, schema, smallest)
    (folder / "index.html").write_text(page, encoding="utf-8")


main = make_main(
    "cluster",
    __doc__,
    "FILE",
    OPTIONS,
    run,
)
