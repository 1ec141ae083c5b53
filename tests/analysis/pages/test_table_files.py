"""Tables as CSV and LaTeX."""

import pandas as pd

from pkm.analysis.pages.table_files import latex, write


def test_written_tables_round_trip(tmp_path):
    table = pd.DataFrame({"data_set": ["iris & co"], "value": [0.1234567890123]})
    write(table, tmp_path, "one", table, "50 % of ε")
    csv, tex = (tmp_path / f"one.{ending}" for ending in ("csv", "tex"))
    assert pd.read_csv(csv)["value"][0] == 0.1234567890123
    text = tex.read_text()
    assert r"\toprule" in text
    assert r"iris \& co" in text
    assert r"data\_set" in text
    assert r"50 \% of $\varepsilon$" in text


def test_latex_has_one_cell_per_column():
    text = latex(pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}), "c", "l")
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert [line.count("&") for line in body] == [1, 1, 1]
