"""The registry's file: what is read from it, and what is refused."""

import re
from dataclasses import replace

import pytest

from pkm.datasets import parsers, registry

VALID = """
[tiny]
title = "three points"
n = 3
d = 2
k = 2
parser = "table"
license = "none"
citation = "nobody"
domain = [
  { columns = ["x"], lower = 0, upper = 9, reason = "digits" },
  { columns = ["y"], lower = -1, upper = 1, reason = "signs" },
]
[[tiny.files]]
path = "tiny/tiny.txt"
source = "http://example.org"
"""


def read(tmp_path, text):
    path = tmp_path / "registry.toml"
    path.write_text(text, encoding="utf-8")
    return registry.read_registry(path)


def test_entry_has_bounds_names_and_reasons_per_column(tmp_path):
    (entry,) = read(tmp_path, VALID)
    assert (entry.name, entry.n, entry.d, entry.n_clusters) == ("tiny", 3, 2, 2)
    assert entry.columns == ("x", "y")
    assert entry.domain().tolist() == [[0, -1], [9, 1]]
    assert entry.reasons == ("digits", "signs")
    assert entry.reason == "digits; signs"
    assert entry.parse is parsers.table
    assert entry.files == (registry.File("tiny/tiny.txt", None, source="http://example.org"),)
    assert not (entry.comparison or entry.prescaled or entry.fitted or entry.restricted)


def test_run_of_columns_may_be_counted(tmp_path):
    counted = VALID.replace('["x"]', "1").replace('["y"]', "1")
    (entry,) = read(tmp_path, counted)
    assert entry.columns == ()
    assert entry.upper == (9, 1)


def test_entry_may_be_based_on_another(tmp_path):
    text = VALID + '[other]\nbased_on = "tiny"\nn = 4\narguments = { label = 2 }\n'
    tiny, other = read(tmp_path, text)
    assert replace(other, name="tiny", n=3, parse=tiny.parse) == tiny
    assert other.parse.keywords == {"label": 2}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("license", "licence", "[tiny] key: unknown 'licence'; did you mean 'license'?"),
        ('title = "three points"', "", "[tiny]: title missing"),
        ("n = 3", 'n = "3"', "[tiny]: n='3' should be of type int"),
        ("n = 3", "n = true", "[tiny]: n=True should be of type int"),
        ('"table"', '"tabel"', "[tiny] parser: unknown 'tabel'; did you mean 'table'?"),
        (
            'parser = "table"',
            'parser = "table"\narguments = { lable = 2 }',
            "[tiny] arguments: unknown 'lable'; did you mean 'label'?",
        ),
        ("lower = 0, ", "", "[tiny] domain: lower missing"),
        ("reason =", "reasons =", "[tiny] domain key: unknown 'reasons'; did you mean 'reason'?"),
        ('["x"]', '["x", "z"]', "tiny: bounds of 3 and 3 columns with 3 reasons, d=2"),
        (
            'source = "http://example.org"',
            "",
            "[tiny] files: 'tiny/tiny.txt' should have urls or a source",
        ),
        ("source", "url", "[tiny] files key: unknown 'url'; did you mean 'urls'?"),
        ("[[tiny.files]]", "[tiny.files]", "[tiny]: files="),
        ("[tiny]", "[tiny", "Expected ']'"),
        ('title = "three', 'based_on = "tinny"\ntitle = "three', "did you mean 'tiny'?"),
    ],
)
def test_wrong_file_is_refused(tmp_path, old, new, message):
    text = VALID.replace(old, new, 1)
    assert text != VALID
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        read(tmp_path, text)
    assert str(refused.value).startswith(str(tmp_path / "registry.toml"))


def test_domain_of_embeddings_is_the_clipping_of_their_network():
    trained = [entry for entry in registry.ENTRIES if entry.trained]
    assert len(trained) == 2
    for entry in trained:
        assert entry.d == entry.trained.dimensions
        assert set(entry.lower) == {0.0}
        assert set(entry.upper) == {entry.trained.upper}


def test_every_entry_says_what_it_is():
    titles = [entry.title for entry in registry.ENTRIES]
    assert all(titles)
    assert len(set(titles)) == len(titles)
    assert max(map(len, titles)) <= 70
