"""Scaling to the cube, and points from users' files."""

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pkm import datasets

POINTS = np.array([[0.0, 10.0, 3.0], [5.0, 20.0, 3.0], [10.0, 40.0, 3.0]])


def unbounded(d):
    return np.repeat([[-np.inf], [np.inf]], d, axis=1)


def dataset_of(points, domain=None):
    points = np.asarray(points, dtype=np.float64)
    domain = unbounded(points.shape[1]) if domain is None else np.array(domain, float)
    return datasets.Dataset("made", points, None, domain, 2, "", "", "", "file")


def test_minmax_uses_private_bounds_and_reports_it():
    scaled = datasets.scale(dataset_of(POINTS), "minmax")
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
    scaled = datasets.scale(dataset_of(POINTS, [[0, 0, 0], [5, 20, 6]]), "public")
    np.testing.assert_array_equal(scaled.points, [[-1, 0, 0], [1, 1, 0], [1, 1, 0]])
    # The last row has two coordinates outside and counts once.
    assert scaled.clipped == 1
    assert not scaled.uses_private_bounds


def test_points_outside_are_refused_without_clipping():
    dataset = dataset_of(POINTS, [[0, 0, 0], [5, 20, 6]])
    expected = "1 of 3 points of 'made' lie outside the declared domain"
    with pytest.raises(ValueError, match=expected):
        datasets.scale(dataset, "public", clip=False)
    wide = dataset_of(POINTS, [[0, 0, 0], [50, 50, 50]])
    assert datasets.scale(wide, "public", clip=False).clipped == 0


def test_public_without_a_domain_is_refused():
    expected = "preprocessing='public' needs a public domain, and 'made' has none: give bounds"
    with pytest.raises(ValueError, match=expected):
        datasets.scale(dataset_of(POINTS), "public")


def test_error_for_unknown_preprocessing_lists_known_names():
    expected = "preprocessing='zscore' should be one of minmax, public, range, ball"
    with pytest.raises(ValueError, match=expected):
        datasets.scale(dataset_of(POINTS), "zscore")


def dataset_with_range(points, common, private=False):
    points = np.asarray(points, float)
    return datasets.Dataset(
        "made", points, None, unbounded(3), 2, "", "", "", "file", common, private
    )


@pytest.mark.parametrize("private", [False, True])
def test_range_scales_all_columns_by_one_factor(private):
    scaled = datasets.scale(dataset_with_range(POINTS, (0, 20), private), "range")
    np.testing.assert_array_equal(scaled.points, [[-1, 0, -0.7], [-0.5, 1, -0.7], [0, 1, -0.7]])
    np.testing.assert_array_equal(scaled.lower, [0, 0, 0])
    np.testing.assert_array_equal(scaled.upper, [20, 20, 20])
    # Points outside are clipped, and their rows are counted.
    assert scaled.clipped == 1
    assert scaled.uses_private_bounds is private
    assert scaled.preprocessing == "range"
    expected = "1 of 3 points of 'made' lie outside the declared range: widen"
    with pytest.raises(ValueError, match=expected):
        datasets.scale(dataset_with_range(POINTS, (0, 20)), "range", clip=False)


def test_range_preserves_distances_up_to_one_factor():
    scaled = datasets.scale(dataset_with_range(POINTS, (0, 50)), "range")
    differences = np.diff(scaled.points, axis=0)
    expected = np.diff(POINTS, axis=0) / 25
    np.testing.assert_allclose(differences, expected, rtol=1e-14)


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
    dataset = dataset_of(POINTS, domain)
    assert dataset.common_range == expected
    assert not dataset.common_range_is_private


def test_explicit_range_precedes_the_domain():
    domain = np.array([[0.0] * 3, [50.0] * 3])
    dataset = datasets.Dataset("made", POINTS, None, domain, 2, "", "", "", "file", (0, 9))
    assert dataset.common_range == (0.0, 9.0)


