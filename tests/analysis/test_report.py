"""Figures and the report: every declared figure draws, says what is missing, and the page stands
alone.
"""

import json
import re
from functools import partial

import numpy as np
import pandas as pd
import pytest
import reports
from fabricated.fastlloyd import SIZES, cell_rows, small_rows
from fabricated.studies import study_of

from pkm.analysis import report
from pkm.analysis.figures import figures_of
from pkm.analysis.figures.fastlloyd import relative_ablation
from pkm.analysis.figures.style import epsilon_label, styled
from pkm.analysis.tables import Study, resampling_weights

MISSING = pd.DataFrame(
    [
        {
            "sweep": "real",
            "method": "fastlloyd",
            "dataset": "mnist",
            "epsilon": 0.1,
            "reason": "DataUnavailable: mnist",
        }
    ]
)
SPECS = {spec.name: spec for spec in figures_of("fastlloyd")}
figure = partial(reports.figure_of, "fastlloyd")
TABLES = ("table2", "table3", "protocol_parties")


@pytest.fixture(scope="module")
def study():
    return study_of("fastlloyd")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    rows = small_rows()
    return report.build(
        rows,
        paper="fastlloyd",
        missing=MISSING,
        out=out,
        environment={"python": "3.11", "packages": {"numpy": "2.4"}},
    )


def words(figure):
    """All texts of a figure's axes."""
    return " ".join(
        text.get_text().replace("\n", " ") for axes in figure.axes for text in axes.texts
    )


@pytest.mark.parametrize(
    "name", ["figure2", "figure3", "figure4", "figure5", "figure8", "sound_nicv", "iterations"]
)
def test_figures_have_numbers_behind_them(name, study):
    drawn = figure(name)
    assert len(drawn.table) and len(drawn.formatted) and drawn.caption.endswith(".")


def test_a_data_set_that_was_not_run_is_named_in_its_panel(study):
    drawn = figure("figure2")
    assert len(drawn.figure.axes) == 10
    assert words(drawn.figure).count("not run") == 7
    assert any("MNIST" in gap for gap in drawn.gaps)


@pytest.mark.parametrize("name", sorted(SPECS))
def test_every_figure_survives_rows_of_one_cell_only(name):
    # A run that was killed early still gets a report: panels say that nothing is there.
    rows = cell_rows("real", "fastlloyd", "iris", 0.5, 3, size=SIZES["iris"])
    with styled():
        drawn = SPECS[name].draw(Study(rows))
    assert drawn.caption.endswith(".")
    assert {gap.rpartition(": ")[2] for gap in drawn.gaps} == {"no stored rows"}
    assert drawn.figure is None or "not run" in words(drawn.figure)


def test_two_adjacencies_never_share_an_axis(study):
    cells = study.panel("real", "nicv").cells
    assert epsilon_label(cells) == "ε (zero-out; δ = 1/(N ln N), SuLloyd δ = 0)"
    mixed = cells.assign(
        adjacency=np.where(cells["method"] == "glloyd", "add_remove", cells["adjacency"])
    )
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


def test_ablation_has_both_averages_over_all_separations():
    rows = small_rows()
    panel = Study(rows).panel("ablation", "nicv")
    configurations, averages = relative_ablation(panel, resampling_weights(len(panel.seeds), 5))
    mine = rows[(rows["sweep"] == "ablation")]
    naive = mine[mine["method"] == "glloyd"].groupby("dataset")["nicv"].mean()
    wanted = {
        "alpha": 0.4,
        "radius_schedule": "step",
        "radius_clipping": True,
        "postprocessing": "fold",
    }
    place = int((configurations[list(wanted)] == pd.Series(wanted)).all(axis=1).to_numpy().argmax())
    chosen = mine[mine["params"].map(json.loads) == wanted]
    means = chosen.groupby("dataset")["nicv"].mean()
    assert averages["ratio_of_means"][0, place] == pytest.approx(means.sum() / naive.sum())
    assert averages["mean_of_ratios"][0, place] == pytest.approx((means / naive).mean())
    assert averages["ratio_of_means"][0, place] != pytest.approx(
        averages["mean_of_ratios"][0, place], rel=1e-3
    )
    assert configurations["datasets"][place] == len(naive) == 8


