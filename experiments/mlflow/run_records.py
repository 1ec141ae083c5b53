"""Stored rows as records of MLflow's runs: one for a curve, one for a sweep.

A curve is the cells of a sweep that differ in epsilon alone. Its metrics are means over
the seeds, with ``_lo`` and ``_hi``, their 95 % interval (Student's t), at step
1000 epsilon; ``_auc`` is the area over epsilon. A method without epsilon has the same
value at every step of its sweep.
"""

import json
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from pkm.analysis.claims.findings import VERDICTS
from pkm.analysis.tables.statistics import area, column_statistics
from pkm.analysis.tables.study import SeedMatrix, Study
from pkm.experiments.cell.cell import Cell, to_canonical_json
from pkm.schema import names

#: Types of runs, which the tag ``kind`` of a run has.
CURVE = "curve"
CELL = "cell"
SWEEP = "sweep"
#: Fields of a cell that are parameters of its run, where they have a value.
PARAM_FIELDS = ("method", "k", "preprocessing", "delta", "epsilon")
#: Columns of rows that are tags of a run.
TAG_COLUMNS = ["code", "data", "variant", "adjacency", "trust", "flaws"]
#: Times of fits: column, metric, and whether it is for timing cells or for the others.
#: Seeds that are fitted together share the CPU time of their batch.
FIT_TIMES = (
    ("fit_seconds", "fit_seconds", True),
    ("fit_cpu_seconds", "batch_cpu_seconds_per_seed", False),
    ("compile_seconds", "compile_seconds", False),
)
#: Metrics of centers; areas are of such metrics alone.
CENTER_METRICS = names("metric", scope="all")


@dataclass(frozen=True)
class RunRecord:
    """A run as it is written to MLflow.

    Legends show its `name`; `end` is when its last cell was done, in milliseconds since
    1970; a metric is a name, a value and a step.
    """

    name: str
    end: int
    tags: dict[str, str]
    metrics: Sequence[tuple]
    params: dict[str, str] = field(default_factory=dict)


def describe_runs(
    sweep_tags: Mapping[str, str],
    cells: Collection[Cell],
    study: Study,
    rows: pd.DataFrame,
    run_type: str,
) -> list[RunRecord]:
    """Describe the runs of the curves, or of the cells, of a sweep.

    `sweep_tags` are paper, profile and sweep; `cells` are those that have rows; `study`
    has the same rows; `run_type` is `CURVE` or `CELL`.
    """
    groups: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        groups[to_canonical_json(identify_run(cell, run_type))].append(cell)
    runs = list(groups.values())
    run_of = {cell.key: i for i, of_run in enumerate(runs) for cell in of_run}
    metrics: list[list[tuple]] = [[] for _ in runs]
    values = compute_metrics(study, sweep_tags["sweep"], with_areas=run_type == CURVE)
    for cell, *metric in values.itertuples(index=False):
        metrics[run_of[cell]].append(tuple(metric))

    # A run has the tags of its first cell, and ends with its last one.
    firsts = rows.drop_duplicates("cell")
    by_run = firsts.groupby(firsts["cell"].map(run_of))
    texts = by_run[TAG_COLUMNS].first().astype(str)
    tags = texts.assign(kind=run_type, **sweep_tags).to_dict("records")
    ends = np.ceil(1000 * by_run["finished"].max()).astype(int)
    params = [list_params(of_run[0], run_type) for of_run in runs]
    return list(map(RunRecord, name_runs(params), ends, tags, metrics, params))


def identify_run(cell: Cell, run_type: str) -> dict:
    """Return what the cells of a run share: of a curve, all except epsilon."""
    identity = cell.identity() | {"data": cell.data}
    if run_type == CURVE:
        del identity["epsilon"]
    return identity


def list_params(cell: Cell, run_type: str) -> dict[str, str]:
    """List the parameters by which runs are selected, compared and named."""
    shared = identify_run(cell, run_type)
    params = {"dataset": cell.dataset_name}
    params |= {name: shared.get(name) for name in PARAM_FIELDS}
    params |= {**cell.params, **cell.kind.columns(), "seeds": len(cell.seeds)}
    return {
        name: json.dumps(value).strip('"')
        for name, value in params.items()
        if value is not None
    }


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
    run_names = []
    for values, counts in zip(params, n_values.to_dict("records"), strict=True):
        words = [f"{name}={values[name]}" for name in values if counts.get(name, 1) > 1]
        run_names.append(" · ".join([values["method"], values["dataset"], *words]))
    return run_names


