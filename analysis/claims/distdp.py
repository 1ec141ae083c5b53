"""Claims of the paper on distance-based privacy that need a formula of their own: excess, bounds,
charges, noise.
"""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd

from pkm.analysis import verdicts
from pkm.analysis.accounting import composed_delta, gaussian_delta
from pkm.analysis.charges import charges_of
from pkm.analysis.findings import MissingRows, decide, exact
from pkm.analysis.planted import (
    chosen,
    curve,
    excess_slope,
    joined,
    not_positive,
    shown,
    slope_table,
    spans,
)
from pkm.analysis.tables import resampled_means, resampling_weights

_TOLERANCE = 1e-6


def radius_slopes(study, check, context):
    """Slopes in the radius of the space at a fixed rho: `method` against `at_most`, `plain` against
    `plain_at_least`.

    The box is scaled with the data, so a space L times as large is the same one with rho divided by
    L and costs multiplied by L squared. A method that knows no rho costs L squared times the same:
    its slope is 2.
    """
    line = curve(study, check | {"along": "rho", "value": "cost"}, context)
    if (found := not_positive(line)) is not None:
        return found
    radius = line.x.max() / line.x
    grown = replace(line, along="radius", x=radius, values=line.values * radius**2)
    slope = grown.slopes()
    panel = joined(study, check["sweep"], check["metric"])
    if not chosen(panel.cells, check["plain"]).any():
        raise MissingRows(context.why([check["sweep"]]))
    evidence = slope_table([grown], [slope]).assign(plain=check["plain"], plain_slope=2.0)
    numbers = f"Slope over the radius from 1 to {radius.max():g}: {shown(evidence)} (asked: ≤ {check['at_most']:g}); "
    numbers += f"that of {check['plain']} is 2, as its cost scales with the space (asked: ≥ {check['plain_at_least']:g});"
    truth = (slope <= check["at_most"]) & (check["plain_at_least"] <= 2)
    found = decide(
        truth[:, None], evidence, line.seeds, numbers, spans(grown, check["reach"]), evidence
    )
    return replace(
        found, evidence=grown.evidence().assign(outcome=found.evidence["outcome"].iloc[0])
    )


def bounded(study, check, context):
    """Check a ratio as `verdicts.bound` does; partial where a column is not stored up to its value
    in `reach`.
    """
    found = verdicts.bound(study, check, context)
    cells = study.cells[(study.cells["sweep"] == check["sweep"]).to_numpy()]
    cells = cells[np.logical_or.reduce([chosen(cells, selector) for selector in check["left"]])]
    short = [
        f"{name} up to {cells[name].max():,} instead of {last:,}"
        for name, last in check["reach"].items()
        if cells[name].max() < last
    ]
    return replace(found, lacking="; ".join(filter(None, [found.lacking, *short])))


def lower_bound(study, check, context):
    """Check that the mean cost, where the optimum is 0, is at least `share` k (rho / 100)^2, rho
    being each run's own.

    A method without rows, such as one that refuses so few points, is named with the recorded
    reason.
    """
    panel = joined(study, check["sweep"], check["metric"])
    if len(panel.cells):
        panel = panel.take(chosen(panel.cells, {"method": check["methods"]}))
    if not len(panel.cells):
        raise MissingRows(context.why([check["sweep"]]))
    gaps = context.missing[context.missing["sweep"] == check["sweep"]]
    stored = set(zip(panel.cells["method"], panel.cells["dataset"], strict=True))
    lacking = []
    for pair in product(check["methods"], check["datasets"]):
        if pair not in stored:
            reasons = gaps.loc[(gaps["method"] == pair[0]) & (gaps["dataset"] == pair[1]), "reason"]
            lacking.append(
                f"{pair[0]} on {pair[1]}: {reasons.iloc[0] if len(reasons) else 'no stored rows'}"
            )
    cells = panel.cells[["method", "dataset", "n", "k", "epsilon", "rho"]]
    cost = resampled_means(panel, resampling_weights(len(panel.seeds))) * cells["n"].to_numpy(
        dtype=float
    )
    least = (
        check["share"]
        * cells["k"].to_numpy(dtype=float)
        * (cells["rho"].to_numpy(dtype=float) / 100) ** 2
    )
    evidence = cells.assign(cost=cost[0], bound=least)
    share = cost[0] / least
    numbers = f"Mean cost over the bound {share.min():.3g} to {share.max():.3g} (asked: ≥ 1);"
    seeds = int(np.isfinite(panel.values).sum(axis=0).min())
    return decide(cost >= least, evidence, seeds, numbers, "; ".join(lacking), evidence)


