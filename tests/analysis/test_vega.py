"""Interactive charts: the numbers of the table, hues in the legend, no number that JSON lacks."""

import json

import numpy as np
import pytest
from reports import figure_of

from pkm.analysis.render import vega

CASES = [
    ("fastlloyd", "figure2"),
    ("fastlloyd", "figure4"),
    ("fastlloyd/protocol", "protocol_parts"),
    ("mufc", "losses"),
    ("distdp", "grid"),
]


def records_of(chart):
    """Records of all panels."""
    return [record for view in chart["concat"] for record in view["data"]["values"]]


@pytest.mark.parametrize(("study", "name"), CASES)
def test_charts_have_the_values_of_the_drawn_hues(study, name):
    result = figure_of(study, name)
    chart = json.loads(json.dumps(vega.chart(result.drawing), allow_nan=False))
    assert len(chart["concat"]) == len(result.drawing.panels)
    values = np.sort([record["value"] for record in records_of(chart)])
    expected = np.sort(np.concatenate([p.table["value"] for p in result.drawing.panels]))
    np.testing.assert_allclose(values, expected, rtol=1e-5)


def test_a_click_in_the_legend_chooses_hues():
    chart = vega.chart(figure_of("fastlloyd", "figure2").drawing)
    (param,) = chart["concat"][0]["layer"][0]["params"]
    assert param["bind"] == "legend"
    for view in chart["concat"]:
        assert view["transform"] == [{"filter": {"param": param["name"]}}]
        colors = view["encoding"]["color"]["scale"]
        assert {record["hue"] for record in records_of(chart)} == set(colors["domain"])
        assert len(colors["domain"]) == len(colors["range"])


def test_dark_is_better_in_every_map_of_qualities():
    for view in vega.chart(figure_of("dpm", "figure6").drawing)["concat"]:
        is_reversed = view["encoding"]["color"]["scale"]["reverse"]
        assert is_reversed == view["title"].endswith("↓"), view["title"]
