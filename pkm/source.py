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
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from pkm.files import cache_folder, read_sealed, write_sealed

#: A Python file, or a function or class of one.
Code = Path | Callable
#: Class attributes that say how a method is drawn, not what it computes.
STYLE = ("label", "color", "marker")


class Import(NamedTuple):
    """An import statement: ``import name, ...``, or ``from base import name, ...``.

    `level` counts the dots before the base.
    """

    base: str | None
    names: tuple[str, ...]
    level: int = 0


class Source(NamedTuple):
    """What is kept of code: its normal form and its import statements, at any depth."""

    code: str
    imports: tuple[Import, ...]


def code_digest(*parts: Code) -> str:
    """Hash code without its comments, docstrings and layout.

    Parameters
    ----------
    *parts : path of a Python file, function or class
        In an order that is always the same.

    Returns
    -------
    str
        SHA-256 (hex). Two versions that differ in comments, docstrings, layout or the style of a
        method (`STYLE`) alone have the same.

    Examples
    --------
    >>> code_digest(code_digest) == code_digest(code_digest) != code_digest(code_of)
    True
    """
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(code_of(part).encode()).digest())
    return digest.hexdigest()


@cache
def subpackages_digest(*subpackages: str) -> str:
    """Hash the code of all modules of some subpackages, in the order of their names.

    Examples
    --------
    >>> len(subpackages_digest("compute", "privacy"))
    64
    """
    folders = []
    for name in subpackages:
        spec = find_spec(f"pkm.{name}")
        assert spec is not None and spec.origin is not None, f"pkm has no subpackage {name}"
        folders.append(Path(spec.origin).parent)
    return code_digest(*(path for folder in folders for path in sorted(folder.rglob("*.py"))))


def code_of(part: Code) -> str:
    """Return the code of a file, function or class in its normal form."""
    return source_of(part).code


@cache
def source_of(part: Code) -> Source:
    """Read a file, function or class, once per process; files are parsed once for all processes.

    What parsing a file yields is kept in the cache folder, by the file's content.
    """
    if not isinstance(part, Path):
        return parsed(textwrap.dedent(inspect.getsource(part)))
    content = part.read_bytes()
    # Another version of Python, or of this module, may write the normal form in another way.
    versions = [Path(__file__).read_bytes(), sys.version.encode()]
    digests = [hashlib.sha256(each).digest() for each in (content, *versions)]
    path = cache_folder() / "sources" / hashlib.sha256(b"".join(digests)).hexdigest()
    stored = None
    # A cache that cannot be read or written costs time alone.
    with contextlib.suppress(OSError):
        stored = read_sealed(path)
    if stored is not None:
        code, imports = json.loads(stored)
        return Source(code, tuple(Import(base, tuple(names), n) for base, names, n in imports))
    source = parsed(content.decode())
    with contextlib.suppress(OSError):
        write_sealed(path, json.dumps(source).encode())
    return source


def parsed(text: str) -> Source:
    r"""Parse Python code.

    Examples
    --------
    >>> parsed("from .a import b, c  # both\n").imports
    (Import(base='a', names=('b', 'c'), level=1),)
    """
    tree = executed_tree(text)
    imports = []
    for node in statements(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            is_from = isinstance(node, ast.ImportFrom)
            imports.append(
                Import(node.module or "", names, node.level) if is_from else Import(None, names)
            )
    return Source(ast.unparse(tree), tuple(imports))


def normal_form(text: str) -> str:
    r"""Write Python code in the one form that `ast.unparse` gives it, without docstrings.

    Strings that are statements of their own later in a body do nothing and are left out too.

    Examples
    --------
    >>> print(normal_form("def twice(x):\n  'Double it.'\n  return (2*x)  # exact"))
    def twice(x):
        return 2 * x
    """
    return ast.unparse(executed_tree(text))


def executed_tree(text: str) -> ast.Module:
    """Parse Python code and leave out what does not count: texts, and the style of classes."""
    tree = ast.parse(text)
    for node in (tree, *statements(tree)):
        body = getattr(node, "body", None)
        if body is not None:
            counted = [line for line in body if not (is_text(line) or is_style(node, line))]
            # An empty body would be no Python.
            body[:] = counted or [ast.Pass()]
    return tree


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Iterate over the statements inside a node, at any depth; expressions contain none."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from statements(child)


def is_text(statement: ast.stmt) -> bool:
    """Tell whether a statement is nothing but a string."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def is_style(owner: ast.AST, statement: ast.stmt) -> bool:
    """Tell whether a statement of a class sets nothing but its style."""
    return (
        isinstance(owner, ast.ClassDef)
        and isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and statement.target.id in STYLE
    )
