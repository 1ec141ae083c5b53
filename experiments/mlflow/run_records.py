"""Stored results as records of MLflow's runs: cells, curves over epsilon, sweeps, claims, a report.

The tags are flat, so that a search needs no parent: every run has `kind`, `paper` and `profile`.

    report   a paper at a profile: how many claims have which verdict
    sweep    averages over the data sets, per method
    cell     means over the seeds, with intervals
    curve    areas over epsilon, per method and data set
    claim    a claim of the paper and its verdict

A metric `x` is a mean over seeds; `x_lo` and `x_hi` are its 95 % interval (Student's t), `x_sd` is
the standard deviation, and `n_seeds` the number of seeds.
"""

import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from pkm.analysis.claims.claim import Claim
from pkm.analysis.claims.findings import VERDICTS
from pkm.analysis.tables.statistics import area, column_statistics
from pkm.analysis.tables.study import SeedMatrix, Study
from pkm.experiments.cell.cell import Cell, canonical
from pkm.schema import BY_NAME, names

#: Part of every identity: raised where records of the same results change, so that a sync replaces
#: the runs that an older version has written.
VERSION = 2
TIMES = ("fit_seconds",)
#: Ending of the names of areas over epsilon.
AREA = "auc"
#: Metrics that sweeps are summarized by.
SUMMARIZED = ("nicv", "norm_kmeans_distance")


@dataclass(frozen=True)
class DatasetRecord:
    """The data of a cell, by name and fingerprint; nothing of it is profiled.

    Parameters
    ----------
    name : str
    sha256 : str
    n, d : int
        Points and dimensions.
    """

    name: str
    sha256: str
    n: int
    d: int


@dataclass(frozen=True)
class RunRecord:
    """A run as it is written to MLflow.

    Parameters
    ----------
    identity : str
        32 hexadecimal digits, a function of what the run stands for; a tag, by which a later
        sync finds it.
    name : str
        Shown in the interface.
    start, end : int
        Milliseconds since 1970.
    tags, params : dict of str to str
    metrics : dict of str to float
        Finite values only.
    dataset : DatasetRecord, optional
    """

    identity: str
    name: str
    start: int
    end: int
    tags: dict[str, str]
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    dataset: DatasetRecord | None = None


@dataclass(frozen=True)
class Part:
    """What a run belongs to.

    Parameters
    ----------
    paper, profile : str
    sweep : str, optional
    """

    paper: str
    profile: str
    sweep: str = ""

    @property
    def tags(self) -> dict[str, str]:
        """The tags that say so."""
        sweep = {"sweep": self.sweep} if self.sweep else {}
        return {"paper": self.paper, "profile": self.profile, **sweep}

    @property
    def identity(self) -> str:
        """Identity of the run of this part itself."""
        return identity_of(self.paper, self.profile, self.sweep)

    @property
    def name(self) -> str:
        """Name of the run of this part itself."""
        return f"{self.sweep or self.paper} ({self.profile})"


def identity_of(*parts: object) -> str:
    """Return 32 hexadecimal digits that are a function of some JSON-ready values."""
    return hashlib.sha256(canonical([VERSION, *parts]).encode()).hexdigest()[:32]


def sweep_record(
    part: Part, rows: pd.DataFrame, study: Study, verdicts: Mapping[str, str]
) -> RunRecord:
    """Describe the run of a sweep.

    Parameters
    ----------
    part : Part
    rows : DataFrame
        All rows of the sweep.
    study : Study
        Of the same rows.
    verdicts : mapping of str to str
        Verdicts of the claims that name the sweep, by their ids; empty texts without a report.

    Returns
    -------
    RunRecord
        Metrics ``<metric>_auc/<method>`` where the sweep has several epsilons, and
        ``<metric>/<method>`` where it has one cell per method and data set: averages over the data
        sets that all methods have. Numbers of verdicts.
    """
    start, end = span(rows)
    metrics = {"n_cells": float(rows["cell"].nunique())}
    for name in SUMMARIZED:
        panel = study.matrix(part.sweep, name)
        metrics |= averages(area(panel), f"{name}_{AREA}")
        metrics |= averages(panel, name)
    if any(verdicts.values()):
        metrics |= counts_of(verdicts)
    tags = {"kind": "sweep", **part.tags}
    if verdicts:
        tags["claim"] = " ".join(verdicts)
    return RunRecord(part.identity, part.name, start, end, tags, metrics=metrics)


