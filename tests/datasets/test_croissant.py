"""Croissant metadata: what it says of files and columns is what the registry says."""

import json

import pytest

import pkm
from pkm.datasets.__main__ import main
from pkm.datasets.croissant import CONFORMS_TO, describe, is_direct
from pkm.datasets.registry import ENTRIES, find
from pkm.datasets.sources import File

DECLARED = [entry for entry in ENTRIES if all(file.sha256 for file in entry.files)]


@pytest.mark.parametrize("entry", DECLARED, ids=lambda entry: entry.name)
def test_files_have_their_hashes_and_columns_their_bounds(entry):
    described = json.loads(json.dumps(describe(entry)))
    assert described["conformsTo"] == CONFORMS_TO
    assert described["version"] == pkm.__version__
    assert described["name"] == entry.name
    assert described["license"] == entry.license
    found = {each["@id"]: each["sha256"] for each in described["distribution"]}
    assert found == {file.path: file.sha256 for file in entry.files}
    for file, each in zip(entry.files, described["distribution"], strict=True):
        # An address is named only where these very bytes are.
        assert each["contentUrl"] in [
            file.path,
            *filter(lambda url: is_direct(file, url), file.urls),
        ]
    bounds = {(each["minValue"], each["maxValue"]) for each in described["variableMeasured"]}
    assert bounds == set(zip(entry.lower, entry.upper, strict=True))
    if entry.columns:
        assert [each["name"] for each in described["variableMeasured"]] == list(entry.columns)


def test_an_archive_is_no_address_of_its_member():
    file = File("a/a.txt", "0" * 64, urls=("https://x.example/a.zip", "https://x.example/a.txt"),
                member="a.txt")  # fmt: skip
    assert [is_direct(file, url) for url in file.urls] == [False, True]


def test_the_command_writes_one_file_or_a_folder(tmp_path, capsys, cache):
    assert main(["croissant", "iris"]) == 0
    assert json.loads(capsys.readouterr().out) == describe(find("iris"))
    assert main(["croissant", "s1", "--out", str(tmp_path / "s1.json")]) == 0
    assert json.loads((tmp_path / "s1.json").read_text()) == describe(find("s1"))
    capsys.readouterr()
    assert main(["croissant", "--out", str(tmp_path / "all")]) == 0
    written = {path.stem for path in (tmp_path / "all").glob("*.json")}
    assert written == {entry.name for entry in DECLARED}
    # Without a hash there is no metadata; the others are written all the same.
    assert capsys.readouterr().out.count("is left out") == len(ENTRIES) - len(DECLARED)


def test_an_unknown_name_is_refused_in_one_line(capsys):
    assert main(["croissant", "iriss"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "did you mean 'iris'?" in line
