"""MLflow as a projection of the store: complete, idempotent, rebuilt from the store alone."""

import io
import json
import math
import socket
import time

import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient
from omegaconf import OmegaConf
from rich.console import Console

from pkm.experiments.backends import Backend, run_cells
from pkm.experiments.plan import make_plan
from pkm.experiments.store import Store
from pkm.experiments.tracking import (
    VIEW_TAG,
    child_record,
    main,
    open_client,
    project,
    summary,
    sync,
)
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
    (folder / "report").mkdir()
    (folder / "report" / "index.html").write_text("<p>report</p>")
    location = location_in(folder)
    first = sync(plan, store, profile="tiny", report=folder / "report", **location)
    return plan, store, location, first, folder


def location_in(folder):
    return {"uri": f"sqlite:///{folder}/mlflow.db", "artifacts": str(folder / "artifacts")}


def runs(location, condition):
    client = open_client(location["uri"])
    experiment = client.get_experiment_by_name("mini")
    return client.search_runs([experiment.experiment_id], condition, max_results=1000)


@pytest.mark.slow
def test_sweeps_are_parents_and_cells_children(synced):
    plan, _, location, first, _ = synced
    assert (first.added, first.kept, first.removed) == (4, 0, 0)
    parents = {run.info.run_name: run.info.run_id for run in runs(location, "tags.kind = 'sweep'")}
    assert set(parents) == {"first (tiny)", "second (tiny)"}
    children = runs(location, f"tags.`mlflow.parentRunId` = '{parents['first (tiny)']}'")
    assert {run.info.run_name for run in children} == {
        "mean · iris",
        "fastlloyd · iris · ε=0.1",
        "fastlloyd · iris · ε=1",
    }
    keys = {cell.key for sweep, cell in plan.entries if sweep == "first"}
    assert {run.data.tags["cell"] for run in children} == keys


@pytest.mark.slow
def test_child_holds_the_stored_values(synced):
    plan, store, location, _, _ = synced
    cell = next(cell for cell in plan.cells if cell.epsilon == 1.0)
    (run,) = runs(location, f"tags.cell = '{cell.key}'")
    rows = store.read([cell.key])
    metrics = run.data.metrics
    assert metrics["nicv_mean"] == pytest.approx(rows["nicv"].mean())
    assert metrics["nicv_sd"] == pytest.approx(rows["nicv"].std())
    assert metrics["nicv_lo"] < metrics["nicv_mean"] < metrics["nicv_hi"]
    expected = {
        "method": "fastlloyd",
        "dataset": "iris",
        "epsilon": "1",
        "k": "3",
        "alpha": "0.8",
        "variant": "published",
    }
    assert expected.items() <= run.data.params.items()
    assert run.data.tags["code"] == rows["code"][0]
    assert run.data.tags["data"] == rows["data"][0]
    assert run.info.status == "FINISHED"


@pytest.mark.slow
def test_infinite_metrics_are_omitted(synced):
    # The Davies-Bouldin index of a single center is infinite; MLflow stores finite numbers only.
    _, _, location, _, _ = synced
    (run,) = runs(location, "params.method = 'mean'")
    assert not [name for name in run.data.metrics if name.startswith("davies_bouldin")]


@pytest.mark.slow
def test_number_of_centers_is_a_metric_where_variable(synced):
    _, _, location, _, _ = synced
    (mean,) = runs(location, "params.method = 'mean'")
    (packing,) = runs(location, "params.method = 'packing'")
    assert mean.data.metrics["n_centers_mean"] == 1
    assert not [name for name in packing.data.metrics if name.startswith("n_centers")]
    assert 0 < packing.data.metrics["accuracy_mean"] <= 1
    assert mean.data.tags["timing"] == "false"
    assert packing.data.tags["timing"] == "true"


@pytest.mark.slow
def test_second_sync_adds_nothing(synced):
    plan, store, location, _, folder = synced
    before = {run.info.run_id for run in runs(location, "")}
    second = sync(plan, store, profile="tiny", report=folder / "report", **location)
    assert (second.added, second.kept, second.removed) == (0, 4, 0)
    after = {run.info.run_id for run in runs(location, "")}
    assert after == before


