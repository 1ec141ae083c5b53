"""Kinds of columns: cells come back, distances on the scale, and rules that are refused."""

import datetime
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist, squareform

from pkm import Schema

LEVELS = ["low", "middle", "high"]
#: Stands for the cell of a case.
BAD = "bad"
NUMBERS = st.floats(-1e6, 1e6)
#: A rule of each kind, and cells that its bounds hold.
KINDS = {
    "number": ({"low": -1e6, "high": 1e6}, NUMBERS),
    "log": ({"kind": "number", "low": 0.01, "high": 1e6, "log": True}, st.floats(0.01, 1e6)),
    "asinh": ({"kind": "number", "low": -1e6, "high": 1e6, "asinh": True}, NUMBERS),
    "latitude": ({"low": -90, "high": 90}, st.floats(-90, 90)),
    "flag": ({}, st.booleans()),
    "integer": ({"low": -(10**6), "high": 10**6}, st.integers(-(10**6), 10**6)),
    "ordered": ({"levels": LEVELS}, st.sampled_from(LEVELS)),
    "date": (
        {"low": "1900-01-01", "high": "2100-12-31"},
        st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 12, 31)).map(
            lambda day: pd.Timestamp(day.date())
        ),
    ),
}


def encode(cells, **rule):
    """Return the places (n, m) of a column with these cells."""
    return Schema({"x": rule}).transform(pd.DataFrame({"x": cells}))


def decode(places, **rule):
    """Return the cells of these places (k, m), as a frame."""
    return Schema({"x": rule}).inverse_transform(places)


