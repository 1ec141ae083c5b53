"""The code behind a function: all of the project's that decides what the function returns."""

import ast
import inspect
import sys
from functools import partial

import pytest

from pkm import datasets
from pkm.datasets import parsers, registry
from pkm.datasets.generated import clusters, families, samplers, separation
from pkm.source import read_code, read_with_dependencies

DRAWS = {family.draw for family in families.FAMILIES}
PARSERS = {parsers.g2, *parsers.PARSERS.values()}
DECIDING = sorted(DRAWS | PARSERS, key=lambda function: function.__name__)


def test_code_behind_is_followed_across_modules():
    code = read_with_dependencies(samplers.draw_synth)
    for function in (clusters.draw_clusters, clusters.simplex_centers, separation._lanczos):
        assert read_code(function) in code
    assert "DECIMALS=4" in code
    assert "def draw_half(" not in code
    # What is behind a cache counts.
    assert "def plant_centers(" in read_with_dependencies(samplers.draw_half)


def test_constants_in_a_list_are_code():
    assert "POSITION=['latitude', 'longitude']" in read_with_dependencies(parsers.checkins)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (clusters, "DECIMALS"),
        (separation, "MAX_STEPS"),
        (samplers, "SYNTH_OUTLIERS"),
    ],
)
def test_constants_of_helpers_change_the_fingerprint(module, name, monkeypatch):
    before = {key: datasets.fingerprint(key) for key in ("synth-2-2-0", "half-3-8-0.05")}
    monkeypatch.setattr(module, name, getattr(module, name) + 1)
    assert datasets.fingerprint("synth-2-2-0") != before["synth-2-2-0"]
    assert datasets.fingerprint("half-3-8-0.05") == before["half-3-8-0.05"]


@pytest.mark.parametrize("function", DECIDING, ids=lambda function: function.__name__)
def test_no_code_is_hidden_behind_a_module(function):
    """Attributes of modules are not followed: what decides points is imported by its name."""
    queue = [function]
    seen = set()
    while queue:
        current = inspect.unwrap(queue.pop())
        if current in seen:
            continue
        seen.add(current)
        namespace = vars(sys.modules[current.__module__])
        tree = ast.parse(read_code(current))
        for node in ast.walk(tree):
            value = namespace.get(node.id) if isinstance(node, ast.Name) else None
            value = inspect.unwrap(value) if callable(value) else value
            if inspect.ismodule(value):
                assert not value.__name__.startswith("pkm."), f"{current}: {value}"
            if inspect.isfunction(value) and value.__module__.startswith("pkm."):
                queue.append(value)


def test_arguments_of_a_parser_change_the_fingerprint():
    entry = registry.find("yeast")
    assert isinstance(entry.parse, partial)
    changed = partial(entry.parse.func, **(entry.parse.keywords | {"drop": [1]}))
    assert parsers.describe(changed) != parsers.describe(entry.parse)
