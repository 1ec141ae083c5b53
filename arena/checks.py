"""What is wrong with an entry, by its files alone and the points of the suite."""

import math
from collections.abc import Mapping
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
    found = list_files(folder)
    names = sorted(found.keys() | entry.files.keys())
    return check_size(folder) + [
        f"{name}: the file is not the one that {entry.name} was submitted with"
        for name in names
        if found.get(name) != entry.files.get(name)
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
        cells |= {
            (name, method, dataset, epsilon): list(range(sweep["seeds"]))
            for method in epsilons
            for dataset in sweep["datasets"]
            for epsilon in epsilons[method]
        }
    return cells


def list_stored_cells(rows: pd.DataFrame) -> dict[CellName, list[int]]:
    """List the cells of rows, with their seeds."""
    return {
        (*name, None if math.isnan(epsilon) else epsilon): sorted(part["seed"])
        for (*name, epsilon), part in rows.groupby(CELL_KEYS, dropna=False)
    }


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
        part = rows[(rows["sweep"] == sweep) & (rows["dataset"] == dataset)]
        planned = cell.planned_columns()
        settings = {name: planned[name] for name in planned.keys() - set(OF_METHOD)}
        for name, value in sorted((settings | {"data": cell.data}).items()):
            if set(part[name]) - {value}:
                findings.append(f"{dataset} ({sweep}): {name} is not {value}, as it is")
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
        part = rows[rows["dataset"] == dataset]
        data = prepare_cell_data(cell, data_dir)
        n_wrong = sum(
            not has_true_cost(line, data, cell.k) for line in part.to_dict("records")
        )
        if n_wrong:
            findings.append(
                f"{dataset}: {n_wrong} of {len(part)} costs are not those of the "
                "centers"
            )
    return findings


def has_true_cost(line: Mapping[str, Any], data: PreparedData, k: int) -> bool:
    """Tell whether a row has at most k centers, and their cost on these points."""
    shape = data.points.n_records, data.points.shape[1]
    lower, upper = data.domain
    try:
        raw = np.array([list(center) for center in line["centers"]])
        grid = np.rint(((raw - lower) / (upper - lower) * 2 - 1) * SCALE)
        if not (np.abs(grid) < FARTHEST).all():  # or NaN
            return False
        centers = grid.astype(np.int64)[None]
        (cost,) = evaluate(data.points, centers, ["nicv"], k)["nicv"]
    except (TypeError, ValueError):
        # Centers are missing, or have other columns.
        return False
    is_equal = math.isclose(cost, line["nicv"], rel_tol=TOLERANCE)
    is_released = len(raw) == line["n_centers"] <= k
    return is_equal and is_released and shape == (line["n"], line["d"])


def check_charges(rows: pd.DataFrame) -> list[str]:
    """Add up the charges of every row in a ledger of its budget."""
    findings = []
    for line in rows[rows["notion"] != "none"].to_dict("records"):
        label = label_cell(*(line[key] for key in CELL_KEYS))
        try:
            ledger = Ledger(Budget(line["epsilon"], line["delta"]))
            for record in line["charges"]:
                ledger.charge(Charge(**{name: record[name] for name in COST_FIELDS}))
            spent = ledger.spent()
        except (BudgetExceeded, StreamReuseError, TypeError, ValueError) as error:
            findings.append(f"{label}, seed {line['seed']}: {error}")
            continue
        if not math.isclose(spent, line["epsilon_spent"], rel_tol=TOLERANCE):
            findings.append(
                f"{label}, seed {line['seed']}: the charges need epsilon={spent:.6g}, "
                f"{line['epsilon_spent']:.6g} is stated"
            )
    return findings
