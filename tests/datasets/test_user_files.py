"""People's own files: columns, labels, keyed fingerprints, errors in one line."""

import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from own_files import TABLE, TABLE_POINTS, read_error, write, write_points

from pkm import datasets
from pkm.datasets import user_files

#: Values of the record that is looked for.
CANDIDATES = range(-100, 101)


def write_table(path, last):
    """Write 50 records, of which all but the last are known to everybody."""
    generator = np.random.default_rng(3)
    rows = generator.integers(-100, 101, (49, 1)).ravel().tolist()
    path.write_text("\n".join(str(value) for value in [*rows, last]) + "\n")
    return path


def guesses(published, fingerprint, tmp_path):
    """Return the candidates for the last record whose file has the published fingerprint."""
    path = tmp_path / "guess.csv"
    matches = []
    for value in CANDIDATES:
        write_table(path, value)
        if fingerprint(datasets.FileOptions(path)) == published:
            matches.append(value)
    return matches


def test_published_fingerprint_does_not_confirm_the_last_record(tmp_path, monkeypatch):
    """Who knows all records but one, and this code, cannot try the last one out."""
    path = write_table(tmp_path / "own.csv", 42)
    monkeypatch.setenv("PKM_CACHE", str(tmp_path / "owner"))
    published = datasets.fingerprint("file", datasets.FileOptions(path=path))

    # The attack finds the record with the owner's secret, and without one in the key.
    assert guesses(published, user_files.fingerprint, tmp_path) == [42]
    monkeypatch.setattr(user_files, "keyed_digest", unkeyed_digest)
    without_key = datasets.fingerprint("file", datasets.FileOptions(path=path))
    assert guesses(without_key, user_files.fingerprint, tmp_path) == [42]
    assert guesses(published, user_files.fingerprint, tmp_path) == []

    # It does not with a secret of its own.
    monkeypatch.undo()
    monkeypatch.setenv("PKM_CACHE", str(tmp_path / "other-cache"))
    assert guesses(published, user_files.fingerprint, tmp_path) == []


def unkeyed_digest(content):
    import hashlib

    return hashlib.sha256(content).hexdigest()


def test_fingerprint_of_a_file_stays_with_its_secret(tmp_path, cache, monkeypatch):
    first = write_table(tmp_path / "a.csv", 1)
    copy = write_table(tmp_path / "b.csv", 1)
    before = datasets.fingerprint("file", datasets.FileOptions(path=first))
    assert datasets.fingerprint("file", datasets.FileOptions(path=copy)) == before
    assert datasets.load("file", path=first).fingerprint == before
    (cache / "secret").unlink()
    assert datasets.fingerprint("file", datasets.FileOptions(path=first)) != before


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npy"])
def test_every_format_gives_the_same_points(tmp_path, suffix):
    path = write_points(tmp_path / f"points{suffix}", TABLE_POINTS)
    dataset = datasets.load("file", path=path, bounds=[0, 50], n_clusters=2)
    np.testing.assert_array_equal(dataset.points, TABLE_POINTS)
    np.testing.assert_array_equal(dataset.domain, [[0] * 3, [50] * 3])
    assert (dataset.name, dataset.origin, dataset.n_clusters) == ("file", "file", 2)
    assert dataset.fingerprint == datasets.fingerprint("file", datasets.FileOptions(path=path))
    assert datasets.why_unavailable("file", path=path) is None


def test_fingerprint_of_a_file_depends_on_its_content(tmp_path):
    first = tmp_path / "a.npy"
    second = tmp_path / "b.npy"
    np.save(first, TABLE_POINTS)
    np.save(second, TABLE_POINTS)
    before = datasets.fingerprint("file", datasets.FileOptions(path=first))
    assert before == datasets.fingerprint("file", datasets.FileOptions(path=second))
    np.save(first, TABLE_POINTS + 1)
    assert before != datasets.fingerprint("file", datasets.FileOptions(path=first))


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
    assert "should be an existing file" in datasets.why_unavailable("file", path=missing)

    expected = re.escape("path=None: the data set 'file' needs path=<a .csv, .tsv, ")
    with pytest.raises(ValueError, match=expected):
        datasets.load("file")

    (tmp_path / "points.xls").write_text("1 2")
    expected = (
        r"path='.*points\.xls' should end in one of \.csv, \.tsv, .*, \.parquet, .*\.npy, \.npz"
    )
    with pytest.raises(ValueError, match=expected):
        datasets.load("file", path=tmp_path / "points.xls")


