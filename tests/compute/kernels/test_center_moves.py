"""How means become centers: folding, truncating, clip_factor."""

import math

import numpy as np
from estimators import moved, reflect
from hypothesis import given, settings
from hypothesis import strategies as st

from pkm.compute.kernels.center_moves import TRUNCATE, clip_factor, fold
from pkm.privacy import SCALE


@settings(deadline=None)
@given(st.lists(st.integers(-20 * SCALE, 20 * SCALE), min_size=1, max_size=10))
def test_fold_is_reflection_at_the_borders(values):
    folded = fold(np.array(values))
    expected = [round(reflect(value / SCALE) * SCALE) for value in values]
    assert folded.tolist() == expected
    assert (fold(folded) == folded).all()


@settings(deadline=None)
@given(st.lists(st.integers(-20 * SCALE, 20 * SCALE), min_size=1, max_size=10))
def test_truncate_is_the_nearest_point_of_the_domain(values):
    truncated = moved([0] * len(values), values, outside=TRUNCATE)
    expected = [min(max(value, -SCALE), SCALE) for value in values]
    assert truncated.tolist() == expected


@given(
    st.lists(st.integers(-(2**30), 2**30), min_size=2, max_size=5),
    st.integers(1, 10 * SCALE),
)
def test_shorten_keeps_direction_and_bounds_length(step, longest):
    origin = [0] * len(step)
    shortened = np.rint(np.array(step) * clip_factor(np.array(step), float(longest)))
    length = math.dist(step, origin)
    if length <= longest:
        assert shortened.tolist() == step
    else:
        assert math.dist(shortened, origin) <= longest + math.sqrt(len(step))
        exact = np.array(step) * (longest / length)
        assert np.abs(shortened - exact).max() <= 0.5 + 1e-6


@given(st.lists(st.integers(-SCALE, SCALE), min_size=2, max_size=5), st.data())
def test_moves_are_shortened_from_the_center(mean, data):
    center = data.draw(st.lists(st.integers(-SCALE, SCALE), min_size=len(mean), max_size=len(mean)))
    longest = data.draw(st.integers(1, 3 * SCALE))
    step = np.array(mean) - np.array(center)
    expected = center + np.rint(step * clip_factor(step, float(longest)))
    assert moved(center, mean, float(longest)).tolist() == expected.tolist()
