"""Imports between the modules of ``pkm``, read from their syntax trees.

Nothing is executed. Imports inside functions count, because they can hide a cycle.
"""

import ast
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "pkm"
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef

#: Modules that each module imports.
Graph = dict[str, set[str]]


@dataclass(frozen=True)
class Import:
    """One module imports another.

    Attributes
    ----------
    source, target : str
        Dotted names; the source has the import statement.
    in_function : bool
        Whether the statement is inside a function.
    """

    source: str
    target: str
    in_function: bool


def list_files(*patterns: str) -> list[Path]:
    """Return the repository's files that match; neither links nor ignored files."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    names = sorted(listing.stdout.splitlines())
    paths = [ROOT / name for name in names]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


@cache
def parse(path: Path) -> ast.Module:
    """Parse a Python file, once."""
    return ast.parse(path.read_text(encoding="utf-8"))


def read_modules() -> dict[str, Path]:
    """Return the files of all modules of the package by their dotted names."""
    modules = {}
    for path in list_files("*.py"):
        folder, *names = path.relative_to(ROOT).with_suffix("").parts
        if folder in ("tests", "tools"):
            continue
        # The top-level folders are linked into the package's own.
        parts = [folder, *names]
        if folder != PACKAGE:
            parts.insert(0, PACKAGE)
        if parts[-1] == "__init__":
            parts.pop()
        modules[".".join(parts)] = path
    return modules


def read_imports() -> list[Import]:
    """Return all imports between modules of the package."""
    modules = read_modules()
    imports = []
    for source, path in modules.items():
        for node, in_function in walk_statements(parse(path)):
            for name in list_imported_names(node):
                # The name is a module, or something that a module defines.
                owner = name.rpartition(".")[0]
                target = name if name in modules else owner
                if target in modules and target != source:
                    imports.append(Import(source, target, in_function))
    return imports


def walk_statements(
    node: ast.AST,
    in_function: bool = False,
) -> Iterator[tuple[ast.AST, bool]]:
    """Yield a node and all statements in it, and whether a function has them.

    Expressions hold no statements.
    """
    yield node, in_function
    in_function |= isinstance(node, FUNCTIONS)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from walk_statements(child, in_function)


def list_imported_names(node: ast.AST) -> list[str]:
    """List the dotted names that a statement imports; none of another statement."""
    if not isinstance(node, ast.Import | ast.ImportFrom):
        return []
    prefix = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
    return [prefix + alias.name for alias in node.names]


def make_graph(imports: Sequence[Import]) -> Graph:
    """Return the modules that each module imports.

    Packages are left out. ``pkm.methods`` imports its modules to re-export their names,
    so every import of such a name inside the package would be a cycle.
    """
    modules = read_modules()
    graph: Graph = {
        name: set() for name, path in modules.items() if path.stem != "__init__"
    }
    for item in imports:
        if item.source in graph and item.target in graph:
            graph[item.source].add(item.target)
    return graph


def find_reachable(graph: Graph, start: str) -> set[str]:
    """Return the modules that a module imports, itself or through others."""
    visited: set[str] = set()
    stack = [start]
    while stack:
        new = graph[stack.pop()] - visited
        visited |= new
        stack += new
    return visited


def find_cycles(graph: Graph) -> list[frozenset[str]]:
    """Return the sets of modules that import each other.

    Examples
    --------
    >>> graph = {"a": {"b"}, "b": {"a"}, "c": {"a"}}
    >>> [sorted(cycle) for cycle in find_cycles(graph)]
    [['a', 'b']]
    """
    reachable = {module: find_reachable(graph, module) for module in graph}
    cycles = {
        frozenset(other for other in reached if module in reachable[other])
        for module, reached in reachable.items()
    }
    return sorted(filter(None, cycles), key=min)
