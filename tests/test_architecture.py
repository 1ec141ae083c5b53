"""Pages are short and match the files: docstrings, subpackages, links, the glossary."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = sorted(ROOT.glob("docs/**/*.md"))
PAGES = sorted(ROOT.glob("*.md")) + DOCS
#: Characters of all pages of docs/ together.
MAX_CHARACTERS = 160 * 1024
#: Words of a sentence.
MAX_WORDS = 30
#: Pages written by hand; `make audit` writes the other one.
MADE = ("audit.md", "leaderboard.md")  # by commands
BY_HAND = [page for page in DOCS if page.name not in MADE]
#: Characters of the first sentence of a module's docstring: a line with its quotes.
MAX_SUMMARY = 97
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
#: Modules of the package pkm itself, which every subpackage may import.
SHARED = {
    "arguments",
    "arrow",
    "catalogue",
    "files",
    "names",
    "row_blocks",
    "scalars",
    "schema",
    "source",
    "yaml_files",
}


def section(title):
    """Text of one section of the page on the architecture."""
    return ARCHITECTURE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def source_modules():
    """Python files that git tracks, tests left out."""
    listing = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listing.returncode:
        pytest.skip("not a checkout of git")
    names = [name for name in listing.stdout.splitlines() if not name.startswith("tests/")]
    return [name for name in names if (ROOT / name).exists()]


def run_tree(*arguments):
    """What tools/tree.py prints."""
    command = [sys.executable, str(ROOT / "tools" / "tree.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def sentences(page):
    """Sentences of a page's prose: code, tables and headings are left out."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"```.*?```|<!--.*?-->", " ", text, flags=re.DOTALL)
    lines = [line for line in text.splitlines() if not line.startswith(("|", "#"))]
    prose = re.sub(r"`[^`\n]*`", " ", "\n".join(lines))
    return re.split(r"(?<=[.:;])\s+", prose)


def subpackages():
    """The subpackages of the table with the subpackages that they may import."""
    table = {}
    for line in section("Subpackages").splitlines():
        match = re.match(r"\| `(\w+)/` \|.*\| ([^|]*) \|$", line)
        if match:
            table[match[1]] = set(re.findall(r"`(\w+)`", match[2]))
    return table


