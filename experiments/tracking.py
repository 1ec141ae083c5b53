"""MLflow as a view of the cell store: an experiment per paper, with a run per sweep and per cell.

    pkm sync paper=fastlloyd profile=quick
    pkm dashboard

`sync` brings MLflow up to date with the store; `dashboard` serves MLflow's interface on this
machine and prints the address of a view whose columns are chosen already.

Truth stays in the store; the projection can be deleted and rebuilt at any time. The run of a cell
is a child of the run of its sweep. A run's identity is computed from the cell's key, so a second
sync adds nothing, and a cell that was run again by changed code replaces its older run. One writer
only: the projection is made by one process after the cells are done, never by workers.
"""

import argparse
import hashlib
import json
import logging
import math
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pandas as pd
import pyarrow.parquet as pq

from pkm.arrow import to_table
from pkm.experiments.cell import Cell, canonical
from pkm.experiments.cli import consoles, exit_code
from pkm.experiments.configuration import load
from pkm.experiments.environment import git_commit
from pkm.experiments.plan import Plan, make_plan
from pkm.experiments.settings import require
from pkm.experiments.store import Store
from pkm.schema import names

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from omegaconf import DictConfig
    from rich.console import Console

TIMES = ("fit_seconds", "metric_seconds")
#: The kind of experiment in MLflow's words; the name of the prepared view and the columns it shows.
KIND = "custom_model_development"
VIEW = "bench"
VIEW_TAG = f"mlflow.sharedViewState.{VIEW}"
#: Widths in pixels, so that all fit next to the side panel of MLflow.
COLUMNS = {
    "params.`method`": 120,
    "params.`dataset`": 90,
    "params.`epsilon`": 70,
    "metrics.`nicv_mean`": 105,
    "metrics.`silhouette_mean`": 105,
    "metrics.`fit_seconds_mean`": 105,
}
#: Shown as well where a cell of the paper has them.
MORE_METRICS = (
    "inertia",
    "accuracy",
    "norm_kmeans_distance",
    "norm_reverse_kmeans_distance",
    "n_centers",
    "iteration_ms",
)
#: Keys of `pkm reproduce` that say what is run and how.
RUN_KEYS = ("verb", "sweeps", "jobs", "backend", "fetch")
#: Runs per page of a search.
PAGE = 1000
SQLITE = "sqlite:///"
#: Seconds within which a server or a database has to answer, and the usual ports of those.
REACH_SECONDS = 5
PORTS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306, "mssql": 1433}


class TrackingError(OSError):
    """MLflow cannot be reached or written; the message says why and what to do."""


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
    params, tags : dict of str to str
    metrics : dict of str to float
        Finite values only.
    """

    identity: str
    name: str
    start: int
    end: int
    tags: dict[str, str]
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Synced:
    """What a sync did: runs added, runs that were there, older runs of changed code removed."""

    added: int = 0
    kept: int = 0
    removed: int = 0

    def __add__(self, other: "Synced") -> "Synced":
        return Synced(
            self.added + other.added, self.kept + other.kept, self.removed + other.removed
        )


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
        A database (``sqlite:///results/mlflow.db``, ``postgresql://...``) or a tracking server
        (``http://...``).
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

    Raises
    ------
    TrackingError
        If MLflow cannot be reached or written, in whatever way. The store is as it was.
    """
    with failures_told(uri):
        check_reachable(uri)
        return update(plan, store, open_client(uri), artifacts, profile, report)


def project(
    plan: Plan,
    store: Store,
    config: "DictConfig",
    console: "Console",
    *,
    profile: str = "",
    report: Path | None = None,
) -> None:
    """Bring MLflow up to date after a run; that it cannot be is told, and ends nothing.

    Parameters
    ----------
    plan, store, profile, report
        As for `sync`.
    config : DictConfig
        Whose ``tracking`` says where MLflow is.
    console : rich.console.Console
        Where to print.
    """
    tracking = config.tracking
    try:
        synced = sync(
            plan,
            store,
            uri=tracking.uri,
            artifacts=tracking.artifacts,
            profile=profile,
            report=report,
        )
    except TrackingError as error:
        console.print(str(error), style="yellow", markup=False, soft_wrap=True)
        return
    console.print(
        f"MLflow: {synced.added} runs added, {synced.kept} were there ({tracking.uri})",
        soft_wrap=True,
    )


@contextmanager
def failures_told(uri: str) -> Iterator[None]:
    """Turn what MLflow and its database raise into one error of one line."""
    set_environment()
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (OSError, sqlite3.Error, MlflowException, SQLAlchemyError) as error:
        cause = str(error).partition("\n")[0]
        advice = "`pkm sync` brings it up to date later"
        if uri.startswith(SQLITE):
            advice = "where the file is damaged delete it; `pkm sync` makes it anew from the store"
        raise TrackingError(f"MLflow at {uri} was not updated ({cause}): {advice}") from error


