"""What docs/extending.md adds works outside the repository, as the page says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def block(language, name):
    """Return the page's block of code that begins with the name of a file."""
    (code,) = re.findall(rf"^```{language}\n# {name}\n(.*?)^```", PAGE, re.M | re.S)
    return code


@pytest.fixture
def folder(tmp_path):
    """Return a folder with the page's method and paper."""
    (tmp_path / "my_methods.py").write_text(block("python", "my_methods.py"))
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


def verdicts(folder, name):
    lines = pkm(folder, "check", name).splitlines()
    assert len(lines) >= 5
    return {line.split()[-1] for line in lines}


def test_a_query_is_checked(folder):
    (folder / "my_query.py").write_text(block("python", "my_query.py"))
    assert verdicts(folder, "my_query:FullerHalf") == {"ok"}


def test_a_sensitivity_that_is_too_small_is_refused(folder):
    code = block("python", "my_query.py")
    understated = code.replace("entries_sensitivity(source.n_features)", "entries_sensitivity(1)")
    understated = understated.replace("curator.n_features * SCALE", "SCALE")
    (folder / "my_query.py").write_text(understated)
    command = [sys.executable, "-m", "pkm", "check", "my_query:FullerHalf"]
    completed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert completed.returncode == 1
    failed = [line.split()[1] for line in completed.stdout.splitlines() if "FAILED" in line]
    assert failed == ["check_replay"]


def test_a_method_is_checked_and_run(folder):
    assert verdicts(folder, "my_methods:NoisyMean") == {"ok"}
    words = ("run", "-m", "method=mean,my_methods:NoisyMean", "dataset=iris", "seeds=2")
    printed = pkm(folder, *words)
    assert "noisymean" in printed
    assert "mean " in printed


def test_the_test_of_the_method_passes(folder):
    (code,) = re.findall(r"^```python\n(import pytest\n.*?)^```", PAGE, re.M | re.S)
    (folder / "test_mine.py").write_text(code)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"]
    completed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    audited = pkm(folder, "audit", "my_methods:NoisyMean", "pairs=8")
    assert "replay consistent  residuals consistent" in audited


def test_a_paper_is_reported(folder):
    words = ("reproduce", "--config-dir", "my_conf", "paper=demo", "profile=smoke")
    printed = pkm(folder, *words, "tracking=none")
    assert "0 failed" in printed
    page = folder / "results" / "reports" / "demo-smoke" / "index.html"
    text = page.read_text(encoding="utf-8")
    assert "NICV over the privacy budget" in text
    assert "noisymean" in text
    assert (page.parent / "figures" / "budget.png").is_file()
