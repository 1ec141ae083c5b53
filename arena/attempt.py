"""Code of an entry in a process of its own: conformance, audit, cells of a stage.

``run_attempt`` starts the process, whose working folder is the only one that it may
write to besides caches. The process answers with a JSON file there.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import pkm
from pkm.arena.confinement import confine_writes, limit_resources
from pkm.arena.entry import PROGRAM, SOURCE, write_rows
from pkm.catalogue import CONFIG_DIRS
from pkm.experiments.reports.crate import write_json
from pkm.files import cache_folder

REQUEST = "request.json"
ANSWER = "answer.json"
LOG = "output.txt"


class AttemptFailed(RuntimeError):
    """The process ended without an answer."""


def run_attempt(
    phase: str, request: Mapping[str, Any], folder: Path, seconds: float
) -> dict[str, Any]:
    """Run a phase in a confined process.

    Parameters
    ----------
    phase : {"check", "audit", "run"}
    request : mapping
        Arguments of the phase, as JSON.
    folder : Path
        Where it works; modules in its ``source`` can be imported.
    seconds : float
        Afterwards the process and its children are killed.

    Returns
    -------
    dict
        The answer.

    Raises
    ------
    AttemptFailed
        If there is none; the message has the last line of output.
    """
    write_json(folder / REQUEST, request)
    (folder / ANSWER).unlink(missing_ok=True)
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    source = folder / SOURCE
    program = [source / PROGRAM] if (source / PROGRAM).is_dir() else []
    environment = os.environ | {
        "PYTHONPATH": join_paths(source, "PYTHONPATH"),
        CONFIG_DIRS: join_paths(*program, CONFIG_DIRS),
        "TMPDIR": str(temporary),
    }
    with (folder / LOG).open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "pkm.arena.attempt", phase],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AttemptFailed(f"{phase}: not done after {seconds:g} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode == 0 and (folder / ANSWER).is_file():
        return json.loads((folder / ANSWER).read_text(encoding="utf-8"))
    with (folder / LOG).open("rb") as log:
        log.seek(max(0, os.fstat(log.fileno()).st_size - 10_000))
        lines = log.read().decode(errors="replace").split("\n")
    last = [line.strip() for line in lines if line.strip()][-1:]
    reason = last[0][:300] if last else f"exit code {process.returncode}"
    raise AttemptFailed(f"{phase}: {reason}")


def join_paths(*parts: Path | str) -> str:
    """Join folders and, the last part, a variable of the environment."""
    *folders, variable = map(str, parts)
    return os.pathsep.join([*folders, *filter(None, [os.environ.get(variable)])])


# What the process does.


def check(method: Mapping[str, Any]) -> dict[str, Any]:
    """Run the conformance suite on a method with its parameters."""
    from pkm.audit.conformance import BOUNDS, run_checks
    from pkm.audit.report import configure

    estimator = configure(build(method), bounds=BOUNDS)
    results = run_checks(estimator)
    return {
        "private": estimator.claim.private,
        "claimed": read_claim(estimator),
        "checks": [asdict(result) for result in results],
    }


def read_claim(estimator: Any) -> dict[str, Any] | None:
    """Read what a program claims of itself; None of others, and of one that fails."""
    from pkm.audit.report import N_CLUSTERS
    from pkm.privacy import snap

    if estimator.claim.private:
        return None
    # The checks say what fails.
    with contextlib.suppress(Exception):
        return estimator.fit_batch(snap(np.eye(N_CLUSTERS)), [0]).synopsis
    return None


def audit(method: Mapping[str, Any], n_pairs: int, seed: int) -> dict[str, Any]:
    """Attack a method with its parameters."""
    from pkm.audit import audit as attack
    from pkm.audit.records import make_record

    estimator = build(method)
    report = attack(estimator, n_pairs=n_pairs, seed=seed)
    return {
        "record": make_record(report, estimator),
        "findings": [
            f"{found.view}: {found.label}: {found.message}"
            for found in report.unregistered
        ],
    }


def run(
    method: Mapping[str, Any],
    suite: str,
    stage: str,
    jobs: int,
    data_dir: str | None,
    cells: list | None,
) -> dict[str, Any]:
    """Run the cells of a stage, or some of them, and write their rows."""
    from pkm.arena.suite import make_stage_plan, select_cells
    from pkm.experiments.backends.backends import run_cells
    from pkm.experiments.config.backend import Backend
    from pkm.experiments.store.store import Store

    plan = make_stage_plan(suite, stage, method, data_dir=data_dir)
    if cells is not None:
        plan = select_cells(plan, {tuple(cell) for cell in cells})
    store = Store("results")
    backend = Backend("processes", jobs=jobs, retries=0)
    run_cells(plan.cells, store, backend, data_dir=data_dir)
    rows = plan.read_rows(store)
    if len(rows):
        write_rows(rows, Path())
    missing = plan.list_missing(store)
    return {
        "missing": [
            f"{line.method} on {line.dataset}, epsilon={line.epsilon:g}: {line.reason}"
            for line in missing.itertuples()
        ]
    }


PHASES: dict[str, Callable[..., dict[str, Any]]] = {
    "check": check,
    "audit": audit,
    "run": run,
}


def build(method: Mapping[str, Any]) -> Any:
    """Build the estimator of an entry, with the number of clusters of the audit."""
    from pkm.audit.report import N_CLUSTERS
    from pkm.experiments.cell.cell import STYLE
    from pkm.methods import load_method

    other = ("name", "_target_", *STYLE)
    parameters = {key: value for key, value in method.items() if key not in other}
    return load_method(method["_target_"])(n_clusters=N_CLUSTERS, **parameters)


def list_caches() -> list[Path]:
    """List the folders of caches: compiled kernels, data sets."""
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    package = Path(pkm.__file__).parent
    roots = [path.resolve() for path in package.iterdir() if path.is_dir()]
    return [cache, *(path for root in roots for path in root.rglob("__pycache__"))]


def main(phase: str) -> None:
    """Confine this process, carry out a request, write the answer."""
    request = json.loads(Path(REQUEST).read_text(encoding="utf-8"))
    limit_resources()
    confined = confine_writes([Path.cwd(), *list_caches()])
    answer = PHASES[phase](**request) | {"confined": confined}
    write_json(Path(ANSWER), answer)


if __name__ == "__main__":
    main(sys.argv[1])
