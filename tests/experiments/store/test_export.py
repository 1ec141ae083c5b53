"""Stored rows and released centers as frames."""

import dataclasses

import numpy as np
import pytest
from cells_with_centers import CELL, stored
from fabricated.rows import make_rows

from pkm import datasets
from pkm.experiments.fit.execute import execute
from pkm.experiments.store.export import extract_centers, load_rows
from pkm.experiments.store.store import Store
from pkm.methods.baselines.kmeans import KMeansPlusPlus


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


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
