"""Charts: numbers of the table, colors of the methods, axes around them, pictures of them."""

import json

import numpy as np
import pytest
import vl_convert
from charts import legend_of, panels_of
from fabricated.studies import paper_of, study_of
from reports import figure_of, figure_spec

from pkm.analysis.figures.figure import read_figures
from pkm.analysis.render.chart import pictures
from pkm.analysis.render.subplot import REFERENCE, REPORTED

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
@pytest.mark.no_cover  # other tests run the same code
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


def test_chart_has_panels_legend_and_colors_of_the_methods():
    result = figure_of("fastlloyd", "figure2")
    titles = [panel.title for panel in panels_of(result)]
    assert titles == ["(a) Iris", "(b) S1", "(c) Wine"]
    cells = study_of("fastlloyd").cells.drop_duplicates("method")
    shown = cells[cells["method"].isin(result.table["method"])]
    colors = dict(zip(shown["label"], shown["color"], strict=True))
    assert legend_of(result) == colors
    for panel in panels_of(result):
        assert {
            record["hue"]: record["color"] for record in panel.records
        }.items() <= colors.items()


@pytest.mark.parametrize(("study", "name"), CASES)
def test_axes_have_the_values_and_their_ticks_inside(study, name):
    for panel in panels_of(figure_of(study, name)):
        for axis in (panel.x, panel.y):
            assert axis.low < axis.high
            assert all(axis.low <= tick <= axis.high for tick in axis.ticks)
            assert len(axis.labels) in (0, len(axis.ticks))
        is_forest = figure_spec(paper_of(study), name).kind == "forest"
        fields = ("value", "at") if is_forest else ("at", "value")
        for field, axis in zip(fields, (panel.x, panel.y), strict=True):
            for record in panel.with_fields("at", "value", "marker"):
                assert axis.low <= record[field] <= axis.high


def test_numbers_at_ticks_are_those_of_the_ticks():
    panels = panels_of(figure_of("fastlloyd", "figure2"))
    assert "log" in {panel.y.scale for panel in panels}
    for panel in panels:
        for axis in (panel.x, panel.y):
            numbers = [float(label) for label in axis.labels]
            np.testing.assert_allclose(numbers, axis.ticks, rtol=5e-3)


def test_chart_hides_what_is_chosen_in_the_legend():
    chart = figure_of("fastlloyd", "figure2").chart
    (param,) = chart["concat"][0]["layer"][0]["params"]
    assert param["bind"] == "legend"
    assert {record["hue"] for record in records_of(chart)} <= {
        entry["hue"] for entry in param["value"]
    }
    for panel in chart["concat"]:
        assert panel["transform"] == [{"filter": {"param": param["name"], "empty": False}}]


@pytest.mark.parametrize(("study", "name"), CASES)
def test_legends_answer_to_clicks(study, name):
    chart = figure_of(study, name).chart
    vega = vl_convert.vegalite_to_vega(json.dumps(chart))
    with_legend = "params" in chart["concat"][0]["layer"][0]
    assert [legend["encode"]["entries"]["interactive"] for legend in vega.get("legends", [])] == (
        [True] if with_legend else []
    )


@pytest.mark.slow
@pytest.mark.parametrize(("study", "name"), CASES[:2])
def test_pictures_have_text_and_no_pixels_in_the_pdf(study, name):
    chart = figure_of(study, name).chart
    png, pdf = pictures(chart)
    assert png.startswith(b"\x89PNG")
    assert pdf.startswith(b"%PDF")
    assert b"LiberationSans" in pdf
    assert b"/Subtype /Image" not in pdf
    assert pictures(chart) == (png, pdf)


def test_figures_without_axes_or_rows_have_no_chart():
    (table,) = (spec for spec in read_figures("fastlloyd") if spec.name == "table2")
    assert table.kind == "table"
    assert figure_of("fastlloyd", "table2").chart is None
    assert figure_of("fastlloyd", "protocol_clients").chart is None
