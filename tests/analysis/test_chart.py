"""Interactive charts: same numbers, names, colors and order as the static figure."""

import json

import numpy as np
import pytest
import vl_convert
from reports import figure_of

from pkm.analysis.figure import figures_of
from pkm.analysis.render.chart_marks import REFERENCE, REPORTED

DRAWN = {
    "fastlloyd": ["figure2", "figure4", "figure5"],
    "fastlloyd/protocol": ["protocol_parts", "protocol_clients"],
    "dpm": ["centers"],
    "mufc": ["losses"],
}
CASES = [(study, name) for study, names in DRAWN.items() for name in names]


def records_of(chart):
    """Records of all panels."""
    return [record for panel in chart["concat"] for record in panel["data"]["values"]]


@pytest.mark.parametrize(("study", "name"), CASES)
def test_charts_are_valid_vega_lite(study, name):
    chart = figure_of(study, name).chart
    vega = vl_convert.vegalite_to_vega(json.dumps(chart, allow_nan=False))
    panels = [mark for mark in vega["marks"] if mark["type"] == "group"]
    assert len(panels) == len(chart["concat"])


@pytest.mark.parametrize(("study", "name"), [*CASES[:2], CASES[-1]])
def test_charts_have_the_values_of_the_table(study, name):
    result = figure_of(study, name)
    others = (REFERENCE, REPORTED)
    records = [record for record in records_of(result.chart) if record.get("hue") not in others]
    values = [record["value"] for record in records]
    expected = result.table["value"].dropna()
    np.testing.assert_allclose(np.sort(values), np.sort(expected), rtol=1e-5)


def test_chart_has_panels_legend_and_colors_of_the_figure():
    result = figure_of("fastlloyd", "figure2")
    panels = result.chart["concat"]
    assert [panel["title"] for panel in panels] == ["(a) Iris", "(b) S1", "(c) Wine"]
    color = panels[0]["layer"][-1]["encoding"]["color"]
    (legend,) = result.figure.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert color["legend"]["values"] == labels
    drawn = dict(zip(labels, [line.get_color() for line in legend.get_lines()], strict=True))
    colors = dict(zip(color["scale"]["domain"], color["scale"]["range"], strict=True))
    assert {label: colors[label] for label in labels} == drawn


def test_chart_has_the_axes_of_the_figure():
    result = figure_of("fastlloyd", "figure2")
    for axes, panel in zip(result.figure.axes, result.chart["concat"], strict=True):
        scale = panel["layer"][-1]["encoding"]["y"]["scale"]
        assert scale["type"] == axes.get_yscale()
        assert scale["domain"] == pytest.approx(axes.get_ylim())
    assert "log" in {axes.get_yscale() for axes in result.figure.axes}


def test_chart_hides_what_is_chosen_in_the_legend():
    chart = figure_of("fastlloyd", "figure2").chart
    (param,) = chart["concat"][0]["layer"][-1]["params"]
    assert param["bind"] == "legend"
    assert {record["hue"] for record in records_of(chart)} <= {
        entry["hue"] for entry in param["value"]
    }
    for panel in chart["concat"]:
        assert panel["transform"] == [{"filter": {"param": param["name"], "empty": False}}]


def test_figures_without_axes_or_rows_have_no_chart():
    (table,) = (spec for spec in figures_of("fastlloyd") if spec.name == "table2")
    assert table.kind == "table"
    assert figure_of("fastlloyd", "table2").chart is None
    assert figure_of("fastlloyd", "protocol_clients").chart is None
