"""Enter a method: conformance, audit and the cells of a suite: ``pkm submit METHOD``.

    pkm submit my_methods:MyMethod by="Ada Lovelace"
    pkm submit fastlloyd stage=full out=entries/fastlloyd

METHOD is what ``pkm run method=`` takes. The method is run beside scikit-learn's
k-means, in processes that write to no other folder but caches of this project, open no
connection and take 8 GiB. What fails is named in the entry, and the rest goes on.
stage=lite (default) takes some minutes, and full is what the leaderboard ranks. The
other keys are out=FOLDER, by=NAME, jobs=2, data=FOLDER and suite=NAME.

The exit code is 0 if all went well, 1 if the entry names a problem, 2 if the request
was refused. The module of the method is imported without these limits, as by ``pkm
run``: submit what you trust. ``pkm arena verify`` imports it within them alone.
"""

import secrets
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd

import pkm
from pkm.arena.attempt import AttemptFailed, run_attempt
from pkm.arena.entry import (
    PROGRAM,
    PROJECT,
    ROWS,
    Entry,
    check_size,
    copy_source,
    read_rows,
    write_entry,
    write_folder,
    write_rows,
)
from pkm.arena.page import write_page
from pkm.arena.suite import CELL_KEYS, CURRENT, label_cell, make_stage_plan
from pkm.experiments.cell.code_hash import find_dependencies
from pkm.experiments.cell.environment import describe_environment
from pkm.experiments.config.groups import read_choice
from pkm.experiments.config.settings import at_least
from pkm.experiments.console.console import make_main, require_one
from pkm.methods import import_path, load_method
from pkm.methods.baselines.program import find_files
from pkm.yaml_files import read_value

KEYS = ("stage", "out", "by", "jobs", "data", "suite")
#: Pairs of neighbors of the audit, and seconds of it and of the conformance suite.
N_PAIRS = 24
SECONDS = 600
#: Limit of all cells together. Usually the limits of single cells end them earlier.
STAGE_SECONDS = 24 * 3600


def run(words: Sequence[str], options: Mapping[str, str]) -> int:
    """Make the entry of a method."""
    name = require_one(words, "method", "one method")
    stage = options.get("stage", "lite")
    suite = options.get("suite", CURRENT)
    method = read_choice("method", name)
    # A class has one path in rows, whichever module it was named by.
    method["_target_"] = import_path(load_method(method["_target_"]))
    out = Path(options.get("out", f"entries/{suite}-{stage}-{method['name']}"))
    entry = submit(
        method,
        out,
        suite=suite,
        stage=stage,
        submitter=options.get("by", ""),
        jobs=read_jobs(options),
        data_dir=options.get("data"),
    )
    for problem in entry.problems:
        print(f"  {problem}")
    print(f"{out}: {len(entry.problems) or 'no'} problems; see {out / 'README.md'}")
    return int(bool(entry.problems))


def read_jobs(options: Mapping[str, str]) -> int:
    """Read the number of worker processes, two by default."""
    jobs = read_value(options.get("jobs", "2"))
    at_least(1).require("jobs", jobs)
    return jobs


