"""The pages of the project say what is there: the tree, the table of rooms, links, the glossary."""

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/*.md"))
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SHARED = {"files", "source"}  # of the package pkm itself: every room may import them


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
    """Files that git tracks and that are there."""
    listing = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listing.returncode:
        pytest.skip("not a checkout of git")
    return [Path(name) for name in listing.stdout.splitlines() if (ROOT / name).exists()]


def rooms():
    """Each room of the table with the rooms that it may import."""
    table = {}
    for line in section("Rooms").splitlines():
        match = re.match(r"\| `(\w+)/` \|.*\| ([^|]*) \|$", line)
        if match:
            table[match[1]] = set(re.findall(r"`(\w+)`", match[2]))
    return table


def allowed_by_contracts():
    """What each room may import, from the contracts of import-linter."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    names = [
        [name.strip().removeprefix("pkm.") for name in layer.split("|")]
        for contract in contracts
        if contract["type"] == "layers"
        for layer in contract["layers"]
    ]
    allowed = {}
    for number, layer in enumerate(names):
        below = {name for lower in names[number + 1 :] for name in lower}
        allowed |= dict.fromkeys(layer, below)
    for contract in contracts:
        if contract["type"] == "forbidden":
            forbidden = {name.removeprefix("pkm.") for name in contract["forbidden_modules"]}
            for source in contract["source_modules"]:
                room = source.removeprefix("pkm.")
                allowed[room] = allowed[room] - forbidden
    parts = {"__main__", *SHARED}
    return {room: others - parts for room, others in allowed.items() if room not in parts}


def imported_rooms(room):
    """Rooms that the modules of a room import, and parts of pkm itself."""
    found = set()
    for path in (ROOT / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[1] for alias in node.names if "pkm." in alias.name}
            elif isinstance(node, ast.ImportFrom) and node.module == "pkm":
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pkm."):
                found.add(node.module.split(".")[1])
    return found - {room}


def test_every_path_of_the_tree_exists():
    missing = [path for path in paths_in_tree() if not (ROOT / path).exists()]
    assert not missing, f"docs/architecture.md names paths that do not exist: {missing}"


def test_the_tree_names_every_folder_and_every_module():
    expected = set()
    for path in tracked_files():
        expected |= {f"{folder}/" for folder in list(path.parents)[-3:-1]}
        is_listed = path.suffix in {".py", ".md", ".yaml", ".csv"} and path.name != "__init__.py"
        if len(path.parts) == 2 and is_listed:
            expected.add(str(path))
    named = paths_in_tree()
    assert len(named) == len(set(named))
    assert not expected - set(named), f"docs/architecture.md lacks {sorted(expected - set(named))}"


def test_rooms_are_those_of_the_contracts():
    table = rooms()
    assert table.pop("conf") == set()
    assert table == allowed_by_contracts()


@pytest.mark.parametrize("room", sorted(rooms()))
def test_rooms_import_what_their_row_names(room):
    assert imported_rooms(room) <= rooms()[room] | SHARED


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        path = page.parent / name if name else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            broken.append(target)
    assert not broken, f"{page.name}: broken links {broken}"


def anchors(page):
    """Anchors of a page: named ones, and those of its headings."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)">', text))


def test_the_glossary_has_one_sentence_a_term():
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    meanings = re.findall(r"^\| <a .*?\| (.*) \|$", text, flags=re.MULTILINE)
    assert 0 < len(meanings) <= 30
    for meaning in meanings:
        assert meaning.endswith(".")
        assert ". " not in meaning
