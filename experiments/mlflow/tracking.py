"""MLflow as a view of the cell store: an experiment per paper, with runs as `run_records` says.

    pkm sync paper=fastlloyd profile=quick

`sync` brings MLflow up to date with the store, through MLflow's public client.

Truth stays in the store; the projection can be deleted and rebuilt at any time. The runs of cells
and curves are children of the run of their sweep, those of claims are children of the run that
holds the report. A run's identity is computed from what it stands for, and a sweep's run knows the
cells that it was made from: a second sync reads no rows and writes nothing, and a cell that was run
again by changed code replaces its older run. One writer only: the projection is made by one process
after the cells are done, never by workers.
"""

import gc
import hashlib
import json
import logging
import math
import os
import socket
import sqlite3
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pandas as pd
import pyarrow.parquet as pq

from pkm.analysis.claims.claim import Claim, papers_with_claims, read_claims
from pkm.analysis.figures.figure import read_figures
from pkm.analysis.tables.study import Study
from pkm.arrow import to_table
from pkm.experiments.commands.composition import load
from pkm.experiments.console.console import consoles, duration, exit_code, parser_of
from pkm.experiments.mlflow.run_records import (
    DatasetRecord,
    Part,
    RunRecord,
    cell_record,
    claim_record,
    curve_records,
    identity_of,
    measured_in,
    report_record,
    sweep_record,
    sweeps_of,
)
from pkm.experiments.plan.plan import Plan, make_plan
from pkm.experiments.store.store import Store

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput, Run
    from omegaconf import DictConfig
    from rich.console import Console

#: The kind of experiment in MLflow's words.
KIND = "custom_model_development"
#: Columns of the prepared views, with widths in pixels at which all fit beside MLflow's side panel.
SETTINGS = {"params.`method`": 120, "params.`dataset`": 90, "params.`epsilon`": 70}
WIDTH = 105
#: Metrics that a view shows where cells of the paper have them.
SHOWN = (
    "nicv",
    "silhouette",
    "norm_kmeans_distance",
    "norm_reverse_kmeans_distance",
    "inertia",
    "accuracy",
    "n_centers",
    "loss_ratio",
    "iteration_ms",
    "removal_mean_ms",
)
#: Keys of `pkm reproduce` that say what is run and how.
RUN_KEYS = ("verb", "sweeps", "jobs", "scheduler", "backend", "fetch")
#: Runs per page of a search, and metrics per call.
PAGE = 1000
SQLITE = "sqlite:///"
#: Seconds within which a server or a database has to answer, and the usual ports of those.
REACH_SECONDS = 5
PORTS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306, "mssql": 1433}
#: Digits of a data set's digest that MLflow keeps.
DIGEST_DIGITS = 36
#: Tag of a run: digest of what it was made from.
SOURCE = "source_digest"


class TrackingError(OSError):
    """MLflow cannot be reached or written; the message says why and what to do."""


@dataclass(frozen=True)
class Synced:
    """What a sync did with the runs of cells: added, left as they were, removed as outdated."""

    added: int = 0
    kept: int = 0
    removed: int = 0

    def __add__(self, other: "Synced") -> "Synced":
        return Synced(
            self.added + other.added, self.kept + other.kept, self.removed + other.removed
        )