def test_range_without_a_common_range_is_refused():
    message = (
        r"preprocessing='range' needs one range .* and 'made' has none: "
        r"give bounds=.* or use preprocessing='public'"
    )
    dataset = dataset_of(POINTS, [[0, 0, 0], [5, 20, 6]])
    with pytest.raises(ValueError, match=message):
        datasets.scale(dataset, "range")
    with pytest.raises(ValueError, match="'wine' has none"):
        datasets.scale(datasets.load("wine"), "range")


@pytest.mark.parametrize(
    "common", [(1, 1), (2, 1), (0, np.inf), (np.nan, 1), (0, 1, 2), 5, ("a", "b")]
)
def test_invalid_ranges_are_refused(common):
    with pytest.raises(ValueError, match=r"made: common_range=.* should be"):
        dataset_with_range(POINTS, common)


def test_scalar_bounds_of_a_file_are_its_range(tmp_path):
    path = write_points(tmp_path / "points.npy", POINTS)
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


def write_points(path, points, columns=("a", "b", "c")):
    frame = pd.DataFrame(points, columns=list(columns)[: points.shape[1]])
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        np.save(path, points)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npy"])
def test_every_format_gives_the_same_points(tmp_path, suffix):
    path = write_points(tmp_path / f"points{suffix}", POINTS)
    dataset = datasets.load("file", path=path, bounds=[0, 50], n_clusters=2)
    np.testing.assert_array_equal(dataset.points, POINTS)
    np.testing.assert_array_equal(dataset.domain, [[0] * 3, [50] * 3])
    assert (dataset.name, dataset.origin, dataset.n_clusters) == ("file", "file", 2)
    assert dataset.fingerprint == datasets.fingerprint("file", path=path)
    assert datasets.obtainable("file", path=path) is None


def test_csv_without_header_is_read(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("1, 2\n3, 4.5\n")
    dataset = datasets.load("file", path=path)
    np.testing.assert_array_equal(dataset.points, [[1, 2], [3, 4.5]])


def test_csv_header_of_column_numbers_is_refused(tmp_path):
    path = tmp_path / "points.csv"
    pd.DataFrame(POINTS).to_csv(path, index=False)
    with pytest.raises(ValueError, match="the first line 0,1,2 may be column numbers or a point"):
        datasets.load("file", path=path)


@pytest.mark.parametrize(
    "text, message",
    [
        ("a,b\n1,2,3\n4,5,6\n", "line 2 has 3 fields, the first line has 2"),
        ("a,b\n1,2\n\n3\n", "line 4 has 1 fields, the first line has 2"),
        ("1,2\n3,4,5\n", "line 2 has 3 fields"),
        ("1,2\n3,4,\n", "line 2 has 3 fields"),
        (
            ",a,b\n0,2,3\n1,5,6\n",
            r"column 0 .from 0. has no name in the header ,a,b: .*write with index=False",
        ),
        ("a,,b\n0,2,3\n", "column 1 .from 0. has no name"),
    ],
)
def test_csv_with_inconsistent_columns_is_refused(tmp_path, text, message):
    path = tmp_path / "points.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        datasets.load("file", path=path)


def test_csv_with_pandas_index_is_refused(tmp_path):
    path = tmp_path / "points.csv"
    pd.DataFrame(POINTS, columns=["x0", "x1", "x2"]).to_csv(path)
    with pytest.raises(ValueError, match="index=False"):
        datasets.load("file", path=path)


def test_csv_blank_lines_and_quotes_are_ignored(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text('\n"a", "b"\n\n1, 2\n  \n3, "4"\n\n')
    dataset = datasets.load("file", path=path)
    np.testing.assert_array_equal(dataset.points, [[1, 2], [3, 4]])


def test_fingerprint_of_a_file_depends_on_its_content(tmp_path):
    first = tmp_path / "a.npy"
    second = tmp_path / "b.npy"
    np.save(first, POINTS)
    np.save(second, POINTS)
    before = datasets.fingerprint("file", path=first)
    assert before == datasets.fingerprint("file", path=second)
    np.save(first, POINTS + 1)
    assert before != datasets.fingerprint("file", path=first)


def test_bounds_per_column_and_no_number_of_clusters(tmp_path):
    path = write_points(tmp_path / "points.npy", POINTS)
    dataset = datasets.load("file", path=path, bounds=[[0, 0, 0], [10, 40, 9]])
    np.testing.assert_array_equal(dataset.domain, [[0, 0, 0], [10, 40, 9]])
    assert dataset.n_clusters is None


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ([0, 1, 2], r"bounds should be \[lower, upper\] or .* with d=3 columns; got shape \(3,\)"),
        ([[0, 0], [1, 1]], r"got shape \(2, 2\)"),
        ([1, 0], "bounds of column 0 are lower=1, upper=0; the lower one should be below"),
        ([[0, 2, 0], [1, 2, 1]], "bounds of column 1 are lower=2, upper=2"),
        ([0, np.inf], "bounds should be finite"),
        ([0, np.nan], "bounds should be finite"),
        ("wide", r"bounds should be \[lower, upper\]"),
        ([[0], [1, 2]], r"bounds should be \[lower, upper\]"),
    ],
)
def test_invalid_bounds_are_refused(tmp_path, bounds, message):
    path = write_points(tmp_path / "points.npy", POINTS)
    with pytest.raises(ValueError, match=message):
        datasets.load("file", path=path, bounds=bounds)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npy"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nonfinite_values_are_refused(tmp_path, suffix, value):
    points = POINTS.copy()
    points[1, 2] = value
    points[2, 0] = value
    path = write_points(tmp_path / f"points{suffix}", points)
    expected = r"points\.\w+: 2 values are NaN or infinite, the first in row 1, column 2"
    with pytest.raises(ValueError, match=expected):
        datasets.load("file", path=path)


