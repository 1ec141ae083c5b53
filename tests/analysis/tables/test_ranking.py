"""Ratios to non-private k-means, medians, ranks and their tests."""

import math

import numpy as np
import pandas as pd
import pytest
import reports
from fabricated.comparison import FACTORS, SIZES, WIDE, ZOOMED, all_rows
from fabricated.studies import study_of
from scipy import stats

from pkm.analysis.tables.ranking import (
    best_methods,
    complete_methods,
    critical_difference,
    full_results,
    insufficient_data,
    median_interval,
    median_matrix,
    private,
    profile,
    rank,
    ratios,
    shared_datasets,
)
from pkm.analysis.tables.study import Study
from pkm.arrow import make_nested
from pkm.privacy.mechanisms.stability_histogram import StabilityHistogram


@pytest.fixture(scope="module")
def study():
    return study_of("comparison")


@pytest.fixture(scope="module")
def table(study):
    return ratios(study)


def test_ratios_to_best_non_private_run(table):
    for index, name in enumerate(SIZES):
        for method, factor in FACTORS.items():
            if (method, name) == ("eugkm", "wide"):
                continue
            mask = (table["dataset"] == name) & (table["method"] == method)
            subset = table[mask].set_index("epsilon")
            assert subset.index.tolist() == [0.5, 1.0]
            assert subset["median"].to_numpy() == pytest.approx([1.5 * factor, factor])
            assert subset["reference"].to_numpy() == pytest.approx(0.1 * (index + 1))
            # Of seven values the interval is from the first to the last: inside of them is less
            # than 95 %.
            relative_low = subset["low"] / subset["median"]
            relative_high = subset["high"] / subset["median"]
            assert relative_low.to_numpy() == pytest.approx(0.9)
            assert relative_high.to_numpy() == pytest.approx(30.0)


@pytest.mark.parametrize(("sensitivity", "cells"), [(1.0, 1), (math.sqrt(2), 2)])
def test_insufficient_data_when_threshold_exceeds_all_records(sensitivity, cells):
    threshold = StabilityHistogram(50.0, 1e-6, cells).threshold
    charge = {
        "label": "bucket_counts",
        "count_scale": 50.0,
        "count_sensitivity": sensitivity,
        "delta": 1e-6,
    }
    larger_scale = charge | {"count_scale": 60.0}
    bucket_sums = {"label": "bucket_sums", "delta": 0.0}
    for charges in ([charge], [larger_scale, charge], [charge, bucket_sums]):
        sizes = [math.floor(threshold), threshold + 1]
        cells = pd.DataFrame({"charges": make_nested("charges", [charges] * 2), "n": sizes})
        assert insufficient_data(cells).tolist() == [True, False]
    empty = pd.DataFrame({"charges": make_nested("charges", [[]]), "n": [1]})
    assert not insufficient_data(empty).any()


def test_ratios_repeat_non_private_and_exclude_timing(table):
    assert not table.duplicated(["dataset", "method", "epsilon"]).any()
    for method, value in (("kmeans", 1.2), ("mean", 2.5), ("packing", 4.0)):
        subset = table[table["method"] == method]
        assert len(subset) == 8
        assert subset["median"].to_numpy() == pytest.approx(value)
    timed = (table["method"] == "eugkm") & (table["dataset"] == "wide")
    assert not timed.any()


def test_no_ratio_without_reference():
    rows = all_rows()
    reference = (rows["dataset"] == "b") & (rows["method"] == "kmeans")
    table = ratios(Study(rows[~reference]))
    assert sorted(table["dataset"].unique()) == ["a", "c", "wide"]


@pytest.mark.parametrize("n", [3, 6, 20, 101])
def test_median_interval_coverage(n):
    interval = median_interval(np.arange(1.0, n + 1)[:, None]).iloc[0]
    first = int(interval["low"])
    last = int(interval["high"])
    assert first + last == n + 1
    assert interval["seeds"] == n
    # The median lies between two order statistics with a binomial probability under every
    # continuous distribution.
    coverage = 1 - 2 * stats.binom.cdf(first - 1, n, 0.5)
    assert coverage >= 0.95 or first == 1
    assert 1 - 2 * stats.binom.cdf(first, n, 0.5) < 0.95