def steeper(study, check, context):
    """Check that the slope of `method` is above that of `other`; see `excess_slope`."""
    lines = [curve(study, check, context, check[name]) for name in ("method", "other")]
    for line in lines:
        if (found := not_positive(line)) is not None:
            return found
    slopes = [line.slopes() for line in lines]
    evidence = slope_table(lines, slopes)
    numbers = f"Slope over {check['along']}: {shown(evidence)};"
    one = evidence.iloc[:1]
    lacking = spans(lines[0], check["reach"])
    found = decide(
        (slopes[0] > slopes[1])[:, None],
        one,
        min(line.seeds for line in lines),
        numbers,
        lacking,
        one,
    )
    return replace(found, evidence=evidence)


def nearer(study, check, context):
    """Check that `method` lies nearer to `below` than to `above`, for every data set and k."""
    panel = joined(study, check["sweep"], check["metric"])
    cells = panel.cells
    if not len(cells):
        raise MissingRows(context.why(check["sweep"]))
    datasets = context.resolve(check["over"]["dataset"])
    places = {
        name: {
            (cells["dataset"][at], cells["k"][at]): at
            for at in np.flatnonzero(chosen(cells, check[name]))
        }
        for name in ("method", "below", "above")
    }
    shared = [key for key in places["method"] if key in places["below"] and key in places["above"]]
    shared = sorted(key for key in shared if key[0] in datasets and key[1] in check["over"]["k"])
    if not shared:
        raise MissingRows(context.why(check["sweep"]))
    at = {name: [found[key] for key in shared] for name, found in places.items()}
    means = resampled_means(panel, resampling_weights(len(panel.seeds)))
    mine, low, high = (means[:, at[name]] for name in ("method", "below", "above"))
    share = (mine - low) / (high - low)
    keys = pd.DataFrame(shared, columns=["dataset", "k"])
    evidence = keys.assign(method=mine[0], below=low[0], above=high[0], share_of_the_way=share[0])
    numbers = f"Share of the way from {check['below']} to {check['above']} between {share[0].min():.3g} and "
    numbers += f"{share[0].max():.3g} (asked: < 0.5);"
    seeds = int(np.isfinite(panel.values[:, np.concatenate(list(at.values()))]).sum(axis=0).min())
    asked = len(datasets) * len(check["over"]["k"])
    lacking = f"{len(shared)} of {asked} comparisons at hand" if len(shared) < asked else ""
    return decide(mine - low < high - mine, keys, seeds, numbers, lacking, evidence)


def shapes(study, check, context):
    """Numbers of points and dimensions of stored data sets against `expected`, a data set to [n,
    d].
    """
    stored = study.cells.drop_duplicates("dataset").set_index("dataset")[["n", "d"]]
    lines = [
        {
            "dataset": name,
            "printed": str(tuple(size)),
            "stored": str(tuple(int(value) for value in stored.loc[name])),
            "agrees": tuple(stored.loc[name]) == tuple(size),
        }
        for name, size in check["expected"].items()
        if name in stored.index
    ]
    absent = [name for name in check["expected"] if name not in stored.index]
    lacking = f"no stored rows of {', '.join(absent)}" if absent else ""
    return exact(
        pd.DataFrame(lines),
        lacking or "Every point lies in the cube: others are moved to its border.",
        lacking,
    )


def _charged_cells(study, method):
    """Cells of a method that have charges, each with them."""
    cells = study.cells[chosen(study.cells, method)].drop_duplicates("cell")
    charges = charges_of(cells)
    if not len(charges):
        raise MissingRows(f"no stored row of {method} has charges")
    return [(cells.loc[index], group) for index, group in charges.groupby(level=0)]


def part_of(label, parts):
    """Name of the part of the budget that a charge belongs to, by the beginning of its label; None
    if none does.
    """
    for name, beginnings in parts.items():
        if label.startswith(tuple(beginnings)):
            return name
    return None