def test_missing_csv_fields_are_refused(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("a,b\n1,2\n3,\n")
    expected = "1 values are NaN or infinite, the first in row 1, column 1"
    with pytest.raises(ValueError, match=expected):
        datasets.load("file", path=path)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_nonnumeric_columns_are_named_in_the_error(tmp_path, suffix):
    path = tmp_path / f"points{suffix}"
    dates = pd.to_datetime(["2020-01-01"] * 2)
    frame = pd.DataFrame({"age": [1, 2], "job": ["baker", "smith"], "born": dates})
    if suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    with pytest.raises(ValueError, match="columns job, born should be numeric"):
        datasets.load("file", path=path)


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


def test_pickled_arrays_are_refused(tmp_path):
    np.save(tmp_path / "points.npy", np.array([[1, None]], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="cannot be read as NPY"):
        datasets.load("file", path=tmp_path / "points.npy")


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npy"])
def test_damaged_files_are_refused(tmp_path, suffix):
    path = tmp_path / f"points{suffix}"
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=f"cannot be read as {suffix[1:].upper()}"):
        datasets.load("file", path=path)


def test_missing_file_path_and_unknown_format_are_refused(tmp_path):
    missing = tmp_path / "none.csv"
    expected = r"path='.*none\.csv' should be an existing file"
    with pytest.raises(datasets.DataUnavailable, match=expected):
        datasets.load("file", path=missing)
    assert "should be an existing file" in datasets.obtainable("file", path=missing)

    expected = re.escape("path=None: the data set 'file' needs path=<a .csv, .tsv, ")
    with pytest.raises(ValueError, match=expected):
        datasets.load("file")

    (tmp_path / "points.xls").write_text("1 2")
    expected = (
        r"path='.*points\.xls' should end in one of \.csv, \.tsv, .*, \.parquet, .*\.npy, \.npz"
    )
    with pytest.raises(ValueError, match=expected):
        datasets.load("file", path=tmp_path / "points.xls")


def test_more_clusters_than_points_are_refused(tmp_path):
    path = write_points(tmp_path / "points.npy", POINTS)
    expected = r"points\.npy: n_clusters=4 should be at least 1 and at most n=3"
    with pytest.raises(ValueError, match=expected):
        datasets.load("file", path=path, n_clusters=4)