def check_reachable(uri: str) -> None:
    """Raise an error at once where MLflow would repeat its attempts for minutes."""
    if uri.startswith(SQLITE):
        path = Path(uri.removeprefix(SQLITE))
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=REACH_SECONDS)) as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute("SELECT count(*) FROM sqlite_master")
        return
    address = urlsplit(uri)
    port = address.port or PORTS.get(address.scheme.partition("+")[0])
    if address.hostname and port:
        socket.create_connection((address.hostname, port), timeout=REACH_SECONDS).close()


def update(
    plan: Plan,
    store: Store,
    client: "MlflowClient",
    artifacts: str,
    profile: str,
    report: Path | None,
) -> Synced:
    """Add, replace and remove runs until MLflow shows what is stored; see `sync`."""
    experiment = open_experiment(client, plan.paper, artifacts)
    writer = RunWriter(client, experiment)
    rows = plan.rows(store)
    if not rows.empty:
        # Files of equal content share a cell, and so a run.
        rows = rows.drop_duplicates(["sweep", "cell", "seed"])
    synced = Synced()
    for sweep in plan.sweeps:
        finished = {} if rows.empty else dict(list(rows[rows["sweep"] == sweep].groupby("cell")))
        cells = {cell.key: cell for name, cell in plan.entries if name == sweep}
        cells = {key: cell for key, cell in cells.items() if key in finished}
        if not cells:
            continue
        parent = parent_record(plan, sweep, profile, list(finished.values()))
        parent_id = writer.parent(parent)
        children = [
            child_record(cell, finished[key], parent.identity, parent_id)
            for key, cell in cells.items()
        ]
        change = write_children(writer, parent_id, children)
        if change.added or change.removed or report is not None:
            attach(client, parent_id, sweep, rows[rows["sweep"] == sweep], report)
        synced += change
    metrics = {name for cell in plan.cells for name in (*cell.metrics, *measured_in(cell))}
    prepare_view(client, experiment, metrics)
    return synced


def write_children(writer: "RunWriter", parent_id: str, children: Sequence[RunRecord]) -> Synced:
    """Add the missing runs of a sweep's cells, and remove runs of the same cells by older code."""
    known = writer.children(parent_id)
    missing = [child for child in children if child.identity not in known]
    current = {child.tags["cell_identity"]: child.identity for child in children}
    stale = [run for run, cell in known.items() if current.get(cell, run) != run]
    for child in missing:
        writer.write(child)
    for identity in stale:
        writer.remove(identity)
    return Synced(len(missing), len(children) - len(missing), len(stale))


def set_environment() -> None:
    """Keep MLflow from sending telemetry, and from waiting minutes for a server."""
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ["DO_NOT_TRACK"] = "true"
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(2 * REACH_SECONDS))
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")


def open_client(uri: str) -> "MlflowClient":
    """Return an MLflow client without telemetry and look-ups of the environment.

    Parameters
    ----------
    uri : str
        As for `sync`.
    """
    set_environment()
    # Creating the tables is logged line by line.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri)


def open_experiment(client: "MlflowClient", paper: str, artifacts: str) -> str:
    """Return the id of the paper's experiment, created on first use.

    The experiment is tagged as one of model development: without the tag the interface asks what
    kind it is, and may open on the page for traces instead of the table of runs.
    """
    experiment = client.get_experiment_by_name(paper)
    if experiment is None:
        folder = None
        if is_database(client.tracking_uri):
            folder = (Path(artifacts).resolve() / paper).as_uri()
        number = client.create_experiment(paper, artifact_location=folder)
        experiment = client.get_experiment(number)
    if experiment.tags.get("mlflow.experimentKind") != KIND:
        client.set_experiment_tag(experiment.experiment_id, "mlflow.experimentKind", KIND)
    return experiment.experiment_id


def prepare_view(client: "MlflowClient", experiment: str, metrics: Collection[str] = ()) -> None:
    """Save the prepared view in an experiment, with the columns that the paper's metrics call for.

    The interface shows no parameter and no metric until the user selects columns, and folds
    children under their parents as long as runs are sorted by date. A saved view is a tag of the
    experiment that holds such a selection; this view lists cells by silhouette, the best first and
    those without a silhouette last.
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


def identity_of(*parts: object) -> str:
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
    """Name what is measured of a cell's protocol or removals: nothing in a central cell."""
    if cell.federation is not None:
        return names("metric", scope="federation")
    if cell.unlearning is None:
        return ()
    removals = names("metric", scope="removals") if cell.unlearning.removals else ()
    return names("metric", scope="unlearning") + removals


