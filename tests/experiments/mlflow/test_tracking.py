"""MLflow as a view of the store: complete, idempotent, made anew from the store alone."""

import io
import resource
import shutil
import socket
import sqlite3
import threading
import time
from collections import Counter
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pandas as pd
import pytest
from mlflow import MlflowClient
from omegaconf import OmegaConf
from rich.console import Console

from pkm.analysis.claims.findings import VERDICTS
from pkm.analysis.figures.figure import read_figures
from pkm.analysis.pages.report import build
from pkm.experiments.backends.backends import run_cells
from pkm.experiments.commands.reproduce import main as reproduce
from pkm.experiments.config.backend import Backend
from pkm.experiments.config.groups import choices
from pkm.experiments.mlflow.run_records import CELL, CURVE, SWEEP
from pkm.experiments.mlflow.tracking import (
    DIGEST_TAG,
    PARENT_TAG,
    RunWriter,
    open_client,
    sync,
    sync_after_run,
)
from pkm.experiments.plan.plan import make_plan
from pkm.experiments.store.store import Store
from pkm.schema import COLUMNS

PLAIN = ("text", "integer", "number", "flag")

pytestmark = pytest.mark.integration

PAPER = {
    "name": "mini",
    "epsilon": [0.1, 1.0],
    "sweeps": {
        "first": {
            "datasets": ["iris"],
            "methods": ["mean", "fastlloyd"],
            "metrics": ["nicv", "silhouette", "davies_bouldin"],
        },
        "second": {
            "datasets": ["wine"],
            "methods": ["packing"],
            "metrics": ["nicv", "accuracy"],
            "timing": True,
        },
    },
}


def location_in(folder):
    values = {"uri": f"sqlite:///{folder}/mlflow.db", "artifacts": str(folder / "artifacts")}
    return OmegaConf.create(values)


class CountingStore(Store):
    """A store that counts how often rows are read."""

    n_reads = 0

    def read(self, *args, **kwargs):
        self.n_reads += 1
        return super().read(*args, **kwargs)


