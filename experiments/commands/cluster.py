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
number of records secret. ``missing=middle`` keeps rows of which some cells are missing.
``dry_run=yes`` reads nothing and says, from n, k and epsilon, what to expect.
``epsilon=auto excess=0.1 n=20000`` is the epsilon at which the cost is expected to be a
tenth above that of k-means.
"""

import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.base import clone
from tqdm import tqdm

from pkm.datasets.user_schema import Schema
from pkm.datasets.user_tables import read_blocks
from pkm.experiments.config.settings import FILE, at_least, require
from pkm.experiments.console.console import make_main, require_one
from pkm.experiments.reports.cluster_page import build_page, describe_unread
from pkm.methods.schedule import round_up, smallest_epsilon
from pkm.methods.synthetic.price import (
    detection_limit,
    epsilon_for,
    expected_excess,
)
from pkm.methods.synthetic.synopsis import SynopsisKMeans
from pkm.scalars import is_positive
from pkm.yaml_files import read_value

#: Options that are parameters of the method, by their names there.
PARAMETERS = {
    "k": "n_clusters",
    "epsilon": "epsilon",
    "delta": "delta",
    "adjacency": "adjacency",
    "report": "report",
    "missing": "missing",
}
DEFAULTS = {"k": "auto", "report": 0.1}
OPTIONS = (*PARAMETERS, "schema", "groups", "output", "n", "excess", "dry_run")
#: For the statement.
PREPROCESSING = (
    "Cells were mapped to numbers, each by itself, by the public rules of schema.yaml. "
    "(The curator says how these were chosen without looking at the data.)"
)
#: A zoom finds the domain in bounds of any width if the records of a group, times
#: epsilon and over the columns, are at least this number (docs/studies/defects.md, h).
LEAST_RECORDS = 10
ADVICE = "Check formats and decimal marks, or keep incomplete rows with missing=middle."
#: Name of the column of ids, beside those of the schema.
IDS = "person id"


def run(words: Sequence[str], options: Mapping[str, str]) -> None:
    """Cluster a table, or say what to expect; nothing is left half-written."""
    table = require_one(words, "FILE", "one file")
    values: dict[str, Any] = dict(DEFAULTS)
    values |= {name: read_value(text) for name, text in options.items()}
    rule = "a file, schema=FILE: pkm schema drafts one"
    require("schema" in values, "schema", "", rule)
    FILE.require("schema", options["schema"])
    schema = Schema.from_yaml(options["schema"])
    n_features = len(schema.get_feature_names_out())
    model = make_model(schema, values)
    if "n" in values:
        check_epsilon(model, values["n"], n_features)
    if values.get("dry_run"):
        require("n" in values, "n", "", "the number of records, with dry_run=yes")
        print(describe_expectations(model, values["n"], n_features))
        return
    require("output" in values, "output", "", "a new folder: output=FOLDER")
    output = Path(options["output"]).absolute()
    require(not output.exists(), "output", str(output), "a folder that does not exist")
    require(output.parent.is_dir(), "output", str(output), "in a folder that exists")

    groups = options.get("groups")
    # How many rows a person has is private, and so is their number then.
    are_counted = not (model.hides_n or groups)
    progress = sys.stderr.isatty() and are_counted
    # Rows on the public scale are in a file that its owner alone can read. A kill
    # removes it, too.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix=".", dir=output.parent) as scratch:
        rows = Path(scratch, "rows.parquet")
        n_rows = write_rows(Path(table), schema, groups, rows, progress)
        if are_counted:
            check_epsilon(model, n_rows, n_features)
        ids = IDS if groups else None
        n_public = n_rows if are_counted else values.get("n")
        if n_public:
            print(warn_of_price(model, n_public, n_features), end="", file=sys.stderr)
        model.fit(rows, groups=ids, progress=progress)
        # A fit in passes does not keep the names of columns.
        model.feature_names_in_ = schema.get_feature_names_out()
        folder = Path(scratch, output.name)
        write_release(model, schema, options["schema"], folder)
        folder.rename(output)
    unread = describe_unread(model)
    if unread:
        print(unread, ADVICE)
    print(f"{output}: open index.html; read model/statement.md before you publish")


def make_model(schema: Schema, values: Mapping[str, Any]) -> Any:
    """Make the method of the options, or refuse them."""
    epsilon = values.get("epsilon")
    is_auto = epsilon == "auto"
    require(epsilon is not None, "epsilon", "", "given: epsilon=1, or epsilon=auto")
    rule = "left out without epsilon=auto"
    require(is_auto or "excess" not in values, "excess", values.get("excess"), rule)
    if "n" in values:
        at_least(1).require("n", values["n"])
    parameters = {
        parameter: values[name]
        for name, parameter in PARAMETERS.items()
        if name in values
    }
    if is_auto:
        parameters["epsilon"] = 1.0
    model: Any = SynopsisKMeans(bounds=schema.bounds, **parameters)
    model.check_parameters(values.get("n"))
    rule = "above 0: the page needs a share of the budget"
    require(bool(model.report), "report", model.report, rule)
    if is_auto:
        n_features = len(schema.get_feature_names_out())
        model.epsilon = choose_epsilon(model, n_features, values)
    return model


def choose_epsilon(
    model: Any,
    n_features: int,
    values: Mapping[str, Any],
) -> float:
    """Choose the epsilon with a wished excess over k-means, and the report's share."""
    for name in ("n", "k"):
        at_least(1).require(name, values.get(name))
    excess: Any = values.get("excess")
    require(is_positive(excess), "excess", excess, "above 0, with epsilon=auto")
    needed = epsilon_for(
        excess,
        values["n"],
        n_features,
        values["k"],
        delta=model.resolved_delta(0),
    )
    return round_up(needed / (1 - model.report))


