"""MLflow as a view of the cell store: an experiment per paper, a run per curve.

Truth stays in the store: MLflow's database can be deleted and made anew at any time.
The run of a sweep has a digest of the cells, verdicts and figures that it was made
from, so that a second sync reads no rows and writes nothing. One process writes, after
the cells are done.
"""

import hashlib
import logging
import os
import socket
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pandas as pd
import pyarrow.parquet as pq

from pkm.analysis.claims.claim import papers_with_claims, read_claims
from pkm.analysis.figures.figure import read_figures
from pkm.analysis.tables.study import Study
from pkm.arrow import to_table
from pkm.experiments.console.console import format_duration
from pkm.experiments.mlflow.run_records import (
    CELL,
    CURVE,
    SWEEP,
    RunRecord,
    compute_digest,
    describe_runs,
    describe_sweep,
    find_sweeps,
)
from pkm.experiments.plan.plan import Plan
from pkm.experiments.store.store import Store

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run
    from omegaconf import DictConfig
    from rich.console import Console

#: Metrics in one call, of at most 1000 values, and runs that a search returns.
BATCH_SIZE = 900
MAX_RUNS = 50_000
SQLITE = "sqlite:///"
#: Seconds within which a server has to answer, and the usual ports of servers.
CONNECT_SECONDS = 5
DEFAULT_PORTS = {
    "http": 80,
    "https": 443,
    "postgresql": 5432,
    "mysql": 3306,
    "mssql": 1433,
}
#: Tag of a run with the digest of what it was made from.
DIGEST_TAG = "digest"
# The interface opens such an experiment on its runs.
EXPERIMENT_KIND = {"mlflow.experimentKind": "custom_model_development"}
#: MLflow's own tag for the parent of a run.
PARENT_TAG = "mlflow.parentRunId"
RESTRICTED_NOTICE = (
    "MLflow gets no results of your own files, nor of sets given on request: its "
    "server shows everybody on the machine what it has"
)


class TrackingError(OSError):
    """MLflow cannot be reached or written; the message says why and what to do."""


def sync_after_run(
    plan: Plan,
    store: Store,
    config: "DictConfig",
    console: "Console",
    *,
    profile: str = "",
    report: Path | None = None,
) -> None:
    """Bring MLflow up to date after a run; a failure is printed and ends nothing.

    Parameters
    ----------
    plan, store, profile, report
        As for `sync`.
    config : DictConfig
        Configuration; its ``tracking`` says where MLflow is.
    console : rich.console.Console
        Where to print.
    """
    started = time.perf_counter()
    if any(cell.restricted for cell in plan.cells):
        console.print(RESTRICTED_NOTICE, style="yellow", soft_wrap=True)
    try:
        counts = sync(plan, store, config.tracking, profile=profile, report=report)
    except TrackingError as error:
        console.print(str(error), style="yellow", markup=False, soft_wrap=True)
        return
    elapsed = format_duration(time.perf_counter() - started)
    line = f"MLflow: {summarize(counts)}, in {elapsed} ({config.tracking.uri})"
    console.print(line, soft_wrap=True)


def summarize(counts: Mapping[str, int]) -> str:
    """Say what a sync did."""
    written = f"{counts['written']} runs written, {counts['removed']} removed"
    return f"{written}, {counts['unchanged']} sweeps up to date"


def sync(
    plan: Plan,
    store: Store,
    tracking: "DictConfig",
    *,
    profile: str = "",
    report: Path | None = None,
    cells: bool = False,
) -> Counter:
    """Bring MLflow up to date with the store, except for cells of restricted data.

    MLflow's server shows all that it has to everybody on the machine.

    Parameters
    ----------
    plan : Plan
        The cells and their sweeps.
    store : Store
        The store that has their rows.
    tracking : DictConfig
        `uri`, a database or a tracking server (``http://...``), and `artifacts`, the
        folder of a database's artifacts.
    profile : str, optional
        Name of the profile. A plan without one is named by its cells.
    report : Path, optional
        Folder of the report, with verdicts and figures.
    cells : bool, default=False
        Whether to write a run for every cell, too.

    Returns
    -------
    Counter
        Runs `written` and `removed`, and sweeps `unchanged`.

    Raises
    ------
    TrackingError
        If MLflow cannot be reached or written. The store is as it was.
    """
    if not profile:
        profile = compute_digest([cell.identity() for cell in plan.cells])[:8]
    if plan.paper not in papers_with_claims():
        report = None
    kinds = (CURVE, CELL) if cells else (CURVE,)
    counts: Counter = Counter()
    with open_client(tracking.uri) as client:
        experiment = open_experiment(client, plan.paper, tracking.artifacts)
        writer = RunWriter(client, experiment)
        for sweep in plan.sweeps:
            sweep_tags = {"paper": plan.paper, "profile": profile, "sweep": sweep}
            counts += sync_sweep(writer, sweep_tags, plan, store, report, kinds)
    return counts


