"""The report of a paper: gaps are named, the page is self-contained, an older one is replaced."""

import re

import pandas as pd
import pytest
import reports
from fabricated.fastlloyd import SIZES, cell_rows, small_rows

from pkm.analysis.claims.claim import read_claims
from pkm.analysis.figures.figure import read_figures
from pkm.analysis.pages import index_page, report

MISSING = reports.missing_cell(
    "real", "fastlloyd_published", "mnist", 0.1, "DataUnavailable: mnist"
)
SPECS = {spec.name: spec for spec in read_figures("fastlloyd")}


TABLES = ("table2", "table3", "protocol_parties")
NOT_STORED = ("protocol_parts", "protocol_clients")  # in these rows
METRICS = ("figure6", "figure7", "figure8", "figure8_distance", "initialization")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return report.build(
        small_rows(),
        paper="fastlloyd",
        missing=MISSING,
        out=tmp_path_factory.mktemp("reports") / "fastlloyd-quick",
        environment={"python": "3.11", "packages": {"numpy": "2.4"}},
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SPECS))
def test_figures_of_a_single_cell(name):
    # A run that was stopped early still has a report, whose panels state that rows are missing.
    rows = cell_rows("real", "fastlloyd_published", "iris", 0.5, 3, size=SIZES["iris"])
    result = reports.draw("fastlloyd", name, rows)
    assert result.caption.endswith(".")
    assert {gap.rpartition(": ")[2] for gap in result.missing} == {"no stored rows"}
    if name not in TABLES and name not in ("figure2", "figure2_fold", *METRICS):
        assert result.drawing is None
        assert result.caption == "No stored rows."


@pytest.mark.slow
def test_figures_list_substitute_data_sets(tmp_path, monkeypatch):
    rows = small_rows().query("sweep in ('real', 'g2', 'synthk', 'synth')")
    renamed = rows.replace({"dataset": {"g2-16-20": "g2-16-20-generated"}})
    substitutes = reports.draw("fastlloyd", "figure3", renamed).substitutes
    assert "1 of 9 data sets" in substitutes
    assert "g2-16-20-generated" in substitutes
    assert not reports.draw("fastlloyd", "figure2", renamed).substitutes
    assert not reports.draw("fastlloyd", "figure4", renamed).substitutes
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


def test_refused_reports_write_no_files(tmp_path):
    out = tmp_path / "out"
    for rows, paper in ((small_rows(), "nobody"), (small_rows().iloc[:0], "fastlloyd")):
        with pytest.raises(ValueError, match=r"nobody|empty"):
            report.build(rows, paper=paper, missing=MISSING, out=out, environment={})
        assert not out.exists()
