"""MLflow as a view of the cell store: one experiment per paper, one parent run per sweep, one child run per cell.

    pkm sync paper=fastlloyd profile=quick
    pkm dashboard

`sync` brings MLflow up to date with the store; `dashboard` serves MLflow's interface on this machine and prints the
address of a view whose columns are chosen already.

Truth stays in the store; the projection can be deleted and rebuilt at any time. A run's identity is computed from the
cell's key, so a second sync adds nothing, and a cell that was run again by changed code replaces its older run. One
writer only: the projection is made by one process after the cells are done, never by workers.

Into a database the runs are written in bulk, through MLflow's own table definitions (its client needs about 50 ms a
run); into a tracking server through the client.
"""

import argparse
import hashlib
import json
import logging
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from scipy import stats

from pkm.experiments.cell import Cell, canonical, to_json
from pkm.experiments.configuration import load
from pkm.experiments.environment import git_commit
from pkm.experiments.plan import Plan, make_plan
from pkm.experiments.rows import MEASURED
from pkm.experiments.run import REFUSALS, consoles
from pkm.experiments.store import Store

TIMES = ("fit_seconds", "metric_seconds")
#: What runs of federated clusters that can forget are compared by: without removals, and with.
LOSSES = ("loss_ratio", "loss_ratio_nearest")
REMOVALS = (
    "removal_mean_ms", "removal_p50_ms", "removal_p95_ms", "removal_p99_ms", "removal_max_ms", "removal_client_ms",
    "removal_server_ms", "retrain_ms", "deletions_per_second", "reseeded",
)  # fmt: skip
#: The kind of experiment in MLflow's words; the name of the prepared view and the columns it shows.
KIND = "custom_model_development"
VIEW = "bench"
VIEW_TAG = f"mlflow.sharedViewState.{VIEW}"
#: Widths in pixels, so that all fit beside the panel that MLflow opens at the side.
COLUMNS = {
    "params.`method`": 120,
    "params.`dataset`": 90,
    "params.`epsilon`": 70,
    "metrics.`nicv_mean`": 105,
    "metrics.`silhouette_mean`": 105,
    "metrics.`fit_seconds_mean`": 105,
}
#: Shown as well where a cell of the paper asks for them.
MORE_METRICS = (
    "inertia",
    "accuracy",
    "norm_kmeans_distance",
    "norm_reverse_kmeans_distance",
    "n_centers",
    "iteration_ms",
)
#: Runs per transaction.
BATCH = 500


@dataclass(frozen=True)
class RunRecord:
    """A run as MLflow will hold it, however it is written.

    Parameters
    ----------
    identity : str
        32 hexadecimal digits, a function of what the run stands for; the run's id where the database is ours.
    name : str
        What people see.
    start, end : int
        Milliseconds since 1970.
    params, tags : dict of str to str
    metrics : dict of str to float
        Finite values only.
    status : str
        FINISHED or FAILED.
    """

    identity: str
    name: str
    start: int
    end: int
    tags: dict[str, str]
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    status: str = "FINISHED"


@dataclass(frozen=True)
class Synced:
    """What a sync did: runs added, runs that were there, older runs of changed code removed."""

    added: int
    kept: int
    removed: int


