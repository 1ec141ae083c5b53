"""Text files as people write them: separators, decimal marks, headers."""

import gzip
import re
import traceback

import numpy as np
import pandas as pd
import pytest
from own_files import TABLE, TABLE_POINTS, read_error, write

from pkm import datasets
from pkm.datasets.delimited import Format, guess


def test_csv_without_header_is_read(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("1, 2\n3, 4.5\n")
    dataset = datasets.load("file", path=path)
    np.testing.assert_array_equal(dataset.points, [[1, 2], [3, 4.5]])


def test_csv_header_of_column_numbers_is_refused(tmp_path):
    path = tmp_path / "points.csv"
    pd.DataFrame(TABLE_POINTS).to_csv(path, index=False)
    with pytest.raises(ValueError, match="the first line may be column numbers or a point"):
        datasets.load("file", path=path)


@pytest.mark.parametrize(
    "text, message",
    [
        ("a,b\n1,2,3\n4,5,6\n", "a line has 3 fields, the first line has 2"),
        ("a,b\n1,2\n\n3\n", "a line has 1 fields, the first line has 2"),
        ("1,2\n3,4,5\n", "a line has 3 fields"),
        ("1,2\n3,4,\n", "a line has 3 fields"),
        (
            ",a,b\n0,2,3\n1,5,6\n",
            r"column 0 .from 0. has no name in the header: .*write with index=False",
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
    pd.DataFrame(TABLE_POINTS, columns=["x0", "x1", "x2"]).to_csv(path)
    with pytest.raises(ValueError, match="index=False"):
        datasets.load("file", path=path)


def test_csv_blank_lines_and_quotes_are_ignored(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text('\n"a", "b"\n\n1, 2\n  \n3, "4"\n\n')
    dataset = datasets.load("file", path=path)
    np.testing.assert_array_equal(dataset.points, [[1, 2], [3, 4]])


MISSING = ["", "nan", "NA"]
INFINITE = ["inf", "-1e400", "9" * 400, "9" * 5000]


@pytest.mark.parametrize(
    ("rest", "field"),
    [
        *(("1.5", field) for field in MISSING + INFINITE),
        *(("1", field) for field in MISSING + INFINITE),
        *(("True", field) for field in MISSING),
    ],
)
def test_rows_with_such_a_field_are_null_records(tmp_path, rest, field):
    path = write(tmp_path, f"a,b\n2,{rest}\n3,{field}\n4,{rest}\n")
    number = 1.0 if rest == "True" else float(rest)
    expected = [[2, number], [np.nan, np.nan], [4, number]]
    np.testing.assert_array_equal(datasets.load("file", path=path).points, expected)


def test_numbers_beyond_64_bits_are_numbers(tmp_path):
    path = write(tmp_path, f"a;b\n1;{10**25}\n{10**20};1,5\n")
    expected = [[1, 1e25], [1e20, 1.5]]
    np.testing.assert_array_equal(datasets.load("file", path=path).points, expected)


#: A value of a record, in every place where it makes a file unreadable.
SECRET = "4711"
BROKEN = {
    "longer": f"a,b\n1,2\n{SECRET},2,3\n",
    "shorter": f"a,b\n1,2\n{SECRET}\n",
    "text": f"a,b\n1,2\n2,x{SECRET}\n",
    "thousands": f'a,b\n1,2\n2,"1,{SECRET[:3]},000"\n',
    "comma": f"a;b\n1;1,{SECRET[:3]}\n",
    "no header": f"{SECRET},x{SECRET}\n1,2\n",
    "no header, no name": f"{SECRET},,x{SECRET}\n1,2,3\n",
    "quotation mark": f'a,b\n1,2\n3,4\n{SECRET},"{SECRET}\n',
    "long": f"a,b\n1,{SECRET * 40_000}\n",
    "latin-1": f"a,b\n1,é{SECRET}\n".encode("latin-1"),
    "row number": "id,a\n" + "".join(f"{i},{i * 7}\n" for i in range(4700, 4720)),
    "missing class": f"a,label\n{SECRET},x\n{SECRET},\n",
    "not packed": f"{SECRET},1\n",
    "damaged": gzip.compress(f"{SECRET},1\n".encode() * 500)[:-9],
}


@pytest.mark.parametrize("kind", BROKEN)
def test_refusals_show_no_value_and_no_line(tmp_path, kind):
    """Nor does what Python prints with an error."""
    name = "points.csv"
    if kind in ("not packed", "damaged"):
        name = "points.csv.gz"
    path = tmp_path / name
    content = BROKEN[kind]
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    label = "label" if kind == "missing class" else None
    with pytest.raises(ValueError) as refused:
        datasets.load(path=path, label=label)
    # Lines of code are indented, and messages of the error and of its causes are not.
    printed = "".join(traceback.format_exception(refused.value)).replace(str(path), "")
    said = [line for line in printed.splitlines() if not line.startswith(" ")]
    assert not re.search(rf"{SECRET[:3]}|line \d|row \d|\(b'", "".join(said))


POINTS = [[1.5, 2.0], [3.25, -4.0], [0.125, 6e3]]


@pytest.mark.parametrize("header", ["", "height{0}width\n"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("separator", "decimal"),
    [(",", "."), (";", "."), (";", ","), ("\t", "."), ("\t", ","), ("  ", "."), (" ", ",")],
)
def test_separators_and_decimal_marks_are_found_out(tmp_path, separator, decimal, header, end):
    rows = [separator.join(str(value) for value in row) for row in POINTS]
    text = "\n".join(rows).replace(".", decimal)
    path = write(tmp_path, (header.format(separator) + text + "\n").replace("\n", end))
    np.testing.assert_array_equal(datasets.load(path=path).points, POINTS)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["1,2", "3,4"], Format(",", ".")),
        (["1, 2", "3, 4"], Format(",", ".")),
        (["1;2", "3;4"], Format(";", ".")),
        (["1,5 2,5", "3 4"], Format("blanks", ",")),
        (["full name,age", "bo bo,3", "al al,4"], Format(",", ".")),
        (['"Smith, J.";1,5'], Format(";", ",")),
        (["  500  600", "  499  1"], Format("blanks", ".")),
        (["a\tb", "1\t2", "1\t\t2"], Format("\t", ".")),
    ],
)
def test_guessed_formats(lines, expected):
    assert guess(lines) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("height\n1,5\n2,25\n", [[1.5], [2.25]]),
        ('"1,5","2,5"\n"3,5","4,5"\n', [[1.5, 2.5], [3.5, 4.5]]),
        ("a\tb\n1e3\t.5\n-2\t+3.\n", [[1000, 0.5], [-2, 3]]),
        ("\ufeffa;b\n1;2\n", [[1, 2]]),
        ("   1   2\n  30  40  \n", [[1, 2], [30, 40]]),
    ],
)
def test_texts_as_people_write_them(tmp_path, text, expected):
    np.testing.assert_array_equal(datasets.load(path=write(tmp_path, text)).points, expected)


@pytest.mark.parametrize(
    ("text", "decimal", "expected"),
    [
        ("1,2\n3\n5,7\n", "comma", [[1.2], [3], [5.7]]),
        ("1,2\n3,4\n", "comma", [[1.2], [3.4]]),
        ("1,234;2\n5,678;3\n", "comma", [[1.234, 2], [5.678, 3]]),
        ("1,2\n3,4\n", "point", [[1, 2], [3, 4]]),
    ],
)
def test_a_decimal_mark_that_is_given_decides(tmp_path, text, decimal, expected):
    path = write(tmp_path, text)
    loaded = datasets.load(path=path, decimal=decimal)
    np.testing.assert_array_equal(loaded.points, expected)
    assert f"decimal {decimal}" in loaded.summary
    assert loaded.fingerprint == datasets.fingerprint(
        file=datasets.FileOptions(path=path, decimal=decimal)
    )
    assert loaded.fingerprint != datasets.fingerprint(file=datasets.FileOptions(path=path))


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ("1,5\n2,7\n3,1\n", True),
        ("1,234\n2,345\n", True),
        ("1,50\n\n2,75\n", True),
        ("1,5\n2,25\n", True),
        ("664159,550946\n665845,557965\n608943,5750\n", False),
        ("1,5\n-2,7\n", False),
        ("1,5\n2,\n", False),
        ("x,y\n1,5\n2,7\n", False),
        ("1,5,3\n2,7,4\n", False),
    ],
)
def test_two_columns_that_may_be_decimals_are_refused(tmp_path, text, is_refused):
    path = write(tmp_path, text)
    if not is_refused:
        assert "separated by commas" in datasets.load(path=path).summary
        return
    with pytest.raises(ValueError, match="give decimal=point for two, decimal=comma for one"):
        datasets.load(path=path)
    shapes = [datasets.load(path=path, decimal=mark).points.shape for mark in ("point", "comma")]
    assert [d for _, d in shapes] == [2, 1]


