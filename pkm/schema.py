"""The columns of a stored row, each declared once; printed in ``docs/schema.md``.

A row is one seed of one cell. Execution fills the columns, the store checks them, and
tables, figures, MLflow and the tests' fabricated rows take labels, units and missing
values from here.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

#: What a value is; the last five are nested: see `pkm.arrow`.
Dtype = Literal[
    "text", "integer", "number", "flag",
    "integers", "parameters", "charges", "checkpoints", "centers",
]  # fmt: skip
#: Topic of a column: which cell and seed, what was run, its privacy, how it was run,
#: how figures draw it, what was measured, its resources, and its provenance.
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
    label : str
        For a metric, its name in figures and tables; else a description of the column.
    unit : str, default=""
    missing : object, optional
        Value in rows without the column; None for a column that every row has.
    raw_power : int, default=0
        Power of the half-width of the domain that turns a value into raw units.
    better : {"lower", "higher", ""}, default=""
        Which values of a metric are better; empty if neither.
    kind : str, default="metric"
        See `Kind`.
    scope : {"all", "federation", "unlearning", "removals", "coreset"}, default="all"
        Which cells have it.
    """

    name: str
    dtype: Dtype
    label: str
    unit: str = ""
    missing: object = None
    raw_power: int = 0
    better: Literal["lower", "higher", ""] = ""
    kind: Kind = "metric"
    scope: Scope = "all"


def declare_metric(
    name: str,
    label: str,
    unit: str = "",
    *,
    raw_power: int = 0,
    better: Literal["lower", "higher", ""] = "lower",
) -> Column:
    """Return the column of a metric: a number, NaN where it was not measured."""
    return Column(name, "number", label, unit, math.nan, raw_power, better)


def declare(kind: Kind, scope: Scope, *columns: Column) -> tuple[Column, ...]:
    """Declare columns of one kind, which the same cells have."""
    return tuple(replace(column, kind=kind, scope=scope) for column in columns)


