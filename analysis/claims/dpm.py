"""Claims of the DPM paper that need a formula of their own: the total budget."""

import json
import math
from collections.abc import Mapping

import pandas as pd

from pkm.analysis.accounting import composed_delta
from pkm.analysis.charges import charges_of
from pkm.analysis.findings import Context, Finding, MissingRows, exact
from pkm.analysis.tables import Study

SHARES = (0.04, 0.18, 0.18, 0.6)
_TOLERANCE = 1e-9


def total_budget(study: Study, check: Mapping, context: Context) -> Finding:
    """Stored published cells spend no more than declared.

    Shares add up to one; pure charges, the ledger and δ stay within what is declared. What declares
    δ is 1/(n √n). The charges' own δ and that of their Gaussian noise, at the share of ε meant for
    it, are summed, and the δ of the ledger is checked as well.
    """
    cells = study.cells
    published = cells["target"].str.endswith(".DPM") & (cells["variant"] == "published")
    cells = cells[published].drop_duplicates("cell")
    charges = charges_of(cells)
    lines = []
    for index, cell in cells.iterrows():
        of_cell = charges[charges.index == index]
        shares = _shares(cell)
        pure = math.fsum(of_cell["epsilon"])
        pure_allowed = cell["epsilon"] * (1 - shares[3])
        delta = composed_delta(of_cell, cell["epsilon"] * shares[3])
        declared = cell["n"] ** -1.5
        # Noise is a whole number of steps, so a cost may exceed its share by rounding.
        costs = [
            (pure, pure_allowed),
            (cell["epsilon_spent"], cell["epsilon"]),
            (cell["delta"], declared),
            (delta, declared),
        ]
        fits = all(cost <= allowed * (1 + 1e-6) for cost, allowed in costs)
        line = {name: cell[name] for name in ("sweep", "dataset", "epsilon", "epsilon_spent")}
        line |= {"shares": str(shares), "sum": math.fsum(shares)}
        line |= {"pure_charges": pure, "pure_allowed": pure_allowed}
        line |= {"delta_ledger": cell["delta"], "delta_charges": delta, "delta_declared": declared}
        lines.append(line | {"agrees": abs(line["sum"] - 1) <= _TOLERANCE and fits})
    table = pd.DataFrame(lines)
    if not len(table):
        raise MissingRows("no stored rows of the published DPM")
    spent = table["epsilon_spent"] / table["epsilon"]
    share = (table["delta_charges"] / table["delta_declared"]).max()
    numbers = f"Composed tightly the ledger needs {spent.min():.3f} to {spent.max():.3f} of the "
    numbers += "declared ε, counting the interval size at the cost that the paper claims for it. "
    numbers += f"The charges' δ add up to {share:.3f} of the declared one at most."
    return exact(table, numbers)


def _shares(cell: pd.Series) -> tuple[float, ...]:
    given = cell.get("shares")
    return tuple(json.loads(given)) if isinstance(given, str) and given.startswith("[") else SHARES


EVALUATORS = {
    "total_budget": total_budget,
}
