"""Rows and released centers for other programs."""

import dataclasses
import stat

import numpy as np
import pandas as pd
import pytest
from fabricated.rows import make_rows

from pkm import datasets
from pkm.experiments.cell.cell import Cell
from pkm.experiments.commands import centers as export
from pkm.experiments.fit.central import Central
from pkm.experiments.fit.execute import execute
from pkm.experiments.store.export import extract_centers, load_rows
from pkm.experiments.store.store import Store
from pkm.methods.baselines.kmeans import KMeansPlusPlus

CELL = Cell(
    "kmeans",
    "pkm.methods.KMeansPlusPlus",
    {"n_init": 2},
    "iris",
    "minmax",
    3,
    None,
    None,
    (4, 7),
    ("nicv",),
    keep_centers=True,
    kind=Central(),
)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


def stored(store, *cells):
    for cell in cells:
        store.write(cell, execute(cell))


def test_rows_have_a_column_for_every_parameter(store):
    stored(store, CELL, dataclasses.replace(CELL, params={"n_init": 5}))
    other = dataclasses.replace(CELL, method="other", params={"delta": 1e-6})
    size = {"size": (150, 4, 3), "seeds": 2, "params": other.params}
    rows = make_rows("", other.key, "other", "iris", **size).assign(seed=[4, 7])
    store.write(other, rows)
    rows = load_rows(store.root)
    assert len(rows) == 6
    assert set(rows.loc[rows["method"] == "kmeans", "n_init"]) == {2, 5}
    others = rows[rows["method"] == "other"]
    assert others["n_init"].isna().all()
    # The column of that name is the budget's.
    assert (others["delta_param"] == 1e-6).all()
    with pytest.raises(FileNotFoundError, match="holds no cells"):
        load_rows(store.root / "elsewhere")


def test_kept_centers_are_those_of_the_method(store):
    stored(store, CELL, dataclasses.replace(CELL, keep_centers=False))
    centers = extract_centers(load_rows(store.root))
    assert set(centers["cell"]) == {CELL.key}
    assert centers[["seed", "center"]].to_numpy().tolist() == [
        [seed, center] for seed in (4, 7) for center in range(3)
    ]
    points = datasets.load("iris").points
    domain = [points.min(axis=0), points.max(axis=0)]
    for seed, lines in centers.groupby("seed"):
        model = KMeansPlusPlus(n_clusters=3, n_init=2, bounds=domain, random_state=seed).fit(points)
        coordinates = lines[["x0", "x1", "x2", "x3"]].to_numpy()
        np.testing.assert_allclose(coordinates, model.cluster_centers_, atol=1e-3)


def test_kept_centers_change_no_other_column(store):
    plain = dataclasses.replace(CELL, keep_centers=False)
    rows = execute(CELL)
    assert rows["nicv"].tolist() == execute(plain)["nicv"].tolist()
    assert "centers" not in execute(plain)
    assert CELL.key != plain.key


@pytest.mark.parametrize("name", ["centers.csv", "centers.parquet"])
def test_centers_are_exported(store, tmp_path, capsys, name):
    stored(store, CELL)
    output = tmp_path / name
    words = [f"results={store.root}", f"output={output}"]
    assert export.main([CELL.key[:8], *words]) == 0
    assert "6 centers in" in capsys.readouterr().out
    read = pd.read_csv if name.endswith("csv") else pd.read_parquet
    written = read(output)
    assert written[["x0", "x3"]].equals(extract_centers(load_rows(store.root))[["x0", "x3"]])
    assert export.main(words[:1]) == 0
    assert CELL.key[:12] in capsys.readouterr().out


def test_centers_of_a_private_file_are_for_their_owner_alone(store, tmp_path):
    path = tmp_path / "patients.csv"
    np.savetxt(path, np.random.default_rng(0).random((30, 2)), delimiter=",")
    cell = dataclasses.replace(CELL, dataset="file", path=str(path))
    stored(store, cell)
    output = tmp_path / "centers.csv"
    assert export.main([cell.key, f"results={store.root}", f"output={output}"]) == 0
    assert stat.S_IMODE(output.stat().st_mode) == 0o600


def test_a_folder_without_cells_is_refused(tmp_path, capsys):
    assert export.main([f"results={tmp_path}"]) == 2
    assert "holds no cells" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "cell='nothing' is not allowed: cell must be the key of one stored cell"),
        (["output=a.csv", "color=red"], "option='color' is not allowed"),
        (["{key}", "output=centers.xls"], "must be a file that ends in .csv or .parquet"),
        (["{key}"], "keeps no centers: run it with keep_centers=true"),
    ],
)
def test_invalid_exports_are_refused(store, capsys, words, message):
    cell = dataclasses.replace(CELL, keep_centers=False)
    stored(store, cell)
    given = [word.format(key=cell.key) for word in words]
    assert export.main([*given, f"results={store.root}"]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