def sync_sweep(
    writer: "RunWriter",
    sweep_tags: Mapping[str, str],
    plan: Plan,
    store: Store,
    report: Path | None,
    kinds: Sequence[str],
) -> Counter:
    """Write the runs of a sweep that are missing, and remove the outdated ones."""
    sweep = sweep_tags["sweep"]
    # Files of equal content share a cell.
    cells = {cell.key: cell for name, cell in plan.entries if name == sweep}
    done = [
        cell
        for key, cell in cells.items()
        if store.status(key) == "done" and not cell.restricted
    ]
    plan = Plan(plan.paper, tuple((sweep, cell) for cell in done))
    verdicts = read_verdicts(plan.paper, sweep, report)
    figures = list_figures(plan.paper, sweep, report)
    names = {cell.key: cell.dataset_name for cell in plan.cells}
    hashes = [hashlib.sha256(file.read_bytes()).hexdigest() for file in figures]
    digest = compute_digest([names, verdicts, hashes, kinds])
    if writer.search({"kind": SWEEP, DIGEST_TAG: digest, **sweep_tags}):
        return Counter(unchanged=1)

    rows = plan.read_rows(store)
    if rows.empty:
        return Counter()
    study = Study(rows)
    readable = set(rows["cell"])
    cells = [cell for cell in plan.cells if cell.key in readable]
    records = [
        record
        for kind in kinds
        for record in describe_runs(sweep_tags, cells, study, rows, kind)
    ]
    summary = describe_sweep(sweep_tags, study, rows, verdicts)
    parent_id = writer.start_run(summary, {})
    counts = writer.replace(sweep_tags, records, parent_id)
    writer.log_table(parent_id, rows, sweep)
    for figure in figures:
        writer.client.log_artifact(parent_id, str(figure), "figures")
    # Without this tag, the next sync repeats an interrupted one.
    writer.client.set_tag(parent_id, DIGEST_TAG, digest)
    writer.client.set_terminated(parent_id, "FINISHED", summary.end)
    return counts


def read_verdicts(
    paper: str,
    sweep: str,
    report: Path | None,
) -> dict[str, str]:
    """Read the verdicts of the claims that name a sweep, by their ids."""
    table = report / "tables" / "claims.csv" if report else None
    if table is None or not table.is_file():
        return {}
    lines = pd.read_csv(table, keep_default_na=False)
    verdicts = dict(zip(lines["id"], lines["verdict"], strict=True))
    return {
        claim.id: verdicts[claim.id]
        for claim in read_claims(paper)["claims"]
        if sweep in find_sweeps(claim.check) and claim.id in verdicts
    }


def list_figures(
    paper: str,
    sweep: str,
    report: Path | None,
) -> list[Path]:
    """List the figures of a sweep; those of several sweeps belong to the first one."""
    if report is None:
        return []
    names = [spec.name for spec in read_figures(paper) if spec.sweep[:1] == (sweep,)]
    files = [report / "figures" / f"{name}.png" for name in names]
    return [file for file in files if file.is_file()]