def test_only_the_two_marks_are_given_and_only_with_texts(tmp_path):
    np.save(tmp_path / "points.npy", np.eye(2))
    for path, decimal in ((write(tmp_path, "1;2\n"), "dot"), (tmp_path / "points.npy", "comma")):
        message = f"decimal='{decimal}' should be point or comma, with a text file"
        with pytest.raises(ValueError, match=message):
            datasets.load(path=path, decimal=decimal)
    with pytest.raises(ValueError, match="decimal='comma' goes with the data set 'file' only"):
        datasets.load("iris", decimal="comma")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,20\n3,4\n", "2 rows, 2 columns, separated by commas, decimal point, no header"),
        ("a;b\n1;2\n", "1 rows, 2 columns, separated by semicolons, decimal point, a header"),
        ("a\n1,5\n2\n", "2 rows, 1 columns, decimal comma, a header"),
        (
            "1 2\n,5 nan\n",
            "2 rows, 2 columns, separated by blanks, decimal comma, no header; 1 rows",
        ),
    ],
)
def test_what_is_found_out_is_said(tmp_path, text, expected):
    assert datasets.load(path=write(tmp_path, text)).summary.startswith(expected)


@pytest.mark.parametrize("name", ["a.tsv", "a.txt", "a.csv.gz", "a.TSV.GZ", "a.txt.gz"])
def test_names_of_text_files(tmp_path, name):
    if name == "a.TSV.GZ":
        (tmp_path / name).write_bytes(gzip.compress(b"x\ty\n1.5\t2\n"))
        path = tmp_path / name
    else:
        path = write(tmp_path, "x\ty\n1.5\t2\n", name)
    assert datasets.load("file", path=path).points.tolist() == [[1.5, 2]]