def sync(
    plan: Plan,
    store: Store,
    *,
    uri: str,
    artifacts: str,
    profile: str = "",
    report: Path | None = None,
) -> Synced:
    """Bring MLflow up to date with the store.

    Parameters
    ----------
    plan : Plan
        Which cells, under which sweeps.
    store : Store
        Where their rows are.
    uri : str
        A database (``sqlite:///results/mlflow.db``, ``postgresql://...``) or a tracking server (``http://...``).
    artifacts : str
        Folder for artifacts where `uri` is a database. A server keeps its own.
    profile : str, optional
        Name of the profile: parent runs are kept apart by it.
    report : Path, optional
        Folder of the report; its page, figures and tables become artifacts of the parents.

    Returns
    -------
    Synced
        How many runs were added, kept and removed.
    """
    client = open_client(uri)
    experiment = open_experiment(client, plan.paper, artifacts)
    added = kept = removed = 0
    # Files of equal content share a cell, and so a run.
    rows = plan.rows(store)
    rows = rows if rows.empty else rows.drop_duplicates(["sweep", "cell", "seed"])
    groups = (
        {}
        if rows.empty
        else {key: cell for key, cell in rows.groupby(["sweep", "cell"], sort=False)}
    )
    writer = (
        DatabaseWriter(client, experiment) if is_database(uri) else ClientWriter(client, experiment)
    )
    for sweep in plan.sweeps:
        asked: dict[str, Cell] = {}
        for name, cell in plan.entries:
            if name == sweep and (sweep, cell.key) in groups:
                asked.setdefault(cell.key, cell)
        cells = list(asked.values())
        if not cells:
            continue
        parent = parent_record(plan, sweep, profile, [groups[sweep, cell.key] for cell in cells])
        known = writer.children(parent.identity)
        parent_id = writer.parent(parent)
        children = [
            child_record(cell, groups[sweep, cell.key], parent.identity, parent_id)
            for cell in cells
        ]
        fresh = [child for child in children if child.identity not in known]
        current = {child.tags["cell_identity"]: child.identity for child in children}
        stale = [old for old, identity in known.items() if current.get(identity, old) != old]
        writer.write(fresh)
        writer.remove(stale)
        added, kept, removed = (
            added + len(fresh),
            kept + len(children) - len(fresh),
            removed + len(stale),
        )
        if fresh or stale or report is not None:
            attach(client, parent_id, sweep, rows[rows["sweep"] == sweep], report)
    prepare_view(
        client,
        experiment,
        {metric for cell in plan.cells for metric in (*cell.metrics, *measured_in(cell))},
    )
    return Synced(added, kept, removed)


