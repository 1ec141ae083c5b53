"""Rows of a cell: what was run, and sizes of references."""

from functools import partial

import numpy as np
import pytest
from small_plans import cells

from pkm import datasets
from pkm.arrow import read_parameters
from pkm.experiments.cell.cell import Cell
from pkm.experiments.fit.central import Central
from pkm.experiments.fit.execute import execute
from pkm.experiments.fit.rows import style_columns
from pkm.methods import load_method


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


def test_rows_of_a_secret_n_have_the_charges_of_their_own_replicate():
    hidden = {"method": "quadtree", "grid": {"adjacency": ["add_remove"]}}
    (cell,) = cells(datasets=["s1"], methods=[hidden], epsilon=0.01, seeds=3)
    rows = execute(cell)
    assert set(rows["adjacency"]) == {"add_remove"}
    assert {params["adjacency"] for params in read_parameters(rows)} == {"add_remove"}
    costs = [[charge["epsilon"] for charge in charges] for charges in rows["charges"]]
    # Levels have shares by the n that a replicate has released.
    assert len({tuple(epsilons) for epsilons in costs}) == 3
    assert {epsilons[0] for epsilons in costs} == {0.02 * 0.01}
    assert {charges[0]["label"] for charges in rows["charges"]} == {"record_count"}
    assert rows["epsilon_spent"].tolist() == pytest.approx([0.01] * 3)


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


@pytest.mark.parametrize(
    ("target", "label"),
    [
        ("SuLloyd", "SuLloyd (sound)"),
        ("EMMC", "EM-MC (sound)"),
        ("Lloyd", "Lloyd, non-private (sound)"),
        ("EUGkM", "EUGkM"),  # without a published variant
    ],
)
def test_labels_mark_sound_variants(target, label):
    columns = partial(style_columns, load_method(target))
    assert columns("sound", {})["label"] == label
    assert "sound" not in columns("published", {})["label"]
    configured = columns("sound", {"label": "a (b)", "marker": "s"})
    assert configured["label"] == "a (b)"
    assert configured["marker"] == "s"


def test_rows_carry_the_style(tmp_path):
    fields = (
        "a",
        "pkm.methods.DataMean",
        {},
        "iris",
        "minmax",
        3,
        None,
        None,
        (0, 1),
    )
    cell = Cell(*fields, ("nicv",), style={"marker": "s"}, kind=Central())
    rows = execute(cell)
    assert rows["label"].unique().tolist() == ["data mean as only center"]
    assert rows["color"].unique().tolist() == ["#8c8c8c"]
    assert rows["marker"].unique().tolist() == ["s"]
    assert np.isfinite(rows["nicv"]).all()
