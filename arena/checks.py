"""What is wrong with an entry, by its files alone and the points of the suite."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pkm.arena.entry import Entry, check_size, list_files
from pkm.arena.suite import CELL_KEYS, CellName, label_cell, read_suite
from pkm.experiments.cell.cell import Cell
from pkm.experiments.fit.inputs import PreparedData, prepare_cell_data
from pkm.metrics import evaluate
from pkm.privacy import SCALE, Budget, BudgetExceeded, Charge, Ledger
from pkm.privacy.ledger import COST_FIELDS, StreamReuseError

#: Relative difference of two costs, or two epsilons, by rounding.
TOLERANCE = 1e-6
#: Coordinates below are exact in float64, in grid steps.
FARTHEST = 2.0**53
#: Columns of planned cells that depend on the method.
OF_METHOD = ("method", "target", "variant", "params")
#: Columns that are the same in all rows of a method.
CONSTANT = ("target", "variant", "notion", "adjacency", "trust", "view", "noise")


def check_files(entry: Entry, folder: Path) -> list[str]:
    """Compare the files of a folder with those that its entry lists."""
    present = list_files(folder)
    names = sorted(present.keys() | entry.files.keys())
    return check_size(folder) + [
        f"{name}: the file is not the one that {entry.name} was submitted with"
        for name in names
        if present.get(name) != entry.files.get(name)
    ]


def list_suite_cells(entry: Entry, rows: pd.DataFrame) -> dict[CellName, list[int]]:
    """List the cells that an entry must have, with their seeds."""
    suite = read_suite(entry.suite)
    is_private = rows.loc[rows["method"] == entry.name, "epsilon"].notna().any()
    cells: dict[CellName, list[int]] = {}
    for name in suite["stages"][entry.stage]:
        sweep = suite["sweeps"][name]
        epsilons = {
            suite["reference"]: [None],
            entry.name: sweep["epsilon"] if is_private else [None],
        }
        seeds = list(range(sweep["seeds"]))
        cells |= {
            (name, method, dataset, epsilon): seeds
            for method in epsilons
            for dataset in sweep["datasets"]
            for epsilon in epsilons[method]
        }
    return cells


def list_stored_cells(rows: pd.DataFrame) -> dict[CellName, list[int]]:
    """List the cells of rows, with their seeds."""
    cells = {}
    for (*name, epsilon), cell in rows.groupby(CELL_KEYS, dropna=False):
        if math.isnan(epsilon):
            epsilon = None
        cells[*name, epsilon] = sorted(cell["seed"])
    return cells


def check_cells(
    entry: Entry,
    expected: Mapping[CellName, list[int]],
    stored: Mapping[CellName, list[int]],
) -> list[str]:
    """Find cells and seeds that are left out without a word, or were added."""
    findings = []
    for cell in expected.keys() | stored.keys():
        label = label_cell(*cell)
        is_named = any(line.startswith(f"{label}: ") for line in entry.problems)
        if cell not in expected:
            findings.append(f"{label}: this is no cell of the suite")
        elif cell not in stored and not is_named:
            findings.append(f"{label}: left out, and no problem is named")
        elif cell in stored and stored[cell] != expected[cell]:
            findings.append(f"{label}: seeds are not those of the suite")
    return sorted(findings)


def check_settings(
    entry: Entry,
    rows: pd.DataFrame,
    reference_cells: Mapping[tuple[str, str], Cell],
) -> list[str]:
    """Compare what rows say of data and method with the suite, and with each other."""
    findings = []
    for (sweep, dataset), cell in reference_cells.items():
        chosen = rows["dataset"] == dataset
        chosen &= rows["sweep"] == sweep
        settings = cell.planned_columns()
        for name in OF_METHOD:
            del settings[name]
        settings["data"] = cell.data
        for name, value in settings.items():
            if set(rows.loc[chosen, name]) - {value}:
                findings.append(
                    f"{dataset} ({sweep}): {name} is not {value}, as in the suite"
                )
    own = rows[rows["method"] == entry.name]
    for name in CONSTANT:
        values = sorted(set(own[name].astype(str)))
        if len(values) > 1:
            findings.append(f"{name} is {' and '.join(values)}: rows of two methods")
    return findings


def check_costs(
    rows: pd.DataFrame,
    reference_cells: Mapping[tuple[str, str], Cell],
    data_dir: str | None,
) -> list[str]:
    """Compute the cost of all released centers anew."""
    findings = []
    cells = {dataset: cell for (_, dataset), cell in reference_cells.items()}
    for dataset, cell in cells.items():
        lines = rows[rows["dataset"] == dataset].to_dict("records")
        data = prepare_cell_data(cell, data_dir)
        correct = [has_true_cost(line, data, cell.k) for line in lines]
        n_wrong = correct.count(False)
        if n_wrong:
            findings.append(
                f"{dataset}: {n_wrong} of {len(lines)} costs are not those of the "
                "centers"
            )
    return findings


def has_true_cost(
    line: Mapping[str, Any],
    data: PreparedData,
    k: int,
) -> bool:
    """Tell whether a row has at most k centers, and their cost on these points."""
    n, d = data.points.n_records, data.points.shape[1]
    lower, upper = data.domain
    try:
        raw = np.array([list(center) for center in line["centers"]])
        shares = (raw - lower) / (upper - lower)
        grid = np.rint((2 * shares - 1) * SCALE)
        # False for NaN.
        if not (np.abs(grid) < FARTHEST).all():
            return False
        centers = grid.astype(np.int64)
        (cost,) = evaluate(data.points, centers[None], ["nicv"], k)["nicv"]
    except (TypeError, ValueError):
        # Centers are missing, or have other columns.
        return False
    has_cost = math.isclose(cost, line["nicv"], rel_tol=TOLERANCE)
    has_number = len(raw) == line["n_centers"] <= k
    has_shape = (n, d) == (line["n"], line["d"])
    return has_cost and has_number and has_shape


def check_charges(rows: pd.DataFrame) -> list[str]:
    """Add up the charges of every row in a ledger of its budget."""
    findings = []
    for line in rows[rows["notion"] != "none"].to_dict("records"):
        name = [line[key] for key in CELL_KEYS]
        label = f"{label_cell(*name)}, seed {line['seed']}"
        stated = line["epsilon_spent"]
        try:
            spent = add_up(line["charges"], line["epsilon"], line["delta"])
        except (BudgetExceeded, StreamReuseError, TypeError, ValueError) as error:
            findings.append(f"{label}: {error}")
            continue
        if not math.isclose(spent, stated, rel_tol=TOLERANCE):
            findings.append(
                f"{label}: the charges need epsilon={spent:.6g}, {stated:.6g} is stated"
            )
    return findings


def add_up(
    records: Sequence[Mapping[str, Any]],
    epsilon: float,
    delta: float,
) -> float:
    """Add up charges that were read from a row, and return what they spend.

    Raises
    ------
    BudgetExceeded
        If they exceed the budget.
    StreamReuseError
        If noise was used twice.
    ValueError
        If the budget or a cost is not allowed.
    """
    ledger = Ledger(Budget(epsilon, delta))
    for record in records:
        costs = {name: record[name] for name in COST_FIELDS}
        ledger.charge(Charge(**costs))
    return ledger.spent()
