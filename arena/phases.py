"""What the process of an entry does: conformance, audit, cells, other points.

``python -m pkm.arena.phases PHASE`` confines itself before it imports foreign code. It
takes its arguments from a JSON file of its folder, and writes its answer to another.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import pkm
from pkm.arena.attempt import ANSWER, REQUEST, RESULTS
from pkm.arena.confinement import confine_writes, limit_resources
from pkm.arena.entry import PROGRAM, SOURCE, write_rows
from pkm.arena.leaks import find_leak
from pkm.arena.suite import label_cell, make_stage_plan, name_cell, select_cells
from pkm.audit import audit as attack
from pkm.audit.conformance import BOUNDS, run_checks
from pkm.audit.records import make_record
from pkm.audit.report import N_CLUSTERS, configure
from pkm.catalogue import CONFIG_DIRS
from pkm.experiments.backends.backends import run_cells
from pkm.experiments.cell.cell import STYLE
from pkm.experiments.config.backend import Backend
from pkm.experiments.reports.crate import write_json
from pkm.experiments.store.store import Store
from pkm.files import cache_folder
from pkm.methods import load_method
from pkm.privacy import snap


def check(method: Mapping[str, Any]) -> dict[str, Any]:
    """Run the conformance suite on a method with its parameters."""
    estimator = configure(build(method), bounds=BOUNDS)
    results = run_checks(estimator)
    return {
        "private": estimator.claim.private,
        "claimed": read_claim(estimator),
        "checks": [asdict(result) for result in results],
    }


def read_claim(estimator: Any) -> dict[str, Any] | None:
    """Read what a program claims of itself; None of others, and of one that fails."""
    if estimator.claim.private:
        return None
    # The checks say what fails.
    with contextlib.suppress(Exception):
        return estimator.fit_batch(snap(np.eye(N_CLUSTERS)), [0]).synopsis
    return None


def audit(method: Mapping[str, Any], n_pairs: int, seed: int) -> dict[str, Any]:
    """Attack a method with its parameters."""
    estimator = build(method)
    report = attack(estimator, n_pairs=n_pairs, seed=seed)
    return {
        "record": make_record(report, estimator),
        "findings": [
            f"{finding.view}: {finding.label}: {finding.message}"
            for finding in report.unregistered
        ],
    }


def run(
    method: Mapping[str, Any],
    suite: str,
    stage: str,
    jobs: int,
    data_dir: str | None,
    cells: Sequence[Sequence] | None,
) -> dict[str, Any]:
    """Run the cells of a stage, or some of them, and write their rows."""
    plan = make_stage_plan(suite, stage, method, data_dir=data_dir)
    if cells is not None:
        plan = select_cells(plan, cells)
    store = Store(RESULTS)
    backend = Backend("processes", jobs=jobs, retries=0)
    run_cells(plan.cells, store, backend, data_dir=data_dir)
    rows = plan.read_rows(store)
    if len(rows):
        write_rows(rows, Path())
    missing = plan.list_missing(store)
    return {
        "missing": [
            f"{label_cell(*name)}: {reason}"
            for *name, reason in missing.itertuples(index=False)
        ]
    }


def repeat(
    method: Mapping[str, Any],
    suite: str,
    stage: str,
    data_dir: str | None,
    cells: Sequence[Sequence],
) -> dict[str, Any]:
    """Repeat cells of a private method on other points, with equal releases."""
    plan = make_stage_plan(suite, stage, method, data_dir=data_dir)
    chosen = set(map(tuple, cells))
    leaks = []
    for sweep, cell in plan.sweep_cells:
        name = name_cell(sweep, cell)
        if name not in chosen:
            continue
        leak = find_leak(cell, data_dir)
        if leak:
            leaks.append(f"{label_cell(*name)}: {leak}")
    return {"leaks": leaks}


PHASES: dict[str, Callable[..., dict[str, Any]]] = {
    "check": check,
    "audit": audit,
    "run": run,
    "repeat": repeat,
}


def build(method: Mapping[str, Any]) -> Any:
    """Build the estimator of an entry, with the number of clusters of the audit."""
    other = ("name", "_target_", *STYLE)
    parameters = {key: value for key, value in method.items() if key not in other}
    return load_method(method["_target_"])(n_clusters=N_CLUSTERS, **parameters)


def list_caches() -> list[Path]:
    """List the folders of caches: compiled kernels, data sets."""
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    package = Path(pkm.__file__).parent
    folders = [cache]
    for path in package.iterdir():
        # A subpackage may be a link.
        if path.is_dir():
            folders += path.resolve().rglob("__pycache__")
    return folders


def prepend(folder: Path, variable: str) -> None:
    """Let a path of the environment begin with a folder."""
    before = os.environ.get(variable)
    folders = [str(folder)] + ([before] if before else [])
    os.environ[variable] = os.pathsep.join(folders)


def main(phase: str) -> None:
    """Confine this process, carry out a request, write the answer."""
    request = json.loads(Path(REQUEST).read_text(encoding="utf-8"))
    limit_resources()
    confined = confine_writes([Path.cwd(), *list_caches()])
    # Workers take these from here.
    source = Path(SOURCE).resolve()
    sys.path.insert(0, str(source))
    prepend(source, "PYTHONPATH")
    if (source / PROGRAM).is_dir():
        prepend(source / PROGRAM, CONFIG_DIRS)
    answer = PHASES[phase](**request)
    write_json(Path(ANSWER), answer | {"confined": confined})


if __name__ == "__main__":
    main(sys.argv[1])