POINTS = [[1.5, 2.0], [3.25, -4.0], [0.125, 6e3]]


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
        in (read_error(path))
    )
    np.savez(path, X=POINTS, y=[1, 2])
    assert "labels of shape (2,) should be n=3 classes" in read_error(path, label="y")


@pytest.mark.parametrize(
    ("label", "groups"), [("y", "who"), ("y", 0), (0, "who"), (0, 1), (None, "who")]
)
def test_labels_and_persons_of_an_archive_are_columns_or_arrays(tmp_path, label, groups):
    path = tmp_path / "points.npz"
    table = np.array([[1, 7, 3, 4], [0, 7, 5, 6], [1, 9, 7, 8]])
    who = np.array([7, 7, 9])
    np.savez(path, X=table, y=["b", "a", "b"], who=who)
    dataset = datasets.load(path=path, label=label, groups=groups)
    taken = [name for name in (label, groups) if isinstance(name, int)]
    np.testing.assert_array_equal(dataset.points, np.delete(table, taken, axis=1))
    assert label is None or dataset.labels.tolist() == [1, 0, 1]
    expected = who if groups != 0 else table[:, 0]
    np.testing.assert_array_equal(dataset.groups, expected)


def test_persons_of_a_table_are_no_feature(tmp_path):
    path = write(tmp_path, TABLE)
    dataset = datasets.load(path=path, label="city", groups="id")
    assert dataset.points.tolist() == [[1.5, 2], [2.5, 4], [3.5, 6]]
    assert dataset.groups.tolist() == ["7", "3", "5"]
    assert dataset.labels.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("header", "groups"),
    [
        ("age,user\n", "user"),
        ("age,user\n", 1),
        ("", 1),
        ("age,user \n", "user "),
        ("age,user \n", 1),
        ('age,"user "\n', 1),
    ],
)
def test_an_id_changes_no_other_persons(tmp_path, header, groups):
    rows = header + "".join(f"{i},{i // 4}\n{i},0{i // 4}\n" for i in range(20))
    expected = datasets.load(path=write(tmp_path, rows), groups=groups).groups
    assert len(set(expected)) == 10
    for last in ("x1", "77", "", "1.5", "2026-01-01"):
        path = write(tmp_path, f"{rows}5,{last}\n")
        found = datasets.load(path=path, groups=groups).groups
        assert found[:-1].tolist() == expected.tolist()


def test_a_null_changes_no_type_of_a_parquet_file(tmp_path):
    ids = pa.array([1, None, 3], pa.int64())
    rows = {"a": pa.array([1, None, 3], pa.int32()), "user": ids}
    pq.write_table(pa.table(rows), tmp_path / "1.parquet")
    pq.write_table(pa.table(rows).slice(2), tmp_path / "2.parquet")
    dataset = datasets.load(path=tmp_path, groups="user")
    np.testing.assert_array_equal(dataset.points, [[1], [np.nan], [3], [3]])
    persons = pa.array(dataset.groups, from_pandas=True)
    assert persons.type == pa.int64()
    assert persons.to_pylist() == [1, None, 3, 3]