class RunWriter:
    """Writes the runs of an experiment, given by its id."""

    def __init__(self, client: "MlflowClient", experiment: str):
        self.client = client
        self.experiment = experiment

    def search(self, tags: Mapping[str, str]) -> "list[Run]":
        """Find the runs that have some tags."""
        conditions = [f"tags.{name} = '{text}'" for name, text in tags.items()]
        condition = " and ".join(conditions)
        return self.client.search_runs(
            [self.experiment],
            condition,
            max_results=MAX_RUNS,
        )

    def replace(
        self,
        sweep_tags: Mapping[str, str],
        records: Sequence[RunRecord],
        parent_id: str,
    ) -> Counter:
        """Write the missing runs of a sweep below its new run; remove outdated ones.

        A run that has not changed stays; a run that was not finished is removed.
        """
        missing = {record.digest: record for record in records}
        outdated = []
        for run in self.search(sweep_tags):
            run_id = run.info.run_id
            is_finished = run.info.status == "FINISHED"
            if is_finished and missing.pop(run.data.tags.get(DIGEST_TAG), None):
                self.client.set_tag(run_id, PARENT_TAG, parent_id)
            elif run_id != parent_id:
                outdated.append(run_id)
        for digest, record in missing.items():
            run_id = self.start_run(record, {DIGEST_TAG: digest, PARENT_TAG: parent_id})
            self.client.set_terminated(run_id, "FINISHED", record.end)
        for run_id in outdated:
            self.client.delete_run(run_id)
        return Counter(written=len(missing), removed=len(outdated))

    def start_run(
        self,
        record: RunRecord,
        tags: Mapping[str, str],
    ) -> str:
        """Write a run except its end, in few calls of MLflow; return its id."""
        from mlflow.entities import Metric, Param

        run = self.client.create_run(
            self.experiment,
            start_time=record.end,
            tags={**record.tags, **tags},
            run_name=record.name,
        )
        run_id = run.info.run_id
        params = [Param(name, text) for name, text in record.params.items()]
        metrics = [
            Metric(name, value, record.end, step)
            for name, value, step in record.metrics
        ]
        for start in range(0, len(metrics) or 1, BATCH_SIZE):
            self.client.log_batch(run_id, metrics[start : start + BATCH_SIZE], params)
            params = []
        return run_id

    def log_table(
        self,
        run_id: str,
        rows: pd.DataFrame,
        name: str,
    ) -> None:
        """Write rows as one Parquet table."""
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder) / f"{name}.parquet"
            pq.write_table(to_table(rows), table)
            self.client.log_artifact(run_id, str(table), "rows")


def open_experiment(
    client: "MlflowClient",
    paper: str,
    artifacts: str,
) -> str:
    """Return the id of a paper's experiment, which the first sync creates."""
    experiment = client.get_experiment_by_name(paper)
    if experiment is not None:
        return experiment.experiment_id
    folder = None
    if not is_server(client.tracking_uri):
        folder = (Path(artifacts).resolve() / paper).as_uri()
    return client.create_experiment(paper, folder, EXPERIMENT_KIND)


def is_server(uri: str) -> bool:
    """Tell a tracking server from a database."""
    return uri.startswith(("http://", "https://"))


@contextmanager
def open_client(uri: str) -> "Iterator[MlflowClient]":
    """Open MLflow's client; turn its errors and its database's into one line.

    Raises
    ------
    TrackingError
        If MLflow cannot be reached, read or written during the block.
    """
    # Send no telemetry, and do not try for minutes.
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ["DO_NOT_TRACK"] = "true"
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(2 * CONNECT_SECONDS))
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    from alembic.util import CommandError
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    # MLflow logs every table that it creates.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    failures = (OSError, sqlite3.Error, MlflowException, SQLAlchemyError, CommandError)
    try:
        check_reachable(uri)
        yield MlflowClient(tracking_uri=uri)
    except failures as error:
        cause = str(error).partition("\n")[0]
        advice = "`pkm sync` brings it up to date later"
        if uri.startswith(SQLITE):
            advice = "delete the file where it is damaged; `pkm sync` makes it anew"
        message = f"MLflow at {uri} was not updated ({cause}): {advice}"
        raise TrackingError(message) from error


def check_reachable(uri: str) -> None:
    """Raise an error at once; MLflow would repeat its attempts for minutes."""
    if uri.startswith(SQLITE):
        path = Path(uri.removeprefix(SQLITE).partition("?")[0])
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=CONNECT_SECONDS)) as database:
            database.execute("BEGIN IMMEDIATE")
        return
    address = urlsplit(uri)
    port = address.port or DEFAULT_PORTS.get(address.scheme.partition("+")[0])
    if address.hostname and port:
        socket.create_connection((address.hostname, port), CONNECT_SECONDS).close()
