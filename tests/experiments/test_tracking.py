"""MLflow as a projection of the store: complete, idempotent, rebuilt from nothing."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient

from pkm.experiments.backends import Backend, run_cells
from pkm.experiments.plan import make_plan
from pkm.experiments.store import Store
from pkm.experiments.tracking import (
    VIEW_TAG,
    child_record,
    open_client,
    summary,
    sync,
)

pytestmark = pytest.mark.integration

PAPER = {
    "name": "mini",
    "epsilon": [0.1, 1.0],
    "sweeps": {
        "one": {
            "datasets": ["iris"],
            "methods": ["mean", "fastlloyd"],
            "metrics": ["nicv", "davies_bouldin"],
        },
        "two": {
            "datasets": ["wine"],
            "methods": ["packing"],
            "metrics": ["nicv", "accuracy"],
            "timing": True,
        },
    },
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tracking")
    plan = make_plan(PAPER, {"name": "tiny", "seeds": 3})
    store = Store(folder / "results")
    run_cells(plan.cells, store, Backend())
    (folder / "report").mkdir()
    (folder / "report" / "index.html").write_text("<p>report</p>")
    where = {"uri": f"sqlite:///{folder}/mlflow.db", "artifacts": str(folder / "artifacts")}
    first = sync(plan, store, profile="tiny", report=folder / "report", **where)
    return plan, store, where, first, folder


def runs(where, condition):
    client = open_client(where["uri"])
    experiment = client.get_experiment_by_name("mini")
    return client.search_runs([experiment.experiment_id], condition, max_results=1000)


@pytest.mark.slow
def test_one_experiment_one_parent_per_sweep_one_child_per_cell(world):
    plan, _, where, first, _ = world
    assert (first.added, first.kept, first.removed) == (4, 0, 0)
    parents = {run.info.run_name: run.info.run_id for run in runs(where, "tags.kind = 'sweep'")}
    assert set(parents) == {"one (tiny)", "two (tiny)"}
    children = runs(where, f"tags.`mlflow.parentRunId` = '{parents['one (tiny)']}'")
    assert {run.info.run_name for run in children} == {
        "mean · iris",
        "fastlloyd · iris · ε=0.1",
        "fastlloyd · iris · ε=1",
    }
    assert {run.data.tags["cell"] for run in children} == {
        cell.key for sweep, cell in plan.entries if sweep == "one"
    }


@pytest.mark.slow
def test_child_holds_what_the_store_holds(world):
    plan, store, where, _, _ = world
    cell = next(cell for cell in plan.cells if cell.epsilon == 1.0)
    (run,) = runs(where, f"tags.cell = '{cell.key}'")
    rows = store.read([cell.key])
    assert run.data.metrics["nicv_mean"] == pytest.approx(rows["nicv"].mean())
    assert run.data.metrics["nicv_sd"] == pytest.approx(rows["nicv"].std())
    assert run.data.metrics["nicv_lo"] < run.data.metrics["nicv_mean"] < run.data.metrics["nicv_hi"]
    expected = {
        "method": "fastlloyd",
        "dataset": "iris",
        "epsilon": "1",
        "k": "3",
        "alpha": "0.8",
        "variant": "published",
    }
    assert expected.items() <= run.data.params.items()
    assert run.data.tags["code"] == rows["code"][0] and run.data.tags["data"] == rows["data"][0]
    assert run.info.status == "FINISHED"


@pytest.mark.slow
def test_single_center_has_no_davies_bouldin_index_and_no_metric_of_it(world):
    # The index is infinite there, and MLflow keeps finite numbers only.
    _, _, where, _, _ = world
    (run,) = runs(where, "params.method = 'mean'")
    assert not [name for name in run.data.metrics if name.startswith("davies_bouldin")]


@pytest.mark.slow
def test_number_of_centers_is_a_metric_where_the_method_finds_its_own(world):
    _, _, where, _, _ = world
    (mean,), (packing,) = (runs(where, f"params.method = '{name}'") for name in ("mean", "packing"))
    assert mean.data.metrics["n_centers_mean"] == 1
    assert not [name for name in packing.data.metrics if name.startswith("n_centers")]
    assert 0 < packing.data.metrics["accuracy_mean"] <= 1
    assert (mean.data.tags["timing"], packing.data.tags["timing"]) == ("false", "true")


@pytest.mark.slow
def test_second_sync_adds_nothing(world):
    plan, store, where, _, folder = world
    before = {run.info.run_id for run in runs(where, "")}
    again = sync(plan, store, profile="tiny", report=folder / "report", **where)
    assert (again.added, again.kept, again.removed) == (0, 4, 0)
    assert {run.info.run_id for run in runs(where, "")} == before


@pytest.mark.slow
def test_table_and_report_are_artifacts_of_the_parent(world):
    plan, store, where, _, folder = world
    (parent,) = [
        run for run in runs(where, "tags.kind = 'sweep'") if run.data.tags["sweep"] == "one"
    ]
    client = open_client(where["uri"])
    table = client.download_artifacts(parent.info.run_id, "rows/one.parquet", str(folder))
    expected = plan.rows(store).query("sweep == 'one'").reset_index(drop=True)
    # A column that only other sweeps' cells have is empty here.
    pd.testing.assert_frame_equal(pd.read_parquet(table), expected)
    assert [file.path for file in client.list_artifacts(parent.info.run_id, "report")] == [
        "report/index.html"
    ]


@pytest.mark.slow
def test_prepared_view_shows_the_columns_a_person_wants(world):
    _, _, where, _, _ = world
    tags = open_client(where["uri"]).get_experiment_by_name("mini").tags
    state = json.loads(json.loads(tags[VIEW_TAG])["state"])
    shown = " ".join(state["selectedColumns"])
    for name in ("method", "dataset", "epsilon", "nicv", "silhouette", "seconds", "accuracy_mean"):
        assert name in shown
    assert "inertia" not in shown
    assert tags["mlflow.experimentKind"] == "custom_model_development"


@pytest.mark.slow
def test_cell_of_changed_code_replaces_its_older_run(world, tmp_path):
    plan, store, _, _, _ = world
    where = {"uri": f"sqlite:///{tmp_path}/mlflow.db", "artifacts": str(tmp_path / "artifacts")}
    newer = Store(tmp_path / "results")
    sync(plan, store, **where)
    changed = make_plan(PAPER, {"name": "tiny", "seeds": 3})
    for cell in changed.cells:
        # The same cell under the key that other source files would give it.
        old = cell.key
        cell.__dict__["key"] = cell.key[::-1]
        newer.write(cell, store.read([old]).assign(cell=cell.key))
    for _, cell in changed.entries:
        cell.__dict__["key"] = next(other.key for other in changed.cells if other == cell)
    done = sync(changed, newer, **where)
    assert (done.added, done.removed) == (4, 4)
    assert {run.data.tags["cell"] for run in runs(where, "tags.kind = 'cell'")} == {
        cell.key for cell in changed.cells
    }


@pytest.mark.slow
def test_runs_hold_all_of_their_records(world):
    plan, store, where, _, _ = world
    rows = plan.rows(store)
    (parent,) = runs(where, "tags.sweep = 'one'")
    parent_identity = parent.data.tags["identity"]
    for sweep, cell in plan.entries:
        if sweep != "one":
            continue
        subset = rows[rows["cell"] == cell.key]
        record = child_record(cell, subset, parent_identity, parent.info.run_id)
        (run,) = runs(where, f"tags.cell = '{cell.key}'")
        assert (run.data.metrics, run.data.params) == (record.metrics, record.params)
        assert (run.info.run_name, run.info.status) == (record.name, "FINISHED")
        assert (run.info.start_time, run.info.end_time) == (record.start, record.end)
        # MLflow keeps no empty tags.
        expected = record.tags | {"identity": record.identity, "mlflow.runName": record.name}
        tags = {name: value for name, value in run.data.tags.items() if value}
        assert tags == {name: value for name, value in expected.items() if value}


@pytest.mark.slow
def test_run_of_an_interrupted_sync_is_written_anew(world, tmp_path, monkeypatch):
    plan, store, _, _, _ = world
    where = {"uri": f"sqlite:///{tmp_path}/mlflow.db", "artifacts": str(tmp_path / "artifacts")}
    log_batch = MlflowClient.log_batch

    def interrupted(client, run_id, *args, **kwargs):
        if kwargs["params"]:
            raise KeyboardInterrupt
        log_batch(client, run_id, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "log_batch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sync(plan, store, **where)
    assert sync(plan, store, **where).added == 4
    cells = runs(where, "tags.kind = 'cell'")
    assert len(cells) == 4 and all(run.data.params for run in cells)


@pytest.mark.statistical
def test_interval_covers_the_mean_about_as_often_as_it_says():
    generator = np.random.default_rng(0)
    draws = [summary("x", pd.Series(generator.normal(size=20))) for _ in range(1000)]
    share = sum(draw["x_lo"] <= 0 <= draw["x_hi"] for draw in draws) / 1000
    # Binomial(1000, 0.95) has standard deviation 0.007.
    assert abs(share - 0.95) < 0.03
    assert summary("x", pd.Series([math.inf, 2.0])) == {"x_mean": 2.0}
    assert summary("x", pd.Series([math.inf])) == {}
