"""Interactive charts: the numbers of the table, hues in the legend, no number that JSON lacks."""

import json

import numpy as np
import pytest
from reports import figure_of

from pkm.analysis.render import charts

CASES = [
    ("fastlloyd", "figure2"),
    ("fastlloyd", "figure4"),
    ("fastlloyd/protocol", "protocol_parts"),
    ("mufc", "losses"),
    ("distdp", "grid"),
]


def records_of(chart):
    """Records of all panels."""
    return [record for panel in chart["panels"] for record in panel["values"]]


@pytest.mark.parametrize(("study", "name"), CASES)
def test_charts_have_the_values_of_the_drawn_hues(study, name):
    result = figure_of(study, name)
    chart = json.loads(json.dumps(charts.chart(result.drawing), allow_nan=False))
    assert len(chart["panels"]) == len(result.drawing.panels)
    values = np.sort([record["value"] for record in records_of(chart)])
    expected = np.sort(np.concatenate([p.table["value"] for p in result.drawing.panels]))
    np.testing.assert_allclose(values, expected, rtol=1e-5)


def test_the_legend_has_the_hues_of_the_records():
    chart = charts.chart(figure_of("fastlloyd", "figure2").drawing)
    labels = [hue["label"] for hue in chart["hues"]]
    assert len(set(labels)) == len(labels)
    assert {record["hue"] for record in records_of(chart)} == set(labels)


def test_dark_is_better_in_every_map_of_qualities():
    for panel in charts.chart(figure_of("dpm", "figure6").drawing)["panels"]:
        is_reversed = panel["color_map"].endswith("_r")
        assert is_reversed == panel["title"].endswith("↓"), panel["title"]