@dataclass(frozen=True)
class ReportFolder:
    """The report on a paper, as it is on disk.

    Parameters
    ----------
    path : Path or None
        None without a report.
    """

    path: Path | None

    @property
    def verdicts(self) -> pd.DataFrame:
        """One line per claim: the columns of ``tables/claims.csv``; empty without a report."""
        table = self.path / "tables" / "claims.csv" if self.path else None
        if table is None or not table.is_file():
            return pd.DataFrame(columns=["id", "verdict", "partial", "numbers"])
        return pd.read_csv(table, keep_default_na=False, na_values={"seeds": [""]})

    def figures(self, paper: str, sweep: str) -> list[Path]:
        """List the pictures of a sweep; those of several sweeps belong to their first one."""
        if self.path is None or paper not in papers_with_claims():
            return []
        chosen = [spec.name for spec in read_figures(paper) if (*spec.sweep, "")[0] == sweep]
        files = [self.path / "figures" / f"{name}.png" for name in chosen]
        return [file for file in files if file.is_file()]

    def page(self) -> list[Path]:
        """List the page, which holds all figures and tables."""
        page = self.path / "index.html" if self.path else None
        return [page] if page and page.is_file() else []


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
        Folder of the report. Its page becomes an artifact of the report's run, its pictures those
        of the sweeps that they show.

    Returns
    -------
    Synced
        How many runs of cells were added, kept and removed.

    Raises
    ------
    TrackingError
        If MLflow cannot be reached or written, in whatever way. The store is as it was.
    """
    with failures_reported(uri):
        check_reachable(uri)
        with few_writes_to_disk(), objects_kept():
            folder = ReportFolder(report)
            return update(plan, store, open_client(uri), artifacts, profile, folder)


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
    started = time.perf_counter()
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
    took = duration(time.perf_counter() - started)
    console.print(
        f"MLflow: {synced.added} runs of cells added, {synced.kept} were there, in {took} "
        f"({tracking.uri})",
        soft_wrap=True,
    )


@contextmanager
def failures_reported(uri: str) -> Iterator[None]:
    """Turn what MLflow and its database raise into one error of one line."""
    set_environment()
    from alembic.util import CommandError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (OSError, sqlite3.Error, MlflowException, SQLAlchemyError, CommandError) as error:
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
            # One write to disk a transaction, and a dashboard may read meanwhile.
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("BEGIN IMMEDIATE")
            database.execute("SELECT count(*) FROM sqlite_master")
        return
    address = urlsplit(uri)
    port = address.port or PORTS.get(address.scheme.partition("+")[0])
    if address.hostname and port:
        socket.create_connection((address.hostname, port), timeout=REACH_SECONDS).close()


@contextmanager
def few_writes_to_disk() -> Iterator[None]:
    """Let SQLite wait for the disk at its checkpoints alone.

    A loss of power may cost the last transactions, not the database: the next sync adds them.
    """
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    def relax(connection: object, _: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous=NORMAL")

    event.listen(Engine, "connect", relax)
    try:
        yield
    finally:
        event.remove(Engine, "connect", relax)


@contextmanager
def objects_kept() -> Iterator[None]:
    """Let the garbage collector pass over what exists: modules and rows, a tenth of a sync."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def update(
    plan: Plan,
    store: Store,
    client: "MlflowClient",
    artifacts: str,
    profile: str,
    report: ReportFolder,
) -> Synced:
    """Add, replace and remove runs until MLflow shows what is stored; see `sync`."""
    experiment = open_experiment(client, plan.paper, artifacts)
    writer = RunWriter(client, experiment)
    verdicts = report.verdicts
    of_claim = dict(zip(verdicts["id"], verdicts["verdict"], strict=True))
    known_claims = claims_of(plan.paper)
    synced = Synced()
    for sweep in plan.sweeps:
        part = Part(plan.paper, profile, sweep)
        cells = {cell.key: cell for name, cell in plan.entries if name == sweep}
        cells = {key: cell for key, cell in cells.items() if store.status(key) == "done"}
        if not cells:
            continue
        files = report.figures(plan.paper, sweep)
        named = [(key, cell.dataset_name) for key, cell in cells.items()]
        judged = {claim.id: of_claim.get(claim.id, "") for claim in naming(sweep, known_claims)}
        source = identity_of(sorted(named), sorted(judged.items()), digests(files))
        parent = writer.find(part.identity)
        if parent is not None and parent.data.tags.get(SOURCE) == source:
            synced += Synced(kept=len(cells))
            continue
        only = Plan(plan.paper, tuple((sweep, cell) for cell in cells.values()))
        # Files of equal content share a cell, and so a run.
        rows = only.rows(store)
        if rows.empty:
            continue
        rows = rows.drop_duplicates(["cell", "seed"])
        study = Study(rows)
        parent_id = writer.put(sweep_record(part, rows, study, judged), parent)
        finished = dict(list(rows.groupby("cell")))
        of_cells = [cell_record(part, cells[key], each) for key, each in finished.items()]
        of_curves = curve_records(part, study, rows)
        synced += write_children(writer, parent_id, of_cells, of_curves)
        with tempfile.TemporaryDirectory() as folder:
            client.log_artifact(parent_id, str(write_rows(rows, Path(folder), sweep)), "rows")
        for file in files:
            client.log_artifact(parent_id, str(file), "figures")
        # Said last: an interrupted sync is taken up again.
        client.set_tag(parent_id, SOURCE, source)
    part = Part(plan.paper, profile)
    page = write_report(writer, part, plan, store, report, known_claims)
    describe(client, experiment, plan, profile, of_claim, page)
    metrics = {name for cell in plan.cells for name in (*cell.metrics, *measured_in(cell))}
    prepare_views(client, experiment, metrics)
    return synced


