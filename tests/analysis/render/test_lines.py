"""Curves, and their gaps."""

import numpy as np
import pytest
from fabricated.fastlloyd import small_rows
from figure_specs import drawn, spec_of

from pkm.analysis.render import plot


@pytest.mark.slow
def test_curves_have_a_gap_where_all_values_are_infinite():
    rows = small_rows().copy()
    epsilons = sorted(
        rows.query("sweep == 'real' and dataset == 'iris'")["epsilon"].dropna().unique()
    )
    is_gap = (rows["method"] == "sulloyd_published") & (rows["epsilon"] == epsilons[1])
    rows.loc[is_gap, "davies_bouldin"] = np.inf
    spec = spec_of(metric="davies_bouldin", methods="sulloyd_published", where={"dataset": "iris"})
    for given, pieces in ((small_rows(), [epsilons]), (rows, [epsilons[:1], epsilons[2:]])):
        (axes,) = plot.plot(drawn(spec, given).drawing).axes
        assert [line.get_xdata().tolist() for line in axes.lines] == pieces
