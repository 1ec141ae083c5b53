"""Public names of the package: imported when used, and declared for static tools."""

import ast
from pathlib import Path

import pytest

from pkm import methods

STUB = Path(methods.__file__).with_suffix(".pyi")
CLASSES = methods.CONTRACT | methods.METHODS | methods.FEDERATED


def read_stub():
    """Each public name of the stub, with the module that it is imported from."""
    declared = {}
    for node in ast.parse(STUB.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            declared |= dict.fromkeys((name.asname for name in node.names), node.module)
        elif isinstance(node, ast.AnnAssign):
            declared[node.target.id] = None
        elif isinstance(node, ast.FunctionDef):
            declared[node.name] = None
    return declared


def test_the_stub_lists_exactly_the_public_names():
    declared = read_stub()
    modules = {name: f"pkm.methods.{module}" for name, module in CLASSES.items()}
    assert {name: module for name, module in declared.items() if module} == modules
    others = {"METHODS", "FEDERATED", "CONTRACT", "import_path", "load_method"}
    assert set(declared) - set(modules) == others
    assert set(methods.__all__) <= set(declared)


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_is_where_the_stub_says(name):
    assert getattr(methods, name).__module__ == read_stub()[name]


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="has no attribute 'FasterLloyd'"):
        _ = methods.FasterLloyd
