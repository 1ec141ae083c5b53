"""Digests of code, which change with what is executed and with nothing else."""

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable
from functools import cache
from pathlib import Path

#: A Python file, or a function or class of one.
Code = Path | Callable
#: Class attributes that say how a method is drawn, not what it computes.
STYLE = ("label", "color", "marker")


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
def code_of(part: Code) -> str:
    """Return the code of a file, function or class in its normal form, read once per process."""
    if isinstance(part, Path):
        return normal_form(part.read_text(encoding="utf-8"))
    return normal_form(textwrap.dedent(inspect.getsource(part)))


def normal_form(text: str) -> str:
    r"""Write Python code in the one form that `ast.unparse` gives it, without docstrings.

    Strings that are statements of their own later in a body do nothing and are left out too.

    Examples
    --------
    >>> print(normal_form("def twice(x):\n  'Double it.'\n  return (2*x)  # exact"))
    def twice(x):
        return 2 * x
    """
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            counted = [line for line in body if not (is_text(line) or is_style(node, line))]
            # An empty body would be no Python.
            body[:] = counted or [ast.Pass()]
    return ast.unparse(tree)


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
