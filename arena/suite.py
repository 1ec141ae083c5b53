"""Suites: versioned sets of cells, read from ``conf/suite``."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pkm import catalogue
from pkm.experiments.cell.cell import Cell
from pkm.experiments.config.errors import ConfigurationError
from pkm.experiments.config.groups import read_choice
from pkm.experiments.config.settings import one_of, require
from pkm.experiments.plan.plan import Plan, make_plan
from pkm.experiments.plan.sweep import SWEEP_KEYS, Gap, find_method

#: The suite of new entries.
CURRENT = "2026-11"
STAGES = one_of("lite", "full")
#: The sweep of fits that are timed.
TIMES = "times"
#: Columns that name a cell.
CELL_KEYS = ["sweep", "method", "dataset", "epsilon"]
#: A cell of an entry: sweep, method, data set, epsilon (None without privacy).
CellName = tuple[str, str, str, float | None]


def read_suite(name: str) -> dict[str, Any]:
    """Read a suite: its reference, the settings of all cells, stages, and sweeps.

    Raises
    ------
    ConfigurationError
        If there is none of that name.
    """
    one_of(*catalogue.current().choices("suite")).require("suite", name)
    return catalogue.current().read("suite", name)


def make_stage_plan(
    suite: str,
    stage: str,
    method: Mapping[str, Any] | None = None,
    *,
    data_dir: str | None = None,
) -> Plan:
    """Make the plan of a stage: the reference and a method on all its sets.

    Parameters
    ----------
    suite : str
        Name of a suite.
    stage : {"lite", "full"}
    method : mapping, optional
        Entry of a method: ``name``, ``_target_`` and its parameters. Default: the
        reference alone.
    data_dir : str, optional
        Folder with original data files.

    Returns
    -------
    Plan
        Its sweeps are those of the stage. Sets that the method refuses are its gaps.

    Raises
    ------
    ValueError
        If the suite or the stage is unknown, a set is missing here, or the method has
        the name of the reference, cannot run here, or refuses all sets.

    Examples
    --------
    >>> from pkm.experiments.config.groups import read_choice
    >>> plan = make_stage_plan(CURRENT, "lite", read_choice("method", "sulloyd"))
    >>> len(plan.cells)
    28
    """
    STAGES.require("stage", stage)
    declared = read_suite(suite)
    reference = read_choice("method", declared["reference"])
    plan = plan_method(suite, stage, reference, data_dir)
    for gap in plan.gaps:
        raise ConfigurationError(f"{gap.dataset}: {gap.reason}")
    if method is None:
        return plan
    rule = "another than that of the reference: declare the method under one"
    require(method["name"] != reference["name"], "name", method["name"], rule)
    own = plan_method(suite, stage, method, data_dir)
    if not own.sweep_cells:
        raise ConfigurationError(own.gaps[0].reason)
    cells = plan.sweep_cells + own.sweep_cells
    return replace(plan, sweep_cells=cells, gaps=own.gaps)


def plan_method(
    suite: str,
    stage: str,
    method: Mapping[str, Any],
    data_dir: str | None,
) -> Plan:
    """Make the plan of one method; what it refuses on a set is a gap."""
    declared = read_suite(suite)
    shared = {key: declared[key] for key in SWEEP_KEYS if key in declared}
    shared["name"] = f"suite {suite}"
    profile = {"name": stage, "seeds": 1}
    sweep_cells: list[tuple[str, Cell]] = []
    gaps: list[Gap] = []
    for sweep in declared["stages"][stage]:
        keys = declared["sweeps"][sweep]
        epsilons = keys["epsilon"] if find_method(method).private else [None]
        for dataset in keys["datasets"]:
            spec = keys | {"datasets": [dataset], "methods": [method]}
            paper = shared | {"sweeps": {sweep: spec}}
            try:
                plan = make_plan(paper, profile, data_dir=data_dir)
            except ConfigurationError as error:
                gaps += [
                    Gap(sweep, method["name"], dataset, epsilon, str(error))
                    for epsilon in epsilons
                ]
                continue
            sweep_cells += plan.sweep_cells
            gaps += plan.gaps
    return Plan(shared["name"], tuple(sweep_cells), tuple(gaps))


def select_cells(plan: Plan, names: Sequence[Sequence]) -> Plan:
    """Restrict a plan to some cells, and the fits that are timed."""
    chosen = set(map(tuple, names))
    kept = tuple(
        (sweep, cell)
        for sweep, cell in plan.sweep_cells
        if sweep == TIMES or name_cell(sweep, cell) in chosen
    )
    return replace(plan, sweep_cells=kept)


def name_cell(sweep: str, cell: Cell) -> CellName:
    """Return the name of a cell in a sweep."""
    return sweep, cell.method, cell.dataset_name, cell.epsilon


def label_cell(
    sweep: str,
    method: str,
    dataset: str,
    epsilon: float | None,
) -> str:
    """Name a cell in a line for people; an epsilon of NaN is none.

    Examples
    --------
    >>> label_cell("lite", "mine", "iris", 0.5)
    'mine on iris, epsilon=0.5 (lite)'
    >>> label_cell("times", "kmeans", "iris", None)
    'kmeans on iris (times)'
    """
    if epsilon is None or math.isnan(epsilon):
        return f"{method} on {dataset} ({sweep})"
    return f"{method} on {dataset}, epsilon={epsilon:g} ({sweep})"
