"""Rows of marks."""

import numpy as np
from charts import panels_of
from fabricated.studies import study_of
from figure_specs import spec_of

from pkm.analysis.figures.figure_data import make_figure_data
from pkm.analysis.render.draw import render


def test_reported_values_are_drawn_as_diamonds():
    spec = spec_of(kind="forest", row="dataset", methods="kmeans")
    shown = make_figure_data(study_of("fastlloyd"), spec)
    table = shown.table.assign(reported=[0.1, np.nan, 0.3])
    (panel,) = panels_of(render(type(shown)(table, missing=()), spec))
    assert {0.1, 0.3} <= {place for place, _ in panel.marks("D")}