def open_client(uri: str):
    """Return an MLflow client that keeps to itself: no telemetry, no look-ups of the environment.

    Parameters
    ----------
    uri : str
        As for `sync`. The folder of a SQLite file is created.
    """
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ["DO_NOT_TRACK"] = "true"
    if uri.startswith("sqlite:///"):
        Path(uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    # Creating the tables is announced line by line; nobody needs to read it.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri)


def open_experiment(client, paper: str, artifacts: str) -> str:
    """Return the id of the paper's experiment, created on first use.

    The experiment is tagged as one of model development: without the tag the interface asks what kind it is, and may
    open on the page for traces instead of the table of runs.
    """
    found = client.get_experiment_by_name(paper)
    if found is None:
        place = (
            (Path(artifacts).resolve() / paper).as_uri()
            if is_database(client.tracking_uri)
            else None
        )
        found = client.get_experiment(client.create_experiment(paper, artifact_location=place))
    if found.tags.get("mlflow.experimentKind") != KIND:
        client.set_experiment_tag(found.experiment_id, "mlflow.experimentKind", KIND)
    return found.experiment_id


def prepare_view(client, experiment: str, metrics: Collection[str] = ()) -> None:
    """Save the prepared view in an experiment, with the columns that the paper's metrics call for.

    The interface shows no parameter and no metric until somebody picks columns, and folds children under their parents
    as long as runs are sorted by date. A saved view is a tag of the experiment that holds such picks; this one lists
    cells, those with the best silhouette first and those without one last.
    """
    columns = COLUMNS | {f"metrics.`{name}_mean`": 105 for name in MORE_METRICS if name in metrics}
    state = {
        "selectedColumns": list(columns),
        "columnOrder": list(columns),
        "columnWidths": columns,
        "searchFilter": "tags.kind = 'cell'",
        "orderByKey": "metrics.`silhouette_mean`",
        "orderByAsc": False,
    }
    view = json.dumps({"name": VIEW, "createdAt": 0, "updatedAt": 0, "state": json.dumps(state)})
    client.set_experiment_tag(experiment, VIEW_TAG, view)


def view_address(experiment: str, server: str) -> str:
    """Return the address of the prepared view of an experiment."""
    mode = "workflowType=machine_learning&compareRunsMode=TABLE"
    return f"{server}/#/experiments/{experiment}/runs?viewStateShareKey={VIEW}&{mode}"


def is_database(uri: str) -> bool:
    """Tell a database from a tracking server."""
    return not uri.startswith(("http://", "https://"))


def identity_of(*parts) -> str:
    """Return 32 hexadecimal digits that are a function of some JSON-ready values."""
    return hashlib.sha256(canonical(list(parts)).encode()).hexdigest()[:32]


def parent_record(
    plan: Plan, sweep: str, profile: str, groups: Sequence[pd.DataFrame]
) -> RunRecord:
    """Describe the parent run of a sweep."""
    name = f"{sweep} ({profile})" if profile else sweep
    start, end = span(groups)
    tags = {"kind": "sweep", "sweep": sweep, "profile": profile, "git": git_commit()}
    return RunRecord(identity_of(plan.paper, profile, sweep), name, start, end, tags)


def measured_in(cell: Cell) -> tuple[str, ...]:
    """Name what is measured of a cell's protocol or of its removals: nothing in an ordinary cell."""
    if cell.federation is not None:
        return MEASURED
    if cell.unlearning is None:
        return ()
    return LOSSES + (REMOVALS if dict(cell.unlearning)["removals"] else ())


def child_record(cell: Cell, rows: pd.DataFrame, parent: str, parent_id: str) -> RunRecord:
    """Describe the child run of a cell.

    Only what a person compares runs by becomes a parameter or a metric, the rest are tags: the interface's table shows
    a column for every parameter and metric.
    """
    first = rows.iloc[0]
    params = {"method": cell.method, "dataset": cell.dataset_name, "k": str(cell.k)}
    params["epsilon"] = "none" if cell.epsilon is None else f"{cell.epsilon:g}"
    params |= {name: json.dumps(to_json(value)).strip('"') for name, value in cell.params}
    setting = cell.federation or cell.unlearning or ()
    params |= {
        name: f"{value:g}" if name == "latency_ms" else str(value) for name, value in setting
    }
    tags = {
        "mlflow.parentRunId": parent_id,
        "kind": "cell",
        "cell": cell.key,
        "cell_identity": identity_of(cell.identity()),
        "code": first["code"],
        "data": first["data"],
        "git": first["git"],
        "preprocessing": cell.preprocessing,
        "private_bounds": str(bool(first["private_bounds"])).lower(),
        "variant": cell.variant,
        "notion": first["notion"],
        "adjacency": first["adjacency"],
        "trust": first["trust"],
        "view": first["view"],
        "flaws": first["flaws"],
        "seeds": f"{len(cell.seeds)}: {', '.join(map(str, cell.seeds))}"[:5000],
        "n": str(first["n"]),
        "d": str(first["d"]),
        "half_width": f"{first['half_width']:g}",
        "timing": str(cell.timing).lower(),
        "references": first["references"],
        "host": first["host"],
    }
    metrics = {}
    # The number of centers is worth a column only where the method finds its own.
    found = () if (rows["n_centers"] == cell.k).all() else ("n_centers",)
    for name in dict.fromkeys((*cell.metrics, *found, *TIMES, *measured_in(cell))):
        metrics |= summary(name, rows[name])
    for name in ("epsilon_spent", "delta", "iterations", "peak_memory_mb"):
        if math.isfinite(first[name]):
            metrics[name] = float(first[name])
    start, end = span([rows])
    return RunRecord(identity_of(parent, cell.key), cell.label, start, end, tags, params, metrics)


def summary(name: str, values: pd.Series) -> dict[str, float]:
    """Return mean, standard deviation and the 95 % interval of the mean, of the finite values.

    MLflow keeps no infinite numbers, and one infinite Davies-Bouldin index would hide the others.

    Examples
    --------
    >>> summary("nicv", pd.Series([1.0, 3.0]))["nicv_mean"]
    2.0
    """
    finite = values[values.map(math.isfinite)]
    count = len(finite)
    if count == 0:
        return {}
    mean = float(finite.mean())
    if count == 1:
        return {f"{name}_mean": mean}
    deviation = float(finite.std(ddof=1))
    half = stats.t.ppf(0.975, count - 1) * deviation / math.sqrt(count)
    return {
        f"{name}_mean": mean,
        f"{name}_sd": deviation,
        f"{name}_lo": mean - half,
        f"{name}_hi": mean + half,
    }


def span(groups: Iterable[pd.DataFrame]) -> tuple[int, int]:
    """Return when the first of some cells began and the last one ended, in milliseconds since 1970."""
    starts, ends = [], []
    for rows in groups:
        end = round(1000 * float(rows["finished"].iloc[0]))
        ends.append(end)
        starts.append(
            end - math.ceil(1000 * float(rows["fit_seconds"].sum() + rows["metric_seconds"].sum()))
        )
    return min(starts), max(ends)


class DatabaseWriter:
    """Writes runs in bulk into MLflow's database, in its own tables; a run's id is its identity."""

    def __init__(self, client, experiment: str):
        # The client has opened and, where new, created the database; its engine is used, not a second one.
        self.store = client._tracking_client.store
        self.client, self.experiment = client, experiment
        self.place = client.get_experiment(experiment).artifact_location

    def children(self, parent: str) -> dict[str, str]:
        """Return run id to cell identity of the active children of a parent."""
        from mlflow.store.tracking.dbmodels.models import SqlRun, SqlTag
        from sqlalchemy import and_, select

        of_parent, of_cell = SqlTag.__table__.alias(), SqlTag.__table__.alias()
        runs = SqlRun.__table__
        query = (
            select(runs.c.run_uuid, of_cell.c.value)
            .join(
                of_parent,
                and_(
                    of_parent.c.run_uuid == runs.c.run_uuid, of_parent.c.key == "mlflow.parentRunId"
                ),
            )
            .join(
                of_cell,
                and_(of_cell.c.run_uuid == runs.c.run_uuid, of_cell.c.key == "cell_identity"),
            )
            .where(of_parent.c.value == parent, runs.c.lifecycle_stage == "active")
        )
        with self.store.ManagedSessionMaker() as session:
            return dict(session.execute(query).all())

    def parent(self, record: RunRecord) -> str:
        """Write a parent run unless it is there; return its id."""
        from mlflow.store.tracking.dbmodels.models import SqlRun

        with self.store.ManagedSessionMaker() as session:
            there = session.get(SqlRun, record.identity) is not None
        if not there:
            self.write([record])
        return record.identity

    def write(self, records: Sequence[RunRecord]) -> None:
        """Insert runs with their parameters, metrics and tags, all or nothing per batch."""
        from mlflow.store.tracking.dbmodels.models import (
            SqlLatestMetric,
            SqlMetric,
            SqlParam,
            SqlRun,
            SqlTag,
        )
        from sqlalchemy import insert

        for begin in range(0, len(records), BATCH):
            batch = records[begin : begin + BATCH]
            with self.store.ManagedSessionMaker() as session:
                session.execute(insert(SqlRun.__table__), [self._run(record) for record in batch])
                for table, entries in (
                    (
                        SqlTag,
                        [entry for record in batch for entry in pairs(record, self._tags(record))],
                    ),
                    (
                        SqlParam,
                        [entry for record in batch for entry in pairs(record, record.params)],
                    ),
                    (SqlMetric, [entry for record in batch for entry in measured(record)]),
                    (SqlLatestMetric, [entry for record in batch for entry in measured(record)]),
                ):
                    if entries:
                        session.execute(insert(table.__table__), entries)

    def remove(self, identities: Sequence[str]) -> None:
        """Mark runs as deleted, as the interface's own button does."""
        for identity in identities:
            self.client.delete_run(identity)

    def _run(self, record: RunRecord) -> dict:
        return {
            "run_uuid": record.identity,
            "name": record.name,
            "source_type": "LOCAL",
            "source_name": "",
            "entry_point_name": "",
            "user_id": "",
            "source_version": "",
            "status": record.status,
            "start_time": record.start,
            "end_time": record.end,
            "lifecycle_stage": "active",
            "artifact_uri": f"{self.place}/{record.identity}/artifacts",
            "experiment_id": int(self.experiment),
        }

    @staticmethod
    def _tags(record: RunRecord) -> dict[str, str]:
        return record.tags | {"mlflow.runName": record.name}


def pairs(record: RunRecord, values: dict[str, str]) -> list[dict]:
    """Return the table rows of parameters or tags."""
    return [
        {"run_uuid": record.identity, "key": key, "value": value} for key, value in values.items()
    ]


def measured(record: RunRecord) -> list[dict]:
    """Return the table rows of metrics."""
    fixed = {"run_uuid": record.identity, "timestamp": record.end, "step": 0, "is_nan": False}
    return [fixed | {"key": key, "value": value} for key, value in record.metrics.items()]


class ClientWriter:
    """Writes runs through MLflow's client, for a tracking server; runs are found again by the tag ``identity``."""

    def __init__(self, client, experiment: str):
        self.client, self.experiment = client, experiment
        self.ids: dict[str, str] = {}

    def children(self, parent: str) -> dict[str, str]:
        """Return identity to cell identity of the active children of a parent."""
        found = self._search(f"tags.parent_identity = '{parent}'")
        self.ids |= {run.data.tags["identity"]: run.info.run_id for run in found}
        return {run.data.tags["identity"]: run.data.tags["cell_identity"] for run in found}

    def parent(self, record: RunRecord) -> str:
        """Write a parent run unless it is there; return its id."""
        self.parent_identity = record.identity
        found = self._search(f"tags.identity = '{record.identity}'")
        return found[0].info.run_id if found else self._write(record, {})

    def write(self, records: Sequence[RunRecord]) -> None:
        """Create runs one by one."""
        for record in records:
            self._write(record, {"parent_identity": self.parent_identity})

    def remove(self, identities: Sequence[str]) -> None:
        """Mark runs as deleted."""
        for identity in identities:
            self.client.delete_run(self.ids[identity])

    def _write(self, record: RunRecord, more: dict[str, str]) -> str:
        from mlflow.entities import Metric, Param

        tags = record.tags | more | {"identity": record.identity}
        run = self.client.create_run(
            self.experiment, start_time=record.start, tags=tags, run_name=record.name
        )
        self.client.log_batch(
            run.info.run_id,
            metrics=[Metric(key, value, record.end, 0) for key, value in record.metrics.items()],
            params=[Param(key, value) for key, value in record.params.items()],
        )
        self.client.set_terminated(run.info.run_id, record.status, record.end)
        return run.info.run_id

    def _search(self, condition: str) -> list:
        found, token = [], None
        while True:
            page = self.client.search_runs(
                [self.experiment], condition, max_results=1000, page_token=token
            )
            found += page
            token = page.token
            if not token:
                return found


def attach(client, parent_id: str, sweep: str, rows: pd.DataFrame, report: Path | None) -> None:
    """Make the per-seed table, and the report where there is one, artifacts of a parent run."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / f"{sweep}.parquet"
        rows.to_parquet(table, index=False)
        client.log_artifact(parent_id, str(table), "rows")
        if report is not None:
            copy = Path(folder) / "report"
            # The page holds its figures and tables; of the files beside it the images alone can be looked at here.
            shutil.copytree(report, copy, ignore=shutil.ignore_patterns("*.pdf", "tables"))
            client.log_artifacts(parent_id, str(copy), "report")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; see the module's text.

    Returns
    -------
    int
        Exit code: 0, or 2 if the request was refused.
    """
    parser = argparse.ArgumentParser(
        prog="pkm sync",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "verb", choices=["sync", "dashboard"], help="update the projection, or look at it"
    )
    parser.add_argument(
        "--port", type=int, default=5000, help="where the dashboard is served (default: 5000)"
    )
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help="changes to conf/config.yaml"
    )
    arguments = parser.parse_intermixed_args(argv)
    console, errors = consoles()
    try:
        config = load(arguments.overrides)
        if config.tracking.name == "none":
            raise ValueError("tracking=none has nothing to show: use tracking=mlflow")
        if arguments.verb == "dashboard":
            return dashboard(config, arguments.port, console)
        plan, store = (
            make_plan(config.paper, config.profile, mirror=config.data),
            Store(config.results),
        )
        store.check_writable()
        folder = store.report_folder(plan.paper, config.profile.name)
        done = sync(
            plan,
            store,
            uri=config.tracking.uri,
            artifacts=config.tracking.artifacts,
            profile=config.profile.name,
            report=folder if folder.is_dir() else None,
        )
    except REFUSALS as error:
        errors.print(f"error: {error}", style="red", markup=False, highlight=False)
        return 2
    console.print(
        f"{done.added} runs added, {done.kept} were there, {done.removed} replaced", soft_wrap=True
    )
    return 0


def dashboard(config, port: int, console) -> int:
    """Serve MLflow's interface on this machine until it is stopped, and say where the prepared views are.

    Parameters
    ----------
    config : DictConfig
        From `pkm.experiments.configuration.load`.
    port : int
        Port of the local server.
    console : rich.console.Console
        Where to print.

    Returns
    -------
    int
        Exit code of the server, 0 if it was stopped from the keyboard.
    """
    uri, server = config.tracking.uri, f"http://127.0.0.1:{port}"
    client = open_client(uri)
    experiments = [found for found in client.search_experiments() if VIEW_TAG in found.tags]
    if not experiments:
        console.print(f"nothing is projected to {uri} yet: run `pkm sync` first")
    for found in experiments:
        console.print(
            f"{found.name}: {view_address(found.experiment_id, server)}",
            soft_wrap=True,
            highlight=False,
        )
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--workers",
        "1",
    ]
    artifacts = Path(config.tracking.artifacts).resolve().as_uri()
    # MLflow's background jobs (scoring, roll-ups of traces) have nothing to do here.
    os.environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"
    try:
        return subprocess.call(
            [*command, "--backend-store-uri", uri, "--default-artifact-root", artifacts]
        )
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
