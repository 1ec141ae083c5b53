"""Claims of the paper on distance-based privacy: excess, bounds, charges, noise."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd

from pkm.analysis import verdicts
from pkm.analysis.accounting import composed_delta, gaussian_delta
from pkm.analysis.charges import charges_of
from pkm.analysis.findings import (
    Context,
    Finding,
    MissingRows,
    decide,
    decide_joint,
    exact,
    join_texts,
    no_rows_of,
)
from pkm.analysis.planted import (
    curve,
    excess_slope,
    not_positive,
    planted_panel,
    slope_table,
    slopes_text,
    with_outcome,
)
from pkm.analysis.tables import Study, matches, resampled_means

_TOLERANCE = 1e-6


def radius_slopes(study: Study, check: Mapping, context: Context) -> Finding:
    """Slopes in the radius of the space at a fixed rho, against bounds.

    That of `method` against `at_most`, that of `plain` against `plain_at_least`. The box is scaled
    with the data, so a space L times as large is the same space with rho divided by L and costs
    multiplied by L squared. The cost of a method without rho grows like L squared: its slope is 2.
    """
    line = curve(study, check | {"along": "rho", "value": "cost"}, context)
    if (finding := not_positive(line)) is not None:
        return finding
    radius = line.x.max() / line.x
    over_radius = replace(line, along="radius", x=radius, values=line.values * radius**2)
    slope = over_radius.slopes()
    panel = planted_panel(study, check["sweep"], check["metric"])
    if not matches(panel.cells, check["plain"]).any():
        raise MissingRows(context.why(check["sweep"]))
    table = slope_table([over_radius], [slope]).assign(plain=check["plain"], plain_slope=2.0)
    numbers = f"Slope over the radius from 1 to {radius.max():g}: {slopes_text(table)} "
    numbers += f"(required: ≤ {check['at_most']:g}); that of {check['plain']} is 2, as its cost "
    numbers += f"scales with the space (required: ≥ {check['plain_at_least']:g});"
    plain_agrees = check["plain_at_least"] <= 2
    truth = (slope <= check["at_most"]) & plain_agrees
    missing = over_radius.missing_reach(check["reach"])
    finding = decide(truth[:, None], line.seeds, numbers, missing, table)
    return with_outcome(finding, over_radius.evidence())


def bounded(study: Study, check: Mapping, context: Context) -> Finding:
    """Check a ratio as `verdicts.bound` does.

    Partial where a column is not stored up to its value in `reach`.
    """
    finding = verdicts.bound(study, check, context)
    cells = study.cells[(study.cells["sweep"] == check["sweep"]).to_numpy()]
    selected = [matches(cells, selector) for selector in check["left"]]
    cells = cells[np.logical_or.reduce(selected)]
    texts = []
    for name, last in check["reach"].items():
        largest = cells[name].max()
        if largest < last:
            texts.append(f"{name} up to {largest:,} instead of {last:,}")
    return replace(finding, missing=join_texts(finding.missing, *texts))


def lower_bound(study: Study, check: Mapping, context: Context) -> Finding:
    """Check that the mean cost is at least `share` k (rho / 100)^2, rho being that of each run.

    The optimum is 0. A method without rows, such as one that refuses so few points, is named with
    the recorded reason.
    """
    panel = planted_panel(study, check["sweep"], check["metric"])
    panel = panel.take(matches(panel.cells, {"method": check["methods"]}))
    if not len(panel.cells):
        raise MissingRows(context.why(check["sweep"]))

    # Say why a method has no rows on a data set.
    gaps = context.missing[context.missing["sweep"] == check["sweep"]]
    stored = set(zip(panel.cells["method"], panel.cells["dataset"], strict=True))
    texts = []
    for method, dataset in product(check["methods"], check["datasets"]):
        if (method, dataset) not in stored:
            of_pair = gaps[matches(gaps, {"method": method, "dataset": dataset})]
            reason = of_pair["reason"].iloc[0] if len(of_pair) else "no stored rows"
            texts.append(f"{method} on {dataset}: {reason}")

    cells = panel.cells[["method", "dataset", "n", "k", "epsilon", "rho"]]
    cost = resampled_means(panel) * cells["n"].to_numpy(dtype=float)
    rho = cells["rho"].to_numpy(dtype=float)
    lowest = check["share"] * cells["k"].to_numpy(dtype=float) * (rho / 100) ** 2
    evidence = cells.assign(cost=cost[0], bound=lowest)
    ratio = cost[0] / lowest
    numbers = f"Mean cost over the bound {ratio.min():.3g} to {ratio.max():.3g} (required: ≥ 1);"
    return decide(cost >= lowest, panel.min_seeds, numbers, "; ".join(texts), evidence)


def steeper(study: Study, check: Mapping, context: Context) -> Finding:
    """Check that the slope of `method` is above that of `other`; see `excess_slope`."""
    lines = [curve(study, check, context, check[name]) for name in ("method", "other")]
    for line in lines:
        if (finding := not_positive(line)) is not None:
            return finding
    slopes = [line.slopes() for line in lines]
    evidence = slope_table(lines, slopes)
    numbers = f"Slope over {check['along']}: {slopes_text(evidence)};"
    seeds = min(line.seeds for line in lines)
    missing = lines[0].missing_reach(check["reach"])
    return decide_joint(slopes[0] > slopes[1], seeds, numbers, missing, evidence)


def nearer(study: Study, check: Mapping, context: Context) -> Finding:
    """Check that `method` lies nearer to `below` than to `above`, for every data set and k."""
    panel = planted_panel(study, check["sweep"], check["metric"])
    cells = panel.cells
    if not len(cells):
        raise MissingRows(context.why(check["sweep"]))

    # Find the cells of the three methods for every data set and k that all of them have.
    positions = {}
    for name in ("method", "below", "above"):
        of_method = cells[matches(cells, check[name])]
        keys = zip(of_method["dataset"], of_method["k"], strict=True)
        positions[name] = dict(zip(keys, of_method.index, strict=True))
    datasets = context.resolve(check["over"]["dataset"])
    expected = set(product(datasets, check["over"]["k"]))
    shared = sorted(expected.intersection(*positions.values()))
    if not shared:
        raise MissingRows(context.why(check["sweep"]))

    # Position of the method's mean between the two other means: 0 is `below`, 1 is `above`.
    means = resampled_means(panel)
    columns = {name: [by_key[key] for key in shared] for name, by_key in positions.items()}
    value = means[:, columns["method"]]
    low = means[:, columns["below"]]
    high = means[:, columns["above"]]
    position = (value - low) / (high - low)
    evidence = pd.DataFrame(shared, columns=["dataset", "k"])
    evidence = evidence.assign(method=value[0], below=low[0], above=high[0], position=position[0])
    numbers = f"Position between {check['below']} (0) and {check['above']} (1) from "
    numbers += f"{position[0].min():.3g} to {position[0].max():.3g} (required: < 0.5);"
    seeds = panel.take(np.concatenate(list(columns.values()))).min_seeds
    missing = ""
    if len(shared) < len(expected):
        missing = f"{len(shared)} of {len(expected)} comparisons available"
    return decide(value - low < high - value, seeds, numbers, missing, evidence)


def shapes(study: Study, check: Mapping, context: Context) -> Finding:
    """Numbers of points and dimensions of stored data sets against `expected`, by data set."""
    table, missing = verdicts.compare_sizes(study.cells, check["expected"], ["n", "d"])
    text = "Every point lies in the cube: others are moved to its border."
    return exact(table, missing or text, missing)


def _charged_cells(study: Study, selector: str | Mapping) -> list[tuple[pd.Series, pd.DataFrame]]:
    """Cells of a method that have charges, each with them."""
    cells = study.cells[matches(study.cells, selector)].drop_duplicates("cell")
    charges = charges_of(cells)
    if not len(charges):
        raise MissingRows(f"no stored row of {selector} has charges")
    return [(cells.loc[index], group) for index, group in charges.groupby(level=0)]


def part_of(label: str, parts: Mapping[str, Sequence[str]]) -> str | None:
    """Part of the budget that a charge belongs to, by the beginning of its label; or None."""
    for name, beginnings in parts.items():
        if label.startswith(tuple(beginnings)):
            return name
    return None


def thirds(study: Study, check: Mapping, context: Context) -> Finding:
    """Charges of every stored cell by parts of the budget.

    The δ of each part at a third of ε is compared with a third of δ. A part with pure charges has
    no closed form: for it the ledger's total is checked.
    """
    lines = []
    for cell, charges in _charged_cells(study, check["method"]):
        part_names = charges["label"].map(lambda label: part_of(label, check["parts"]))
        unknown = ", ".join(sorted(set(charges["label"][part_names.isna()])))
        allowed = cell["delta"] / 3
        for part in check["parts"]:
            of_part = charges[part_names == part]
            if (of_part["epsilon"] == 0).all():
                delta = composed_delta(of_part, cell["epsilon"] / 3)
                fits = delta <= allowed * (1 + _TOLERANCE)
            else:
                delta = np.nan
                fits = cell["epsilon_spent"] <= cell["epsilon"] * (1 + _TOLERANCE)
            line = {name: cell[name] for name in ("sweep", "dataset", "k", "epsilon")}
            line["part"] = part
            line["releases"] = len(of_part)
            line["of_no_part"] = unknown
            line["delta_at_a_third"] = delta
            line["third_of_delta"] = allowed
            line["agrees"] = fits and len(of_part) > 0 and not unknown
            lines.append(line)
    table = pd.DataFrame(lines)
    share = table["delta_at_a_third"] / table["third_of_delta"]
    numbers = f"δ at a third of ε over a third of δ: {share.min():.3f} to {share.max():.3f} where "
    return exact(table, f"{numbers}all noise is Gaussian.")


def points_noise(study: Study, check: Mapping, context: Context) -> Finding:
    """Noise on the points of every stored cell against the classical formula.

    Its δ at ε is compared with the δ of that part of the budget. ``methods`` maps each method to
    the number of equal parts, of which the points get one.
    """
    lines = []
    absent = []
    for method, n_parts in check["methods"].items():
        try:
            cells = _charged_cells(study, method)
        except MissingRows as missing:
            absent.append(str(missing))
            continue
        for cell, charges in cells:
            if cell.get("calibration") not in (None, "classical"):
                continue
            epsilon = cell["epsilon"] / n_parts
            delta = cell["delta"] / n_parts
            formula = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
            for charge in charges[charges["label"] == check["label"]].to_dict("records"):
                stored = charge["point_scale"] / charge["point_sensitivity"]
                delta_at_epsilon = gaussian_delta(1 / stored, epsilon)
                equal = math.isclose(stored, formula, rel_tol=_TOLERANCE)
                line = {name: cell[name] for name in ("method", "dataset", "epsilon", "rho")}
                line["stored"] = stored
                line["formula"] = formula
                line["delta_at_epsilon"] = delta_at_epsilon
                line["delta"] = delta
                line["agrees"] = equal and delta_at_epsilon <= delta
                lines.append(line)
    table = pd.DataFrame(lines)
    if not len(table):
        none = "no stored cell noises its points by the classical formula"
        raise MissingRows(join_texts(*absent) or none)
    share = (table["delta_at_epsilon"] / table["delta"]).max()
    numbers = f"Standard deviation over ρ: {table['stored'].min():.4g} to "
    numbers += f"{table['stored'].max():.4g}; its δ at ε is at most {share:.3g} of the declared δ."
    return exact(table, numbers, join_texts(*absent, "no row holds an audit"))


def runtimes(study: Study, check: Mapping, context: Context) -> Finding:
    """CPU seconds of every stored row of the methods against `at_most`.

    CPU time is what one thread would need.
    """
    rows = study.rows_with(["fit_cpu_seconds"])
    rows = rows[rows["method"].isin(check["methods"]) & rows["sweep"].isin(check["sweeps"])]
    if not len(rows):
        raise MissingRows(context.why(check["sweeps"]))
    longest = rows.groupby(["method", "dataset"])["fit_cpu_seconds"].max()
    table = longest.rename("longest").reset_index()
    table = table.assign(agrees=table["longest"] <= check["at_most"])
    worst = table.loc[table["longest"].idxmax()]
    missing = no_rows_of(context.resolve(check["datasets"]), table["dataset"])
    numbers = f"Longest {worst['longest']:.3g} s of CPU time ({worst['method']} on "
    return exact(table, f"{numbers}{worst['dataset']}).", missing)


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
