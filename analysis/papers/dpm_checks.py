"""Claims of the DPM paper that need a formula of their own: the total budget."""

import json
from collections.abc import Mapping

import numpy as np
import pandas as pd

from pkm.analysis.accounting import composed_delta
from pkm.analysis.charges import charges_of
from pkm.analysis.exact import absent_cells
from pkm.analysis.findings import Agreement, Context, MissingRows, check_type
from pkm.analysis.tables import Study

SHARES = (0.04, 0.18, 0.18, 0.6)
_TOLERANCE = 1e-9


@check_type()
def total_budget(study: Study, check: Mapping, context: Context) -> Agreement:
    """Stored published cells spend no more than declared.

    Shares add up to one; pure charges, the ledger and δ stay within what is declared. What declares
    δ is 1/(n √n). The charges' own δ and that of their Gaussian noise, at the share of ε meant for
    it, are summed, and the δ of the ledger is checked as well.
    """
    cells = study.cells
    published = cells["target"].str.endswith(".DPM") & (cells["variant"] == "published")
    cells = cells[published].drop_duplicates("cell")
    if not len(cells):
        raise MissingRows("no stored rows of the published DPM")
    charges = charges_of(cells)
    by_cell = {index: charges[charges.index == index] for index in cells.index}
    shares = pd.DataFrame([_shares(cell) for _, cell in cells.iterrows()], index=cells.index)
    gaussian = cells["epsilon"] * shares[3]
    table = cells[["sweep", "method", "dataset", "epsilon", "epsilon_spent"]].assign(
        shares=shares.sum(axis=1),
        pure_charges=charges["epsilon"].groupby(level=0).sum().reindex(cells.index, fill_value=0),
        pure_allowed=cells["epsilon"] - gaussian,
        delta_ledger=cells["delta"],
        delta_charges=[composed_delta(by_cell[i], gaussian[i]) for i in cells.index],
        delta_declared=cells["n"] ** -1.5,
    )
    # Noise is a whole number of steps, so a cost may exceed its share by rounding.
    limits = {
        "pure_charges": "pure_allowed",
        "epsilon_spent": "epsilon",
        "delta_ledger": "delta_declared",
        "delta_charges": "delta_declared",
    }
    fits = [table[cost] <= table[limit] * (1 + 1e-6) for cost, limit in limits.items()]
    add_up = np.abs(table["shares"] - 1) <= _TOLERANCE
    table = table.assign(agrees=np.logical_and.reduce([add_up, *fits])).reset_index(drop=True)
    spent = table["epsilon_spent"] / table["epsilon"]
    share = (table["delta_charges"] / table["delta_declared"]).max()
    text = f"Composed tightly the ledger needs {spent.min():.3f} to {spent.max():.3f} of the "
    text += "declared ε, counting the interval size at the cost that the paper claims for it. "
    text += f"The charges' δ add up to {share:.3f} of the declared one at most."
    return Agreement(table, text, absent_cells(context, table["method"].unique()))


def _shares(cell: pd.Series) -> tuple[float, ...]:
    given = cell.get("shares")
    return tuple(json.loads(given)) if isinstance(given, str) and given.startswith("[") else SHARES
