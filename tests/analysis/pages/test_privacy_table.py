"""What methods claim, spend and are known to violate, with their audits."""

import pandas as pd
from fabricated.fastlloyd import SIZES, cell_rows, small_rows
from fabricated.rows import make_rows, with_params
from fabricated.studies import study_of

from pkm.analysis.pages import audits, report
from pkm.analysis.pages.privacy_table import privacy_table
from pkm.analysis.tables.study import Study


def test_privacy_table_of_spending_and_flaws():
    study = study_of("fastlloyd")
    table = privacy_table(study).set_index(["method", "variant"])
    published = table.loc[("fastlloyd_published", "published")]
    assert published["spent"] == "100.0000%"
    assert published["flaws"] == ["F-09", "F-10"]
    assert table.loc[("fastlloyd", "sound"), "flaws"] == []
    assert table.loc[("lloyd_published", "published"), "declared"] == "–"


def test_privacy_table_states_rho():
    rows = cell_rows("real", "fastlloyd_published", "iris", 0.5, 2, size=SIZES["iris"])
    rows = rows.assign(adjacency="rho_bounded")
    parts = []
    for rho in (0.05, "diagonal", 0.008):
        changed = with_params(rows, {"rho": rho})
        parts.append(changed.assign(cell=f"cell {rho}", sweep=f"sweep {rho}"))
    table = privacy_table(Study(pd.concat(parts)))
    assert table["adjacency"].tolist() == ["rho_bounded, ρ 0.008, 0.05, diagonal"]
    table = privacy_table(Study(small_rows()))
    assert "ρ" not in table["adjacency"].str.cat()


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


def test_the_privacy_table_has_the_audit_of_the_variant_that_was_run(stored, lloyd_rows):
    assert privacy_table(Study(lloyd_rows), stored)["audit"].tolist() == ["consistent"]
    sound = lloyd_rows.assign(variant="sound")
    (line,) = privacy_table(Study(sound), stored).to_dict("records")
    assert line["views"] == "replay: consistent; residuals: consistent; black box: consistent"
    other = lloyd_rows.assign(target="pkm.methods.DPM", variant="published")
    assert privacy_table(Study(other), stored)["audit"].tolist() == ["not tried"]
    assert privacy_table(Study(lloyd_rows))["audit"].tolist() == ["not tried"]


def test_rows_without_a_variant_have_the_audit_of_the_default_one(stored, lloyd_rows):
    study = Study(lloyd_rows.assign(variant=""))
    (line,) = privacy_table(study, stored).to_dict("records")
    assert line["views"].endswith("black box: consistent")
    (audit,) = audits.select(stored, study.cells)
    assert audit.variant == "sound"


def test_a_method_that_claims_no_privacy_has_no_audit(stored):
    rows = make_rows("real", "kmeans", "kmeans", "iris", size=SIZES["iris"], seeds=2)
    assert privacy_table(Study(rows), stored)["audit"].tolist() == ["–"]
