"""Digests of code, which change with what is executed and with nothing else."""

import ast
import contextlib
import hashlib
import inspect
import json
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pkm.files import cache_folder, read_with_checksum, write_with_checksum

#: A Python file, or a function or class of one.
Code = Path | Callable
#: Class attributes that determine how figures draw a method, not its results.
STYLE = ("label", "color", "marker")


class Import(NamedTuple):
    """An import statement: ``import name, ...``, or ``from base import name, ...``.

    `level` counts the dots before the base.
    """

    base: str | None
    names: tuple[str, ...]
    level: int = 0


class Source(NamedTuple):
    """Code in its normal form, and its import statements at any depth."""

    code: str
    imports: tuple[Import, ...]


def code_digest(*sources: Code) -> str:
    """Hash code without its comments, docstrings and layout.

    Parameters
    ----------
    *sources : path of a Python file, function or class
        In an order that is always the same.

    Returns
    -------
    str
        SHA-256 (hex). Two versions that differ in comments, docstrings, layout or the
        style of a method (`STYLE`) alone have the same.

    Examples
    --------
    >>> code_digest(code_digest) == code_digest(code_digest) != code_digest(read_code)
    True
    """
    digest = hashlib.sha256()
    for source in sources:
        digest.update(hashlib.sha256(read_code(source).encode()).digest())
    return digest.hexdigest()


@cache
def subpackages_digest(*subpackages: str) -> str:
    """Hash the code of all modules of some subpackages, in the order of their names.

    Examples
    --------
    >>> len(subpackages_digest("compute", "privacy"))
    64
    """
    paths = []
    for name in subpackages:
        folder = Path(__file__).with_name(name)
        assert folder.is_dir(), f"pkm has no subpackage {name}"
        paths += sorted(folder.rglob("*.py"))
    return code_digest(*paths)


def read_code(code: Code) -> str:
    """Return the code of a file, function or class in its normal form."""
    return read_source(code).code


def read_with_dependencies(function: Callable) -> str:
    """Return the code of a function and of all of the project's that it depends on.

    Dependencies are what the code's module has under the names that the code loads:
    functions, classes, numbers, texts, bytes, tuples and lists, and the dependencies of
    these.
    Attributes are not followed: a function of another module counts only if it is
    imported by its name.

    Examples
    --------
    >>> "def cache_folder(" in read_with_dependencies(read_source)
    True
    """
    texts: dict[str, None] = {}
    queue: list[Callable] = [function]
    while queue:
        current = queue.pop()
        code = read_code(current)
        if code in texts:
            continue
        texts[code] = None
        namespace = vars(sys.modules[current.__module__])
        for name in sorted(find_names(code) & namespace.keys()):
            # The function behind a cache.
            value = inspect.unwrap(namespace[name])
            if isinstance(value, int | float | str | bytes | tuple | list):
                texts[f"{name}={value!r}"] = None
            is_code = inspect.isfunction(value) or inspect.isclass(value)
            if is_code and value.__module__.startswith("pkm."):
                queue.append(value)
    return "\n".join(texts)


@cache
def find_names(code: str) -> frozenset[str]:
    """Find the names that code loads or assigns."""
    nodes = ast.walk(ast.parse(code))
    return frozenset(node.id for node in nodes if isinstance(node, ast.Name))


@cache
def read_source(code: Code) -> Source:
    """Read a file, function or class, once per process.

    The parsed file is cached in the cache folder, by its content, for all processes.
    """
    if not isinstance(code, Path):
        return parse_code(textwrap.dedent(inspect.getsource(code)))
    content = code.read_bytes()
    # Another version of Python, or of this module, may write another normal form.
    digest = hashlib.sha256(content)
    digest.update(Path(__file__).read_bytes())
    digest.update(sys.version.encode())
    path = cache_folder() / "sources" / digest.hexdigest()
    stored = None
    # If the cache cannot be read or written, only time is lost.
    with contextlib.suppress(OSError):
        stored = read_with_checksum(path)
    if stored is not None:
        normal_form, imports = json.loads(stored)
        return Source(
            normal_form,
            tuple(Import(base, tuple(names), level) for base, names, level in imports),
        )
    source = parse_code(content.decode())
    with contextlib.suppress(OSError):
        write_with_checksum(path, json.dumps(source).encode())
    return source


def parse_code(text: str) -> Source:
    r"""Parse Python code; the normal form is the one that `ast.unparse` gives.

    Docstrings do not count, nor do other strings that are statements of their own.

    Examples
    --------
    >>> code, imports = parse_code("from .a import b  # it\ndef f(x):\n  return (2*x)")
    >>> imports
    (Import(base='a', names=('b',), level=1),)
    >>> print(code)
    from .a import b
    <BLANKLINE>
    def f(x):
        return 2 * x
    """
    tree = ast.parse(text)
    imports = []
    for node in (tree, *walk_statements(tree)):
        body = getattr(node, "body", None)
        if body is not None:
            counted = [line for line in body if not is_ignored(node, line)]
            # An empty body would be no Python.
            body[:] = counted or [ast.Pass()]
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            if isinstance(node, ast.Import):
                imports.append(Import(None, names))
            else:
                imports.append(Import(node.module or "", names, node.level))
    return Source(ast.unparse(tree), tuple(imports))


def walk_statements(node: ast.AST) -> Iterator[ast.AST]:
    """Iterate over the statements inside a node, at any depth.

    Expressions contain none.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from walk_statements(child)


def is_ignored(parent: ast.AST, statement: ast.stmt) -> bool:
    """Tell whether a statement is only a string, or the style of a class."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return isinstance(statement.value.value, str)
    return (
        isinstance(parent, ast.ClassDef)
        and isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and statement.target.id in STYLE
    )