def lists(cells):
    return st.lists(cells, min_size=1, max_size=5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(data=st.data())
def test_cells_come_back(kind, data):
    rule, cells = KINDS[kind]
    rule = {"kind": kind, **rule}
    table = data.draw(lists(cells))
    places = encode(table, **rule)
    assert np.abs(places).max() <= 1
    (back,) = decode(places, **rule).to_dict("list").values()
    if kind in ("integer", "ordered", "date"):
        assert back == table
    else:
        np.testing.assert_allclose(back, table, rtol=1e-9, atol=1e-9)


@given(lists(st.floats(0, 24)))
def test_hours_come_back_up_to_a_turn(hours):
    rule = {"kind": "cyclic", "period": 24}
    back = decode(encode(hours, **rule), **rule)["x"]
    assert back.between(0, 24).all()
    turns = (back - hours) / 24
    np.testing.assert_allclose(turns, turns.round(), atol=1e-9)


@given(lists(st.tuples(st.floats(40, 41), st.floats(-75, -73))))
def test_latitudes_and_longitudes_come_back(rows):
    schema = Schema(
        {
            "north": {"kind": "latitude", "low": 40, "high": 41},
            "east": {"kind": "longitude", "low": -75, "high": -73, "latitude": "north"},
        }
    )
    table = pd.DataFrame(rows, columns=["north", "east"])
    pd.testing.assert_frame_equal(schema.inverse_transform(schema.transform(table)), table)


@given(lists(st.sampled_from([*LEVELS, "unknown"])))
def test_a_row_has_the_share_one_of_its_level(cells):
    rule = {"kind": "category", "levels": LEVELS}
    shares = decode(encode(cells, **rule), **rule)
    assert list(shares) == ["x_low", "x_middle", "x_high", "x_other"]
    known = pd.Series(cells).replace("unknown", "other")
    expected = pd.get_dummies("x_" + known, dtype=float)
    expected = expected.reindex(columns=shares.columns, fill_value=0.0)
    np.testing.assert_allclose(shares, expected, atol=1e-12)


@pytest.mark.parametrize("weight", [0.5, 1.0, 2.0])
def test_two_categories_differ_by_their_weight(weight):
    places = encode([*LEVELS, "other"], kind="category", levels=LEVELS, weight=weight)
    np.testing.assert_allclose(pdist(places), weight)


@pytest.mark.parametrize(
    ("cells", "rule"),
    [
        pytest.param([3, 9], {"kind": "number", "low": 3, "high": 9}, id="number"),
        pytest.param([3, 9], {"kind": "number", "low": 3, "high": 9, "log": True}, id="log"),
        pytest.param(["low", "high"], {"kind": "ordered", "levels": LEVELS}, id="ordered"),
        pytest.param([6, 18], {"kind": "cyclic", "period": 24}, id="cyclic"),
        pytest.param([False, True], {"kind": "flag", "weight": 2}, id="flag"),
    ],
)
def test_ends_differ_by_the_weight(cells, rule):
    np.testing.assert_allclose(pdist(encode(cells, **rule)), 2)
    np.testing.assert_allclose(pdist(encode(cells, **rule | {"weight": 0.5})), 0.5)


def test_midnight_is_between_the_last_and_the_first_hour():
    distances = squareform(pdist(encode([23, 0, 1, 12], kind="cyclic", period=24)))
    assert distances[0, 1] == pytest.approx(distances[1, 2])
    assert distances[0, 3] > distances[0, 2] > distances[0, 1]


def test_distances_are_as_on_the_ground():
    """In 60 degrees north a degree east is half as long as a degree north."""
    schema = Schema(
        {
            "lat": {"kind": "latitude", "low": 59, "high": 61},
            "lon": {"kind": "longitude", "low": 10, "high": 12, "latitude": "lat"},
        }
    )
    table = pd.DataFrame({"lat": [60, 61, 60], "lon": [11, 11, 12]})
    places = schema.transform(table)
    np.testing.assert_allclose(places[1] - places[0], [1, 0], atol=1e-12)
    np.testing.assert_allclose(places[2] - places[0], [0, 0.5], atol=1e-12)


@pytest.mark.parametrize(
    ("cells", "rule", "places"),
    [
        pytest.param([-5, 50], {"kind": "number", "low": 0, "high": 10}, [-1, 1], id="number"),
        pytest.param(
            [-5, 0], {"kind": "number", "low": 1, "high": 9, "log": True}, [-1, -1], id="log"
        ),
        pytest.param(
            ["1066-10-14", "9999-12-31"],
            {"kind": "date", "low": "2000-01-01", "high": "2020-01-01"},
            [-1, 1],
            id="date",
        ),
    ],
)
def test_cells_beyond_the_bounds_are_clipped(cells, rule, places):
    np.testing.assert_array_equal(encode(cells, **rule).ravel(), places)


def test_centers_beyond_the_bounds_are_clipped():
    """Noise moves centers out of the bounds."""
    numbers = decode([[-1.5], [1.5]], kind="number", low=0, high=10)
    np.testing.assert_array_equal(numbers["x"], [0, 10])
    shares = decode([[-9, 9, 0]], kind="category", levels=["a", "b"])
    np.testing.assert_array_equal(shares, [[0, 1, 0.5]])


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        pytest.param({"kind": "number", "low": 0, "high": 9}, "1.5", "1,5", id="number"),
        pytest.param(
            {"kind": "number", "low": 0, "high": 9, "decimal": "comma"},
            "1,5",
            "1.50",
            id="decimal comma",
        ),
        pytest.param({"kind": "number", "low": 0, "high": 9}, " 7 ", math.inf, id="infinite"),
        pytest.param({"kind": "integer", "low": 0, "high": 9}, 7, 10**400, id="huge"),
        pytest.param({"kind": "cyclic", "period": 24}, 7, "-inf", id="cyclic"),
        pytest.param({"kind": "ordered", "levels": LEVELS}, " low", "unknown", id="ordered"),
        pytest.param({"kind": "flag"}, "TRUE", "maybe", id="flag"),
        pytest.param(
            {"kind": "date", "low": "2000-01-01", "high": "2020-01-01"},
            "2010-05-06T07:08:09.123456+02:00",
            "06.05.2010",
            id="ISO date",
        ),
        pytest.param(
            {"kind": "date", "low": "2000-01-01", "high": "2020-01-01", "format": "%d.%m.%Y"},
            "06.05.2010",
            "2010-05-06",
            id="date",
        ),
        pytest.param({"kind": "category", "levels": [1, 2]}, 1.0, None, id="category"),
    ],
)
@pytest.mark.parametrize("hole", [None, math.nan, pd.NA, BAD], ids=repr)
def test_a_cell_that_cannot_be_read_is_missing_and_changes_no_other(rule, good, bad, hole):
    cells = pd.Series([good, bad if hole is BAD else hole, good], dtype=object)
    places = encode(cells, **rule)
    assert np.isnan(places[1]).all()
    alone = encode(pd.Series([good], dtype=object), **rule)
    assert np.isfinite(alone).all()
    np.testing.assert_array_equal(places[[0, 2]], np.vstack([alone, alone]))
    if rule["kind"] != "category":
        back = decode(places[1:2], **rule)
        assert back.isna().all(axis=None)


