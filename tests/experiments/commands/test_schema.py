"""``pkm schema`` drafts the schema of a file from names and types alone."""

import pandas as pd
import pytest
import yaml

from pkm import Schema
from pkm.__main__ import main
from pkm.experiments.commands import schema

TEXT = "user_id;Umsatz;plan;since\n7;12,5;free;1.2.2020\n8;{value};paid;2.3.2021\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_draft_is_completed_by_a_person(folder, capsys):
    (folder / "customers.csv").write_text(TEXT.format(value="99,5"))
    assert main(["schema", "customers.csv"]) == 0
    assert capsys.readouterr().out == "3 columns in customers.yaml; left out: user_id\n"
    path = folder / "customers.yaml"
    draft = path.read_text()
    assert draft.startswith("# Replace every '?' by what is known without the data")
    assert "Umsatz: {kind: number, low: '?', high: '?', decimal: comma}\n" in draft
    with pytest.raises(ValueError, match="columns 'Umsatz', 'plan', 'since' have"):
        Schema.from_yaml(path)
    completed = draft.replace("levels: '?'", "levels: [free, paid]")
    completed = completed.replace("kind: date, low: '?', high: '?'", "kind: flag")
    path.write_text(completed.replace("low: '?', high: '?'", "low: 0, high: 100"))
    assert list(Schema.from_yaml(path).columns) == ["Umsatz", "plan", "since"]


def test_a_file_that_is_missing_is_named(folder, capsys):
    rule = "must be an existing file"
    assert main(["schema", "nowhere.csv"]) == 2
    message = f"error: FILE='nowhere.csv' is not allowed: FILE {rule}\n"
    assert capsys.readouterr().err == message
    assert main(["cluster", "a.csv", "schema=nowhere.yaml", "epsilon=1", "output=a"]) == 2
    message = f"error: schema='nowhere.yaml' is not allowed: schema {rule}\n"
    assert capsys.readouterr().err == message
    assert list(folder.iterdir()) == []


def test_values_do_not_matter(folder):
    for name, value in (("a", "13,25"), ("b", "1000000,5")):
        (folder / f"{name}.csv").write_text(TEXT.format(value=value))
        assert schema.main([f"{name}.csv"]) == 0
    assert (folder / "a.yaml").read_text() == (folder / "b.yaml").read_text()


def test_parquet_files_have_types(folder, capsys):
    table = pd.DataFrame({"größe": [1.5], "since": pd.to_datetime(["2020-01-01"])})
    table.to_parquet(folder / "table.parquet")
    assert schema.main(["table.parquet", "output=my.yaml"]) == 0
    assert "left out: none" in capsys.readouterr().out
    draft = yaml.safe_load((folder / "my.yaml").read_text())
    assert [rule["kind"] for rule in draft.values()] == ["number", "date"]
    assert "größe: " in (folder / "my.yaml").read_text()


def test_a_schema_is_not_overwritten(folder, capsys):
    (folder / "a.csv").write_text("x,y\n1,2\n")
    (folder / "a.yaml").write_text("mine")
    assert schema.main(["a.csv"]) == 2
    assert "a.yaml" in capsys.readouterr().err
    assert (folder / "a.yaml").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "FILE must be one file"),
        (["a.csv", "b.csv"], "FILE must be one file"),
        (["none.csv"], "none.csv"),
        (["commas.csv"], "give decimal=comma, or write 1234 for 1,234"),
        (["commas.csv", "bounds=3"], "option='bounds' is not allowed"),
    ],
)
def test_wrong_requests_are_refused(folder, capsys, words, message):
    (folder / "commas.csv").write_text("a;b\n1,234;x\n")
    assert schema.main(words) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not list(folder.glob("*.yaml"))


def test_a_decimal_mark_is_given(folder):
    (folder / "commas.csv").write_text("a;b\n1,234;x\n")
    assert schema.main(["commas.csv", "decimal=comma"]) == 0
    assert yaml.safe_load((folder / "commas.yaml").read_text())["a"]["decimal"] == "comma"
