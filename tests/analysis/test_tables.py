"""Summaries, areas and intervals against direct computation."""

import numpy as np
import pandas as pd
import pytest
from fabricated.fastlloyd import EPSILONS, small_rows
from fabricated.studies import study_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pkm.analysis.tables import (
    Panel,
    Study,
    area,
    area_table,
    column_statistics,
    concatenate,
    latex,
    resampled_means,
    resampling_weights,
    summarize,
    write,
)


@pytest.fixture(scope="module")
def study():
    return study_of("fastlloyd")


def test_summary_equals_pandas_on_every_cell(study):
    # The vectorized statistics must be those of the textbook, cell by cell.
    rows = small_rows()
    mine = rows[rows["sweep"] == "real"].groupby("cell")["nicv"]
    summary = summarize(study.panel("real", "nicv")).set_index("cell")
    assert len(summary) == mine.ngroups
    np.testing.assert_allclose(summary["mean"], mine.mean()[summary.index], rtol=1e-12)
    np.testing.assert_allclose(summary["median"], mine.median()[summary.index], rtol=1e-12)
    half = stats.t.ppf(0.975, 11) * mine.sem()[summary.index]
    np.testing.assert_allclose(summary["half_width"], half, rtol=1e-10)
    assert (summary["seeds"] == 12).all()


def test_infinite_values_are_left_out_and_counted(study):
    rows = small_rows()
    mine = rows[rows["sweep"] == "real"]
    infinite = np.isinf(mine["davies_bouldin"]).groupby(mine["cell"]).sum()
    summary = summarize(study.panel("real", "davies_bouldin")).set_index("cell")
    assert infinite.sum() > 0
    assert (summary["left_out"] == infinite[summary.index]).all()
    assert (summary["left_out"] + summary["seeds"] == 12).all()
    assert np.isfinite(summary.loc[summary["seeds"] > 0, "mean"]).all()


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4), min_size=2, max_size=9),
    st.data(),
)
def test_statistics_ignore_missing_values(lines, data):
    values = np.array(lines)
    holes = data.draw(st.lists(st.booleans(), min_size=values.size, max_size=values.size))
    values[np.array(holes).reshape(values.shape)] = np.nan
    mean, _, median, count = column_statistics(values)
    for column in range(4):
        known = values[np.isfinite(values[:, column]), column]
        assert count[column] == known.size
        if known.size:
            assert mean[column] == pytest.approx(known.mean(), rel=1e-9, abs=1e-6)
            assert median[column] == pytest.approx(np.median(known), rel=1e-9, abs=1e-6)
        else:
            assert np.isnan(mean[column]) and np.isnan(median[column])


def test_area_is_the_trapezoid_of_the_means_and_repeats_non_private_values(study):
    panel = study.panel("real", "nicv")
    areas = summarize(area(panel)).set_index(["method", "dataset"])["mean"]
    means = summarize(panel).set_index(["method", "dataset", "epsilon"])["mean"].sort_index()
    curve = [means["fastlloyd", "iris", epsilon] for epsilon in EPSILONS]
    assert areas["fastlloyd", "iris"] == pytest.approx(np.trapezoid(curve, EPSILONS))
    level = means["lloyd", "iris"].iloc[0]
    assert areas["lloyd", "iris"] == pytest.approx(0.9 * level)


def test_a_curve_with_a_hole_has_no_area():
    # Areas over different grids cannot be compared; a failed cell must not turn into a smaller
    # area.
    rows = small_rows()
    gone = (
        (rows["sweep"] == "real")
        & (rows["method"] == "glloyd")
        & (rows["dataset"] == "s1")
        & (rows["epsilon"] == 0.5)
    )
    cells = area(Study(rows[~gone]).panel("real", "nicv")).cells
    kept = cells.loc[cells["method"] == "glloyd", "dataset"]
    assert set(kept) == {"iris", "wine"}


def test_area_needs_two_epsilons():
    rows = small_rows()
    single = rows[rows["epsilon"].isna() | (rows["epsilon"] == 0.5)]
    assert len(area(Study(single).panel("real", "nicv")).cells) == 0