def allowed_by_contracts():
    """The subpackages that every subpackage may import, from the contracts of import-linter."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]

    # A layer may import all layers below it.
    layers = []
    for contract in contracts:
        if contract["type"] == "layers" and "pkm.__main__" in contract["layers"]:
            layers += [subpackage_names(layer.split("|")) for layer in contract["layers"]]
    allowed = {}
    lower_subpackages = set()
    for layer in reversed(layers):
        allowed |= dict.fromkeys(layer, frozenset(lower_subpackages))
        lower_subpackages |= layer

    # Some subpackages are forbidden in addition.
    for contract in contracts:
        if contract["type"] == "forbidden":
            forbidden = subpackage_names(contract["forbidden_modules"])
            for subpackage in subpackage_names(contract["source_modules"]):
                allowed[subpackage] = allowed[subpackage] - forbidden

    not_subpackages = {"__main__", "pytest_plugin", "testing", *SHARED}
    return {
        subpackage: imports - not_subpackages
        for subpackage, imports in allowed.items()
        if subpackage not in not_subpackages
    }


def subpackage_names(modules):
    """Names of modules of pkm without the package."""
    return {module.strip().removeprefix("pkm.") for module in modules}


def imported_subpackages(subpackage):
    """Subpackages that the modules of a subpackage import, and parts of pkm itself."""
    imported = set()
    for path in (ROOT / subpackage).rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names if "pkm." in alias.name]
                imported |= {name.split(".")[1] for name in names}
            elif isinstance(node, ast.ImportFrom) and node.module == "pkm":
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pkm."):
                imported.add(node.module.split(".")[1])
    return imported - {subpackage}


@pytest.mark.slow
def test_every_module_begins_with_a_sentence_of_one_line():
    wrong = []
    for name in source_modules():
        docstring = ast.get_docstring(ast.parse((ROOT / name).read_text(encoding="utf-8")))
        first, _, rest = (docstring or "").partition("\n")
        is_sentence = first.endswith(".") and not rest.partition("\n")[0]
        if not (is_sentence and len(first) <= MAX_SUMMARY):
            wrong.append(name)
    assert not wrong, f"docstrings without a first sentence on a line of its own: {wrong}"


def test_tree_prints_every_module_with_its_sentence():
    printed = run_tree().stdout.splitlines()
    modules = [name for name in source_modules() if not name.endswith("__init__.py")]
    assert sum(".py" in line.split()[0] for line in printed) == len(modules)
    assert ["schema.py", "The", "columns"] in [line.split()[:3] for line in printed]


def test_tree_of_one_folder():
    lines = run_tree("privacy").stdout.splitlines()
    assert lines[0].startswith("privacy/ ")
    assert all(line.startswith("  ") for line in lines[1:])


def test_tree_has_help_and_refuses_unknown_folders():
    assert "FOLDER" in run_tree("--help").stdout
    refused = run_tree("nowhere")
    assert refused.returncode == 2
    assert "FOLDER=nowhere" in refused.stderr


def test_architecture_is_short():
    assert len(ARCHITECTURE.splitlines()) <= 200


def test_pages_are_short():
    # Laboratory notes are no pages, and a story is an example from problem to result.
    others = ("stories", "studies")
    pages = [page.read_text(encoding="utf-8") for page in BY_HAND if page.parent.name not in others]
    # Pictures are no prose.
    no_prose = r"<!--.*?-->|!\[.*?\]\(.*?\)"
    sizes = [len(re.sub(no_prose, "", text, flags=re.DOTALL)) for text in pages]
    assert sum(sizes) <= MAX_CHARACTERS


#: Words that make a sentence of privacy.md a promise, or the limit of one.
PROMISE = re.compile(
    r"\b(never|nothing|nobody|no|refuse[sd]?|charge[sd]?|draws?|drawn|holds?|clipped|keyed|private"
    r"|alone)\b"
)


def statements(text):
    """Sentences and rows of tables of a page, each with the comment that follows it."""
    without_code = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    without_headers = re.sub(r"^\|.*\n(?=\|---)|^#.*", "", without_code, flags=re.MULTILINE)
    return re.split(r"(?<=\.)\s+(?!<!--)|(?<=-->)\s+|(?<=\|)\n", without_headers)


def test_promises_name_the_tests_that_hold_them():
    """A comment after each names its tests, or says that it is no promise."""
    text = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")
    files = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    known = set(re.findall(r"^def (test_\w+)", "\n".join(files), re.M))
    comment = re.compile(r"<!-- (no promise|test_\w+(?:, test_\w+)*) -->", re.DOTALL)
    for statement in statements(text):
        prose = re.sub(r"<!--.*?-->|`[^`]*`", "", statement, flags=re.DOTALL)
        found = comment.findall(statement)
        assert found or not PROMISE.search(prose), f"no test is named after: {statement}"
        assert len(found) == statement.count("<!--"), statement
        names = set(re.findall(r"\btest_\w+", " ".join(found)))
        assert names <= known, names - known


@pytest.mark.parametrize("page", BY_HAND, ids=lambda page: str(page.relative_to(ROOT)))
def test_sentences_are_short(page):
    long = [sentence for sentence in sentences(page) if len(sentence.split()) > MAX_WORDS]
    assert not long, f"{page.name}: sentences of more than {MAX_WORDS} words: {long}"


def test_table_of_subpackages_matches_the_contracts():
    table = subpackages()
    assert table.pop("conf") == set()
    assert table == allowed_by_contracts()


@pytest.mark.slow
@pytest.mark.parametrize("subpackage", sorted(subpackages()))
def test_subpackages_import_only_allowed_subpackages(subpackage):
    assert imported_subpackages(subpackage) <= subpackages()[subpackage] | SHARED


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_are_valid(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        path = page.parent / name if name else page
        is_valid = path.exists() and (not anchor or anchor in anchors(path))
        if not is_valid:
            broken.append(target)
    assert not broken, f"{page.name}: broken links {broken}"


def anchors(page):
    """Anchors of a page: its named anchors, and those of its headings."""
    text = page.read_text(encoding="utf-8")
    named_anchors = set(re.findall(r'<a id="([^"]+)">', text))
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    words = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return named_anchors | {word.replace(" ", "-") for word in words}


def test_glossary_has_one_sentence_per_term():
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    meanings = re.findall(r"^\| <a .*?\| (.*) \|$", text, flags=re.MULTILINE)
    assert 0 < len(meanings) <= 40
    for meaning in meanings:
        assert meaning.endswith(".")
        assert ". " not in meaning