#: Cells as nobody would type them.
STRANGE = st.one_of(
    st.text(),
    st.floats(),
    st.integers(),
    st.just(10**5000),
    st.binary(),
    st.decimals(),
    st.datetimes(),
    st.dates(),
    st.complex_numbers(),
    st.lists(st.integers(), max_size=2),
    st.none(),
    st.just(pd.NaT),
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, "category", "cyclic"])
@settings(max_examples=25)
@given(cells=lists(STRANGE))
def test_no_cell_is_refused(kind, cells):
    """Nobody learns from an error that a record is there; each place is its cell's alone."""
    others = {"category": {"levels": LEVELS}, "cyclic": {"period": 24}}
    rule = {"kind": kind, **(others[kind] if kind in others else KINDS[kind][0])}
    column = pd.Series(cells, dtype=object)
    places = encode(column, **rule)
    assert not np.isinf(places).any()
    alone = [encode(column[[row]], **rule) for row in range(len(cells))]
    np.testing.assert_array_equal(places, np.vstack(alone))


def test_types_of_a_column_change_no_place():
    """Numbers as texts, whole numbers as floats, dates as texts or as dates."""
    number = {"kind": "number", "low": 0, "high": 10}
    np.testing.assert_array_equal(encode(["1", "2.5"], **number), encode([1, 2.5], **number))
    category = {"kind": "category", "levels": ["1", 2]}
    np.testing.assert_array_equal(encode(["1", "2"], **category), encode([1.0, 2.0], **category))
    date = {"kind": "date", "low": "2000-01-01", "high": datetime.date(2020, 1, 1)}
    texts = ["2003-04-05", "2006-07-08 09:10"]
    for dates in (pd.to_datetime(texts, format="ISO8601"), [datetime.date(2003, 4, 5), texts[1]]):
        np.testing.assert_array_equal(encode(dates, **date), encode(texts, **date))


def test_a_mean_is_written_in_the_words_of_the_table():
    assert decode([[0.19]], kind="integer", low=0, high=100)["x"].tolist() == [60]
    assert decode([[0.3]], kind="ordered", levels=LEVELS)["x"].tolist() == ["middle"]
    date = decode([[0.001]], kind="date", low="2024-01-01", high="2024-01-31")["x"]
    assert date.tolist() == [pd.Timestamp("2024-01-16")]
    assert decode([[0.25]], kind="flag")["x"].tolist() == [0.75]
    hour = decode([[0.0, 0.2]], kind="cyclic", period=24)["x"]
    assert hour.tolist() == [6]


