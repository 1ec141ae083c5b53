"""The columns of a stored row, each declared once; printed in ``docs/schema.md``.

A row is one seed of one cell. Execution fills the columns, the store checks them, and
tables, figures, MLflow and the tests' fabricated rows take labels, units and missing
values from here.
"""

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

#: What a value is; the last five are nested: see `pkm.arrow`.
Dtype = Literal[
    "text", "integer", "number", "flag",
    "integers", "parameters", "charges", "checkpoints", "centers",
]  # fmt: skip
#: What a column is about: which cell and seed, what was run, the privacy that it had,
#: how it was run, how figures draw it, what was measured, what it took, and where it
#: comes from.
Kind = Literal[
    "key", "identity", "privacy", "setting", "style", "metric", "resource", "provenance"
]
#: Which cells have the column: all of them, those between clients and a server, those
#: with removable points, and of the latter those that remove some.
Scope = Literal["all", "federation", "unlearning", "removals", "coreset"]


@dataclass(frozen=True)
class Column:
    """One column of a row.

    Parameters
    ----------
    name : str
    dtype : str
        See `Dtype`.
    kind : str
        See `Kind`.
    label : str
        Of a metric: its name in figures and tables. Of other columns: what they hold.
    unit : str, default=""
    missing : object, optional
        Value in rows without the column; None for a column that every row has.
    raw_power : int, default=0
        Power of the half-width of the domain that turns a value into raw units.
    better : {"lower", "higher", ""}, default=""
        Which values of a metric are the better ones; empty where neither are.
    scope : {"all", "federation", "unlearning", "removals", "coreset"}, default="all"
        Which cells have it.
    """

    name: str
    dtype: Dtype
    kind: Kind
    label: str
    unit: str = ""
    missing: object = None
    raw_power: int = 0
    better: Literal["lower", "higher", ""] = ""
    scope: Scope = "all"


def measured(
    name: str,
    label: str,
    unit: str = "",
    *,
    scope: Scope = "all",
    raw_power: int = 0,
    better: Literal["lower", "higher", ""] = "lower",
) -> Column:
    """Return the column of a metric: a number, NaN where it was not measured."""
    return Column(
        name, "number", "metric", label, unit, math.nan, raw_power, better, scope
    )