@pytest.mark.slow
def test_parent_has_table_and_report_as_artifacts(synced):
    plan, store, location, _, folder = synced
    parents = runs(location, "tags.kind = 'sweep'")
    (parent,) = [run for run in parents if run.data.tags["sweep"] == "first"]
    client = open_client(location["uri"])
    table = client.download_artifacts(parent.info.run_id, "rows/first.parquet", str(folder))
    # Columns of other sweeps' cells are in the table, and empty.
    expected = plan.rows(store).query("sweep == 'first'").reset_index(drop=True)
    stored = pd.read_parquet(table)
    plain = [column.name for column in COLUMNS if column.dtype in PLAIN and column.name in expected]
    pd.testing.assert_frame_equal(stored[plain], expected[plain], check_dtype=False)
    assert [len(charges) for charges in stored["charges"]] == [
        len(charges) for charges in expected["charges"]
    ]
    files = client.list_artifacts(parent.info.run_id, "report")
    assert [file.path for file in files] == ["report/index.html"]


@pytest.mark.slow
def test_prepared_view_shows_the_main_columns(synced):
    _, _, location, _, _ = synced
    tags = open_client(location["uri"]).get_experiment_by_name("mini").tags
    state = json.loads(json.loads(tags[VIEW_TAG])["state"])
    shown = " ".join(state["selectedColumns"])
    for name in ("method", "dataset", "epsilon", "nicv", "silhouette", "seconds", "accuracy_mean"):
        assert name in shown
    assert "inertia" not in shown
    assert tags["mlflow.experimentKind"] == "custom_model_development"


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
        newer.write(cell, store.read([old_key]).assign(cell=cell.key))
    for _, cell in changed.entries:
        cell.__dict__["key"] = next(same.key for same in changed.cells if same == cell)
    result = sync(changed, newer, **location)
    assert (result.added, result.removed) == (4, 4)
    synced_keys = {run.data.tags["cell"] for run in runs(location, "tags.kind = 'cell'")}
    assert synced_keys == {cell.key for cell in changed.cells}


@pytest.mark.slow
def test_runs_equal_their_records(synced):
    plan, store, location, _, _ = synced
    rows = plan.rows(store)
    (parent,) = runs(location, "tags.sweep = 'first'")
    parent_identity = parent.data.tags["identity"]
    for sweep, cell in plan.entries:
        if sweep != "first":
            continue
        subset = rows[rows["cell"] == cell.key]
        record = child_record(cell, subset, parent_identity, parent.info.run_id)
        (run,) = runs(location, f"tags.cell = '{cell.key}'")
        assert run.data.metrics == record.metrics
        assert run.data.params == record.params
        assert run.info.run_name == record.name
        assert run.info.status == "FINISHED"
        assert run.info.start_time == record.start
        assert run.info.end_time == record.end
        # MLflow stores no empty tags.
        expected = record.tags | {"identity": record.identity, "mlflow.runName": record.name}
        tags = {name: value for name, value in run.data.tags.items() if value}
        assert tags == {name: value for name, value in expected.items() if value}


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
    cells = runs(location, "tags.kind = 'cell'")
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


@pytest.mark.parametrize(
    "what", ["damaged", "below a file", "a folder", "no server", "no database server"]
)
def test_mlflow_out_of_order_is_told_in_one_line(synced, unusable, tmp_path, what):
    plan, store, *_ = synced
    uri = unusable[what]
    config = OmegaConf.create({"tracking": {"uri": uri, "artifacts": str(tmp_path / "artifacts")}})
    output = io.StringIO()
    started = time.monotonic()
    project(plan, store, config, Console(file=output, width=80))
    assert time.monotonic() - started < 30
    (line,) = output.getvalue().splitlines()
    assert line.startswith(f"MLflow at {uri} was not updated (")
    assert "`pkm sync`" in line


def test_dashboard_refuses_ports_it_cannot_have(capsys, tmp_path):
    place = f"results={tmp_path}"
    assert main(["dashboard", "--port", "99999", place]) == 2
    assert "port=99999 is not allowed" in capsys.readouterr().err
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert main(["dashboard", "--port", str(port), place]) == 2
    assert f"port={port} is not free" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["verb=run", "sweeps=[real]", "jobs=2", "backend.jobs=2"])
def test_keys_without_effect_are_refused(word, capsys, tmp_path):
    assert main(["sync", word, f"results={tmp_path / 'results'}"]) == 2
    assert f"error: {word} has no effect on `pkm sync`" in capsys.readouterr().err


@pytest.mark.statistical
def test_interval_has_the_stated_coverage():
    generator = np.random.default_rng(0)
    summaries = [summary("x", pd.Series(generator.normal(size=20))) for _ in range(1000)]
    n_covered = sum(values["x_lo"] <= 0 <= values["x_hi"] for values in summaries)
    # The share of a binomial(1000, 0.95) variable has standard deviation 0.007.
    assert abs(n_covered / 1000 - 0.95) < 0.03
    assert summary("x", pd.Series([math.inf, 2.0])) == {"x_mean": 2.0}
    assert summary("x", pd.Series([math.inf])) == {}