def test_other_is_one_level():
    names = Schema({"x": {"kind": "category", "levels": ["other", "a"]}}).get_feature_names_out()
    assert list(names) == ["x_other", "x_a"]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({}, "unknown kind 'None'"),
        ("number", "unknown kind 'None'"),
        ({"kind": "numbr"}, "unknown kind 'numbr'; did you mean 'number'?"),
        ({"kind": "number", "low": 0}, "missing 1 required positional argument: 'high'"),
        ({"kind": "number", "low": 0, "high": 1, "hihg": 1}, "unexpected keyword argument 'hihg'"),
        ({"kind": "number", "low": 2, "high": 1}, "low=2 must be below high=1"),
        ({"kind": "integer", "low": 2, "high": 2}, "low=2 must be below high=2"),
        ({"kind": "number", "low": 0, "high": math.inf}, "both finite numbers"),
        ({"kind": "number", "low": "0", "high": 1}, "both finite numbers"),
        ({"kind": "number", "low": 0, "high": 1, "log": True}, "needs low=0 above 0; else"),
        ({"kind": "number", "low": 1, "high": 2, "log": True, "asinh": True}, "asinh alone"),
        ({"kind": "number", "low": 0, "high": 1, "decimal": ","}, "must be point or comma"),
        ({"kind": "number", "low": 0, "high": 1, "weight": 3}, "weight=3 must be above 0"),
        ({"kind": "flag", "weight": 0}, "weight=0 must be above 0, and 2 at most"),
        ({"kind": "date", "low": "1.1.2020", "high": "2021-01-01"}, "such as 2025-12-31"),
        ({"kind": "date", "low": "2021-01-01", "high": "2020-01-01"}, "a date before"),
        (
            {"kind": "date", "low": "2020-01-01", "high": "2021-01-01", "format": "dd.mm.yyyy"},
            "format='dd.mm.yyyy' must have a full date, such as %d.%m.%Y",
        ),
        ({"kind": "ordered", "levels": ["a", "b", "a"]}, "different texts"),
        ({"kind": "category", "levels": [1, "1"]}, "different texts"),
        ({"kind": "category", "levels": ["a"]}, "two at least"),
        ({"kind": "category", "levels": "ab"}, "must be a list"),
        ({"kind": "category", "levels": [True, False]}, "yes and no in quotation marks"),
        ({"kind": "cyclic", "period": 0}, "period=0 must be a number above 0"),
        (
            {"kind": "longitude", "low": 0, "high": 1, "latitude": "north"},
            "latitude='north' must be a column of kind latitude",
        ),
    ],
)
def test_rules_that_are_wrong_are_refused_with_a_remedy(rule, message):
    with pytest.raises(ValueError) as refused:
        Schema({"my column": rule})
    assert str(refused.value).startswith("column 'my column': ")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "int64", "uint8", "Int64", "Float64", "int64[pyarrow]"]
)
@pytest.mark.parametrize("kind", ["number", "cyclic", "date", "flag"])
def test_numbers_of_a_type_are_read_as_single_cells_are(dtype, kind):
    rule = {
        "number": {"low": -1, "high": 3, "decimal": "comma"},
        "cyclic": {"period": 7},
        "date": {"low": "2020-01-01", "high": "2026-01-01"},
        "flag": {},
    }[kind]
    cells = pd.Series([0, 1, 5, 200], dtype=dtype)
    if cells.dtype.kind == "f" or not isinstance(cells.dtype, np.dtype):
        cells[1] = None
    if isinstance(cells.dtype, np.dtype) and cells.dtype.kind == "f":
        cells[2] = np.inf
    before = cells.copy()
    places = encode(cells, kind=kind, **rule)
    np.testing.assert_array_equal(places, encode(cells.astype(object), kind=kind, **rule))
    pd.testing.assert_series_equal(cells, before)


@pytest.mark.parametrize(
    ("decimal", "text", "number"),
    [
        ("comma", "1.234,5", 1234.5),
        ("comma", "-12.345.678", -12_345_678),
        ("comma", "12,89 €", 12.89),
        ("comma", "0,5", 0.5),
        ("comma", "1,5e3", 1500),
        ("point", "1,234.5", 1234.5),
        ("point", "$1 234", 1234),
        ("point", "1'234'567.25", 1_234_567.25),
        ("point", ".5", 0.5),
    ],
)
def test_numbers_are_read_as_people_write_them(decimal, text, number):
    bounds = {"kind": "number", "low": -1e8, "high": 1e8}
    places = encode([text], **bounds, decimal=decimal)
    np.testing.assert_array_equal(places, encode([number], **bounds))


@pytest.mark.parametrize(
    ("decimal", "text"),
    [
        ("point", "1,5"),
        ("point", "1,2345"),
        ("point", "0,123"),
        ("point", "1.234.567"),
        ("comma", "1.5"),
        ("comma", "1,234.5"),
        ("comma", "1,234,567"),
        ("comma", "€"),
    ],
)
def test_numbers_with_another_decimal_mark_are_missing(decimal, text):
    assert np.isnan(encode([text], kind="number", low=0, high=9, decimal=decimal))


def test_times_are_hours():
    times = encode(["17:30", "7:15", " 06:00:36 ", datetime.time(23, 45)], kind="cyclic", period=24)
    np.testing.assert_array_equal(
        times, encode([17.5, 7.25, 6.01, 23.75], kind="cyclic", period=24)
    )
    assert np.isnan(encode(["seven:30"], kind="cyclic", period=24)).all()
