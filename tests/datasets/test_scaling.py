"""Scaling to the cube."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from own_files import TABLE_POINTS

from pkm import datasets


def unbounded(d):
    return np.repeat([[-np.inf], [np.inf]], d, axis=1)


def dataset_of(points, domain=None):
    points = np.asarray(points, dtype=np.float64)
    domain = unbounded(points.shape[1]) if domain is None else np.array(domain, float)
    return datasets.Dataset("made", points, None, domain, 2, "", "", "", "file")


def test_minmax_uses_private_bounds_and_reports_it():
    scaled = datasets.scale(dataset_of(TABLE_POINTS), "minmax")
    expected = [[-1, -1, 0], [0, -1 / 3, 0], [1, 1, 0]]
    np.testing.assert_allclose(scaled.points, expected, atol=1e-15)
    np.testing.assert_array_equal(scaled.lower, [0, 10, 3])
    np.testing.assert_array_equal(scaled.upper, [10, 40, 3])
    assert scaled.uses_private_bounds
    assert scaled.clipped == 0
    assert scaled.preprocessing == "minmax"


def test_ball_fills_the_unit_ball_about_the_mean():
    """One factor for all columns, the largest norm exactly 1, and the bounds are private."""
    points = np.random.default_rng(0).normal(3, [1, 5, 0.1], (200, 3))
    scaled = datasets.scale(dataset_of(points), "ball", clip=False)
    centered = points - points.mean(axis=0)
    expected = centered / np.sqrt((centered**2).sum(axis=1)).max()
    np.testing.assert_allclose(scaled.points, expected, atol=1e-14)
    assert scaled.uses_private_bounds
    assert scaled.clipped == 0
    constant = datasets.scale(dataset_of(np.full((4, 2), 7.0)), "ball")
    assert (constant.points == 0).all()


def test_public_clips_to_the_domain_and_counts_rows():
    scaled = datasets.scale(dataset_of(TABLE_POINTS, [[0, 0, 0], [5, 20, 6]]), "public")
    np.testing.assert_array_equal(scaled.points, [[-1, 0, 0], [1, 1, 0], [1, 1, 0]])
    # The last row has two coordinates outside and counts once.
    assert scaled.clipped == 1
    assert not scaled.uses_private_bounds


def test_points_outside_are_refused_without_clipping():
    dataset = dataset_of(TABLE_POINTS, [[0, 0, 0], [5, 20, 6]])
    expected = (
        r"^clip=False .*points of 'made' lie outside the declared domain, "
        r"bounds=\(\[0.0, 0.0, 0.0\], \[5.0, 20.0, 6.0\]\): widen"
    )
    with pytest.raises(ValueError, match=expected):
        datasets.scale(dataset, "public", clip=False)
    wide = dataset_of(TABLE_POINTS, [[0, 0, 0], [50, 50, 50]])
    assert datasets.scale(wide, "public", clip=False).clipped == 0


def test_public_without_a_domain_is_refused():
    expected = "preprocessing='public' needs a public domain, and 'made' has none: give bounds"
    with pytest.raises(ValueError, match=expected):
        datasets.scale(dataset_of(TABLE_POINTS), "public")


def test_error_for_unknown_preprocessing_lists_known_names():
    expected = "preprocessing='zscore' should be one of minmax, public, range, ball"
    with pytest.raises(ValueError, match=expected):
        datasets.scale(dataset_of(TABLE_POINTS), "zscore")


def dataset_with_range(points, common, private=False):
    points = np.asarray(points, float)
    return datasets.Dataset(
        "made", points, None, unbounded(3), 2, "", "", "", "file", common, private
    )


@pytest.mark.parametrize("private", [False, True])
def test_range_scales_all_columns_by_one_factor(private):
    scaled = datasets.scale(dataset_with_range(TABLE_POINTS, (0, 20), private), "range")
    np.testing.assert_array_equal(scaled.points, [[-1, 0, -0.7], [-0.5, 1, -0.7], [0, 1, -0.7]])
    np.testing.assert_array_equal(scaled.lower, [0, 0, 0])
    np.testing.assert_array_equal(scaled.upper, [20, 20, 20])
    # Points outside are clipped, and their rows are counted.
    assert scaled.clipped == 1
    assert scaled.uses_private_bounds is private
    assert scaled.preprocessing == "range"
    expected = r"points of 'made' lie outside the declared range, bounds=\(0.0, 20.0\)"
    with pytest.raises(ValueError, match=expected):
        datasets.scale(dataset_with_range(TABLE_POINTS, (0, 20)), "range", clip=False)


def test_range_preserves_distances_up_to_one_factor():
    scaled = datasets.scale(dataset_with_range(TABLE_POINTS, (0, 50)), "range")
    differences = np.diff(scaled.points, axis=0)
    expected = np.diff(TABLE_POINTS, axis=0) / 25
    np.testing.assert_allclose(differences, expected, rtol=1e-14)


def test_range_without_a_common_range_is_refused():
    message = (
        r"preprocessing='range' needs one range .* and 'made' has none: "
        r"give bounds=.* or use preprocessing='public'"
    )
    dataset = dataset_of(TABLE_POINTS, [[0, 0, 0], [5, 20, 6]])
    with pytest.raises(ValueError, match=message):
        datasets.scale(dataset, "range")
    with pytest.raises(ValueError, match="'wine' has none"):
        datasets.scale(datasets.load("wine"), "range")


@pytest.mark.parametrize("preprocessing", datasets.PREPROCESSING)
def test_null_records_stay_null_and_bound_nothing(preprocessing):
    """The other rows are scaled as if null records were not there."""
    domain = [[0, 0, 0], [50, 50, 50]]
    points = np.insert(TABLE_POINTS, [1, 3], [[np.nan, 1e9, 0], [0, np.inf, -1e9]], axis=0)
    scaled = datasets.scale(dataset_of(points, domain), preprocessing)
    without = datasets.scale(dataset_of(TABLE_POINTS, domain), preprocessing)
    assert np.isnan(scaled.points[[1, 4]]).all()
    np.testing.assert_array_equal(scaled.points[[0, 2, 3]], without.points)
    np.testing.assert_array_equal(scaled.upper, without.upper)
    assert scaled.clipped == without.clipped


@given(arrays(np.float64, (5, 3), elements=st.floats(-1e300, 1e300)))
def test_minmax_covers_the_whole_cube(points):
    scaled = datasets.scale(dataset_of(points), "minmax").points
    for column, raw in zip(scaled.T, points.T, strict=True):
        half_width = raw.max() / 2 - raw.min() / 2
        if raw.min() < raw.max() and half_width > 0:
            assert column.min() == -1
            assert column.max() == 1
        else:
            np.testing.assert_array_equal(column, 0)


@given(
    arrays(np.float64, (6, 2), elements=st.integers(-1000, 1000)),
    st.integers(-10, 10),
    st.sampled_from([0.25, 8]),
)
def test_minmax_is_invariant_to_units(points, shift, unit):
    # Exact: sums and products with powers of two of small integers have no rounding error.
    changed = unit * (points + shift)
    scaled = datasets.scale(dataset_of(points), "minmax")
    changed_scaled = datasets.scale(dataset_of(changed), "minmax")
    np.testing.assert_array_equal(scaled.points, changed_scaled.points)


def test_column_range_beyond_float64_is_refused():
    dataset = dataset_of([[0, -1.7e308], [1, 1.7e308]])
    with pytest.raises(ValueError, match="column 1 spans more than a float64 can hold"):
        datasets.scale(dataset, "minmax")


@pytest.mark.parametrize("name", ["iris", "synth-4-4-0"])
def test_scale_keeps_name_labels_and_raw_points(name):
    dataset = datasets.load(name)
    before = dataset.points.copy()
    scaled = datasets.scale(dataset, "public")
    assert (scaled.name, scaled.n_clusters) == (name, dataset.n_clusters)
    np.testing.assert_array_equal(scaled.labels, dataset.labels)
    np.testing.assert_array_equal(dataset.points, before)
