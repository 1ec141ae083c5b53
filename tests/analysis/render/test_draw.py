"""Panels of a figure together."""

from dataclasses import replace

from figure_specs import drawn

from pkm.analysis.figures.figure import find_figure
from pkm.analysis.render import plot


def test_panels_with_one_axis_are_logarithmic_together():
    # Iris and S1 alone would differ: one has values more than a factor 5 apart.
    spec = find_figure("fastlloyd/figure2")
    alone = drawn(spec).drawing.panels
    assert {panel.log for panel in alone} == {True, False}
    shared = drawn(replace(spec, share_y=True))
    assert all(panel.log for panel in shared.drawing.panels)
    # One label of all panels marks it.
    picture = plot.plot(shared.drawing)
    assert picture.get_supylabel() == "NICV (log)"
    assert not any(axes.get_title().endswith("(log)") for axes in picture.axes)
