"""Verify an entry: ``pkm arena verify FOLDER``.

    pkm arena verify entries/fastlloyd by="Ada Lovelace"

Its files must be those that it lists. It has all cells of the suite, or names those
that failed.
Costs are computed anew from the released centers, and epsilon from the charges. The
conformance suite and the audit are repeated. A random tenth of the cells (share=0.1) is
run again beside the reference, and what failed. That tenth is also run on other points,
with equal releases: then a private method must do the same. The other keys are jobs=2
and data=FOLDER.

The result is written to the folder. *verified*: the second run is equal bit for bit.
*re-run*: it differs, and other seeds explain it, by a test that refutes an honest
method with a probability of 1e-6 at most. *refuted*: something is not as the entry
says. Bits must be equal if the method repeats (check_determinism), and code, versions
and processor are those of the entry. A lie about few cells is found if one of them is
drawn. Code that deceives what runs it is found by readers of its source alone.

The exit code is 1 for a refuted entry. Its code is run on this machine, as ``pkm
submit`` does.
"""

import random
import secrets
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from math import ceil
from pathlib import Path
from typing import Any

import pandas as pd

from pkm.arena import checks
from pkm.arena.attempt import AttemptFailed, run_attempt
from pkm.arena.comparison import compare_cells, compare_times
from pkm.arena.entry import (
    COLUMNS,
    ENTRY,
    PROJECT,
    SOURCE,
    VERIFICATION,
    Entry,
    read_entry,
    read_rows,
)
from pkm.arena.submit import (
    N_PAIRS,
    SECONDS,
    STAGE_SECONDS,
    read_jobs,
    refuse_rows,
)
from pkm.arena.suite import (
    STAGES,
    TIMES,
    CellName,
    label_cell,
    make_stage_plan,
    read_suite,
)
from pkm.experiments.cell.environment import describe_environment
from pkm.experiments.config.settings import require
from pkm.experiments.console.console import make_main, require_one
from pkm.experiments.reports.crate import write_json
from pkm.files import sha256
from pkm.scalars import is_positive
from pkm.yaml_files import read_value

KEYS = ("by", "share", "jobs", "data")
SHARE = 0.1
#: Cells that are run again at least.
MIN_CELLS = 4
#: Fields of an environment that change no result.
WITHOUT_EFFECT = ("platform", "cores", "memory (GiB)", "git commit")


@dataclass(frozen=True)
class Verification:
    """What a verification found.

    Parameters
    ----------
    status : {"verified", "re-run", "refuted"}
    findings : list of str
        Why an entry is refuted.
    cells : list of (str, str, str, float or None)
        Sweep, method, data set and epsilon of the cells that were run again.
    equal : int
        How many of them were equal bit for bit.
    entry : str
        SHA-256 of ``entry.json``, which has the digests of all files.
    verifier, created : str
        Who, and when (UTC).
    environment : mapping
    """

    status: str
    findings: list[str]
    cells: list[CellName]
    equal: int
    entry: str
    verifier: str
    created: str
    environment: Mapping[str, Any]


def verify(
    folder: Path,
    *,
    verifier: str = "",
    share: float = SHARE,
    jobs: int = 2,
    data_dir: str | None = None,
) -> Verification:
    """Verify an entry, and write the result to its folder.

    Parameters
    ----------
    folder : Path
        Of the entry.
    verifier : str
        Who verifies it.
    share : float, default=0.1
        Of the cells, to run again.
    jobs : int, default=2
    data_dir : str, optional
        Folder with original data files.

    Raises
    ------
    ValueError
        If the folder is no entry or has no rows, its suite is unknown, or a data set or
        the package of the method is missing here.
    """
    entry = read_entry(folder)
    rows = read_rows(folder, COLUMNS)
    require_package(entry.package)
    STAGES.require("stage", entry.stage)
    plan = make_stage_plan(entry.suite, entry.stage, data_dir=data_dir)
    reference_cells = {
        (sweep, cell.dataset_name): cell for sweep, cell in plan.sweep_cells
    }

    # What the files say.
    expected = checks.list_suite_cells(entry, rows)
    stored = checks.list_stored_cells(rows)
    findings = [
        *checks.check_files(entry, folder),
        *checks.check_cells(entry, expected, stored),
        *checks.check_settings(entry, rows, reference_cells),
        *checks.check_costs(rows, reference_cells, data_dir),
        *checks.check_charges(rows),
    ]

    # What its code does.
    chosen = choose_cells(entry.name, expected, stored, share)
    present = [name for name in chosen if name in stored and name[1] == entry.name]
    limit = max(cell.time_limit or SECONDS for cell in plan.cells)
    n_equal = 0
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        if (folder / SOURCE).is_dir():
            # Compiled modules could differ from the source.
            ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
            shutil.copytree(folder / SOURCE, work / SOURCE, ignore=ignored)
        is_repeatable, failures = repeat_checks(entry, work)
        findings += failures
        try:
            where = {"suite": entry.suite, "stage": entry.stage, "data_dir": data_dir}
            request = {"method": entry.method, **where}
            seconds = 2 * limit * (1 + len(present))
            repeated = run_attempt(
                "repeat",
                request | {"cells": present},
                work,
                seconds,
            )
            request |= {"cells": chosen, "jobs": jobs}
            run_attempt("run", request, work, STAGE_SECONDS, len(chosen))
            fresh, _ = refuse_rows(read_rows(work, COLUMNS))
        except (AttemptFailed, ValueError) as error:
            findings.append(f"cannot be run again: {error}")
        else:
            findings += repeated["leaks"]
            n_equal, changes = compare_runs(entry, rows, fresh, chosen, is_repeatable)
            findings += changes

    status = "verified" if n_equal == len(chosen) else "re-run"
    verification = Verification(
        status="refuted" if findings else status,
        findings=findings,
        cells=chosen,
        equal=n_equal,
        entry=sha256((folder / ENTRY).read_bytes()),
        verifier=verifier,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        environment=describe_environment(),
    )
    write_json(folder / VERIFICATION, asdict(verification))
    return verification