COLUMNS = (
    # Which cell and seed.
    Column("sweep", "text", "key", "sweep of the paper that requests the cell; not stored"),
    Column("cell", "text", "key", "key of the cell"),
    Column("seed", "integer", "key", "seed of the replicate"),
    # What was run on which data.
    Column("method", "text", "identity", "method"),
    Column("target", "text", "identity", "import path of the method's class"),
    Column("variant", "text", "identity", "published, sound or empty"),
    Column("params", "parameters", "identity", "constructor parameters other than k, budget "
           "and variant"),
    Column("dataset", "text", "identity", "data set"),
    Column("preprocessing", "text", "identity", "how raw columns are mapped to [-1, 1]"),
    Column("n", "integer", "identity", "points"),
    Column("d", "integer", "identity", "dimensions"),
    Column("k", "integer", "identity", "clusters requested"),
    # The privacy that it has.
    Column("epsilon", "number", "privacy", "declared epsilon; NaN without privacy"),
    Column("delta", "number", "privacy", "delta of the budget; NaN without privacy"),
    Column("notion", "text", "privacy", "pure, approximate or none"),
    Column("adjacency", "text", "privacy", "relation of neighboring data sets"),
    Column("trust", "text", "privacy", "who is trusted with the points"),
    Column("view", "text", "privacy", "what the attacker sees"),
    Column("flaws", "text", "privacy", "ids of known flaws of the claim (analysis/flaws.yaml)"),
    Column("epsilon_spent", "number", "privacy", "epsilon of all charges together"),
    Column("epsilon_unspent", "number", "privacy", "epsilon that the charges leave of the budget"),
    Column("charges", "charges", "privacy", "charges of the ledger, in the order of the releases"),
    Column("private_bounds", "flag", "privacy", "whether the domain was read off the points"),
    # How it was run.
    Column("iterations", "integer", "setting", "iterations made"),
    Column("bounds_factor", "number", "setting", "how many times as wide as the domain the "
           "method's bounds were", missing=1.0),
    Column("half_width", "number", "setting", "half the common range of the raw columns; NaN "
           "where they have none", "raw units", math.nan),
    Column("timing", "flag", "setting", "whether every seed was a fit by itself, alone on the "
           "machine", missing=False),
    Column("clients", "integer", "setting", "clients; 0 for central cells", missing=0),
    Column("latency_ms", "number", "setting", "simulated latency of a message", "ms", math.nan,
           scope="federation"),
    Column("word_bytes", "integer", "setting", "size of a word of masked messages", "bytes", 0,
           scope="federation"),
    Column("transport", "text", "setting", "threads or mpi", missing="", scope="federation"),
    Column("split", "text", "setting", "how points were split over clients", missing=""),
    Column("clusters_per_client", "integer", "setting", "clusters that a client's points are from",
           missing=math.nan, scope="unlearning"),
    Column("split_seed", "integer", "setting", "seed of the split", missing=math.nan,
           scope="unlearning"),
    Column("largest_client", "integer", "setting", "points of the largest client",
           missing=math.nan, scope="unlearning"),
    Column("removals", "integer", "setting", "requests to remove points", missing=0,
           scope="unlearning"),
    Column("batch", "integer", "setting", "points of a request", missing=math.nan,
           scope="unlearning"),
    Column("requests", "text", "setting", "which points are requested: random or adversarial",
           missing="", scope="unlearning"),
    Column("sparse", "flag", "setting", "whether sparse aggregation was measured", missing=False,
           scope="unlearning"),
    Column("exact", "flag", "setting", "whether a removal equals retraining", missing=False,
           scope="unlearning"),
    # How figures draw it.
    Column("label", "text", "style", "name of the method in figures", missing=""),
    Column("color", "text", "style", "color of the method in figures", missing=""),
    Column("marker", "text", "style", "marker of the method in figures", missing=""),
    # Metrics of the released centers.
    measured("nicv", "NICV", "half-widths²"),
    measured("silhouette", "silhouette score", better="higher"),
    measured("davies_bouldin", "Davies–Bouldin index"),
    measured("centroid_mse", "centroid MSE", "half-widths²"),
    measured("centroid_distance", "mean centroid distance", "half-widths"),
    measured("empty_clusters", "empty clusters"),
    measured("accuracy", "accuracy by majority label", better="higher"),
    measured("inertia", "inertia", "half-widths²", raw_power=2),
    measured("kmeans_distance", "KMeans distance", "half-widths", raw_power=1),
    measured("kmeans_distance_sum", "KMeans distance, summed over centers", "half-widths",
             raw_power=1),
    measured("norm_kmeans_distance", "normalized KMeans distance", "diagonals"),
    measured("reverse_kmeans_distance", "reverse KMeans distance", "half-widths", raw_power=1),
    measured("norm_reverse_kmeans_distance", "normalized reverse KMeans distance", "diagonals"),
    measured("n_centers", "released centers", better=""),
    measured("nonempty_centers", "non-empty centers", better=""),
    measured("mean_distance", "mean distance", "half-widths"),
    measured("farthest_class", "distance to the class farthest from all centers", "half-widths"),
    measured("unassigned_points", "points of classes that no center is near"),
    measured("nicv_best_k", "NICV of the best k released centers", "half-widths²"),
    # Costs of a protocol.
    measured("iteration_ms", "ms per iteration", "ms", scope="federation"),
    measured("setup_ms", "ms of key agreement", "ms", scope="federation"),
    measured("bytes_per_iteration", "bytes per iteration", "bytes", scope="federation"),
    measured("rounds_per_iteration", "rounds per iteration", scope="federation"),
    measured("client_ms", "client", "ms", scope="federation"),
    measured("masking_ms", "masking", "ms", scope="federation"),
    measured("server_ms", "server", "ms", scope="federation"),
    measured("wire_ms", "wire", "ms", scope="federation"),
    measured("waiting_ms", "waiting", "ms", scope="federation"),
    measured("noise_ms", "noise, drawn ahead (CPU)", "ms", scope="federation"),
    # Losses and costs of federated clustering with removals.
    measured("optimum", "optimum", "half-widths²", scope="unlearning", better=""),
    measured("loss_ratio", "loss ratio", scope="unlearning"),
    measured("loss_ratio_nearest", "loss ratio, nearest centers", scope="unlearning"),
    measured("loss_ratio_after", "loss ratio after removals", scope="removals"),
    measured("loss_ratio_after_nearest", "loss ratio after removals, nearest centers",
             scope="removals"),
    measured("fit_client_ms", "fit, slowest client (ms)", "ms", scope="unlearning"),
    measured("fit_server_ms", "fit, server (ms)", "ms", scope="unlearning"),
    measured("fit_all_ms", "fit, one process (ms)", "ms", scope="unlearning"),
    measured("retrain_ms", "retraining (ms)", "ms", scope="removals"),
    measured("retrain_full_ms", "full retraining (ms)", "ms", scope="removals"),
    measured("removal_mean_ms", "request, mean (ms)", "ms", scope="removals"),
    measured("removal_p50_ms", "request, median (ms)", "ms", scope="removals"),
    measured("removal_p95_ms", "request, 95th percentile (ms)", "ms", scope="removals"),
    measured("removal_p99_ms", "request, 99th percentile (ms)", "ms", scope="removals"),
    measured("removal_max_ms", "request, longest (ms)", "ms", scope="removals"),
    measured("removal_client_ms", "request, client (ms)", "ms", scope="removals"),
    measured("removal_server_ms", "request, server (ms)", "ms", scope="removals"),
    measured("mean_untouched_ms", "request that touches no seed (ms)", "ms", scope="removals"),
    measured("deletions_per_second", "deletions per second", scope="removals", better="higher"),
    measured("reseeded", "share of requests that touch a seed", scope="removals"),
    measured("reseeded_predicted", "predicted share of requests that touch a seed",
             scope="removals", better=""),
    measured("optimum_after", "optimum after removals", "half-widths²", scope="removals",
             better=""),
    measured("sparse_bytes", "bytes of a client, sparse", "bytes", scope="unlearning"),
    measured("plain_bytes", "bytes of a client, in the open", "bytes", scope="unlearning"),
    measured("sparse_encode_ms", "sparse encoding (ms)", "ms", scope="unlearning"),
    measured("sparse_mask_ms", "sparse masking (ms)", "ms", scope="unlearning"),
    measured("sparse_decode_ms", "sparse decoding (ms)", "ms", scope="unlearning"),
    measured("sparse_attempts", "sparse rounds", scope="unlearning"),
    measured("coreset_cost_ratio", "largest cost ratio of a coreset", scope="coreset"),
    # What it took.
    Column("fit_seconds", "number", "resource", "wall-clock time of the fit", "s"),
    Column("fit_cpu_seconds", "number", "resource", "CPU time of the fit; NaN for a protocol", "s"),
    Column("metric_seconds", "number", "resource", "wall-clock time of the evaluation", "s"),
    Column("metric_cpu_seconds", "number", "resource", "CPU time of the evaluation", "s"),
    Column("peak_memory_mb", "number", "resource", "peak memory of the process while the cell ran",
           "MiB"),
    # Where it comes from.
    Column("metrics", "text", "provenance", "metrics requested", missing=""),
    Column("clipped", "integer", "provenance", "points moved to the border of the domain",
           missing=0),
    Column("references", "integers", "provenance", "sizes of the reference clusterings",
           missing=()),
    Column("series", "checkpoints", "provenance", "state after some of the requests", missing=(),
           scope="removals"),
    Column("centers", "centers", "provenance", "released centers, where the cell keeps them",
           "raw units", ()),
    Column("code", "text", "provenance", "hash of the code behind the result"),
    Column("metrics_code", "text", "provenance", "hash of the code of the metrics", missing=""),
    Column("data", "text", "provenance", "fingerprint of the data set"),
    Column("host", "text", "provenance", "machine"),
    Column("versions", "text", "provenance", "versions of Python and of the packages used"),
    Column("git", "text", "provenance", "commit of the project", missing="unknown"),
    Column("finished", "number", "provenance", "when the cell was done", "s since 1970", math.nan),
)  # fmt: skip