def thirds(study, check, context):
    """Charges of every stored cell by parts of the budget: δ of each part at a third of ε, against
    a third of δ.

    A part with pure charges has no closed form: for it the ledger's total is checked.
    """
    lines = []
    for cell, charges in _charged_cells(study, check["method"]):
        part_names = charges["label"].map(lambda label: part_of(label, check["parts"]))
        unknown = ", ".join(sorted(set(charges["label"][part_names.isna()])))
        for part in check["parts"]:
            of_part = charges[part_names == part]
            line = {name: cell[name] for name in ("sweep", "dataset", "k", "epsilon")}
            line |= {
                "part": part,
                "releases": len(of_part),
                "of_no_part": unknown,
                "delta_at_a_third": np.nan,
            }
            if (of_part["epsilon"] == 0).all():
                line["delta_at_a_third"] = composed_delta(of_part, cell["epsilon"] / 3)
                fits = line["delta_at_a_third"] <= cell["delta"] / 3 * (1 + _TOLERANCE)
            else:
                fits = cell["epsilon_spent"] <= cell["epsilon"] * (1 + _TOLERANCE)
            lines.append(
                line
                | {
                    "third_of_delta": cell["delta"] / 3,
                    "agrees": fits and len(of_part) > 0 and not unknown,
                }
            )
    table = pd.DataFrame(lines)
    share = table["delta_at_a_third"] / table["third_of_delta"]
    numbers = f"δ at a third of ε over a third of δ: {share.min():.3f} to {share.max():.3f} where all noise is Gaussian."
    return exact(table, numbers)


def points_noise(study, check, context):
    """Noise on the points of every stored cell against the classical formula, and its δ at ε
    against the part's.

    ``methods`` names the share of the budget: 3 stands for a third.
    """
    lines, absent = [], []
    for method, share in check["methods"].items():
        try:
            found = _charged_cells(study, method)
        except MissingRows as none:
            absent.append(str(none))
            continue
        for cell, charges in found:
            for charge in charges[charges["label"] == check["label"]].to_dict("records"):
                epsilon, delta = cell["epsilon"] / share, cell["delta"] / share
                stored = charge["scale"] / charge["sensitivity"]
                formula = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
                needed = gaussian_delta(1 / stored, epsilon)
                agrees = math.isclose(stored, formula, rel_tol=_TOLERANCE) and needed <= delta
                line = {name: cell[name] for name in ("method", "dataset", "epsilon", "rho")}
                line |= {
                    "stored": stored,
                    "formula": formula,
                    "delta_at_epsilon": needed,
                    "delta": delta,
                }
                if cell.get("calibration") in (None, "classical"):
                    lines.append(line | {"agrees": agrees})
    table = pd.DataFrame(lines)
    if not len(table):
        raise MissingRows(
            "; ".join(absent) or "no stored cell noises its points by the classical formula"
        )
    share = (table["delta_at_epsilon"] / table["delta"]).max()
    numbers = f"Standard deviation over ρ: {table['stored'].min():.4g} to {table['stored'].max():.4g}; its δ at ε is at "
    numbers += f"most {share:.3g} of the declared one."
    return exact(table, numbers, "; ".join([*absent, "the audit is no part of the rows"]))


def runtimes(study, check, context):
    """CPU seconds of every stored row of the methods against `at_most`; CPU time is what one thread
    would need.
    """
    rows = study.rows_with(["fit_cpu_seconds"])
    rows = rows[rows["method"].isin(check["methods"]) & rows["sweep"].isin(check["sweeps"])]
    if not len(rows):
        raise MissingRows(context.why(check["sweeps"]))
    table = (
        rows.groupby(["method", "dataset"])["fit_cpu_seconds"].max().rename("longest").reset_index()
    )
    table = table.assign(agrees=table["longest"] <= check["at_most"])
    worst = table.loc[table["longest"].idxmax()]
    absent = [
        name for name in context.resolve(check["datasets"]) if name not in set(table["dataset"])
    ]
    lacking = f"no stored rows of {', '.join(absent)}" if absent else ""
    numbers = (
        f"Longest {worst['longest']:.3g} s of CPU time ({worst['method']} on {worst['dataset']})."
    )
    return exact(table, numbers, lacking)


EVALUATORS = {
    "excess_slope": excess_slope,
    "radius_slopes": radius_slopes,
    "bounded": bounded,
    "lower_bound": lower_bound,
    "steeper": steeper,
    "nearer": nearer,
    "shapes": shapes,
    "thirds": thirds,
    "points_noise": points_noise,
    "runtimes": runtimes,
}
