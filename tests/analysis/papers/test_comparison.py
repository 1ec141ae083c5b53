"""The cross-paper comparison on fabricated rows whose ratios, ranks and winners are known."""

import html
import re
from itertools import combinations

import charts
import pandas as pd
import pytest
import reports
from fabricated.comparison import (
    EPSILONS,
    PERSON_FACTORS,
    PUBLIC_ALONE,
    PUBLIC_FACTORS,
    SEEDS,
    ZOOMED,
    all_rows,
    setting_rows,
)
from fabricated.studies import study_of

from pkm.analysis.claims import verdicts
from pkm.analysis.claims.claim import read_claims
from pkm.analysis.figures.figure import read_figures
from pkm.analysis.pages.report import build
from pkm.analysis.papers.comparison import INSUFFICIENT
from pkm.analysis.render.draw import draw
from pkm.analysis.tables.ranking import ratios
from pkm.analysis.tables.study import Study
from pkm.arrow import make_nested


def test_insufficient_data_is_marked():
    rows = all_rows()
    charge = {
        "label": "bucket_counts",
        "count_scale": 300.0,
        "count_sensitivity": 1.0,
        "delta": 1e-6,
    }
    mask = (rows["method"] == "kaplan_stemmer") & (rows["dataset"] == "a")
    rows.loc[mask, "charges"] = make_nested("charges", [[charge]] * mask.sum())
    result = reports.draw("comparison", "comparison_ratios", rows)
    column = result.formatted.set_index("dataset")["Kaplan-Stemmer †"]
    expected = {"a": True, "b": False, "c": False, "wide": False}
    assert column.str.endswith(INSUFFICIENT).to_dict() == expected
    marked = [text for text in charts.panels_of(result)[0].texts if INSUFFICIENT in text]
    assert len(marked) == 1
    assert "No bucket could pass" in result.caption


def test_fit_times_use_timing_cells_only():
    times = reports.figure_of("comparison", "comparison_times").table
    assert times["method"].tolist() == ["eugkm"] * 4
    assert times["value"].to_numpy() == pytest.approx(0.2)
    assert times["seeds"].tolist() == [3] * 4
    assert times["epsilon"].tolist() == [1.0] * 4


@pytest.mark.slow
def test_figures_have_numbers_and_gaps():
    names = [spec.name for spec in read_figures("comparison")]
    results = {name: reports.figure_of("comparison", name) for name in names}
    for name, result in results.items():
        assert len(result.table)
        assert len(result.formatted)
        assert (result.drawing is None) == (name == "comparison_times")
    ratio_figure = results["comparison_ratios"]
    lacking = "EUGkM: no result at every epsilon on wide ("
    assert any(lacking in gap for gap in ratio_figure.missing)
    ranks = results["comparison_ranks"].table
    assert set(ranks["panel"]) == {"all data sets", "data sets with a result of every method"}
    assert "eugkm" not in set(ranks.loc[ranks["panel"] == "all data sets", "method"])
    formatted = ratio_figure.formatted.set_index("dataset")
    assert formatted.loc["a", "EUGkM"] == "1.1 [0.99, 33]"
    assert formatted.loc["wide", "EUGkM"] == "–"
    assert "ε = 1;" in ratio_figure.caption
    assert "lsh splits: not run: no stored rows" in results["comparison_times"].missing


def test_rows_and_persons_are_divided_by_their_own_reference():
    """They share no panel, and no ranks with the methods of other sweeps."""
    table = ratios(study_of("comparison"))
    shown = reports.figure_of("comparison", "comparison_persons").table
    expected = {
        (f"a: 1,000 {unit}s", epsilon): factor / epsilon
        for unit, factor in PERSON_FACTORS.items()
        for epsilon in EPSILONS
    }
    values = shown.set_index(["panel", "x"])["value"].to_dict()
    assert values == pytest.approx(expected)
    assert "quadtree" not in set(table["method"])


def test_public_data_have_a_panel_of_their_own():
    """Ratios of listed methods, on the data sets of the sweep; ranks are without them."""
    table = ratios(study_of("comparison"))
    shown = reports.figure_of("comparison", "comparison_public_data").table
    assert set(shown["dataset"]) == {"a", "c"}
    assert set(shown["method"]) == {*PUBLIC_FACTORS, "public_kmeans_same"}
    at_one = shown[shown["epsilon"] == 1.0].groupby("method")["value"].unique()
    for method, factor in (PUBLIC_FACTORS | {"public_kmeans_same": PUBLIC_ALONE}).items():
        assert at_one[method] == pytest.approx(factor)
    ranked = reports.figure_of("comparison", "comparison_ranks").table
    listed = {"public_kmeans_same", *PUBLIC_FACTORS}
    assert not listed & {*ranked["method"], *table["method"]}
    assert not table["method"].str.startswith("feddp").any()


def test_figures_without_private_rows_report_gaps():
    rows = all_rows()
    non_private = Study(rows[rows["sweep"] == "reference"])
    for spec in read_figures("comparison"):
        result = draw(non_private, spec)
        assert result.missing
        assert result.drawing is None


def test_unlisted_methods_are_drawn():
    rows = all_rows({"glloyd": 2.0, "unlisted_method": 1.5, "eugkm": 1.1}, ())
    ratio_figure = reports.draw("comparison", "comparison_ratios", rows)
    assert "unlisted method" in ratio_figure.formatted.columns
    ranks = reports.draw("comparison", "comparison_ranks", rows)
    assert "unlisted_method" in set(ranks.table["method"])


