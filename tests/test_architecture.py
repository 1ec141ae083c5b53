"""The project's pages match its files: the tree, the table of subpackages, links, the glossary."""

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/**/*.md"))
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
#: Modules of the package pkm itself, which every subpackage may import.
SHARED = {"arguments", "arrow", "files", "names", "row_blocks", "scalars", "schema", "source"}


def section(title):
    """Text of one section of the page on the architecture."""
    return ARCHITECTURE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def paths_in_tree():
    """Paths that the printed tree names, folders with a slash at their end."""
    lines = section("Tree").split("```")[1].strip("\n").split("\n")
    paths = []
    folder = ""
    for line in lines:
        name = line.split()[0]
        if not line.startswith(" "):
            folder = name if name.endswith("/") else ""
            paths.append(name)
        else:
            paths.append(folder + name)
    return paths


def tracked_files():
    """Existing files that git tracks."""
    listing = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listing.returncode:
        pytest.skip("not a checkout of git")
    names = listing.stdout.splitlines()
    return [Path(name) for name in names if (ROOT / name).exists()]


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

    not_subpackages = {"__main__", *SHARED}
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


def test_paths_of_the_tree_exist():
    missing = [path for path in paths_in_tree() if not (ROOT / path).exists()]
    assert not missing, f"docs/architecture.md names paths that do not exist: {missing}"


def test_tree_names_every_folder_and_module():
    expected = set()
    for path in tracked_files():
        expected |= {f"{folder}/" for folder in list(path.parents)[-3:-1]}
        is_source = path.suffix in {".py", ".md", ".yaml", ".csv", ".toml"}
        is_listed = is_source and not path.name.startswith(("__init__", "."))
        if len(path.parts) == 2 and is_listed:
            expected.add(str(path))
    named = paths_in_tree()
    assert len(named) == len(set(named))
    missing = expected - set(named)
    assert not missing, f"missing in docs/architecture.md: {sorted(missing)}"


def test_table_of_subpackages_matches_the_contracts():
    table = subpackages()
    assert table.pop("conf") == set()
    assert table == allowed_by_contracts()


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
    assert 0 < len(meanings) <= 30
    for meaning in meanings:
        assert meaning.endswith(".")
        assert ". " not in meaning
