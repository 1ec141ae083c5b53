"""What is wrong with an entry, by its files alone and the points of the suite."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pkm.arena.entry import Entry, list_files
from pkm.arena.suite import read_suite
from pkm.arrow import read_parameters
from pkm.experiments.cell.cell import Cell
from pkm.experiments.fit.inputs import prepare_cell_data
from pkm.metrics import evaluate
from pkm.privacy import SCALE, Budget, BudgetExceeded, Charge, Ledger

#: Relative difference of two costs, or two epsilons, by rounding.
TOLERANCE = 1e-6


def check_files(entry: Entry, folder: Path) -> list[str]:
    """Compare the files of a folder with those that its entry lists."""
    found = list_files(folder)
    names = sorted(found.keys() | entry.files.keys())
    return [
        f"{name}: the file is not the one that {entry.name} was submitted with"
        for name in names
        if found.get(name) != entry.files.get(name)
    ]


def check_rows(
    entry: Entry,
    rows: pd.DataFrame,
    reference: str,
    suite_cells: Mapping[str, Cell],
) -> list[str]:
    """Compare the settings of rows with the suite; find those that are left out."""
    suite = read_suite(entry.suite)
    sweeps = {name: suite["sweeps"][name] for name in suite["stages"][entry.stage]}
    own = rows[rows["method"] == entry.name]
    private = bool(own["epsilon"].notna().any())
    expected = {
        (name, method, dataset, epsilon, seed)
        for name, sweep in sweeps.items()
        for method in (entry.name, reference)
        for dataset in sweep["datasets"]
        for epsilon in (sweep["epsilon"] if private and method != reference else [0.0])
        for seed in range(sweep["seeds"])
    }
    columns = ["sweep", "method", "dataset", "epsilon", "seed"]
    keys = rows[columns].fillna({"epsilon": 0.0})
    stored = list(keys.itertuples(index=False, name=None))
    findings = [
        f"{count} rows {text}"
        for count, text in (
            (len(expected - set(stored)), "of the suite are missing"),
            (len(set(stored) - expected), "are not of the suite"),
            (len(stored) - len(set(stored)), "occur twice"),
        )
        if count
    ]

    # What a row says of its data and its method.
    first = {name: read_settings(cell) for name, cell in suite_cells.items()}
    for dataset, group in rows.groupby("dataset"):
        if dataset not in first:
            continue
        for column, value in first[dataset].items():
            if set(group[column]) != {value}:
                findings.append(f"{dataset}: {column} is not {value}, as in the suite")
    parameters = {
        name: value
        for name, value in entry.method.items()
        if name not in ("name", "variant") and not name.startswith("_")
    }
    targets = set(own["target"])
    stored_parameters = read_parameters(own.drop_duplicates("cell"))
    if targets != {entry.method["_target_"]} or any(
        values[name] != parameters[name]
        for values in stored_parameters
        for name in values.keys() & parameters.keys()
    ):
        findings.append("rows are of a method with another class or other parameters")
    return findings


def read_settings(cell: Cell) -> dict[str, Any]:
    """Return what the suite decides for the rows of a data set."""
    return {
        "k": cell.k,
        "data": cell.data,
        "preprocessing": cell.preprocessing,
    }


def check_costs(
    rows: pd.DataFrame,
    suite_cells: Mapping[str, Cell],
    data_dir: str | None,
) -> list[str]:
    """Compute the cost of all released centers anew."""
    findings = []
    for dataset, group in rows.groupby("dataset"):
        if dataset not in suite_cells:
            continue
        cell = suite_cells[dataset]
        data = prepare_cell_data(cell, data_dir)
        lower, upper = data.domain
        n_wrong = 0
        for line in group.itertuples():
            raw = np.array([list(point) for point in line.centers])
            grid = np.rint(((raw - lower) / (upper - lower) * 2 - 1) * SCALE)
            centers = grid.astype(np.int64)[None]
            (cost,) = evaluate(data.points, centers, ["nicv"], cell.k)["nicv"]
            n_wrong += not math.isclose(cost, line.nicv, rel_tol=TOLERANCE)
            n_wrong += not len(raw) == line.n_centers <= cell.k
        if n_wrong:
            findings.append(
                f"{dataset}: {n_wrong} of {len(group)} costs are not those of the "
                "centers"
            )
    return findings


def check_charges(rows: pd.DataFrame) -> list[str]:
    """Add up the charges of every row in a ledger of its budget."""
    findings = []
    names = ("label", "round", "mechanism", "mu", "epsilon", "delta", "group")
    for line in rows[rows["notion"] != "none"].itertuples():
        label = f"{line.dataset}, epsilon={line.epsilon:g}, seed {line.seed}"
        ledger = Ledger(Budget(line.epsilon, line.delta))
        try:
            for record in line.charges:
                ledger.charge(Charge(**{name: record[name] for name in names}))
        except BudgetExceeded:
            findings.append(f"{label}: the charges exceed the budget")
            continue
        if not math.isclose(ledger.spent(), line.epsilon_spent, rel_tol=TOLERANCE):
            findings.append(f"{label}: the charges need another epsilon than stated")
    return findings