def claims_of(paper: str) -> list[Claim]:
    """Return the claims of a paper; none for one without."""
    return read_claims(paper)["claims"] if paper in papers_with_claims() else []


def naming(sweep: str, known_claims: Sequence[Claim]) -> list[Claim]:
    """Return the claims whose checks name a sweep."""
    return [claim for claim in known_claims if sweep in sweeps_of(claim.check)]


def digests(files: Sequence[Path]) -> dict[str, str]:
    """Return names and digests of files."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def write_children(
    writer: "RunWriter",
    parent_id: str,
    of_cells: Sequence[RunRecord],
    of_curves: Sequence[RunRecord],
) -> Synced:
    """Add the missing runs of a sweep, and remove those of the same cells by older code.

    A run of a cell that the plan no longer has stays; so do runs of another data set's curves.
    """
    known = writer.children(parent_id)
    missing = [each for each in of_cells if each.identity not in known]
    current = {each.tags["cell_identity"]: each.identity for each in of_cells}
    stale = [run for run, cell in known.items() if cell and current.get(cell, run) != run]
    curves = {each.identity for each in of_curves}
    old_curves = [run for run, cell in known.items() if not cell and run not in curves]
    for each in (*missing, *(each for each in of_curves if each.identity not in known)):
        writer.write(each, parent_id)
    for identity in (*stale, *old_curves):
        writer.remove(identity)
    return Synced(len(missing), len(of_cells) - len(missing), len(stale))


def write_report(
    writer: "RunWriter",
    part: Part,
    plan: Plan,
    store: Store,
    report: ReportFolder,
    known_claims: Sequence[Claim],
) -> str:
    """Write the run of the report with those of its claims; return its id, empty without report."""
    verdicts = report.verdicts
    files = [*report.page(), *report.figures(plan.paper, "")]
    if not files or verdicts.empty:
        return ""
    source = identity_of(digests(files), verdicts.to_csv())
    parent = writer.find(part.identity)
    if parent is not None and parent.data.tags.get(SOURCE) == source:
        return parent.info.run_id
    lines = {line["id"]: line for line in verdicts.to_dict("records")}
    needed = [cell.key for cell in plan.cells]
    rows = store.read(needed, ["cell", "finished", "fit_seconds", "metric_seconds"])
    of_claim = {name: line["verdict"] for name, line in lines.items()}
    parent_id = writer.put(report_record(part, rows, of_claim), parent)
    records = [
        claim_record(part, claim, lines[claim.id], rows)
        for claim in known_claims
        if claim.id in lines
    ]
    known = writer.children(parent_id)
    current = {record.identity for record in records}
    for record in records:
        if record.identity not in known:
            writer.write(record, parent_id)
    for identity in known:
        if identity not in current:
            writer.remove(identity)
    for file in files:
        folder = "report" if file.suffix == ".html" else "figures"
        writer.client.log_artifact(parent_id, str(file), folder)
    writer.client.set_tag(parent_id, SOURCE, source)
    return parent_id


def describe(
    client: "MlflowClient",
    experiment: str,
    plan: Plan,
    profile: str,
    verdicts: Mapping[str, str],
    page: str,
) -> None:
    """Write the note of an experiment: what is to be seen, and where."""
    counted = pd.Series(list(verdicts.values()), dtype=object).value_counts()
    lines = [
        f"Stored results of **{plan.paper}** (last synced profile: {profile or 'none'}), a copy of "
        "the cell store.",
        "",
        "- `tags.kind = 'sweep'`: averages over data sets, numbers of verdicts, pictures, all rows",
        "- `tags.kind = 'cell'`: one method on one data set at one budget; `x` is a mean over "
        "seeds, `x_lo` and `x_hi` its 95 % interval",
        "- `tags.kind = 'curve'`: areas over epsilon (`nicv_auc`) per method and data set",
        "- `tags.kind = 'claim'`: the paper's claims with their verdicts",
    ]
    if page:
        address = f"#/experiments/{experiment}/runs/{page}/artifacts/report/index.html"
        summary = ", ".join(f"{n} {verdict}" for verdict, n in counted.items())
        lines += ["", f"Claims: {summary}. [Open the report]({address})"]
    set_tag(client, experiment, "mlflow.note.content", "\n".join(lines))


def set_tag(client: "MlflowClient", experiment: str, name: str, value: str) -> None:
    """Set a tag of an experiment, unless it has that value."""
    if client.get_experiment(experiment).tags.get(name) != value:
        client.set_experiment_tag(experiment, name, value)


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
    from mlflow import MlflowClient

    # Creating the tables is logged line by line; errors are reported by `failures_reported`.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    logging.getLogger("alembic").setLevel(logging.WARNING)
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
    set_tag(client, experiment.experiment_id, "mlflow.experimentKind", KIND)
    return experiment.experiment_id


def is_database(uri: str) -> bool:
    """Tell a database from a tracking server."""
    return not uri.startswith(("http://", "https://"))


#: Prepared views by the kind of run that they list.
VIEWS = {"cell": "cells", "curve": "areas over epsilon", "sweep": "sweeps", "claim": "claims"}


def prepare_views(client: "MlflowClient", experiment: str, metrics: Collection[str]) -> None:
    """Save the prepared views in an experiment, with the columns that the paper's metrics call for.

    The interface shows no parameter and no metric until the user selects columns, and folds
    children under their parents as long as runs are sorted by date. A saved view is a tag of the
    experiment that holds such a selection.
    """
    shown = [name for name in SHOWN if name in metrics]
    columns = {
        "cell": SETTINGS | dict.fromkeys([f"metrics.`{name}`" for name in shown], WIDTH),
        "curve": SETTINGS | dict.fromkeys([f"metrics.`{name}_auc`" for name in shown], WIDTH),
        "sweep": dict.fromkeys(["metrics.`n_cells`", *VERDICT_COLUMNS], WIDTH),
        "claim": {"params.`verdict`": 2 * WIDTH, "metrics.`comparisons`": WIDTH},
    }
    columns["cell"]["metrics.`n_seeds`"] = WIDTH
    first = f"metrics.`{shown[0]}`" if shown else "attributes.`Created`"
    order = {"cell": first, "curve": first.removesuffix("`") + "_auc`"}
    for kind, name in VIEWS.items():
        state = {
            "selectedColumns": list(columns[kind]),
            "columnOrder": list(columns[kind]),
            "columnWidths": columns[kind],
            "searchFilter": f"tags.kind = '{kind}'",
            "orderByKey": order.get(kind, "attributes.`Created`"),
            "orderByAsc": kind in order,
        }
        view = {"name": name, "createdAt": 0, "updatedAt": 0, "state": json.dumps(state)}
        set_tag(client, experiment, view_tag(kind), json.dumps(view))


#: Columns of the numbers of verdicts.
VERDICT_COLUMNS = [f"metrics.`claims_{name}`" for name in ("holds", "fails", "inconclusive")]


def view_tag(kind: str) -> str:
    """Return the tag of an experiment that holds the view of one kind of run."""
    return f"mlflow.sharedViewState.{kind}"


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
        self.datasets: dict[DatasetRecord, DatasetInput] = {}

    def find(self, identity: str) -> "Run | None":
        """Return the run of an identity; None if there is none."""
        runs = self._search(f"tags.identity = '{identity}'")
        return runs[0] if runs else None

    def put(self, record: RunRecord, existing: "Run | None") -> str:
        """Write a run, or bring the existing one up to date; return its id."""
        if existing is None:
            return self.write(record)
        from mlflow.entities import RunTag

        # A metric that the run no longer has can only be overwritten.
        gone = dict.fromkeys(existing.data.metrics, math.nan)
        metrics = {
            name: value
            for name, value in (gone | record.metrics).items()
            if existing.data.metrics.get(name) != value
        }
        tags = [RunTag(name, value) for name, value in record.tags.items()]
        run_id = existing.info.run_id
        self.client.log_batch(run_id, tags=tags)
        self._log(run_id, metrics, round(1000 * time.time()))
        return run_id

    def children(self, parent_id: str) -> dict[str, str]:
        """Return identity to cell identity of the children of a parent; empty for other runs.

        What an interrupted sync has left half written is removed.
        """
        known = {}
        for run in self._search(f"tags.`mlflow.parentRunId` = '{parent_id}'"):
            if run.info.status == "RUNNING":
                self.client.delete_run(run.info.run_id)
                continue
            identity = run.data.tags["identity"]
            self.ids[identity] = run.info.run_id
            known[identity] = run.data.tags.get("cell_identity", "")
        return known

    def write(self, record: RunRecord, parent_id: str = "") -> str:
        """Create a run with all it holds; return its id."""
        parent = {"mlflow.parentRunId": parent_id} if parent_id else {}
        tags = parent | record.tags | {"identity": record.identity}
        run = self.client.create_run(
            self.experiment,
            start_time=record.start,
            tags={name: value for name, value in tags.items() if value},
            run_name=record.name,
        )
        run_id = run.info.run_id
        if record.dataset is not None:
            self.client.log_inputs(run_id, datasets=[self._input(record.dataset)])
        self._log(run_id, record.metrics, record.end, record.params)
        self.client.set_terminated(run_id, "FINISHED", record.end)
        return run_id

    def remove(self, identity: str) -> None:
        """Mark a run as deleted, as the interface's own button does."""
        self.client.delete_run(self.ids[identity])

    def _log(
        self,
        run_id: str,
        metrics: Mapping[str, float],
        moment: int,
        params: Mapping[str, str] | None = None,
    ) -> None:
        from mlflow.entities import Metric, Param

        values = [Metric(name, value, moment, 0) for name, value in metrics.items()]
        texts = [Param(name, value) for name, value in (params or {}).items()]
        room = PAGE - len(texts)
        self.client.log_batch(run_id, metrics=values[:room], params=texts)
        for start in range(room, len(values), PAGE):
            self.client.log_batch(run_id, metrics=values[start : start + PAGE])

    def _input(self, dataset: DatasetRecord) -> "DatasetInput":
        """Describe a data set by its name and digest; made once for all cells on it."""
        if dataset not in self.datasets:
            from mlflow.data.code_dataset_source import CodeDatasetSource
            from mlflow.data.meta_dataset import MetaDataset
            from mlflow.entities import Dataset, DatasetInput

            source = CodeDatasetSource({"mlflow.source.name": f"pkm data fetch {dataset.name}"})
            digest = dataset.sha256[:DIGEST_DIGITS]
            described = MetaDataset(source, name=dataset.name, digest=digest).to_dict()
            profile = json.dumps({"num_rows": dataset.n, "num_columns": dataset.d})
            entity = Dataset(
                described["name"],
                described["digest"],
                described["source_type"],
                described["source"],
                profile=profile,
            )
            self.datasets[dataset] = DatasetInput(entity, tags=[])
        return self.datasets[dataset]

    def _search(self, condition: str) -> "list[Run]":
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


