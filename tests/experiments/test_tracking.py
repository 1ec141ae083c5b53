"""MLflow as a projection of the store: complete, idempotent, rebuilt from the store alone."""

import io
import json
import resource
import shutil
import socket
import sqlite3
import threading
import time
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
from pkm.experiments.mlflow.run_records import Part, cell_record
from pkm.experiments.mlflow.tracking import main, open_client, project, sync, view_tag
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
            "metrics": ["nicv", "davies_bouldin"],
        },
        "second": {
            "datasets": ["wine"],
            "methods": ["packing"],
            "metrics": ["nicv", "accuracy"],
            "timing": True,
        },
    },
}


@pytest.fixture(scope="module")
def synced(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tracking")
    plan = make_plan(PAPER, {"name": "tiny", "seeds": 3})
    store = Store(folder / "results")
    run_cells(plan.cells, store, Backend())
    location = location_in(folder)
    first = sync(plan, store, profile="tiny", **location)
    return plan, store, location, first, folder


def location_in(folder):
    return {"uri": f"sqlite:///{folder}/mlflow.db", "artifacts": str(folder / "artifacts")}


def runs(location, condition, paper="mini"):
    client = open_client(location["uri"])
    experiment = client.get_experiment_by_name(paper)
    return client.search_runs([experiment.experiment_id], condition, max_results=1000)


def of_kind(location, kind, paper="mini"):
    return runs(location, f"tags.kind = '{kind}'", paper)


@pytest.mark.slow
def test_sweeps_are_parents_and_cells_children(synced):
    plan, _, location, first, _ = synced
    assert (first.added, first.kept, first.removed) == (4, 0, 0)
    parents = {run.info.run_name: run.info.run_id for run in of_kind(location, "sweep")}
    assert set(parents) == {"first (tiny)", "second (tiny)"}
    children = runs(location, f"tags.`mlflow.parentRunId` = '{parents['first (tiny)']}'")
    assert {run.info.run_name for run in children} == {
        "mean · iris",
        "fastlloyd · iris · ε=0.1",
        "fastlloyd · iris · ε=1",
        "mean · iris · over ε",
        "fastlloyd · iris · over ε",
    }
    keys = {cell.key for sweep, cell in plan.entries if sweep == "first"}
    of_cells = [run for run in children if run.data.tags["kind"] == "cell"]
    assert {run.data.tags["cell_key"] for run in of_cells} == keys


@pytest.mark.slow
def test_tags_are_flat(synced):
    plan, store, location, _, _ = synced
    cell = next(cell for cell in plan.cells if cell.epsilon == 1.0)
    (run,) = runs(location, f"tags.cell_key = '{cell.key}'")
    row = store.read([cell.key]).iloc[0]
    expected = {
        "kind": "cell",
        "paper": "mini",
        "profile": "tiny",
        "sweep": "first",
        "method": "fastlloyd",
        "dataset": "iris",
        "adjacency": "zero_out",
        "code_hash": row["code"],
        "data_sha256": row["data"],
    }
    assert expected.items() <= run.data.tags.items()
    assert float(run.data.tags["epsilon_spent"]) == pytest.approx(row["epsilon_spent"])
    assert {"nan", "[]", "None"}.isdisjoint(run.data.tags.values())


@pytest.mark.slow
def test_child_holds_the_stored_values(synced):
    plan, store, location, _, _ = synced
    cell = next(cell for cell in plan.cells if cell.epsilon == 1.0)
    (run,) = runs(location, f"tags.cell_key = '{cell.key}'")
    rows = store.read([cell.key])
    metrics = run.data.metrics
    assert metrics["nicv"] == pytest.approx(rows["nicv"].mean())
    assert metrics["nicv_sd"] == pytest.approx(rows["nicv"].std())
    assert metrics["nicv_lo"] < metrics["nicv"] < metrics["nicv_hi"]
    assert metrics["n_seeds"] == 3
    expected = {
        "method": "fastlloyd",
        "dataset": "iris",
        "epsilon": "1",
        "k": "3",
        "alpha": "0.8",
    }
    assert expected.items() <= run.data.params.items()
    assert run.info.status == "FINISHED"


@pytest.mark.slow
def test_every_cell_has_one_data_set_with_the_digest_of_its_points(synced):
    _, store, location, _, _ = synced
    for run in of_kind(location, "cell"):
        (given,) = run.inputs.dataset_inputs
        assert given.dataset.name == run.data.params["dataset"]
        assert run.data.tags["data_sha256"].startswith(given.dataset.digest)
        row = store.read([run.data.tags["cell_key"]]).iloc[0]
        assert json.loads(given.dataset.profile) == {"num_rows": row["n"], "num_columns": row["d"]}


@pytest.mark.slow
def test_infinite_metrics_are_omitted(synced):
    # The Davies-Bouldin index of a single center is infinite; MLflow stores finite numbers only.
    _, _, location, _, _ = synced
    (run,) = runs(location, "params.method = 'mean' and tags.kind = 'cell'")
    assert not [name for name in run.data.metrics if name.startswith("davies_bouldin")]


@pytest.mark.slow
def test_number_of_centers_and_times_are_shown_where_they_say_something(synced):
    _, _, location, _, _ = synced
    (mean,) = runs(location, "params.method = 'mean' and tags.kind = 'cell'")
    (packing,) = runs(location, "params.method = 'packing'")
    assert mean.data.metrics["n_centers"] == 1
    assert not [name for name in packing.data.metrics if name.startswith("n_centers")]
    assert 0 < packing.data.metrics["accuracy"] <= 1
    assert "fit_seconds" not in mean.data.metrics
    assert packing.data.metrics["fit_seconds"] > 0


@pytest.mark.slow
def test_areas_over_epsilon_are_those_of_the_rows(synced):
    plan, store, location, _, _ = synced
    rows = plan.rows(store).query("sweep == 'first'")
    means = rows.groupby(["method", "epsilon"], dropna=False)["nicv"].mean()
    # Trapezoids over 0.1 and 1; what has no epsilon is constant.
    areas = {
        "fastlloyd": 0.9 * (means["fastlloyd", 0.1] + means["fastlloyd", 1.0]) / 2,
        "mean": 0.9 * means["mean"].iloc[0],
    }
    curves = {run.data.params["method"]: run.data for run in of_kind(location, "curve")}
    assert set(curves) == set(areas)
    (parent,) = runs(location, "tags.kind = 'sweep' and tags.sweep = 'first'")
    for method, area in areas.items():
        assert curves[method].metrics["nicv_auc"] == pytest.approx(area)
        assert curves[method].params["epsilon"] == "0.1, 1"
        assert parent.data.metrics[f"nicv_auc/{method}"] == pytest.approx(area)
    assert curves["fastlloyd"].metrics["nicv_auc_lo"] < areas["fastlloyd"]


def files_under(folder):
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.slow
def test_second_sync_writes_nothing(synced):
    plan, store, location, _, folder = synced
    assert sync(plan, store, profile="tiny", **location).kept == 4
    database = sqlite3.connect(folder / "mlflow.db")
    version = database.execute("PRAGMA data_version").fetchone()
    before = files_under(folder / "artifacts")
    second = sync(plan, store, profile="tiny", **location)
    assert (second.added, second.kept, second.removed) == (0, 4, 0)
    # SQLite counts the changes that other connections have committed.
    assert database.execute("PRAGMA data_version").fetchone() == version
    assert files_under(folder / "artifacts") == before
    database.close()


@pytest.mark.slow
def test_parent_has_the_rows_as_an_artifact(synced):
    plan, store, location, _, folder = synced
    (parent,) = runs(location, "tags.kind = 'sweep' and tags.sweep = 'first'")
    client = open_client(location["uri"])
    table = client.download_artifacts(parent.info.run_id, "rows/first.parquet", str(folder))
    # Columns of other sweeps' cells are in the table, and empty.
    expected = plan.rows(store).query("sweep == 'first'").reset_index(drop=True)
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
    missing = plan.missing(store)
    build(plan.rows(store), paper="fastlloyd", missing=missing, out=report, environment={})
    location = location_in(folder)
    sync(plan, store, profile="tiny", report=report, **location)
    return plan, store, location, report, folder


@pytest.mark.slow
def test_claims_are_runs_and_their_verdicts_are_counted(reported):
    _, _, location, report, _ = reported
    table = pd.read_csv(report / "tables" / "claims.csv").set_index("id")
    claims = {run.data.tags["claim"]: run.data for run in of_kind(location, "claim", "fastlloyd")}
    assert {name: data.tags["verdict"] for name, data in claims.items()} == dict(table["verdict"])
    (run,) = of_kind(location, "report", "fastlloyd")
    counted = table["verdict"].value_counts()
    for verdict in VERDICTS:
        name = f"claims_{verdict.replace(' ', '_')}"
        assert run.data.metrics[name] == counted.get(verdict, 0)
    (sweep,) = of_kind(location, "sweep", "fastlloyd")
    named = sweep.data.tags["claim"].split()
    assert "fastlloyd/real-fast-le-glloyd" in named
    assert len(named) == sum(
        value for name, value in sweep.data.metrics.items() if name.startswith("claims_")
    )


@pytest.mark.slow
def test_the_report_and_each_figure_are_stored_once(reported):
    *_, report, folder = reported
    stored = [path.name for path in (folder / "artifacts").rglob("*") if path.is_file()]
    assert len(set(stored)) == len(stored)
    pictures = {path.name for path in (report / "figures").glob("*.png")}
    assert {"index.html", "real.parquet", "figure2.png"} <= set(stored)
    drawn_of_sweeps = {f"{spec.name}.png" for spec in read_figures("fastlloyd")} & pictures
    assert drawn_of_sweeps <= set(stored)


@pytest.mark.slow
def test_the_note_leads_to_the_report(reported):
    _, _, location, _, _ = reported
    client = open_client(location["uri"])
    note = client.get_experiment_by_name("fastlloyd").tags["mlflow.note.content"]
    run_id = note.partition("/runs/")[2].partition("/")[0]
    assert [file.path for file in client.list_artifacts(run_id, "report")] == ["report/index.html"]


@pytest.mark.slow
def test_another_verdict_replaces_the_run_of_its_claim(reported, tmp_path):
    plan, store, location, report, _ = reported
    changed = tmp_path / "report"
    shutil.copytree(report, changed)
    table = pd.read_csv(changed / "tables" / "claims.csv")
    name = "fastlloyd/real-fast-le-glloyd"
    table.loc[table["id"] == name, "verdict"] = "fails"
    table.to_csv(changed / "tables" / "claims.csv", index=False)
    sync(plan, store, profile="tiny", report=changed, **location)
    (run,) = runs(location, f"tags.kind = 'claim' and tags.claim = '{name}'", "fastlloyd")
    assert run.data.tags["verdict"] == "fails"
    (sweep,) = of_kind(location, "sweep", "fastlloyd")
    assert sweep.data.metrics["claims_fails"] >= 1
    # As it was, for the tests that follow.
    sync(plan, store, profile="tiny", report=report, **location)


@pytest.mark.slow
def test_prepared_views_show_the_main_columns(synced):
    _, _, location, _, _ = synced
    tags = open_client(location["uri"]).get_experiment_by_name("mini").tags
    assert tags["mlflow.experimentKind"] == "custom_model_development"
    for kind, ending in {"cell": "", "curve": "_auc"}.items():
        state = json.loads(json.loads(tags[view_tag(kind)])["state"])
        shown = state["selectedColumns"]
        for name in ("method", "dataset", "epsilon"):
            assert f"params.`{name}`" in shown
        for name in ("nicv", "accuracy"):
            assert f"metrics.`{name}{ending}`" in shown
        assert "metrics.`inertia`" not in shown
        assert state["searchFilter"] == f"tags.kind = '{kind}'"


@pytest.mark.slow
def test_run_of_changed_code_replaces_the_older_run(synced, tmp_path):
    plan, store, _, _, _ = synced
    location = location_in(tmp_path)
    newer = Store(tmp_path / "results")
    sync(plan, store, **location)
    changed = make_plan(PAPER, {"name": "tiny", "seeds": 3})
    for cell in changed.cells:
        # The same cell with another key, as changed source files would give it.
        old_key = cell.key
        cell.__dict__["key"] = old_key[::-1]
        rows = store.read([old_key]).assign(cell=cell.key)
        newer.write(cell, rows)
    for _, cell in changed.entries:
        cell.__dict__["key"] = next(same.key for same in changed.cells if same == cell)
    result = sync(changed, newer, **location)
    assert (result.added, result.removed) == (4, 4)
    synced_keys = {run.data.tags["cell_key"] for run in of_kind(location, "cell")}
    assert synced_keys == {cell.key for cell in changed.cells}


@pytest.mark.slow
def test_runs_equal_their_records(synced):
    plan, store, location, _, _ = synced
    rows = plan.rows(store)
    for cell in dict.fromkeys(cell for sweep, cell in plan.entries if sweep == "first"):
        record = cell_record(Part("mini", "tiny", "first"), cell, rows[rows["cell"] == cell.key])
        (run,) = runs(location, f"tags.cell_key = '{cell.key}'")
        assert run.data.metrics == record.metrics
        assert run.data.params == record.params
        assert run.info.run_name == record.name
        assert run.info.status == "FINISHED"
        assert run.info.start_time == record.start
        assert run.info.end_time == record.end
        assert record.tags.items() <= (run.data.tags | {"variant": cell.variant}).items()


@pytest.mark.slow
def test_runs_of_an_interrupted_sync_are_rewritten(synced, tmp_path, monkeypatch):
    plan, store, _, _, _ = synced
    location = location_in(tmp_path)
    log_batch = MlflowClient.log_batch

    def interrupted(client, run_id, *args, **kwargs):
        if kwargs["params"]:
            raise KeyboardInterrupt
        log_batch(client, run_id, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "log_batch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sync(plan, store, **location)
    assert sync(plan, store, **location).added == 4
    cells = of_kind(location, "cell")
    assert len(cells) == 4
    assert all(run.data.params for run in cells)


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
    project(plan, store, config, Console(file=output, width=80))
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
    uri = location_in(tmp_path)["uri"]
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
    uri = location_in(tmp_path)["uri"]
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
    assert_one_line(told(plan, store, location["uri"], location["artifacts"]), location["uri"])
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


@pytest.mark.parametrize("word", ["verb=run", "sweeps=[real]", "jobs=2", "backend.jobs=2"])
def test_keys_without_effect_are_refused(word, capsys, tmp_path):
    assert main([word, f"results={tmp_path / 'results'}"]) == 2
    assert f"error: {word} has no effect on `pkm sync`" in capsys.readouterr().err
