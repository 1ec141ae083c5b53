"""The checks of points, bounds, ranges and numbers of clusters."""

import numpy as np
import pytest
from own_files import TABLE_POINTS, write_points

from pkm import datasets


def unbounded(d):
    return np.repeat([[-np.inf], [np.inf]], d, axis=1)


def dataset_of(points, domain=None):
    points = np.asarray(points, dtype=np.float64)
    domain = unbounded(points.shape[1]) if domain is None else np.array(domain, float)
    return datasets.Dataset("made", points, None, domain, 2, "", "", "", "file")


def dataset_with_range(points, common, private=False):
    points = np.asarray(points, float)
    return datasets.Dataset(
        "made", points, None, unbounded(3), 2, "", "", "", "file", common, private
    )


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        ([[0, 0, 0], [5, 5, 5]], (0, 5)),
        ([[0, 0, 0], [5, 5, 6]], None),
        ([[0, 1, 0], [5, 5, 5]], None),
        (unbounded(3), None),
    ],
)
def test_common_range_is_that_of_equal_columns(domain, expected):
    dataset = dataset_of(TABLE_POINTS, domain)
    assert dataset.common_range == expected
    assert not dataset.common_range_is_private


def test_explicit_range_precedes_the_domain():
    domain = np.array([[0.0] * 3, [50.0] * 3])
    dataset = datasets.Dataset("made", TABLE_POINTS, None, domain, 2, "", "", "", "file", (0, 9))
    assert dataset.common_range == (0.0, 9.0)


@pytest.mark.parametrize(
    "common", [(1, 1), (2, 1), (0, np.inf), (np.nan, 1), (0, 1, 2), 5, ("a", "b")]
)
def test_invalid_ranges_are_refused(common):
    with pytest.raises(ValueError, match=r"made: common_range=.* should be"):
        dataset_with_range(TABLE_POINTS, common)


def test_scalar_bounds_of_a_file_are_its_range(tmp_path):
    path = write_points(tmp_path / "points.npy", TABLE_POINTS)
    dataset = datasets.load("file", path=path, bounds=[0, 50])
    assert dataset.common_range == (0, 50)
    scaled = datasets.scale(dataset, "range")
    assert scaled.clipped == 0
    assert not scaled.uses_private_bounds

    by_column = datasets.load("file", path=path, bounds=[[0, 0, 0], [10, 40, 9]])
    assert by_column.common_range is None

    without_bounds = datasets.load("file", path=path)
    with pytest.raises(ValueError, match="'file' has none: give bounds"):
        datasets.scale(without_bounds, "range")


def test_bounds_per_column_and_no_number_of_clusters(tmp_path):
    path = write_points(tmp_path / "points.npy", TABLE_POINTS)
    dataset = datasets.load("file", path=path, bounds=[[0, 0, 0], [10, 40, 9]])
    np.testing.assert_array_equal(dataset.domain, [[0, 0, 0], [10, 40, 9]])
    assert dataset.n_clusters is None


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ([0, 1, 2], r"bounds should be \[lower, upper\] or .* with d=3 columns; got \[0, 1, 2\]$"),
        ([[0, 0], [1, 1]], r"got \[\[0, 0\], \[1, 1\]\]$"),
        ([1, 0], "bounds of column 0 are lower=1, upper=0; the lower one should be below"),
        ([[0, 2, 0], [1, 2, 1]], "bounds of column 1 are lower=2, upper=2"),
        (5, "; got 5$"),
        ([], r"; got \[\]$"),
        ([0, np.inf], "bounds should be finite"),
        ([0, np.nan], "bounds should be finite"),
        ("wide", r"bounds should be \[lower, upper\]"),
        ([[0], [1, 2]], r"bounds should be \[lower, upper\]"),
    ],
)
def test_invalid_bounds_are_refused(tmp_path, bounds, message):
    path = write_points(tmp_path / "points.npy", TABLE_POINTS)
    with pytest.raises(ValueError, match=message):
        datasets.load("file", path=path, bounds=bounds)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npy"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_null_records(tmp_path, suffix, value):
    """One such value stops no run on a file, and is shown by no message."""
    points = TABLE_POINTS.copy()
    points[1, 2] = value
    points[2, 0] = value
    path = write_points(tmp_path / f"points{suffix}", points)
    expected = TABLE_POINTS.copy()
    expected[1:] = np.nan
    np.testing.assert_array_equal(datasets.load("file", path=path).points, expected)

    points[0, 0] = value
    path = write_points(tmp_path / f"points{suffix}", points)
    with pytest.raises(ValueError, match=r"points\.\w+: every row has a missing or infinite"):
        datasets.load("file", path=path)


def test_published_points_have_no_null_records():
    points = TABLE_POINTS.copy()
    points[1, 2] = np.nan
    with pytest.raises(ValueError, match="made: values are NaN or infinite; remove or impute"):
        datasets.check_points(points, "made")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3), r"points of shape \(3,\) should have two dimensions"),
        (np.zeros((0, 2)), r"points of shape \(0, 2\) should have at least one row"),
        (np.array([["a", "b"]]), "should be real numbers"),
        (np.ones((2, 2), dtype=complex), "points of type complex128 should be real numbers"),
    ],
)
def test_arrays_other_than_numeric_tables_are_refused(tmp_path, array, message):
    np.save(tmp_path / "points.npy", array)
    with pytest.raises(ValueError, match=message):
        datasets.load("file", path=tmp_path / "points.npy")


def test_more_clusters_than_points_are_refused(tmp_path):
    path = write_points(tmp_path / "points.npy", TABLE_POINTS)
    expected = r"points\.npy: n_clusters=4 should be at least 1 and at most n=3"
    with pytest.raises(ValueError, match=expected):
        datasets.load("file", path=path, n_clusters=4)


def test_unequal_bounds_of_two_columns_are_said(tmp_path):
    """Two lists are lower and upper bounds, and look like pairs by column."""
    path = write_points(tmp_path / "points.npy", TABLE_POINTS[:, :2])
    dataset = datasets.load("file", path=path, bounds=[[0, 5], [100, 200]])
    assert dataset.summary == f"{len(TABLE_POINTS)} rows, 2 columns; bounds 0 to 100, 5 to 200"
    for bounds in ([0, 50], None):
        assert "bounds" not in datasets.load("file", path=path, bounds=bounds).summary
