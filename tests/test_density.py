"""What tools/density.py counts, and what it refuses."""

import subprocess
import sys
from pathlib import Path

import density
import pytest

TEXT = '''"""A module
of two lines."""

import os  # for its separator


def join(names):
    """Join names."""
    # Empty names count.
    text = """two
lines"""
    return os.sep.join([*names, text])
'''


def test_a_file_is_counted(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(TEXT)
    row = density.summarize([path])
    assert row["files"] == 1
    # import os | def join ( names ) : | text = "" | return os . sep . join ( [ * names , text ] )
    assert row["tokens"] == 2 + 6 + 3 + 14
    # Strings that go on are lines of their start.
    assert row["code lines"] == 4
    assert row["tokens/line"] == 25 / 4
    assert row["comments %"] == pytest.approx(100 * 2 / 9)
    assert row["docstrings %"] == pytest.approx(100 * 3 / 9)
    assert row["function p50"] == row["p90"] == 6
    assert row["> 60 %"] == 0


def test_long_functions_are_counted(tmp_path):
    path = tmp_path / "module.py"
    path.write_text("def long():\n" + "    pass\n" * 60)
    assert density.summarize([path])["> 60 %"] == 100


def test_an_empty_file_has_no_density(tmp_path):
    path = tmp_path / "module.py"
    path.write_text("")
    assert density.summarize([path])["tokens/line"] == 0


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A checkout with one room, whose rules a test writes."""
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "room").mkdir()
    for module in (density, sys.modules["import_graph"]):
        monkeypatch.setattr(module, "ROOT", tmp_path)

    def write(rules, **modules):
        (tmp_path / "pyproject.toml").write_text(f"[tool.density]\n{rules}\n")
        for name, text in modules.items():
            (tmp_path / "room" / f"{name}.py").write_text(text)

    return write


RULES = "room = { max_tokens = 8, min_comments = 5 }"


@pytest.mark.parametrize(
    ("modules", "violations"),
    [
        pytest.param({"good": "x = 1  # one\n"}, [], id="none"),
        pytest.param(
            {"dense": "x = [1, 2, 3]  # three\n"},
            ["room: 9.00 tokens a line; at most 8"],
            id="dense",
        ),
        pytest.param({"mute": "x = 1\n"}, ["room: 0.00 % comments; at least 5"], id="comments"),
        pytest.param(
            {f"m{i}": "x = 1  # one\n" for i in range(21)},
            ["room: 21 modules; at most 20 in a folder"],
            id="large",
        ),
        pytest.param(
            {
                "a": "import pkm.room.b  # b\n",
                "b": "def f():  # late\n    import pkm.room.a\n",
            },
            ["room: import cycle: pkm.room.a pkm.room.b"],
            id="cycle",
        ),
    ],
)
def test_a_broken_rule_is_one_line(repository, capsys, modules, violations):
    repository(RULES, **modules)
    assert density.main(["--check"]) == int(bool(violations))
    assert capsys.readouterr().out.splitlines() == (violations or ["[tool.density] holds"])


def test_comments_are_checked_where_they_are_listed_only(repository):
    repository("room = { max_tokens = 8 }", mute="x = 1\n")
    assert density.main(["--check"]) == 0


def test_a_room_that_is_not_there_is_refused(repository):
    repository("attic = { max_tokens = 8 }", good="x = 1\n")
    with pytest.raises(SystemExit, match="folder 'attic' has no Python file"):
        density.main(["--check"])


def test_files_have_rows_of_their_own(repository, capsys):
    repository("", dense="x = [1, 2, 3]\n", other="x = 1\n")
    assert density.main(["room", "--files"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["room/dense.py", "1", "9", "1", "9"] in [row[:5] for row in rows]


def test_pages_are_weighed(repository, tmp_path, capsys):
    repository("", good="x = 1\n")
    (tmp_path / "docs").mkdir()
    long = " ".join(["word"] * 31)
    page = f"# {long}\n\n| {long} |\n\n```\n{long}\n```\n\n{long}. {long[5:]}.\n"
    (tmp_path / "docs" / "page.md").write_text(page)
    assert density.main([]) == 0
    assert "pages: 0 KB, 1 sentences of more than 30 words" in capsys.readouterr().out


def test_help_is_printed():
    program = Path(density.__file__)
    done = subprocess.run(
        [sys.executable, program, "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "--check" in done.stdout
