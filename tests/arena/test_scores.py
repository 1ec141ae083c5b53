"""Scores of an entry: costs and times over the reference."""

import numpy as np
import pytest
from arena_entries import make_rows

from pkm.arena.scores import cpu_ratio, score_costs


def test_costs_and_times_are_ratios_to_the_reference():
    rows = make_rows("mine", lambda dataset, epsilon: 1 + epsilon)
    scores = score_costs(rows, "kmeans")
    expected = (1 + scores["epsilon"]) * scores["bounds_factor"]
    np.testing.assert_allclose(scores["ratio"], expected, rtol=1e-12)
    assert set(scores["seeds"]) == {2}
    assert cpu_ratio(rows, "kmeans") == pytest.approx(3.0)
