"""Claims of the PE-means paper: printed areas."""

from collections.abc import Mapping

from pkm.analysis.findings import (
    FAILS,
    HOLDS,
    INCONCLUSIVE,
    MIN_SEEDS,
    Context,
    Finding,
    MissingRows,
    check_type,
    no_rows_of,
    of_part,
    too_few,
)
from pkm.analysis.papers.pe_means import compared_areas
from pkm.analysis.tables import Study


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