def compute_metrics(
    study: Study,
    sweep: str,
    *,
    with_areas: bool,
) -> pd.DataFrame:
    """Compute the metrics of every cell; areas are with the first cell of a curve."""
    matrices = {}
    for metric in study.metrics:
        matrix = study.matrix(sweep, metric)
        matrices[metric] = matrix.broadcast()
        if with_areas and metric in CENTER_METRICS:
            matrices[f"{metric}_auc"] = area(matrix)
    for column, name, timing in FIT_TIMES:
        matrix = study.matrix(sweep, column)
        has_time = matrix.cells["timing"].to_numpy(dtype=bool) == timing
        matrices[name] = matrix.take(has_time).broadcast()
    return pd.concat([list_values(name, matrices[name]) for name in matrices])


def list_values(name: str, matrix: SeedMatrix) -> pd.DataFrame:
    """List mean and interval of each cell of a matrix; MLflow keeps finite ones alone.

    The columns are cell, metric, value and step. Equal values have no interval.
    """
    statistics = column_statistics(matrix.values)
    mean = statistics["mean"]
    half_width = statistics["half_width"]
    # Deviations of equal values are above zero where their mean is rounded.
    half_width = half_width.where(half_width > 1e-12 * np.abs(mean))
    columns = {
        "cell": matrix.cells["cell"],
        "step": np.rint(1000 * matrix.cells["epsilon"].fillna(0)).astype(int),
        name: mean,
        f"{name}_lo": mean - half_width,
        f"{name}_hi": mean + half_width,
    }
    values = pd.DataFrame(columns).melt(["cell", "step"], var_name="metric")
    is_finite = np.isfinite(values["value"])
    return values.loc[is_finite, ["cell", "metric", "value", "step"]]


def describe_sweep(
    sweep_tags: Mapping[str, str],
    study: Study,
    rows: pd.DataFrame,
    verdicts: Mapping[str, str],
) -> RunRecord:
    """Describe the run of a sweep: means per method, and verdicts that rest on it.

    `verdicts` are those of the claims that name the sweep, by the ids of the claims.
    """
    counts = {"n_cells": rows["cell"].nunique()}
    for verdict in VERDICTS if verdicts else ():
        name = f"claims_{verdict.replace(' ', '_')}"
        counts[name] = list(verdicts.values()).count(verdict)
    metrics = [pd.DataFrame(counts.items(), columns=["metric", "value"])]
    for metric in filter(CENTER_METRICS.__contains__, study.metrics):
        matrix = study.matrix(sweep_tags["sweep"], metric)
        metrics.append(average_methods(area(matrix), f"{metric}_auc"))
        metrics.append(average_methods(matrix, metric))

    tags = {"kind": SWEEP, **sweep_tags}
    tags |= {f"verdict/{claim}": verdict for claim, verdict in verdicts.items()}
    name = f"{sweep_tags['sweep']} ({sweep_tags['profile']})"
    end = math.ceil(1000 * rows["finished"].max())
    values = pd.concat(metrics).assign(step=0)[["metric", "value", "step"]]
    return RunRecord(name, end, tags, list(values.itertuples(index=False)))


def average_methods(matrix: SeedMatrix, name: str) -> pd.DataFrame:
    """Average a metric, or its areas, over the data sets that all methods have.

    Empty where a method has several cells on a data set, or no data set is common.
    """
    cells = matrix.cells
    n_methods = cells.groupby("dataset")["method"].transform("nunique")
    is_shared = n_methods == cells["method"].nunique()
    if cells.duplicated(["method", "dataset"]).any() or not is_shared.any():
        return pd.DataFrame(columns=["metric", "value"])
    by_method = cells[is_shared].groupby("method", sort=False).groups
    means = [matrix.values[:, columns].mean(axis=1) for columns in by_method.values()]
    methods = pd.DataFrame({"cell": list(by_method), "epsilon": math.nan})
    values = list_values(
        name, replace(matrix, cells=methods, values=np.transpose(means))
    )
    return values.assign(metric=values["metric"] + "/" + values["cell"])


def find_sweeps(check: object) -> set[str]:
    """Return the sweeps that a check names, in its parts and variants too.

    Examples
    --------
    >>> sorted(find_sweeps({"parts": [{"sweep": "a"}, {"sweep": ["b", "c"]}]}))
    ['a', 'b', 'c']
    """
    if isinstance(check, list | tuple):
        return set().union(*map(find_sweeps, check))
    if not isinstance(check, Mapping):
        return set()
    sweeps = np.atleast_1d(check.get("sweep", ())).tolist()
    return set(sweeps).union(*map(find_sweeps, check.values()))