@pytest.mark.parametrize("header", ["", "\n\na\n", "a,b\n"])
@pytest.mark.parametrize("position", [0, 1, 11])
def test_a_missing_record_is_null_wherever_it_is(tmp_path, header, position):
    """Neither the number of records nor a refusal tells whether one record is there."""
    has_two = "," in header
    lines = [f"{i}.5,{i % 3}" if has_two else f"{i}.5" for i in range(12)]

    def load(record):
        changed = [*lines[:position], record, *lines[position + 1 :]]
        path = write(tmp_path, header + "\n".join(changed) + "\n")
        return datasets.load(path=path).points

    expected = load(lines[position])
    expected[position] = np.nan
    missing = [",", "NA,null", "5,<NA>"] if has_two else ["", "NA", "None", "#N/A"]
    for record in missing:
        np.testing.assert_array_equal(load(record), expected)


def test_a_first_column_of_consecutive_numbers_is_a_feature(tmp_path):
    """A rule on its values would tell whether one record is another number."""
    lines = [f"{i},{i * i % 7}" for i in range(12)]
    for first in ("0,0", "NA,0", "7,0"):
        path = write(tmp_path, "n,a\n" + "\n".join([first, *lines[1:]]) + "\n")
        assert datasets.load(path=path).points.shape == (12, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n", "there is a header (a, b) but no point below it"),
        ("", "cannot be read as CSV: it is empty"),
        ("\n  \n", "cannot be read as CSV: it is empty"),
        (
            TABLE,
            "column 'id' looks like a row number; "
            'choose \'columns=["height","city","width"]\', or',
        ),
        (
            "age,city,job\n1,Rome,cook\n2,Oslo,cook\n",
            "columns city, job should be numeric; "
            "choose 'columns=[\"age\"]', or encode texts as numbers",
        ),
        (
            "city\nRome\nOslo\n",
            "column city should be numeric; encode texts as numbers, and dates",
        ),
        (
            'a,b\n"1,234,567",5\n"12,345",6\n',
            "column 'a': numbers have separators of thousands; write the digits",
        ),
        # Three decimals are a number.
        ("a,b\n1.234,5\nx,6\n", "column a should be numeric"),
        (
            "a;b\n1.234,5;1\n2,5;3\n",
            "column 'a': numbers have separators of thousands",
        ),
        (
            "1,234;2,345\n5,678;1,111\n",
            "commas may be decimal marks or separate thousands: give decimal=comma, or write 1234",
        ),
        ("a\n1,234\n5,678\n", "commas may be decimal marks or separate thousands"),
        (
            "1,2\n3\n5,7\n2,2\n",
            "commas may be decimal marks or separate columns, of which some are missing: give "
            "decimal=comma or decimal=point",
        ),
        ("a;b\n1;2;3\n", "a line has 3 fields, the first line has 2"),
        ("5.5,Rome\n6,Oslo\n", "the first line has numbers and texts: it may be a header"),
        ("a b\n1 2\n3\n", "read as separated by blanks"),
        ("größe,b\n1,2\n".encode("latin-1"), "it is not text in UTF-8"),
    ],
)
def test_wrong_texts_are_refused_with_a_remedy(tmp_path, text, message):
    assert message in read_error(write(tmp_path, text))
