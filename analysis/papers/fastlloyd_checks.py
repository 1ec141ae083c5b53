"""Claims of the FastLloyd paper: federated against central runs."""

from collections.abc import Mapping

from pkm.analysis.claims.federation_costs import federated
from pkm.analysis.claims.findings import (
    Context,
    Finding,
    MissingRows,
    agree,
    check_type,
    describe_missing,
    join_texts,
)
from pkm.analysis.tables.study import Study

_ROUNDING = 1e-12


@check_type("sweeps")
def equals_central_run(
    study: Study,
    check: Mapping,
    context: Context,
) -> Finding:
    """Compare NICV of federated runs with the central run of the same cell and seed.

    The same cell: method, data, budget.
    """
    rows = study.rows_with(["nicv"])
    protocol = federated(rows)
    central = rows.drop(protocol.index)
    protocol = protocol[protocol["sweep"].isin(check["sweeps"])]
    if not len(protocol):
        raise MissingRows(context.explain_missing(check["sweeps"]))
    keys = [
        "method",
        "target",
        "variant",
        "params",
        "dataset",
        "preprocessing",
        "epsilon",
        "seed",
    ]
    central = central[[*keys, "nicv"]].drop_duplicates(keys)
    both = protocol.merge(central, on=keys, suffixes=("", "_central"))
    if not len(both):
        raise MissingRows(
            "no central run of the same method, data set, epsilon and seed as a "
            "federated one is stored"
        )
    both["difference"] = (both["nicv"] / both["nicv_central"] - 1).abs()
    groups = ["sweep", "method", "dataset", "epsilon", "clients", "transport"]
    table = (
        both.groupby(groups)["difference"]
        .agg(runs="size", difference="max")
        .reset_index()
    )
    table["agrees"] = table["difference"] <= _ROUNDING
    unmatched = describe_missing(protocol["dataset"].unique(), both["dataset"])
    unmatched = f"central runs at this epsilon: {unmatched}" if unmatched else ""
    gaps = context.describe_gaps(sweeps=check["sweeps"])
    missing = join_texts(unmatched, gaps)
    largest = both["difference"].max()
    text = f"{len(both)} runs, relative differences of at most {largest:.2g}."
    return agree(table, text, check, missing)
