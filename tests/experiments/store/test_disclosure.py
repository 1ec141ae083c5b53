"""What stored results tell of people's own records, and to whom."""

import gc
import os
import stat

import numpy as np
import pytest

from pkm.compute import Points
from pkm.datasets import FileOptions
from pkm.experiments.backends.backends import run_cells
from pkm.experiments.cell import cell as cell_module
from pkm.experiments.cell.cell import Cell
from pkm.experiments.commands import run
from pkm.experiments.config.backend import Backend
from pkm.experiments.fit.central import Central
from pkm.experiments.fit.execute import execute
from pkm.experiments.fit.inputs import prepare_cell_data, prepare_data
from pkm.experiments.fit.unlearning import Unlearning
from pkm.experiments.mlflow.tracking import RESTRICTED_NOTICE
from pkm.experiments.store.export import write_rows
from pkm.experiments.store.store import Store

#: A number of records that no other test has.
N_RECORDS = 53

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture(autouse=True)
def nothing_cached():
    yield
    cell_module.data_fingerprint.cache_clear()
    prepare_data.cache_clear()


@pytest.fixture
def own_file(tmp_path):
    path = tmp_path / "patients.csv"
    points = np.random.default_rng(4).uniform(0, 1, (N_RECORDS, 2))
    np.savetxt(path, points, delimiter=",")
    return path


def cell_of(path, dataset="file", metrics=("nicv",), **changes):
    bounds = (0, 1) if dataset == "file" else None
    file = FileOptions(path=str(path) if path else None)
    facts = {"file": file, "bounds": bounds, "kind": Central()}
    return Cell(
        "mean",
        "pkm.methods.DataMean",
        {},
        dataset,
        "public",
        2,
        None,
        None,
        (0,),
        metrics,
        **facts | changes,
    )


def modes_of(folder):
    """Return the permissions of all files of a folder."""
    return {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()}


def test_rows_and_keys_tell_the_records_to_nobody_without_the_secret(
    own_file, tmp_path, monkeypatch
):
    """What the owner publishes is not what another reader computes from the very same file."""
    cell = cell_of(own_file)
    rows = execute(cell)
    published = {cell.key, *rows["data"], *rows["cell"]}
    assert len(published) == 2

    monkeypatch.setenv("PKM_CACHE", str(tmp_path / "other-cache"))
    cell_module.data_fingerprint.cache_clear()
    same = cell_of(own_file)
    assert same.key not in published
    assert cell_module.data_fingerprint("file", same.file) not in published


def run_own_file(own_file, store, capsys):
    words = ["method=mean", "dataset=file", f"path={own_file}", "bounds=[0,1]", "k=2", "seeds=2"]
    cell_module.data_fingerprint.cache_clear()
    assert run.main([*words, f"results={store.root}"]) == 0
    return capsys.readouterr().out


def test_run_on_a_file_is_resumed(own_file, tmp_path, capsys):
    store = Store(tmp_path / "results")
    assert "0 cells were stored already, 1 were run" in run_own_file(own_file, store, capsys)
    assert "1 cells were stored already, 0 were run" in run_own_file(own_file, store, capsys)
    assert modes_of(store.root / "cells") == {0o600}
    assert stat.S_IMODE(store.root.stat().st_mode) == 0o700