def report_record(part: Part, rows: pd.DataFrame, verdicts: Mapping[str, str]) -> RunRecord:
    """Describe the run that holds the report on a paper and the numbers of its verdicts."""
    start, end = span(rows)
    tags = {"kind": "report", **part.tags}
    metrics = {"n_cells": float(rows["cell"].nunique())} | counts_of(verdicts)
    return RunRecord(part.identity, part.name, start, end, tags, metrics=metrics)


def counts_of(verdicts: Mapping[str, str]) -> dict[str, float]:
    """Count verdicts, each kind of them.

    Examples
    --------
    >>> counted = counts_of({"a/one": "holds", "a/two": "not run", "a/three": "holds"})
    >>> counted["claims_holds"], counted["claims_not_run"], counted["claims_fails"]
    (2.0, 1.0, 0.0)
    """
    found = list(verdicts.values())
    return {f"claims_{each.replace(' ', '_')}": float(found.count(each)) for each in VERDICTS}


def sweeps_of(check: object) -> set[str]:
    """Return the sweeps that a check names, in its parts and variants too.

    Examples
    --------
    >>> sorted(sweeps_of({"type": "all_of", "parts": [{"sweep": "a"}, {"sweeps": ["b", "c"]}]}))
    ['a', 'b', 'c']
    """
    found: set[str] = set()
    if isinstance(check, Mapping):
        for key, value in check.items():
            if key in ("sweep", "sweeps"):
                found.update([value] if isinstance(value, str) else value)
            else:
                found |= sweeps_of(value)
    elif isinstance(check, list | tuple):
        found = found.union(*map(sweeps_of, check))
    return found


def claim_record(part: Part, claim: Claim, line: Mapping, rows: pd.DataFrame) -> RunRecord:
    """Describe the run of a claim.

    Parameters
    ----------
    part : Part
        The report.
    claim : Claim
    line : mapping
        Its line in the report's table ``claims.csv``.
    rows : DataFrame
        Rows of the report, for its times.
    """
    tags = {
        "kind": "claim",
        **part.tags,
        "claim": claim.id,
        "verdict": line["verdict"],
        "partial": str(line["partial"]).lower(),
        "section": str(claim.section),
        "mlflow.note.content": f"{claim.statement}\n\n{line['numbers']}"[:5000],
    }
    metrics = {
        target: float(line[source])
        for source, target in (("comparisons", "comparisons"), ("seeds", "n_seeds"))
        if math.isfinite(line[source])
    }
    params = {"claim": claim.id, "verdict": line["verdict"]}
    identity = identity_of(part.identity, claim.id, tags, metrics)
    return RunRecord(identity, claim.id, *span(rows), tags, params, metrics)


def cell_record(part: Part, cell: Cell, rows: pd.DataFrame) -> RunRecord:
    """Describe the run of a cell.

    Only what runs are compared by becomes a parameter or a metric, the rest are tags: the table of
    the interface has a column for every parameter and metric.

    Parameters
    ----------
    part : Part
    cell : Cell
    rows : DataFrame
        Its rows, one per seed.
    """
    start, end = span(rows)
    first = rows.iloc[0]
    return RunRecord(
        identity_of(part.identity, cell.key),
        cell.label,
        start,
        end,
        {"kind": "cell", **part.tags, **cell_tags(cell, first)},
        cell_params(cell),
        cell_metrics(cell, rows),
        DatasetRecord(cell.dataset_name, first["data"], int(first["n"]), int(first["d"])),
    )


