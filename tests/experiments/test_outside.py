"""What docs/extending.md adds works outside the repository, as the page says."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pkm.__main__ import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "examples" / "own_method"

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def block(language, name):
    """Return the page's block of code that begins with the name of a file."""
    (code,) = re.findall(rf"^```{language}\n# {name}\n(.*?)^```", PAGE, re.M | re.S)
    return code


@pytest.fixture
def folder(tmp_path):
    """Return a folder with the page's method and paper."""
    for file in EXAMPLE.glob("*.py"):
        shutil.copy(file, tmp_path)
    paper = tmp_path / "my_conf" / "paper" / "demo"
    paper.mkdir(parents=True)
    for file in ("sweeps.yaml", "figures.yaml", "claims.yaml"):
        (paper / file).write_text(block("yaml", f"my_conf/paper/demo/{file}"))
    return tmp_path


def pkm(folder, *words):
    command = [sys.executable, "-m", "pkm", *words]
    completed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


def test_a_query_is_checked(folder):
    (folder / "my_query.py").write_text(block("python", "my_query.py"))
    lines = pkm(folder, "check", "my_query:FullerHalf").splitlines()
    assert len(lines) >= 5
    assert {line.split()[-1] for line in lines} == {"ok"}


def test_a_sensitivity_that_is_too_small_is_refused(folder, monkeypatch, capsys):
    code = block("python", "my_query.py")
    understated = code.replace("entries_sensitivity(source.n_features)", "entries_sensitivity(1)")
    understated = understated.replace("curator.n_features * SCALE", "SCALE")
    (folder / "understated_query.py").write_text(understated)
    monkeypatch.syspath_prepend(folder)
    assert main(["check", "understated_query:FullerHalf"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines if "FAILED" in line] == ["check_replay"]


def test_a_method_is_run(folder):
    words = ("run", "-m", "method=mean,own_method:OwnMethod", "dataset=iris", "seeds=2")
    printed = pkm(folder, *words)
    assert "ownmethod" in printed
    assert "mean " in printed


def test_the_test_of_the_method_passes(folder):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_own_method.py"]
    completed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    audited = pkm(folder, "audit", "own_method:OwnMethod", "pairs=8")
    assert "replay consistent  residuals consistent" in audited


def test_a_data_set_is_run_by_its_name(folder):
    (folder / "my_conf" / "datasets.toml").write_text(block("toml", "my_conf/datasets.toml"))
    stays = "age,days\n30,3\n31,2\n29,4\n80,14\n77,12\n79,15\n"
    (folder / "my_conf" / "stays.csv").write_text(stays)
    sweeps = folder / "my_conf" / "paper" / "demo" / "sweeps.yaml"
    sweeps.write_text(sweeps.read_text().replace("wine", "stays"))
    (command,) = re.findall(r"`pkm (run --config-dir my_conf dataset=\S+)`", PAGE)
    assert " stays " in pkm(folder, *command.split(), "method=eugkm", "seeds=2")
    words = ("reproduce", "--config-dir", "my_conf", "paper=demo", "profile=smoke")
    assert "0 failed" in pkm(folder, *words, "tracking=none")
    page = folder / "results" / "reports" / "demo-smoke" / "index.html"
    assert "stays" in page.read_text(encoding="utf-8")


def test_a_paper_is_reported(folder):
    words = ("reproduce", "--config-dir", "my_conf", "paper=demo", "profile=smoke")
    printed = pkm(folder, *words, "tracking=none")
    assert "0 failed" in printed
    page = folder / "results" / "reports" / "demo-smoke" / "index.html"
    text = page.read_text(encoding="utf-8")
    assert "NICV over the privacy budget" in text
    assert "ownmethod" in text
    assert (page.parent / "figures" / "budget.png").is_file()