def test_bars_of_differences_overlap_where_ranks_do_not_differ():
    table = reports.figure_of("comparison", "comparison_differences").table
    panel = "data sets with a result of every method, ε = 1 (p = 0.029, CD 2.71)"
    lines = table[table["panel"] == panel].set_index("method")
    assert lines["value"].to_dict() == {
        "eugkm": 1.0,
        "kaplan_stemmer": 2.0,
        "glloyd": 3.0,
        "lsh_splits": 4.0,
    }
    # Of the four, only the best and the worst differ by more than 2.71.
    overlap = {
        (first, second): lines.at[first, "high"] >= lines.at[second, "low"]
        for first, second in combinations(lines.index, 2)
    }
    assert [pair for pair, overlaps in overlap.items() if not overlaps] == [("eugkm", "lsh_splits")]


def test_winners_stand_in_the_row_of_their_data_set():
    rows = all_rows({"glloyd": 2.0, "lsh_splits": 2.6}, ())
    result = reports.draw("comparison", "comparison_map", rows)
    table = result.table.set_index(["dataset", "epsilon"])
    assert table.loc[("a", 1.0), "hue"] == "glloyd"
    # At half the epsilon even the best method is above the mean as only center.
    assert table.loc[("a", 0.5), "hue"] == "none"
    assert list(table["value"]) == list(table["records"])
    labels = charts.panels_of(result)[0].y.labels
    assert labels == ("a (d 2)", "b (d 3)", "c (d 4)", "wide (d 40)")


@pytest.mark.slow
def test_report_of_paper_without_claims(tmp_path, monkeypatch):
    monkeypatch.setitem(read_claims("comparison"), "claims", [])
    reason = "failed: TimeLimitExceeded: time limit of 600 s reached"
    missing = reports.missing_cell("balcan", "balcan", "wide", 1.0, reason)
    environment = {"python": "3"}
    page = build(
        all_rows(), paper="comparison", missing=missing, out=tmp_path, environment=environment
    )
    text = page.read_text(encoding="utf-8")
    assert "No claims are judged here" in text
    assert "TimeLimitExceeded" in text
    assert 'id="claims"' not in text
    assert 'href="#verdicts"' not in text
    with_rows = set(re.findall('<figure id="(.*?)"', text))
    listed = text.split("Figures and tables without rows: ")[1].split(". <code>")[0]
    without_rows = html.unescape(listed).split("; ")
    for spec in read_figures("comparison"):
        assert (spec.name in with_rows) != (spec.title in without_rows), spec.name
    assert not (tmp_path / "tables" / "claims.csv").exists()
    assert (tmp_path / "tables" / "summary.csv").exists()
    overview = verdicts.overview(verdicts.evaluate_claims(Study(all_rows()), "comparison", missing))
    assert overview.empty
    assert "verdict" in overview


def verdicts_with(zoomed):
    """Verdicts of all claims where a zoom multiplies the cost in tight bounds by a factor."""
    names = {"a": "s1", "b": "s4", "c": "gas", "wide": "letters"}
    rows = setting_rows().replace({"dataset": names})
    rows = pd.concat([rows, rows.assign(seed=rows["seed"] + SEEDS)], ignore_index=True)
    is_zoomed = (rows["sweep"] == "wide_bounds") & rows["method"].str.endswith("_zoomed")
    rows.loc[is_zoomed, "nicv"] *= zoomed / ZOOMED
    found = verdicts.evaluate_claims(Study(rows), "comparison")
    return {verdict.claim.id.split("/")[1]: str(verdict.finding.verdict) for verdict in found}


@pytest.mark.slow
def test_claims_on_the_zoom_compare_methods_with_themselves():
    """A zoom that costs a hundredth, and one that costs a tenth; bounds 100 times too wide cost
    100 times as much.
    """
    assert verdicts_with(1.01) == {
        "wide-bounds-cost": "not contradicted",
        "zoom-in-wide-bounds": "not contradicted",
        "zoom-in-declared-bounds": "not contradicted",
    }
    assert verdicts_with(1.1) == {
        "wide-bounds-cost": "not contradicted",
        "zoom-in-wide-bounds": "not reproduced",
        "zoom-in-declared-bounds": "not reproduced",
    }


def test_accounting_shows_the_epsilon_that_a_run_counts_for():
    table = reports.figure_of("comparison", "comparison_accounting").table
    assert table.groupby("panel", observed=True)["epsilon"].unique().map(list).to_dict() == {
        "zero-out, δ = 1e-6": [0.5, 1.0],
        "zero-out, δ = 1 / n^1.1": [0.5, 1.0],
        "replace-one, δ = 1e-6": [0.5, 1.0],
    }


def test_wide_bounds_are_drawn_with_and_without_a_zoom():
    table = reports.figure_of("comparison", "comparison_wide_bounds").table
    lines = table[table["panel"] == "GLloyd"].set_index(["hue", "x"])["value"]
    for width in (1.0, 10.0, 100.0):
        assert lines["without", width] == pytest.approx(2.0 * width)
        assert lines["with", width] == pytest.approx(2.0 * ZOOMED)
