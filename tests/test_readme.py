"""The README is short; commands and examples of pages run; counts agree between pages."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from pkm import methods
from pkm.experiments.commands import run

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
QUICK_START = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
MAX_WORDS = 600


def blocks(page, language=""):
    """The code blocks of a page."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [block for block_language, block in found if block_language == language]


def commands(program):
    """Commands of both pages, as lists of words."""
    lines = "".join(blocks(README) + blocks(QUICK_START)).splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    return [line for line in words if line and Path(line[0]).name == program]


def counts(page):
    """Paper and profile to the eight numbers of a row, which is quick if it does not say."""
    row = r"^\| \[([\w-]+)\]\(.*?\) \|(?: (quick|paper) \|)?((?: \d+ \|){8})"
    return {
        (paper, profile or "quick"): [int(number) for number in re.findall(r"\d+", cells)]
        for paper, profile, cells in re.findall(row, page, re.MULTILINE)
    }


def one_job(words):
    """Words of one of the jobs of a sweep: the first of the values between commas."""
    words = [word for word in words if word != "-m" and "glob(" not in word]
    return [re.sub(r"^([\w./]+=[^\[,]+),.*", r"\1", word) for word in words]


def test_readme_is_short():
    text = re.sub(r"\]\([^)]*\)", "]", README)
    words = [word for word in text.split() if re.search(r"\w", word)]
    assert len(words) <= MAX_WORDS


def test_make_knows_the_targets():
    for words in commands("make"):
        made = subprocess.run(
            ["make", "--dry-run", *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert made.returncode == 0, made.stderr


def test_runs_compose(capsys):
    runs = [words[2:] for words in commands("pkm") if words[1] == "run"]
    assert len(runs) > 5
    for words in runs:
        code = run.main([*one_job(words), "--cfg", "job"])
        assert code == 0, (words, capsys.readouterr().err)


@pytest.mark.integration
def test_sweep_of_the_readme_runs(tmp_path, capsys):
    (words,) = [words for words in commands("pkm") if "kmeans,fastlloyd" in " ".join(words)]
    assert run.main([*words[2:], f"results={tmp_path}"]) == 0
    assert capsys.readouterr().out.count("synopsis") == 2


@pytest.mark.parametrize("page", [README, QUICK_START], ids=["README", "quick start"])
def test_python_example_runs(page):
    (example,) = blocks(page, "python")
    variables = {}
    exec(example, variables)
    assert len(variables["model"].cluster_centers_) == variables["model"].n_clusters


#: Other pages with examples. extending.md has a test of its own, and schema.md needs results.
EXAMPLES = [
    path
    for path in sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "stories").glob("*.md")])
    if path.stem not in ("index", "extending", "schema")
    and blocks(path.read_text(encoding="utf-8"), "python")
]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_of_other_pages_print_something(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (example,) = blocks(path.read_text(encoding="utf-8"), "python")
    exec(example, {})
    assert capsys.readouterr().out
    if path.parent.name == "stories":
        # The picture of the page is drawn by its code: copy it to docs/figures/stories.
        stored = ROOT / "docs" / "figures" / "stories" / f"{path.stem}.png"
        assert f"](../figures/stories/{stored.name})" in path.read_text(encoding="utf-8")
        assert stored.stat().st_size < 150_000
        drawn, kept = (Image.open(file).size for file in (tmp_path / stored.name, stored))
        assert drawn == kept


def test_counts_of_claims_agree():
    overview = counts((ROOT / "docs" / "results.md").read_text(encoding="utf-8"))
    quick = {key: numbers for key, numbers in overview.items() if "quick" in key}
    assert len(quick) == 6
    assert counts(README) == quick
    for (name, profile), numbers in overview.items():
        page = ROOT / "docs" / "papers" / f"{name.lower().replace('dist-dp', 'distdp')}.md"
        row = f"| {profile} | " + " | ".join(map(str, numbers)) + " |"
        assert row in page.read_text(encoding="utf-8").splitlines()
        assert sum(numbers[1:]) == numbers[0]


def test_api_page_has_every_method():
    page = (ROOT / "docs" / "api" / "methods.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^::: pkm\.methods\.([\w.]+)$", page, re.MULTILINE))
    classes = methods.METHODS | methods.CONTRACT
    paths = {f"{module}.{name}" for name, module in classes.items()}
    released = {"released.ReleasedModel", "released.load", "statement.Statement"}
    answers = {"synthetic.released_synopsis.ReleasedSynopsis"}
    assert documented == paths | released | answers | {"load_method", "synthetic.price"}