def require_package(package: str) -> None:
    """Refuse to verify without the package that an entry was made with."""
    name, _, version = package.partition(" ")
    if name in ("", PROJECT):
        return
    try:
        installed = metadata.version(name)
    except metadata.PackageNotFoundError:
        installed = "none"
    rule = f"installed: pip install {name}=={version}"
    require(installed == version, "package", package, rule)


def choose_cells(
    method: str,
    expected: Mapping[CellName, list[int]],
    stored: Mapping[CellName, list[int]],
    share: float,
) -> list[CellName]:
    """Choose what is run again.

    It is a random share of the cells of the method, which nobody can foresee; all that
    have no rows; and the reference on the same sets.
    """
    own = [name for name in expected if name[0] != TIMES and name[1] == method]
    count = min(len(own), max(MIN_CELLS, ceil(share * len(own))))
    chosen = {*random.SystemRandom().sample(own, count)}
    chosen |= {name for name in own if name not in stored}
    sets = {(sweep, dataset) for sweep, _, dataset, _ in chosen}
    chosen |= {
        name for name in expected if name[1] != method and (name[0], name[2]) in sets
    }
    return sorted(chosen, key=str)


def repeat_checks(entry: Entry, work: Path) -> tuple[bool, list[str]]:
    """Repeat conformance and, with another seed, the audit.

    Returns
    -------
    is_repeatable : bool
        Whether equal seeds give equal bits.
    findings : list of str
        Checks that fail and are said to pass, and what refutes the claim of privacy.
    """
    findings = []
    errors: dict[str, str] = {}
    phase = "check"
    try:
        checked = run_attempt("check", {"method": entry.method}, work, SECONDS)
        errors = {line["check"]: line["error"] for line in checked["checks"]}
        if checked["claimed"] != entry.claimed:
            findings.append(f"claimed: the program says {checked['claimed']}")
        if checked["private"]:
            phase = "audit"
            request = {"n_pairs": N_PAIRS, "seed": secrets.randbits(32)}
            request = {"method": entry.method, **request}
            findings += run_attempt("audit", request, work, SECONDS)["findings"]
    except AttemptFailed as error:
        if not any(line.startswith(f"{phase}: ") for line in entry.problems):
            findings.append(str(error))
    known = {line["check"] for line in entry.checks if line["error"]}
    findings += [
        f"{check}: {error}"
        for check, error in errors.items()
        if error and check not in known
    ]
    return errors.get("check_determinism", "") is None, findings


def compare_runs(
    entry: Entry,
    rows: pd.DataFrame,
    fresh: pd.DataFrame,
    chosen: Sequence[CellName],
    is_repeatable: bool,
) -> tuple[int, list[str]]:
    """Compare stored rows with those of a second run; see `compare_cells`."""
    here = describe_environment()
    is_same_software = all(
        entry.environment.get(name) == value
        for name, value in here.items()
        if name not in WITHOUT_EFFECT
    )
    is_same_commit = entry.environment.get("git commit") == here["git commit"]
    reference = read_suite(entry.suite)["reference"]
    n_equal = 0
    findings = []
    for method in (entry.name, reference):
        codes, own_codes = (
            set(table.loc[table["method"] == method, "code"]) for table in (rows, fresh)
        )
        if own_codes and codes != own_codes and is_same_commit:
            findings.append(f"{method}: rows are of other code than this")
        repeats = is_repeatable or method == reference
        equal, differences = compare_cells(
            rows,
            fresh,
            [name for name in chosen if name[1] == method],
            is_repeatable=repeats and is_same_software and codes == own_codes,
        )
        n_equal += equal
        findings += differences
    return n_equal, findings + compare_times(rows, fresh, reference)


def run(words: Sequence[str], options: Mapping[str, str]) -> int:
    """Verify an entry and print what was found."""
    folder = require_one(words, "folder", "one folder of an entry")
    share = read_value(options.get("share", str(SHARE)))
    is_share = is_positive(share) and share <= 1
    require(is_share, "share", share, "a number above 0, at most 1")
    verification = verify(
        Path(folder),
        verifier=options.get("by", ""),
        share=share,
        jobs=read_jobs(options),
        data_dir=options.get("data"),
    )
    for cell in verification.cells:
        print(f"  run again: {label_cell(*cell)}")
    for finding in verification.findings:
        print(f"  {finding}")
    n_cells = len(verification.cells)
    n_findings = len(verification.findings)
    print(
        f"{folder}: {verification.status}; {n_findings} findings; "
        f"{verification.equal} of {n_cells} cells are equal bit for bit, run again"
    )
    return int(verification.status == "refuted")


main = make_main("arena verify", __doc__, "FOLDER", KEYS, run)