def cell_params(cell: Cell) -> dict[str, str]:
    """Return the parameters by which cells are selected in the interface."""
    params = {
        "method": cell.method,
        "dataset": cell.dataset_name,
        "k": str(cell.k),
        "epsilon": "none" if cell.epsilon is None else f"{cell.epsilon:g}",
    }
    for name, value in cell.params.items():
        params[name] = json.dumps(value).strip('"')
    for name, value in cell.kind.columns().items():
        params[name] = f"{value:g}" if name == "latency_ms" else str(value)
    return params


def cell_tags(cell: Cell, first: pd.Series) -> dict[str, str]:
    """Return the facts about a cell besides its parameters; `first` is the first of its rows."""
    optional = {
        "half_width": f"{first['half_width']:g}" if math.isfinite(first["half_width"]) else "",
        "references": ", ".join(map(str, first["references"])),
        "flaws": flaws_of(first),
    }
    return {
        "method": cell.method,
        "dataset": cell.dataset_name,
        "adjacency": first["adjacency"],
        "epsilon_spent": f"{first['epsilon_spent']:.9g}",
        "cell_key": cell.key,
        "cell_identity": identity_of(cell.identity()),
        "code_hash": first["code"],
        "data_sha256": first["data"],
        "git": first["git"],
        "variant": cell.variant,
        "notion": first["notion"],
        "trust": first["trust"],
        "view": first["view"],
        "preprocessing": cell.preprocessing,
        "seeds": f"{len(cell.seeds)}: {', '.join(map(str, cell.seeds))}"[:5000],
        "timing": str(cell.timing).lower(),
        "host": first["host"],
        **{name: text for name, text in optional.items() if text},
    }


def flaws_of(first: pd.Series) -> str:
    """Return the ids of a cell's flaws; F-10 is that the domain was read off private points."""
    flaws = set(first["flaws"].split())
    if first["notion"] != "none" and first["private_bounds"]:
        flaws.add("F-10")
    return " ".join(sorted(flaws))


def measured_in(cell: Cell) -> tuple[str, ...]:
    """Name what is measured of a cell's protocol, removals or coresets; nothing of other cells."""
    scoped = (names("metric", scope=scope) for scope in cell.kind.scopes)
    return tuple(itertools.chain.from_iterable(scoped))


def cell_metrics(cell: Cell, rows: pd.DataFrame) -> dict[str, float]:
    """Return means over the seeds with their intervals, and what is the same for all seeds."""
    # The number of centers is worth a column only where the method finds its own.
    n_centers = () if (rows["n_centers"] == cell.k).all() else ("n_centers",)
    # The first fit of a process includes compilation: times are those of cells that measure them.
    times = TIMES if cell.timing else ()
    wanted = dict.fromkeys((*cell.metrics, *n_centers, *times, *measured_in(cell)))
    measured = [name for name in wanted if name in rows]
    metrics = summaries(measured, rows[measured].to_numpy(dtype=float))
    metrics["n_seeds"] = float(len(rows))
    first = rows.iloc[0]
    for name in ("epsilon_spent", "delta", "iterations", "peak_memory_mb"):
        if math.isfinite(first[name]):
            metrics[name] = float(first[name])
    return metrics


def summaries(columns: Sequence[str], values: np.ndarray) -> dict[str, float]:
    """Return mean, 95 % interval and standard deviation of the finite values of each column.

    MLflow keeps no infinite numbers, and one infinite Davies-Bouldin index would hide the others.

    Parameters
    ----------
    columns : sequence of str
    values : ndarray of shape (n_seeds, n_columns)

    Examples
    --------
    >>> found = summaries(["nicv"], np.array([[1.0], [3.0]]))
    >>> found["nicv"], round(found["nicv_hi"], 2)
    (2.0, 14.71)
    """
    mean, half, _, deviation, _ = column_statistics(values)
    found = {}
    for position, name in enumerate(columns):
        found[name] = mean[position]
        found[f"{name}_lo"] = mean[position] - half[position]
        found[f"{name}_hi"] = mean[position] + half[position]
        found[f"{name}_sd"] = deviation[position]
    return {name: float(value) for name, value in found.items() if math.isfinite(value)}


