"""Data of figures: means with intervals, ratios, panels and curves that are named."""

import numpy as np
import pytest
from charts import panels_of
from fabricated.fastlloyd import small_rows
from fabricated.studies import study_of
from figure_specs import drawn, spec_of

from pkm.analysis.figures.figure_data import make_figure_data


def test_table_has_means_and_intervals():
    table = make_figure_data(
        study_of("fastlloyd"), spec_of(methods="fastlloyd_published", panel="dataset")
    ).table
    rows = small_rows().query(
        "sweep == 'real' and method == 'fastlloyd_published' and dataset == 's1'"
    )
    nicv = rows[rows["epsilon"] == 0.5]["nicv"]
    line = table.query("panel == 's1' and x == 0.5").iloc[0]
    assert line["value"] == pytest.approx(nicv.mean())
    # 2.201 is the 97.5 % quantile of Student's t with eleven degrees of freedom.
    half_width = 2.201 * nicv.std() / np.sqrt(12)
    assert line["half_width"] == pytest.approx(half_width, rel=1e-3)
    assert line["high"] - line["value"] == pytest.approx(half_width, rel=1e-3)
    assert line["seeds"] == 12
    errors = make_figure_data(
        study_of("fastlloyd"), spec_of(methods="fastlloyd_published", interval="se3", value="cost")
    )
    line = errors.table.query("dataset == 's1' and x == 0.5").iloc[0]
    assert line["value"] == pytest.approx(nicv.mean() * 5000)
    assert line["half_width"] == pytest.approx(3 * nicv.std() / np.sqrt(12) * 5000)


def test_a_median_has_no_interval_of_the_mean():
    spec = spec_of(methods="fastlloyd_published", value="median")
    table = make_figure_data(study_of("fastlloyd"), spec).table
    line = table.query("dataset == 's1' and x == 0.5").iloc[0]
    rows = small_rows().query(
        "sweep == 'real' and method == 'fastlloyd_published' and dataset == 's1' and epsilon == 0.5"
    )
    assert line["value"] == pytest.approx(rows["nicv"].median())
    assert line[["low", "high", "half_width"]].isna().all()


def test_ratio_to_the_optimum_is_paired_over_seeds():
    spec = spec_of(
        methods="fastlloyd_published",
        compare={"relative_to": "kmeans", "over": {"dataset": "any", "epsilon": "any"}},
    )
    table = make_figure_data(study_of("fastlloyd"), spec).table
    rows = small_rows().query("sweep == 'real' and dataset == 'wine'")
    means = rows[rows["epsilon"].isna() | (rows["epsilon"] == 0.1)].groupby("method")["nicv"].mean()
    line = table.query("dataset == 'wine' and x == 0.1").iloc[0]
    assert line["value"] == pytest.approx(means["fastlloyd_published"] / means["kmeans"])
    assert line["low"] < line["value"] < line["high"]


def test_panels_may_select_for_themselves():
    panels = {"small": {"where": {"dataset": "iris"}}, "none": {"where": {"dataset": "mnist"}}}
    result = drawn(spec_of(methods="fastlloyd_published", panels=panels, caption="Over {seeds}."))
    assert set(result.table["panel"]) == {"small"}
    assert result.missing == ("none: not run: no stored rows",)
    assert [panel.title for panel in panels_of(result)] == ["small"]
    assert result.caption.startswith("Over 12 seeds.")


def test_curves_are_named_selections():
    curves = {
        "low": {"dataset": "iris", "method": "glloyd_published"},
        "gone": {"dataset": "mnist"},
    }
    result = drawn(spec_of(curves=curves, styles={"low": {"label": "GLloyd on Iris"}}))
    assert set(result.table["hue"]) == {"low"}
    assert result.missing == ("gone: not run: no stored rows",)
    assert "GLloyd on Iris" in result.formatted.columns


def test_nothing_stored_is_no_figure():
    result = drawn(spec_of(sweep="none", panel="dataset", caption="Over {seeds}."))
    assert result.drawing is None
    assert result.caption == "No stored rows."
    assert result.missing == ("A: not run: no stored rows",)


def test_files_hold_what_is_drawn():
    result = drawn(spec_of(methods="fastlloyd_published", panel="dataset"))
    for panel in panels_of(result):
        name = panel.title.split(") ")[1]
        curve = result.table[result.table["panel"] == name].sort_values("x")
        (line,) = panel.axes.lines
        np.testing.assert_array_equal(line.get_xydata(), curve[["x", "value"]])