def child_record(cell: Cell, rows: pd.DataFrame, parent: str, parent_id: str) -> RunRecord:
    """Describe the child run of a cell.

    Only what runs are compared by becomes a parameter or a metric, the rest are tags: the table of
    the interface has a column for every parameter and metric.

    Parameters
    ----------
    cell : Cell
    rows : DataFrame
        Its rows, one per seed.
    parent, parent_id : str
        Identity of the sweep's run, and its id in MLflow.
    """
    start, end = span([rows])
    return RunRecord(
        identity_of(parent, cell.key),
        cell.label,
        start,
        end,
        {"mlflow.parentRunId": parent_id} | child_tags(cell, rows.iloc[0]),
        child_params(cell),
        child_metrics(cell, rows),
    )


def child_params(cell: Cell) -> dict[str, str]:
    """Return the parameters by which cells are selected in the interface."""
    params = {
        "method": cell.method,
        "dataset": cell.dataset_name,
        "k": str(cell.k),
        "epsilon": "none" if cell.epsilon is None else f"{cell.epsilon:g}",
    }
    for name, value in cell.params.items():
        params[name] = json.dumps(value).strip('"')
    for name, value in cell.settings.items():
        params[name] = f"{value:g}" if name == "latency_ms" else str(value)
    return params


def child_tags(cell: Cell, first: pd.Series) -> dict[str, str]:
    """Return the facts about a cell besides its parameters; `first` is the first of its rows."""
    copied = ("code", "data", "git", "notion", "adjacency", "trust", "view", "flaws")
    return {
        "kind": "cell",
        "cell": cell.key,
        "cell_identity": identity_of(cell.identity()),
        "preprocessing": cell.preprocessing,
        "private_bounds": str(bool(first["private_bounds"])).lower(),
        "variant": cell.variant,
        "seeds": f"{len(cell.seeds)}: {', '.join(map(str, cell.seeds))}"[:5000],
        "n": str(first["n"]),
        "d": str(first["d"]),
        "half_width": f"{first['half_width']:g}",
        "timing": str(cell.timing).lower(),
        "host": first["host"],
        "references": str(list(first["references"])),
        **{name: first[name] for name in copied},
    }


def child_metrics(cell: Cell, rows: pd.DataFrame) -> dict[str, float]:
    """Return means over the seeds with their intervals, and what is the same for all seeds."""
    # The number of centers is worth a column only where the method finds its own.
    n_centers = () if (rows["n_centers"] == cell.k).all() else ("n_centers",)
    metrics = {}
    for name in dict.fromkeys((*cell.metrics, *n_centers, *TIMES, *measured_in(cell))):
        if name in rows:
            metrics |= summary(name, rows[name])
    first = rows.iloc[0]
    for name in ("epsilon_spent", "delta", "iterations", "peak_memory_mb"):
        if math.isfinite(first[name]):
            metrics[name] = float(first[name])
    return metrics


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
    from scipy import stats

    half = stats.t.ppf(0.975, count - 1) * deviation / math.sqrt(count)
    return {
        f"{name}_mean": mean,
        f"{name}_sd": deviation,
        f"{name}_lo": mean - half,
        f"{name}_hi": mean + half,
    }


def span(groups: Iterable[pd.DataFrame]) -> tuple[int, int]:
    """Return when the first cell began and the last one ended, in milliseconds since 1970."""
    starts = []
    ends = []
    for rows in groups:
        end = round(1000 * float(rows["finished"].iloc[0]))
        seconds = float(rows["fit_seconds"].sum() + rows["metric_seconds"].sum())
        starts.append(end - math.ceil(1000 * seconds))
        ends.append(end)
    return min(starts), max(ends)


