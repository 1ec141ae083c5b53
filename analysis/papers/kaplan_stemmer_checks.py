"""Bounds of the Kaplan-Stemmer paper, and its ledger where a record is replaced."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import special

from pkm.analysis.accounting import gaussian_epsilon
from pkm.analysis.charges import charges_of
from pkm.analysis.findings import Agreement, Context, MissingRows, check_type, no_rows_of
from pkm.analysis.tables import Study

_TOLERANCE = 1e-6

# Table 1: factor and additive bound of every row, without logarithms, epsilon and constants, which
# the paper's table leaves out too.
BOUNDS = {
    "feldman2009": (lambda n, k, d: np.sqrt(d), lambda n, k, d: (k * d) ** (2.0 * d)),
    "nock2016": (lambda n, k, d: np.log(k), lambda n, k, d: n / np.log(n) ** 2),
    "feldman2017": (lambda n, k, d: k * np.log(n), lambda n, k, d: np.sqrt(d) * k**1.5),
    "balcan2017": (lambda n, k, d: np.log(n) ** 3, lambda n, k, d: d + k**2.0),
    "nissim_stemmer2018": (lambda n, k, d: k, lambda n, k, d: d**0.51 * k**1.51),
    "this_work": (lambda n, k, d: 1.0, lambda n, k, d: k**1.01 * d**0.51 + k**1.5),
}


# --- ledger ---------------------------------------------------------------------------------------


@check_type("methods", "delta")
def ledger_total(study: Study, check: Mapping, context: Context) -> Agreement:
    """Epsilon and delta in the ledger of every stored cell, against those declared.

    The ledger is about a record left out. The finding also states the epsilon of the same releases
    at the same delta where a record is replaced, see `replacement_cost`.
    """
    cells = study.cells[study.cells["method"].isin(check["methods"])].drop_duplicates("cell")
    if not len(cells):
        raise MissingRows(no_rows_of(check["methods"], ()))
    spent = cells["epsilon_spent"] / cells["epsilon"]
    fits = (spent <= 1 + _TOLERANCE) & (cells["delta"] <= check["delta"] * (1 + _TOLERANCE))

    # Epsilon of the same releases where a record is replaced.
    charges = charges_of(cells)
    of_cells = [charges[charges.index == index].to_dict("records") for index in cells.index]
    pairs = zip(of_cells, cells["delta"], strict=True)
    replaced = np.array([replacement_epsilon(*pair) for pair in pairs])
    ratio = pd.Series(replaced / cells["epsilon"]).dropna()

    facts = ["sweep", "method", "dataset", "epsilon", "epsilon_spent", "delta"]
    table = cells[facts].assign(epsilon_replaced=replaced, agrees=fits)
    text = f"The ledger needs {spent.min():.4f} to {spent.max():.4f} of the declared ε if a "
    text += "record is left out. "
    if len(ratio):
        text += f"The same releases need {ratio.min():.3g} to {ratio.max():.3g} times that ε, "
        text += f"at the same δ, if a record is replaced (median {ratio.median():.3g}). "
    if len(ratio) < len(cells):
        text += f"For {len(cells) - len(ratio)} of {len(cells)} cells that cannot be computed "
        text += "from what is stored. "
    text += "Accounting only: no audit was made, no lower bound on ε is measured."
    missing = context.absent_cells(check["methods"])
    return Agreement(table.reset_index(drop=True), text, missing)


def replacement_cost(charges: Sequence[Mapping]) -> tuple[float, float]:
    """Gaussian cost and delta of stored charges if a record is replaced, not left out.

    Both the old record and the new one change what is released. Two counts change by 1; a sum
    changes by twice the radius (two sums by less); a threshold may fail for two buckets; costs in
    the exponential mechanism move up and down, so that its exponents range over twice as much.
    Passes over the farthest points are charged for a replacement already, and the replacement of a
    record replaces one of these points.

    Parameters
    ----------
    charges : list of dict
        Lines of `pkm.analysis.charges.charges_of`.

    Returns
    -------
    tuple of float
        mu and delta; NaN where a charge is of a kind that this function does not know, or where
        there is none.
    """
    if not charges:
        return math.nan, math.nan
    square = 0.0
    delta = 0.0
    for charge in charges:
        label = charge["label"]
        failure = charge["delta"]
        if label == "bucket_counts":
            if charge["count_sensitivity"] <= 1:
                failure = 1 - (1 - failure) ** 2
            square += 2 / charge["count_scale"] ** 2
        elif label == "bucket_sums":
            square += (2 * charge["radius"] / charge["sum_scale"]) ** 2
        elif label == "nearest_counts":
            square += 2 / charge["count_scale"] ** 2
        elif label == "nearest_sums_and_counts":
            # Within one part only its sum changes; between two, both sums by a radius and both
            # counts.
            sums = (charge["radius"] / charge["sum_scale"]) ** 2
            square += max(4 * sums, 2 * sums + 2 / charge["count_scale"] ** 2)
        elif label in ("swaps", "sets"):
            square += (2 * special.ndtri(special.expit(charge["choice_range"]))) ** 2
        else:
            return math.nan, math.nan
        delta += failure
    return math.sqrt(square), delta


def replacement_epsilon(charges: Sequence[Mapping], delta: float) -> float:
    """Smallest epsilon of stored charges at `delta` if a record is replaced; NaN if not known."""
    mu, failure = replacement_cost(charges)
    return gaussian_epsilon(mu, delta - failure) if mu > 0 else math.nan