def check_epsilon(
    model: Any,
    n_records: int,
    n_features: int,
) -> None:
    """Refuse an epsilon at which not even a group of average size is seen."""
    n_groups = 1 if model.n_clusters == "auto" else model.n_clusters
    average = n_records / n_groups

    def suffices(epsilon: float) -> bool:
        other: Any = clone(model)
        other.epsilon = epsilon
        return find_smallest(other, n_features) <= average

    if suffices(model.epsilon):
        return
    least = smallest_epsilon(model.epsilon, suffices)
    smallest = find_smallest(model, n_features)
    raise ValueError(
        f"epsilon={model.epsilon:g} is too small: noise hides groups of fewer than "
        f"{smallest:,.0f} records, and there are {n_records:,} in all; give at least "
        f"epsilon={least:g}"
    )


def describe_expectations(
    model: Any,
    n_records: int,
    n_features: int,
) -> str:
    """Say what to expect of a clustering, from public numbers alone."""
    budget = model.budget(n_records, n_features)
    smallest = find_smallest(model, n_features)
    lines = [
        f"promises epsilon={budget.epsilon:g} and delta={budget.delta:g} under "
        f"{budget.adjacency} adjacency",
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
    lines.append(warn_of_price(model, n_records, n_features))
    return "\n".join(lines).rstrip()


def warn_of_price(
    model: Any,
    n_records: int,
    n_features: int,
) -> str:
    """Warn, by a line, of a cost far above the expected one; empty otherwise."""
    n_groups = 1 if model.n_clusters == "auto" else model.n_clusters
    records = n_records * epsilon_of_centers(model) / (n_groups * n_features)
    if records >= LEAST_RECORDS:
        return ""
    return (
        f"warning: n * epsilon / (k * columns) is {records:.2g}, below "
        f"{LEAST_RECORDS}: in wide bounds the cost may be far above the expected one\n"
    )


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
    progress: bool = False,
) -> int:
    """Write the rows of a table on the schema's scale, with their ids if it has some.

    Returns
    -------
    int
        Their number.

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
    n_rows = 0
    bar = tqdm(
        unit=" rows",
        unit_scale=True,
        delay=2,
        leave=False,
        disable=not progress,
    )
    for block in read_blocks(source, needed):
        rows = schema.transform(block)
        columns = dict(zip(names, rows.T, strict=True))
        if groups:
            require(groups in block, "groups", groups, "the name of a column")
            # Ids that are all missing in a block have no type of their own.
            known = writer.schema.field(IDS).type if writer else None
            columns[IDS] = pa.array(block[groups], known, from_pandas=True)
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(target, table.schema)
        writer.write_table(table)
        n_rows += len(table)
        bar.update(len(table))
    bar.close()
    require(n_rows > 0, "FILE", str(source), "a table with at least one row")
    writer.close()
    return n_rows


def write_release(
    model: Any,
    schema: Schema,
    schema_file: str,
    folder: Path,
) -> None:
    """Write the folder to publish."""
    model.save(folder / "model", preprocessing=PREPROCESSING)
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
