"""Figures and the report: figures are drawn and report gaps, the page is self-contained."""

import re
from functools import partial

import charts
import numpy as np
import pandas as pd
import pytest
import reports
from fabricated.fastlloyd import SIZES, cell_rows, small_rows
from fabricated.rows import with_params
from fabricated.studies import study_of

from pkm.analysis.claims.claim import read_claims
from pkm.analysis.figures.figure import read_figures
from pkm.analysis.figures.texts import epsilon_label, missing_text
from pkm.analysis.pages import index_page, report
from pkm.analysis.pages.html import render
from pkm.analysis.pages.privacy_table import privacy_table
from pkm.analysis.tables.study import Study
from pkm.arrow import read_parameters

MISSING = reports.missing_cell(
    "real", "fastlloyd_published", "mnist", 0.1, "DataUnavailable: mnist"
)
SPECS = {spec.name: spec for spec in read_figures("fastlloyd")}
figure = partial(reports.figure_of, "fastlloyd")
TABLES = ("table2", "table3", "protocol_parties")
NOT_STORED = ("protocol_parts", "protocol_clients")  # in these rows
METRICS = ("figure6", "figure7", "figure8", "figure8_distance", "initialization")


@pytest.fixture(scope="module")
def study():
    return study_of("fastlloyd")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return report.build(
        small_rows(),
        paper="fastlloyd",
        missing=MISSING,
        out=tmp_path_factory.mktemp("reports") / "fastlloyd-quick",
        environment={"python": "3.11", "packages": {"numpy": "2.4"}},
    )


def draw(name, rows):
    """Draw one figure of the paper."""
    return reports.draw("fastlloyd", name, rows)


@pytest.mark.parametrize(
    "name", ["figure2", "figure3", "figure4", "figure5", "figure8", "sound_nicv", "iterations"]
)
def test_figures_have_numbers(name, study):
    result = figure(name)
    assert len(result.table)
    assert len(result.formatted)
    assert result.caption.endswith(".")


def test_panels_without_rows_are_not_drawn(study):
    result = figure("figure2")
    titles = [panel.title for panel in charts.panels_of(result)]
    assert titles == ["(a) Iris", "(b) S1", "(c) Wine"]
    assert len(result.missing) == 7
    assert missing_text(result.missing).startswith(
        "Not shown, no stored rows: Adult; Birch2; Breast;"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SPECS))
def test_figures_of_a_single_cell(name):
    # A run that was stopped early still has a report, whose panels state that rows are missing.
    rows = cell_rows("real", "fastlloyd_published", "iris", 0.5, 3, size=SIZES["iris"])
    result = draw(name, rows)
    assert result.caption.endswith(".")
    assert {gap.rpartition(": ")[2] for gap in result.missing} == {"no stored rows"}
    if name not in TABLES and name not in ("figure2", "figure2_fold", *METRICS):
        assert result.drawing is None
        assert result.caption == "No stored rows."


@pytest.mark.parametrize(("fact", "other"), [("adjacency", "add_remove"), ("unit", "person")])
def test_epsilon_label_refuses_two_adjacencies_or_units(study, fact, other):
    cells = study.matrix("real", "nicv").cells
    assert epsilon_label(cells) == "ε (zero-out; δ = 1/(N ln N); δ = 0 for SuLloyd)"
    is_other = cells["method"] == "glloyd_published"
    with pytest.raises(ValueError, match=fact):
        epsilon_label(cells.assign(**{fact: np.where(is_other, other, cells[fact])}))


def test_epsilon_label_states_that_a_record_is_a_person(study):
    cells = study.matrix("real", "nicv").cells.assign(unit="person")
    assert epsilon_label(cells).startswith("ε (zero-out of a person; δ")


def test_methods_of_another_adjacency_are_excluded():
    rows = small_rows()
    incomparable = cell_rows("real", "fastlloyd_published", "iris", 0.5, 12, size=SIZES["iris"])
    incomparable = incomparable.assign(
        method="other", cell="other", label="other", adjacency="replace_one"
    )
    result = draw("figure2_fold", pd.concat([rows, incomparable], ignore_index=True))
    assert "other" not in set(result.table["method"])
    assert any(gap.startswith("other") for gap in result.missing)


def test_relative_areas_are_over_shared_data_sets():
    areas = figure("figure3").table
    reference = areas[areas["method"] == "sulloyd_published"]
    assert (reference[["value", "low", "high"]] == 1).all(axis=None)
    # A data set without rows of one of the two counts for neither.
    rows = reports.without(small_rows(), method="glloyd_published", dataset="g2-16-60")
    one_less = draw("figure3", rows).table.set_index(["panel", "method", "x"])["value"]
    lines = ["sulloyd_published", "glloyd_published"]
    kept = rows[(rows["dataset"] == "g2-16-20") & rows["method"].isin(lines)]
    means = kept.groupby(["method", "epsilon"])["nicv"].mean().unstack()
    area = pd.Series(np.trapezoid(means, means.columns, axis=1), means.index)
    expected = area["glloyd_published"] / area["sulloyd_published"]
    assert one_less["d", "glloyd_published", 16] == pytest.approx(expected)


