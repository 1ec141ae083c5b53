"""Rows of a cell: what was run, and sizes of references."""

import pytest
from small_plans import cells

from pkm import datasets
from pkm.arrow import read_parameters
from pkm.experiments.fit.execute import execute


def test_rows_describe_the_cell():
    (cell,) = cells(
        methods=["fastlloyd_published"],
        epsilon=0.5,
        metrics=["nicv", "silhouette"],
        datasets=["wine"],
        preprocessing="minmax",
    )
    rows = execute(cell)
    first = rows.iloc[0]
    assert (first["n"], first["d"], first["k"]) == (178, 13, 3)
    assert (first["variant"], first["private_bounds"]) == ("published", True)
    parameters = read_parameters(rows)[0]
    assert parameters["alpha"] == 0.8
    assert "variant" not in parameters
    assert first["data"] == datasets.fingerprint("wine")
    assert first["epsilon_spent"] + first["epsilon_unspent"] == pytest.approx(0.5)
    assert (first["n_centers"], first["timing"], list(first["references"])) == (3, False, [])
    assert dict(cell.params)["variant"] == "published"


def test_rows_hold_the_sizes_of_references(tmp_path, monkeypatch):
    monkeypatch.setenv("PKM_CACHE", str(tmp_path))
    (cell,) = cells(
        datasets=["blobs-300-2-3"], preprocessing="range", metrics=["nicv", "kmeans_distance"]
    )
    rows = execute(cell)
    sizes = rows["references"].iloc[0]
    assert len(sizes) == 20
    assert min(sizes) >= 2
    assert rows["kmeans_distance"].between(0, 2).all()
