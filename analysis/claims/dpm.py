"""Claims of the DPM paper that follow from a formula: they are computed here, not read off the
rows, unless said.
"""

import json
import math

import pandas as pd

from pkm.analysis.accounting import composed_delta
from pkm.analysis.charges import charges_of
from pkm.analysis.findings import MissingRows, exact

SHARES = (0.04, 0.18, 0.18, 0.6)
DEPTH = 7
_TOLERANCE = 1e-9


def total_budget(study, check, context):
    """Stored published cells spend no more than declared: shares that add up to one, pure charges,
    ledger and δ.

    What declares δ is 1/(n √n). The charges' own δ and that of their Gaussian noise, at the share
    of ε meant for it, are summed, and the δ of the ledger is checked as well.
    """
    cells = study.cells
    published = cells["target"].str.endswith(".DPM") & (cells["variant"] == "published")
    cells = cells[published].drop_duplicates("cell")
    charges = charges_of(cells)
    lines = []
    for index, cell in cells.iterrows():
        shares = _shares(cell)
        of_cell = charges[charges.index == index]
        pure = math.fsum(of_cell["epsilon"])
        declared = cell["n"] ** -1.5
        delta = composed_delta(of_cell, cell["epsilon"] * shares[3])
        allowed = cell["epsilon"] * (1 - shares[3])
        line = {name: cell[name] for name in ("sweep", "dataset", "epsilon", "epsilon_spent")}
        line |= {
            "shares": str(shares),
            "sum": math.fsum(shares),
            "pure_charges": pure,
            "pure_allowed": allowed,
        }
        line |= {"delta_ledger": cell["delta"], "delta_charges": delta, "delta_declared": declared}
        # Noise is a whole number of steps, so a cost may exceed its share by rounding.
        costs = [(pure, allowed), (cell["epsilon_spent"], cell["epsilon"])]
        costs += [(cell["delta"], declared), (delta, declared)]
        fits = all(cost <= most * (1 + 1e-6) for cost, most in costs)
        lines.append(line | {"agrees": abs(line["sum"] - 1) <= _TOLERANCE and fits})
    table = pd.DataFrame(lines)
    if not len(table):
        raise MissingRows("no stored rows of the published DPM")
    spent = table["epsilon_spent"] / table["epsilon"]
    return exact(
        table,
        f"Composed tightly the ledger needs {spent.min():.3f} to {spent.max():.3f} of the declared ε, counting the "
        "interval size at the cost that the paper claims for it. The charges' δ add up to "
        f"{(table['delta_charges'] / table['delta_declared']).max():.3f} of the declared one at most.",
    )


def _shares(cell):
    given = cell.get("shares")
    return tuple(json.loads(given)) if isinstance(given, str) and given.startswith("[") else SHARES


EVALUATORS = {
    "total_budget": total_budget,
}