def submit(
    method: Mapping[str, Any],
    out: Path,
    *,
    suite: str = CURRENT,
    stage: str = "lite",
    submitter: str = "",
    jobs: int = 2,
    data_dir: str | None = None,
) -> Entry:
    """Run a method on a stage of a suite, attack it, and write its entry.

    Parameters
    ----------
    method : mapping
        ``name``, ``_target_`` and parameters.
    out : Path
        Folder of the entry, which must not exist.
    suite, stage : str
    submitter : str
        Who submits it.
    jobs : int, default=2
        Worker processes.
    data_dir : str, optional
        Folder with original data files.

    Returns
    -------
    Entry

    Raises
    ------
    FileExistsError
        If the folder exists.
    ValueError
        If the method cannot be imported, or the stage cannot be planned.
    """
    plan = make_stage_plan(suite, stage, method, data_dir=data_dir)
    n_cells = len(plan.cells)
    print(f"{method['name']}: {n_cells} cells of {suite}, {stage}, into {out}")
    package, files = find_source(method)
    problems: list[str] = []
    with write_folder(out) as folder, tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        copy_source(files, folder)
        copy_source(files, work)

        def attempt(
            phase: str, seconds: float, n_cells: int = 0, **request: Any
        ) -> dict[str, Any]:
            """Run a phase; a failure is a problem, and an empty answer."""
            print(f"  {phase} ...", flush=True)
            request["method"] = method
            try:
                return run_attempt(phase, request, work, seconds, n_cells)
            except AttemptFailed as error:
                problems.append(str(error))
                return {}

        # Conformance, and the attack on what claims privacy.
        checked = attempt("check", SECONDS)
        checks = checked.get("checks", [])
        problems += [
            f"{line['check']}: {line['error']}" for line in checks if line["error"]
        ]
        attacked: dict[str, Any] = {}
        if checked.get("private"):
            seed = secrets.randbits(32)
            attacked = attempt("audit", SECONDS, n_pairs=N_PAIRS, seed=seed)
            problems += attacked.get("findings", [])

        # The cells of the stage.
        where = {"suite": suite, "stage": stage, "data_dir": data_dir}
        answer = attempt("run", STAGE_SECONDS, n_cells, jobs=jobs, cells=None, **where)
        problems += answer.get("missing", [])
        if not answer.get("confined", True):
            problems.append(
                "this system cannot confine writes and connections of a process"
            )
        rows = pd.DataFrame(columns=["method"])
        if (work / ROWS).is_file():
            rows, refused = refuse_rows(read_rows(work))
            write_rows(rows, folder)
            problems += [*refused, *check_size(folder)]

        entry = Entry(
            method=method,
            suite=suite,
            stage=stage,
            submitter=submitter,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            package=package,
            checks=checks,
            audit=attacked.get("record"),
            claimed=checked.get("claimed"),
            problems=problems,
            environment=describe_environment(),
        )
        write_page(entry, rows, folder)
        write_entry(entry, folder)
    return entry


def find_source(method: Mapping[str, Any]) -> tuple[str, dict[str, Path]]:
    """Find what others need to run a method.

    Returns
    -------
    package : str
        Distribution and version that have its class, if an index has them, or this
        project; else empty.
    files : dict of str to Path
        Names in the source of an entry to files: modules of no such distribution, and
        the files of a program.
    """
    module = load_method(method["_target_"]).__module__
    top = module.partition(".")[0]
    files = {
        f"{PROGRAM}/{name}": path
        for name, path in find_files(method.get("command")).items()
    }
    if top == PROJECT:
        return f"{PROJECT} {pkm.__version__}", files
    for name in metadata.packages_distributions().get(top, []):
        distribution = metadata.distribution(name)
        # A distribution has this file if it was installed from a folder.
        if distribution.read_text("direct_url.json") is None:
            return f"{name} {distribution.version}", files
    dependencies = find_dependencies([module], external_package=top)
    for name, path in dependencies.items():
        parts = name.split(".")
        if path.name == "__init__.py":
            parts.append("__init__")
        if parts[0] == top:
            files[f"{'/'.join(parts)}.py"] = path
    return "", files


def refuse_rows(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Drop the cells with a release that the suite does not rank, and say why.

    Those are more centers than clusters, costs that are not finite, and budgets that
    were exceeded.
    """
    rules = {
        "more centers than k": rows["n_centers"] > rows["k"],
        "a cost that is not finite": ~rows["nicv"].abs().lt(float("inf")),
        "more epsilon than the budget": rows["epsilon_spent"] > rows["epsilon"] + 1e-9,
    }
    columns = ["cell", *CELL_KEYS]
    refused = {
        key: f"{label_cell(*name)}: {reason}"
        for reason, is_broken in rules.items()
        for key, *name in rows.loc[is_broken, columns].itertuples(index=False)
    }
    kept = rows[~rows["cell"].isin(list(refused))]
    return kept.reset_index(drop=True), list(refused.values())


main = make_main("submit", __doc__, "METHOD", KEYS, run)
