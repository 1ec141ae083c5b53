"""Figures and the report: every declared figure draws, says what is missing, and the page stands alone."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from test_analysis_synthetic import SIZES, cell_rows, small_rows

from analysis import report
from analysis.figures import figures_of
from analysis.figures.fastlloyd import relative_ablation
from analysis.figures.style import epsilon_label, look, styled
from analysis.tables import Study, resampling_weights

MISSING = pd.DataFrame(
    [{"sweep": "real", "method": "fastlloyd", "dataset": "mnist", "epsilon": 0.1, "reason": "DataUnavailable: mnist"}]
)
SPECS = {spec.name: spec for spec in figures_of("fastlloyd")}


@pytest.fixture(scope="module")
def study():
    return Study(small_rows())


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    rows = small_rows()
    return report.build(
        rows, paper="fastlloyd", missing=MISSING, out=out, environment={"python": "3.11", "packages": {"numpy": "2.4"}}
    )


def words(figure):
    """All texts of a figure's axes."""
    return " ".join(text.get_text().replace("\n", " ") for axes in figure.axes for text in axes.texts)


@pytest.mark.parametrize("name", ["figure2", "figure3", "figure4", "figure5", "figure8", "sound_nicv", "iterations"])
def test_figures_have_numbers_behind_them(name, study):
    with styled():
        drawn = SPECS[name].draw(study)
    assert len(drawn.table) and len(drawn.printed) and drawn.caption.endswith(".")


def test_a_data_set_that_was_not_run_is_named_in_its_panel(study):
    with styled():
        drawn = SPECS["figure2"].draw(study)
    assert len(drawn.figure.axes) == 10
    assert words(drawn.figure).count("not run") == 7
    assert any("MNIST" in gap for gap in drawn.gaps)


@pytest.mark.parametrize("name", sorted(SPECS))
def test_every_figure_survives_rows_of_one_cell_only(name):
    # A run that was killed early still gets a report: panels say that nothing is there.
    rows = cell_rows("real", "fastlloyd", "iris", 0.5, 3, size=SIZES["iris"])
    with styled():
        drawn = SPECS[name].draw(Study(rows))
    assert drawn.caption
    if name in ("figure3", "figure4", "figure5", "iterations"):
        assert "not run" in words(drawn.figure) and drawn.gaps


def test_two_adjacencies_never_share_an_axis(study):
    cells = study.panel("real", "nicv").cells
    assert epsilon_label(cells) == "ε (zero-out; δ = 1/(N ln N), SuLloyd δ = 0)"
    mixed = cells.assign(adjacency=np.where(cells["method"] == "glloyd", "add_remove", cells["adjacency"]))
    with pytest.raises(ValueError, match="adjacency"):
        epsilon_label(mixed)


def test_a_method_of_another_adjacency_is_kept_off_the_open_figure_and_named():
    rows = small_rows()
    stranger = cell_rows("real", "fastlloyd", "iris", 0.5, 12, size=SIZES["iris"])
    stranger = stranger.assign(method="other", cell="other", adjacency="replace_one")
    with styled():
        drawn = SPECS["figure2_fold"].draw(Study(pd.concat([rows, stranger], ignore_index=True)))
    assert "other" not in set(drawn.table["method"])
    assert any(gap.startswith("other") for gap in drawn.gaps)


def test_looks_are_fixed_and_variants_differ():
    assert look("sulloyd").colour == look("sulloyd_fold").colour == look("sulloyd_sound").colour
    assert len({str(look(name).dash) for name in ("sulloyd", "sulloyd_fold", "sulloyd_sound")}) == 3
    assert look("sulloyd_fold").hollow and not look("sulloyd").hollow
    known = ("alpha", "beta", "fastlloyd")
    assert look("alpha", known=known).colour != look("beta", known=known).colour


def test_ablation_averages_ratios_over_all_separations():
    rows = small_rows()
    panel = Study(rows).panel("ablation", "nicv")
    configurations, ratios = relative_ablation(panel, resampling_weights(len(panel.seeds), 5))
    mine = rows[(rows["sweep"] == "ablation")]
    naive = mine[mine["method"] == "glloyd"].groupby("dataset")["nicv"].mean()
    wanted = {"alpha": 0.4, "radius_schedule": "step", "radius_clipping": True, "postprocessing": "fold"}
    place = int((configurations[list(wanted)] == pd.Series(wanted)).all(axis=1).to_numpy().argmax())
    chosen = mine[mine["params"].map(json.loads) == wanted]
    direct = (chosen.groupby("dataset")["nicv"].mean() / naive).mean()
    assert ratios[0, place] == pytest.approx(direct)
    assert configurations["datasets"][place] == len(naive) == 8


def test_the_page_stands_alone_and_its_links_resolve(page):
    html = page.read_text(encoding="utf-8")
    assert page.name == "index.html"
    assert not re.search(r'(src|href)="https?://', html) and "<script" not in html and "@import" not in html
    for link in set(re.findall(r'href="([^"#][^"]*)"', html)):
        assert (page.parent / link).is_file(), link
    for anchor in set(re.findall(r'href="#([^"]+)"', html)):
        assert f'id="{anchor}"' in html, anchor
    assert html.count("data:image/png;base64,") == sum(spec.name != "table2" for spec in SPECS.values())


def test_the_page_says_what_it_must(page):
    html = page.read_text(encoding="utf-8")
    for text in ("DataUnavailable: mnist", "Deviations from the paper", "packages · numpy", "F-09", "F-10", "zero-out"):
        assert text in html, text
    claims = pd.read_csv(page.parent / "tables" / "claims.csv")
    assert len(claims) == 54


def test_every_figure_leaves_files(page):
    for spec in SPECS.values():
        assert (page.parent / "tables" / f"{spec.name}.csv").stat().st_size > 0
        assert (page.parent / "tables" / f"{spec.name}.tex").stat().st_size > 0
        for ending in ("png", "pdf"):
            assert (page.parent / "figures" / f"{spec.name}.{ending}").is_file() == (spec.name != "table2")


def test_privacy_table_shows_spending_and_flaws(study):
    table = report.privacy_table(study).set_index(["method", "variant"])
    published = table.loc[("fastlloyd", "published")]
    assert published["spent"] == "100.0000%" and published["flaws"] == ["F-09", "F-10"]
    assert table.loc[("fastlloyd_sound", "sound"), "flaws"] == []
    assert table.loc[("lloyd", "published"), "declared"] == "–"


def test_unknown_paper_and_empty_rows_leave_nothing_behind(tmp_path):
    for rows, paper in ((small_rows(), "nobody"), (small_rows().iloc[:0], "fastlloyd")):
        with pytest.raises(ValueError, match=r"nobody|empty"):
            report.build(rows, paper=paper, missing=MISSING, out=tmp_path / "out", environment={})
        assert not (tmp_path / "out").exists()
