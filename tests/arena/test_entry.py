"""Folders of entries: written whole or not at all, and refused in a line when they are read."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pkm.arena.entry import (
    COLUMNS,
    copy_source,
    list_files,
    read_entry,
    read_rows,
    write_entry,
    write_folder,
)


def test_a_folder_appears_whole(tmp_path):
    target = tmp_path / "entries" / "mine"
    with write_folder(target) as folder:
        (folder / "file").write_text("x")
        assert not target.exists()
    assert [path.name for path in target.iterdir()] == ["file"]
    assert list(target.parent.iterdir()) == [target]


def test_a_failure_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError), write_folder(tmp_path / "mine") as folder:
        (folder / "file").write_text("x")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_an_entry_is_not_overwritten(tmp_path):
    (tmp_path / "mine").mkdir()
    refusal = pytest.raises(FileExistsError, match="an entry is not overwritten")
    with refusal, write_folder(tmp_path / "mine"):
        pytest.fail("nothing is run")


def test_an_entry_is_read_as_it_was_written(make_copy):
    folder = make_copy("sulloyd")
    entry = read_entry(folder)
    write_entry(entry, folder)
    assert read_entry(folder) == entry
    assert entry.name == "sulloyd"
    assert set(entry.files) == {"README.md", "ro-crate-metadata.json", "rows.parquet"}


def test_an_entry_is_read_without_this_project(make_copy):
    folder = make_copy("sulloyd")
    table = pq.read_table(folder / "rows.parquet")
    assert {*COLUMNS} <= {*table.column_names}
    content = json.loads((folder / "entry.json").read_text())
    assert content["audit"]["verdicts"] == {"replay": "consistent", "residuals": "consistent"}
    crate = json.loads((folder / "ro-crate-metadata.json").read_text())
    assert "rows.parquet" in {line["@id"] for line in crate["@graph"]}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(lambda entry: entry.pop("stage"), "'stage'", id="no key"),
        pytest.param(lambda entry: entry["method"].pop("name"), "'name'", id="no name"),
        pytest.param(lambda entry: entry.update(method=None), "NoneType", id="no method"),
        pytest.param(lambda entry: entry["method"].update(name=3), "name=3", id="number"),
    ],
)
def test_what_is_no_entry_is_refused(make_copy, change, reason):
    folder = make_copy("sulloyd")
    path = folder / "entry.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"entry\.json is no entry of the arena: ") as refused:
        read_entry(folder)
    assert reason in str(refused.value)


@pytest.mark.parametrize("content", ["", "{", "[1, 2]", "{}"])
def test_a_damaged_entry_is_refused(tmp_path, content):
    (tmp_path / "entry.json").write_text(content)
    with pytest.raises(ValueError, match="is no entry of the arena"):
        read_entry(tmp_path)


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param({"nicv": ["a text"]}, id="type"),
        pytest.param({"unknown": [1.0]}, id="unknown"),
        pytest.param({"nicv": [1.0]}, id="missing"),
    ],
)
def test_rows_of_another_schema_are_refused(tmp_path, columns):
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match=r"rows\.parquet cannot be read: column "):
        read_rows(tmp_path, COLUMNS)


def test_all_files_but_two_are_listed(tmp_path):
    for name in ("entry.json", "verification.json", "a/__pycache__/b.pyc", "c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    assert list(list_files(tmp_path)) == ["a/__pycache__/b.pyc", "c"]


def test_files_are_copied_by_their_names_in_the_source(tmp_path):
    names = ["package/__init__.py", "package/sub/module.py", "program/run.sh"]
    files = {name: tmp_path / name.replace("/", "-") for name in names}
    for name, path in files.items():
        path.write_text(name)
    copy_source(files, tmp_path / "entry")
    for name in names:
        assert (tmp_path / "entry" / "source" / name).read_text() == name
