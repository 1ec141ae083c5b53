"""A run that is killed again and again has the rows of one that is not."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from pkm.benchmarks import kills
from pkm.experiments.backends.backends import run_cells
from pkm.experiments.cell.cell import Cell
from pkm.experiments.config.backend import Backend
from pkm.experiments.fit.central import Central
from pkm.experiments.store.store import Store

SUPPORT = Path(__file__).parents[1] / "support"
CELL = Cell(
    "mean",
    "pkm.methods.DataMean",
    {},
    "iris",
    "minmax",
    3,
    None,
    None,
    (0,),
    ("nicv",),
    kind=Central(),
)


@pytest.mark.slow
@pytest.mark.integration
def test_rows_survive_kills(monkeypatch, capfd):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SUPPORT), *sys.path]))
    words = ["method=trouble:Slow", "dataset=iris", "seeds=2", "k=[2,3,4,5,6,7,8,9]"]
    kills.main(["--kills", "4", "--after", "2", "9", "run", *words, "jobs=2"])
    printed = capfd.readouterr().out
    assert "stored some of the 8 cells" in printed
    assert "columns that differ from an uninterrupted run: none" in printed


def test_lives_are_counted_in_seconds_of_cpu():
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    idle = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.5)"])
    try:
        assert not kills.ends_within(busy, 0.3, cpu=True)
        assert kills.cpu_seconds(busy.pid) >= 0.3
        assert kills.ends_within(idle, 60, cpu=True)
    finally:
        kills.kill(busy)
        idle.wait()


def test_a_refused_command_ends_it(capfd):
    assert kills.main(["--kills", "1", "run", "method=unknown"]) == 2
    assert "unknown" in capfd.readouterr().err


def test_differences_are_named(tmp_path):
    stores = [Store(tmp_path / name) for name in ("one", "other")]
    for store in stores:
        run_cells([CELL], store, Backend())
    assert kills.differences(*stores) == []
    rows = stores[0].read([CELL.key])
    stores[0].write(CELL, rows.assign(nicv=rows["nicv"] + 1e-12))
    assert kills.differences(*stores) == ["nicv"]
    run_cells([replace(CELL, k=4)], stores[1], Backend())
    assert kills.differences(*stores) == ["cells"]


def test_times_of_checkpoints_do_not_differ():
    """Rows of a store with every paper: only those of removals have checkpoints."""
    rows = pd.DataFrame({"nicv": [0.1, 0.2], "series": [pd.NA, [{"loss": 1.0, "retrain_s": 2.0}]]})
    kept = kills.without_times(rows)
    assert kept["series"][1] == [{"loss": 1.0}]
    assert pd.isna(kept["series"][0])
    assert rows["series"][1] == [{"loss": 1.0, "retrain_s": 2.0}]
