"""A user's table in blocks: whatever is in a row, all other rows are read as without it."""

import datetime

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pkm.datasets.user_schema import Schema
from pkm.datasets.user_tables import read_blocks

HEADER = b"age;plan;since"
LINES = [f"{i};free;2026-01-{i % 28 + 1:02d}".encode() for i in range(60)]
SCHEMA = Schema(
    {
        "age": {"kind": "integer", "low": 0, "high": 100},
        "plan": {"kind": "category", "levels": ["free", "paid"]},
        "since": {"kind": "date", "low": "2026-01-01", "high": "2026-12-31"},
    }
)
#: Lines that are no row of three fields.
BROKEN = {
    "quotation mark": b'30;"free;2026-01-01',
    "long field": b"30;" + b"x" * 200_000 + b";2026-01-01",
    "carriage return": b"30;free\r;2026-01-01",
    "short": b"30",
    "long": b"30;free;2026-01-01;5",
    "blank": b"",
}


def read(path):
    return pd.concat(read_blocks(path, list(SCHEMA.columns)), ignore_index=True)


def write_lines(path, lines):
    path.write_bytes(b"\n".join([HEADER, *lines]) + b"\n")
    return path


@pytest.mark.parametrize("end", [b"", b"\r"], ids=["unix", "windows"])
@pytest.mark.parametrize("name", BROKEN)
def test_a_line_that_is_no_row_is_a_row_of_nulls(tmp_path, name, end):
    lines = [line + end for line in LINES]
    rows = read(write_lines(tmp_path / "a.csv", lines))
    assert len(rows) == len(LINES)
    lines[20] = BROKEN[name] + end
    broken = read(write_lines(tmp_path / "a.csv", lines))
    assert broken.iloc[20].isna().all()
    pd.testing.assert_frame_equal(broken.drop(20), rows.drop(20))


def test_bytes_that_are_not_utf_8_change_their_cell_alone(tmp_path):
    rows = read(write_lines(tmp_path / "a.csv", LINES))
    lines = list(LINES)
    lines[20] = "30;münz;2026-01-01".encode("latin-1")
    other = read(write_lines(tmp_path / "a.csv", lines))
    assert other.loc[20, "age"] == "30"
    # Two such texts stay two, as the ids of persons must.
    assert other.loc[20, "plan"] == r"m\xfcnz"
    pd.testing.assert_frame_equal(other.drop(20), rows.drop(20))


def test_a_first_line_that_is_not_utf_8_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("größe;plan\n1;2\n".encode("latin-1"))
    with pytest.raises(ValueError, match="not text in UTF-8"):
        read(path)


TIMES = {
    "date32": (pa.date32(), 5_000_000),
    "date64": (pa.date64(), 400_000_000_000_000),
    "s": (pa.timestamp("s"), 1 << 40),
    "us": (pa.timestamp("us"), 1 << 62),
    "ns": (pa.timestamp("ns"), 1 << 62),
}


@pytest.mark.parametrize("name", TIMES)
def test_a_day_that_python_does_not_have_is_missing(tmp_path, name):
    kind, far = TIMES[name]
    day = datetime.datetime(2026, 3, 1)
    days = pa.array([day, day, None]).cast(kind)
    integer = pa.int32() if name == "date32" else pa.int64()
    days = pa.concat_arrays([days, pa.array([far], integer).cast(kind)])
    ages = pa.array([30, 31, 32, 33])
    plans = pa.array(["free"] * 4)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"age": ages, "plan": plans, "since": days}), path)
    places = SCHEMA.transform(read(path))[:, -1]
    assert places[0] == places[1]
    assert (abs(places[:2]) < 1).all()
    assert pd.isna(places[2])
    assert pd.isna(places[3]) or name == "ns"


def test_types_of_a_parquet_file_do_not_depend_on_nulls(tmp_path):
    path = tmp_path / "a.parquet"
    large = (1 << 53) + 1
    for values in ([large, large + 1], [large, None]):
        pq.write_table(pa.table({"age": pa.array(values, pa.int64())}), path)
        assert read(path)["age"].tolist() == values