def test_median_interval_ignores_non_finite_values():
    values = np.array([[1.0, np.nan], [np.inf, np.nan], [3.0, np.nan]])
    finite, others = median_interval(values).to_numpy().tolist()
    assert finite == [2.0, 1.0, 3.0, 2]
    assert np.isnan(others[:3]).all()
    assert others[3] == 0


def test_median_matrix_of_private_methods_with_k_centers(table):
    assert set(private(table)["method"]) == set(FACTORS) - {"dpm"}
    medians = median_matrix(table).loc[1.0]
    expected = {name: FACTORS[name] for name in medians.columns}
    assert medians.loc["a"].to_dict() == pytest.approx(expected)
    assert np.isnan(medians.loc["wide", "eugkm"])
    assert np.isfinite(medians.loc["wide"].drop("eugkm")).all()


def test_complete_reports_missing_data_sets(table):
    methods = ["glloyd", "kaplan_stemmer", "lsh_splits"]
    assert complete_methods(table, list(SIZES)) == methods
    full = full_results(table, list(SIZES))
    assert full[methods].to_numpy().all()
    assert list(full.index[~full["eugkm"]]) == ["wide"]
    assert complete_methods(table, ["a", "b", "c"]) == ["eugkm", *methods]


def test_shared_datasets():
    names = list(SIZES)
    assert shared_datasets(ratios(Study(all_rows())), names) == ["a", "b", "c"]
    assert shared_datasets(ratios(Study(all_rows(missing=()))), names) == names
    # A method with results on one data set of four does not leave that one alone to be compared.
    missing = [("lsh_splits", name) for name in ("b", "c", "wide")]
    missing.append(("eugkm", "wide"))
    assert shared_datasets(ratios(Study(all_rows(missing=missing))), names) == ["a", "b", "c"]


def test_complete_excludes_methods_with_missing_epsilon():
    rows = all_rows()
    removed = reports.row_mask(rows, method="glloyd", dataset="b", epsilon=0.5)
    full = full_results(ratios(Study(rows[~removed])), list(SIZES))
    assert list(full.index[~full["glloyd"]]) == ["b"]


def test_ranks_of_a_clear_order(table):
    methods = ["eugkm", "glloyd", "kaplan_stemmer", "lsh_splits"]
    ranks = rank(table, 1.0, ["a", "b", "c"], methods)
    order = ["eugkm", "kaplan_stemmer", "glloyd", "lsh_splits"]
    assert ranks["method"].tolist() == order
    assert ranks["mean_rank"].tolist() == [1.0, 2.0, 3.0, 4.0]
    intervals = ranks[["low", "high"]].to_numpy()
    assert (intervals == ranks[["mean_rank"]].to_numpy()).all()
    # Friedman's statistic of three unanimous judges is its maximum, n (k - 1) = 9, with k - 1
    # degrees of freedom.
    assert ranks["friedman_p"].tolist() == pytest.approx([stats.chi2.sf(9, 3)] * 4)
    assert ranks["critical_difference"].tolist() == pytest.approx(
        [2.569 * math.sqrt(4 * 5 / (6 * 3))] * 4, rel=1e-3
    )


def test_ties_share_ranks():
    table = ratios(Study(all_rows({"x": 2.0, "y": 2.0, "z": 1.0}, ())))
    ranks = rank(table, 1.0, list(SIZES), ["x", "y", "z"])
    mean_ranks = ranks.set_index("method")["mean_rank"]
    assert mean_ranks.to_dict() == {"x": 2.5, "y": 2.5, "z": 1.0}


# Table 5 of Demšar (2006): critical values of the Nemenyi test.
@pytest.mark.parametrize(("methods", "q"), [(2, 1.960), (3, 2.343), (5, 2.728), (10, 3.164)])
def test_critical_difference_equals_published_table(methods, q):
    expected = q * math.sqrt(methods * (methods + 1) / (6 * 30))
    assert critical_difference(methods, 30) == pytest.approx(expected, rel=1e-3)


