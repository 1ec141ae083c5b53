"""The examples of docs/enter.md are built, installed, entered and verified."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pkm.arena.checks import check_files
from pkm.arena.entry import read_entry, read_rows
from pkm.arena.leaderboard import read_scores
from pkm.arena.phases import build
from pkm.catalogue import add_config_dirs

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
def copied(tmp_path):
    """Copy the examples out of the repository."""
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    return tmp_path


def run(folder, *words, installed=None):
    """Run a command, and return what it prints."""
    path = [installed, os.environ.get("PYTHONPATH")]
    completed = subprocess.run(
        [sys.executable, "-m", *map(str, words)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


def enter(folder, name, *options, installed=None):
    """Enter a method in the tiny suite, and verify its entry."""
    words = ("pkm", "submit", *options, name, "suite=tiny", "stage=full", "by=Ada")
    run(folder, *words, installed=installed)
    # A verifier has the folder alone.
    shutil.rmtree(folder / "examples")
    entry = folder / "entries" / f"tiny-full-{name}"
    verified = run(folder, "pkm", "arena", "verify", entry)
    assert ": verified; " in verified
    return entry


def test_a_package_is_built_installed_and_entered(copied):
    options = ("--no-deps", "--no-build-isolation", "--target", "installed")
    run(copied, "pip", "install", "--quiet", *options, "examples/own_method")
    installed = str(copied / "installed")
    folder = enter(copied, "own_method", installed=installed)
    entry = read_entry(folder)
    assert entry.problems == []
    assert entry.submitter == "Ada"
    # It is on no index.
    assert entry.package == ""
    assert [path.name for path in (folder / "source").iterdir()] == ["own_method.py"]
    assert set(read_rows(folder)["method"]) == {"own_method", "kmeans"}


def test_a_program_is_entered_with_its_own_claim(copied):
    folder = enter(copied, "own_program", "--config-dir", "examples/own_program")
    entry = read_entry(folder)
    assert entry.problems == []
    assert (folder / "source" / "program" / "centers.py").is_file()
    terms = {"notion": "pure", "adjacency": "add_remove", "unit": "row"}
    assert entry.claimed == terms | {"epsilon": 1.0, "delta": 0.0}
    assert entry.audit is None
    page = (folder / "README.md").read_text()
    assert "| the program says | notion pure, adjacency add_remove, unit row, " in page
    rows = read_rows(folder)
    assert set(rows["notion"]) == {"none"}
    (line,) = read_scores([folder])[0].to_dict("records")
    assert terms.items() <= line.items()
    assert line["audit"] == "no audit"
    # A start of an interpreter alone takes more time than k-means.
    assert line["cpu_ratio"] > 1

    # Another program is another method.
    program = folder / "source" / "program" / "centers.py"
    with add_config_dirs([str(program.parent)]):
        build(entry.method).check_parameters()
        program.write_text(program.read_text() + "# changed\n")
        with pytest.raises(ValueError, match=r"^digest="):
            build(entry.method).check_parameters()
    (finding,) = check_files(entry, folder)
    assert "centers.py: the file is not the one" in finding