BY_NAME = {column.name: column for column in COLUMNS}


def names(*kinds: Kind, scope: Scope | None = None) -> tuple[str, ...]:
    """Names of the columns of some kinds, and of one scope where it is given.

    Examples
    --------
    >>> names("style")
    ('label', 'color', 'marker')
    """
    return tuple(
        column.name
        for column in COLUMNS
        if column.kind in kinds and scope in (None, column.scope)
    )


def label_of(metric: str) -> str:
    """Name of a metric in figures and tables.

    Examples
    --------
    >>> label_of("nicv")
    'NICV'
    """
    return BY_NAME[metric].label


def higher_is_better(metric: str) -> bool:
    """Tell whether larger values of a metric are the better ones; false for unknown names.

    Examples
    --------
    >>> higher_is_better("silhouette"), higher_is_better("nicv")
    (True, False)
    """
    return metric in BY_NAME and BY_NAME[metric].better == "higher"


def raw_power(metric: str) -> int:
    """Power of the half-width that turns a metric into raw units; 0 for unknown names.

    Examples
    --------
    >>> raw_power("inertia")
    2
    """
    return BY_NAME[metric].raw_power if metric in BY_NAME else 0


#: Headings of the page, with what they are about.
HEADINGS: dict[Kind, str] = {
    "key": "Which cell and seed",
    "identity": "What was run",
    "privacy": "Privacy",
    "setting": "How it was run",
    "style": "How figures draw it",
    "metric": "Metrics",
    "resource": "Time and memory",
    "provenance": "Origin",
}
#: In ``docs/schema.md``, the line after which everything is written from here.
MARKER = "<!-- Below: python -m pkm.schema docs/schema.md -->\n"
HEADING = """
## {}

| column | type | meaning | unit | where missing | cells |
|---|---|---|---|---|---|"""
ARROWS = {"lower": " ↓", "higher": " ↑", "": ""}


def page(text: str) -> str:
    """Return the text of ``docs/schema.md`` with its tables written anew."""
    lines = []
    for kind, heading in HEADINGS.items():
        lines.append(HEADING.format(heading))
        for column in COLUMNS:
            if column.kind == kind:
                meaning = column.label + ARROWS[column.better]
                missing = missing_text(column.missing)
                scope = "" if column.scope == "all" else column.scope
                dtype = "" if column.dtype == "number" else column.dtype
                cells = (dtype, meaning, column.unit, missing, scope)
                row = f"`{column.name}` | {' | '.join(cells)}"
                lines.append(f"| {row.rstrip(' |')} |")
    return text.partition(MARKER)[0] + MARKER + "\n".join(lines) + "\n"


def missing_text(value: object) -> str:
    """Write the value of rows without a column.

    Examples
    --------
    >>> missing_text(""), missing_text(()), missing_text(0), missing_text(None)
    ('empty', 'null', '0', '')
    """
    if value is None:
        return ""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if value == ():
        return "null"
    return str(value).lower() or "empty"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
