"""Claims of the FastLloyd paper: iterations, federated against central runs."""

import math
from collections.abc import Mapping
from functools import cache

from scipy import optimize

from pkm.analysis.accounting import gaussian_delta
from pkm.analysis.federation_costs import federated
from pkm.analysis.findings import (
    Agreement,
    Context,
    MissingRows,
    check_type,
    join_texts,
    no_rows_of,
)
from pkm.analysis.tables import Study

DEFAULT_ALPHA = 0.8
_ROUNDING = 1e-12
_CELL = ["sweep", "method", "dataset", "n", "d", "k", "epsilon"]


@cache
def noise_multiplier(epsilon: float, delta: float) -> float:
    """Smallest sigma for which a query of sensitivity 1 is (epsilon, delta)-private."""
    mu = optimize.brentq(
        lambda value: gaussian_delta(value, epsilon) - delta, 1e-6, 100.0, xtol=1e-14
    )
    return 1 / mu


def iteration_bound(
    n: int, d: int, k: int, epsilon: float, delta: float, alpha: float = DEFAULT_ALPHA
) -> int:
    """Number of iterations by the error bound of section 5.5, cut to [2, 7] and rounded down."""
    sigma = noise_multiplier(epsilon, delta)
    radius = alpha * math.sqrt(d) / k ** (1 / d)
    error_per_round = k**3 * radius**2 * sigma**2 * (1 + math.sqrt(4 * d)) ** 2
    bound = 4 * n**2 * 0.004 / error_per_round
    return int(min(max(math.floor(bound), 2), 7))


@check_type()
def iterations(study: Study, check: Mapping, context: Context) -> Agreement:
    """Compare T of every published cell with the formula, where T was not fixed by hand."""
    cells = study.cells.drop_duplicates("cell")
    published = cells["target"].str.endswith(".FastLloyd") & (cells["variant"] == "published")
    cells = cells[published]
    if "n_iterations" in cells:
        cells = cells[cells["n_iterations"].fillna("auto") == "auto"]
    if not len(cells):
        raise MissingRows("no stored cell of the published FastLloyd leaves T to the error bound")
    alpha = cells["alpha"].fillna(DEFAULT_ALPHA) if "alpha" in cells else DEFAULT_ALPHA
    arguments = cells[["n", "d", "k", "epsilon", "delta"]].assign(alpha=alpha)
    formula = [iteration_bound(*line) for line in arguments.itertuples(index=False)]
    stored = cells["iterations"]
    table = cells[_CELL].assign(formula=formula, stored=stored, agrees=stored == formula)
    missing = context.absent_cells(table["method"].unique())
    text = f"T from {stored.min():g} to {stored.max():g}."
    return Agreement(table.reset_index(drop=True), text, missing)


@check_type("sweeps")
def equals_central_run(study: Study, check: Mapping, context: Context) -> Agreement:
    """Compare NICV of federated runs with that of the central run of the same cell and seed.

    The same cell: method, data, budget.
    """
    rows = study.rows_with(["nicv"])
    protocol = federated(rows)
    central = rows.drop(protocol.index)
    protocol = protocol[protocol["sweep"].isin(check["sweeps"])]
    if not len(protocol):
        raise MissingRows(context.why(check["sweeps"]))
    keys = ["method", "target", "variant", "params", "dataset", "preprocessing", "epsilon", "seed"]
    central = central[[*keys, "nicv"]].drop_duplicates(keys)
    both = protocol.merge(central, on=keys, suffixes=("", "_central"))
    if not len(both):
        raise MissingRows(
            "no central run of the same method, data set, epsilon and seed as a federated one is "
            "stored"
        )
    both["difference"] = (both["nicv"] / both["nicv_central"] - 1).abs()
    groups = ["sweep", "method", "dataset", "epsilon", "clients", "transport"]
    table = both.groupby(groups)["difference"].agg(runs="size", difference="max").reset_index()
    table["agrees"] = table["difference"] <= _ROUNDING
    unmatched = no_rows_of(protocol["dataset"].unique(), both["dataset"])
    missing = join_texts(
        f"central runs at this epsilon: {unmatched}" if unmatched else "",
        context.absent_cells(sweeps=check["sweeps"]),
    )
    text = f"{len(both)} runs, relative differences of at most {both['difference'].max():.2g}."
    return Agreement(table, text, missing)
