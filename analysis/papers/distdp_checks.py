"""Claims of the paper on distance-based privacy: slopes in the radius, charges, noise."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from pkm.analysis.accounting import composed_delta, gaussian_delta
from pkm.analysis.charges import charges_of
from pkm.analysis.comparisons import ratios
from pkm.analysis.exact import absent_cells
from pkm.analysis.findings import (
    Agreement,
    Context,
    Draws,
    MissingRows,
    check_type,
    join_texts,
    no_rows_of,
)
from pkm.analysis.planted import CURVE, curve
from pkm.analysis.predicates import interval_text
from pkm.analysis.tables import Study, matches

_TOLERANCE = 1e-6
_CELL = ["method", "sweep", "dataset", "k", "epsilon"]


@check_type(*CURVE)
def radius_slope(study: Study, check: Mapping, context: Context) -> Draws:
    """Check the slope in the radius of the space at a fixed rho against bounds.

    The box is scaled with the data, so a space L times as large is the same space with rho divided
    by L and costs multiplied by L squared. The cost of a method without rho has slope 2.
    """
    line = curve(study, check | {"along": "rho", "value": "cost"}, context)
    radius = line.x.max() / line.x
    over_radius = replace(line, along="radius", x=radius, values=line.values * radius**2)
    text = f"From radius 1 to {radius.max():g}; without rho it is 2, as costs scale with the space."
    return over_radius.draws(over_radius.slopes(), "Slope over the radius", check, text)


@check_type(*CURVE, "other")
def steeper(study: Study, check: Mapping, context: Context) -> Draws:
    """Check that the slope of `method` is above that of `other`; see `excess_slope`."""
    lines = [curve(study, check, context, check[name]) for name in ("method", "other")]
    slopes = [line.slopes() for line in lines]
    texts = [
        f"{line.cells['method'].iloc[0]} {interval_text(slope)}"
        for line, slope in zip(lines, slopes, strict=True)
    ]
    truth = slopes[0] > slopes[1]
    text = f"Slope over {check['along']}: {'; '.join(texts)}"
    first, second = (line.draws(truth, "", check, text) for line in lines)
    evidence = pd.concat([line.evidence() for line in lines], ignore_index=True)
    undecided = first.undecided or second.undecided
    seeds = min(line.seeds for line in lines)
    return replace(first, evidence=evidence, undecided=undecided, seeds=seeds)


@check_type("sweep", "metric", "method", "below", "above", "over")
def nearer(study: Study, check: Mapping, context: Context) -> Draws:
    """Check that `method` lies nearer to `below` than to `above` in every comparison."""
    sides = {"over": check["over"], "sweep": check["sweep"], "metric": check["metric"]}
    over, under = (
        ratios(study, {**sides, "by": "difference", "left": [left], "right": [right]}, context)
        for left, right in ((check["method"], check["below"]), (check["above"], check["method"]))
    )

    # The comparisons that all three methods have.
    names = list(check["over"])
    lines = [draws.cases[names].reset_index(names="line") for draws in (over, under)]
    both = lines[0].merge(lines[1], on=names)
    if not len(both):
        raise MissingRows(context.why(check["sweep"]))
    low, high = over.values[:, both["line_x"]], under.values[:, both["line_y"]]
    position = low[0] / (low[0] + high[0])
    text = f"Position between {check['below']} (0) and {check['above']} (1) from "
    text += f"{position.min():.3g} to {position.max():.3g} (required: < 0.5)"
    missing = over.missing if len(over.cases) < len(under.cases) else under.missing
    facts = {"position": position}
    return Draws(low < high, both[names], over.seeds, missing, text=text, facts=facts)


def part_of(label: str, parts: Mapping[str, Sequence[str]]) -> str:
    """Part of the budget that a charge belongs to, by the beginning of its label, or nothing."""
    belongs = (name for name, starts in parts.items() if label.startswith(tuple(starts)))
    return next(belongs, "")


def _charged_cells(study: Study, method: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Cells of a method that have charges, and these charges."""
    cells = study.cells[matches(study.cells, method)].drop_duplicates("cell")
    charges = charges_of(cells)
    if not len(charges):
        raise MissingRows(f"no stored row of {method} has charges")
    return cells.loc[charges.index.unique()], charges


