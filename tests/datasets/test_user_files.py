"""People's own files: formats as they are written, columns, labels, and errors in one line."""

import gzip
import re

import numpy as np
import pandas as pd
import pytest

from pkm import datasets
from pkm.datasets import user_files
from pkm.datasets.delimited import Format, guess

POINTS = [[1.5, 2.0], [3.25, -4.0], [0.125, 6e3]]

pytestmark = pytest.mark.usefixtures("cache")


def write(tmp_path, text, name="points.csv"):
    path = tmp_path / name
    content = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


def error_of(path, **arguments):
    """The one line with which a file is refused."""
    with pytest.raises(ValueError) as refused:
        datasets.load(path=path, **arguments)
    message = str(refused.value)
    assert "\n" not in message
    assert str(path) in message
    return message


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


@pytest.mark.parametrize("name", ["a.tsv", "a.txt", "a.csv.gz", "a.TSV.GZ", "a.txt.gz"])
def test_names_of_text_files(tmp_path, name):
    if name == "a.TSV.GZ":
        (tmp_path / name).write_bytes(gzip.compress(b"x\ty\n1.5\t2\n"))
        path = tmp_path / name
    else:
        path = write(tmp_path, "x\ty\n1.5\t2\n", name)
    assert datasets.load("file", path=path).points.tolist() == [[1.5, 2]]


TABLE = "id,height,city,width\n7,1.5,Rome,2\n3,2.5,Oslo,4\n5,3.5,Rome,6\n"


def test_columns_are_chosen_by_name_in_the_given_order(tmp_path):
    path = write(tmp_path, TABLE)
    dataset = datasets.load(path=path, columns=["width", "height"], bounds=[[0, 0], [9, 5]])
    assert dataset.points.tolist() == [[2, 1.5], [4, 2.5], [6, 3.5]]
    assert dataset.labels is None
    np.testing.assert_array_equal(dataset.domain, [[0, 0], [9, 5]])
    # An identifier that is named is a feature.
    assert datasets.load(path=path, columns=["id"]).points.tolist() == [[7], [3], [5]]


def test_label_is_no_feature(tmp_path):
    path = write(tmp_path, TABLE.replace("id,", "age,"))
    dataset = datasets.load(path=path, label="city")
    assert dataset.points.tolist() == [[7, 1.5, 2], [3, 2.5, 4], [5, 3.5, 6]]
    assert dataset.labels.tolist() == [1, 0, 1]
    assert dataset.labels.dtype == np.int64


def test_columns_without_names_are_numbered(tmp_path):
    path = write(tmp_path, "1,2,3\n4,5,6\n")
    dataset = datasets.load(path=path, columns=[2, 0], label=1)
    assert dataset.points.tolist() == [[3, 1], [6, 4]]
    assert dataset.labels.tolist() == [0, 1]
    # As a command line passes them.
    assert datasets.load(path=path, columns=["2", "0"]).points.tolist() == [[3, 1], [6, 4]]


@pytest.mark.parametrize("suffix", [".parquet", ".npy"])
def test_columns_of_binary_files(tmp_path, suffix):
    path = tmp_path / f"points{suffix}"
    if suffix == ".npy":
        np.save(path, np.array([[1, 2, 3], [4, 5, 6]]))
        columns, label = [1, 2], 0
    else:
        pd.DataFrame({"kind": ["b", "a"], "x": [2, 5], "y": [3, 6]}).to_parquet(path)
        columns, label = ["x", "y"], "kind"
    dataset = datasets.load(path=path, columns=columns, label=label)
    assert dataset.points.tolist() == [[2, 3], [5, 6]]
    assert dataset.labels.tolist() == ([0, 1] if suffix == ".npy" else [1, 0])


def test_archives_hold_one_table_or_a_named_one(tmp_path):
    path = tmp_path / "points.npz"
    np.savez(path, anything=POINTS)
    assert datasets.load(path=path).points.tolist() == POINTS
    np.savez(path, X=POINTS, other=np.zeros((3, 1)), y=["b", "a", "b"])
    dataset = datasets.load(path=path, label="y")
    assert dataset.points.tolist() == POINTS
    assert dataset.labels.tolist() == [1, 0, 1]
    np.savez(path, first=POINTS, second=POINTS)
    assert (
        "of the arrays first, second one of two dimensions should be named data, X or points"
        in (error_of(path))
    )
    np.savez(path, X=POINTS, y=[1, 2])
    assert "labels of shape (2,) should be n=3 classes" in error_of(path, label="y")


def test_fingerprint_depends_on_what_is_chosen(tmp_path):
    path = write(tmp_path, TABLE)
    chosen = [
        {"columns": ["height"]},
        {"columns": ["width"]},
        {"columns": ["height", "width"]},
        {"columns": ["height"], "label": "city"},
    ]
    digests = {datasets.fingerprint(path=path, **arguments) for arguments in chosen}
    assert len(digests) == len(chosen)
    assert datasets.load(path=path, **chosen[3]).fingerprint in digests
    # A tuple and a list choose the same.
    assert datasets.fingerprint(path=path, columns=("height",)) in digests


@pytest.mark.parametrize("argument", ["columns", "label"])
def test_columns_and_label_are_for_files_only(argument):
    with pytest.raises(ValueError, match=f"{argument}='x' goes with the data set 'file' only"):
        datasets.load("iris", **{argument: "x"})