@pytest.fixture(scope="module")
def synced(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tracking")
    plan = make_plan(PAPER, {"name": "tiny", "seeds": 3})
    store = CountingStore(folder / "results")
    run_cells(plan.cells, store, Backend())
    location = location_in(folder)
    store.n_reads = 0
    first = sync(plan, store, location, profile="tiny")
    assert store.n_reads == 1, "rows of all sweeps are read together"
    return plan, store, location, first, folder


def runs(location, paper="mini", **tags):
    with open_client(location.uri) as client:
        experiment = client.get_experiment_by_name(paper)
        assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
        return list(RunWriter(client, paper, "").search(tags))


def history(location, run, metric):
    with open_client(location.uri) as client:
        return {m.step: m.value for m in client.get_metric_history(run.info.run_id, metric)}


def files_under(folder):
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.slow
def test_a_sweep_is_a_run_above_its_curves(synced):
    _, _, location, first, _ = synced
    # A curve for each of three methods; fastlloyd's has two cells.
    assert first == Counter(written=3)
    parents = {run.data.tags["sweep"]: run.info.run_id for run in runs(location, kind=SWEEP)}
    assert set(parents) == {"first", "second"}
    curves = runs(location, kind=CURVE)
    assert len(curves) == 3
    for run in curves:
        assert run.data.tags[PARENT_TAG] == parents[run.data.tags["sweep"]]
        assert run.info.status == "FINISHED"
    names = {run.info.run_name for run in curves}
    assert names == {"mean · iris", "fastlloyd · iris", "packing · wine"}


@pytest.mark.slow
def test_steps_of_a_curve_are_a_thousand_epsilon(synced):
    plan, store, location, _, _ = synced
    (curve,) = [run for run in runs(location, kind=CURVE) if "fastlloyd" in run.info.run_name]
    rows = plan.read_rows(store).query("method == 'fastlloyd'")
    for metric in ("nicv", "silhouette"):
        by_epsilon = rows.groupby("epsilon")[metric]
        means = by_epsilon.mean()
        assert history(location, curve, metric) == {
            100: pytest.approx(means[0.1]),
            1000: pytest.approx(means[1.0]),
        }
        # Student's t with two degrees of freedom.
        half_widths = 4.302653 * by_epsilon.sem()
        for end, sign in (("lo", -1), ("hi", 1)):
            ends = history(location, curve, f"{metric}_{end}")
            assert ends[100] == pytest.approx(means[0.1] + sign * half_widths[0.1], rel=1e-6)
    area = rows.pivot(index="seed", columns="epsilon", values="nicv").mean(axis=1) * 0.9
    assert curve.data.metrics["nicv_auc"] == pytest.approx(area.mean())


def test_infinite_values_are_left_out(synced):
    """With one cluster there is no Davies-Bouldin index; MLflow keeps no infinity."""
    _, _, location, _, _ = synced
    (curve,) = [run for run in runs(location, kind=CURVE) if "mean" in run.info.run_name]
    assert "davies_bouldin" not in curve.data.metrics


def test_a_method_without_epsilon_is_a_level_line(synced):
    _, _, location, _, _ = synced
    (curve,) = [run for run in runs(location, kind=CURVE) if "mean" in run.info.run_name]
    values = history(location, curve, "nicv")
    assert set(values) == {100, 1000}
    assert values[100] == values[1000]


def test_parameters_and_tags_are_flat(synced):
    plan, _, location, _, _ = synced
    (curve,) = [run for run in runs(location, kind=CURVE) if "fastlloyd" in run.info.run_name]
    cell = next(cell for cell in plan.cells if cell.method == "fastlloyd")
    expected = {"method": "fastlloyd", "dataset": "iris", "k": "3", "seeds": "3", "alpha": "0.8"}
    assert curve.data.params.items() >= expected.items()
    assert curve.data.tags["code"] == cell.code
    assert curve.data.tags["data"] == cell.data
    assert curve.data.tags["trust"] == "central"


def test_times_of_fits_and_of_batches_have_different_names(synced):
    _, _, location, _, _ = synced
    for run in runs(location, kind=CURVE):
        times = {
            name
            for name in run.data.metrics
            if "seconds" in name and name[-3:] not in ("_lo", "_hi")
        }
        if run.info.run_name == "packing · wine":
            assert times == {"fit_seconds"}
        else:
            assert times == {"batch_cpu_seconds_per_seed", "compile_seconds"}


def test_second_sync_writes_nothing(synced):
    plan, store, location, _, folder = synced
    database = sqlite3.connect(folder / "mlflow.db")
    version = database.execute("PRAGMA data_version").fetchone()
    before = files_under(folder / "artifacts")
    n_reads = store.n_reads
    assert sync(plan, store, location, profile="tiny") == {"unchanged": 2}
    assert store.n_reads == n_reads
    # SQLite counts the changes that other connections have committed.
    assert database.execute("PRAGMA data_version").fetchone() == version
    assert files_under(folder / "artifacts") == before
    database.close()


@pytest.mark.slow
def test_cells_have_runs_where_asked_for(synced, tmp_path):
    plan, store, _, _, _ = synced
    location = location_in(tmp_path)
    sync(plan, store, location, cells=True)
    assert len(runs(location, kind=CELL)) == len(plan.cells) == 4
    assert sync(plan, store, location, cells=True) == {"unchanged": 2}
    assert sync(plan, store, location)["removed"] >= 4
    assert not runs(location, kind=CELL)


@pytest.mark.slow
def test_parent_has_the_rows_as_an_artifact(synced):
    plan, store, location, _, folder = synced
    (parent,) = runs(location, kind=SWEEP, sweep="first")
    with open_client(location.uri) as client:
        table = client.download_artifacts(parent.info.run_id, "rows/first.parquet", str(folder))
    # Columns of other sweeps' cells are in the table, and empty.
    expected = plan.read_rows(store).query("sweep == 'first'").reset_index(drop=True)
    stored = pd.read_parquet(table)
    plain = [column.name for column in COLUMNS if column.dtype in PLAIN and column.name in stored]
    pd.testing.assert_frame_equal(stored[plain], expected[plain], check_dtype=False)
    assert [len(charges) for charges in stored["charges"]] == [
        len(charges) for charges in expected["charges"]
    ]


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """Cells of a paper with claims, and its report, in MLflow."""
    folder = tmp_path_factory.mktemp("reported")
    paper = {
        "name": "fastlloyd",
        "epsilon": [0.1, 1.0],
        "sweeps": {
            "real": {"datasets": ["iris"], "methods": ["lloyd_published", "fastlloyd_published"]}
        },
    }
    plan = make_plan(paper, {"name": "tiny", "seeds": 3})
    store = Store(folder / "results")
    run_cells(plan.cells, store, Backend())
    report = folder / "report"
    missing = plan.list_missing(store)
    build(plan.read_rows(store), paper="fastlloyd", missing=missing, out=report, environment={})
    location = location_in(folder)
    sync(plan, store, location, profile="tiny", report=report)
    return plan, store, location, report, folder


@pytest.mark.slow
def test_verdicts_are_tags_of_the_sweep_and_counted(reported):
    _, _, location, report, _ = reported
    (parent,) = runs(location, "fastlloyd", kind=SWEEP)
    verdicts = pd.read_csv(report / "tables" / "claims.csv").set_index("id")["verdict"]
    tags = {
        name.removeprefix("verdict/"): text
        for name, text in parent.data.tags.items()
        if name.startswith("verdict/")
    }
    assert tags
    assert tags == verdicts[list(tags)].to_dict()
    counts = {verdict: list(tags.values()).count(verdict) for verdict in VERDICTS}
    for verdict, count in counts.items():
        assert parent.data.metrics[f"claims_{verdict.replace(' ', '_')}"] == count
    methods = {
        name.partition("/")[2] for name in parent.data.metrics if name.startswith("nicv_auc/")
    }
    assert methods == {"lloyd_published", "fastlloyd_published"}


@pytest.mark.slow
def test_figures_are_artifacts_of_their_sweep(reported):
    _, _, location, report, _ = reported
    (parent,) = runs(location, "fastlloyd", kind=SWEEP)
    with open_client(location.uri) as client:
        listed = client.list_artifacts(parent.info.run_id, "figures")
    stored = {item.path.rpartition("/")[2] for item in listed}
    drawn = {path.name for path in (report / "figures").glob("*.png")}
    of_sweep = {
        f"{spec.name}.png" for spec in read_figures("fastlloyd") if spec.sweep[:1] == ("real",)
    }
    assert stored == drawn & of_sweep
    assert stored


@pytest.mark.slow
def test_another_verdict_replaces_the_runs_of_its_sweep(reported, tmp_path):
    plan, store, _, report, _ = reported
    location = location_in(tmp_path)
    sync(plan, store, location, profile="tiny", report=report)
    again = tmp_path / "report"
    shutil.copytree(report, again)
    table = pd.read_csv(again / "tables" / "claims.csv", keep_default_na=False)
    (parent,) = runs(location, "fastlloyd", kind=SWEEP)
    claim = next(name for name in parent.data.tags if name.startswith("verdict/")).partition("/")[2]
    table.loc[table["id"] == claim, "verdict"] = "not reproduced"
    table.to_csv(again / "tables" / "claims.csv", index=False)
    counts = sync(plan, store, location, profile="tiny", report=again)
    assert counts == Counter(written=2, removed=3)
    (parent,) = runs(location, "fastlloyd", kind=SWEEP)
    assert parent.data.tags[f"verdict/{claim}"] == "not reproduced"
    curves = runs(location, "fastlloyd", kind=CURVE)
    assert {run.data.tags[PARENT_TAG] for run in curves} == {parent.info.run_id}


@pytest.mark.slow
def test_runs_of_changed_code_replace_the_older_ones(synced, tmp_path):
    plan, store, _, _, _ = synced
    location = location_in(tmp_path)
    newer = Store(tmp_path / "results")
    sync(plan, store, location, profile="tiny")
    changed = make_plan(PAPER, {"name": "tiny", "seeds": 3})
    for cell in changed.cells:
        # The same cell with another key and code, as changed source files would give it.
        old_key = cell.key
        cell.__dict__["key"] = old_key[::-1]
        newer.write(cell, store.read([old_key]).assign(cell=cell.key, code="changed"))
    for _, cell in changed.sweep_cells:
        cell.__dict__["key"] = next(same.key for same in changed.cells if same == cell)
    counts = sync(changed, newer, location, profile="tiny")
    assert counts == {"written": 3, "removed": 5}
    assert {run.data.tags["code"] for run in runs(location, kind=CURVE)} == {"changed"}


@pytest.mark.slow
def test_runs_of_an_interrupted_sync_are_written_again(synced, tmp_path, monkeypatch):
    plan, store, _, _, _ = synced
    location = location_in(tmp_path)
    set_terminated = MlflowClient.set_terminated
    ended = []

    def interrupted(client, run_id, *args, **kwargs):
        if ended:
            raise KeyboardInterrupt
        ended.append(run_id)
        set_terminated(client, run_id, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "set_terminated", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sync(plan, store, location)
    sync(plan, store, location)
    curves = runs(location, kind=CURVE)
    assert len(curves) == 3
    assert len(runs(location, kind=SWEEP)) == 2
    assert all(run.info.status == "FINISHED" and run.data.params for run in curves)
    assert all(DIGEST_TAG in run.data.tags for run in runs(location, kind=SWEEP))


@pytest.fixture
def unusable(tmp_path):
    """Addresses at which nothing can be shown, by what is wrong."""
    (tmp_path / "damaged.db").write_text("no database")
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.db").mkdir()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    return {
        "damaged": f"sqlite:///{tmp_path}/damaged.db",
        "below a file": f"sqlite:///{tmp_path}/file/mlflow.db",
        "a folder": f"sqlite:///{tmp_path}/folder.db",
        "no server": f"http://127.0.0.1:{port}",
        "no database server": f"postgresql://user@127.0.0.1:{port}/bench",
    }


def told(plan, store, uri, artifacts):
    """Bring MLflow up to date as a run does; return what is printed."""
    config = OmegaConf.create({"tracking": {"uri": uri, "artifacts": str(artifacts)}})
    output = io.StringIO()
    started = time.monotonic()
    sync_after_run(plan, store, config, Console(file=output, width=80))
    assert time.monotonic() - started < 60
    return output.getvalue().splitlines()


def assert_one_line(lines, uri):
    (line,) = lines
    assert line.startswith(f"MLflow at {uri} was not updated (")
    assert "`pkm sync`" in line


@pytest.mark.parametrize(
    "what", ["damaged", "below a file", "a folder", "no server", "no database server"]
)
def test_mlflow_out_of_order_is_told_in_one_line(synced, unusable, tmp_path, what, capfd):
    plan, store, *_ = synced
    uri = unusable[what]
    assert_one_line(told(plan, store, uri, tmp_path / "artifacts"), uri)
    assert capfd.readouterr().err == ""


def test_a_full_disk_is_told_in_one_line(synced, tmp_path, capfd):
    # No file of this process may grow beyond what a new database takes.
    plan, store, *_ = synced
    uri = location_in(tmp_path).uri
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        lines = told(plan, store, uri, tmp_path / "artifacts")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert_one_line(lines, uri)
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_artifacts_that_cannot_be_written_are_told_in_one_line(synced, tmp_path):
    plan, store, *_ = synced
    (tmp_path / "file").write_text("")
    uri = location_in(tmp_path).uri
    assert_one_line(told(plan, store, uri, tmp_path / "file" / "artifacts"), uri)


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["pages", "version"])
def test_a_database_damaged_later_is_told_in_one_line(synced, tmp_path, damage, capfd):
    plan, store, _, _, folder = synced
    location = location_in(tmp_path)
    path = tmp_path / "mlflow.db"
    with closing(sqlite3.connect(folder / "mlflow.db")) as database:
        # MLflow keeps a database open that it has opened: a copy is opened anew.
        database.execute("VACUUM INTO ?", [str(path)])
    if damage == "version":
        with closing(sqlite3.connect(path)) as database:
            database.execute("UPDATE alembic_version SET version_num = 'of the future'")
            database.commit()
    else:
        content = path.read_bytes()
        path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    capfd.readouterr()
    assert_one_line(told(plan, store, location.uri, location.artifacts), location.uri)
    assert capfd.readouterr().err == ""


def test_a_server_that_is_not_mlflow_is_told_in_one_line(synced, tmp_path):
    class Other(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<p>something else</p>")

        do_POST = do_GET

        def log_message(self, *_):
            """Print nothing."""

    plan, store, *_ = synced
    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        uri = f"http://127.0.0.1:{server.server_port}"
        lines = told(plan, store, uri, tmp_path)
        server.shutdown()
    assert_one_line(lines, uri)


@pytest.mark.slow
def test_papers_that_follow_are_run_where_mlflow_is_out_of_order(tmp_path, capfd):
    (tmp_path / "mlflow.db").write_text("no database")
    words = ["paper=all", "profile=smoke", "verb=report", f"results={tmp_path}"]
    assert reproduce(words) == 0
    printed = capfd.readouterr().out
    assert printed.count("was not updated") == len(choices("paper"))
    assert printed.count("no report") == len(choices("paper"))