def test_figure5_is_drawn_by_the_ratio_of_means_and_the_other_average_has_its_own(study):
    mine, other = (figure(name) for name in ("figure5", "figure5_ratios"))
    pd.testing.assert_frame_equal(mine.table, other.table)
    half = mine.table[mine.table["radius_clipping"].eq(True)].groupby(
        ["postprocessing", "radius_schedule"]
    )
    for drawn, column in ((mine, "ratio_of_means"), (other, "mean_of_ratios")):
        curves = [
            line.get_ydata() for line in drawn.figure.axes[0].lines if len(line.get_xdata()) == 2
        ][1:]
        expected = [part.sort_values("alpha")[column].tolist() for _, part in half]
        assert np.allclose(sorted(map(list, curves)), sorted(expected)), column
    assert {"ratio_of_means", "mean_of_ratios"} <= set(mine.formatted.columns)
    assert "ratio of means 0." in mine.caption or "ratio of means 1." in mine.caption


@pytest.mark.parametrize(
    "name", ["figure2", "figure2_fold", "figure6", "figure7", "figure8", "figure8_distance"]
)
def test_captions_count_the_data_sets_that_are_drawn(name, study):
    caption = figure(name).caption
    assert "on 3 real data sets" in caption and "ten real" not in caption
    assert ("best of ten seeded k-means++ starts" in caption) == name.startswith("figure8")


@pytest.mark.parametrize("factor", [1e3, 1e6, 1e12])
def test_every_private_curve_is_inside_its_panel_however_far_apart_methods_lie(factor):
    rows = small_rows().copy()
    rows.loc[rows["method"].isin(["sulloyd", "glloyd"]), "centroid_mse"] *= factor
    with styled():
        drawn = SPECS["figure8"].draw(Study(rows))
    for place in (2, 7, 8):  # Iris, S1 and Wine are the panels with rows
        axes = drawn.figure.axes[place]
        bottom, top = axes.get_ylim()
        private = [
            line
            for line in axes.lines
            if line.get_marker() not in (None, "None") and "non-private" not in line.get_label()
        ]
        curves = [line.get_ydata() for line in private]
        assert len(curves) == 3 and axes.get_yscale() == "log"
        assert all(
            (bottom < curve).all() and (curve < top).all() for curve in map(np.asarray, curves)
        )


def test_stand_ins_are_named_beside_the_figures_that_use_them(tmp_path, monkeypatch):
    rows = small_rows()
    renamed = rows.assign(
        dataset=rows["dataset"].where(rows["dataset"] != "g2-16-20", "g2-16-20-generated")
    )
    with styled():
        drawn = {
            name: SPECS[name].draw(Study(renamed)).substitutes
            for name in ("figure2", "figure3", "figure4")
        }
    assert "1 of 9 data sets" in drawn["figure3"] and "g2-16-20-generated" in drawn["figure3"]
    assert not drawn["figure2"] and not drawn["figure4"]
    page = reports.built(
        "fastlloyd", renamed, tmp_path, monkeypatch, ("figure3", "figure4"), MISSING
    )
    text = page.read_text(encoding="utf-8")
    figure = text[text.index('<figure id="figure3">') : text.index('<figure id="figure4">')]
    assert 'class="substitute"' in figure and "g2-16-20-generated" in figure


def test_added_outliers_do_not_count_as_the_papers_sets():
    rows = small_rows()
    more = [
        cell_rows("outliers", "fastlloyd", f"synth-2-2-0-o{n}", 0.5, 12, size=(10000 + n, 2, 2))
        for n in (0, 100)
    ]
    with styled():
        table = (
            SPECS["table2"]
            .draw(Study(pd.concat([rows, *more], ignore_index=True)))
            .table.set_index("data set")
        )
    assert table.loc["Synth", "N (here)"] == "10000" and table.loc["Synth", "sets here"] == 9


@pytest.mark.slow
def test_the_page_stands_alone_and_its_links_resolve(page):
    html = page.read_text(encoding="utf-8")
    assert page.name == "index.html"
    assert (
        not re.search(r'(src|href)="https?://', html)
        and "<script" not in html
        and "@import" not in html
    )
    for link in set(re.findall(r'href="([^"#][^"]*)"', html)):
        assert (page.parent / link).is_file(), link
    for anchor in set(re.findall(r'href="#([^"]+)"', html)):
        assert f'id="{anchor}"' in html, anchor
    assert html.count("data:image/png;base64,") == len(SPECS) - len(TABLES)


@pytest.mark.slow
def test_the_page_says_what_it_must(page):
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
    claims = pd.read_csv(page.parent / "tables" / "claims.csv")
    assert len(claims) == 54