def ablation_of_rows(configuration):
    """Means of a configuration and of the naive method by data set."""
    rows = small_rows()
    rows = rows[rows["sweep"] == "ablation"]
    naive = rows[rows["method"] == "glloyd_published"].groupby("dataset")["nicv"].mean()
    subset = rows[[given == configuration for given in read_parameters(rows)]]
    return subset.groupby("dataset")["nicv"].mean(), naive


def test_figure5_has_one_plot_per_average(study):
    configuration = {"alpha": 0.4, "radius_schedule": "step", "postprocessing": "fold"}
    means, naive = ablation_of_rows(configuration | {"radius_clipping": True})
    expected = {
        "figure5": means.sum() / naive.sum(),
        "figure5_ratios": (means / naive).mean(),
    }
    assert expected["figure5"] != pytest.approx(expected["figure5_ratios"], rel=1e-3)
    for name, average in expected.items():
        table = figure(name).table
        mask = reports.row_mask(table, **configuration, panel="with")
        (line,) = table[mask].to_dict("records")
        assert line["value"] == pytest.approx(average)
        assert line["low"] <= line["value"] <= line["high"]
        assert line["datasets"] == len(naive) == 8
        assert "dataset" not in table


@pytest.mark.parametrize(
    "name", ["figure2", "figure2_fold", "figure6", "figure7", "figure8", "figure8_distance"]
)
def test_captions_count_data_sets(name, study):
    caption = figure(name).caption
    assert "on 3 of 10 data sets" in caption
    assert ("best of ten seeded k-means++ starts" in caption) == name.startswith("figure8")


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1e3, 1e6, 1e12])
def test_private_curves_are_inside_their_panels(factor):
    rows = small_rows().copy()
    rows.loc[rows["method"].isin(["sulloyd_published", "glloyd_published"]), "centroid_mse"] *= (
        factor
    )
    result = draw("figure8", rows)
    panels = charts.panels_of(result)
    assert len(panels) == 3
    for panel in panels:
        points = panel.table[panel.table["x"].notna()]
        assert points["hue"].nunique() == 3
        assert panel.y.scale == "log"
        assert points["value"].between(panel.y.low, panel.y.high).all()


@pytest.mark.slow
def test_figures_list_substitute_data_sets(tmp_path, monkeypatch):
    rows = small_rows().query("sweep in ('real', 'g2', 'synthk', 'synth')")
    renamed = rows.replace({"dataset": {"g2-16-20": "g2-16-20-generated"}})
    substitutes = draw("figure3", renamed).substitutes
    assert "1 of 9 data sets" in substitutes
    assert "g2-16-20-generated" in substitutes
    assert not draw("figure2", renamed).substitutes
    assert not draw("figure4", renamed).substitutes
    names = ("figure3", "figure4")
    page = reports.build_report("fastlloyd", renamed, tmp_path, monkeypatch, names, MISSING)
    html = page.read_text(encoding="utf-8")
    start = html.index('<figure id="figure3"')
    end = html.index('<figure id="figure4"')
    assert 'class="substitute"' in html[start:end]
    assert "g2-16-20-generated" in html[start:end]


def test_figures_without_rows_are_named_in_one_line(tmp_path, monkeypatch):
    rows = cell_rows("real", "fastlloyd_published", "iris", 0.5, 3, size=SIZES["iris"])
    names = ("figure2", "figure5")
    page = reports.build_report("fastlloyd", rows, tmp_path, monkeypatch, names, MISSING)
    html = page.read_text(encoding="utf-8")
    assert html.count("<figure id=") == 1
    assert f"without rows: {SPECS['figure5'].title}. <code>make reproduce PAPER=fastlloyd" in html


def test_table2_excludes_sets_with_outliers():
    parts = [small_rows()]
    for n in (0, 100):
        name = f"synth-2-2-0-o{n}"
        size = (10000 + n, 2, 2)
        parts.append(cell_rows("outliers", "fastlloyd_published", name, 0.5, 12, size=size))
    rows = pd.concat(parts, ignore_index=True)
    table = draw("table2", rows).formatted.set_index("data set")
    assert table.loc["Synth", "N (here)"] == "10000"
    assert table.loc["Synth", "sets here"] == "9"