def test_ranks_without_enough_data_for_a_test(table):
    one_data_set = rank(table, 1.0, ["a"], ["eugkm", "glloyd", "kaplan_stemmer"])
    two_methods = rank(table, 1.0, ["a", "b"], ["eugkm", "glloyd"])
    for ranks in (one_data_set, two_methods):
        assert ranks["friedman_p"].isna().all()
        assert ranks["critical_difference"].isna().all()
        assert ranks["mean_rank"].iloc[0] == 1


def test_rank_bootstrap_over_data_sets():
    rows = all_rows({"x": 1.5, "y": 2.0, "z": 4.0}, ())
    rows.loc[(rows["method"] == "y") & (rows["dataset"] == "a"), "nicv"] /= 10
    ranks = rank(ratios(Study(rows)), 1.0, list(SIZES), ["x", "y", "z"])
    table = ranks.set_index("method")
    assert table.loc["x", "mean_rank"] == 1.25
    assert table.loc["y", "mean_rank"] == 1.75
    assert table.loc["x", "low"] == 1.0
    assert 1.5 <= table.loc["x", "high"] <= 2.0
    assert (table.loc["z", ["low", "high"]] == 3.0).all()


def test_best_method_of_each_setting(table):
    best = best_methods(table).set_index(["dataset", "epsilon"])
    assert len(best) == 8
    line = best.loc["a", 1.0]
    assert (line["method"], line["second"], line["records"]) == ("eugkm", "kaplan_stemmer", 100.0)
    assert line["median"] == pytest.approx(1.1)
    assert line["second_median"] == pytest.approx(1.2)
    assert line["baseline"] == pytest.approx(2.5)
    assert line["useful"]
    assert best.loc["wide", 0.5]["method"] == "kaplan_stemmer"


def test_best_method_not_useful_above_baseline():
    rows = all_rows({"glloyd": 2.5, "lsh_splits": 2.6}, ())
    best = best_methods(ratios(Study(rows)))
    assert not best["useful"].any()
    assert set(best["method"]) == {"glloyd"}


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ({"bounds_factor": 10.0}, WIDE),
        ({"zoomed": True}, ZOOMED),
        ({"bounds_factor": 10.0, "zoomed": True}, ZOOMED),
        ({"sweeps": ["replace_one"]}, 2.0),
    ],
)
def test_ratios_of_other_settings(study, setting, expected):
    table = ratios(study, **setting)
    assert set(private(table)["method"]) == set(FACTORS) - {"dpm"}
    assert {"kmeans", "mean", "packing"} <= set(table["method"])
    lines = private(table)[private(table)["epsilon"] == table["epsilon"].max()]
    assert len(lines) == len(SIZES) * (len(FACTORS) - 1)
    for line in lines.itertuples():
        assert line.median == pytest.approx(expected * FACTORS[line.method])


def test_a_method_that_always_zooms_is_compared_with_and_without():
    rows = all_rows({"glloyd": 2.0, "glloyd_zoomed": 1.5, "synopsis": 1.1}, ())
    for zoomed, expected in ((False, 2.0), (True, 1.5)):
        table = ratios(Study(rows), zoomed=zoomed).query("epsilon == 1.0 and dataset == 'a'")
        medians = private(table).set_index("method")["median"]
        assert medians.to_dict() == pytest.approx({"glloyd": expected, "synopsis": 1.1})


def test_profiles_count_settings_near_the_best():
    """Of two methods, each is best on one of two data sets, by factors of 1.5 and 3."""
    rows = all_rows({"glloyd": 2.0, "eugkm": 3.0}, ())
    turned = (rows["method"] == "eugkm") & rows["dataset"].isin(["b", "c"])
    rows.loc[turned, "nicv"] /= 4.5
    shares = profile(ratios(Study(rows)), ["a", "b"], np.array([1.0, 1.6, 2.9, 3.1]))
    table = shares.pivot_table(index="method", columns="factor", values="share")
    assert table.loc["glloyd"].tolist() == [0.5, 0.5, 0.5, 1.0]
    assert table.loc["eugkm"].tolist() == [0.5, 1.0, 1.0, 1.0]
