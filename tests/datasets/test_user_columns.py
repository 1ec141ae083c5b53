"""Kinds of columns: distances on the scale, cells that cannot be read, what comes back."""

import datetime
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pkm import Schema

LEVELS = ["low", "middle", "high"]
INTEGERS = st.integers(-(10**6), 10**6)
NUMBERS = st.floats(-1e6, 1e6)
#: Cells of each kind, with a rule whose bounds hold them all.
KINDS = {
    "number": ({"low": -1e6, "high": 1e6}, NUMBERS),
    "log": ({"kind": "number", "low": 0.01, "high": 1e6, "log": True}, st.floats(0.01, 1e6)),
    "asinh": ({"kind": "number", "low": -1e6, "high": 1e6, "asinh": True}, NUMBERS),
    "integer": ({"low": -(10**6), "high": 10**6}, INTEGERS),
    "ordered": ({"levels": LEVELS}, st.sampled_from(LEVELS)),
    "flag": ({}, st.booleans()),
    "date": (
        {"low": "1900-01-01", "high": "2100-12-31"},
        st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 12, 31)),
    ),
    "cyclic": ({"period": 24}, st.floats(0, 23.99)),
    "latitude": ({"low": -90, "high": 90}, st.floats(-90, 90)),
}


def encode(cells, **rule):
    """Places of a column with these cells, (n, m)."""
    return Schema({"x": rule}).transform(pd.DataFrame({"x": cells}))


def decode(places, **rule):
    """Cells of these places (k, m), as a frame."""
    return Schema({"x": rule}).inverse_transform(places)


def read_error(**rule):
    with pytest.raises(ValueError) as refused:
        Schema({"my column": rule})
    message = str(refused.value)
    assert message.startswith("column 'my column': ")
    assert "\n" not in message
    return message


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_cells_come_back(kind, data):
    rule, cells = KINDS[kind]
    rule = {"kind": kind, **rule}
    table = data.draw(st.lists(cells, min_size=1, max_size=5))
    places = encode(table, **rule)
    assert np.abs(places).max() <= 1
    (back,) = decode(places, **rule).to_dict("list").values()
    if kind in ("ordered", "integer", "date"):
        assert [pd.Timestamp(cell) if kind == "date" else cell for cell in table] == back
    elif kind == "asinh":
        np.testing.assert_allclose(back, table, rtol=1e-9, atol=1e-9)
    elif kind == "cyclic":
        turns = (np.array(back) - table) / 24
        np.testing.assert_allclose(turns, np.round(turns), atol=1e-9)
    else:
        np.testing.assert_allclose(back, table, rtol=1e-9, atol=1e-9)


@given(cells=st.lists(st.sampled_from([*LEVELS, "unknown"]), min_size=1, max_size=5))
def test_a_row_of_a_category_has_a_share_of_one(cells):
    rule = {"kind": "category", "levels": LEVELS}
    shares = decode(encode(cells, **rule), **rule)
    expected = ["other" if cell == "unknown" else cell for cell in cells]
    names = shares.columns.str.removeprefix("x_")
    assert list(names) == [*LEVELS, "other"]
    assert [names[place] for place in shares.to_numpy().argmax(axis=1)] == expected
    np.testing.assert_allclose(np.sort(shares)[:, -2:], [[0, 1]] * len(cells), atol=1e-12)