def test_files_of_restricted_cells_are_for_their_owner_alone(own_file, tmp_path):
    root = tmp_path / "shared"
    root.mkdir(mode=0o755)
    store = Store(root)
    own = cell_of(own_file)
    public = cell_of(None, "iris")
    for cell in (own, public):
        store.write(cell, execute(cell))
        store.write_failure(cell, ValueError("by design"))
    for path in (store.path(own.key), store.failure_path(own.key)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for path in (store.path(public.key), store.failure_path(public.key)):
        assert stat.S_IMODE(path.stat().st_mode) & 0o600 == 0o600
        assert not public.restricted
    # A folder that exists keeps its permissions.
    assert stat.S_IMODE(root.stat().st_mode) == 0o755


@pytest.mark.parametrize(("is_own", "others"), [(True, 0), (False, 0o044)])
def test_exported_rows_are_as_private_as_the_cells(own_file, tmp_path, is_own, others):
    store = Store(tmp_path / "results")
    cell = cell_of(own_file) if is_own else cell_of(None, "iris")
    store.write(cell, execute(cell))
    mask = os.umask(0o022)
    write_rows(store, tmp_path / "export")
    os.umask(mask)
    for name in ("rows.parquet", "rows.csv.gz"):
        assert stat.S_IMODE((tmp_path / "export" / name).stat().st_mode) & 0o077 == others


def held_points():
    """Return the points of `own_file` that the process holds."""
    gc.collect()
    # The type itself: `isinstance` asks proxies of objects that may be gone.
    held = [item for item in gc.get_objects() if type(item) is Points]
    return [points for points in held if points.shape[0] == N_RECORDS]


UNLEARNING = {
    "clients": 2, "split": "iid", "clusters_per_client": 2, "split_seed": 0, "removals": 1,
    "batch": 1, "requests": "random", "sparse": False,
}  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"metrics": ("nicv", "silhouette", "centroid_mse", "kmeans_distance")},
        {"kind": Unlearning(**UNLEARNING), "timing": True},
    ],
    ids=["metrics", "removals"],
)
def test_no_points_are_held_after_a_run(own_file, tmp_path, changes, new_objects_alone):
    """Prepared data end with the run, and what metrics and removals computed from them."""
    cell = cell_of(own_file, **changes)
    if isinstance(cell.kind, Unlearning):
        fields = vars(cell) | {
            "method": "mufc",
            "target": "pkm.methods.Unlearning",
        }
        fields.pop("key", None)
        cell = Cell(**fields)
    # Held as long as cells may need them.
    prepare_cell_data(cell, None)
    assert len(held_points()) == 1
    (outcome,) = run_cells([cell], Store(tmp_path / "results"), Backend())
    assert (outcome.status, outcome.error) == ("done", "")
    assert held_points() == []


def test_references_of_metrics_are_for_their_owner_alone(own_file, cache):
    execute(cell_of(own_file, metrics=("kmeans_distance",)))
    assert stat.S_IMODE((cache / "references").stat().st_mode) == 0o700


@pytest.mark.parametrize(("target", "flaws"), [("DataMean", ""), ("GLloyd", "F-28")])
def test_rows_on_fitted_points_carry_the_flaw(target, flaws, monkeypatch):
    """A claim about points of a network that was trained on the records is flagged."""
    from dataclasses import replace

    from pkm.experiments.fit import inputs

    budget = {} if target == "DataMean" else {"epsilon": 1.0, "delta": 1e-6}
    fields = vars(cell_of(None, "iris")) | budget
    cell = Cell(**fields | {"target": f"pkm.methods.{target}"})
    plain = execute(cell)["flaws"][0].split()

    fitted = replace(prepare_cell_data(cell, None), is_transform_fitted=True)
    monkeypatch.setattr(inputs, "prepare_cell_data", lambda *_: fitted)
    assert execute(cell)["flaws"][0].split() == plain + flaws.split()


def test_store_says_what_it_holds(own_file):
    """The exact numbers that docs/privacy.md lists are columns of the rows."""
    (row,) = execute(cell_of(own_file)).to_dict("records")
    assert {"nicv", "clipped", "n", "d", "half_width", "data", "dataset"} <= set(row)
    assert row["dataset"] == "patients"
    assert len(row["charges"]) == 0


@pytest.mark.slow
def test_mlflow_gets_no_results_of_restricted_data(own_file, tmp_path, capsys):
    store = Store(tmp_path / "results")
    location = [
        "tracking=mlflow",
        f"tracking.uri=sqlite:///{tmp_path}/mlflow.db",
        f"tracking.artifacts={tmp_path / 'artifacts'}",
    ]
    words = ["method=mean", "k=2", "seeds=2", f"results={store.root}", *location]
    own = ["dataset=file", f"path={own_file}", "bounds=[0,1]"]
    cell_module.data_fingerprint.cache_clear()
    assert run.main([*words, *own]) == 0
    out = capsys.readouterr().out
    assert RESTRICTED_NOTICE in out
    assert "MLflow: 0 runs written" in out
    assert not list((tmp_path / "artifacts").rglob("*.parquet"))
    # The same of public data is there.
    assert run.main([*words, "dataset=iris"]) == 0
    out = capsys.readouterr().out
    assert RESTRICTED_NOTICE not in out
    assert "MLflow: 1 runs written" in out