@check_type("method", "parts")
def thirds(study: Study, check: Mapping, context: Context) -> Agreement:
    """Compare the δ of each part of the budget, at a third of ε, with a third of δ.

    A part with pure charges has no closed form: for it the ledger's total is checked.
    """
    cells, charges = _charged_cells(study, check["method"])
    charges = charges.assign(part=[part_of(name, check["parts"]) for name in charges["label"]])
    spent = cells["epsilon_spent"] <= cells["epsilon"] * (1 + _TOLERANCE)
    tables = []
    for part in check["parts"]:
        of_part = charges[charges["part"] == part]
        by_cell = {index: of_part[of_part.index == index] for index in cells.index}
        delta = pd.Series(
            {
                index: composed_delta(group, cells["epsilon"][index] / 3)
                if (group["epsilon"] == 0).all()
                else np.nan
                for index, group in by_cell.items()
            }
        )
        third = cells["delta"] / 3
        fits = (delta <= third * (1 + _TOLERANCE)) | (delta.isna() & spent)
        releases = pd.Series({index: len(group) for index, group in by_cell.items()})
        facts = {"part": part, "releases": releases, "delta_at_a_third": delta}
        tables.append(
            cells[_CELL].assign(**facts, third_of_delta=third, agrees=fits & (releases > 0))
        )
    table = pd.concat(tables, ignore_index=True)
    unknown = sorted(set(charges["label"][charges["part"] == ""]))
    if unknown:
        table["agrees"] = False
    share = table["delta_at_a_third"] / table["third_of_delta"]
    text = f"δ at a third of ε over a third of δ: {share.min():.3f} to {share.max():.3f} where all "
    text += f"noise is Gaussian. {'Of no part: ' if unknown else ''}{', '.join(unknown)}"
    return Agreement(table, text.strip(), absent_cells(context, check["method"]))


@check_type("label", "methods")
def points_noise(study: Study, check: Mapping, context: Context) -> Agreement:
    """Compare the noise on the points with the classical formula, and its δ at ε with that part's.

    `methods` maps each method to the number of equal parts, of which the points get one.
    """
    tables = []
    for method, n_parts in check["methods"].items():
        selector = {"method": method}
        if not matches(study.cells, selector).any():
            continue
        cells, charges = _charged_cells(study, method)
        table = charges[charges["label"] == check["label"]].join(cells, suffixes=("_charged", ""))
        if "calibration" in table:
            table = table[table["calibration"].isna() | (table["calibration"] == "classical")]
        epsilon = table["epsilon"] / n_parts
        delta = table["delta"] / n_parts
        stored = table["point_scale"] / table["point_sensitivity"]
        formula = np.sqrt(2 * np.log(1.25 / delta)) / epsilon
        pairs = zip(1 / stored, epsilon, strict=True)
        spent = np.array([gaussian_delta(*pair) for pair in pairs])
        agrees = np.isclose(stored, formula, rtol=_TOLERANCE, atol=0) & (spent <= delta)
        facts = {"stored": stored, "formula": formula, "delta_at_epsilon": spent}
        names = ["method", "dataset", "epsilon", "rho"]
        tables.append(table[names].assign(**facts, delta=delta, agrees=agrees))
    if not sum(map(len, tables)):
        raise MissingRows("no stored cell noises its points by the classical formula")
    table = pd.concat(tables, ignore_index=True)
    share = (table["delta_at_epsilon"] / table["delta"]).max()
    text = f"Standard deviation over ρ: {table['stored'].min():.4g} to {table['stored'].max():.4g};"
    text += f" its δ at ε is at most {share:.3g} of the declared δ. No row holds an audit."
    absent = no_rows_of(check["methods"], table["method"])
    return Agreement(table, text, join_texts(absent, absent_cells(context, check["methods"])))
