"""Raw rows as files: complete, described, and enough for a figure in three lines."""

import ast
import json
import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from pkm.arrow import read_parameters
from pkm.experiments.backends.backends import run_cells
from pkm.experiments.commands.export import main
from pkm.experiments.config.backend import Backend
from pkm.experiments.plan.plan import make_plan
from pkm.experiments.store.export import FIELD_TYPES
from pkm.experiments.store.store import Store
from pkm.schema import BY_NAME

pytestmark = pytest.mark.integration

PAGE = Path(__file__).parents[3] / "docs" / "schema.md"
PAPER = {
    "name": "mini",
    "epsilon": [0.1, 1.0],
    "sweeps": {"one": {"datasets": ["iris"], "methods": ["mean", "fastlloyd"]}},
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    plan = make_plan(PAPER, {"name": "tiny", "seeds": 2})
    store = Store(folder / "results")
    run_cells(plan.cells, store, Backend())
    assert main([f"results={store.root}", f"output={folder / 'export'}"]) == 0
    return store, folder


def test_parquet_and_csv_hold_every_stored_number(exported):
    store, folder = exported
    stored = store.read(store.keys())
    parquet = pd.read_parquet(folder / "export" / "rows.parquet")
    csv = pd.read_csv(folder / "export" / "rows.csv.gz", keep_default_na=False, na_values=[""])
    assert len(stored) == len(parquet) == len(csv) == 6
    assert list(parquet) == list(csv)
    for name in parquet:
        column = BY_NAME[name]
        if column.dtype in ("integer", "number"):
            expected = stored[name].to_numpy(dtype=float)
            # The same bits, from text too.
            np.testing.assert_array_equal(parquet[name].to_numpy(dtype=float), expected)
            np.testing.assert_array_equal(csv[name].to_numpy(dtype=float), expected)
    assert read_parameters(parquet) == read_parameters(stored)
    for text, parameters in zip(csv["params"], read_parameters(stored), strict=True):
        assert [each["name"] for each in json.loads(text)] == list(parameters)


def test_the_schema_describes_every_column(exported):
    _, folder = exported
    schema = json.loads((folder / "export" / "rows.schema.json").read_text())
    fields = {field["name"]: field for field in schema["fields"]}
    assert list(fields) == list(pd.read_csv(folder / "export" / "rows.csv.gz", nrows=0))
    for name, described in fields.items():
        assert described["type"] == FIELD_TYPES.get(BY_NAME[name].dtype, "array")
        assert described["title"] == BY_NAME[name].label
    rows = pd.read_parquet(folder / "export" / "rows.parquet")
    assert not rows.duplicated(schema["primaryKey"]).any()


def test_three_lines_of_the_page_make_a_figure(exported, monkeypatch):
    _, folder = exported
    monkeypatch.chdir(folder)
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (code,) = [block for block in blocks if "rows.parquet" in block]
    steps = [step for step in ast.parse(code).body if not isinstance(step, ast.Import)]
    assert len(steps) == 3
    names = {}
    exec(code, names)
    plt.close("all")
    assert (folder / "nicv.png").read_bytes().startswith(b"\x89PNG")
    rows = pd.read_parquet("export/rows.parquet")
    chosen = rows[(rows["method"] == "fastlloyd") & (rows["epsilon"] == 1.0)]
    assert names["curves"].loc[1.0, "fastlloyd"] == pytest.approx(chosen["nicv"].mean())


def test_what_cannot_be_done_is_said_in_one_line(tmp_path, capsys):
    for words in (["results=nowhere"], ["outpt=x"], ["word"]):
        assert main([*words, f"output={tmp_path}"]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
