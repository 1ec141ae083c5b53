"""Stored rows as records of MLflow's runs: one for a curve, one for a sweep.

A curve is the cells of a sweep that differ in epsilon alone. Its metrics are means over
the seeds, with ``_lo`` and ``_hi``, their 95 % interval (Student's t), at step
1000 epsilon; ``_auc`` is the area over epsilon. A method without epsilon has the same
value at every step of its sweep.
"""

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd

from pkm.analysis.claims.findings import VERDICTS
from pkm.analysis.tables.statistics import area, column_statistics
from pkm.analysis.tables.study import SeedMatrix, Study
from pkm.experiments.cell.cell import Cell, to_canonical_json
from pkm.schema import BY_NAME

CURVE = "curve"
CELL = "cell"
SWEEP = "sweep"
#: Fields of a cell that are parameters of its run, where they have a value.
PARAM_FIELDS = ("method", "k", "preprocessing", "delta", "bounds_factor")
#: Columns of rows that are tags of a run.
TAG_COLUMNS = ("code", "data", "variant", "adjacency", "trust", "flaws")
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
    """A value of a metric at a step; it is finite, as MLflow keeps no others."""

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
    """

    name: str
    end: int
    tags: dict[str, str]
    metrics: list[MetricValue]
    params: dict[str, str] = field(default_factory=dict)


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
    """
    metrics = compute_metrics(study, sweep_tags["sweep"], with_areas=kind == CURVE)
    groups = group_cells(cells, kind)
    params = [list_params(group[0], kind) for group in groups]
    first_rows = rows.drop_duplicates("cell").set_index("cell")

    records = []
    for name, group, run_params in zip(name_runs(params), groups, params, strict=True):
        keys = [cell.key for cell in group]
        texts = first_rows.loc[keys[0], list(TAG_COLUMNS)].astype(str)
        tags = {"kind": kind, **sweep_tags, **texts[texts != ""]}
        end = math.ceil(1000 * first_rows.loc[keys, "finished"].max())
        values = [value for key in keys for value in metrics[key]]
        records.append(RunRecord(name, end, tags, values, run_params))
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
    for name in (*PARAM_FIELDS, "epsilon") if kind == CELL else PARAM_FIELDS:
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
    texts = pd.DataFrame(params).fillna("")
    n_values = texts.groupby(["method", "dataset"]).transform("nunique")
    names = []
    for values, counts in zip(params, n_values.to_dict("records"), strict=True):
        words = [f"{name}={values[name]}" for name in values if counts.get(name, 1) > 1]
        names.append(" · ".join([values["method"], values["dataset"], *words]))
    return names


def compute_metrics(
    study: Study,
    sweep: str,
    *,
    with_areas: bool,
) -> dict[str, list[MetricValue]]:
    """Compute the metrics of every cell; areas are with the first cell of a curve."""
    metrics: dict[str, list[MetricValue]] = defaultdict(list)
    for metric in study.metrics:
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
    yield name, statistics.mean.tolist()
    yield f"{name}_lo", (statistics.mean - statistics.half_width).tolist()
    yield f"{name}_hi", (statistics.mean + statistics.half_width).tolist()


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
    for metric in filter(is_center_metric, study.metrics):
        matrix = study.matrix(sweep_tags["sweep"], metric)
        metrics += average_methods(area(matrix), f"{metric}_auc")
        metrics += average_methods(matrix, metric)

    tags = {"kind": SWEEP, **sweep_tags}
    tags |= {f"verdict/{claim}": verdict for claim, verdict in verdicts.items()}
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
    n_methods = cells.groupby("dataset")["method"].transform("nunique")
    is_shared = n_methods == cells["method"].nunique()
    metrics = []
    by_method = cells[is_shared].groupby("method", sort=False)
    for method, columns in by_method.groups.items():
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
    named = [value for key, value in check.items() if key in ("sweep", "sweeps")]
    sweeps = {*np.hstack(named).tolist()} if named else set()
    return sweeps.union(*map(find_sweeps, check.values()))
