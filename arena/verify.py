"""Verify an entry: ``pkm arena verify FOLDER``.

    pkm arena verify entries/fastlloyd by="Ada Lovelace"

Its files must be those that it lists, its rows all those of the suite. Costs are
computed anew from the released centers, and epsilon from the charges. The conformance
suite and the audit are repeated, and a random tenth of the cells (share=0.1) is run
again. The result is written to the folder: *verified* if that tenth is equal bit for
bit, *re-run* if it differs by no more than another seed would, or *refuted*, with what
was found. The other keys are jobs=2 and data=FOLDER.

The exit code is 1 for a refuted entry. Its code is run on this machine, as ``pkm
submit`` does.
"""

import math
import random
import secrets
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from pkm.arena.attempt import AttemptFailed, run_attempt
from pkm.arena.checks import check_charges, check_costs, check_files, check_rows
from pkm.arena.entry import ENTRY, SOURCE, VERIFICATION, Entry, read_entry, read_rows
from pkm.arena.scores import cpu_ratio
from pkm.arena.submit import N_PAIRS, SECONDS, STAGE_SECONDS, read_jobs
from pkm.arena.suite import TIMES, CellName, make_stage_plan, read_suite
from pkm.experiments.cell.environment import describe_environment
from pkm.experiments.config.groups import read_choice
from pkm.experiments.config.settings import require
from pkm.experiments.console.console import make_main
from pkm.experiments.reports.crate import write_json
from pkm.files import sha256

KEYS = ("by", "share", "jobs", "data")
SHARE = 0.1
#: Cells that are run again at least.
MIN_CELLS = 4
#: Of the test that two runs differ by their seeds alone.
MAX_P_VALUE = 1e-4
#: Factor between CPU ratios of two machines that is not believed.
CPU_FACTOR = 4.0
#: Columns that two runs with equal seeds share.
EQUAL = ["nicv", "n_centers", "epsilon", "delta", "epsilon_spent"]