COLUMNS = (
    # Which cell and seed.
    *declare(
        "key",
        "all",
        Column(
            "sweep", "text", "sweep of the paper that requests the cell; not stored"
        ),
        Column("cell", "text", "key of the cell"),
        Column(
            "seed", "integer", "seed of the replicate; its number if noise is secure"
        ),
    ),
    # What was run on which data.
    *declare(
        "identity",
        "all",
        Column("method", "text", "method"),
        Column("target", "text", "import path of the method's class"),
        Column("variant", "text", "published, sound or empty"),
        Column(
            "params",
            "parameters",
            "constructor parameters other than k, budget and variant",
        ),
        Column("dataset", "text", "data set"),
        Column("preprocessing", "text", "how raw columns are mapped to [-1, 1]"),
        Column("n", "integer", "points"),
        Column("d", "integer", "dimensions"),
        Column("k", "integer", "clusters requested"),
    ),
    # The privacy that it has.
    *declare(
        "privacy",
        "all",
        Column("epsilon", "number", "declared epsilon; NaN without privacy"),
        Column("delta", "number", "delta of the budget; NaN without privacy"),
        Column("notion", "text", "pure, approximate or none"),
        Column("adjacency", "text", "relation of neighboring data sets"),
        Column("trust", "text", "who is trusted with the points"),
        Column("view", "text", "what the attacker sees"),
        Column(
            "flaws", "text", "ids of known flaws of the claim (analysis/flaws.yaml)"
        ),
        Column("epsilon_spent", "number", "epsilon of all charges together"),
        Column(
            "epsilon_unspent", "number", "epsilon that the charges leave of the budget"
        ),
        Column(
            "charges", "charges", "charges of the ledger, in the order of the releases"
        ),
        Column("noise", "text", "secure, seeded (repeatable) or none"),
        Column(
            "public_seed",
            "integer",
            "drawn seed of public randomness, where noise is secure",
            missing=math.nan,
        ),
        Column("private_bounds", "flag", "whether the domain was read off the points"),
    ),
    # How it was run.
    *declare(
        "setting",
        "all",
        Column("iterations", "integer", "iterations made"),
        Column(
            "bounds_factor",
            "number",
            "how many times as wide as the domain the method's bounds were",
            missing=1.0,
        ),
        Column(
            "half_width",
            "number",
            "half the common range of the raw columns; NaN where they have none",
            "raw units",
            math.nan,
        ),
        Column(
            "timing",
            "flag",
            "whether every seed was a fit by itself, alone on the machine",
            missing=False,
        ),
        Column("clients", "integer", "clients; 0 for central cells", missing=0),
    ),
    *declare(
        "setting",
        "federation",
        Column(
            "latency_ms", "number", "simulated latency of a message", "ms", math.nan
        ),
        Column(
            "word_bytes", "integer", "size of a word of masked messages", "bytes", 0
        ),
        Column("transport", "text", "threads or mpi", missing=""),
    ),
    *declare(
        "setting",
        "all",
        Column("split", "text", "how points were split over clients", missing=""),
    ),
    *declare(
        "setting",
        "unlearning",
        Column(
            "clusters_per_client",
            "integer",
            "clusters that a client's points are from",
            missing=math.nan,
        ),
        Column("split_seed", "integer", "seed of the split", missing=math.nan),
        Column(
            "largest_client",
            "integer",
            "points of the largest client",
            missing=math.nan,
        ),
        Column("removals", "integer", "requests to remove points", missing=0),
        Column("batch", "integer", "points or clients of a request", missing=math.nan),
        Column(
            "requests",
            "text",
            "which points are requested: random, adversarial or clients",
            missing="",
        ),
        Column(
            "sparse", "flag", "whether sparse aggregation was measured", missing=False
        ),
        Column("exact", "flag", "whether a removal equals retraining", missing=False),
    ),
    # How figures draw it.
    *declare(
        "style",
        "all",
        Column("label", "text", "name of the method in figures", missing=""),
        Column("color", "text", "color of the method in figures", missing=""),
        Column("marker", "text", "marker of the method in figures", missing=""),
    ),
    # Metrics of the released centers.
    *declare(
        "metric",
        "all",
        declare_metric("nicv", "NICV", "half-widths²"),
        declare_metric("silhouette", "silhouette score", better="higher"),
        declare_metric("davies_bouldin", "Davies–Bouldin index"),
        declare_metric("centroid_mse", "centroid MSE", "half-widths²"),
        declare_metric("centroid_distance", "mean centroid distance", "half-widths"),
        declare_metric("empty_clusters", "empty clusters"),
        declare_metric("accuracy", "accuracy by majority label", better="higher"),
        declare_metric("inertia", "inertia", "half-widths²", raw_power=2),
        declare_metric(
            "kmeans_distance", "KMeans distance", "half-widths", raw_power=1
        ),
        declare_metric(
            "kmeans_distance_sum",
            "KMeans distance, summed over centers",
            "half-widths",
            raw_power=1,
        ),
        declare_metric(
            "norm_kmeans_distance", "normalized KMeans distance", "diagonals"
        ),
        declare_metric(
            "reverse_kmeans_distance",
            "reverse KMeans distance",
            "half-widths",
            raw_power=1,
        ),
        declare_metric(
            "norm_reverse_kmeans_distance",
            "normalized reverse KMeans distance",
            "diagonals",
        ),
        declare_metric("n_centers", "released centers", better=""),
        declare_metric("nonempty_centers", "non-empty centers", better=""),
        declare_metric("mean_distance", "mean distance", "half-widths"),
        declare_metric(
            "farthest_class",
            "distance to the class farthest from all centers",
            "half-widths",
        ),
        declare_metric("unassigned_points", "points of classes that no center is near"),
        declare_metric(
            "nicv_best_k", "NICV of the best k released centers", "half-widths²"
        ),
    ),
    # Costs of a protocol.
    *declare(
        "metric",
        "federation",
        declare_metric("iteration_ms", "ms per iteration", "ms"),
        declare_metric("setup_ms", "ms of key agreement", "ms"),
        declare_metric("bytes_per_iteration", "bytes per iteration", "bytes"),
        declare_metric("rounds_per_iteration", "rounds per iteration"),
        declare_metric("client_ms", "client", "ms"),
        declare_metric("masking_ms", "masking", "ms"),
        declare_metric("server_ms", "server", "ms"),
        declare_metric("wire_ms", "wire", "ms"),
        declare_metric("waiting_ms", "waiting", "ms"),
        declare_metric("noise_ms", "noise, drawn ahead (CPU)", "ms"),
    ),
    # Losses and costs of federated clustering with removals.
    *declare(
        "metric",
        "unlearning",
        declare_metric("optimum", "optimum", "half-widths²", better=""),
        declare_metric("loss_ratio", "loss ratio"),
        declare_metric("loss_ratio_nearest", "loss ratio, nearest centers"),
    ),
    *declare(
        "metric",
        "removals",
        declare_metric("loss_ratio_after", "loss ratio after removals"),
        declare_metric(
            "loss_ratio_after_nearest", "loss ratio after removals, nearest centers"
        ),
    ),
    *declare(
        "metric",
        "unlearning",
        declare_metric("fit_client_ms", "fit, slowest client (ms)", "ms"),
        declare_metric("fit_server_ms", "fit, server (ms)", "ms"),
        declare_metric("fit_all_ms", "fit, one process (ms)", "ms"),
    ),
    *declare(
        "metric",
        "removals",
        declare_metric("retrain_ms", "retraining (ms)", "ms"),
        declare_metric("retrain_full_ms", "full retraining (ms)", "ms"),
        declare_metric("removal_mean_ms", "request, mean (ms)", "ms"),
        declare_metric("removal_p50_ms", "request, median (ms)", "ms"),
        declare_metric("removal_p95_ms", "request, 95th percentile (ms)", "ms"),
        declare_metric("removal_p99_ms", "request, 99th percentile (ms)", "ms"),
        declare_metric("removal_max_ms", "request, longest (ms)", "ms"),
        declare_metric("removal_client_ms", "request, client (ms)", "ms"),
        declare_metric("removal_server_ms", "request, server (ms)", "ms"),
        declare_metric("mean_untouched_ms", "request that touches no seed (ms)", "ms"),
        declare_metric("deletions_per_second", "deletions per second", better="higher"),
        declare_metric("reseeded", "share of requests that touch a seed"),
        declare_metric(
            "reseeded_predicted",
            "predicted share of requests that touch a seed",
            better="",
        ),
        declare_metric(
            "optimum_after", "optimum after removals", "half-widths²", better=""
        ),
    ),
    *declare(
        "metric",
        "unlearning",
        declare_metric("sparse_bytes", "bytes of a client, sparse", "bytes"),
        declare_metric("plain_bytes", "bytes of a client, in the open", "bytes"),
        declare_metric("sparse_encode_ms", "sparse encoding (ms)", "ms"),
        declare_metric("sparse_mask_ms", "sparse masking (ms)", "ms"),
        declare_metric("sparse_decode_ms", "sparse decoding (ms)", "ms"),
        declare_metric("sparse_attempts", "sparse rounds"),
    ),
    *declare(
        "metric",
        "coreset",
        declare_metric("coreset_cost_ratio", "largest cost ratio of a coreset"),
    ),
    # What it took.
    *declare(
        "resource",
        "all",
        Column("fit_seconds", "number", "wall-clock time of the fit", "s"),
        Column(
            "fit_cpu_seconds", "number", "CPU time of the fit; NaN for a protocol", "s"
        ),
        Column(
            "compile_seconds",
            "number",
            "time in which numba compiled while the cell ran; fits of timing cells "
            "come after it",
            "s",
            math.nan,
        ),
        Column("metric_seconds", "number", "wall-clock time of the evaluation", "s"),
        Column("metric_cpu_seconds", "number", "CPU time of the evaluation", "s"),
        Column(
            "peak_memory_mb",
            "number",
            "peak memory of the process while the cell ran",
            "MiB",
        ),
    ),
    # Where it comes from.
    *declare(
        "provenance",
        "all",
        Column("metrics", "text", "metrics requested", missing=""),
        Column(
            "clipped", "integer", "points moved to the border of the domain", missing=0
        ),
        Column(
            "references", "integers", "sizes of the reference clusterings", missing=()
        ),
    ),
    *declare(
        "provenance",
        "removals",
        Column("series", "checkpoints", "state after some of the requests", missing=()),
    ),
    *declare(
        "provenance",
        "all",
        Column(
            "centers",
            "centers",
            "released centers, where the cell keeps them",
            "raw units",
            (),
        ),
        Column("code", "text", "hash of the code behind the result"),
        Column("metrics_code", "text", "hash of the code of the metrics", missing=""),
        Column("data", "text", "fingerprint of the data set"),
        Column("host", "text", "machine"),
        Column("versions", "text", "versions of Python and of the packages used"),
        Column("git", "text", "commit of the project", missing="unknown"),
        Column(
            "finished", "number", "when the cell was done", "s since 1970", math.nan
        ),
    ),
)

BY_NAME = {column.name: column for column in COLUMNS}


def names(*kinds: Kind, scope: Scope | None = None) -> tuple[str, ...]:
    """Name the columns of some kinds, and of one scope if it is given.

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


def higher_is_better(metric: str) -> bool:
    """Tell whether larger values of a metric are better; false for unknown names.

    Examples
    --------
    >>> higher_is_better("silhouette"), higher_is_better("nicv")
    (True, False)
    """
    return metric in BY_NAME and BY_NAME[metric].better == "higher"


def raw_power(metric: str) -> int:
    """Return the power of the half-width that turns a metric into raw units, else 0.

    Examples
    --------
    >>> raw_power("inertia")
    2
    """
    return BY_NAME[metric].raw_power if metric in BY_NAME else 0
