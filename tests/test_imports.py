"""Imports inside functions and import cycles are those listed here, with reasons."""

import re
from collections import defaultdict

import pytest
from import_graph import find_cycles, find_reachable, make_graph, read_imports, read_modules

#: Not allowed.
CYCLE = "hides a cycle"
#: Module, to the modules that its functions import, to the reason.
LATE = {
    "pkm.audit.report": {
        "pkm.audit.blackbox": "loads scikit-learn",
    },
    "pkm.catalogue": {
        "pkm.yaml_files": "loads PyYAML, which is optional",
    },
    "pkm.datasets.embeddings": {
        "pkm.datasets.embedding_training": "loads torch, which is optional",
    },
    "pkm.experiments.backends.backends": {
        "pkm.experiments.fit.execute": "loads numba; a plan does without",
    },
    "pkm.experiments.backends.worker": {
        "pkm.experiments.fit.execute": "loads numba; a plan does without",
    },
    "pkm.experiments.commands.account": {
        "pkm.experiments.fit.inputs": "loads numba; a help text does without",
        "pkm.methods": "loads numba; a help text does without",
        "pkm.privacy": "loads numba; a help text does without",
    },
    "pkm.experiments.commands.reproduce": {
        "pkm.experiments.reports.reproduction": "loads numba; a help text does without",
    },
    "pkm.experiments.commands.run": {
        "pkm.experiments.commands.run_cells": "loads numba; a help text does without",
    },
    "pkm.experiments.commands.run_cells": {
        "pkm.experiments.mlflow.tracking": "loads MLflow",
    },
    # The settings of all kinds are in the help text of `pkm run`.
    "pkm.experiments.fit.central": {
        "pkm.experiments.fit.public_records": "loads numba; a help text does without",
        "pkm.privacy": "loads numba; a help text does without",
    },
    "pkm.experiments.fit.coreset": {
        "pkm.compute": "loads numba; a help text does without",
        "pkm.methods": "loads numba; a help text does without",
        "pkm.methods.coreset": "loads numba; a help text does without",
        "pkm.metrics.coresets": "loads numba; a help text does without",
        "pkm.privacy": "loads numba; a help text does without",
    },
    "pkm.experiments.fit.federation": {
        "pkm.experiments.fit.protocol": "loads numba; a help text does without",
        "pkm.federation": "loads numba; a help text does without",
        "pkm.federation.parties": "loads numba; a help text does without",
    },
    "pkm.experiments.fit.protocol": {
        "pkm.federation.mpi": "loads mpi4py, which is optional",
    },
    "pkm.experiments.fit.unlearning": {
        "pkm.experiments.fit.clients": "loads scikit-learn; a help text does without",
    },
    "pkm.experiments.reports.reproduction": {
        "pkm.analysis.pages.index_page": "loads Jinja and the renderer of charts",
        "pkm.analysis.pages.report": "loads Jinja and the renderer of charts",
        "pkm.experiments.mlflow.tracking": "loads MLflow",
    },
    "pkm.hydra_plugins.pkm_cells": {
        "pkm.experiments.commands.launcher": "loads numba; Hydra loads all plugins",
    },
    "pkm.pytest_plugin": {
        "pkm.testing": "loads numba; pytest loads all plugins",
    },
}
#: Modules that import each other: these are to go, too.
CYCLES = []


@pytest.fixture(scope="module")
def imports():
    return read_imports()


@pytest.fixture(scope="module")
def graph(imports):
    return make_graph(imports)


@pytest.mark.slow
def test_imports_inside_functions_are_listed(imports):
    late = defaultdict(set)
    for item in imports:
        if item.in_function:
            late[item.source].add(item.target)
    assert late == {source: set(targets) for source, targets in LATE.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        pytest.param(source, target, reason, id=f"{source}-{target}")
        for source, targets in LATE.items()
        for target, reason in targets.items()
    ],
)
def test_an_import_hides_a_cycle_where_its_reason_says_so(graph, source, target, reason):
    """For another reason the imported module must not lead back."""
    leads_back = target in graph and source in find_reachable(graph, target)
    assert leads_back == (reason == CYCLE)


def test_only_processes_of_mpi_import_it(imports):
    """Everything else works without mpi4py."""
    pattern = re.compile(r"^( *)(?:from|import) mpi4py\b", re.MULTILINE)
    lines = {
        (name, bool(indent))
        for name, path in read_modules().items()
        for indent in pattern.findall(path.read_text(encoding="utf-8"))
    }
    assert lines == {("pkm.federation.mpi", False), ("pkm.experiments.fit.protocol", True)}
    importers = {
        (item.source, item.in_function) for item in imports if item.target == "pkm.federation.mpi"
    }
    assert importers == {("pkm.experiments.fit.protocol", True)}


def test_cycles_are_listed(graph):
    assert {*find_cycles(graph)} == {frozenset(cycle) for cycle in CYCLES}


def test_imports_inside_functions_make_cycles():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}
    assert find_cycles(graph) == [frozenset("abc")]
    assert find_reachable(graph, "d") == {"a", "b", "c"}
