"""Points of a map that was fitted to the records are flagged in the report."""

import pandas as pd
from fabricated.fastlloyd import SIZES, cell_rows

from pkm.analysis.pages import report
from pkm.analysis.pages.privacy_table import privacy_table
from pkm.analysis.tables.study import Study

MISSING = pd.DataFrame(columns=["sweep", "method", "dataset", "epsilon", "reason"])


def rows_with_fitted_points():
    """Rows of a sound method, those on iris as rows on embeddings are."""
    parts = [
        cell_rows("real", "fastlloyd", name, 0.5, 2, size=SIZES[name]).assign(
            variant="sound", flaws=flaws, private_bounds=False
        )
        for name, flaws in (("iris", "F-28"), ("s1", ""))
    ]
    return pd.concat(parts)


def test_privacy_table_has_a_line_for_fitted_points():
    table = privacy_table(Study(rows_with_fitted_points()))
    assert table["method"].tolist() == ["fastlloyd"] * 2
    assert sorted(table["flaws"].tolist()) == [[], ["F-28"]]


def test_report_explains_the_flaw(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "read_figures", lambda paper: [])
    page = report.build(
        rows_with_fitted_points(),
        paper="fastlloyd",
        missing=MISSING,
        out=tmp_path,
        environment={},
    )
    html = page.read_text(encoding="utf-8")
    assert html.count("points fitted to the records") == 1
    assert (
        "<dt>F-28</dt><dd>The points are the output of a map fitted to these very records" in html
    )
