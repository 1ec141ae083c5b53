"""Pictures: numbers of the table, colors of the methods, axes around them, the same bytes."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from charts import legend_of, panels_of
from fabricated.studies import study_of
from figure_specs import drawn, spec_of
from matplotlib.colors import to_hex
from matplotlib.text import Text
from reports import figure_of

from pkm.analysis.figures.figure import read_figures
from pkm.analysis.render import plot

DRAWN = {
    "fastlloyd": ["figure2", "figure4", "figure5"],
    "fastlloyd/protocol": ["protocol_parts", "protocol_clients"],
    "dpm": ["centers"],
    "mufc": ["losses"],
}
CASES = [(study, name) for study, names in DRAWN.items() for name in names]


def test_curves_have_the_values_of_the_table():
    result = figure_of("fastlloyd", "figure2")
    for panel in panels_of(result):
        rows = panel.table[panel.table["x"].notna()].sort_values(["hue", "x"])
        drawn = [line.get_xydata() for line in panel.axes.lines if len(line.get_xdata()) > 2]
        values = np.sort(np.concatenate(drawn)[:, 1])
        np.testing.assert_array_equal(values, np.sort(rows["value"]))


def test_picture_has_panels_legend_and_colors_of_the_methods():
    result = figure_of("fastlloyd", "figure2")
    panels = panels_of(result)
    assert [panel.title for panel in panels] == ["(a) Iris", "(b) S1", "(c) Wine"]
    cells = study_of("fastlloyd").cells.drop_duplicates("method")
    shown = cells[cells["method"].isin(result.table["method"])]
    colors = dict(zip(shown["label"], shown["color"], strict=True))
    assert legend_of(result) == colors
    for panel in panels:
        assert {to_hex(line.get_color()) for line in panel.axes.lines} == set(colors.values())


def test_logarithmic_panels_are_marked():
    for panel in panels_of(figure_of("fastlloyd", "figure2")):
        assert panel.axes.get_title().endswith(" (log)") == (panel.y.scale == "log")


@pytest.mark.parametrize(
    ("paper", "name", "axis"),
    [("mufc", "speedups", "x"), ("fastlloyd", "figure3", "x"), ("mufc", "figure5", "y")],
)
def test_logarithmic_axes_are_marked_in_their_labels(paper, name, axis):
    """Of a forest, of x, and of values where all panels are logarithmic."""
    drawing = figure_of(paper, name).drawing
    for panel in panels_of(figure_of(paper, name)):
        assert getattr(panel, axis).scale == "log"
    assert all(getattr(panel, f"{axis}_label").endswith(" (log)") for panel in drawing.panels)


@pytest.mark.slow
@pytest.mark.parametrize(("study", "name"), CASES)
def test_axes_have_the_values_and_ticks_inside(study, name):
    for panel in panels_of(figure_of(study, name)):
        for axis in (panel.x, panel.y):
            assert axis.low < axis.high
            assert len(axis.ticks) > 0
        values = panel.table["value"].dropna()
        kind = panel.panel.spec.kind
        if kind != "heatmap":
            axis = panel.x if kind == "forest" else panel.y
            assert axis.low <= values.min()
            assert values.max() <= axis.high


def test_many_values_on_a_linear_axis_have_round_ticks():
    for panel in panels_of(figure_of("mufc", "figure4")):
        assert panel.table["x"].nunique() > 20
        assert all(tick % 20 == 0 for tick in panel.x.ticks), panel.x.ticks


@pytest.mark.slow
@pytest.mark.parametrize("style", plot.STYLES)
def test_pictures_are_the_same_bytes(style):
    drawing = figure_of("fastlloyd", "figure4").drawing
    first, second = (plot.save(plot.plot(drawing, style), "png") for _ in range(2))
    assert first.startswith(b"\x89PNG")
    assert first == second


@pytest.mark.slow
def test_text_stays_text_in_a_pdf(drafts):
    drawing = figure_of("fastlloyd", "figure2").drawing
    first, second = (drafts(plot.plot(drawing), "pdf") for _ in range(2))
    assert first == second
    assert b"/CIDFontType2" in first  # the fonts themselves, type 42
    assert b"/Subtype /Image" not in first
    assert b"CreationDate" not in first


def test_styles_set_the_width():
    drawing = figure_of("fastlloyd", "figure2").drawing
    assert plot.plot(drawing, "paper").get_figwidth() == 7
    with pytest.raises(ValueError, match="style='slides' must be one of bench, paper"):
        plot.plot(drawing, "slides")


@pytest.mark.parametrize("shared", [True, False])
def test_long_labels_are_broken_into_lines(shared):
    drawing = figure_of("fastlloyd", "figure2").drawing
    endings = ["" if shared else f" {place}" for place in range(len(drawing.panels))]
    labels = ["cost over that of the best method of this setting " * 4 + end for end in endings]
    panels = [
        replace(panel, x_label=label) for panel, label in zip(drawing.panels, labels, strict=True)
    ]
    figure = plot.plot(replace(drawing, panels=tuple(panels)))
    texts = [text for text in figure.findobj(Text) if text.get_text().startswith("cost over")]
    assert len(texts) == len(set(labels))
    width = figure.bbox.width / (1 if shared else drawing.columns)
    for text in texts:
        assert "\n" in text.get_text()
        assert text.get_window_extent().width <= width


@pytest.mark.parametrize("most", [plot.MANY_ENTRIES, 0])
def test_titles_of_panels_side_by_side_do_not_overlap(most, monkeypatch):
    """Wherever the legend is."""
    monkeypatch.setattr(plot, "MANY_ENTRIES", most)
    figure = plot.plot(figure_of("comparison", "comparison_profiles").drawing)
    figure.canvas.draw()
    extents = [axes.title.get_window_extent() for axes in figure.axes]
    assert all(left.x1 < right.x0 for left, right in pairwise(extents))


def test_figures_without_axes_or_rows_have_no_picture():
    (table,) = (spec for spec in read_figures("fastlloyd") if spec.name == "table2")
    assert table.kind == "table"
    assert figure_of("fastlloyd", "table2").drawing is None
    assert figure_of("fastlloyd", "protocol_clients").drawing is None


def test_a_figure_has_the_width_and_the_ticks_that_it_declares():
    result = drawn(spec_of(panel="dataset", width=3.33, x_ticks=[0.25, 1]))
    picture = plot.plot(result.drawing, "paper")
    assert picture.get_figwidth() == 3.33
    assert result.drawing.columns == 2
    for axes in picture.axes:
        assert [text.get_text() for text in axes.get_xticklabels()] == ["0.25", "1"]
    one = drawn(spec_of(width=3.33, where={"dataset": "iris"}))
    assert plot.plot(one.drawing, "paper").get_figwidth() == 3.33


def test_keys_that_no_picture_shows_do_not_age_it():
    spec = spec_of()
    same = replace(spec, caption=("Another.",), print_columns="x", on_page=True)
    assert plot.digest(same, "paper") == plot.digest(spec, "paper")
    assert plot.digest(replace(spec, x_label="ε"), "paper") != plot.digest(spec, "paper")
