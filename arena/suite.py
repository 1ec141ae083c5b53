"""Suites: versioned sets of cells, read from ``conf/suite``."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from pkm import catalogue
from pkm.experiments.config.errors import ConfigurationError
from pkm.experiments.config.groups import read_choice
from pkm.experiments.config.settings import one_of
from pkm.experiments.plan.plan import Plan, make_plan
from pkm.experiments.plan.sweep import SWEEP_KEYS

#: The suite of new entries.
CURRENT = "2026-11"
STAGES = one_of("lite", "full")
#: The sweep of fits that are timed.
TIMES = "times"
#: A cell of a suite: sweep, data set, epsilon (None without privacy).
CellName = tuple[str, str, float | None]


def read_suite(name: str) -> dict[str, Any]:
    """Read a suite: its reference, the settings of all cells, stages, and sweeps."""
    return catalogue.current().read("suite", name)


def make_stage_plan(
    suite: str,
    stage: str,
    method: Mapping[str, Any],
    *,
    data_dir: str | None = None,
) -> Plan:
    """Make the plan of a stage: a method and the reference on all its sets.

    Parameters
    ----------
    suite : str
        Name of a suite.
    stage : {"lite", "full"}
    method : mapping
        Entry of a method: ``name``, ``_target_`` and its parameters.
    data_dir : str, optional
        Folder with original data files.

    Returns
    -------
    Plan
        Its sweeps are those of the stage.

    Raises
    ------
    ConfigurationError
        If the suite, the stage or a parameter is unknown, or a set is missing here.

    Examples
    --------
    >>> from pkm.experiments.config.groups import read_choice
    >>> plan = make_stage_plan(CURRENT, "lite", read_choice("method", "sulloyd"))
    >>> len(plan.cells)
    30
    """
    STAGES.require("stage", stage)
    declared = read_suite(suite)
    shared = {key: declared[key] for key in SWEEP_KEYS if key in declared}
    reference = read_choice("method", declared["reference"])
    sweeps = {
        name: declared["sweeps"][name] | {"methods": [reference, method]}
        for name in declared["stages"][stage]
    }
    plan = make_plan(
        {"name": f"suite {suite}", **shared, "sweeps": sweeps},
        {"name": stage, "seeds": 1},
        data_dir=data_dir,
    )
    for gap in plan.gaps:
        raise ConfigurationError(f"{gap.dataset}: {gap.reason}")
    return plan


def select_cells(plan: Plan, names: Collection[CellName]) -> Plan:
    """Restrict a plan to some cells, and the fits that are timed."""
    kept = tuple(
        (sweep, cell)
        for sweep, cell in plan.sweep_cells
        if sweep == TIMES or (sweep, cell.dataset_name, cell.epsilon) in names
    )
    return replace(plan, entries=kept)
