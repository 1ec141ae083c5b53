"""The cross-paper comparison on fabricated rows whose ratios, ranks and winners are known."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import reports
from fabricated.comparison import FACTORS, SIZES, all_rows, spread
from fabricated.studies import study_of
from scipy import stats

from pkm.analysis import claims, verdicts
from pkm.analysis.comparison import (
    best_methods,
    complete,
    critical_difference,
    fit_times,
    insufficient_data,
    median_interval,
    median_matrix,
    private,
    rank,
    ratios,
    shared_datasets,
)
from pkm.analysis.figures import comparison as figures
from pkm.analysis.figures import figures_of
from pkm.analysis.report import build
from pkm.analysis.tables import Study
from pkm.privacy.stability_histogram import StabilityHistogram


@pytest.fixture(scope="module")
def study():
    return study_of("comparison")


@pytest.fixture(scope="module")
def table(study):
    return ratios(study)


def test_ratios_are_medians_over_the_best_non_private_run(table):
    for name, place in zip(SIZES, range(4), strict=True):
        for method, factor in FACTORS.items():
            if (method, name) == ("eugkm", "wide"):
                continue
            mine = table[(table["dataset"] == name) & (table["method"] == method)].set_index(
                "epsilon"
            )
            assert mine.index.tolist() == [0.5, 1.0]
            assert mine["median"].to_numpy() == pytest.approx([1.5 * factor, factor])
            assert mine["reference"].to_numpy() == pytest.approx(0.1 * (place + 1))
            # Of seven values the interval is from the first to the last: inside of them is less
            # than 95 %.
            assert (mine["low"] / mine["median"]).to_numpy() == pytest.approx(0.9)
            assert (mine["high"] / mine["median"]).to_numpy() == pytest.approx(30.0)
    assert (table["n_centers"] == table["k"].where(table["method"] != "dpm_sound", 3)).all()


def test_quartiles_are_those_of_the_ratios(table):
    line = table.query("dataset == 'a' and method == 'glloyd_sound' and epsilon == 1.0").iloc[0]
    expected = np.quantile(spread(2.0), [0.25, 0.75])
    assert line[["lower_quartile", "upper_quartile"]].to_numpy(float) == pytest.approx(expected)


@pytest.mark.parametrize(("sensitivity", "cells"), [(1.0, 1), (math.sqrt(2), 2)])
def test_runs_with_insufficient_data_are_those_whose_thresholds_no_number_of_records_passes(
    sensitivity, cells
):
    least = StabilityHistogram(50.0, 1e-6, cells).threshold
    charge = {
        "label": "bucket_counts",
        "count_scale": 50.0,
        "count_sensitivity": sensitivity,
        "delta": 1e-6,
    }
    other = charge | {"count_scale": 60.0}
    for charges in ([charge], [other, charge], [charge, {"label": "bucket_sums", "delta": 0.0}]):
        sizes = [math.floor(least), least + 1]
        cells = pd.DataFrame({"charges": json.dumps(charges), "n": sizes})
        assert insufficient_data(cells).tolist() == [True, False]
    assert not insufficient_data(pd.DataFrame({"charges": ["[]"], "n": [1]})).any()


def test_starved_runs_are_marked():
    rows = all_rows()
    charge = {
        "label": "bucket_counts",
        "count_scale": 300.0,
        "count_sensitivity": 1.0,
        "delta": 1e-6,
    }
    rows.loc[(rows["method"] == "kaplan_stemmer") & (rows["dataset"] == "a"), "charges"] = (
        json.dumps([charge])
    )
    shown = {spec.name: spec for spec in figures_of("comparison")}["comparison_ratios"].draw(
        Study(rows)
    )
    column = shown.formatted.set_index("dataset")["Kaplan-Stemmer"]
    assert column.str.endswith(figures.INSUFFICIENT).to_dict() == {
        "a": True,
        "b": False,
        "c": False,
        "wide": False,
    }
    marked = [
        text.get_text()
        for text in shown.figure.axes[0].texts
        if figures.INSUFFICIENT in text.get_text()
    ]
    assert len(marked) == 1 and "No bucket could pass" in shown.caption


def test_non_private_cells_stand_at_every_epsilon_and_timing_cells_nowhere(table):
    assert not table.duplicated(["dataset", "method", "epsilon"]).any()
    for method, value in (("kmeans", 1.2), ("mean", 2.5), ("packing", 4.0)):
        mine = table[table["method"] == method]
        assert len(mine) == 8 and mine["median"].to_numpy() == pytest.approx(value)
    assert len(table[(table["method"] == "eugkm") & (table["dataset"] == "wide")]) == 0


def test_a_data_set_without_the_reference_has_no_ratio():
    rows = all_rows()
    found = ratios(Study(rows[~((rows["dataset"] == "b") & (rows["method"] == "kmeans"))]))
    assert sorted(found["dataset"].unique()) == ["a", "c", "wide"]


@pytest.mark.parametrize("n", [3, 6, 20, 101])
def test_median_intervals_cover_as_they_say(n):
    _, low, high, count = median_interval(np.arange(1.0, n + 1)[:, None])
    first = int(low[0])
    last = int(high[0])
    assert first + last == n + 1 and count[0] == n
    # The median lies between two order statistics with a binomial probability, whatever the law.
    covered = 1 - 2 * stats.binom.cdf(first - 1, n, 0.5)
    assert covered >= 0.95 or first == 1
    assert 1 - 2 * stats.binom.cdf(first, n, 0.5) < 0.95


def test_median_intervals_leave_out_what_is_not_finite():
    values = np.array([[1.0, np.nan], [np.inf, np.nan], [3.0, np.nan]])
    median, low, high, count = median_interval(values)
    assert (median[0], low[0], high[0]) == (2.0, 1.0, 3.0)
    assert np.isnan([median[1], low[1], high[1]]).all() and count.tolist() == [2, 0]


def test_only_private_methods_with_k_centers_are_compared(table):
    assert set(private(table)["method"]) == set(FACTORS) - {"dpm_sound"}
    wide = median_matrix(table, 1.0, ["a", "wide"])
    assert wide.loc["a"].to_dict() == pytest.approx({name: FACTORS[name] for name in wide.columns})
    assert np.isnan(wide.loc["wide", "eugkm"]) and np.isfinite(wide.loc["wide"].drop("eugkm")).all()


def test_methods_that_lack_a_data_set_are_named(table):
    kept, lacking = complete(table, list(SIZES))
    assert kept == ["glloyd_sound", "kaplan_stemmer", "lsh_splits_sound"] and lacking == {
        "eugkm": ["wide"]
    }
    assert complete(table, ["a", "b", "c"]) == (["eugkm", *kept], {})


def test_data_sets_that_all_methods_share():
    names = list(SIZES)
    assert shared_datasets(ratios(Study(all_rows())), names) == ["a", "b", "c"]
    assert shared_datasets(ratios(Study(all_rows(lacking=()))), names) == names
    # A method with results on one data set of four does not leave that one alone to be compared.
    few = [("eugkm", "wide"), *(("lsh_splits_sound", name) for name in ("b", "c", "wide"))]
    assert shared_datasets(ratios(Study(all_rows(lacking=few))), names) == ["a", "b", "c"]


def test_one_lacking_epsilon_is_enough_to_be_left_out():
    rows = all_rows()
    gone = (rows["method"] == "glloyd_sound") & (rows["dataset"] == "b") & (rows["epsilon"] == 0.5)
    assert complete(ratios(Study(rows[~gone])), list(SIZES))[1]["glloyd_sound"] == ["b"]


def test_ranks_of_a_clear_order(table):
    methods = ["eugkm", "glloyd_sound", "kaplan_stemmer", "lsh_splits_sound"]
    found = rank(table, 1.0, ["a", "b", "c"], methods)
    assert found.table["method"].tolist() == [
        "eugkm",
        "kaplan_stemmer",
        "glloyd_sound",
        "lsh_splits_sound",
    ]
    assert found.table["mean_rank"].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert (found.table[["low", "high"]].to_numpy() == found.table[["mean_rank"]].to_numpy()).all()
    # Friedman's statistic of three unanimous judges is its maximum, n (k - 1) = 9, with k - 1
    # degrees of freedom.
    assert found.p_value == pytest.approx(stats.chi2.sf(9, 3))
    assert found.critical == pytest.approx(2.569 * math.sqrt(4 * 5 / (6 * 3)), rel=1e-3)
    # CD = 2.708: the best and the worst differ, everything nearer does not.
    assert found.cliques() == [(0, 2), (1, 3)]


def test_ties_share_their_ranks():
    found = rank(
        ratios(Study(all_rows({"x": 2.0, "y": 2.0, "z": 1.0}, ()))),
        1.0,
        list(SIZES),
        ["x", "y", "z"],
    )
    assert found.table.set_index("method")["mean_rank"].to_dict() == {"x": 2.5, "y": 2.5, "z": 1.0}


# Table 5 of Demšar (2006): critical values of the Nemenyi test.
@pytest.mark.parametrize(("methods", "q"), [(2, 1.960), (3, 2.343), (5, 2.728), (10, 3.164)])
def test_critical_differences_are_those_of_the_table(methods, q):
    expected = q * math.sqrt(methods * (methods + 1) / (6 * 30))
    assert critical_difference(methods, 30) == pytest.approx(expected, rel=1e-3)


def test_too_few_for_a_test_are_ranked_all_the_same(table):
    one = rank(table, 1.0, ["a"], ["eugkm", "glloyd_sound", "kaplan_stemmer"])
    two = rank(table, 1.0, ["a", "b"], ["eugkm", "glloyd_sound"])
    for found in (one, two):
        assert (
            math.isnan(found.p_value)
            and math.isnan(found.critical)
            and found.table["mean_rank"].iloc[0] == 1
        )
        assert found.cliques() == []


def test_bootstrap_of_ranks_follows_the_data_sets():
    rows = all_rows({"x": 1.5, "y": 2.0, "z": 4.0}, ())
    rows.loc[(rows["method"] == "y") & (rows["dataset"] == "a"), "nicv"] /= 10
    found = rank(ratios(Study(rows)), 1.0, list(SIZES), ["x", "y", "z"]).table.set_index("method")
    assert found.loc["x", "mean_rank"] == 1.25 and found.loc["y", "mean_rank"] == 1.75
    assert found.loc["x", "low"] == 1.0 and 1.5 <= found.loc["x", "high"] <= 2.0
    assert (found.loc["z", ["low", "high"]] == 3.0).all()


def test_the_best_method_of_a_setting(table):
    best = best_methods(table).set_index(["dataset", "epsilon"])
    assert len(best) == 8
    line = best.loc["a", 1.0]
    assert (line["method"], line["second"], line["records"]) == ("eugkm", "kaplan_stemmer", 100.0)
    assert line["median"] == pytest.approx(1.1) and line["second_median"] == pytest.approx(1.2)
    assert line["baseline"] == pytest.approx(2.5) and line["useful"]
    assert best.loc["wide", 0.5]["method"] == "kaplan_stemmer"


def test_a_method_that_is_no_better_than_one_center_is_of_no_use():
    best = best_methods(ratios(Study(all_rows({"glloyd_sound": 2.5, "lsh_splits_sound": 2.6}, ()))))
    assert not best["useful"].any() and set(best["method"]) == {"glloyd_sound"}


def test_times_are_medians_of_timing_cells_alone(study):
    found = fit_times(study)
    assert found["method"].tolist() == ["eugkm"] * 4 and found[
        "seconds"
    ].to_numpy() == pytest.approx(0.2)
    assert found["seeds"].tolist() == [3] * 4 and found["epsilon"].tolist() == [1.0] * 4
    rows = all_rows()
    assert len(fit_times(Study(rows[~rows["timing"]]))) == 0


def test_every_figure_is_drawn_with_its_numbers_and_gaps(study):
    drawn = {
        spec.name: reports.figure_of("comparison", spec.name) for spec in figures_of("comparison")
    }
    assert all(len(each.table) and len(each.formatted) for each in drawn.values())
    assert all(
        (each.figure is None) == (name == "comparison_times") for name, each in drawn.items()
    )
    assert any(
        "EUGkM: wide left out (more than 11 columns" in gap
        for gap in drawn["comparison_ratios"].gaps
    )
    ranks = drawn["comparison_ranks"].table
    assert set(ranks["group"]) == {"all data sets", "data sets with a result of every method"}
    assert "eugkm" not in set(ranks.loc[ranks["group"] == "all data sets", "method"])
    printed = drawn["comparison_ratios"].formatted.set_index("dataset")
    assert printed.loc["a", "EUGkM"] == "1.1 [0.99, 33]" and printed.loc["wide", "EUGkM"] == "–"
    assert "ε = 1;" in drawn["comparison_ratios"].caption
    assert "sulloyd: not timed" in drawn["comparison_times"].gaps


def test_figures_without_any_private_row_say_so():
    rows = all_rows()
    bare = Study(rows[rows["sweep"] == "reference"])
    for spec in figures_of("comparison"):
        assert spec.draw(bare).gaps


def test_strangers_are_drawn_too():
    strange = Study(all_rows({"glloyd_sound": 2.0, "own_method": 1.5, "eugkm": 1.1}, ()))
    assert "own method" in figures.draw_ratios(strange).formatted.columns
    assert "own_method" in set(figures.draw_ranks(strange).table["method"])


def test_a_paper_without_claims_has_a_report(tmp_path):
    missing = pd.DataFrame(
        [
            (
                "balcan",
                "balcan",
                "wide",
                1.0,
                "failed: TimeLimitExceeded: time limit of 600 s reached",
            )
        ],
        columns=["sweep", "method", "dataset", "epsilon", "reason"],
    )
    page = build(
        all_rows(), paper="comparison", missing=missing, out=tmp_path, environment={"python": "3"}
    )
    text = page.read_text(encoding="utf-8")
    assert (
        "No claims are judged here" in text
        and "TimeLimitExceeded" in text
        and 'id="claims"' not in text
    )
    assert 'href="#verdicts"' not in text and text.count("<figure id=") == len(
        figures_of("comparison")
    )
    assert (
        not (tmp_path / "tables" / "claims.csv").exists()
        and (tmp_path / "tables" / "summary.csv").exists()
    )
    assert claims.load("comparison")["claims"] == []
    overview = verdicts.overview(verdicts.evaluate(Study(all_rows()), "comparison", missing))
    assert overview.empty and "verdict" in overview
