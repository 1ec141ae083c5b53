"""Claims of the PE-means paper: printed areas."""

from collections.abc import Mapping

import numpy as np

from pkm.analysis.findings import (
    FAILS,
    HOLDS,
    INCONCLUSIVE,
    MIN_SEEDS,
    Context,
    Draws,
    Finding,
    MissingRows,
    check_type,
    no_rows_of,
    of_part,
    too_few,
)
from pkm.analysis.papers.pe_means import compared_areas
from pkm.analysis.tables import Study, area, panel_of_sweeps, resampled_means


@check_type("numbers", "sweeps", "method", "over")
def printed_areas(study: Study, check: Mapping, context: Context) -> Finding:
    """Check that a share `at_least` of a method's printed areas is met, on the data sets `over`."""
    reported = context.reported[check["numbers"]]
    table = compared_areas(study, tuple(check["sweeps"]), reported)
    expected = [
        cell["dataset"]
        for cell in reported["cells"]
        if check["method"] in cell and cell["dataset"] in context.resolve(check["over"])
    ]
    table = table[(table["method"] == check["method"]) & table["dataset"].isin(expected)]
    if not len(table):
        raise MissingRows(f"no area of {check['method']} is stored where one is printed")

    share = table["agrees"].mean()
    n_agreeing = int(table["agrees"].sum())
    missing = no_rows_of(expected, table["dataset"])
    numbers = f"{n_agreeing} of {len(table)} printed areas are met; measured over printed from "
    ratios = table["value"] / table["printed"].astype(float)
    numbers += f"{ratios.min():.3f} to {ratios.max():.3f}."
    seeds = int(table["seeds"].min())
    verdict = HOLDS if share >= check["at_least"] else FAILS
    if seeds < MIN_SEEDS:
        verdict = INCONCLUSIVE
        numbers += f" {too_few(seeds)}"
    evidence = table.reset_index(drop=True)
    return Finding(
        of_part(verdict, missing, refuted=False), numbers, len(table), seeds, missing, evidence
    )


@check_type("numbers", "sweeps", "method", "printed", "over", "geometric_mean")
def printed_ratios(study: Study, check: Mapping, context: Context) -> Draws:
    """Divide a method's areas by the smallest that are printed of others, on the data sets `over`.

    With `geometric_mean` the value is that of all data sets.
    """
    panel = area(panel_of_sweeps(study, tuple(check["sweeps"]), "nicv"))
    names = context.resolve(check["over"])
    is_compared = (panel.cells["method"] == check["method"]) & panel.cells["dataset"].isin(names)
    panel = panel.take(is_compared.to_numpy())
    if not len(panel.cells):
        raise MissingRows(f"no area of {check['method']} is stored where one is printed")

    # The smallest printed area of each data set.
    printed = {
        cell["dataset"]: min(float(cell[name]) for name in check["printed"] if name in cell)
        for cell in context.reported[check["numbers"]]["cells"]
    }
    ratios = resampled_means(panel) / panel.cells["dataset"].map(printed).to_numpy()
    cases = panel.cells[["method", "dataset"]]
    missing = no_rows_of(names, cases["dataset"])
    if not check["geometric_mean"]:
        return Draws(ratios, cases, panel.min_seeds, missing, "Measured over printed area")

    mean = np.exp(np.log(ratios).mean(axis=1, keepdims=True))
    evidence = cases.assign(ratio=ratios[0]).reset_index(drop=True)
    name = f"Geometric mean of measured over printed areas on {len(cases)} data sets"
    return Draws(mean, cases.iloc[:1], panel.min_seeds, missing, name, evidence=evidence)
