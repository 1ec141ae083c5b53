"""What a fit reads: rows, null records, bounds."""

import re
import tracemalloc
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from estimators import blobs
from scipy.sparse import csr_matrix

from pkm.benchmarks.measurement import peak_bytes
from pkm.compute import Points
from pkm.compute.storage.grid_file import open_grid, pack
from pkm.methods import (
    DPM,
    Balcan,
    FastLloyd,
    GLloyd,
    KaplanStemmer,
    Lloyd,
    LocalMean,
    LSHSplits,
    MSTKMeans,
    NoisedPoints,
    SynopsisKMeans,
)
from pkm.row_blocks import row_blocks


@pytest.mark.parametrize(
    "value",
    [10**400, -(10**400), np.nan, np.inf, 1e308, np.longdouble("1e4000"), Decimal("sNaN"), pd.NaT],
    ids=["integer", "negative", "nan", "inf", "large", "longdouble", "signaling", "no time"],
)
def test_no_number_of_one_record_makes_a_fit_fail(value):
    X = np.random.default_rng(0).uniform(-1, 1, (50, 2)).astype(object)
    X[3, 1] = value
    model = FastLloyd(2, bounds=(-1, 1)).fit(X)
    assert np.isfinite(model.cluster_centers_).all()


@pytest.mark.parametrize("method", [LocalMean(1), NoisedPoints(1)])
def test_null_records_are_refused_where_the_adjacency_has_none(method):
    points = Points.from_grid(np.zeros((300, 2), np.int64), 1)
    with pytest.raises(ValueError, match=r"null records, which .* adjacency does not define"):
        method.fit_batch(points, [0])


@pytest.mark.parametrize("method", [LocalMean(1), NoisedPoints(1)], ids=str)
def test_null_records_of_grid_files_are_middles_where_the_adjacency_has_none(method, tmp_path):
    X = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    X[7] = np.nan
    np.save(tmp_path / "X.npy", X)
    pack(row_blocks(tmp_path / "X.npy"), tmp_path / "X.grid", -np.ones(2), np.ones(2))
    method.set_params(random_state=0)
    centers = method.fit(open_grid(tmp_path / "X.grid")).cluster_centers_
    # The same records, in the order of the file.
    middle_last = np.vstack([np.delete(X, 7, axis=0), np.zeros(2)])
    expected = method.set_params(bounds=(-1, 1)).fit(middle_last).cluster_centers_
    np.testing.assert_array_equal(centers, expected)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([["a", "b"]], "X must hold numbers, got type <U1: encode texts as numbers, and dates"),
        ([[1, 2], [3]], "X must have rows of equal length"),
        ([1.0, 2.0], "Reshape your data"),
        (np.empty((0, 2)), r"X has 0 sample\(s\)"),
        (np.empty((2, 0)), r"X has 0 feature\(s\)"),
        (csr_matrix(np.eye(3)), r"X is sparse, .*: give X.toarray\(\)"),
        ([[1j, 0.0]], "Complex data not supported"),
    ],
)
def test_points_that_are_no_matrix_are_refused(points, message):
    with pytest.raises(ValueError, match=message):
        FastLloyd(n_clusters=1, bounds=(-1, 1)).fit(points)


@pytest.mark.parametrize("kind", ["nullable", "object", "objects", "list", "masked"])
def test_a_missing_value_of_any_kind_is_nan(kind):
    X = np.random.default_rng(0).integers(-9, 10, (60, 2)).astype(np.float64)
    X[4, 1] = np.nan
    frame = pd.DataFrame(X, columns=["a", "b"]).convert_dtypes()
    assert frame.loc[4, "b"] is pd.NA
    given = {
        "nullable": frame,
        "object": frame.astype(object),
        "objects": frame.to_numpy(dtype=object),
        "list": frame.to_numpy(dtype=object).tolist(),
        "masked": np.ma.masked_array(np.nan_to_num(X, nan=8).astype(np.int64), np.isnan(X)),
    }[kind]
    for method in (FastLloyd, DPM):
        model = method(2, epsilon=5.0, bounds=(-10, 10), random_state=0)
        expected = model.fit(X).cluster_centers_
        np.testing.assert_array_equal(model.fit(given).cluster_centers_, expected)
    with pytest.raises(ValueError, match="X has 1 rows with NaN"):
        model.predict(given)


