"""Imports inside functions and circles of imports are those listed here, with reasons."""

from collections import defaultdict

import pytest
from import_graph import find_circles, find_reachable, make_graph, read_imports

#: Not allowed in the end: these are to go.
CIRCLE = "hides a circle"
NOTHING = "no reason: it can stand at the top"
#: Module, to the modules that its functions import, to the reason.
LATE = {
    "pkm.audit.report": {
        "pkm.audit.blackbox": "loads scikit-learn",
    },
    "pkm.datasets.embeddings": {
        "pkm.datasets.embedding_training": CIRCLE,
    },
    "pkm.experiments.backends.backends": {
        "pkm.experiments.backends.dask_cells": CIRCLE,
        "pkm.experiments.fit.execute": "loads numba; a plan does without",
    },
    "pkm.experiments.commands.account": {
        "pkm.experiments.fit.inputs": "loads numba",
        "pkm.methods": "loads numba",
        "pkm.privacy": "loads numba",
    },
    "pkm.experiments.commands.ad_hoc": {
        "pkm.experiments.mlflow.tracking": "loads MLflow",
    },
    "pkm.experiments.commands.cli": {
        "pkm.experiments.config.configuration": NOTHING,
        "pkm.experiments.config.options": NOTHING,
    },
    "pkm.experiments.commands.reproduce": {
        "pkm.experiments.reports.reproduction": "loads numba; a help text does without",
    },
    "pkm.experiments.commands.run": {
        "pkm.experiments.commands.ad_hoc": "loads numba; a help text does without",
    },
    "pkm.experiments.config.configuration": {
        "pkm.experiments.backends.backends": CIRCLE,
        "pkm.experiments.config.explanations": CIRCLE,
        "pkm.experiments.config.options": CIRCLE,
        "pkm.experiments.config.settings": NOTHING,
        "pkm.experiments.config.yaml_files": NOTHING,
        "pkm.experiments.fit.inputs": "loads numba",
        "pkm.experiments.plan.sweep": CIRCLE,
    },
    "pkm.experiments.config.options": {
        "pkm.experiments.config.config_source": CIRCLE,
    },
    "pkm.experiments.fit.federated": {
        "pkm.federation.mpi": "loads mpi4py, which is optional",
    },
    "pkm.experiments.plan.feasibility": {
        "pkm.experiments.fit.coresets": "loads scikit-learn",
        "pkm.experiments.fit.removals": "loads scikit-learn",
    },
    "pkm.experiments.reports.reproduction": {
        "pkm.analysis.claims.claim": NOTHING,
        "pkm.analysis.pages.audits": NOTHING,
        "pkm.analysis.pages.index_page": "loads Jinja and the renderer of charts",
        "pkm.analysis.pages.report": "loads Jinja and the renderer of charts",
        "pkm.audit.records": NOTHING,
        "pkm.experiments.mlflow.tracking": "loads MLflow",
    },
    "pkm.hydra_plugins.pkm_cells": {
        "pkm.experiments.commands.launcher": "loads numba; Hydra loads all plugins",
    },
}
#: Modules that import each other: these are to go, too.
CIRCLES = [
    {
        "pkm.datasets.embedding_training",
        "pkm.datasets.embeddings",
        "pkm.datasets.registry",
    },
    {
        "pkm.experiments.backends.backends",
        "pkm.experiments.backends.dask_cells",
        "pkm.experiments.backends.progress",
        "pkm.experiments.config.config_source",
        "pkm.experiments.config.configuration",
        "pkm.experiments.config.explanations",
        "pkm.experiments.config.options",
        "pkm.experiments.plan.entries",
        "pkm.experiments.plan.feasibility",
        "pkm.experiments.plan.sweep",
    },
    {
        "pkm.privacy.base",
        "pkm.privacy.query",
    },
    {
        "pkm.privacy.clipped_regions",
        "pkm.privacy.rho_bounded",
        "pkm.privacy.rho_bounded_queries",
    },
]


@pytest.fixture(scope="module")
def imports():
    return read_imports()


@pytest.fixture(scope="module")
def graph(imports):
    return make_graph(imports)


def test_imports_inside_functions_are_listed(imports):
    late = defaultdict(set)
    for item in imports:
        if item.is_late:
            late[item.source].add(item.target)
    assert late == {source: set(targets) for source, targets in LATE.items()}


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        pytest.param(source, target, reason, id=f"{source}-{target}")
        for source, targets in LATE.items()
        for target, reason in targets.items()
    ],
)
def test_an_import_hides_a_circle_where_its_reason_says_so(graph, source, target, reason):
    """For another reason the imported module must not lead back."""
    leads_back = target in graph and source in find_reachable(graph, target)
    assert leads_back == (reason == CIRCLE)


def test_circles_are_listed(graph):
    assert {*find_circles(graph)} == {frozenset(circle) for circle in CIRCLES}


def test_imports_inside_functions_make_circles():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}
    assert find_circles(graph) == [frozenset("abc")]
    assert find_reachable(graph, "d") == {"a", "b", "c"}
