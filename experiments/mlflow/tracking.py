"""MLflow as a copy of the cell store: an experiment per paper, a run per curve.

The store stays the truth: MLflow's database can be deleted and made anew at any time.
The run of a sweep has a digest of the cells, verdicts and figures that it was made
from, so that a second sync reads no rows and writes nothing. One process writes, after
the cells are done.
"""

import logging
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow.parquet as pq

from pkm.analysis.claims.claim import read_claims
from pkm.analysis.figures.figure import read_figures
from pkm.analysis.tables.study import Study
from pkm.arrow import to_table
from pkm.experiments.cell.cell import to_canonical_json
from pkm.experiments.config.groups import choices
from pkm.experiments.console.console import format_duration, show
from pkm.experiments.mlflow.run_records import (
    CELL,
    CURVE,
    SWEEP,
    RunRecord,
    describe_runs,
    describe_sweep,
    find_sweeps,
)
from pkm.experiments.plan.plan import Plan
from pkm.experiments.store.store import Store
from pkm.files import sha256

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run
    from omegaconf import DictConfig
    from rich.console import Console

#: Runs that a search returns.
MAX_RUNS = 50_000
#: Increase it when the same rows give other runs: the next sync writes them anew.
RECORD_VERSION = 6
SQLITE = "sqlite:///"
#: Seconds within which a server has to answer.
CONNECT_SECONDS = 10
#: Tag of a complete sweep with the digest of what it was made from.
DIGEST_TAG = "digest"
# Of experiments with runs, not traces. `pkm dashboard` prints where its pages are.
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
    """Bring MLflow up to date after a run, as `sync` does; a failure is printed."""
    started = time.perf_counter()
    if any(cell.restricted for cell in plan.cells):
        show(console, RESTRICTED_NOTICE, "yellow")
    try:
        counts = sync(plan, store, config.tracking, profile=profile, report=report)
    except TrackingError as error:
        show(console, str(error), "yellow")
        return
    elapsed = format_duration(time.perf_counter() - started)
    line = f"MLflow: {summarize(counts)}, in {elapsed} ({config.tracking.uri})"
    show(console, line)


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

    MLflow's server shows all that it has to everybody on the machine. `tracking` has
    the `uri` of a database or server (``http://...``), and `artifacts`, a folder for
    those of a database. A plan without a profile is named by its cells. The folder
    `report` has verdicts and figures. With `cells` every cell gets a run, too.

    Returns
    -------
    Counter
        Runs `written`, runs `removed`, and sweeps `unchanged`. The run of a sweep
        itself counts among the removed ones alone.

    Raises
    ------
    TrackingError
        If MLflow cannot be reached or written. The store is as it was.
    """
    keys = "".join(cell.key for cell in plan.cells)
    profile = profile or sha256(keys.encode())[:8]
    if plan.paper not in choices("paper"):
        report = None
    run_types = (CURVE, CELL) if cells else (CURVE,)
    finished = [
        (sweep, cell)
        for sweep, cell in plan.sweep_cells
        if store.status(cell.key) == "done" and not cell.restricted
    ]
    plan = Plan(plan.paper, tuple(finished))
    # All sweeps together are read in little more time than one.
    read_rows = cache(partial(plan.read_rows, store))
    counts: Counter = Counter()
    with open_client(tracking.uri) as client:
        writer = RunWriter(client, plan.paper, tracking.artifacts)
        for sweep in plan.sweeps:
            sweep_tags = {"paper": plan.paper, "profile": profile, "sweep": sweep}
            counts += sync_sweep(writer, sweep_tags, plan, read_rows, report, run_types)
    return counts


def sync_sweep(
    writer: "RunWriter",
    sweep_tags: Mapping[str, str],
    plan: Plan,
    read_rows: Callable[[], pd.DataFrame],
    report: Path | None,
    run_types: Sequence[str],
) -> Counter:
    """Write the runs of a sweep that has changed, then remove its older ones."""
    sweep = sweep_tags["sweep"]
    verdicts = read_verdicts(plan.paper, sweep, report) if report else {}
    figures = list_figures(plan.paper, sweep, report) if report else []
    cells = {cell.key: cell for name, cell in plan.sweep_cells if name == sweep}
    names = {key: cell.dataset_name for key, cell in cells.items()}
    hashes = [sha256(file.read_bytes()) for file in figures]
    parts = [RECORD_VERSION, names, verdicts, hashes, run_types]
    digest = sha256(to_canonical_json(parts).encode())
    if writer.search({"kind": SWEEP, DIGEST_TAG: digest, **sweep_tags}):
        return Counter(unchanged=1)

    rows = read_rows()
    if len(rows):
        rows = rows[rows["sweep"] == sweep]
    if rows.empty:
        return Counter()
    study = Study(rows)
    readable = [cells[key] for key in rows["cell"].unique()]
    outdated = writer.search(sweep_tags)
    parent_id = writer.write(describe_sweep(sweep_tags, study, rows, verdicts))
    tags = {PARENT_TAG: parent_id, **sweep_tags}
    records = [
        record
        for run_type in run_types
        for record in describe_runs(tags, readable, study, rows, run_type)
    ]
    for record in records:
        writer.write(record)
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(to_table(rows), Path(folder) / f"{sweep}.parquet")
        writer.client.log_artifacts(parent_id, folder, "rows")
    for figure in figures:
        writer.client.log_artifact(parent_id, str(figure), "figures")
    # Without this tag, the next sync repeats an interrupted one.
    writer.client.set_tag(parent_id, DIGEST_TAG, digest)
    for run in outdated:
        writer.client.delete_run(run.info.run_id)
    return Counter(written=len(records), removed=len(outdated))


def read_verdicts(paper: str, sweep: str, report: Path) -> dict[str, str]:
    """Read the verdicts of the claims that name a sweep, by their ids."""
    table = report / "tables" / "claims.csv"
    if not table.is_file():
        return {}
    verdicts = pd.read_csv(table, keep_default_na=False).set_index("id")["verdict"]
    return {
        claim.id: verdicts[claim.id]
        for claim in read_claims(paper)["claims"]
        if sweep in find_sweeps(claim.check) and claim.id in verdicts
    }


def list_figures(paper: str, sweep: str, report: Path) -> list[Path]:
    """List the figures of a sweep; those of several sweeps belong to the first one."""
    names = [spec.name for spec in read_figures(paper) if spec.sweep[:1] == (sweep,)]
    files = [report / "figures" / f"{name}.png" for name in names]
    return [file for file in files if file.is_file()]


class RunWriter:
    """Writes the runs of a paper's experiment, which the first sync creates."""

    def __init__(self, client: "MlflowClient", paper: str, artifacts: str):
        self.client = client
        experiment = client.get_experiment_by_name(paper)
        if experiment is not None:
            self.experiment = experiment.experiment_id
            return
        is_local = not is_server(client.tracking_uri)
        folder = (Path(artifacts).resolve() / paper).as_uri() if is_local else None
        self.experiment = client.create_experiment(paper, folder, EXPERIMENT_KIND)

    def search(self, tags: Mapping[str, str]) -> "list[Run]":
        """Find the runs that have some tags."""
        condition = " and ".join(f"tags.{name} = '{tags[name]}'" for name in tags)
        return self.client.search_runs(
            [self.experiment], condition, max_results=MAX_RUNS
        )

    def write(self, record: RunRecord) -> str:
        """Write a run in few calls of MLflow; return its id."""
        from mlflow.entities import Metric, Param

        run = self.client.create_run(
            self.experiment, record.end, record.tags, record.name
        )
        run_id = run.info.run_id
        params = [Param(name, text) for name, text in record.params.items()]
        metrics = [
            Metric(metric, value, record.end, step)
            for metric, value, step in record.metrics
        ]
        self.client.log_batch(run_id, metrics, params)
        self.client.set_terminated(run_id, "FINISHED", record.end)
        return run_id


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
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(CONNECT_SECONDS))
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    from alembic.util import CommandError
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    # MLflow logs every table that it creates.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    failures = (ImportError, OSError, MlflowException, SQLAlchemyError, CommandError)
    try:
        if not is_server(uri):
            check_database(uri)
        yield MlflowClient(tracking_uri=uri)
    except failures as error:
        cause = str(error).partition("\n")[0]
        advice = "`pkm sync` brings it up to date later"
        if uri.startswith(SQLITE):
            advice = "delete the file where it is damaged; `pkm sync` makes it anew"
        message = f"MLflow at {uri} was not updated ({cause}): {advice}"
        raise TrackingError(message) from error


def check_database(uri: str) -> None:
    """Read a database once; MLflow would repeat failed attempts for minutes."""
    from sqlalchemy import create_engine, inspect

    if uri.startswith(SQLITE):
        path = Path(uri.removeprefix(SQLITE).partition("?")[0])
        path.parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(uri)
    inspect(engine).has_table("experiments")
    engine.dispose()