def test_missing_values_beside_an_integer_beyond_the_floats():
    X = [[1, 0], [np.ma.masked, 0], [pd.NA, 0], [10**400, 0], [-1, 1]]
    model = FastLloyd(1, epsilon=5.0, bounds=(-1, 1), random_state=0)
    expected = model.fit([[1, 0], *[[np.nan, 0]] * 3, [-1, 1]]).cluster_centers_
    for points in (X, pd.DataFrame(X, columns=["a", "b"])):
        np.testing.assert_array_equal(model.fit(points).cluster_centers_, expected)


#: Values that are no numbers, though most of them have a float.
NO_NUMBERS = {
    "text": "Rome",
    "number in a text": "4711",
    "bytes": b"4711",
    "date": pd.Timestamp("2047-11-01"),
    "date in a zone": pd.Timestamp("2047-11-01", tz="UTC"),
    "date of numpy": np.datetime64("2047-11-01"),
    "duration": pd.Timedelta(4711, "D"),
    "month": pd.Period("2047-11", "M"),
    "mapping": {"Rome": 4711},
    "complex": 4711j,
}


@pytest.mark.parametrize("kind", NO_NUMBERS)
@pytest.mark.parametrize("container", ["frame", "objects", "list"])
def test_texts_and_dates_are_refused_without_their_value(kind, container):
    """In a column of them, and in one row among numbers; only their column is named."""
    value = NO_NUMBERS[kind]
    for rest in (value, 1.0):
        frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [rest, value, rest]})
        given = {
            "frame": frame,
            "objects": frame.to_numpy(dtype=object),
            "list": frame.to_numpy(dtype=object).tolist(),
        }[container]
        # numpy makes complex numbers and texts of lists that have one.
        rule = "X must hold (numbers|real numbers)"
        with pytest.raises((TypeError, ValueError), match=rule) as refused:
            FastLloyd(1, bounds=(-1, 1)).fit(given)
        assert not re.search("Rome|47", str(refused.value))
        assert refused.value.__suppress_context__ or not refused.value.__context__
        if container == "frame":
            assert "column 'b'" in str(refused.value)


@pytest.mark.parametrize("dtype", ["datetime64[ns]", "timedelta64[s]", "U4", "S4", "i4,i4"])
def test_arrays_of_other_types_are_refused(dtype):
    with pytest.raises(ValueError, match=r"X must hold numbers, got type .*: encode texts"):
        FastLloyd(1, bounds=(-1, 1)).fit(np.ones((3, 2), np.int64).astype(dtype))


def test_columns_in_another_order_are_refused():
    points = pd.DataFrame(blobs(), columns=["a", "b"])
    model = FastLloyd(n_clusters=2, bounds=(-1, 1)).fit(points)
    assert model.feature_names_in_.tolist() == ["a", "b"]
    assert model.predict(points).tolist() == model.predict(points.to_numpy()).tolist()
    with pytest.raises(ValueError, match="got b, a; fitted with a, b"):
        model.predict(points[["b", "a"]])
    assert not hasattr(model.fit(points.to_numpy()), "feature_names_in_")


def test_columns_of_one_name_are_refused():
    points = pd.DataFrame(blobs(), columns=["a", "a"])
    model = FastLloyd(2, bounds=(-1, 1))
    with pytest.raises(ValueError, match="X has several columns named 'a': rename"):
        model.fit(points)
    model.fit(points.to_numpy())
    with pytest.raises(ValueError, match="X has several columns named 'a': rename"):
        model.predict(points)


@pytest.mark.parametrize(
    ("bounds", "rule"),
    [
        ({"a": (0, 5), "b": (0, 9)}, "(lower, upper): two numbers"),
        ("auto", "(lower, upper): two numbers"),
        (("0", "5"), "(lower, upper): two numbers"),
        ([[0, 5], [9]], "(lower, upper): two numbers"),
        ([(0, 5), (1, 10**400)], "(lower, upper): two numbers"),
        ([(0, 5)], "(lower, upper): two numbers"),
        ([(0, 0), (5, 9)], "(lower, upper): two numbers"),
        ([(0, 5), (0, 9)], "(lower, upper): write ([0.0, 0.0], [5.0, 9.0])"),
        ([(0, 5), (7, 9)], "(lower, upper): write ([0.0, 7.0], [5.0, 9.0])"),
        ([[0, 5], [0, 9]], "finite with lower < upper in every feature: write all lower"),
        (pd.DataFrame([[0, 5], [0, 9]]), "finite with lower < upper in every feature"),
    ],
)
def test_bounds_that_are_none_are_refused_in_one_line(bounds, rule):
    """With their value, the rule and what to write instead."""
    with pytest.raises(ValueError, match=re.escape(f"must be {rule}")) as refused:
        FastLloyd(2, bounds=bounds).fit(blobs())
    message = str(refused.value)
    assert message.startswith("bounds=" + " ".join(repr(bounds).split()))
    assert "\n" not in message


