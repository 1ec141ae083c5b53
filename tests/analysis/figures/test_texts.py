"""Texts of figures: labels of epsilon, means with their half-widths."""

import numpy as np
import pytest
from fabricated.studies import study_of

from pkm.analysis.figures.texts import epsilon_label, interval_text


def test_epsilon_label_states_delta():
    study = study_of("dpm")
    cells = study.matrix("table", "inertia").cells
    assert epsilon_label(cells) == "ε (zero-out; δ = 1/(N √N); δ = 0 for DP-Lloyd)"


@pytest.mark.parametrize(
    ("mean", "half_width", "text"),
    [
        (12.3456, 0.0312, "12.346 ± 0.031"),
        (17.0, 0.22, "17.00 ± 0.22"),
        (14100.4, 123.0, "14100 ± 123"),
        (5.0, np.nan, "5"),
        (5.0, 0.0, "5"),
    ],
)
def test_means_have_two_digits_of_their_half_width(mean, half_width, text):
    assert interval_text(mean, half_width) == text


@pytest.mark.parametrize(("fact", "other"), [("adjacency", "add_remove"), ("unit", "person")])
def test_epsilon_label_refuses_two_adjacencies_or_units(fact, other):
    study = study_of("fastlloyd")
    cells = study.matrix("real", "nicv").cells
    assert epsilon_label(cells) == "ε (zero-out; δ = 1/(N ln N); δ = 0 for SuLloyd)"
    is_other = cells["method"] == "glloyd_published"
    with pytest.raises(ValueError, match=fact):
        epsilon_label(cells.assign(**{fact: np.where(is_other, other, cells[fact])}))


def test_epsilon_label_states_that_a_record_is_a_person():
    study = study_of("fastlloyd")
    cells = study.matrix("real", "nicv").cells.assign(unit="person")
    assert epsilon_label(cells).startswith("ε (zero-out of a person; δ")