def write_rows(rows: pd.DataFrame, folder: Path, sweep: str) -> Path:
    """Write the rows of a sweep as a Parquet file."""
    table = folder / f"{sweep}.parquet"
    pq.write_table(to_table(rows), table)
    return table


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; see the module's text.

    Returns
    -------
    int
        Exit code: 0, or 2 if the request was refused.
    """
    parser = parser_of("sync", __doc__)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="keys of `pkm reproduce`")
    overrides = parser.parse_args(argv).overrides
    return exit_code(lambda: sync_stored(overrides))


def configuration(verb: str, overrides: Sequence[str]) -> "DictConfig":
    """Load the configuration of a verb that shows stored results.

    Raises
    ------
    ValueError
        If the configuration is wrong.
    """
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0].partition(".")[0]
        if key in RUN_KEYS:
            raise ValueError(f"{override} has no effect on `pkm {verb}`, which runs nothing")
    config = load(overrides)
    if config.tracking.name == "none":
        raise ValueError("tracking=none has nothing to show: use tracking=mlflow")
    return config


def sync_stored(overrides: Sequence[str]) -> None:
    """Bring MLflow up to date with what is stored of a paper."""
    console, _ = consoles()
    config = configuration("sync", overrides)
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
        f"{synced.added} runs of cells added, {synced.kept} were there, {synced.removed} replaced",
        soft_wrap=True,
    )


if __name__ == "__main__":
    sys.exit(main())