def test_pairs_by_feature_are_refused_in_any_number_of_features():
    pairs = [[0, 5], [7, 9], [1, 2]]
    for bounds in (pairs, np.array(pairs), [tuple(pair) for pair in pairs]):
        with pytest.raises(ValueError, match=r"write .*0.0, 7.0, 1.0\], \[5.0, 9.0, 2.0\]"):
            FastLloyd(2, bounds=bounds).fit(blobs(d=3))


def test_two_tuples_that_may_be_pairs_are_refused():
    """Of two features, ((0, 5), (100, 200)) has two meanings; lists have one."""
    refusal = (
        "bounds=((0, 5), (100, 200)) can be read in two ways, and must be lists: write ([0.0, "
        "5.0], [100.0, 200.0]) for lower and upper bounds, ([0.0, 100.0], [5.0, 200.0]) for pairs "
        "by feature"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(refusal)}$"):
        FastLloyd(2, bounds=((0, 5), (100, 200))).fit(blobs())
    model = FastLloyd(2, bounds=([0, 5], [100, 200]), random_state=0).fit(blobs())
    assert model.domain_.tolist() == [[0, 5], [100, 200]]


def test_bounds_of_any_container_are_the_same():
    X = blobs() * [1, 5]
    model = FastLloyd(2, random_state=0, bounds=([-1, -5], [1, 5]))
    expected = model.fit(X).cluster_centers_
    for bounds in (((-1, -5), (1, 5)), [[-1, -5], [1, 5]], np.array([[-1, -5], [1, 5]])):
        fitted = model.set_params(bounds=bounds).fit(X).cluster_centers_
        np.testing.assert_array_equal(fitted, expected)


def test_a_private_fit_needs_bounds():
    with pytest.raises(ValueError, match=r"bounds=None: a private fit needs the public domain"):
        GLloyd(2).fit(blobs())


def test_bounds_of_a_method_without_privacy_are_the_extremes():
    X = np.random.default_rng(0).normal(50, 3, (200, 2))
    X[:, 1] = 7.0
    bounds = np.stack([X.min(axis=0), X.max(axis=0)])
    bounds[:, 1] = 0.0, 14.0
    given = Lloyd(3, bounds=bounds, random_state=0).fit(X)
    found = Lloyd(3, random_state=0).fit(X)
    assert np.array_equal(found.cluster_centers_, given.cluster_centers_)
    with pytest.raises(ValueError, match="rows with NaN or infinite values"):
        Lloyd(3).fit(np.full((5, 2), np.nan))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_mapped_file_is_read_in_blocks(tmp_path, monkeypatch, dtype):
    """The same fit as in memory, with the memory of some blocks."""
    monkeypatch.setattr("pkm.row_blocks.BLOCK_VALUES", 1 << 16)
    X = np.random.default_rng(0).uniform(-1, 1, (200_000, 10)).astype(dtype)
    np.save(tmp_path / "points.npy", X)
    mapped = np.load(tmp_path / "points.npy", mmap_mode="r")
    model = FastLloyd(n_clusters=8, bounds=(-1, 1), random_state=0)
    expected = model.fit(X.astype(np.float64)).cluster_centers_
    # The first fit of this type may compile kernels, which takes memory, too.
    fitted = model.fit(mapped).cluster_centers_
    assert np.array_equal(fitted, expected)
    assert peak_bytes(lambda: model.fit(mapped)) <= X.nbytes / 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        FastLloyd(2),
        DPM(2),
        KaplanStemmer(2),
        SynopsisKMeans(2),
        LSHSplits(2),
        Balcan(2, shifts=1, depth=2, search_rounds=1),
        MSTKMeans(2),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_fit_takes_at_most_twice_its_input(monkeypatch, model):
    """Beyond it, the points on the grid included, in single precision."""
    monkeypatch.setattr("pkm.row_blocks.BLOCK_VALUES", 1 << 16)
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.7, 0.7, (2, 10))[rng.integers(2, size=300_000)].astype(np.float32)
    X += 0.1 * rng.standard_normal(X.shape, dtype=np.float32)
    model.set_params(bounds=(-1, 1), random_state=0)
    model.fit(X)  # compilers and caches take memory once
    tracemalloc.start()
    model.fit(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # The hundred candidates of the synopsis make larger blocks of distances.
    limit = 2.3 if isinstance(model, SynopsisKMeans) else 2
    assert peak <= limit * X.nbytes
