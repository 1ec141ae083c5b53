"""Stored rows as records of MLflow's runs: one for a curve, one for a sweep.

A curve is the cells of a sweep that differ in epsilon alone. Its metrics are means over
the seeds, with ``_lo`` and ``_hi``, their 95 % interval (Student's t), at step
1000 epsilon; ``_auc`` is the area over epsilon. A method without epsilon has the same
value at every step of its sweep.
"""

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd

from pkm.analysis.claims.findings import VERDICTS
from pkm.analysis.tables.statistics import area, column_statistics
from pkm.analysis.tables.study import SeedMatrix, Study
from pkm.experiments.cell.cell import Cell, to_canonical_json
from pkm.schema import BY_NAME

#: Increase it when the same rows give other records: the next sync writes them anew.
RECORD_VERSION = 4
CURVE = "curve"
CELL = "cell"
SWEEP = "sweep"
#: Fields of a cell that are parameters of its run, where they have a value.
PARAM_FIELDS = ("method", "k", "preprocessing", "delta", "bounds_factor")
#: Columns of rows that are tags of a run.
TAG_COLUMNS = (
    "code",
    "data",
    "git",
    "variant",
    "notion",
    "adjacency",
    "trust",
    "view",
    "flaws",
    "private_bounds",
)
#: Times of fits, by whether cells measure time. Seeds that are fitted together share
#: the CPU time of their batch.
FIT_TIMES = {
    True: {"fit_seconds": "fit_seconds"},
    False: {
        "fit_cpu_seconds": "batch_cpu_seconds_per_seed",
        "compile_seconds": "compile_seconds",
    },
}


class MetricValue(NamedTuple):
    """A value of a metric at a step."""

    metric: str
    value: float
    step: int = 0