class RunWriter:
    """Writes the runs of an experiment through MLflow's client.

    Parameters
    ----------
    client : mlflow.MlflowClient
    experiment : str
        Its id.
    """

    def __init__(self, client: "MlflowClient", experiment: str):
        self.client = client
        self.experiment = experiment
        self.ids: dict[str, str] = {}

    def parent(self, record: RunRecord) -> str:
        """Write a parent run unless it is there; return its id."""
        runs = self._search(f"tags.identity = '{record.identity}'")
        return runs[0].info.run_id if runs else self.write(record)

    def children(self, parent_id: str) -> dict[str, str]:
        """Return identity to cell identity of the children of a parent.

        What an interrupted sync has left half written is removed.
        """
        known = {}
        for run in self._search(f"tags.`mlflow.parentRunId` = '{parent_id}'"):
            if run.info.status == "RUNNING":
                self.client.delete_run(run.info.run_id)
                continue
            identity = run.data.tags["identity"]
            self.ids[identity] = run.info.run_id
            known[identity] = run.data.tags["cell_identity"]
        return known

    def write(self, record: RunRecord) -> str:
        """Create a run with all it holds; return its id."""
        from mlflow.entities import Metric, Param

        tags = record.tags | {"identity": record.identity}
        run = self.client.create_run(
            self.experiment, start_time=record.start, tags=tags, run_name=record.name
        )
        run_id = run.info.run_id
        metrics = [Metric(name, value, record.end, 0) for name, value in record.metrics.items()]
        params = [Param(name, value) for name, value in record.params.items()]
        self.client.log_batch(run_id, metrics=metrics, params=params)
        self.client.set_terminated(run_id, "FINISHED", record.end)
        return run_id

    def remove(self, identity: str) -> None:
        """Mark a run as deleted, as the interface's own button does."""
        self.client.delete_run(self.ids[identity])

    def _search(self, condition: str) -> list:
        runs = []
        token = None
        while True:
            page = self.client.search_runs(
                [self.experiment], condition, max_results=PAGE, page_token=token
            )
            runs += page
            token = page.token
            if not token:
                return runs


def attach(
    client: "MlflowClient", parent_id: str, sweep: str, rows: pd.DataFrame, report: Path | None
) -> None:
    """Make the per-seed table, and the report where there is one, artifacts of a parent run."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / f"{sweep}.parquet"
        pq.write_table(to_table(rows), table)
        client.log_artifact(parent_id, str(table), "rows")
        if report is not None:
            copy = Path(folder) / "report"
            # The page holds its figures and tables; of the other files only the images can be
            # displayed by MLflow.
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
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="keys of `pkm reproduce`")
    arguments = parser.parse_intermixed_args(argv)
    return exit_code(lambda: follow(arguments.verb, arguments.port, arguments.overrides))


def follow(verb: str, port: int, overrides: Sequence[str]) -> int:
    """Do what a verb says; see `main`.

    Raises
    ------
    ValueError
        If the configuration is wrong.
    """
    console, _ = consoles()
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0].partition(".")[0]
        if key in RUN_KEYS:
            raise ValueError(f"{override} has no effect on `pkm {verb}`, which runs nothing")
    config = load(overrides)
    if config.tracking.name == "none":
        raise ValueError("tracking=none has nothing to show: use tracking=mlflow")
    if verb == "dashboard":
        return dashboard(config, port, console)
    plan = make_plan(config.paper, config.profile, mirror=config.data)
    store = Store(config.results)
    store.check_writable()
    folder = store.report_folder(plan.paper, config.profile.name)
    synced = sync(
        plan,
        store,
        uri=config.tracking.uri,
        artifacts=config.tracking.artifacts,
        profile=config.profile.name,
        report=folder if folder.is_dir() else None,
    )
    console.print(
        f"{synced.added} runs added, {synced.kept} were there, {synced.removed} replaced",
        soft_wrap=True,
    )
    return 0


def dashboard(config: "DictConfig", port: int, console: "Console") -> int:
    """Serve MLflow's interface on this machine until stopped, and say where the views are.

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

    Raises
    ------
    ValueError
        If the port is none, or not free.
    TrackingError
        If MLflow's database or server is out of order.
    """
    require_free(port)
    uri = config.tracking.uri
    server = f"http://127.0.0.1:{port}"
    with failures_told(uri):
        check_reachable(uri)
        found = open_client(uri).search_experiments()
    experiments = [experiment for experiment in found if VIEW_TAG in experiment.tags]
    if not experiments:
        console.print(f"nothing is projected to {uri} yet: run `pkm sync` first")
    for experiment in experiments:
        address = view_address(experiment.experiment_id, server)
        console.print(f"{experiment.name}: {address}", soft_wrap=True, highlight=False)
    artifacts = Path(config.tracking.artifacts).resolve().as_uri()
    command = [sys.executable, "-m", "mlflow", "server"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", uri, "--default-artifact-root", artifacts]
    # MLflow's background jobs (scoring, roll-ups of traces) have nothing to do here.
    os.environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"
    try:
        return subprocess.call(command)
    except KeyboardInterrupt:
        return 0


def require_free(port: int) -> None:
    """Refuse a port that is none, or that another server listens to."""
    require(0 < port < 2**16, "port", port, "a number from 1 to 65535")
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            raise ValueError(
                f"port={port} is not free ({error.strerror}): choose another one with --port"
            ) from error


if __name__ == "__main__":
    sys.exit(main())