ROWS = "".join(f"{i},{i * i % 7},{i % 3}\n" for i in range(12))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n", "there is a header (a, b) but no point below it"),
        ("", "cannot be read as CSV: it is empty"),
        ("\n  \n", "cannot be read as CSV: it is empty"),
        (TABLE, "column 'id' looks like a row number; choose columns=[height,city,width], or"),
        ("n,a,b\n" + ROWS, "column 'n' looks like a row number; choose columns=[a,b]"),
        (ROWS, "column 0 looks like a row number; choose columns=[1,2]"),
        (
            "age,city,job\n1,Rome,cook\n2,Oslo,cook\n",
            "columns city, job should be numeric; choose columns=[age], or encode them as numbers",
        ),
        ("city\nRome\nOslo\n", "column city should be numeric; encode it as numbers"),
        (
            'a,b\n"1,234,567",5\n"12,345",6\n',
            "column 'a': the value '1,234,567' has separators of thousands; write the digits",
        ),
        (
            "a;b\n1.234,5;1\n2,5;3\n",
            "column 'a': the value '1.234,5' has separators of thousands",
        ),
        ("1,234;2,345\n5,678;1,111\n", "the comma in '1,234' may be a decimal mark or separate"),
        ("a\n1,234\n5,678\n", "the comma in '1,234' may be a decimal mark"),
        ("a;b\n1;2;3\n", "line 2 has 3 fields, the first line has 2"),
        ("a b\n1 2\n3\n", "read as separated by blanks"),
        ("größe,b\n1,2\n".encode("latin-1"), "it is not text in UTF-8"),
    ],
)
def test_wrong_texts_are_refused_with_a_remedy(tmp_path, text, message):
    assert message in error_of(write(tmp_path, text))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"columns": ["heigth"]}, "unknown column 'heigth'; did you mean 'height'?"),
        ({"columns": ["mass"]}, "unknown column 'mass'; known are id, height, city, width"),
        ({"columns": ["width", "width"]}, "should name each column once"),
        ({"columns": []}, "columns=[] should be a list of one column or more"),
        ({"columns": "width"}, "columns='width' should be a list"),
        ({"label": "town"}, "unknown column 'town'"),
        ({"columns": ["city"], "label": "city"}, "unknown column 'city'"),
        ({"columns": ["height", "city"]}, "column city should be numeric; choose columns=[height]"),
    ],
)
def test_wrong_columns_are_refused(tmp_path, arguments, message):
    assert message in error_of(write(tmp_path, TABLE), **arguments)


def test_missing_labels_are_refused(tmp_path):
    path = write(tmp_path, "x,kind\n1,a\n2,\n")
    assert "1 labels are missing" in error_of(path, label="kind")


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
@pytest.mark.parametrize("content", [b"", b"\x93NUMPY damaged", b"PK\x03\x04 damaged", b"text"])
def test_damaged_arrays_are_refused_without_advice(tmp_path, suffix, content):
    message = error_of(write(tmp_path, content, f"points{suffix}"))
    assert f"cannot be read as {suffix[1:].upper()}" in message
    assert "pickle" not in message


def test_arrays_of_objects_are_refused_without_advice(tmp_path):
    path = tmp_path / "points.npz"
    np.savez(path, X=np.array([[1, None]], dtype=object))
    message = error_of(path)
    assert "an array is damaged or holds objects of Python" in message
    assert "pickle" not in message


def test_consecutive_values_alone_are_no_row_numbers(tmp_path):
    # One column of consecutive numbers, and a short one, are points.
    path = write(tmp_path, "\n".join(map(str, range(20))) + "\n")
    assert datasets.load(path=path).points.shape == (20, 1)
    path = write(tmp_path, "x,y\n1,5\n2,7\n3,9\n")
    assert datasets.load(path=path).points.shape == (3, 2)


def test_required_suffixes_are_listed():
    with pytest.raises(ValueError, match=re.escape(", ".join(user_files.SUFFIXES[:-1]))):
        user_files.list_files(None)


def test_parquet_files_of_a_folder_or_a_pattern_are_one_table(tmp_path):
    table = pd.DataFrame(POINTS, columns=["a", "b"])
    # Their order is that of the names.
    for name, part in {"2": table[2:], "10": table[:1], "1b": table[1:2]}.items():
        part.to_parquet(tmp_path / f"{name}.parquet")
    for path in (tmp_path, f"{tmp_path}/*.parquet"):
        loaded = datasets.load(path=path)
        np.testing.assert_array_equal(loaded.points, POINTS)
        assert loaded.fingerprint == datasets.fingerprint(path=path)
    before = datasets.fingerprint(path=tmp_path)
    (table[2:] * 2).to_parquet(tmp_path / "2.parquet")
    assert datasets.fingerprint(path=tmp_path) != before
    single = tmp_path / "single [1].parquet"
    table.to_parquet(single)
    assert len(datasets.load(path=single).points) == 3


def test_parquet_files_of_unequal_columns_are_refused(tmp_path):
    table = pd.DataFrame(POINTS, columns=["a", "b"])
    table.to_parquet(tmp_path / "1.parquet")
    for other in (table.rename(columns={"b": "c"}), table[["b", "a"]], table.astype("float32")):
        other.to_parquet(tmp_path / "2.parquet")
        assert "2.parquet has other columns or types than" in error_of(tmp_path)


@pytest.mark.parametrize("name", ["empty", "empty/*.parquet", "nowhere.csv"])
def test_missing_parquet_files_are_named(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(datasets.DataUnavailable, match="should"):
        datasets.load(path=tmp_path / name)
    assert datasets.obtainable("file", path=tmp_path / name)