def test_fingerprint_depends_on_what_is_chosen(tmp_path):
    path = write(tmp_path, TABLE)
    chosen = [
        {"columns": ["height"]},
        {"columns": ["width"]},
        {"columns": ["height", "width"]},
        {"columns": ["height"], "label": "city"},
    ]
    digests = {
        datasets.fingerprint(file=datasets.FileOptions(path=path, **arguments))
        for arguments in chosen
    }
    assert len(digests) == len(chosen)
    assert datasets.load(path=path, **chosen[3]).fingerprint in digests
    # A tuple and a list choose the same.
    assert (
        datasets.fingerprint(file=datasets.FileOptions(path=path, columns=("height",))) in digests
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"columns": ["heigth"]}, "unknown column 'heigth'; did you mean 'height'?"),
        ({"columns": ["mass"]}, "unknown column 'mass'; known are id, height, city, width"),
        ({"columns": ["width", "width"]}, "should name each column once"),
        ({"columns": []}, "columns=[] should be a list of one column or more"),
        ({"columns": "width"}, "columns='width' should be a list"),
        ({"label": "town"}, "unknown column 'town'"),
        ({"columns": ["city"], "label": "city"}, "should not name the label 'city'"),
        (
            {"columns": ["id", "width"], "groups": "id"},
            "columns=['id', 'width'] should not name the column of persons 'id'",
        ),
        ({"groups": "user"}, "unknown column 'user'"),
        ({"columns": [4]}, "unknown column 4; known are id, height, city, width"),
        ({"columns": [1, "height"]}, "should name each column once"),
        (
            {"columns": ["height", "city"]},
            "column city should be numeric; choose 'columns=[\"height\"]'",
        ),
    ],
)
def test_wrong_columns_are_refused(tmp_path, arguments, message):
    assert message in read_error(write(tmp_path, TABLE), **arguments)


def test_columns_are_chosen_by_number_where_no_name_is_that_number(tmp_path):
    def points(**arguments):
        return datasets.load(path=path, **arguments).points.tolist()

    path = write(tmp_path, "kind,width,height\na,5,1\nb,7,8\n")
    assert points(columns=[2]) == points(columns=["height"]) == [[1], [8]]
    # Numbers are those of the file, label or not.
    assert points(columns=[2], label=0) == [[1], [8]]
    path = tmp_path / "points.parquet"
    pd.DataFrame({"2": [5, 7], "width": [1, 8]}).to_parquet(path)
    assert points(columns=[2]) == [[5], [7]]


def test_missing_labels_are_refused(tmp_path):
    path = write(tmp_path, "x,kind\n1,a\n2,\n")
    assert "labels are missing; give every row a class" in read_error(path, label="kind")
    dataset = datasets.load(path=write(tmp_path, "x,kind\n1,b\n,\n3,a\n"), label="kind")
    assert dataset.labels.tolist() == [1, -1, 0]


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
@pytest.mark.parametrize("content", [b"", b"\x93NUMPY damaged", b"PK\x03\x04 damaged", b"text"])
def test_damaged_arrays_are_refused_without_advice(tmp_path, suffix, content):
    message = read_error(write(tmp_path, content, f"points{suffix}"))
    assert f"cannot be read as {suffix[1:].upper()}" in message
    assert "pickle" not in message


def test_arrays_of_objects_are_refused_without_advice(tmp_path):
    path = tmp_path / "points.npz"
    np.savez(path, X=np.array([[1, None]], dtype=object))
    message = read_error(path)
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
        assert loaded.fingerprint == datasets.fingerprint(file=datasets.FileOptions(path=path))
    before = datasets.fingerprint(file=datasets.FileOptions(path=tmp_path))
    (table[2:] * 2).to_parquet(tmp_path / "2.parquet")
    assert datasets.fingerprint(file=datasets.FileOptions(path=tmp_path)) != before
    single = tmp_path / "single [1].parquet"
    table.to_parquet(single)
    assert len(datasets.load(path=single).points) == 3


def test_parquet_files_of_unequal_columns_are_refused(tmp_path):
    table = pd.DataFrame(POINTS, columns=["a", "b"])
    table.to_parquet(tmp_path / "1.parquet")
    for other in (table.rename(columns={"b": "c"}), table[["b", "a"]], table.astype("float32")):
        other.to_parquet(tmp_path / "2.parquet")
        assert "2.parquet has other columns or types than" in read_error(tmp_path)


@pytest.mark.parametrize("name", ["empty", "empty/*.parquet", "nowhere.csv"])
def test_missing_parquet_files_are_named(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(datasets.DataUnavailable, match="should"):
        datasets.load(path=tmp_path / name)
    assert datasets.why_unavailable("file", path=tmp_path / name)