@pytest.mark.slow
def test_claims_show_their_basis(page):
    table = pd.read_csv(page.parent / "tables" / "claims.csv").set_index("id")
    assert table.loc["fastlloyd/iterations-range-useful", "basis"] == "cited"
    assert page.read_text(encoding="utf-8").count('<td class="basis">') == len(table)


def test_environment_of_any_shape_is_laid_out():
    stand_ins = [
        f"g2-{d}-{sd} by g2-{d}-{sd}-generated" for d in (2, 4) for sd in range(10, 101, 10)
    ]
    laid = report._environment(
        {
            "computed with": {"numpy": "2.4", "inner": {"python": "3.11"}},
            "stand-ins": stand_ins,
            "joined": "; ".join(stand_ins),
            "few": ["a", "b"],
            "empty": [],
            "cores": 2,
        }
    )
    found = {entry["name"]: entry for entry in laid}
    assert found["computed with · inner · python"]["text"] == "3.11"
    assert found["stand-ins"]["lines"] == found["joined"]["lines"] == stand_ins
    assert found["few"]["text"] == "a, b" and not found["few"]["lines"]
    assert found["empty"]["text"] == "–" and found["cores"]["text"] == "2"


def test_a_report_replaces_an_older_one_and_leaves_foreign_files(tmp_path, monkeypatch):
    for folder, name in (
        ("tables", "claim_gone.csv"),
        ("figures", "gone.png"),
        ("tables", "notes.txt"),
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text("old")
    (tmp_path / "index.html").write_text("old")
    rows = cell_rows("real", "fastlloyd", "iris", 0.5, 3, size=SIZES["iris"])
    some = ("figure2", "table2")
    with monkeypatch.context() as broken:
        # The page is written last and in one step, so a report that breaks off leaves the old one
        # readable.
        broken.setattr("pkm.files.os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk")))
        with pytest.raises(OSError, match="disk"):
            reports.built("fastlloyd", rows, tmp_path, broken, some, MISSING)
    assert (tmp_path / "index.html").read_text() == "old"
    page = reports.built("fastlloyd", rows, tmp_path, monkeypatch, some, MISSING)
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert (
        not (tmp_path / "tables" / "claim_gone.csv").exists()
        and not (tmp_path / "figures" / "gone.png").exists()
    )
    assert (tmp_path / "tables" / "notes.txt").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figures", "index.html", "tables"]


@pytest.mark.slow
def test_every_figure_leaves_files(page):
    for spec in SPECS.values():
        assert (page.parent / "tables" / f"{spec.name}.csv").stat().st_size > 0
        assert (page.parent / "tables" / f"{spec.name}.tex").stat().st_size > 0
        for ending in ("png", "pdf"):
            assert (page.parent / "figures" / f"{spec.name}.{ending}").is_file() == (
                spec.name not in TABLES
            )


def test_privacy_table_shows_spending_and_flaws(study):
    table = report.privacy_table(study).set_index(["method", "variant"])
    published = table.loc[("fastlloyd", "published")]
    assert published["spent"] == "100.0000%" and published["flaws"] == ["F-09", "F-10"]
    assert table.loc[("fastlloyd_sound", "sound"), "flaws"] == []
    assert table.loc[("lloyd", "published"), "declared"] == "–"


def test_privacy_table_says_which_moves_are_protected():
    rows = cell_rows("real", "fastlloyd", "iris", 0.5, 2, size=SIZES["iris"]).assign(
        adjacency="rho_bounded"
    )
    rows = pd.concat(
        rows.assign(params=json.dumps({"rho": rho}), cell=f"cell {rho}", sweep=f"sweep {rho}")
        for rho in (0.05, "diagonal", 0.008)
    )
    assert report.privacy_table(Study(rows))["adjacency"].tolist() == [
        "rho_bounded, ρ 0.008, 0.05, diagonal"
    ]
    assert "ρ" not in report.privacy_table(Study(small_rows()))["adjacency"].str.cat()


def test_unknown_paper_and_empty_rows_leave_nothing_behind(tmp_path):
    for rows, paper in ((small_rows(), "nobody"), (small_rows().iloc[:0], "fastlloyd")):
        with pytest.raises(ValueError, match=r"nobody|empty"):
            report.build(rows, paper=paper, missing=MISSING, out=tmp_path / "out", environment={})
        assert not (tmp_path / "out").exists()