def test_resampling_is_paired_and_repeatable():
    # One matrix of counts serves all columns: a column that is twice another stays twice in every
    # resample.
    weights = resampling_weights(12, 200)
    assert np.array_equal(weights, resampling_weights(12, 200))
    assert (weights.sum(axis=1) == 12).all() and (weights[0] == 1).all()
    one = np.random.default_rng(0).normal(size=(12, 1))
    panel = Panel(
        "nicv",
        pd.DataFrame({"method": ["a", "b"]}),
        np.arange(12),
        np.hstack([one, 2 * one]),
        np.zeros(2),
    )
    means = resampled_means(panel, weights)
    np.testing.assert_allclose(means[:, 1], 2 * means[:, 0])
    np.testing.assert_allclose(means[0, 0], one.mean())


def test_bootstrap_interval_agrees_with_theory():
    # For a mean of many normal values the percentile interval is close to mean ± 1.96 standard
    # errors.
    values = np.random.default_rng(1).normal(5, 2, size=(400, 1))
    panel = Panel("nicv", pd.DataFrame({"method": ["a"]}), np.arange(400), values, np.zeros(1))
    low, high = np.quantile(resampled_means(panel, resampling_weights(400))[1:, 0], [0.025, 0.975])
    error = values.std(ddof=1) / 20
    assert low == pytest.approx(values.mean() - 1.96 * error, abs=0.15 * error)
    assert high == pytest.approx(values.mean() + 1.96 * error, abs=0.15 * error)


def test_relative_area_of_the_reference_is_one_and_data_sets_are_shared(study):
    table = area_table(study.panel("g2", "nicv"), ["d"], relative_to="sulloyd")
    reference = table[table["method"] == "sulloyd"]
    assert (reference[["area", "low", "high"]] == 1).all(axis=None)
    rows = small_rows()
    without = rows[~((rows["method"] == "glloyd") & (rows["dataset"] == "g2-16-60"))]
    thinned = area_table(Study(without).panel("g2", "nicv"), ["d"], relative_to="sulloyd")
    # A data set that one method lacks counts for none of them.
    assert (thinned.loc[thinned["d"] == 16, "datasets"] == 1).all()
    assert (thinned.loc[thinned["d"] == 2, "datasets"] == 2).all()


def test_order_of_rows_does_not_matter():
    rows = small_rows()
    mixed = rows.sample(frac=1, random_state=3).reset_index(drop=True)
    one, other = (
        summarize(Study(part).panel("real", "nicv")).set_index("cell") for part in (rows, mixed)
    )
    pd.testing.assert_series_equal(one["mean"], other["mean"].loc[one.index], rtol=1e-13)


def test_duplicates_and_missing_columns_are_refused():
    rows = small_rows()
    with pytest.raises(ValueError, match="is repeated"):
        Study(pd.concat([rows, rows.iloc[[5]]], ignore_index=True))
    with pytest.raises(ValueError, match="charges"):
        Study(rows.drop(columns="charges"))


def test_concatenate_matches_seeds():
    parts = [
        Panel(
            "nicv",
            pd.DataFrame({"method": [name]}),
            np.array(seeds),
            np.array(seeds, dtype=float)[:, None],
            np.zeros(1),
        )
        for name, seeds in (("a", [0, 1, 2]), ("b", [1, 2, 3]))
    ]
    joined = concatenate(parts)
    assert joined.seeds.tolist() == [0, 1, 2, 3]
    assert np.isnan(joined.values[0, 1]) and joined.values[1].tolist() == [1.0, 1.0]


def test_written_tables_can_be_read_back(tmp_path):
    table = pd.DataFrame({"data_set": ["iris & co"], "value": [0.1234567890123]})
    csv, tex = write(table, tmp_path, "one", caption="50 % of ε")
    assert pd.read_csv(csv)["value"][0] == 0.1234567890123
    text = tex.read_text()
    assert (
        r"\toprule" in text
        and r"iris \& co" in text
        and r"data\_set" in text
        and r"50 \% of $\varepsilon$" in text
    )


def test_latex_has_one_cell_per_column():
    text = latex(pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}), "c", "l")
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert [line.count("&") for line in body] == [1, 1, 1]
