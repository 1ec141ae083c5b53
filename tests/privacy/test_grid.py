"""Rounding to the grid."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pkm.privacy import (
    SCALE,
    snap,
    snap_centers,
)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=20))
def test_snap_is_nearest_and_idempotent(values):
    grid_values = snap(values)
    half_widths = grid_values / SCALE
    assert np.abs(half_widths - values).max() <= 2.0**-17
    assert (snap(half_widths) == grid_values).all()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (math.nan, "finite"),
        (math.inf, "finite"),
        (1.001, r"\[-1, 1\]"),
    ],
)
def test_snap_refuses_values_outside_the_domain(value, message):
    with pytest.raises(ValueError, match=message):
        snap([0.0, value])


def test_released_centers_saturate():
    centers = snap_centers(np.array([[math.inf, -math.inf, 0.4]]))
    largest, smallest, zero = centers[0].tolist()
    assert zero == 0
    assert largest == -smallest
    assert 3 * (largest + SCALE) ** 2 < 2**53


def test_nan_centers_are_not_released():
    centers = np.array([[np.nan, 0.0]])
    with pytest.raises(ValueError, match="centers must not be NaN"):
        snap_centers(centers)