@dataclass(frozen=True)
class RunRecord:
    """A run as it is written to MLflow.

    Parameters
    ----------
    name : str
        Shown in legends.
    end : int
        When its last cell was done, in milliseconds since 1970.
    tags, params : dict of str to str
    metrics : list of MetricValue
        Finite values only: MLflow keeps no others.
    """

    name: str
    end: int
    tags: dict[str, str]
    metrics: list[MetricValue]
    params: dict[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Hash of all that is written."""
        return compute_digest(astuple(self))


def compute_digest(value: object) -> str:
    """Hash a JSON-ready value to 32 hexadecimal digits."""
    text = to_canonical_json([RECORD_VERSION, value])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def describe_runs(
    sweep_tags: Mapping[str, str],
    cells: Collection[Cell],
    study: Study,
    rows: pd.DataFrame,
    kind: str,
) -> list[RunRecord]:
    """Describe the runs of the curves, or of the cells, of a sweep.

    Parameters
    ----------
    sweep_tags : mapping of str to str
        Tags of all runs of the sweep: paper, profile and sweep.
    cells : collection of Cell
        Cells that have rows.
    study : Study
        The same rows as a study.
    rows : DataFrame
        Rows of the sweep, one per cell and seed.
    kind : {"curve", "cell"}
        What a run is.
    """
    metrics = compute_metrics(study, sweep_tags["sweep"], with_areas=kind == CURVE)
    groups = group_cells(cells, kind)
    params = [list_params(group[0], kind) for group in groups]
    first_rows = rows.drop_duplicates("cell").set_index("cell")
    tag_values = first_rows[[*TAG_COLUMNS, "finished"]].to_dict("index")

    records = []
    for name, group, run_params in zip(name_runs(params), groups, params, strict=True):
        keys = [cell.key for cell in group]
        first_values = tag_values[keys[0]]
        tags = {"kind": kind, **sweep_tags}
        for tag in TAG_COLUMNS:
            if first_values[tag] != "":
                tags[tag] = str(first_values[tag])
        end = max(tag_values[key]["finished"] for key in keys)
        values = [value for key in keys for value in metrics[key]]
        record = RunRecord(name, math.ceil(1000 * end), tags, values, run_params)
        records.append(record)
    return records


def group_cells(cells: Collection[Cell], kind: str) -> list[list[Cell]]:
    """Put cells together that differ in epsilon alone, or leave each by itself."""
    groups: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        identity = cell.identity() | {"data": cell.data}
        if kind == CURVE:
            del identity["epsilon"]
        groups[to_canonical_json(identity)].append(cell)
    return list(groups.values())


def list_params(cell: Cell, kind: str) -> dict[str, str]:
    """List the parameters by which runs are selected, compared and named."""
    params = {"dataset": cell.dataset_name}
    identity = cell.identity()
    names = (*PARAM_FIELDS, "epsilon") if kind == CELL else PARAM_FIELDS
    for name in names:
        if identity.get(name) is not None:
            params[name] = identity[name]
    params |= {**cell.params, **cell.kind.columns(), "seeds": len(cell.seeds)}
    return {name: json.dumps(value).strip('"') for name, value in params.items()}


def name_runs(params: Sequence[Mapping[str, str]]) -> list[str]:
    """Name runs by method, data set, and the parameters that tell them apart.

    Examples
    --------
    >>> iris = {"method": "lloyd", "dataset": "iris"}
    >>> name_runs([iris | {"k": "2"}, iris | {"k": "3"}])
    ['lloyd · iris · k=2', 'lloyd · iris · k=3']
    """
    groups = defaultdict(list)
    for run_params in params:
        groups[run_params["method"], run_params["dataset"]].append(run_params)

    names = []
    for run_params in params:
        words = [run_params["method"], run_params["dataset"]]
        others = groups[run_params["method"], run_params["dataset"]]
        for name, value in run_params.items():
            if any(other.get(name) != value for other in others):
                words.append(f"{name}={value}")
        names.append(" · ".join(words))
    return names


def compute_metrics(
    study: Study,
    sweep: str,
    *,
    with_areas: bool,
) -> dict[str, list[MetricValue]]:
    """Compute the metrics of every cell; areas are with the first cell of a curve."""
    metrics: dict[str, list[MetricValue]] = defaultdict(list)
    for metric in list_metrics(study):
        matrix = study.matrix(sweep, metric)
        add_values(metrics, metric, matrix.broadcast())
        if with_areas and is_center_metric(metric):
            add_values(metrics, f"{metric}_auc", area(matrix))
    for timing, times in FIT_TIMES.items():
        for column, name in times.items():
            matrix = study.matrix(sweep, column)
            has_time = matrix.cells["timing"].to_numpy(dtype=bool) == timing
            add_values(metrics, name, matrix.take(has_time).broadcast())
    return metrics


def list_metrics(study: Study) -> list[str]:
    """List the metrics to write: the number of centers only where it varies."""
    metrics = study.metrics
    counts = study.rows_with(["n_centers"])
    if (counts["n_centers"] == counts["k"]).all():
        metrics = [metric for metric in metrics if metric != "n_centers"]
    return metrics


def is_center_metric(metric: str) -> bool:
    """Tell whether a metric measures centers; areas are of such metrics alone."""
    column = BY_NAME[metric]
    return column.kind == "metric" and column.scope == "all"


def add_values(
    metrics: dict[str, list[MetricValue]],
    name: str,
    matrix: SeedMatrix,
) -> None:
    """Add mean and interval of each column of a matrix to the metrics of its cell."""
    epsilons = matrix.cells["epsilon"].to_numpy(dtype=float)
    steps = np.rint(1000 * np.nan_to_num(epsilons)).astype(int).tolist()
    for metric, values in compute_interval(name, matrix.values):
        for cell, value, step in zip(matrix.cells["cell"], values, steps, strict=True):
            if math.isfinite(value):
                metrics[cell].append(MetricValue(metric, value, step))


def compute_interval(
    name: str,
    values: np.ndarray,
) -> Iterator[tuple[str, list[float]]]:
    """Compute the mean of each column and the ends of its 95 % interval, by metric.

    Examples
    --------
    >>> interval = dict(compute_interval("nicv", np.array([[1.0], [3.0]])))
    >>> interval["nicv"], round(interval["nicv_hi"][0], 2)
    ([2.0], 14.71)
    """
    statistics = column_statistics(values)
    low = statistics.mean - statistics.half_width
    high = statistics.mean + statistics.half_width
    yield name, statistics.mean.tolist()
    yield f"{name}_lo", low.tolist()
    yield f"{name}_hi", high.tolist()


def describe_sweep(
    sweep_tags: Mapping[str, str],
    study: Study,
    rows: pd.DataFrame,
    verdicts: Mapping[str, str],
) -> RunRecord:
    """Describe the run of a sweep: means per method, and verdicts that rest on it.

    Parameters
    ----------
    sweep_tags, study, rows
        As for `describe_runs`.
    verdicts : mapping of str to str
        Verdicts of the claims that name the sweep, by the ids of the claims.
    """
    metrics = [MetricValue("n_cells", float(rows["cell"].nunique()))]
    for metric in filter(is_center_metric, list_metrics(study)):
        matrix = study.matrix(sweep_tags["sweep"], metric)
        metrics += average_methods(area(matrix), f"{metric}_auc")
        metrics += average_methods(matrix, metric)

    tags = {"kind": SWEEP, **sweep_tags}
    for claim, verdict in verdicts.items():
        tags[f"verdict/{claim}"] = verdict
    for verdict in VERDICTS if verdicts else ():
        count = list(verdicts.values()).count(verdict)
        metrics.append(MetricValue(f"claims_{verdict.replace(' ', '_')}", float(count)))
    name = f"{sweep_tags['sweep']} ({sweep_tags['profile']})"
    end = math.ceil(1000 * rows["finished"].max())
    return RunRecord(name, end, tags, metrics)


def average_methods(matrix: SeedMatrix, name: str) -> list[MetricValue]:
    """Average a metric, or its areas, over the data sets that all methods have.

    Returns
    -------
    list of MetricValue
        ``<name>/<method>`` with its interval. Empty where a method has several cells on
        a data set, or no data set is common.
    """
    cells = matrix.cells
    if cells.duplicated(["method", "dataset"]).any():
        return []
    methods = cells["method"].unique()
    n_methods = cells.groupby("dataset")["method"].transform("nunique")
    is_shared = (n_methods == len(methods)).to_numpy()
    if not is_shared.any():
        return []

    metrics = []
    for method in methods:
        columns = is_shared & (cells["method"] == method).to_numpy()
        means = matrix.values[:, columns].mean(axis=1, keepdims=True)
        for metric, (value,) in compute_interval(name, means):
            if math.isfinite(value):
                metrics.append(MetricValue(f"{metric}/{method}", value))
    return metrics


def find_sweeps(check: object) -> set[str]:
    """Return the sweeps that a check names, in its parts and variants too.

    Examples
    --------
    >>> sorted(find_sweeps({"parts": [{"sweep": "a"}, {"sweeps": ["b", "c"]}]}))
    ['a', 'b', 'c']
    """
    if isinstance(check, list | tuple):
        return set().union(*map(find_sweeps, check))
    if not isinstance(check, Mapping):
        return set()
    sweeps: set[str] = set()
    for key, value in check.items():
        if key in ("sweep", "sweeps"):
            sweeps.update([value] if isinstance(value, str) else value)
        else:
            sweeps |= find_sweeps(value)
    return sweeps
