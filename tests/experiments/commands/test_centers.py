"""Rows and released centers for other programs."""

import dataclasses
import stat

import numpy as np
import pandas as pd
import pytest
from cells_with_centers import CELL, stored

from pkm.datasets import FileOptions
from pkm.experiments.commands import centers as export
from pkm.experiments.store.export import extract_centers, load_rows
from pkm.experiments.store.store import Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


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
    cell = dataclasses.replace(CELL, dataset="file", file=FileOptions(str(path)))
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
        (["", "nothing"], "cell='nothing' is not allowed"),
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