def curve_records(part: Part, study: Study, rows: pd.DataFrame) -> list[RunRecord]:
    """Describe the runs of the curves of a sweep: areas over epsilon per method and data set.

    Parameters
    ----------
    part : Part
    study : Study
        Of the rows of the sweep.
    rows : DataFrame
        The rows of the sweep.

    Returns
    -------
    list of RunRecord
        Metrics ``<metric>_auc`` with intervals; none where the sweep has fewer than two epsilons.
    """
    times = span(rows)
    found: dict[str, dict[str, float]] = {}
    facts: dict[str, dict] = {}
    for metric in study.metrics:
        panel = study.matrix(part.sweep, metric)
        if BY_NAME[metric].scope != "all" or len(panel.cells) == 0:
            continue
        areas = area(panel)
        epsilons = ", ".join(f"{value:g}" for value in panel.epsilons)
        for column, cell in enumerate(areas.cells.to_dict("records")):
            described = [str(cell[name]) for name in names("identity")]
            identity = identity_of(part.identity, described, epsilons)
            values = areas.values[:, [column]]
            summary = summaries([f"{metric}_{AREA}"], values)
            n_seeds = {"n_seeds": float(np.isfinite(values).sum())} if summary else {}
            found.setdefault(identity, {}).update(summary | n_seeds)
            facts[identity] = cell | {"epsilons": epsilons}
    return [
        curve_record(part, identity, facts[identity], metrics, times)
        for identity, metrics in found.items()
        if metrics
    ]


def curve_record(
    part: Part, identity: str, cell: Mapping, metrics: Mapping[str, float], times: tuple[int, int]
) -> RunRecord:
    """Describe the run of one curve, of which `cell` is any cell."""
    params = {
        "method": cell["method"],
        "dataset": cell["dataset"],
        "k": str(cell["k"]),
        "epsilon": cell["epsilons"],
    }
    params |= {name: str(value) for name, value in json.loads(cell["params"]).items()}
    tags = {"kind": "curve", **part.tags}
    tags |= {name: cell[name] for name in ("method", "dataset", "variant", "adjacency", "notion")}
    # Areas of other cells of the same settings are another run.
    return RunRecord(
        identity_of(identity, dict(metrics)),
        f"{cell['method']} · {cell['dataset']} · over ε",
        *times,
        {name: text for name, text in tags.items() if text},
        params,
        dict(metrics),
    )


def averages(panel: SeedMatrix, name: str) -> dict[str, float]:
    """Average a panel over the data sets that all methods have.

    Parameters
    ----------
    panel : SeedMatrix
        Of a metric, or of areas.
    name : str
        Of the metric.

    Returns
    -------
    dict of str to float
        ``<name>/<method>`` with interval and deviation over seeds; nothing where a method has
        several cells on a data set, or no data set is common.
    """
    cells = panel.cells
    if not len(cells) or cells.duplicated(["method", "dataset"]).any():
        return {}
    by_method = dict(list(cells.groupby("method")))
    shared = set.intersection(*(set(part["dataset"]) for part in by_method.values()))
    found = {}
    for method, part in by_method.items():
        chosen = part.index[part["dataset"].isin(shared)]
        if len(chosen):
            values = panel.values[:, chosen].mean(axis=1, keepdims=True)
            of_method = summaries([name], values)
            found |= {f"{key}/{method}": value for key, value in of_method.items()}
    return found


def span(rows: pd.DataFrame) -> tuple[int, int]:
    """Return when the first cell began and the last one ended, in milliseconds since 1970."""
    ends = 1000 * rows["finished"].to_numpy(dtype=float)
    seconds = (rows["fit_seconds"] + rows["metric_seconds"]).to_numpy(dtype=float)
    _, cell = np.unique(rows["cell"].to_numpy(), return_inverse=True)
    spent = np.bincount(cell, seconds)[cell]
    return math.floor((ends - 1000 * spent).min()), math.ceil(ends.max())
