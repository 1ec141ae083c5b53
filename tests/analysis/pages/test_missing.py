"""Planned cells without rows, and the command that supplies them."""

import pandas as pd

from pkm.analysis.pages.missing import missing_table

COLUMNS = ["sweep", "method", "dataset", "epsilon", "reason"]


def test_missing_cells_have_a_line_per_data_set():
    needs = "data set '{0}' needs the file {0}.txt, published at X, or run 'pkm data fetch {0}'"
    lines = [("a", "dpm", name, 1.0, needs.format(name)) for name in ("s1", "s2", "s1")]
    lines += [("a", "dpm", name, 1.0, "Traceback\nfailed: no") for name in ("iris", "wine")]
    table = missing_table(pd.DataFrame(lines, columns=COLUMNS), "dpm", "quick")
    assert table["datasets"].tolist() == ["s1", "iris, wine", "s2"]
    assert table["cells"].tolist() == [2, 2, 1]
    assert table["command"].tolist() == [
        "pkm data fetch s1",
        "make retry PAPER=dpm PROFILE=quick",
        "pkm data fetch s2",
    ]
    assert table["brief"][0] == "data set 's1' needs the file s1.txt"