@pytest.mark.slow
def test_page_is_self_contained_and_links_resolve(page):
    html = page.read_text(encoding="utf-8")
    assert page.name == "index.html"
    assert not re.search(r'(src|href)="https?://', html)
    assert not re.search(r"<script[^>]* src=|@import", html)
    assert html.count(report.chart_script()) == 1
    assert len(html) < 5e6
    index_page.build(page.parents[1])
    for link in set(re.findall(r'href="([^"#][^"]*)"', html)) - {"data:,"}:
        assert (page.parent / link).is_file(), link
    for anchor in set(re.findall(r'href="#([^"]+)"', html)):
        assert f'id="{anchor}"' in html, anchor
    assert html.count("data:image/png;base64,") == len(SPECS) - len(TABLES) - len(NOT_STORED)


@pytest.mark.slow
def test_page_has_required_texts(page):
    html = page.read_text(encoding="utf-8")
    for text in (
        "DataUnavailable: mnist",
        "Deviations from the paper",
        "packages · numpy",
        "F-09",
        "F-10",
        "zero-out",
    ):
        assert text in html, text
    # What can be compared is not said to be missing.
    assert re.search(r'<div class="small gap">\d+ of \d+ comparisons can be made', html)
    claims = pd.read_csv(page.parent / "tables" / "claims.csv")
    assert list(claims["id"]) == [claim.id for claim in read_claims("fastlloyd")["claims"]]


@pytest.mark.slow
def test_page_shows_the_basis_of_claims(page):
    table = pd.read_csv(page.parent / "tables" / "claims.csv").set_index("id")
    assert table.loc["fastlloyd/iterations-range-useful", "basis"] == "cited"
    assert page.read_text(encoding="utf-8").count('<td class="basis">') == len(table)


def test_environment_entries():
    names = [f"g2-{d}-{sd}" for d in (2, 4) for sd in range(10, 101, 10)]
    substitutes = [f"{name} by {name}-generated" for name in names]
    environment = {
        "computed with": {"numpy": "2.4", "inner": {"python": "3.11"}},
        "substitutes": substitutes,
        "joined": "; ".join(substitutes),
        "few": ["a", "b"],
        "empty": [],
        "cores": 2,
    }
    page = render("environment.html.jinja", environment=environment)
    entries = dict(re.findall("<dt>(.*?)</dt>\n<dd>(.*?)</dd>", page))
    assert entries["computed with · inner · python"] == "3.11"
    for name in ("substitutes", "joined"):
        assert re.findall("<li>(.*?)</li>", entries[name]) == substitutes
        assert entries[name].startswith("<details><summary>20 entries: g2-2-10 by ")
    assert entries["few"] == "a, b"
    assert entries["empty"] == "–"
    assert entries["cores"] == "2"


@pytest.mark.slow
def test_report_replaces_older_report_only(tmp_path, monkeypatch):
    for folder, name in (
        ("tables", "claim_gone.csv"),
        ("figures", "gone.png"),
        ("tables", "notes.txt"),
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text("old")
    (tmp_path / "index.html").write_text("old")
    rows = cell_rows("real", "fastlloyd_published", "iris", 0.5, 3, size=SIZES["iris"])
    names = ("figure2", "table2")

    def refuse(*_):
        raise OSError("disk")

    # The page is written last and in one step, so a failed report leaves the old one readable.
    with monkeypatch.context() as failing:
        failing.setattr("pkm.files.os.replace", refuse)
        with pytest.raises(OSError, match="disk"):
            reports.build_report("fastlloyd", rows, tmp_path, failing, names, MISSING)
    assert (tmp_path / "index.html").read_text() == "old"
    page = reports.build_report("fastlloyd", rows, tmp_path, monkeypatch, names, MISSING)
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert not (tmp_path / "tables" / "claim_gone.csv").exists()
    assert not (tmp_path / "figures" / "gone.png").exists()
    assert (tmp_path / "tables" / "notes.txt").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "figures",
        "index.html",
        "report.json",
        "tables",
    ]


@pytest.mark.slow
def test_figures_are_written_to_files(page):
    tables = page.parent / "tables"
    figures = page.parent / "figures"
    for name in SPECS:
        assert (tables / f"{name}.csv").stat().st_size > 0
        assert (tables / f"{name}.tex").stat().st_size > 0
        is_drawn = (figures / f"{name}.png").is_file()
        assert is_drawn == (name not in (*TABLES, *NOT_STORED))


def test_privacy_table_of_spending_and_flaws(study):
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


def test_refused_reports_write_no_files(tmp_path):
    out = tmp_path / "out"
    for rows, paper in ((small_rows(), "nobody"), (small_rows().iloc[:0], "fastlloyd")):
        with pytest.raises(ValueError, match=r"nobody|empty"):
            report.build(rows, paper=paper, missing=MISSING, out=out, environment={})
        assert not out.exists()
