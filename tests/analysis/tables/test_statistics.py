"""Summaries, areas and intervals against direct computation."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import reports
from fabricated.fastlloyd import EPSILONS, small_rows
from fabricated.studies import study_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pkm.analysis.tables.statistics import area, column_statistics, resampled_means, summarize
from pkm.analysis.tables.study import SeedMatrix, Study

FOUR_NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4)


@pytest.fixture(scope="module")
def study():
    return study_of("fastlloyd")


def test_summary_equals_pandas(study):
    # The vectorized statistics must be those of the textbook, cell by cell.
    groups = small_rows().query("sweep == 'real'").groupby("cell")["nicv"]
    summary = summarize(study.matrix("real", "nicv")).set_index("cell")
    cells = summary.index
    assert len(summary) == groups.ngroups
    np.testing.assert_allclose(summary["mean"], groups.mean()[cells], rtol=1e-12)
    np.testing.assert_allclose(summary["median"], groups.median()[cells], rtol=1e-12)
    half_width = stats.t.ppf(0.975, 11) * groups.sem()[cells]
    np.testing.assert_allclose(summary["half_width"], half_width, rtol=1e-10)
    assert (summary["seeds"] == 12).all()


def test_infinite_values_are_left_out_and_counted(study):
    subset = small_rows().query("sweep == 'real'")
    is_infinite = np.isinf(subset["davies_bouldin"])
    infinite = is_infinite.groupby(subset["cell"]).sum()
    summary = summarize(study.matrix("real", "davies_bouldin")).set_index("cell")
    assert infinite.sum() > 0
    assert (summary["left_out"] == infinite[summary.index]).all()
    assert (summary["left_out"] + summary["seeds"] == 12).all()
    assert np.isfinite(summary.loc[summary["seeds"] > 0, "mean"]).all()


@settings(max_examples=50, deadline=None)
@given(st.lists(FOUR_NUMBERS, min_size=2, max_size=9), st.data())
def test_statistics_ignore_missing_values(rows, data):
    values = np.array(rows)
    missing = data.draw(st.lists(st.booleans(), min_size=values.size, max_size=values.size))
    values[np.array(missing).reshape(values.shape)] = np.nan
    summary = column_statistics(values)
    mean, median, count = (summary[name] for name in ("mean", "median", "seeds"))
    for column in range(4):
        present = values[np.isfinite(values[:, column]), column]
        assert count[column] == present.size
        if present.size:
            assert mean[column] == pytest.approx(present.mean(), rel=1e-9, abs=1e-6)
            assert median[column] == pytest.approx(np.median(present), rel=1e-9, abs=1e-6)
        else:
            assert np.isnan(mean[column])
            assert np.isnan(median[column])


def test_area_is_the_trapezoid_of_the_means(study):
    matrix = study.matrix("real", "nicv")
    areas = summarize(area(matrix)).set_index(["method", "dataset"])["mean"]
    summary = summarize(matrix).set_index(["method", "dataset", "epsilon"])
    means = summary["mean"].sort_index()
    curve = [means["fastlloyd_published", "iris", epsilon] for epsilon in EPSILONS]
    assert areas["fastlloyd_published", "iris"] == pytest.approx(np.trapezoid(curve, EPSILONS))
    # A non-private value is the same at every epsilon.
    level = means["lloyd_published", "iris"].iloc[0]
    assert areas["lloyd_published", "iris"] == pytest.approx(0.9 * level)


def test_incomplete_curves_have_no_area():
    # Areas over different grids cannot be compared; a failed cell must not turn into a smaller
    # area.
    failed = {"sweep": "real", "method": "glloyd_published", "dataset": "s1", "epsilon": 0.5}
    rows = reports.without(small_rows(), **failed)
    cells = area(Study(rows).matrix("real", "nicv")).cells
    glloyd = cells[cells["method"] == "glloyd_published"]
    assert set(glloyd["dataset"]) == {"iris", "wine"}


def test_area_needs_two_epsilons():
    rows = small_rows()
    single = rows[rows["epsilon"].isna() | (rows["epsilon"] == 0.5)]
    matrix = Study(single).matrix("real", "nicv")
    assert len(area(matrix).cells) == 0


def test_resampling_is_paired_and_deterministic():
    # One matrix of counts serves all columns: a column that is twice another stays twice in every
    # resample.
    column = np.random.default_rng(0).normal(size=(12, 1))
    values = np.hstack([column, 2 * column])
    cells = pd.DataFrame({"method": ["a", "b"]})
    matrix = SeedMatrix("nicv", cells, np.arange(12), values, np.zeros(2))
    means = resampled_means(matrix)
    assert np.array_equal(means, resampled_means(matrix))
    # Each mean is one of twelve draws of seeds: a multiple of a twelfth of the values.
    ones = replace(matrix, values=np.eye(12), cells=pd.concat([cells] * 6))
    counts = 12 * resampled_means(ones)
    np.testing.assert_allclose(counts, counts.round(), atol=1e-9)
    np.testing.assert_allclose(counts.sum(axis=1), 12)
    np.testing.assert_allclose(means[:, 1], 2 * means[:, 0])
    np.testing.assert_allclose(means[0, 0], column.mean())


def test_bootstrap_interval_agrees_with_theory():
    # For a mean of many normal values the percentile interval is close to mean ± 1.96 standard
    # errors.
    values = np.random.default_rng(1).normal(5, 2, size=(400, 1))
    cells = pd.DataFrame({"method": ["a"]})
    matrix = SeedMatrix("nicv", cells, np.arange(400), values, np.zeros(1))
    means = resampled_means(matrix)
    low, high = np.quantile(means[1:, 0], [0.025, 0.975])
    mean = values.mean()
    error = values.std(ddof=1) / 20
    assert low == pytest.approx(mean - 1.96 * error, abs=0.15 * error)
    assert high == pytest.approx(mean + 1.96 * error, abs=0.15 * error)


def test_order_of_rows_does_not_matter():
    rows = small_rows()
    shuffled = rows.sample(frac=1, random_state=3).reset_index(drop=True)
    summary = summarize(Study(rows).matrix("real", "nicv")).set_index("cell")
    shuffled_summary = summarize(Study(shuffled).matrix("real", "nicv")).set_index("cell")
    expected = shuffled_summary["mean"].loc[summary.index]
    pd.testing.assert_series_equal(summary["mean"], expected, rtol=1e-13)


def test_standard_deviations_ignore_missing_values():
    values = np.array([[1.0, 2.0], [2.0, np.nan], [4.0, np.nan]])
    deviations = column_statistics(values)["deviation"]
    assert deviations[0] == pytest.approx(np.std([1, 2, 4], ddof=1))
    assert math.isnan(deviations[1])