@dataclass(frozen=True)
class Verification:
    """What a verification found.

    Parameters
    ----------
    entry : str
        SHA-256 of the file ``entry.json`` that was verified.
    status : {"verified", "re-run", "refuted"}
    findings : list of str
        Why an entry is refuted.
    cells : list of (str, str, float or None)
        Sweep, data set and epsilon of the cells that were run again.
    equal : int
        How many of them were equal bit for bit.
    verifier, created : str
        Who, and when (UTC).
    environment : mapping
    """

    entry: str
    status: str
    findings: list[str]
    cells: list[CellName]
    equal: int
    verifier: str
    created: str
    environment: Mapping[str, Any] = field(default_factory=dict)


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
        If the folder is no entry, or its suite is unknown.
    """
    entry = read_entry(folder)
    reference = read_suite(entry.suite)["reference"]
    suite_cells = {
        cell.dataset_name: cell
        for cell in make_stage_plan(
            entry.suite,
            entry.stage,
            read_choice("method", reference),
            data_dir=data_dir,
        ).cells
    }
    findings = check_files(entry, folder)
    chosen: list[CellName] = []
    n_equal = 0
    try:
        rows = read_rows(folder)
    except ValueError as error:
        findings.append(str(error))
    else:
        findings += check_rows(entry, rows, reference, suite_cells)
        findings += check_costs(rows, suite_cells, data_dir)
        findings += check_charges(rows)
        own = rows[(rows["method"] == entry.name) & (rows["sweep"] != TIMES)]
        chosen = choose_cells(own, share)
        with tempfile.TemporaryDirectory() as temporary:
            work = Path(temporary)
            if (folder / SOURCE).is_dir():
                shutil.copytree(folder / SOURCE, work / SOURCE)
            findings += repeat_audit(entry, work)
            request = {
                "method": entry.method,
                "suite": entry.suite,
                "stage": entry.stage,
                "jobs": jobs,
                "data_dir": data_dir,
                "cells": chosen,
            }
            try:
                run_attempt("run", request, work, STAGE_SECONDS)
                fresh = read_rows(work)
            except (AttemptFailed, ValueError) as error:
                findings.append(f"cannot be run again: {error}")
            else:
                n_equal, differences = compare_runs(own, fresh, chosen)
                findings += differences
                findings += compare_times(rows, fresh, reference)
    status = "verified" if n_equal == len(chosen) else "re-run"
    verification = Verification(
        entry=sha256((folder / ENTRY).read_bytes()),
        status="refuted" if findings else status,
        findings=findings,
        cells=chosen,
        equal=n_equal,
        verifier=verifier,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        environment=describe_environment(),
    )
    write_json(folder / VERIFICATION, asdict(verification))
    return verification


def repeat_audit(entry: Entry, work: Path) -> list[str]:
    """Repeat conformance and audit with another seed; a failure is a finding."""
    findings = []
    try:
        checked = run_attempt("check", {"method": entry.method}, work, SECONDS)
        findings += [
            f"{line['check']}: {line['error']}"
            for line in checked["checks"]
            if line["error"]
        ]
        if checked["private"]:
            request = {
                "method": entry.method,
                "n_pairs": N_PAIRS,
                "seed": secrets.randbits(32),
            }
            attacked = run_attempt("audit", request, work, SECONDS)
            findings += attacked["findings"]
    except AttemptFailed as error:
        findings.append(str(error))
    return findings


def choose_cells(rows: pd.DataFrame, share: float) -> list[CellName]:
    """Choose a random share of the cells, which nobody can foresee."""
    cells = [
        (sweep, dataset, None if math.isnan(epsilon) else float(epsilon))
        for sweep, dataset, epsilon in rows.groupby(
            ["sweep", "dataset", "epsilon"], dropna=False
        ).groups
    ]
    count = min(len(cells), max(MIN_CELLS, math.ceil(share * len(cells))))
    return sorted(random.SystemRandom().sample(cells, count), key=str)


def compare_runs(
    stored: pd.DataFrame,
    fresh: pd.DataFrame,
    chosen: Sequence[CellName],
) -> tuple[int, list[str]]:
    """Compare stored rows with those of a second run.

    Returns
    -------
    n_equal : int
        Number of cells with equal bits.
    findings : list of str
        Cells whose costs differ by more than seeds explain.
    """
    n_equal = 0
    findings = []
    fresh = fresh[fresh["method"].isin(stored["method"])]
    for sweep, dataset, epsilon in chosen:
        first, second = (
            select_cell(rows, sweep, dataset, epsilon) for rows in (stored, fresh)
        )
        if len(first) == len(second) and first[EQUAL].equals(second[EQUAL]):
            n_equal += 1
            continue
        label = dataset if epsilon is None else f"{dataset}, epsilon={epsilon:g}"
        if len(second) < 2 or len(first) < 2:
            findings.append(f"{label}: a second run gives no rows")
            continue
        test = stats.ttest_ind(
            np.log(first["nicv"]), np.log(second["nicv"]), equal_var=False
        )
        if test.pvalue < MAX_P_VALUE or np.isnan(test.pvalue):
            means = first["nicv"].mean(), second["nicv"].mean()
            findings.append(
                f"{label}: NICV {means[0]:.4g} is stored, a second run gives "
                f"{means[1]:.4g} (p={test.pvalue:.1g})"
            )
    return n_equal, findings


def select_cell(
    rows: pd.DataFrame, sweep: str, dataset: str, epsilon: float | None
) -> pd.DataFrame:
    """Select the rows of a cell, in the order of their seeds."""
    values = rows["epsilon"]
    has_epsilon = values.isna() if epsilon is None else values == epsilon
    is_of_set = (rows["sweep"] == sweep) & (rows["dataset"] == dataset)
    return rows[is_of_set & has_epsilon].sort_values("seed").reset_index()


def compare_times(rows: pd.DataFrame, fresh: pd.DataFrame, reference: str) -> list[str]:
    """Compare the CPU times, as ratios to the reference in the same run."""
    factor = cpu_ratio(fresh, reference) / cpu_ratio(rows, reference)
    if not factor > CPU_FACTOR:
        return []
    return [f"CPU time: a second run takes {factor:.1f} times what is stored"]


def run(words: Sequence[str], options: Mapping[str, str]) -> int:
    """Verify an entry and print what was found."""
    require(len(words) == 1, "folder", " ".join(words), "one folder of an entry")
    share = options.get("share", str(SHARE))
    require(is_share(share), "share", share, "a number above 0, at most 1")
    verification = verify(
        Path(words[0]),
        verifier=options.get("by", ""),
        share=float(share),
        jobs=read_jobs(options),
        data_dir=options.get("data"),
    )
    for finding in verification.findings:
        print(f"  {finding}")
    n_cells = len(verification.cells)
    print(
        f"{words[0]}: {verification.status}; {verification.equal} of {n_cells} cells "
        "that were run again are equal bit for bit"
    )
    return int(verification.status == "refuted")


def is_share(text: str) -> bool:
    """Tell whether a text is a share of the cells."""
    try:
        return 0 < float(text) <= 1
    except ValueError:
        return False


main = make_main("arena verify", __doc__, "FOLDER", KEYS, run)
