"""Claims of the FastLloyd paper: iterations, charges, outliers, federated against central runs."""

import math
from collections.abc import Mapping
from functools import cache

import numpy as np
import pandas as pd
from scipy import optimize

from pkm.analysis.accounting import gaussian_delta
from pkm.analysis.charges import charges_of
from pkm.analysis.exact import absent_cells
from pkm.analysis.federation_costs import federated
from pkm.analysis.findings import (
    Agreement,
    Context,
    Draws,
    MissingRows,
    check_type,
    join_texts,
    no_rows_of,
)
from pkm.analysis.tables import Study, resampled_means

DEFAULT_ALPHA = 0.8
#: Parameters that a cell need not name.
DEFAULTS = {"n_iterations": "auto", "alpha": DEFAULT_ALPHA, "radius_schedule": "step"}
_TOLERANCE = 1e-6
_ROUNDING = 1e-12
_CELL = ["sweep", "method", "dataset", "n", "d", "k", "epsilon", "delta", "epsilon_spent"]


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


def _published_cells(study: Study) -> pd.DataFrame:
    """Distinct published FastLloyd cells of all sweeps, with every parameter of the radius."""
    cells = study.cells
    is_fastlloyd = cells["target"].str.rsplit(".", n=1).str[-1] == "FastLloyd"
    cells = cells[is_fastlloyd & (cells["variant"] == "published")]
    cells = cells.drop_duplicates("cell").reset_index(drop=True)
    if not len(cells):
        raise MissingRows("no stored rows of the published FastLloyd")
    for name, default in DEFAULTS.items():
        given = cells.get(name, pd.Series(None, cells.index, dtype=object))
        cells[name] = given.where(given.notna(), default)
    return cells


def _rounds(study: Study) -> pd.DataFrame:
    """Charges of sums and counts, one line per round, with the facts of their cell."""
    cells = _published_cells(study)
    charges = charges_of(cells)
    charges = charges[charges["label"] == "sums_and_counts"]
    if not len(charges):
        raise MissingRows("no charges stored")
    return charges.join(cells, suffixes=("_charged", ""))


def _agreement(table: pd.DataFrame, text: str, context: Context) -> Agreement:
    missing = absent_cells(context, table["method"].unique())
    return Agreement(table.reset_index(drop=True), text, missing)


@check_type()
def iterations(study: Study, check: Mapping, context: Context) -> Agreement:
    """Compare T of every cell with the formula, where T was not fixed by hand."""
    cells = _published_cells(study)
    cells = cells[cells["n_iterations"] == "auto"]
    if not len(cells):
        raise MissingRows("no stored FastLloyd cell leaves T to the error bound")
    arguments = cells[["n", "d", "k", "epsilon", "delta", "alpha"]].itertuples(index=False)
    formula = [iteration_bound(*line) for line in arguments]
    stored = cells["iterations"]
    table = cells[_CELL].assign(formula=formula, stored=stored, agrees=stored == formula)
    text = f"T from {stored.min():g} to {stored.max():g}."
    return _agreement(table, text, context)


@check_type()
def noise_split(study: Study, check: Mapping, context: Context) -> Agreement:
    """Multipliers of sums and counts: ratio (4d)^(1/4), and together the mu of the round."""
    rounds = _rounds(study)
    sums = rounds["sum_scale"] / rounds["sum_sensitivity"]
    counts = rounds["count_scale"] / rounds["count_sensitivity"]
    facts = {"ratio": counts / sums, "formula": (4 * rounds["d"]) ** 0.25}
    facts |= {"mu_of_both": np.hypot(1 / sums, 1 / counts), "mu_charged": rounds["mu"]}
    agrees = _close(facts["ratio"], facts["formula"]) & _close(facts["mu_of_both"], rounds["mu"])
    table = rounds[[*_CELL, "round"]].assign(**facts, agrees=agrees)
    return _agreement(table, "Read from the ledger's charges, one line per round.", context)


def _close(left: pd.Series, right: pd.Series, tolerance: float = _TOLERANCE) -> np.ndarray:
    return np.isclose(left, right, rtol=tolerance, atol=0)


@check_type()
def radius(study: Study, check: Mapping, context: Context) -> Agreement:
    """Radius of the last round against alpha sqrt(d) / k^(1/d); the Step rule starts at sqrt(d)."""
    rounds = _rounds(study)
    grouped = rounds.groupby(level=0)
    cells = grouped.first().assign(last=grouped["radius"].last(), rounds=grouped.size())
    root = np.sqrt(cells["d"])
    share_of_k_1 = cells["k"] ** (-1 / cells["d"])
    small = cells["alpha"].astype(float) * root * share_of_k_1
    first = root.where(cells["radius_schedule"] == "step", small)
    last = small.where(cells["rounds"] > 1, first)
    facts = {"first": cells["radius"], "last": cells["last"], "formula": last}
    agrees = _close(cells["radius"], first) & _close(cells["last"], last)
    table = cells[_CELL].assign(**facts, share_of_k_1=share_of_k_1, agrees=agrees)
    high = table.loc[table["d"].idxmax()]
    text = f"At d = {high['d']} the bound for k = {high['k']} is {high['share_of_k_1']:.3f} of "
    return _agreement(table, f"{text}that for k = 1.", context)


@check_type()
def composition(study: Study, check: Mapping, context: Context) -> Agreement:
    """All rounds composed: delta by the closed form, and the epsilon of the ledger."""
    rounds = _rounds(study)
    grouped = rounds.groupby(level=0)
    mu = grouped["mu"].agg(lambda values: math.sqrt(math.fsum(values**2)))
    cells = grouped.first()
    recomputed = [gaussian_delta(*pair) for pair in zip(mu, cells["epsilon"], strict=True)]
    agrees = (
        _close(cells["epsilon_spent"], cells["epsilon"])
        & _close(cells["delta"], recomputed, 1e-4)
        & (recomputed <= cells["delta"] * (1 + _TOLERANCE))
    )
    facts = {"rounds": grouped.size(), "mu": mu, "delta_recomputed": recomputed}
    table = cells[_CELL].assign(**facts, agrees=agrees)
    text = f"{table['rounds'].min()} to {table['rounds'].max()} rounds. Accounting only: the "
    text += "empirical audit (a lower bound on epsilon) is not part of this sweep."
    return _agreement(table, text, context)


@check_type("sweep", "metric", "max_d", "datasets", "ends", "bounded", "unbounded", "epsilon")
def outliers(study: Study, check: Mapping, context: Context) -> Draws:
    """Increase of a metric with the outliers: that of `bounded` less that of `unbounded`.

    From one number of outliers to the other of `ends`, at each epsilon. A data set counts where
    both methods have it with both numbers; the mean is taken over these data sets.
    """
    panel = study.panel(check["sweep"], check["metric"])
    if not len(panel.cells):
        raise MissingRows(context.why(check["sweep"]))
    names = panel.cells["dataset"].str.extract(r"^(?P<base>.+)-o(?P<outliers>\d+)$")
    cells = panel.cells.assign(base=names["base"], outliers=names["outliers"].astype(float))
    cells = cells[cells["d"] <= check["max_d"]]
    means = resampled_means(panel)
    sides = [(check[side], n) for side in ("bounded", "unbounded") for n in check["ends"]]
    lines = []
    differences = []
    seeds = []
    for epsilon in context.resolve(check["epsilon"]):
        # Columns of the data sets that both methods have with both numbers of outliers.
        of_epsilon = cells[cells["epsilon"] == epsilon]
        wide = of_epsilon.reset_index().pivot(
            index="base", columns=["method", "outliers"], values="index"
        )
        wide = wide.reindex(columns=pd.MultiIndex.from_tuples(sides)).dropna().astype(int)
        if not len(wide):
            continue
        averages = [means[:, wide[side]].mean(axis=1) for side in sides]
        bounded, unbounded = averages[1] - averages[0], averages[3] - averages[2]
        differences.append(bounded - unbounded)
        paired = np.isfinite(panel.values[:, wide.to_numpy().ravel()]).all(axis=1)
        seeds.append(np.count_nonzero(paired))
        line = {"epsilon": epsilon, "datasets": len(wide)}
        for method, low, rise in zip(sides[::2], averages[::2], (bounded, unbounded), strict=True):
            line[f"increase_{method[0]}"] = rise[0]
            line[f"relative_increase_{method[0]}"] = rise[0] / low[0]
        lines.append(line)
    if not lines:
        raise MissingRows(
            f"no data set of sweep {check['sweep']} has both methods with {check['ends'][0]} and "
            f"{check['ends'][1]} outliers"
        )
    table = pd.DataFrame(lines)
    relative = [table[f"relative_increase_{check[side]}"] for side in ("bounded", "unbounded")]
    text = "The relative increase is smaller with the bound at "
    text += f"{(relative[0] < relative[1]).sum()} of {len(table)} epsilons;"
    n_epsilons = len(context.resolve(check["epsilon"]))
    n_datasets = table["datasets"].min()
    complete = (table["datasets"] >= check["datasets"]).to_numpy()
    missing = join_texts(
        f"{len(table)} of {n_epsilons} epsilons available" if len(table) < n_epsilons else "",
        "" if complete.all() else f"only {n_datasets} of {check['datasets']} data sets",
        absent_cells(context, sweeps=check["sweep"]),
    )
    values = np.column_stack(differences)
    cases = table[["epsilon"]]
    facts = table.drop(columns="epsilon").to_dict("list")
    name = "Difference"
    return Draws(values, cases, min(seeds), missing, name, complete, facts, text=text)


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
        absent_cells(context, sweeps=check["sweeps"]),
    )
    text = f"{len(both)} runs, relative differences of at most {both['difference'].max():.2g}."
    return Agreement(table, text, missing)
